"""The comparison: settings, the store of results, and every method on every fold, resumed where it stopped."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import nn

from evenhand.arrays import Floats, Ints, as_numpy
from evenhand.attribution.explanation import Method as Integration
from evenhand.datasets import Dataset
from evenhand.exceptions import DataFileError, InvalidInputError
from evenhand.inputs.encoding import Encoding, TableEncoder
from evenhand.inputs.identity import fingerprint_plain
from evenhand.inputs.splitting import stratified_folds
from evenhand.matching.pairs import match_pairs
from evenhand.metrics.cec import assign_regimes, regime_shares
from evenhand.metrics.outcomes import group_outcomes, outcome_metrics
from evenhand.models.explaining import MOST_SEGMENTS, Explainer
from evenhand.models.gradient import DifferentiableModel
from evenhand.models.protocol import AuditedModel
from evenhand.models.scoring import joined, score_pairs
from evenhand.research.methods import Method, NetworkSettings, RepairsTable, logits_of, make_method
from evenhand.research.paper import PAPER
from evenhand.system.files import json_ready
from evenhand.system.terminal import progress as shown_progress
from evenhand.training import Trainer
from evenhand.training.data import Fold, match_fold, stack_tables
from evenhand.training.settings import TrainingMethod, TrainingSettings

GRID_WEIGHTS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)

MatchPool = Literal["train", "test"]
Ties = Literal["row", "random"]
Member: TypeAlias = tuple[int, float, float]
"""Fold, cec_weight and equalized_odds_weight of one model."""


@dataclass(frozen=True)
class ProtocolSettings:
    """Everything that affects a metric of the comparison, apart from the data.

    Attributes
    ----------
    n_folds
        Folds of the cross-validation, stratified on (label, group).
    random_state
        Decides the folds; fold k trains with seed `random_state` + k.
    encoding
        Categories as ``"ordinal"`` codes, standardized; as ``"unscaled"`` codes; or as ``"onehot"`` columns.
    consistency_threshold
        CEC score above which reasoning counts as different.
    match_pool
        Whether test people are matched with people of the ``"train"`` fold or with each other, ``"test"``.
    ties
        Which of equally near people is the match: the lowest ``"row"``, or one at ``"random"``.
    cec_weight, equalized_odds_weight
        The lambdas of the method ``cec``.
    hidden, dropout, epochs, learning_rate, batch_size
        The network of every method and its training.
    training_integration, training_steps, cec_every
        How attributions are integrated in training, and in which steps the CEC term is computed. The paper uses 32
        steps of a rule that it does not name; this library uses one segment, which is many times as fast.
    integration, n_steps
        How attributions are integrated when people are compared.
    is_quick
        Whether the run is only a trial.

    Raises
    ------
    InvalidInputError
        If one of the words is not among those above, or the threshold is not in [0, 1].

    Examples
    --------
    >>> ProtocolSettings().epochs, ProtocolSettings.quick().epochs
    (30, 10)
    >>> ProtocolSettings(ties="last")
    Traceback (most recent call last):
    ...
    evenhand.exceptions.InvalidInputError: `ties` (--ties) must be one of row, random, got 'last'.
    """

    n_folds: int = 5
    random_state: int = 0
    encoding: Encoding = PAPER.encoding
    consistency_threshold: float = PAPER.audit.consistency_threshold
    match_pool: MatchPool = "train"
    ties: Ties = "row"
    cec_weight: float = PAPER.training["cec_weight"]
    equalized_odds_weight: float = PAPER.training["equalized_odds_weight"]
    hidden: tuple[int, ...] = PAPER.training["hidden"]
    dropout: float = PAPER.training["dropout"]
    epochs: int = PAPER.training["epochs"]
    learning_rate: float = PAPER.training["learning_rate"]
    batch_size: int = PAPER.training["batch_size"]
    training_integration: TrainingMethod = PAPER.training["method"]
    training_steps: int = PAPER.training["n_steps"]
    cec_every: int = 1
    integration: Integration = PAPER.audit.method
    n_steps: int = PAPER.training["n_steps"]
    is_quick: bool = False

    def __post_init__(self) -> None:
        for name, kind in (("encoding", Encoding), ("match_pool", MatchPool), ("ties", Ties)):
            if (value := getattr(self, name)) not in get_args(kind):
                named = f"`{name}` (--{name.replace('_', '-')})"
                raise InvalidInputError(f"{named} must be one of {', '.join(get_args(kind))}, got {value!r}.")
        if not 0 <= self.consistency_threshold <= 1:
            raise InvalidInputError(
                "`consistency_threshold` (--consistency-threshold) must be a number in [0, 1], got "
                f"{self.consistency_threshold!r}."
            )

    @classmethod
    def quick(cls, **changes: Any) -> ProtocolSettings:
        """A third of the epochs and coarser integration, to check that everything runs; do not quote the results."""
        return replace(cls(epochs=10, is_quick=True).with_segments(), **changes)

    def with_segments(self) -> ProtocolSettings:
        """The same with this library's integration: one segment in training, eight in audits."""
        return replace(
            self, training_integration="segments", training_steps=1, integration="segments", n_steps=MOST_SEGMENTS
        )

    @property
    def _shared(self) -> dict[str, Any]:
        """What all networks have in common."""
        return {name: getattr(self, name) for name in ("hidden", "dropout", "epochs", "learning_rate", "batch_size")}

    def network(self, fold: int, device: str = "cpu") -> NetworkSettings:
        """Network settings of a method in one fold."""
        return NetworkSettings(
            **self._shared, encoding=self.encoding, device=device, random_state=self.random_state + fold
        )

    def training(self, members: Sequence[Member], device: str) -> TrainingSettings:
        """Settings of a stack of these members, on the tables of their folds, ascending."""
        folds, cec, odds = zip(*members, strict=True)
        tables = sorted(set(folds))
        return TrainingSettings(
            table=tuple(tables.index(fold) for fold in folds),
            seed=tuple(self.random_state + fold for fold in folds),
            cec_weight=cec,
            equalized_odds_weight=odds,
            **self._shared,
            n_steps=self.training_steps,
            method=self.training_integration,
            cec_every=self.cec_every,
            device=device,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}


