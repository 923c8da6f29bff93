"""Every option of an audit, defined once: Python, the command line and TOML files read names, defaults and help here.

Nothing heavy is imported, so that the command line can show its help at once.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from evenhand.auditing.cut_offs import SegmentThresholds
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.seeds import check_seed

if TYPE_CHECKING:
    from evenhand.attribution.gradients import Method
    from evenhand.models.dispatch import AttributionChoice
    from evenhand.models.protocol import Output

__all__ = [
    "AuditOptions",
    "AuditSettings",
    "Engine",
    "Favorable",
    "FindingKey",
    "GivenOptions",
    "ReasonMapLike",
    "RegressionOptions",
    "RoleOptions",
    "StreamOptions",
    "check_value",
]

Engine = Literal["local", "threads", "processes", "dask", "spark"]
Favorable = Literal["high", "low"]
ReasonMapLike: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]
FindingKey = Literal["score_gap", "inputs", "weighing", "excess"]
"""The four findings of an audit."""


_LIMITS = "`limits` (--limit)"


def _help(text: str) -> dict[str, str]:
    return {"help": text}


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """Choices of an audit that few people change; `settings=` of `audit` and `audit_stream`.

    Attributes
    ----------
    n_steps, method
        How integrated gradients are integrated: see `integrated_gradients`. None for the fewest segments, at most 8,
        whose error is below 0.1 % of the attributions' size, as seen on people of the reference beforehand.
    output
        Whether the score of a black box is its ``"probability"`` or ``"log-odds"``; None for what the model offers.
    n_permutations
        Of sampled Shapley values: orders in which inputs are added. None for as many as `sampling_error` needs, from 8
        to 64, as seen on a few people beforehand.
    sampling_error
        Standard error of sampled attributions to stay below, as a share of their size.
    unit
        Of an outcome that is a value and not a probability, such as ``"percentage points"`` of a price.
    n_reasons
        Most reasons that a declined person is given: see `reason_map` of `audit`.

    Examples
    --------
    >>> AuditSettings(n_permutations=64).sampling_error
    0.06
    >>> AuditSettings(n_steps=0)
    Traceback (most recent call last):
    ...
    evenhand.exceptions.InvalidInputError: `n_steps` (--n-steps) must be a whole number of at least 1, got 0.
    """

    n_steps: int | None = field(
        default=None,
        metadata=_help("Segments of the paths of integrated gradients; by default as many as an error of 0.1 % needs."),
    )
    method: Method = field(default="segments", metadata=_help("How paths are integrated: segments, midpoint or exact."))
    output: Output | None = field(
        default=None, metadata=_help("What the model's score is, if it does not tell: log-odds or probability.")
    )
    n_permutations: int | None = field(
        default=None,
        metadata=_help("Orders in which sampled_shapley adds features; by default what --sampling-error needs."),
    )
    sampling_error: float = field(
        default=0.06, metadata=_help("Standard error of sampled attributions to stay below, as a share of their size.")
    )
    unit: str | None = field(
        default=None,
        metadata=_help("Unit of an outcome that is a value and not a probability, such as 'percentage points'."),
    )
    n_reasons: int = field(default=4, metadata=_help("Most reasons that a declined person is given."))

    def __post_init__(self) -> None:
        _check_counts(self, "n_steps", "n_permutations", "n_reasons")
        if not isinstance(self.sampling_error, (int, float)) or not 0 < self.sampling_error < 1:
            raise InvalidInputError(
                f"{_named('sampling_error')} must be a number between 0 and 1, got {self.sampling_error!r}."
            )
        _check_unit(self.unit, self.output)


@dataclass(frozen=True, kw_only=True)
class AuditOptions(AuditSettings):
    """Every choice that moves a metric of an audit."""

    financial_features: tuple[str, ...] = field(
        default=(), metadata=_help("Columns on which people are comparable: a,b,c.")
    )
    favorable: Favorable | None = field(
        default=None,
        metadata=_help(
            "Which scores are good: high, or low where the score is a risk and 1 in the label the bad outcome. By "
            "default high, and scores that rank people the other way round are refused."
        ),
    )
    decision_threshold: float | SegmentThresholds | None = field(
        default=None,
        metadata=_help(
            "Probability from which the decision is favorable, or with --favorable low up to which it is; by default "
            "the model's own, or else 0.5. A TOML file may have a table of cut-offs by the values of a column."
        ),
    )
    consistency_threshold: float = field(default=0.3, metadata=_help("CEC score above which reasoning differs."))
    max_distance: float | None = field(
        default=None, metadata=_help("Farthest match that counts, in standard deviations.")
    )
    attribution: AttributionChoice = field(
        default="auto",
        metadata=_help(
            "auto, integrated_gradients, linear, additive, tree_shap or sampled_shapley; auto takes what fits best."
        ),
    )
    evidence: bool = field(
        default=True, metadata=_help("Compare with placebo pairs; without, the audit is faster and blind to noise.")
    )
    random_state: int = field(default=0, metadata=_help("Seed."))
    limits: Mapping[str, float] | None = field(
        default=None,
        metadata=_help(
            "Size up to which a finding is small to you: score_gap, inputs, weighing or excess, e.g. 'score_gap=0.1'; "
            "repeatable."
        ),
    )
    reason_map: ReasonMapLike | None = field(
        default=None,
        metadata=_help(
            "File that says which reason each feature stands for: TOML with a table [reasons], or a table of two "
            "columns. By default each feature is its own reason."
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "limits", _checked_limits(self.limits))
        check_seed(self.random_state)
        if isinstance(self.decision_threshold, Mapping):
            object.__setattr__(self, "decision_threshold", SegmentThresholds.of(self.decision_threshold))
        for name in ("decision_threshold", "consistency_threshold"):
            value = getattr(self, name)
            if name == "decision_threshold" and (value is None or isinstance(value, SegmentThresholds)):
                continue
            if not isinstance(value, (int, float)) or not 0 <= value <= 1:
                raise InvalidInputError(f"{_named(name)} must be a number in [0, 1], got {value!r}.")
        if self.favorable not in (None, "high", "low"):
            raise InvalidInputError(f"{_named('favorable')} must be 'high' or 'low', got {self.favorable!r}.")

    @property
    def approval_threshold(self) -> float:
        """Probability of the favorable outcome from which the decision is favorable.

        NaN where segments differ; of an outcome that is a value, infinite: no value is high enough.
        """
        if self.unit is not None:
            return math.inf
        assert self.decision_threshold is not None, "settled by `settled_options`"
        if isinstance(self.decision_threshold, SegmentThresholds):
            return math.nan
        return 1 - self.decision_threshold if self.favorable == "low" else self.decision_threshold


@dataclass(frozen=True, kw_only=True)
class RoleOptions:
    """Which column of a table plays which part."""

    label: str = field(default="", metadata=_help("Column of the true outcome."))
    group: tuple[str, ...] = field(
        default=(), metadata=_help("Column of the protected attribute; a,b for an intersection.")
    )
    drop: tuple[str, ...] = field(default=(), metadata=_help("Columns to leave out: a,b."))
    keep_inputs: tuple[str, ...] = field(
        default=(),
        metadata=_help("Columns to keep as inputs though they look like an id, a date or a saved index: a,b."),
    )
    positive_label: str | None = field(
        default=None, metadata=_help("Value of the label that is the favorable outcome.")
    )
    clusters: str | None = field(
        default=None, metadata=_help("Column that says which rows are the same applicant or household.")
    )
    keep_group: bool = field(default=False, metadata=_help("The model also sees the group."))
    decisions: str | None = field(
        default=None,
        metadata=_help("Column of the decisions that were made, 1 for favorable, in place of scores at a threshold."),
    )
    ids: str | None = field(default=None, metadata=_help("Column of people's own ids, to show; not an input."))
    drop_missing: bool = field(default=False, metadata=_help("Leave out, and count, rows without label or group."))
    sample_weight: str | None = field(
        default=None, metadata=_help("Column of sampling weights: how many people of the population a row stands for.")
    )


@dataclass(frozen=True, kw_only=True)
class GivenOptions:
    """Which columns take the place of a model."""

    scores: str | None = field(
        default=None,
        metadata=_help("Column of scores, in place of a model: probabilities, or with --unit values on any scale."),
    )
    attributions: tuple[str, ...] = field(
        default=(),
        metadata=_help(
            "Columns of attributions of the scores: 'shap_*', where * stands for the feature, or feature=column: a,b."
        ),
    )
    attributions_file: str | None = field(
        default=None, metadata=_help("File of the attributions, joined by --id, or row by row without.")
    )
    base_values: str | None = field(
        default=None, metadata=_help("Base value of the attributions, a number or a column; by default worked out.")
    )
    reason_codes: tuple[str, ...] = field(
        default=(), metadata=_help("Columns of people's principal reasons, first reason first: a,b.")
    )


@dataclass(frozen=True, kw_only=True)
class StreamOptions:
    """How a streamed audit is cut and where it runs."""

    resume: bool = field(default=False, metadata=_help("Go on with the batches that are finished in the folder."))
    batch_rows: int | None = field(
        default=None,
        metadata=_help(
            "Most people in a batch; by default a 128th of everyone, from 5,000 to 25,000, and 50,000 on a GPU."
        ),
    )
    reference_people: int = field(
        default=200_000, metadata=_help("Without --reference: people drawn at random to match in.")
    )
    evidence_people: int | None = field(
        default=None, metadata=_help("Compare only so many people with placebo pairs, drawn at random.")
    )
    engine: Engine | Executor = field(
        default="local",
        metadata=_help(
            "Who audits batches: local, for threads or processes of this machine, whichever is faster; threads; "
            "processes; dask; or spark."
        ),
    )
    scheduler: str | None = field(
        default=None, metadata=_help("Address of a Dask scheduler, a Spark Connect server (sc://) or a Spark master.")
    )
    n_jobs: int | None = field(
        default=None, metadata=_help("Batches audited at the same time; by default one for each core.")
    )
    device: str | None = field(default=None, metadata=_help("Where a torch model computes: cpu or cuda."))

    def __post_init__(self) -> None:
        _check_counts(self, "batch_rows", "n_jobs", "evidence_people")
        known = get_args(Engine)
        if not isinstance(self.engine, Executor) and self.engine not in known:
            raise InvalidInputError(
                f"{_named('engine')} must be one of {', '.join(known)}, or in Python a `concurrent.futures.Executor`, "
                f"got {self.engine!r}."
            )
        if self.scheduler is not None and self.engine not in ("dask", "spark"):
            raise InvalidInputError(
                f'A scheduler, {self.scheduler!r}, is only used by Dask and Spark: pass `engine="dask"` (--engine '
                'dask) or `engine="spark"` (--engine spark) with it.'
            )


@dataclass(frozen=True, kw_only=True)
class RegressionOptions:
    """What an audit in memory regresses on the group."""

    regressions: bool = field(
        default=False,
        metadata=_help("Regress decisions, scores and --outcomes on the group, alone and at equal inputs."),
    )
    outcomes: tuple[str, ...] = field(
        default=(),
        metadata=_help("Columns of further outcomes to regress, such as a price, which are not inputs: a,b."),
    )


def _checked_limits(limits: Mapping[str, float] | None) -> dict[str, float] | None:
    """Limits as plain data; None where there are none."""
    known = get_args(FindingKey)
    if limits is not None and not isinstance(limits, Mapping):
        raise InvalidInputError(
            f"{_LIMITS} must map findings to numbers, such as {{'score_gap': 0.1}}, got {limits!r}."
        )
    for name, limit in (limits or {}).items():
        if name not in known:
            raise InvalidInputError(
                f"{_LIMITS} must be of {', '.join(known[:-1])} or {known[-1]}, got one of {name!r}; correct the name."
            )
        is_number = isinstance(limit, Real) and not isinstance(limit, bool)
        if not is_number or not 0 < limit < math.inf:
            raise InvalidInputError(f"{_LIMITS}: that of {name} must be a number above 0, got {limit!r}.")
    return {name: float(limit) for name, limit in limits.items()} if limits else None


def check_value(options: AuditOptions) -> None:
    """Refuse what does not go with an outcome that is a value.

    Raises
    ------
    InvalidInputError
        If no one says which values are good, or there is a threshold of probabilities.
    """
    if options.unit is None:
        return
    if options.favorable is None:
        raise InvalidInputError(
            f"An outcome with a unit, {options.unit!r}, needs {_named('favorable')}: 'low' for a price, 'high' for an "
            "amount."
        )
    if options.decision_threshold is not None:
        raise InvalidInputError(
            f"{_named('decision_threshold')} is of probabilities, and the outcome is in {options.unit!r}: pass the "
            "decisions that were made with `decisions` (--decision)."
        )


def _check_unit(unit: Any, output: Any) -> None:  # noqa: ANN401 - what a user gave
    """Refuse a unit that says nothing, and a value without a unit."""
    if unit is not None and (not isinstance(unit, str) or not unit.strip()):
        raise InvalidInputError(f"{_named('unit')} must be a text such as 'percentage points', got {unit!r}.")
    if output == "value" and unit is None:
        raise InvalidInputError(f"{_named('output')} is 'value': say in what unit, with {_named('unit')}.")


def _named(name: str) -> str:
    return f"`{name}` (--{name.replace('_', '-')})"


# Of what takes memory for each person: a number that was mistyped must not fill the machine.
_MOST = {"n_steps": 100_000, "n_permutations": 1_000_000, "n_reasons": 1_000}


def _check_counts(options: Any, *names: str) -> None:  # noqa: ANN401 - any of the dataclasses
    for name in names:
        value = getattr(options, name)
        if value is not None and (not isinstance(value, Integral) or isinstance(value, bool) or value < 1):
            raise InvalidInputError(f"{_named(name)} must be a whole number of at least 1, got {value!r}.")
        if value is not None and name in _MOST and int(value) > _MOST[name]:
            raise InvalidInputError(f"{_named(name)} must be at most {_MOST[name]:,}, got {value:,}.")
