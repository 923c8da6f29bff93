"""Regressions of decisions, scores and additional outcomes on the group: from people to a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.arrays import Floats, as_numpy, double
from evenhand.auditing.batch import BatchFindings
from evenhand.auditing.evidence import ScoreGap
from evenhand.auditing.fitted import Fitted, own_score
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.encoding import CategoryColumn, TableEncoder
from evenhand.inputs.people import People
from evenhand.inputs.splitting import units_of
from evenhand.inputs.validation import (
    Groups,
    as_clusters,
    as_groups,
    as_splits,
    as_table,
    check_columns,
    in_row_order,
    is_number_column,
)
from evenhand.metrics.adjustment import holm
from evenhand.metrics.estimate import Plain, check_open_fraction, not_estimable
from evenhand.metrics.intervals import membership_of, reference_code_of
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
    left_out: dict[str, str] = {}
    of_input: dict[str, Controls] = {}
    for name in map(str, table.columns):
        values = table[name]
        if _is_group(values, groups):
            left_out[name] = "it is the group or a part of it"
        elif values.notna().sum() == 0:
            left_out[name] = "it has no values"
        elif not is_number_column(values) and values.nunique() > MOST_CATEGORIES:
            n = values.nunique()
            left_out[name] = f"a category of {n:,} values, more than the {MOST_CATEGORIES} that are encoded"
        else:
            of_input[name] = _controls_of(values, name)
    finances = [name for name in financial if name in of_input]
    rest = [name for name in of_input if name not in finances]
    chosen = {NO_CONTROLS: [], **({FINANCES: finances} if finances else {}), ALL_INPUTS: [*finances, *rest]}
    sets = {}
    for kind, inputs in chosen.items():
        parts = [Controls.none(len(table)), *(of_input[name] for name in inputs)]
        names = tuple(name for part in parts for name in part.names)
        sets[kind] = Controls(names, np.column_stack([part.values for part in parts]))
    return sets, left_out


def _controls_of(values: pd.Series[Any], name: str) -> Controls:
    """Encode an input: a number and whether it is missing, or all but the most frequent value of a category."""
    (column,) = TableEncoder.fit(values.to_frame(name)).columns
    controls = Controls(tuple(column.encoded_names), column.transform(values))
    if not isinstance(column, CategoryColumn):
        return controls
    base = int(controls.values.sum(axis=0).argmax())
    return controls.columns([j for j in range(len(column.categories)) if j != base])


def _is_group(values: pd.Series[Any], groups: NDArray[np.int64]) -> bool:
    """Whether each of a column's few values occurs in only one group, or each group has only one value."""
    codes, distinct = pd.factorize(values, use_na_sentinel=False)
    if not 1 < len(distinct) <= min(MOST_CATEGORIES, len(values) // 10):
        return False
    n_cells = np.unique(np.stack([codes, groups]), axis=1).shape[1]
    return n_cells in (len(distinct), len(np.unique(groups)))


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
        What is held equal: ``"none"``, ``"financial features"`` or ``"all inputs"``; ``"leaves"`` for the score gap
        of the audit.
    column, segment
        If the people are those with one value of a column of `by`; else empty.
    effect
        The group minus the reference group.
    p_adjusted
        Adjusted over groups, outcomes and segments with the same controls and the same column (Holm); NaN for
        leaves, which the table of score gaps adjusts.
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
        nothing = not_estimable("")
        plain = []
        for row in self.rows:
            odds = row.effect.odds_ratio or nothing
            ends = {"odds_ratio": odds.value, "odds_ratio_low": odds.low, "odds_ratio_high": odds.high}
            plain.append({**asdict(row), **row.effect.to_dict(), **ends})
        return pd.DataFrame(plain).drop(columns="effect")


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
    if len(table) != n:
        raise InvalidInputError(f"`X` has {len(table)} rows for {n} people of `sensitive_features`.")
    if X is None and financial_features:
        raise InvalidInputError(
            f"`financial_features` names {list(financial_features)}, but `X` was not given; pass it."
        )
    available = list(table.columns)
    financial = check_columns(financial_features, available, "`financial_features`") if financial_features else []
    sets, left_out = control_sets(table, financial, groups.codes)
    if X is None:
        sets = {NO_CONTROLS: sets[NO_CONTROLS]}
    members = membership_of(groups.codes, n, groups.names, None)
    same = None if clusters is None else units_of(as_clusters(in_row_order(clusters, X, "clusters"), n))
    reference = reference_code_of(members, reference_group)
    parts = as_splits(in_row_order(by, X, "by"), n)
    return regress(columns, groups, reference, same, sets, left_out, parts, confidence=confidence)


def further_outcomes(outcomes: Any, X: Any, n: int, *, inputs: Sequence[str]) -> dict[str, Floats]:
    """Outcomes by name, as numbers for the `n` people of `X`, NaN if missing.

    Raises
    ------
    InvalidInputError
        If a column does not hold numbers, is also an input, or does not have `n` rows.
    """
    if outcomes is None:
        return {}
    rows = in_row_order(outcomes, X, "outcomes")
    columns = rows if isinstance(rows, Mapping) else as_table(rows)
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


def regress(
    outcomes: Mapping[str, Floats],
    groups: Groups,
    reference: int,
    clusters: NDArray[np.int64] | None,
    sets: Mapping[str, Controls],
    left_out: Mapping[str, str],
    by: Mapping[str, NDArray[np.str_]],
    *,
    confidence: float = 0.95,
    units: Mapping[str, str] | None = None,
) -> Regressions:
    """Regress every outcome on every group with every set of controls, for everyone and within segments.

    Parameters
    ----------
    outcomes
        Outcomes by name, NaN if missing.
    groups, reference
        Groups, and the code of the one that the others are compared with.
    clusters
        A number for each person, equal for rows of the same person; None if no one repeats.
    sets, left_out
        The sets of controls by name, and inputs in none of them, with the reasons.
    by
        Columns for whose values there are separate regressions.
    confidence
        Level of the intervals.
    units
        Units of the outcomes, unless they are shares of people or as given.
    """
    codes, names = groups.codes, groups.names
    if clusters is not None and len(np.unique(clusters)) == len(clusters):
        clusters = None
    described = {}
    for name, values in outcomes.items():
        known = values[np.isfinite(values)]
        method: Method = "logit" if is_binary(values) else "ols"
        unit = (units or {}).get(name, "share" if method == "logit" else "as given")
        spread = float(known.mean()), float(known.std())
        described[name] = RegressedOutcome(name, method, unit, len(known), len(values) - len(known), *spread)
    parts = [("", "", np.ones(len(codes), dtype=bool))]
    notes = []
    for column, of_column in by.items():
        segments, counts = np.unique(of_column, return_counts=True)
        if len(segments) > MOST_SEGMENTS:
            notes.append(
                f"{column}: regressions cover the {MOST_SEGMENTS} of {len(segments)} values with the most people"
            )
            segments = segments[np.sort(np.argsort(-counts, kind="stable")[:MOST_SEGMENTS])]
        parts += [(column, segment, of_column == segment) for segment in segments.tolist()]
    rows = []
    for column, segment, is_part in parts:
        for outcome, values in outcomes.items():
            for code in (code for code in range(len(names)) if code != reference):
                chosen = is_part & ((codes == code) | (codes == reference))
                for kind, controls in sets.items():
                    effect = group_effect(
                        values[chosen],
                        codes[chosen] == code,
                        controls.rows(chosen),
                        method=described[outcome].method,
                        group=names[code],
                        reference=names[reference],
                        clusters=None if clusters is None else clusters[chosen],
                        confidence=confidence,
                    )
                    rows.append(RegressionRow(outcome, kind, names[code], column, segment, effect, math.nan))
    p_values = pd.Series([row.effect.p_value for row in rows], dtype=np.float64)
    families = [[row.controls for row in rows], [row.column for row in rows]]
    adjusted = p_values.groupby(families).transform(lambda family: holm(family.to_numpy())).tolist()
    return Regressions(
        reference=names[reference],
        confidence=confidence,
        errors="robust" if clusters is None else "clustered",
        outcomes=tuple(described.values()),
        rows=tuple(replace(row, p_adjusted=p) for row, p in zip(rows, adjusted, strict=True)),
        controls={kind: controls.names for kind, controls in sets.items()},
        left_out=dict(left_out),
        notes=tuple(notes),
    )


_DECISION, _PROBABILITY, _LOG_ODDS = "decision", "score, probability", "score, log-odds"
_UNITS = {_DECISION: "share", _PROBABILITY: "probability", _LOG_ODDS: "log-odds"}
_VALUE = "outcome"


def wanted_outcomes(outcomes: Any, people: People, *, is_wanted: bool) -> dict[str, Floats] | None:
    """Additional outcomes of the people, in their order; None if no regressions are wanted.

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
    if people.sample_weight is not None or people.probabilities is not None:
        what = "groups known as probabilities" if people.sample_weight is None else "sampling weights"
        raise InvalidInputError(f"`regressions` (--regressions) cannot be combined with {what}: use only one of them.")
    columns = further_outcomes(outcomes, None, len(people), inputs=[str(name) for name in people.table.columns])
    taken = [name for name in columns if name in (*_UNITS, _VALUE)]
    if taken:
        raise InvalidInputError(
            f"{taken} are names that the audit uses for its outcomes; rename these columns of `outcomes`."
        )
    return columns


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
        The same differences according to the audit's leaves.
    """
    if outcomes is None:
        return None
    people, model, scope = batch.people, fitted.model, fitted.scope
    favorable = fitted.settings.favorable or "high"
    audited: dict[str, Floats] = {}
    if scope.decisions:
        audited[_DECISION] = batch.decision.astype(np.float64)
    if scope.outcome == "score":
        audited[_PROBABILITY] = batch.score
        if model.output == "log-odds":
            audited[_LOG_ODDS] = as_numpy(double(batch.own.logit))
    if scope.outcome == "value":
        audited[_VALUE] = own_score(batch.score, favorable, scope.unit)
    categories = model.category_columns(list(people.table.columns))
    table = people.table.astype({c: "category" for c in categories if is_number_column(people.table[c])})
    sets, left_out = control_sets(table, fitted.settings.financial_features, people.groups.codes)
    table_of_all = regress(
        {**audited, **outcomes},
        people.groups,
        people.groups.names.index(against),
        people.identity.first_rows(),
        sets,
        left_out,
        people.by,
        units=_UNITS if scope.unit is None else {**_UNITS, _VALUE: scope.unit},
    )
    in_leaves = []
    for gap in (gap for gap in gaps if gap.reference == against):
        of_outcome = {_DECISION: gap.decision, _PROBABILITY: gap.probability}
        for outcome in audited:
            effect = GroupEffect(**{**vars(of_outcome.get(outcome, gap.total)), "n": gap.n_people})
            in_leaves.append(RegressionRow(outcome, "leaves", gap.group, "", "", effect, math.nan))
    # Leaves come after the regressions of the same outcome, group and people.
    together: dict[tuple[str, ...], list[RegressionRow]] = {}
    for row in (*table_of_all.rows, *in_leaves):
        together.setdefault((row.column, row.segment, row.outcome, row.group), []).append(row)
    return replace(table_of_all, rows=tuple(row for part in together.values() for row in part))
