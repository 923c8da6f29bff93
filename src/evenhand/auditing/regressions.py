"""Regressions of decisions, scores and additional outcomes on the group: from people to a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.arrays import Floats
from evenhand.auditing.batch import BatchFindings
from evenhand.auditing.direction import own_score
from evenhand.auditing.evidence import ScoreGap
from evenhand.auditing.fitted import Fitted
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.encoding import CategoryColumn, TableEncoder
from evenhand.inputs.people import People
from evenhand.inputs.validation import (
    as_clusters,
    as_groups,
    as_splits,
    as_table,
    check_columns,
    in_row_order,
    is_number_column,
)
from evenhand.metrics.adjustment import holm
from evenhand.metrics.disparity.intervals import membership_of, reference_code_of
from evenhand.metrics.estimate import Plain, check_open_fraction
from evenhand.metrics.regressions import Controls, GroupEffect, Method, group_effect, is_binary
from evenhand.system.threads import one_thread_each

NO_CONTROLS, FINANCES, ALL_INPUTS = "none", "financial features", "all inputs"
"""Names of the nested sets."""

MOST_CATEGORIES = 50
"""Number of values beyond which a category is not used as a control."""


def control_sets(
    table: pd.DataFrame, financial: Sequence[str], groups: NDArray[np.int64]
) -> tuple[dict[str, Controls], dict[str, str]]:
    """Return the nested sets of controls by name, and the inputs left out with the reasons.

    Parameters
    ----------
    table
        The inputs.
    financial
        Inputs that are held equal first.
    groups
        The code of each person's group; inputs that reveal the group are not held equal.
    """
    left_out = {
        name: "it is the group or a part of it" for name in map(str, table.columns) if _is_group(table[name], groups)
    }
    of_input: dict[str, Controls] = {}
    for name in map(str, table.columns):
        if name in left_out:
            continue
        found = _controls_of(table[name], name)
        if isinstance(found, str):
            left_out[name] = found
        else:
            of_input[name] = found
    finances = [name for name in financial if name in of_input]
    rest = [name for name in of_input if name not in finances]
    sets = {
        NO_CONTROLS: Controls.none(len(table)),
        FINANCES: _joined(of_input, finances, len(table)),
        ALL_INPUTS: _joined(of_input, [*finances, *rest], len(table)),
    }
    return ({name: sets[name] for name in sets if name != FINANCES or finances}), left_out


def _controls_of(values: pd.Series[Any], name: str) -> Controls | str:
    """Encode an input: a number and whether it is missing, or all but the most frequent value of a category."""
    if values.notna().sum() == 0:
        return "it has no values"
    if not is_number_column(values) and values.nunique() > MOST_CATEGORIES:
        return f"a category of {values.nunique():,} values, more than the {MOST_CATEGORIES} that are encoded"
    (column,) = TableEncoder.fit(values.to_frame(name)).columns
    encoded = column.transform(values)
    if not isinstance(column, CategoryColumn):
        return Controls(tuple(column.encoded_names), encoded)
    base = int(encoded.sum(axis=0).argmax())
    kept = [j for j in range(len(column.categories)) if j != base]
    return Controls(tuple(column.encoded_names), encoded).columns(kept)


def _joined(of_input: Mapping[str, Controls], names: Sequence[str], n: int) -> Controls:
    parts = [of_input[name] for name in names]
    values = np.column_stack([np.zeros((n, 0)), *(part.values for part in parts)])
    return Controls(tuple(name for part in parts for name in part.names), values)


def _is_group(values: pd.Series[Any], groups: NDArray[np.int64]) -> bool:
    """Whether each of a column's few values occurs in only one group, or each group has only one value."""
    codes, distinct = pd.factorize(values, use_na_sentinel=False)
    if not 1 < len(distinct) <= min(MOST_CATEGORIES, len(values) // 10):
        return False
    n_cells = np.unique(np.stack([codes, groups]), axis=1).shape[1]
    return n_cells in (len(distinct), len(np.unique(groups)))


Texts = NDArray[np.str_]

MOST_SEGMENTS = 20
"""Number of values of a column of `by` with separate regressions: those with the most people."""


@dataclass(frozen=True)
class RegressedOutcome(Plain):
    """A regressed outcome.

    Attributes
    ----------
    method
        ``"logit"`` for zeros and ones, reported as average marginal effects; ``"ols"`` for anything else.
    unit
        Unit of the differences.
    n_people, n_missing
        People with the outcome, who are used, and people without.
    mean, standard_deviation
        Over everyone with the outcome.
    """

    outcome: str
    method: Method
    unit: str
    n_people: int
    n_missing: int
    mean: float
    standard_deviation: float


@dataclass(frozen=True)
class RegressionRow(Plain):
    """A group compared with the reference group in one outcome, with one set of controls.

    Attributes
    ----------
    controls
        What is held equal: ``"none"``, ``"financial features"`` or ``"all inputs"``; ``"matched pairs"`` for the same
        difference between the pairs of the audit.
    column, segment
        If the people are those with one value of a column of `by`; else empty.
    effect
        The group minus the reference group.
    p_adjusted
        Adjusted over groups, outcomes and segments with the same controls and the same column (Holm); NaN for matched
        pairs, which the table of score gaps adjusts.
    """

    outcome: str
    controls: str
    group: str
    column: str
    segment: str
    effect: GroupEffect
    p_adjusted: float


@dataclass(frozen=True)
class Regressions(Plain):
    """Regressions of outcomes on the group.

    Attributes
    ----------
    reference
        The group that the others are compared with.
    confidence
        Level of the intervals.
    errors
        ``"robust"``, or ``"clustered"`` if people repeat.
    outcomes, rows
        What was regressed, and the results.
    controls
        Names of the columns of each set of controls.
    left_out
        Inputs that are not used as controls, and why.
    notes
        Additional notes.
    """

    reference: str
    confidence: float
    errors: str
    outcomes: tuple[RegressedOutcome, ...]
    rows: tuple[RegressionRow, ...]
    controls: Mapping[str, tuple[str, ...]]
    left_out: Mapping[str, str]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain fields, nested."""
        return {**super().to_dict(), "rows": [{**asdict(row), "effect": row.effect.to_dict()} for row in self.rows]}

    @property
    def table(self) -> pd.DataFrame:
        """The rows as a table."""
        plain = [{**asdict(row), **row.effect.to_dict()} for row in self.rows]
        return pd.DataFrame(plain).drop(columns="effect")


@dataclass(frozen=True, eq=False)
class RegressedPeople:
    """The people of the regressions.

    Attributes
    ----------
    outcomes
        Outcomes by name, NaN if missing.
    codes, names, reference
        Groups, and the code of the one that the others are compared with.
    clusters
        A number for each person, equal for rows of the same person; None if no one repeats.
    """

    outcomes: Mapping[str, Floats]
    codes: NDArray[np.int64]
    names: tuple[str, ...]
    reference: int
    clusters: NDArray[np.int64] | None


def regressions(
    outcomes: Any,
    *,
    sensitive_features: Any,
    X: Any = None,
    financial_features: Sequence[str] = (),
    reference_group: str | None = None,
    by: Any = None,
    clusters: Any = None,
    confidence: float = 0.95,
) -> Regressions:
    """Regress outcomes on the group: alone, with the financial features held equal, and with all columns of `X`.

    An outcome of zeros and ones is regressed with a logit and reported as an average marginal effect, any other with
    ordinary least squares. Each group is compared with the reference group in a regression on the people of the two.
    Standard errors are robust to unequal variances, and clustered if `clusters` says that people repeat. No model is
    needed; `audit` does the same for a model's decisions and scores.

    Parameters
    ----------
    outcomes
        Columns by name, or a table: decisions, scores, prices. People without an outcome are left out of its
        regressions.
    sensitive_features
        The protected attribute of each person. Several columns are intersected.
    X
        What may be held equal: numbers and categories. A missing number is replaced by the mean and marked in an extra
        column; a missing category is a category.
    financial_features
        Columns of `X` that are held equal first.
    reference_group
        The group that the others are compared with; by default the largest.
    by
        Columns for whose values the regressions are repeated.
    clusters
        Identifies the rows of the same applicant or household.
    confidence
        Level of the intervals.

    Raises
    ------
    InvalidInputError, InvalidTypeError
        If the input is invalid.

    Examples
    --------
    >>> import evenhand as eh
    >>> people = eh.make_planted_bias(400, random_state=0).dataset
    >>> found = eh.regressions({"repaid": people.y}, sensitive_features=people.group, X=people.X,
    ...                        financial_features=people.financial_features)
    >>> found.table[["outcome", "controls", "group"]].to_dict("records")[0]
    {'outcome': 'repaid', 'controls': 'none', 'group': 'group 1'}
    """
    check_open_fraction(confidence, "confidence")
    named = in_row_order(sensitive_features, X, "sensitive_features")
    groups = as_groups(named, len(next(iter(named.values())) if isinstance(named, Mapping) else named))
    n = len(groups.codes)
    if reference_group is not None and reference_group not in groups.names:
        raise InvalidInputError(
            f"`reference_group` must be one of the groups {list(groups.names)}, got {reference_group!r}."
        )
    table = pd.DataFrame(index=range(n)) if X is None else as_table(X)
    columns = further_outcomes(outcomes, X, n, inputs=[str(name) for name in table.columns])
    if not columns:
        raise InvalidInputError("`outcomes` must name at least one outcome, got none.")
    sets: dict[str, Controls] = {NO_CONTROLS: Controls.none(n)}
    left_out: dict[str, str] = {}
    if X is not None:
        if len(table) != n:
            raise InvalidInputError(f"`X` has {len(table)} rows for {n} people of `sensitive_features`.")
        available = list(table.columns)
        financial = check_columns(financial_features, available, "`financial_features`") if financial_features else []
        sets, left_out = control_sets(table, financial, groups.codes)
    elif financial_features:
        raise InvalidInputError(
            f"`financial_features` names {list(financial_features)}, but `X` was not given; pass it."
        )
    members = membership_of(groups.codes, n, groups.names, None)
    same = None if clusters is None else _same_people(as_clusters(in_row_order(clusters, X, "clusters"), n))
    people = RegressedPeople(columns, groups.codes, groups.names, reference_code_of(members, reference_group), same)
    return regress(people, sets, left_out, as_splits(in_row_order(by, X, "by"), n), confidence=confidence)


def further_outcomes(
    outcomes: Any,
    X: Any,
    n: int,
    *,
    inputs: Sequence[str],
) -> dict[str, Floats]:
    """Outcomes by name, as numbers for the `n` people of `X`, NaN if missing.

    Raises
    ------
    InvalidInputError
        If a column does not hold numbers, is also an input, or does not have `n` rows.
    """
    if outcomes is None:
        return {}
    rows = in_row_order(outcomes, X, "outcomes")
    columns = rows if isinstance(rows, Mapping) else {str(name): column for name, column in as_table(rows).items()}
    return {str(name): _outcome_numbers(values, str(name), n, inputs) for name, values in columns.items()}


def _outcome_numbers(values: Any, name: str, n: int, inputs: Sequence[str]) -> Floats:
    if name in inputs:
        raise InvalidInputError(
            f"The outcome {name!r} is also an input and would explain itself: remove it from one of them."
        )
    column = pd.Series(np.asarray(values)).convert_dtypes()
    if pd.api.types.is_bool_dtype(column.dtype):
        column = column.astype("Int64")
    if not is_number_column(column):
        known = column.dropna()
        text = f"such as {str(known.iloc[0])!r}" if len(known) else "none"
        raise InvalidInputError(f"The outcome {name!r} must be numbers, got {column.dtype} values, {text}.")
    numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
    if len(numbers) != n:
        raise InvalidInputError(f"The outcome {name!r} has {len(numbers)} values for {n} people.")
    if np.isinf(numbers).any():
        raise InvalidInputError(
            f"The outcome {name!r} holds {int(np.isinf(numbers).sum())} infinite values; set them missing or correct "
            "them."
        )
    if np.isnan(numbers).all():
        raise InvalidInputError(f"The outcome {name!r} has no values; leave it out.")
    return numbers


# --- who is who ---


def _same_people(clusters: NDArray[np.uint64]) -> NDArray[np.int64] | None:
    """A number for each person; None if no one repeats. A row without a cluster is one person."""
    _, codes = np.unique(clusters, return_inverse=True)
    codes = np.where(clusters == 0, len(codes) + np.arange(len(codes)), codes)
    return None if len(np.unique(codes)) == len(codes) else codes


# --- the table ---


def regress(
    people: RegressedPeople,
    sets: Mapping[str, Controls],
    left_out: Mapping[str, str],
    by: Mapping[str, Texts],
    *,
    confidence: float = 0.95,
    units: Mapping[str, str] | None = None,
) -> Regressions:
    """Regress every outcome on every group with every set of controls, for everyone and within segments.

    Parameters
    ----------
    people
        The people of the regressions.
    sets, left_out
        The sets of controls by name, and inputs in none of them, with the reasons.
    by
        Columns for whose values there are separate regressions.
    confidence
        Level of the intervals.
    units
        Units of the outcomes, unless they are shares of people or as given.
    """
    outcomes = tuple(_described(name, values, units or {}) for name, values in people.outcomes.items())
    everyone = np.ones(len(people.codes), dtype=bool)
    parts = [("", "", everyone)]
    notes = []
    for column, values in by.items():
        segments, note = _largest(values, column)
        notes.append(note)
        parts += [(column, segment, values == segment) for segment in segments]
    rows = [
        RegressionRow(
            described.outcome,
            name,
            people.names[code],
            column,
            segment,
            _effect(people, described, controls, code, chosen, confidence),
            float("nan"),
        )
        for column, segment, chosen in parts
        for described in outcomes
        for code in range(len(people.names))
        if code != people.reference
        for name, controls in sets.items()
    ]
    return Regressions(
        reference=people.names[people.reference],
        confidence=confidence,
        errors="robust" if people.clusters is None else "clustered",
        outcomes=outcomes,
        rows=_adjusted(rows),
        controls={name: controls.names for name, controls in sets.items()},
        left_out=dict(left_out),
        notes=tuple(note for note in notes if note),
    )


def _described(name: str, values: Floats, units: Mapping[str, str]) -> RegressedOutcome:
    known = values[np.isfinite(values)]
    method: Method = "logit" if is_binary(values) else "ols"
    unit = units.get(name, "share" if method == "logit" else "as given")
    n_missing = len(values) - len(known)
    return RegressedOutcome(name, method, unit, len(known), n_missing, float(known.mean()), float(known.std()))


def _effect(
    people: RegressedPeople,
    outcome: RegressedOutcome,
    controls: Controls,
    code: int,
    chosen: NDArray[np.bool_],
    confidence: float,
) -> GroupEffect:
    rows = chosen & ((people.codes == code) | (people.codes == people.reference))
    return group_effect(
        people.outcomes[outcome.outcome][rows],
        people.codes[rows] == code,
        controls.rows(rows),
        method=outcome.method,
        group=people.names[code],
        reference=people.names[people.reference],
        clusters=None if people.clusters is None else people.clusters[rows],
        confidence=confidence,
    )


def _largest(values: Texts, column: str) -> tuple[list[str], str]:
    """The values of a column with the most people, in order, and a note on the rest."""
    names, counts = np.unique(values, return_counts=True)
    if len(names) <= MOST_SEGMENTS:
        return names.tolist(), ""
    kept = np.sort(np.argsort(-counts, kind="stable")[:MOST_SEGMENTS])
    note = f"{column}: regressions cover the {MOST_SEGMENTS} of {len(names)} values with the most people"
    return names[kept].tolist(), note


def _adjusted(rows: Sequence[RegressionRow]) -> tuple[RegressionRow, ...]:
    """p-values adjusted over rows with the same controls and the same column."""
    families: dict[tuple[str, str], list[int]] = {}
    for place, row in enumerate(rows):
        families.setdefault((row.controls, row.column), []).append(place)
    p_adjusted = np.full(len(rows), np.nan)
    for places in families.values():
        p_adjusted[places] = holm([rows[place].effect.p_value for place in places])
    return tuple(replace(row, p_adjusted=float(p)) for row, p in zip(rows, p_adjusted, strict=True))


_DECISION, _PROBABILITY, _LOG_ODDS = "decision", "score, probability", "score, log-odds"
_UNITS = {_DECISION: "share", _PROBABILITY: "probability", _LOG_ODDS: "log-odds"}
_VALUE = "outcome"
_PAIRS = "matched pairs"


def wanted_outcomes(
    outcomes: Any,
    X: Any,
    people: People,
    *,
    is_wanted: bool,
) -> dict[str, NDArray[np.float64]] | None:
    """Additional outcomes of the people of `X`; None if no regressions are wanted.

    Raises
    ------
    InvalidInputError
        If an outcome is invalid, or given without `regressions`; or if people have sampling weights.
    """
    if not is_wanted:
        if outcomes is not None:
            raise InvalidInputError(
                "`outcomes` (--outcomes) are only used in regressions: add `regressions=True` (--regressions)."
            )
        return None
    unfit = {"sampling weights": people.sample_weight, "groups known as probabilities": people.probabilities}
    for what, given in unfit.items():
        if given is not None:
            raise InvalidInputError(
                f"`regressions` (--regressions) cannot be combined with {what}: use only one of them."
            )
    found = further_outcomes(outcomes, X, len(people), inputs=[str(name) for name in people.table.columns])
    taken = [name for name in found if name in (*_UNITS, _VALUE)]
    if taken:
        raise InvalidInputError(
            f"{taken} are names that the audit uses for its outcomes; rename these columns of `outcomes`."
        )
    return found


@one_thread_each()
def regressions_of(
    fitted: Fitted,
    batch: BatchFindings,
    outcomes: Mapping[str, Floats] | None,
    against: str,
    gaps: Sequence[ScoreGap],
) -> Regressions | None:
    """Regressions of decisions, scores and additional outcomes on the group; None if none are wanted.

    Parameters
    ----------
    fitted, batch
        Of the audit.
    outcomes
        Additional outcomes by name, NaN if missing; None if no regressions are wanted.
    against
        The group that others are compared with.
    gaps
        The same differences according to the audit's pairs.
    """
    if outcomes is None:
        return None
    people, model = batch.people, fitted.model
    audited = _audited_outcomes(fitted, batch)
    categories = model.category_columns(list(people.table.columns))
    table = people.table.astype({c: "category" for c in categories if is_number_column(people.table[c])})
    sets, left_out = control_sets(table, fitted.settings.financial_features, people.groups.codes)
    names, same = people.groups.names, people.identity.first_rows()
    regressed = RegressedPeople(
        {**audited, **outcomes},
        people.groups.codes,
        names,
        names.index(against),
        None if len(np.unique(same)) == len(same) else same,
    )
    unit = fitted.scope.unit
    units = _UNITS if unit is None else {**_UNITS, _VALUE: unit}
    table_of_all = regress(regressed, sets, left_out, people.by, units=units)
    is_turned = fitted.settings.favorable == "low" and unit is not None
    pairs = _of_matched_pairs(gaps, table_of_all.reference, list(audited), is_turned=is_turned)
    return replace(table_of_all, rows=_beside(table_of_all.rows, pairs))


def _audited_outcomes(reference: Fitted, found: BatchFindings) -> dict[str, Floats]:
    """Decisions and scores of an audit, or the given values, by name."""
    scope, settings = reference.scope, reference.settings
    outcomes: dict[str, Floats] = {}
    if scope.decisions:
        outcomes[_DECISION] = found.decision.astype(np.float64)
    if scope.outcome == "score":
        outcomes[_PROBABILITY] = found.score
        if reference.model.output == "log-odds":
            outcomes[_LOG_ODDS] = found.own.logit.double().cpu().numpy()
    if scope.outcome == "value":
        outcomes[_VALUE] = own_score(found.score, settings.favorable or "high", scope.unit)
    return outcomes


def _beside(rows: Sequence[RegressionRow], pairs: Sequence[RegressionRow]) -> tuple[RegressionRow, ...]:
    """Insert the rows of matched pairs after the regressions of the same outcome, group and people."""
    found: dict[tuple[str, ...], list[RegressionRow]] = {}
    for row in (*rows, *pairs):
        found.setdefault((row.column, row.segment, row.outcome, row.group), []).append(row)
    return tuple(row for part in found.values() for row in part)


def _of_matched_pairs(
    gaps: Sequence[ScoreGap], reference: str, outcomes: Sequence[str], *, is_turned: bool
) -> list[RegressionRow]:
    """The same differences according to the matched pairs of the audit.

    If low values are good, the sign of the gap is reversed to match the value.
    """
    rows = []
    for gap in (gap for gap in gaps if gap.reference == reference):
        of_outcome = {_DECISION: gap.decision, _PROBABILITY: gap.probability, _LOG_ODDS: gap.total, _VALUE: gap.total}
        for outcome in outcomes:
            found = of_outcome[outcome].scaled(-1.0 if is_turned and outcome == _VALUE else 1.0)
            effect = GroupEffect(**{**vars(found), "n": gap.n_people})
            rows.append(RegressionRow(outcome, _PAIRS, gap.group, "", "", effect, float("nan")))
    return rows
