"""The comparison: every method on every fold, stored immediately, and resumed where it stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from torch import nn

from evenhand.inputs.fingerprints import fingerprint_plain
from evenhand.research.methods import Method, RepairsTable, make_method
from evenhand.research.reproduction.evaluation import Decisions, Prepared, evaluate, evaluate_network, prepare_folds
from evenhand.research.reproduction.settings import GRID_WEIGHTS, ProtocolSettings, ResultRow, ResultStore, versions
from evenhand.system.terminal import progress as shown_progress
from evenhand.training import Trainer, TrainingData
from evenhand.training.folds import stack_tables

Member: TypeAlias = tuple[int, float, float]
"""Fold, cec_weight and equalized_odds_weight of one model."""


def grid_weights() -> list[tuple[float, float]]:
    """The 36 pairs (cec_weight, equalized_odds_weight) of the heatmaps."""
    return [(cec, odds) for cec in GRID_WEIGHTS for odds in GRID_WEIGHTS]


def ablation_weights(settings: ProtocolSettings) -> dict[str, tuple[float, float]]:
    """Lambdas of the four variants of the ablation.

    Examples
    --------
    >>> ablation_weights(ProtocolSettings())["pred+cec"]
    (1.0, 0.0)
    """
    cec, odds = settings.cec_weight, settings.equalized_odds_weight
    return {"pred": (0.0, 0.0), "pred+eo": (0.0, odds), "pred+cec": (cec, 0.0), "pred+eo+cec": (cec, odds)}


def train_members(
    data: TrainingData,
    members: Sequence[Member],
    settings: ProtocolSettings,
    device: str = "cpu",
    checkpoint: Path | None = None,
) -> list[nn.Sequential]:
    """Trained networks, one for each member, on the CPU.

    Parameters
    ----------
    data
        Tables of the folds.
    members
        Models to train together.
    settings, device
        How and where.
    checkpoint
        File for an unfinished stack, from which the same stack is resumed.
    """
    training = settings.training(list(members), device)
    stack = Trainer(data, training, checkpoint=checkpoint).run().network()
    return [stack.member(index) for index in range(len(members))]


def run_stacks(
    prepared: Prepared,
    weights: Iterable[tuple[float, float]],
    settings: ProtocolSettings,
    store: ResultStore,
    run: str,
    device: str = "cpu",
    advance: Callable[[str], None] | None = None,
) -> None:
    """Train and evaluate every lambda setting on every fold, except those in the store.

    An unfinished stack is kept next to the store, and the same call resumes it. Models without the CEC term are trained
    in a separate stack, so that the term is not computed for them.
    """
    wanted = [(fold, *pair) for pair in dict.fromkeys(weights) for fold in range(len(prepared.folds))]
    missing = [member for member in wanted if _row(prepared, member, run).key not in store]
    data = stack_tables(prepared.folds) if missing else None
    for has_cec in (False, True):
        members = [member for member in missing if (member[1] > 0) == has_cec]
        if not members:
            continue
        assert data is not None
        started = time.monotonic()
        checkpoint = store.path.with_name(f".stack-{fingerprint_plain([run, members])}.safetensors")
        networks = train_members(data, members, settings, device, checkpoint)
        seconds = (time.monotonic() - started) / len(members)
        for member, network in zip(members, networks, strict=True):
            began = time.monotonic()
            metrics = evaluate_network(prepared.folds[member[0]], network, settings)
            row = _row(prepared, member, run, metrics, seconds + time.monotonic() - began)
            store.append(row)
            if advance is not None:
                advance(f"{row.method} fold {row.fold}: CEC {metrics['cec']:.3f}")


def _row(
    prepared: Prepared,
    member: Member,
    run: str,
    metrics: dict[str, float] | None = None,
    seconds: float = float("nan"),
) -> ResultRow:
    fold, cec_weight, equalized_odds_weight = member
    return ResultRow(
        dataset=prepared.dataset,
        method="unconstrained" if cec_weight == equalized_odds_weight == 0 else "cec",
        fold=fold,
        run=run,
        cec_weight=cec_weight,
        equalized_odds_weight=equalized_odds_weight,
        metrics=metrics or {},
        seconds=seconds,
        versions=versions() if metrics else {},
    )


if TYPE_CHECKING:
    from evenhand.datasets import Dataset


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

    def seen(X: Any, group: Any) -> np.ndarray:
        table = method.audited_table(X, group) if isinstance(method, RepairsTable) else X
        encoded: np.ndarray = model.encode(table).float().cpu().numpy()
        return encoded

    decisions = Decisions(
        score=method.predict_proba(X_test, group_test)[:, 1],
        test=method.predict(X_test, group_test).astype(np.int64),
        train=method.predict(X_train, group_train).astype(np.int64),
    )
    return evaluate(fold, model, seen(X_train, group_train), seen(X_test, group_test), decisions, settings)
