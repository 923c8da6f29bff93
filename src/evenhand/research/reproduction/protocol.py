"""The comparison: every method on every fold, stored immediately, and resumed where it stopped."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.inputs.fingerprints import fingerprint_plain
from evenhand.research.methods import Method, RepairsTable, make_method
from evenhand.research.reproduction.evaluation import Decisions, evaluate
from evenhand.research.reproduction.folds import Prepared, prepare_folds
from evenhand.research.reproduction.settings import ProtocolSettings, versions
from evenhand.research.reproduction.stacks import ablation_weights, grid_weights, run_stacks
from evenhand.research.reproduction.store import ResultRow, ResultStore
from evenhand.system.progress import progress as shown_progress

if TYPE_CHECKING:
    from evenhand.datasets import Dataset

__all__ = ["ProtocolSettings", "method_parameters", "results_of", "run_fingerprint", "run_method", "run_protocol"]


def run_fingerprint(prepared: Prepared, settings: ProtocolSettings) -> str:
    """What a result depends on besides method and fold: every setting, every value of the data."""
    return fingerprint_plain({"settings": settings.to_dict(), "data": prepared.digest})


def run_protocol(
    data: Dataset,
    methods: Sequence[str],
    settings: ProtocolSettings,
    store: ResultStore,
    *,
    device: str = "cpu",
    has_ablation: bool = False,
    has_grid: bool = False,
    progress: bool = False,
) -> str:
    """Run what the store lacks, and return the run's fingerprint.

    Parameters
    ----------
    data
        People.
    methods
        Names of methods, in the order in which they are run.
    settings
        All settings; any change gives a different run, whose results are kept separate. So do a method's parameters.
    store
        The store of results. A change in a method's code is not detected: use a different file then.
    device
        ``"cpu"`` or ``"cuda"``; not part of the fingerprint.
    has_ablation, has_grid
        Also train the ablation's variants, and the 36 lambda settings.
    progress
        Whether to show progress.
    """
    prepared = prepare_folds(data, settings)
    run = run_fingerprint(prepared, settings)
    store.describe_run(
        run,
        {
            "dataset": data.name,
            "n_people": len(data),
            "n_columns": data.X.shape[1],
            "source": data.source,
            "notes": [*data.notes, *data.reservations],
            "exclusions": data.exclusions,
            "settings": settings.to_dict(),
            "versions": versions(),
        },
    )
    by_name = {"unconstrained": (0.0, 0.0), "cec": (settings.cec_weight, settings.equalized_odds_weight)}
    weights = [by_name[name] for name in methods if name in by_name]
    weights += ablation_weights(settings).values() if has_ablation else []
    weights += grid_weights() if has_grid else []
    others = [name for name in methods if name not in by_name]
    n_folds = len(prepared.folds)
    total = n_folds * (len(set(weights)) + len(others))
    n_done = sum(
        (row.cec_weight, row.equalized_odds_weight) in weights or row.method in others for row in store.of_run(run)
    )
    with shown_progress(data.name, total, is_shown=progress, done=n_done) as advance:
        run_stacks(prepared, weights, settings, store, run, device, advance)
        for name in others:
            for number in range(n_folds):
                method = make_method(name, settings.network(number, device), data.financial_features)
                row = ResultRow(data.name, name, number, run, {}, parameters=method_parameters(method))
                if row.key in store:
                    continue
                started = time.monotonic()
                metrics = run_method(method, data, prepared, number, settings)
                seconds = time.monotonic() - started
                store.append(replace(row, metrics=metrics, seconds=seconds, versions=versions()))
                advance(f"{name} fold {number}: CEC {metrics['cec']:.3f}")
    return run


def method_parameters(method: Method) -> dict[str, Any]:
    """A method's parameters: attributes of the unfitted object that are plain numbers, strings or flags."""
    return {name: value for name, value in vars(method).items() if isinstance(value, bool | int | float | str)}


def results_of(
    store: ResultStore, run: str, methods: Sequence[str], settings: ProtocolSettings, financial_features: Sequence[str]
) -> list[ResultRow]:
    """A run's results of the methods with their current parameters."""
    kept = []
    for row in store.of_run(run):
        if row.method not in methods:
            continue
        if row.cec_weight is None:
            method = make_method(row.method, settings.network(row.fold), financial_features)
            if method_parameters(method) != row.parameters:
                continue
        kept.append(row)
    return kept


def run_method(
    method: Method, data: Dataset, prepared: Prepared, number: int, settings: ProtocolSettings
) -> dict[str, float]:
    """Fit a method on one training fold and evaluate it on the test fold."""
    fold = prepared.folds[number]

    def people(rows: np.ndarray) -> tuple[Any, Any]:
        return data.X.iloc[rows].reset_index(drop=True), data.group[rows]

    (X_train, group_train), (X_test, group_test) = people(fold.train), people(fold.test)
    method.fit(X_train, fold.y_train, sensitive_features=group_train)
    model = method.audited_model()

    def seen(X: Any, group: Any) -> np.ndarray:  # noqa: ANN401
        table = method.audited_table(X, group) if isinstance(method, RepairsTable) else X
        encoded: np.ndarray = model.encode(table).float().cpu().numpy()
        return encoded

    decisions = Decisions(
        score=method.predict_proba(X_test, group_test)[:, 1],
        test=method.predict(X_test, group_test).astype(np.int64),
        train=method.predict(X_train, group_train).astype(np.int64),
    )
    return evaluate(fold, model, seen(X_train, group_train), seen(X_test, group_test), decisions, settings)
