"""All options of an audit, defined once: Python, the command line and TOML files take names, defaults and help here.

This module imports nothing heavy, so that the command line shows its help at once.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, fields
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from evenhand.exceptions import InvalidInputError
from evenhand.inputs.read_options import (
    batch_option,
    check_seed,
    column_option,
    evidence_option,
    model_option,
    output_option,
    people_option,
)

_NAME = "`decision_threshold`"


@dataclass(frozen=True)
class SegmentThresholds:
    """Cutoffs by the values of a column, for `decision_threshold=` of `audit` and `audit_stream`.

    Attributes
    ----------
    column
        An input of the model, or one of the columns of `by`.
    cut_offs
        For each value of the column, the probability from which on the decision is favorable, or with
        ``favorable="low"``, up to which it is.

    Examples
    --------
    >>> SegmentThresholds("product", {"card": 0.6, "loan": 0.8}).cut_offs["loan"]
    0.8
    >>> SegmentThresholds("product", {"card": 60})
    Traceback (most recent call last):
    ...
    evenhand.exceptions.InvalidInputError: `decision_threshold`: the cutoff of 'card' must be between 0 and 1, got 60.
    """

    column: str
    cut_offs: Mapping[str, float]

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not isinstance(self.cut_offs, Mapping) or not self.cut_offs:
            raise InvalidInputError(
                f"{_NAME} by segment must name a column and map its values to cutoffs, such as "
                f"SegmentThresholds('product', {{'card': 0.6}}), got {self.column!r} and {self.cut_offs!r}."
            )
        for value, cut_off in self.cut_offs.items():
            is_number = isinstance(cut_off, Real) and not isinstance(cut_off, bool)
            if not is_number or not 0 <= cut_off <= 1:
                raise InvalidInputError(f"{_NAME}: the cutoff of {value!r} must be between 0 and 1, got {cut_off!r}.")
        object.__setattr__(self, "cut_offs", {str(value): float(c) for value, c in self.cut_offs.items()})

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> SegmentThresholds:
        """Cutoffs from plain data, as in a TOML file.

        Raises
        ------
        InvalidInputError
            If there are keys besides column and cut_offs, or a cutoff is not a number in [0, 1].
        """
        if set(table) != {"column", "cut_offs"}:
            raise InvalidInputError(
                f"{_NAME} by segment must have the keys 'column' and 'cut_offs', got "
                f"{', '.join(map(repr, table)) or 'none'}."
            )
        return cls(table["column"], table["cut_offs"])


if TYPE_CHECKING:
    from evenhand.attribution.explanation import Method
    from evenhand.models.dispatch import AttributionChoice
    from evenhand.models.protocol import Output


Engine = Literal["local", "threads", "processes", "dask", "spark"]
Favorable = Literal["high", "low"]
Ties = Literal["content", "row"]
ReasonMapLike: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]
LabelsLike: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]
FindingKey = Literal["score_gap", "inputs", "weighing", "excess"]
"""The four findings of an audit."""


_LIMITS = "`limits` (--limit)"


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What an audit is called in everything written from it; no metric depends on it.

    Attributes
    ----------
    title
        Title of report and memo; by default it names the model.
    model_name, model_version, owner, period
        The model as you call it, who owns it, and the time that the people are from.
    labels
        Your words for columns, groups and values: ``{"PAY_6": "payment status in April", "SEX=1": "men"}``. Or the path
        of a table of two columns, or of a TOML file with a table ``[labels]``. In the JSON, names stay as they are.
    """

    title: str | None = output_option(None, "Title of report and memo; by default it names the model.")
    model_name: str | None = output_option(None, "Name of the model in report, workbook and memo.")
    model_version: str | None = output_option(None, "Its version.")
    owner: str | None = output_option(None, "Who owns the model.")
    period: str | None = output_option(None, "The time that the people are from, such as 'April to June 2026'.")
    labels: LabelsLike | None = output_option(
        None,
        "File with your words for columns, groups and values (PAY_6, SEX=1): TOML with a table [labels], or a table of "
        "two columns.",
    )

    def __post_init__(self) -> None:
        for name in ("title", "model_name", "model_version", "owner", "period"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value.strip()):
                raise InvalidInputError(f"{_named(name)} must be a text, got {value!r}.")
        if self.labels is not None:
            from evenhand.report.labels import read_labels  # imports pandas, which --help does not wait for

            object.__setattr__(self, "labels", read_labels(self.labels))

    @property
    def report(self) -> dict[str, Any]:
        """What the report calls things, as far as it is given."""
        named = {field.name: getattr(self, field.name) for field in fields(ReportOptions)}
        return {name: value for name, value in named.items() if value}

    @property
    def of_metrics(self) -> dict[str, Any]:
        """All other options, as plain data."""
        named = {field.name for field in fields(ReportOptions)}
        return {name: value for name, value in asdict(self).items() if name not in named}


