"""Settings of a comparison, whose defaults are the paper's, and the store of its results."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from typing import Any

from evenhand.attribution.gradients import Method as Integration
from evenhand.exceptions import DataFileError
from evenhand.inputs.encoding import Encoding
from evenhand.research.methods.method import NetworkSettings
from evenhand.system.files import json_ready
from evenhand.training.settings import TrainingMethod, TrainingSettings

GRID_WEIGHTS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)


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
        ``"ordinal"`` integer codes or ``"onehot"`` columns.
    consistency_threshold
        CEC score above which reasoning counts as different.
    cec_weight, equalized_odds_weight
        The lambdas of the method ``cec``.
    hidden, dropout, epochs, learning_rate, batch_size
        The network of every method and its training.
    training_integration, training_steps, cec_every
        How attributions are integrated in training, and in which steps the CEC term is computed. The paper uses 32
        midpoints in every step; this library uses one segment, which is many times as fast.
    integration, n_steps
        How attributions are integrated when people are compared.
    is_quick
        Whether the run is only a trial.

    Examples
    --------
    >>> ProtocolSettings().epochs, ProtocolSettings.quick().epochs
    (30, 10)
    """

    n_folds: int = 5
    random_state: int = 0
    encoding: Encoding = "ordinal"
    consistency_threshold: float = 0.3
    cec_weight: float = 1.0
    equalized_odds_weight: float = 1.0
    hidden: tuple[int, ...] = (128, 64)
    dropout: float = 0.2
    epochs: int = 30
    learning_rate: float = 3e-4
    batch_size: int = 64
    training_integration: TrainingMethod = "midpoint"
    training_steps: int = 32
    cec_every: int = 1
    integration: Integration = "midpoint"
    n_steps: int = 32
    is_quick: bool = False

    @classmethod
    def quick(cls, **changes: Any) -> ProtocolSettings:
        """A third of the epochs and coarser integration, to check that everything runs; do not quote the results."""
        coarse: dict[str, Any] = {"training_integration": "segments", "training_steps": 1, "integration": "segments"}
        return cls(**{"epochs": 10, "n_steps": 8, "is_quick": True, **coarse, **changes})

    def with_fast_training(self) -> ProtocolSettings:
        """The same with this library's integration in training."""
        return replace(self, training_integration="segments", training_steps=1)

    @property
    def _shared(self) -> dict[str, Any]:
        """What all networks have in common."""
        return {name: getattr(self, name) for name in ("hidden", "dropout", "epochs", "learning_rate", "batch_size")}

    def network(self, fold: int, device: str = "cpu") -> NetworkSettings:
        """Network settings of a method in one fold."""
        return NetworkSettings(
            **self._shared, encoding=self.encoding, device=device, random_state=self.random_state + fold
        )

    def training(self, members: list[tuple[int, float, float]], device: str) -> TrainingSettings:
        """Settings of a stack whose members are (fold, cec_weight, equalized_odds_weight)."""
        folds, cec, odds = zip(*members, strict=True)
        return TrainingSettings(
            table=folds,
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


def versions() -> dict[str, str]:
    """Versions of the installed libraries that a metric may depend on."""
    found = {"python": python_version()}
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
        Of the libraries.
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
    def key(self) -> tuple[object, ...]:
        """What identifies a row as the same result."""
        parameters = json.dumps(self.parameters, sort_keys=True)
        weights = (self.cec_weight, self.equalized_odds_weight)
        return (self.dataset, self.method, self.fold, self.run, parameters, *weights)

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

    def found(self, key: tuple[object, ...]) -> ResultRow:
        """The result of a key that exists."""
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
            _cut_to_last_line_break(file)
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _cut_to_last_line_break(file: Any) -> None:
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return
    file.seek(-1, os.SEEK_END)
    if file.read(1) == b"\n":
        return
    file.seek(0)
    file.truncate(file.read().rfind(b"\n") + 1)
    file.seek(0, os.SEEK_END)