def versions(device: str | None = None) -> dict[str, str]:
    """Versions of the installed libraries that a metric may depend on, and the device that trained a network."""
    found = {"python": python_version(), **({"device": device} if device else {})}
    for name in ("evenhand", "torch", "numpy", "scipy", "scikit-learn", "fairlearn", "cooper-optim"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@dataclass(frozen=True)
class ResultRow:
    """Metrics of one method in one fold.

    Attributes
    ----------
    dataset, method, fold
        What was run.
    cec_weight, equalized_odds_weight
        The lambdas of methods that have them: ``unconstrained`` (0, 0) and ``cec``; None for the others.
    run
        Fingerprint of settings, data and data options: rows of different runs are never combined in a table.
    metrics
        By name; NaN if a metric cannot be estimated.
    parameters
        A method's parameters, such as the level of a repair.
    seconds
        Training and evaluation; of a model trained in a stack, its share of the stack's time.
    versions
        Of the libraries, and the device.
    """

    dataset: str
    method: str
    fold: int
    run: str
    metrics: dict[str, float]
    cec_weight: float | None = None
    equalized_odds_weight: float | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    seconds: float = float("nan")
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def weights(self) -> tuple[float | None, float | None]:
        """The two lambdas."""
        return self.cec_weight, self.equalized_odds_weight

    @property
    def key(self) -> tuple[object, ...]:
        """What identifies a row as the same result."""
        parameters = json.dumps(self.parameters, sort_keys=True)
        return (self.dataset, self.method, self.fold, self.run, parameters, *self.weights)

    def to_json(self) -> str:
        """One line; NaN as null."""
        return json.dumps({"kind": "result", **json_ready(asdict(self))}, allow_nan=False)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ResultRow:
        """Inverse of `to_json`, from the parsed line."""
        metrics = {name: math.nan if value is None else float(value) for name, value in data["metrics"].items()}
        seconds = math.nan if data["seconds"] is None else float(data["seconds"])
        rest = {k: v for k, v in data.items() if k not in ("kind", "metrics", "seconds")}
        return cls(**rest, metrics=metrics, seconds=seconds)


class ResultStore:
    """A file of results that stays usable if a run is stopped at any moment.

    Each line is a result, or describes the settings of a run. A truncated last line is ignored, and removed before the
    next one is written.

    Parameters
    ----------
    path
        The file; it need not exist.

    Raises
    ------
    DataFileError
        If a line other than the last cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> store = ResultStore(Path(tempfile.mkdtemp()) / "results.jsonl")
    >>> store.append(ResultRow("german", "cec", 0, "abc", {"auc": 0.8}))
    >>> [row.metrics["auc"] for row in ResultStore(store.path).rows]
    [0.8]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._rows: dict[tuple[object, ...], ResultRow] = {}
        self.runs: dict[str, dict[str, Any]] = {}
        self._read()

    @property
    def rows(self) -> list[ResultRow]:
        """All results, in the order in which they were found."""
        return list(self._rows.values())

    def of_run(self, run: str) -> list[ResultRow]:
        """Results of one run."""
        return [row for row in self.rows if row.run == run]

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __getitem__(self, key: tuple[object, ...]) -> ResultRow:
        return self._rows[key]

    def append(self, row: ResultRow) -> None:
        """Add a result to the file and to `rows`; it replaces one with the same key."""
        self._write(row.to_json())
        self._rows[row.key] = row

    def describe_run(self, run: str, description: dict[str, Any]) -> None:
        """Record once what a run's fingerprint refers to."""
        if run not in self.runs:
            self._write(json.dumps({"kind": "run", "run": run, **description}))
            self.runs[run] = description

    def _read(self) -> None:
        if not self.path.is_file():
            return
        lines = self.path.read_text(encoding="utf-8").split("\n")
        for number, line in enumerate(lines[:-1], start=1):  # what follows the last line break was cut off
            try:
                data = json.loads(line)
                if data["kind"] == "run":
                    self.runs[data["run"]] = {k: v for k, v in data.items() if k not in ("kind", "run")}
                else:
                    row = ResultRow.from_dict(data)
                    self._rows[row.key] = row
            except (ValueError, KeyError, TypeError) as error:
                raise DataFileError(
                    f"Line {number} of {self.path} is not a result ({error}): remove the line, or the file."
                ) from error

    def _write(self, line: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)  # what follows the last line break was cut off
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


@dataclass(frozen=True, eq=False)
class Prepared:
    """A dataset's folds.

    Attributes
    ----------
    data, settings
        The people, and how they were split, encoded and matched.
    digest
        Changes when any value, label, group or financial feature does.
    folds
        One per test fold.
    """

    data: Dataset
    settings: ProtocolSettings
    digest: str
    folds: tuple[Fold, ...]

    @property
    def run(self) -> str:
        """A fingerprint of what a result depends on besides method and fold: every setting, every value of the data."""
        # Settings added later count only if they were changed, so that earlier results remain usable.
        later = {"match_pool": "train", "ties": "row"}
        given = {name: value for name, value in self.settings.to_dict().items() if later.get(name) != value}
        return fingerprint_plain({"settings": given, "data": self.digest})


def prepare_folds(data: Dataset, settings: ProtocolSettings) -> Prepared:
    """Split, encode and match a dataset."""
    codes = np.unique(data.group.astype(str), return_inverse=True)[1].astype(np.int64)
    split = stratified_folds(data.y, codes, settings.n_folds, settings.random_state)
    is_row = settings.ties == "row"
    keys = None if is_row else np.random.default_rng(settings.random_state).permutation(len(data)).astype(np.uint64)
    folds = []
    for train, test in split:
        encoder = TableEncoder.fit(data.X.iloc[train], settings.encoding)
        F = encoder.as_matched(data.X[list(data.financial_features)])
        join = encoder.join_matrix
        fold = match_fold(encoder.transform(data.X), F, data.y, codes, train, test, join, keys=keys)
        if settings.match_pool == "test":
            pairs = match_pairs(F.iloc[test], data.y[test], codes[test], missing="indicator")
            fold = replace(fold, match_test=pairs.match.reshape(len(test), -1))
        folds.append(fold)
    content = hashlib.sha256(repr((data.name, list(data.X.columns), list(data.financial_features))).encode())
    content.update(pd.util.hash_pandas_object(data.X, index=False).to_numpy().tobytes())
    content.update(data.y.tobytes())
    content.update("\0".join(data.group.astype(str)).encode())
    return Prepared(data, settings, content.hexdigest()[:16], tuple(folds))


def evaluate_network(fold: Fold, network: nn.Module, settings: ProtocolSettings) -> dict[str, float]:
    """Metrics of a network that takes the fold's encoded people and decides at probability 0.5.

    Returns
    -------
    Each of `METRICS`, and counts of people and of pairs without a match.
    """
    test, train = logits_of(network, fold.x_test), logits_of(network, fold.x_train)
    decided = ((test >= 0).astype(np.int64), (train >= 0).astype(np.int64))
    return evaluate(fold, DifferentiableModel(network, ""), fold.x_train, fold.x_test, test, *decided, settings)


def evaluate(
    fold: Fold,
    model: AuditedModel,
    x_train: NDArray[np.float32],
    x_test: NDArray[np.float32],
    score: NDArray[np.float64],
    decided: Ints,
    decided_train: Ints,
    settings: ProtocolSettings,
) -> dict[str, float]:
    """Metrics of a method from its attributed score and its decisions.

    Parameters
    ----------
    fold
        Labels, groups, matches.
    model
        The score that is attributed.
    x_train, x_test
        People as input of that score: the fold's, unless the method repairs them. Baselines are means of `x_train`.
    score
        Of the test people: probabilities, or expected decisions of a randomized rule; only the AUC uses them.
    decided, decided_train
        Decisions 0 or 1 of the method, from any rule, for the test and the training people; they determine F1, the
        gaps, the flip rate and the regimes.
    settings
        How to integrate, and the threshold of the regimes.
    """
    y, group = fold.y_test, fold.group_test
    outcomes = group_outcomes(y, decided, score, group, tuple(str(g) for g in range(fold.n_groups)))
    metrics = {name: metric.value for name, metric in outcome_metrics(y, decided, score, outcomes).items()}

    person, match = fold.matched_test
    trained = (x_train, fold.y_train, fold.group_train)
    explainer = Explainer.of(model, *trained, settings.n_steps, settings.integration)
    explainer = replace(explainer, join=np.asarray(fold.join, dtype=np.float64))
    own = explainer.explain(x_test, fold.cells_test)
    is_test = settings.match_pool == "test"
    matches = explainer.see(x_test if is_test else x_train, match, fold.cells_test[person])
    cec, reasoning_gap, input_gap = (
        joined(
            (part.cec, part.reasoning_gap, part.input_gap) for _, part in score_pairs(explainer, own, person, matches)
        )
        or [np.zeros(0)] * 3
    )
    decisions = (decided[person], (decided if is_test else decided_train)[match])
    shares = regime_shares(assign_regimes(*decisions, cec, settings.consistency_threshold))

    def mean(values: Floats) -> float:
        return float(values.mean()) if len(values) else float("nan")

    return {
        "auc": metrics["auc"],
        "f1": metrics["f1"],
        "eo": metrics["eo_gap"],
        "sp": metrics["sp_gap"],
        "cec": mean(cec),
        "pfr": shares["C"] + shares["D"],
        **{f"regime_{letter.lower()}": share for letter, share in shares.items()},
        "positive_rate": metrics["positive_rate"],
        "reasoning_gap": mean(reasoning_gap),
        "input_gap": mean(input_gap),
        "n_train": float(len(fold.y_train)),
        "n_test": float(len(y)),
        "n_unmatched": float((fold.match_test < 0).sum()),
    }


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
    prepared: Prepared, members: Sequence[Member], device: str = "cpu", checkpoint: Path | None = None
) -> list[nn.Sequential]:
    """Trained networks, one for each member, on the CPU.

    Parameters
    ----------
    prepared
        The folds; those of the members must have the same encoded columns.
    members
        Models to train together.
    device
        Where.
    checkpoint
        File for an unfinished stack, from which the same stack is resumed.
    """
    data = stack_tables([prepared.folds[number] for number in sorted({member[0] for member in members})])
    stack = Trainer(data, prepared.settings.training(members, device), checkpoint=checkpoint).run().network()
    return [stack.member(index) for index in range(len(members))]


