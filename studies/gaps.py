"""How each method changes score gap and weighing, which the paper does not measure: an audit of every trained model.

Each method is trained on a training fold and audited by `evenhand.audit` on the test fold, with the training fold as
reference.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.auditing.audit import audit
from evenhand.datasets import load_dataset
from evenhand.exceptions import EvenhandWarning, InvalidInputError
from evenhand.metrics.estimate import Estimate
from evenhand.research.methods import Method, RepairsTable, make_method, method_names
from evenhand.research.reproduction.protocol import (
    ProtocolSettings,
    ResultRow,
    ResultStore,
    method_parameters,
    prepare_folds,
    versions,
)
from evenhand.research.reproduction.reproduce import DATASETS, names_among
from evenhand.research.reproduction.tables import PaperTable, by_method, dataset_name, method_name, settings_notes
from evenhand.searching.choice import mean_interval
from evenhand.system.terminal import progress as shown_progress
from evenhand.training.data import Fold

if TYPE_CHECKING:
    from evenhand.datasets import Dataset


GAP_NAMES = {
    "auc": "AUC",
    "score_gap": "Score gap, log-odds",
    "probability_gap": "Score gap, probability",
    "decision_gap": "Gap of decisions",
    "weighing": "Weighing",
}
"""Every metric of the table, with its heading."""

_HELD_AGAINST = ("score_gap", "weighing")


def compare_gaps(
    dataset: str | Sequence[str] = "german",
    methods: str | Sequence[str] | None = None,
    settings: ProtocolSettings | None = None,
    *,
    repeats: int = 1,
    out: str | os.PathLike[str] = "reproduction",
    progress: bool = False,
    **of_hmda: Any,
) -> PaperTable:
    """Audit every method on every fold, and write ``gaps.jsonl`` and ``table_gaps`` into `out`.

    Parameters
    ----------
    dataset, methods
        Names, as `evenhand.research.reproduction.reproduce.reproduce` takes them.
    settings
        Folds, network and training; None for the paper's.
    repeats
        Cross-validations, each with the next seed, which decides folds and networks.
    out
        Folder. A second call continues where the first stopped.
    progress
        Whether to show progress.
    of_hmda
        Which applications of HMDA.

    Raises
    ------
    InvalidInputError
        If a name is unknown, a dataset does not have two groups, or there is no cross-validation.
    """
    if repeats < 1:
        raise InvalidInputError(f"`repeats` (--repeats) must be at least 1, got {repeats}.")
    names = names_among(dataset, DATASETS, "dataset")
    chosen = names_among("all" if methods is None else methods, method_names(), "methods")
    first = ProtocolSettings() if settings is None else settings
    store = ResultStore(Path(out) / "gaps.jsonl")
    rows: list[ResultRow] = []
    for name in names:
        data = load_dataset(name, **(of_hmda if name == "hmda" else {}))
        for repeat in range(repeats):
            own = replace(first, random_state=first.random_state + repeat)
            rows += run_gaps(data, chosen, own, store, progress=progress)
    table = table_gaps(rows, first)
    table.write(Path(out))
    return table


def run_gaps(
    data: Dataset, methods: Sequence[str], settings: ProtocolSettings, store: ResultStore, *, progress: bool = False
) -> list[ResultRow]:
    """Results of each method on each fold of one cross-validation, read from the store if it has them."""
    groups = np.unique(data.group.astype(str))
    if len(groups) != 2:
        raise InvalidInputError(
            f"Score gaps of methods are compared between two groups; {data.name} has {len(groups)}: {list(groups)}."
        )
    prepared = prepare_folds(data, settings)
    weights = {"unconstrained": (0.0, 0.0), "cec": (settings.cec_weight, settings.equalized_odds_weight)}
    found = []
    with shown_progress(data.name, len(methods) * len(prepared.folds), is_shown=progress) as advance:
        for name in methods:
            for number, fold in enumerate(prepared.folds):
                method = make_method(name, settings.network(number), data.financial_features)
                cec_weight, odds_weight = weights.get(name, (None, None))
                row = ResultRow(
                    data.name,
                    name,
                    number,
                    prepared.run,
                    {},
                    cec_weight,
                    odds_weight,
                    parameters=method_parameters(method),
                )
                if row.key not in store:
                    started = time.monotonic()
                    metrics = audited_metrics(method, data, fold)
                    seconds = time.monotonic() - started
                    store.append(replace(row, metrics=metrics, seconds=seconds, versions=versions()))
                found.append(store[row.key])
                advance(f"{name} fold {number}: score gap {found[-1].metrics['score_gap']:+.3f}")
    return found


def audited_metrics(method: Method, data: Dataset, fold: Fold) -> dict[str, float]:
    """Fit a method on a training fold and audit it on the test fold; each of `GAP_NAMES`, and counts of people.

    Gaps are those of the group whose name comes first minus the other's. The score is the one that the method's
    attributions explain; decisions are the method's, from any rule.
    """

    def people(rows: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray]:
        return data.X.iloc[rows].reset_index(drop=True), data.y[rows], data.group[rows]

    def seen(X: Any, group: np.ndarray) -> Any:
        return method.audited_table(X, group) if isinstance(method, RepairsTable) else X

    (X_train, y_train, group_train), (X_test, y_test, group_test) = people(fold.train), people(fold.test)
    method.fit(X_train, y_train, sensitive_features=group_train)
    with warnings.catch_warnings():
        # Do not warn of constant decisions in every fold: `evenhand reproduce` reports every method's positive rate.
        warnings.simplefilter("ignore", EvenhandWarning)
        result = audit(
            method.audited_model(),
            seen(X_test, group_test),
            y_test,
            sensitive_features=group_test,
            financial_features=list(data.financial_features),
            decisions=method.predict(X_test, group_test),
            favorable="high",
            reference={
                "X": seen(X_train, group_train),
                "y": y_train,
                "sensitive_features": group_train,
                "decisions": method.predict(X_train, group_train),
            },
        ).to_dict()
    gap = result["score_gap"]
    sign = 1.0 if gap["group"] < gap["reference"] else -1.0

    def signed(unit: str) -> float:
        value = gap[unit]["value"]
        return float("nan") if value is None else sign * float(value)

    return {
        "auc": float(result["outcome"]["auc"]),
        "score_gap": signed("logit"),
        "probability_gap": signed("probability"),
        "decision_gap": signed("decision"),
        "weighing": float(result["cec"]["weighing_excess"]),
        "n_train": float(len(y_train)),
        "n_test": float(len(y_test)),
    }


def table_gaps(rows: Sequence[ResultRow], settings: ProtocolSettings) -> PaperTable:
    """Mean over folds of each metric with a 95% interval, and its difference from the unconstrained network's."""
    cells = by_method(rows, settings)
    records, body = [], []
    for (dataset, method), found in cells.items():
        plain = {(row.run, row.fold): row for row in cells.get((dataset, "unconstrained"), [])}
        share = float(np.mean([row.metrics["n_test"] / row.metrics["n_train"] for row in found]))
        means, changes = {}, {}
        for metric in GAP_NAMES:
            values = np.array([row.metrics[metric] for row in found])
            means[metric] = mean_interval(values, share)
            others = [plain[row.run, row.fold].metrics[metric] for row in found if (row.run, row.fold) in plain]
            if method != "unconstrained" and len(others) == len(values):
                changes[metric] = mean_interval(values - np.array(others), share)
            records.append(_record(dataset, method, metric, len(values), means[metric], changes.get(metric)))
        body.append(
            (
                dataset_name(dataset),
                method_name(method),
                *(_cell(means[metric]) for metric in GAP_NAMES),
                *(_cell(changes[metric], "+") if metric in changes else "" for metric in _HELD_AGAINST),
            )
        )
    return PaperTable(
        "table_gaps",
        "Score gap and weighing of each method",
        (
            "Dataset",
            "Method",
            *GAP_NAMES.values(),
            *(f"{GAP_NAMES[metric]}: less unconstrained" for metric in _HELD_AGAINST),
        ),
        tuple(body),
        tuple(records),
        (
            "Mean over folds of all cross-validations and 95% interval: Student's with the variance raised for "
            "training folds that overlap (Nadeau and Bengio). Differences are paired over folds. Gaps are those of the "
            "group whose name comes first less the other's, at equal finances and label; weighing is the excess of "
            "the reasoning gap over placebo pairs. AUC, score gap and weighing are of the score that is explained, "
            "which under Hardt's thresholds is the unconstrained network's; decisions are the method's.",
            *settings_notes(settings),
        ),
    )


def _record(dataset: str, method: str, metric: str, n: int, mean: Estimate, change: Estimate | None) -> dict[str, Any]:
    nan = float("nan")
    less = Estimate(nan, nan, nan) if change is None else change
    return {
        "dataset": dataset,
        "method": method,
        "metric": metric,
        "n_folds": n,
        "mean": mean.value,
        "low": mean.low,
        "high": mean.high,
        "less_unconstrained": less.value,
        "less_unconstrained_low": less.low,
        "less_unconstrained_high": less.high,
    }


def _cell(found: Estimate, sign: str = "") -> str:
    return f"{found.value:{sign}.3f} [{found.low:{sign}.3f}, {found.high:{sign}.3f}]"
