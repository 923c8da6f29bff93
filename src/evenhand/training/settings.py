"""How a stack is trained: settings that members share, and settings of each member."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from evenhand.exceptions import InvalidInputError

TrainingMethod = Literal["segments", "midpoint"]
Monitor = Literal["objective", "bce", "auc"]
Procedure = Literal["cec", "reasoning_gap", "excess", "reasoning_excess"]

PAPER_TRAINING: Mapping[str, Any] = MappingProxyType(
    {
        "objective": "cec",
        "cec_weight": 1.0,
        "equalized_odds_weight": 1.0,
        "least_explained": 0.0,
        "method": "midpoint",
        "n_steps": 32,
        "hidden": (128, 64),
        "dropout": 0.2,
        "epochs": 30,
        "learning_rate": 3e-4,
        "batch_size": 64,
        "encoding": "ordinal",
        "max_distance": None,
    }
)
"""`PAPER.training`: arguments of `CECClassifier`. On German Credit, the network approves almost everyone."""

_PER_MEMBER = ("table", "seed", "cec_weight", "equalized_odds_weight", "learning_rate")


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of a stack. The first five may be one value for all members or one per member.

    Attributes
    ----------
    table
        Which of the data's tables a member learns from.
    seed
        Decides a member's starting weights, batch order and dropout, alone or in any stack.
    cec_weight, equalized_odds_weight
        The paper's lambdas. A term whose weight is 0 for all members is not computed.
    learning_rate
        Adam's.
    objective
        The term of `cec_weight`, for all members: the square of the CEC score (``"cec"``, the paper's) or of the
        ``"reasoning_gap"`` over pairs, or the excess of either over placebo pairs (``"excess"``,
        ``"reasoning_excess"``).
    hidden, dropout, epochs, batch_size
        Shared by all members.
    n_steps, method
        How attributions are integrated in the CEC term. The paper takes 32 steps of a rule it does not name.
    cec_every
        Compute the CEC term in one of this many batches, with that many times the weight: faster and noisier, but its
        gradient stays unbiased.
    patience
        Stop a member after this many epochs without improvement of `monitor` on validation data, and give it the
        weights of its best epoch; None trains all epochs and keeps the last.
    monitor
        ``"objective"`` (the member's weighted sum of the three terms), ``"bce"`` or ``"auc"``.
    min_improvement
        The smallest change that counts as an improvement.
    least_explained
        Share of the labels' entropy that a member must explain for its two terms to count in full; below it they count
        in proportion to what was explained in the epoch before, and in the first epoch not at all. With 0, they always
        count in full.
    device
        ``"cpu"``, ``"cuda"``, ``"cuda:1"``... or ``"auto"``: CUDA if available.
    n_threads
        CPU threads, each of which trains a part of the stack; None for as many as torch would use. A single model uses
        one thread, because its operations are too small to split.

    Raises
    ------
    InvalidInputError
        If a value is out of its range, or per-member values differ in number.

    Examples
    --------
    >>> settings = TrainingSettings(seed=(0, 1, 2), cec_weight=1.0)
    >>> settings.n_members, settings.cec_weight
    (3, (1.0, 1.0, 1.0))
    """

    table: int | Sequence[int] = 0
    seed: int | Sequence[int] = 0
    cec_weight: float | Sequence[float] = 1.0
    equalized_odds_weight: float | Sequence[float] = 1.0
    learning_rate: float | Sequence[float] = 3e-4
    objective: Procedure = "cec"
    hidden: tuple[int, ...] = (128, 64)
    dropout: float = 0.2
    epochs: int = 30
    batch_size: int = 64
    n_steps: int = 1
    method: TrainingMethod = "segments"
    cec_every: int = 1
    patience: int | None = None
    monitor: Monitor = "objective"
    min_improvement: float = 0.0
    least_explained: float = 0.0
    device: str = "auto"
    n_threads: int | None = None

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in _PER_MEMBER}
        lengths = {name: len(value) for name, value in given.items() if not isinstance(value, int | float)}
        if len(set(lengths.values())) > 1 or 0 in lengths.values():
            raise InvalidInputError(f"Per-member settings must have the same positive length, got {lengths}.")
        n_members = next(iter(lengths.values()), 1)
        for name, value in given.items():
            kind = int if name in ("table", "seed") else float
            values = (value,) * n_members if isinstance(value, int | float) else value
            object.__setattr__(self, name, tuple(kind(v) for v in values))
        object.__setattr__(self, "hidden", tuple(int(width) for width in self.hidden))
        self._check()

    @property
    def uses_placebo(self) -> bool:
        """Whether pairs are compared with placebo pairs."""
        return self.uses_cec and self.objective.endswith("excess")

    @property
    def uses_reasoning(self) -> bool:
        """Whether the objective compares weights on the same inputs, rather than attributions."""
        return self.objective.startswith("reasoning")

    @property
    def uses_cec(self) -> bool:
        """Whether any member has the term of `cec_weight`."""
        return any(self.of_member("cec_weight"))

    @property
    def uses_equalized_odds(self) -> bool:
        """Whether any member has the term of `equalized_odds_weight`."""
        return any(self.of_member("equalized_odds_weight"))

    @property
    def n_members(self) -> int:
        """Number of models in the stack."""
        assert isinstance(self.table, tuple)
        return len(self.table)

    def of_member(self, name: str) -> tuple[Any, ...]:
        """Per-member values of a setting, one for each member."""
        result: tuple[Any, ...] = getattr(self, name)
        return result

    def part(self, members: slice) -> TrainingSettings:
        """The settings of some members."""
        own: dict[str, Any] = {name: self.of_member(name)[members] for name in _PER_MEMBER}
        return replace(self, **own)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form; `TrainingSettings(**settings.to_dict())` gives the settings back."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}

    def differences(self, other: dict[str, Any]) -> list[str]:
        """Names of settings that decide the trained weights and are not the same in `other`, a `to_dict()`."""
        own = self.to_dict()
        ignored = {"epochs", "device", "n_threads"}
        # A state without a setting is older than the setting and was trained with its default.
        return [f.name for f in fields(self) if f.name not in ignored and own[f.name] != other.get(f.name, f.default)]

    def _check(self) -> None:
        floors = {"table": 0, "seed": 0, "cec_weight": 0, "equalized_odds_weight": 0}
        for name, floor in floors.items():
            for value in self.of_member(name):
                _require(name, value, math.isfinite(value) and value >= floor, f"finite and at least {floor}")
        for rate in self.of_member("learning_rate"):
            _require("learning_rate", rate, math.isfinite(rate) and rate > 0, "finite and positive")
        _require("hidden", self.hidden, len(self.hidden) > 0 and min(self.hidden) > 0, "positive layer widths")
        _require("dropout", self.dropout, 0 <= self.dropout < 1, "in [0, 1)")
        _require("epochs", self.epochs, self.epochs >= 0, "at least 0")
        for name in ("batch_size", "n_steps", "cec_every"):
            _require(name, getattr(self, name), getattr(self, name) >= 1, "at least 1")
        _require("patience", self.patience, self.patience is None or self.patience >= 1, "None or at least 1")
        _require("n_threads", self.n_threads, self.n_threads is None or self.n_threads >= 1, "None or at least 1")
        _require("least_explained", self.least_explained, 0 <= self.least_explained < 1, "in [0, 1)")
        _require("min_improvement", self.min_improvement, self.min_improvement >= 0, "at least 0")
        for name, kind in (("method", TrainingMethod), ("monitor", Monitor), ("objective", Procedure)):
            value = getattr(self, name)
            _require(name, value, value in get_args(kind), f"one of {list(get_args(kind))}")