def run_stacks(
    prepared: Prepared,
    weights: Iterable[tuple[float, float]],
    store: ResultStore,
    device: str = "cpu",
    advance: Callable[[str], None] | None = None,
) -> None:
    """Train and evaluate every lambda setting on every fold, except those in the store.

    An unfinished stack is kept next to the store, and the same call resumes it. Models without the CEC term are trained
    in a separate stack, so that the term is not computed for them. So are folds with other encoded columns: a rare
    category may be absent from a training fold.
    """
    stacks: dict[tuple[bool, bytes], list[Member]] = {}
    for member in ((fold, *pair) for pair in dict.fromkeys(weights) for fold in range(len(prepared.folds))):
        if _row(prepared, member).key not in store:
            stacks.setdefault((member[1] > 0, prepared.folds[member[0]].join.tobytes()), []).append(member)
    for _, members in sorted(stacks.items(), key=lambda stack: stack[0][0]):
        started = time.monotonic()
        checkpoint = store.path.with_name(f".stack-{fingerprint_plain([prepared.run, members])}.safetensors")
        networks = train_members(prepared, members, device, checkpoint)
        seconds = (time.monotonic() - started) / len(members)
        for member, network in zip(members, networks, strict=True):
            began = time.monotonic()
            metrics = evaluate_network(prepared.folds[member[0]], network, prepared.settings)
            took = seconds + time.monotonic() - began
            row = replace(_row(prepared, member), metrics=metrics, seconds=took, versions=versions(device))
            store.append(row)
            if advance is not None:
                advance(f"{row.method} fold {row.fold}: CEC {metrics['cec']:.3f}")