@dataclass(frozen=True, kw_only=True)
class AuditOptions(ReportOptions):
    """Options of an audit: `options=` of `audit`, `audit_given` and `audit_stream`, and the keys of a TOML file.

    It also has those of `ReportOptions`.

    Attributes
    ----------
    financial_features
        Columns on which people are compared; in Python, an argument of the functions.
    favorable
        Which of the model's scores are good. ``"low"`` for a risk model: its class 1, and 1 in `y`, is the
        unfavorable outcome, such as a default. Metrics, attributions and signs then refer to the favorable outcome;
        scores are shown as the model returns them. None means high, but raises an error if the scores rank people
        against `y` by more than chance.
    decision_threshold
        Decisions are favorable from this probability on; with ``favorable="low"``, up to it. The default is the
        threshold of a `FixedThresholdClassifier` or a `TunedThresholdClassifierCV`, and 0.5 for any other model.
        `SegmentThresholds` holds a cutoff for each value of an input or of a column of `by`.
    consistency_threshold
        CEC score above which the reasoning counts as different.
    max_distance
        Matches farther than this, in standard deviations of the financial features, are left out; None for no limit,
        and 0 for financial twins only.
    ties
        Which of equally near people is the match: the first by ``"content"``, whatever the order of rows, or the
        lowest ``"row"`` of the reference.
    attribution
        ``"auto"`` for an exact method if the model has one; or one of ``"integrated_gradients"``, ``"linear"``,
        ``"additive"``, ``"tree_shap"`` and ``"sampled_shapley"``. The result's settings say which was used.
    evidence
        Whether to compare with placebo pairs and to screen for proxies. Without this, the audit takes less than half
        the time but cannot tell an effect from noise.
    random_state
        Seed of all random draws.
    limits
        Sizes below which you regard findings as small, such as ``{"score_gap": 0.1}``. The keys are ``"score_gap"``,
        ``"inputs"``, ``"weighing"`` and ``"excess"``; values are in the unit of the finding. Each finding then says
        whether it is below its limit. None for no limits.
    reason_map
        The reason of each feature, if several features share one: a mapping of features to reasons or of reasons to
        lists of features, a table of two columns, or the path of either; a TOML file has a table ``[reasons]``. By
        default, each feature is its own reason.
    regressions
        Whether to regress decisions and scores on the group: alone, with the financial features held equal, and with
        all inputs held equal; also within the values of `by`.
    n_steps, method
        How integrated gradients are integrated: see `integrated_gradients`. None for the fewest segments, at most 8,
        whose error is below 0.1% of the attributions' size, as measured beforehand on people of the reference.
    output
        Whether the score of a black box is its ``"probability"`` or ``"log-odds"``; None for what the model offers, and
        for the log-odds of the probability that a function returns.
    n_permutations
        Number of random orders in which sampled Shapley values add the inputs. None for as many as `sampling_error`
        needs, from 8 to 64, as measured beforehand on a few people.
    sampling_error
        Standard error of sampled attributions to stay below, as a share of their size.
    reference_group
        The group that all others are compared with, such as ``"White"``. Groups are then compared with it only, so
        that p-values are adjusted for fewer comparisons. None for the largest group, in which case score gaps are
        reported for every two groups.
    unit
        Unit of an outcome that is a value rather than a probability, such as ``"percentage points"`` of a price.
    n_reasons
        Largest number of reasons given to a declined person.

    Examples
    --------
    >>> AuditOptions(n_permutations=64).sampling_error
    0.06
    >>> AuditOptions(n_steps=0)
    Traceback (most recent call last):
    ...
    evenhand.exceptions.InvalidInputError: `n_steps` (--n-steps) must be a whole number of at least 1, got 0.
    """

    financial_features: tuple[str, ...] = column_option((), "Columns on which people are compared: a,b,c.")
    favorable: Favorable | None = model_option(
        None,
        "Which scores are good: high, or low if the score is a risk and a label of 1 is the bad outcome. The "
        "default is high, and scores that rank people in the opposite order are rejected.",
    )
    decision_threshold: float | SegmentThresholds | None = model_option(
        None,
        "Decisions are favorable from this probability on, or with --favorable low, up to it. By default the "
        "model's threshold, or else 0.5. A TOML file may have a table of cutoffs by the values of a column.",
    )
    consistency_threshold: float = evidence_option(0.3, "CEC score above which reasoning differs.")
    max_distance: float | None = evidence_option(
        None, "Largest distance between a person and their match, in standard deviations."
    )
    ties: Ties = evidence_option("content", "Of equally near people, match the first by content, or the lowest row.")
    attribution: AttributionChoice = model_option(
        "auto", "auto, integrated_gradients, linear, additive, tree_shap or sampled_shapley; auto picks the best."
    )
    evidence: bool = evidence_option(
        True, "Compare with placebo pairs. Without them the audit is faster but cannot tell an effect from noise."
    )
    random_state: int = evidence_option(0, "Seed.")
    limits: Mapping[str, float] | None = evidence_option(
        None,
        "Size below which a finding is small to you: score_gap, inputs, weighing or excess, e.g. 'score_gap=0.1'; "
        "repeatable.",
    )
    reason_map: ReasonMapLike | None = evidence_option(
        None,
        "File that says which reason each feature stands for: TOML with a table [reasons], or a table of two "
        "columns. By default each feature is its own reason.",
    )

    regressions: bool = evidence_option(
        False, "Regress decisions, scores and --outcomes on the group, alone and at equal inputs."
    )
    n_steps: int | None = model_option(
        None, "Segments per path of integrated gradients; by default as many as an error of 0.1% needs."
    )
    method: Method = model_option("segments", "How paths are integrated: segments, midpoint or exact.")
    output: Output | None = model_option(
        None, "Whether the model's score is log-odds or probability, if that is not clear from the model."
    )
    n_permutations: int | None = model_option(
        None, "Random orders in which sampled_shapley adds features; by default as many as --sampling-error needs."
    )
    sampling_error: float = model_option(
        0.06, "Standard error of sampled attributions to stay below, as a share of their size."
    )
    reference_group: str | None = people_option(
        None, "Group to compare all others with, and only with it; by default the largest, and every two groups."
    )
    unit: str | None = model_option(
        None, "Unit of an outcome that is a value rather than a probability, e.g. 'percentage points'."
    )
    n_reasons: int = evidence_option(4, "Largest number of reasons given to a declined person.")

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_counts(self, "n_steps", "n_permutations", "n_reasons")
        if not isinstance(self.sampling_error, (int, float)) or not 0 < self.sampling_error < 1:
            raise InvalidInputError(
                f"{_named('sampling_error')} must be a number between 0 and 1, got {self.sampling_error!r}."
            )
        _check_unit(self.unit, self.output)
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
        if self.ties not in get_args(Ties):
            raise InvalidInputError(f"{_named('ties')} must be 'content' or 'row', got {self.ties!r}.")

    @property
    def approval_threshold(self) -> float:
        """Probability of the favorable outcome from which the decision is favorable.

        NaN if segments differ. Infinite for an outcome that is a value: no value is high enough.
        """
        if self.unit is not None:
            return math.inf
        assert self.decision_threshold is not None, "settled by `settled_options`"
        if isinstance(self.decision_threshold, SegmentThresholds):
            return math.nan
        return 1 - self.decision_threshold if self.favorable == "low" else self.decision_threshold


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """What `evenhand audit` has besides: files that it reads and writes, and how its people are told apart."""

    paper: bool = evidence_option(
        False,
        "Only what the paper defines: no evidence. Where it is silent, as the reproduction does: decisions at 0.5, "
        "midpoints, the lowest row of equally near people, and integer codes if a network is fitted. Other options "
        "override it.",
    )
    outcomes: tuple[str, ...] = column_option(
        (), "Columns of additional outcomes to regress, such as a price; they are not inputs: a,b."
    )
    model: str | None = model_option(
        None,
        "Folder from `evenhand train`, or a file: .onnx, .json or .ubj (XGBoost), .txt (LightGBM), .cbm or "
        ".json (CatBoost), .skops, .pmml, and .pkl or .joblib with --trust-pickle. Without a model, a plain "
        "network is fitted on 70% of the people.",
    )
    columns: tuple[str, ...] = model_option(
        (),
        "Inputs of a model that has no names for them, in the order of training: a,b,c; or as-is, if that is the order "
        "of the file.",
    )
    trust_pickle: bool = model_option(
        False, "Load a pickled model. It can run any code, so only use this with files you trust."
    )
    reference: str | None = people_option(None, "Table of the people to match in, usually the training data.")
    stream: bool = batch_option(
        False, "Read the people in batches, for data of any size; folders are always read in batches."
    )
    quick: bool = people_option(False, "Take a first look at up to 2,000 people, drawn at random; the report says so.")
    fail_on: tuple[str, ...] = output_option((), "Exit with code 1 if this holds, e.g. 'excess > 0.05'; repeatable.")
    group_probabilities: tuple[str, ...] = people_option(
        (),
        "In place of --group: columns with the probability of each group, such as those estimated from "
        "surname and address: a,b,c. Groups are drawn at random from these probabilities.",
    )
    draws: int = people_option(20, "With --group-probabilities: how many times groups are drawn.")
    group_threshold: float = people_option(
        0.8,
        "With --group-probabilities, for comparison: also assign people to their most likely group if its "
        "probability is at least this.",
    )
    review: tuple[str, ...] = output_option(
        (),
        "Ids of applicants, or row numbers from 0 without --id, to write next to their matches, applicants.csv: a,b.",
    )
    memo: bool = output_option(False, "Also write a Word memo, memo.docx.")
    template: str | None = output_option(
        None, "Your own Word file for the memo, .docx or .dotx: its styles and text are used."
    )
    pack: bool = output_option(
        False, "Also write an evidence pack, pack.zip, for `evenhand verify`; it does not contain the data."
    )


