"""The regressions of an audit: its decisions, scores and additional outcomes, next to its matched pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.auditing.batch import BatchFindings
from evenhand.auditing.controls import control_sets
from evenhand.auditing.direction import own_score
from evenhand.auditing.people import People
from evenhand.auditing.reference import AuditReference
from evenhand.auditing.regressions import RegressedPeople, RegressionRow, further_outcomes, regress
from evenhand.auditing.result import AuditResult
from evenhand.auditing.score_gaps import ScoreGap
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.validation import is_number_column
from evenhand.metrics.regressions import GroupEffect
from evenhand.system.threads import one_thread_each

__all__ = ["wanted_outcomes", "with_regressions"]

_DECISION, _PROBABILITY, _LOG_ODDS = "decision", "score, probability", "score, log-odds"
_UNITS = {_DECISION: "share", _PROBABILITY: "probability", _LOG_ODDS: "log-odds"}
_VALUE = "outcome"
_PAIRS = "matched pairs"
Floats = NDArray[np.float64]


def wanted_outcomes(
    outcomes: Any,  # noqa: ANN401 - any table, or columns by name
    X: Any,  # noqa: ANN401 - any table
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
def with_regressions(
    result: AuditResult,
    reference: AuditReference,
    found: BatchFindings,
    by: Mapping[str, NDArray[np.str_]],
    outcomes: Mapping[str, NDArray[np.float64]] | None,
) -> AuditResult:
    """Add regressions of decisions, scores and additional outcomes on the group to the result of an audit.

    Parameters
    ----------
    result, reference, found
        Of the audit.
    by
        Columns for whose values there are separate regressions.
    outcomes
        Additional outcomes by name, NaN if missing; None if no regressions are wanted.
    """
    if outcomes is None:
        return result
    people, model = found.people, reference.model
    audited = _audited_outcomes(reference, found)
    categories = model.category_columns(list(people.table.columns))
    table = people.table.astype({c: "category" for c in categories if is_number_column(people.table[c])})
    sets, left_out = control_sets(table, result.settings["financial_features"], people.groups.codes)
    names, same = people.groups.names, people.identity.first_rows()
    regressed = RegressedPeople(
        {**audited, **outcomes},
        people.groups.codes,
        names,
        names.index(result.outcome.approvals.reference),
        None if len(np.unique(same)) == len(same) else same,
    )
    unit = reference.scope.unit
    units = _UNITS if unit is None else {**_UNITS, _VALUE: unit}
    table_of_all = regress(regressed, sets, left_out, by, units=units)
    gaps = () if result.evidence is None else result.evidence.score_gaps
    is_turned = reference.settings.favorable == "low" and unit is not None
    pairs = _of_matched_pairs(gaps, table_of_all.reference, list(audited), is_turned=is_turned)
    return replace(result, regressions=replace(table_of_all, rows=_beside(table_of_all.rows, pairs)))


def _audited_outcomes(reference: AuditReference, found: BatchFindings) -> dict[str, Floats]:
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
            found, sign = of_outcome[outcome], -1 if is_turned and outcome == _VALUE else 1
            low, high = sorted([sign * found.ci_low, sign * found.ci_high])
            effect = GroupEffect(
                value=sign * found.value,
                low=low,
                high=high,
                standard_error=found.standard_error,
                p_value=found.p_value,
                n_people=gap.n_people,
                n_group=None,
                n_controls=None,
                note=found.note,
            )
            rows.append(RegressionRow(outcome, _PAIRS, gap.group, "", "", effect, float("nan")))
    return rows