def _row(prepared: Prepared, member: Member) -> ResultRow:
    fold, cec_weight, equalized_odds_weight = member
    method = "unconstrained" if cec_weight == equalized_odds_weight == 0 else "cec"
    return ResultRow(prepared.data.name, method, fold, prepared.run, {}, cec_weight, equalized_odds_weight)


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
    run = prepared.run
    store.describe_run(
        run,
        {
            "dataset": data.name,
            "n_people": len(data),
            "n_columns": data.X.shape[1],
            "positive_share": round(float(data.y.mean()), 4),
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
    n_done = sum(row.weights in weights or row.method in others for row in store.of_run(run))
    with shown_progress(data.name, total, is_shown=progress, done=n_done) as advance:
        run_stacks(prepared, weights, store, device, advance)
        for name in others:
            for number in range(n_folds):
                method = make_method(name, settings.network(number, device), data.financial_features)
                row = ResultRow(data.name, name, number, run, {}, parameters=method_parameters(method))
                if row.key in store:
                    continue
                started = time.monotonic()
                metrics = run_method(method, prepared, number)
                seconds = time.monotonic() - started
                store.append(replace(row, metrics=metrics, seconds=seconds, versions=versions(device)))
                advance(f"{name} fold {number}: CEC {metrics['cec']:.3f}")
    return run


def method_parameters(method: Method) -> dict[str, Any]:
    """A method's parameters: attributes of the unfitted object that are plain numbers, strings or flags."""
    return {name: value for name, value in vars(method).items() if isinstance(value, bool | int | float | str)}


def results_of(
    store: ResultStore, run: str, methods: Sequence[str], settings: ProtocolSettings, financial_features: Sequence[str]
) -> list[ResultRow]:
    """A run's results of the methods with their current parameters."""

    def is_current(row: ResultRow) -> bool:
        method = make_method(row.method, settings.network(row.fold), financial_features)
        return row.cec_weight is not None or method_parameters(method) == row.parameters

    return [row for row in store.of_run(run) if row.method in methods and is_current(row)]


def run_method(method: Method, prepared: Prepared, number: int) -> dict[str, float]:
    """Fit a method on one training fold and evaluate it on the test fold."""
    data, fold = prepared.data, prepared.folds[number]

    def people(rows: np.ndarray) -> tuple[Any, Any]:
        return data.X.iloc[rows].reset_index(drop=True), data.group[rows]

    (X_train, group_train), (X_test, group_test) = people(fold.train), people(fold.test)
    method.fit(X_train, fold.y_train, sensitive_features=group_train)
    model = method.audited_model()

    def seen(X: Any, group: Any) -> np.ndarray:
        table = method.audited_table(X, group) if isinstance(method, RepairsTable) else X
        encoded: np.ndarray = as_numpy(model.encode(table)).astype(np.float32, copy=False)
        return encoded

    inputs = (seen(X_train, group_train), seen(X_test, group_test))
    score = method.predict_proba(X_test, group_test)[:, 1]
    decided = method.predict(X_test, group_test).astype(np.int64)
    decided_train = method.predict(X_train, group_train).astype(np.int64)
    return evaluate(fold, model, *inputs, score, decided, decided_train, prepared.settings)