@dataclass(frozen=True, kw_only=True)
class GivenOptions:
    """Which columns take the place of a model."""

    scores: str | None = model_option(
        None, "Column of scores, in place of a model: probabilities, or with --unit values on any scale."
    )
    attributions: tuple[str, ...] = model_option(
        (), "Columns with the attributions of the scores: 'shap_*', where * is the feature, or feature=column: a,b."
    )
    attributions_file: str | None = model_option(
        None, "File of the attributions, joined by --id, or row by row if there is no --id."
    )
    base_values: str | None = model_option(
        None, "Base value of the attributions, a number or a column; by default it is derived from the data."
    )
    reason_codes: tuple[str, ...] = model_option(
        (), "Columns of people's principal reasons, the first reason first: a,b."
    )


@dataclass(frozen=True, kw_only=True)
class StreamOptions:
    """How a streamed audit is split into batches and where it runs."""

    resume: bool = batch_option(False, "Reuse the finished batches in the folder.")
    batch_rows: int | None = batch_option(
        None, "Largest batch, in people; by default 1/128 of everyone, from 5,000 to 25,000, and 50,000 on a GPU."
    )
    reference_people: int = batch_option(200_000, "Without --reference: number of people drawn at random to match in.")
    evidence_people: int | None = batch_option(
        None, "Compare only this many people, drawn at random, with placebo pairs."
    )
    engine: Engine | Executor = batch_option(
        "local",
        "What runs the batches: local (threads or processes on this machine, whichever is faster), threads, "
        "processes, dask or spark.",
    )
    scheduler: str | None = batch_option(
        None, "Address of a Dask scheduler, a Spark Connect server (sc://) or a Spark master."
    )
    n_jobs: int | None = batch_option(None, "Batches audited at the same time; by default one per core.")
    device: str | None = batch_option(None, "Where a torch model runs: cpu or cuda.")

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