def _require(name: str, value: object, holds: bool, expected: str) -> None:
    if not holds:
        raise InvalidInputError(f"`{name}` must be {expected}, got {value!r}.")


# On German Credit, a network with the paper's weights explains less than 4% of the labels' entropy halfway; with a
# third of these weights it explains 8%, and without them 22%.
_LEAST_EXPLAINED = 0.05

# If the rarer decision is less frequent than this share of the rarer label, it is likely to vanish. On HMDA, where 88%
# of labels are favorable, the share is below 8% halfway with the paper's weights, and 46% without them.
_LEAST_OF_RARER = 0.1

# Adam moves a weight by about the learning rate in a step. Networks whose weights cannot have moved this far have not
# had time to learn, whatever the objective.
_LEAST_DISTANCE = 0.05


def label_entropy(labels: NDArray[np.int64], weight: NDArray[np.float32]) -> float:
    """Cross-entropy of a model that knows only the share of favorable labels."""
    favorable = np.average(labels, weights=weight)
    return float(entr(favorable) + entr(1 - favorable))


def explained_share(cross_entropy: float, labels: NDArray[np.int64], weight: NDArray[np.float32]) -> float:
    """Share of the labels' entropy that a model explains: 0 for one that knows only the share of favorable labels.

    Examples
    --------
    >>> import numpy as np
    >>> round(explained_share(0.6931, np.array([0, 1]), np.ones(2)), 3)
    0.0
    """
    return 1 - cross_entropy / label_entropy(labels, weight)


def term_gain(
    cross_entropy: NDArray[np.float64], entropy: NDArray[np.float64], least_explained: float
) -> NDArray[np.float64]:
    """Share of their weights with which the fairness terms count, of the arrays' shape.

    It grows in proportion to the share of the labels' entropy that a model explains, up to `least_explained`: a model
    that has learned nothing, or forgets what it learned, is trained on the labels alone.

    Examples
    --------
    >>> import numpy as np
    >>> term_gain(np.array([0.9, 0.57, 0.3]), np.full(3, 0.6), 0.1).round(3).tolist()
    [0.0, 0.5, 1.0]
    """
    return np.clip((1 - cross_entropy / entropy) / least_explained, 0, 1)


def is_about_to_collapse(
    share: float, favorable_decisions: float, favorable_labels: float, n_steps: int, learning_rate: float
) -> bool:
    """Whether a model is likely to end with the same decision for everyone.

    Parameters
    ----------
    share
        Share of the labels' entropy that it explains.
    favorable_decisions, favorable_labels
        Shares of its decisions, and of the labels, that are favorable.
    n_steps, learning_rate
        Steps it was trained for, and their size.

    Examples
    --------
    >>> is_about_to_collapse(0.18, 0.995, 0.88, n_steps=1_600, learning_rate=3e-4)
    True
    >>> is_about_to_collapse(0.35, 0.94, 0.88, n_steps=1_600, learning_rate=3e-4)
    False
    """
    rarer_decisions, rarer_labels = (min(rate, 1 - rate) for rate in (favorable_decisions, favorable_labels))
    learned_little = share < _LEAST_EXPLAINED or rarer_decisions < _LEAST_OF_RARER * rarer_labels
    return learned_little and n_steps * learning_rate >= _LEAST_DISTANCE