def _checked_limits(limits: Mapping[str, float] | None) -> dict[str, float] | None:
    """Limits as plain data; None if there are none."""
    known = get_args(FindingKey)
    if limits is not None and not isinstance(limits, Mapping):
        raise InvalidInputError(
            f"{_LIMITS} must map findings to numbers, such as {{'score_gap': 0.1}}, got {limits!r}."
        )
    for name, limit in (limits or {}).items():
        if name not in known:
            raise InvalidInputError(
                f"{_LIMITS} must name {', '.join(known[:-1])} or {known[-1]}, got {name!r}; correct the name."
            )
        is_number = isinstance(limit, Real) and not isinstance(limit, bool)
        if not is_number or not 0 < limit < math.inf:
            raise InvalidInputError(f"{_LIMITS}: the limit of {name} must be a number above 0, got {limit!r}.")
    return {name: float(limit) for name, limit in limits.items()} if limits else None


def check_value(options: AuditOptions) -> None:
    """Reject options that do not fit an outcome that is a value.

    Raises
    ------
    InvalidInputError
        If `favorable` is missing, or there is a threshold of probabilities.
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
            f"{_named('decision_threshold')} applies to probabilities, but the outcome is in {options.unit!r}: pass "
            "the actual decisions with `decisions` (--decision)."
        )


def _check_unit(unit: Any, output: Any) -> None:
    """Reject an empty unit, and a value without a unit."""
    if unit is not None and (not isinstance(unit, str) or not unit.strip()):
        raise InvalidInputError(f"{_named('unit')} must be a string such as 'percentage points', got {unit!r}.")
    if output == "value" and unit is None:
        raise InvalidInputError(f"{_named('output')} is 'value', so a unit is needed: set {_named('unit')}.")


def _named(name: str) -> str:
    return f"`{name}` (--{name.replace('_', '-')})"


# Of what takes memory for each person: a number that was mistyped must not fill the machine.
_MOST = {"n_steps": 100_000, "n_permutations": 1_000_000, "n_reasons": 1_000}


def _check_counts(options: Any, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if value is not None and (not isinstance(value, Integral) or isinstance(value, bool) or value < 1):
            raise InvalidInputError(f"{_named(name)} must be a whole number of at least 1, got {value!r}.")
        if value is not None and name in _MOST and int(value) > _MOST[name]:
            raise InvalidInputError(f"{_named(name)} must be at most {_MOST[name]:,}, got {value:,}.")
