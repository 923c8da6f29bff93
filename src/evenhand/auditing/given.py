"""The audit without a model: given scores, decisions and attributions replace it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from evenhand.auditing.assemble import FINISHING_STEPS
from evenhand.auditing.audit import assembled, checked_people, wanted_outcomes, with_regressions
from evenhand.auditing.batch import BATCH_STEPS, BatchFindings, audit_batch
from evenhand.auditing.direction import check_direction, notes_on_label
from evenhand.auditing.options import (
    AuditOptions,
    Favorable,
    ReasonMapLike,
    RegressionOptions,
    SegmentThresholds,
    check_value,
)
from evenhand.auditing.people import People, check_finances_apart
from evenhand.auditing.reasons import PeopleReasons, reason_table, reasons_of_codes
from evenhand.auditing.reference import AuditReference
from evenhand.auditing.result import AuditResult
from evenhand.auditing.sample import PairsInMemory
from evenhand.auditing.scope import DECISION_UNIT, Scope
from evenhand.auditing.triples import compared_people
from evenhand.datasets.dataset import reservations_on
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.given import (
    Explained,
    as_attributions,
    as_base_value,
    as_reason_codes,
    as_scores,
    explained_scores,
)
from evenhand.inputs.reason_maps import given_reasons
from evenhand.inputs.validation import as_decisions, as_splits, as_table, check_columns, in_row_order
from evenhand.models.protocol import AuditedModel, Output
from evenhand.models.wrapped import GivenModel, RiskModel
from evenhand.system.terminal import PATIENCE
from evenhand.system.terminal import progress as shown_progress

_SOURCE = "the given codes, first reason first"


def with_given_reasons(
    result: AuditResult,
    reference: AuditReference,
    found: BatchFindings,
    codes: pd.DataFrame,
    reason_map: ReasonMapLike | None,
) -> AuditResult:
    """Add the frequency of given reasons, and what pairs have in common, to the result of an audit without a model.

    Parameters
    ----------
    result, reference, found
        From the audit, whose people are matched with each other.
    codes
        Reasons of everyone, one column per rank.
    reason_map
        The meaning of the codes; None if the codes are the reasons.

    Raises
    ------
    InvalidInputError
        If a code is not in the map.
    """
    names, places = given_reasons(codes, reason_map)
    people = found.people
    triples = None
    if reference.evidence is not None:
        rows, distance = np.arange(len(people)), reference.settings.max_distance
        triples = compared_people(reference.evidence, people, reference.matcher.points, rows, None, distance)
    reasons = reasons_of_codes(
        places,
        names,
        people.groups.codes,
        people.groups.names,
        found.decision,
        pairs=found.pairs,
        triples=triples,
        reference=result.outcome.approvals.reference or None,
        source=_SOURCE,
    )
    is_declined = found.decision == 0
    declined = PeopleReasons(np.where(is_declined[:, None], places, -1), is_declined)
    groups = np.asarray(people.groups.names, dtype=object)[people.groups.codes]
    assert isinstance(result.source, PairsInMemory)
    source = replace(
        result.source,
        reason_table=reason_table(declined, names, np.arange(len(people)), groups, people.ids),
        reason_codes=(declined.codes, declined.codes),
    )
    return replace(result, source=source, reason_codes=reasons)


_HALF = 0.5  # default probability from which a decision is favorable


def audit_given(
    X: Any,
    y: Any = None,
    *,
    sensitive_features: Any,
    financial_features: Sequence[str],
    scores: Any = None,
    decisions: Any = None,
    attributions: Any = None,
    base_values: Any = None,
    reason_codes: Any = None,
    unit: str | None = AuditOptions.unit,
    output: Output | None = AuditOptions.output,
    ids: Any = None,
    favorable: Favorable | None = AuditOptions.favorable,
    decision_threshold: float | SegmentThresholds | None = AuditOptions.decision_threshold,
    consistency_threshold: float = AuditOptions.consistency_threshold,
    max_distance: float | None = AuditOptions.max_distance,
    by: Any = None,
    clusters: Any = None,
    limits: Mapping[str, float] | None = AuditOptions.limits,
    regressions: bool = RegressionOptions.regressions,
    outcomes: Any = None,
    reason_map: Any = None,
    n_reasons: int = AuditOptions.n_reasons,
    random_state: int = AuditOptions.random_state,
    progress: bool = False,
) -> AuditResult:
    """Audit scores, decisions or prices without the model that produced them.

    What can be found depends on what is given. Scores or decisions alone give the gap between comparable people of
    different groups, at equal finances. Attributions from one common background, such as SHAP values, also show through
    which inputs the gap runs, and give the excess of the CEC score. Whether the same inputs are weighed differently
    cannot be found without the model. The result names what it could not find, and why.

    Parameters
    ----------
    X
        People to audit: a pandas, polars or pyarrow table, or an array (columns are then named x0, x1, ...).
    y
        True labels, 1 for the favorable outcome; with ``favorable="low"`` and no `unit`, 1 for the unfavorable one.
        People are then compared within a label. None if there are no labels.
    sensitive_features, financial_features, ids, decision_threshold, consistency_threshold, max_distance, by, clusters
        As in `audit`.
    limits, regressions, outcomes, random_state, progress
        As in `audit`.
    scores
        Probabilities of the favorable outcome; log-odds with ``output="log-odds"``; or, with a `unit`, an outcome on
        any scale, such as a price, a rate spread, an amount or points.
    decisions
        The actual decisions, 1 for a favorable one. Without them, probabilities at the threshold give the decisions.
    attributions
        How much each column of `X` added to each person's score: a table with the same column names as `X`, an array in
        the same order, or the output of a shap explainer. All must come from one background.
    base_values
        The starting point of the attributions, a number or a column. None for the number that makes them sum to the
        scores.
    reason_codes
        Principal reasons of each person, one column per reason, the first reason first; empty for no reason. Reasons of
        people with an unfavorable decision are counted and compared; they replace reasons from attributions. If nothing
        else is given, everyone with a reason counts as declined.
    reason_map
        The meaning of the codes; without codes, the reason of each feature, as in `audit`.
    n_reasons
        Largest number of reasons per person derived from attributions.
    unit
        Unit of an outcome that is a value rather than a probability, such as ``"percentage points"``.
    output
        Whether attributions, and scores outside 0 to 1, are ``"log-odds"`` or a ``"probability"``. None for the one
        that makes attributions sum to the scores, or log-odds if there are no attributions.
    favorable
        Which scores are good; required with a `unit`: ``"low"`` for a price.

    Returns
    -------
    AuditResult

    Raises
    ------
    InvalidInputError, InvalidTypeError
        If the input cannot be audited. The message says what was expected, what was found and what to do.

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.load_dataset("synthetic", n=500)
    >>> price = 5 - data.X["financial_0"] + 0.5 * (data.group == "group 1")
    >>> result = eh.audit_given(data.X, sensitive_features=data.group, financial_features=data.financial_features,
    ...                         scores=price, unit="percentage points", favorable="low")
    >>> result.to_dict()["findings"][0]["key"], result.to_dict()["scope"]["given"]
    ('score_gap', ['scores'])
    """
    table = as_table(X)
    financial = check_columns(financial_features, list(table.columns), "`financial_features`")
    given = {"attributions": attributions, "scores": scores, "decisions": decisions, "reason_codes": reason_codes}
    rows = {name: in_row_order(values, X, name) for name, values in given.items()}
    options = AuditOptions(
        financial_features=tuple(financial),
        unit=unit,
        output=output,
        favorable=favorable,
        decision_threshold=decision_threshold,
        consistency_threshold=consistency_threshold,
        max_distance=max_distance,
        limits=limits,
        reason_map=reason_map if reason_codes is None else None,
        n_reasons=n_reasons,
        random_state=random_state,
    )
    check_value(options)
    codes = _checked_codes(rows["reason_codes"], len(table), has_decisions=unit is None or decisions is not None)
    has_codes_alone = scores is None and attributions is None and decisions is None
    if codes is not None and has_codes_alone:
        decisions = rows["decisions"] = codes.isna().all(axis=1).to_numpy().astype(np.int64)
    model, explained = _given_model(table, rows, in_row_order(base_values, X, "base_values"), options)
    columns = {"X": X, "y": y, "sensitive_features": sensitive_features, "ids": ids, "clusters": clusters}
    people, pool = checked_people(model, table, {**columns, "decisions": decisions, "by": by}, None, options)
    check_finances_apart(pool, financial)
    scope = Scope(
        model=False,
        attributions=attributions is not None,
        scores=scores is not None or attributions is not None,
        decisions=unit is None or decisions is not None,
        labels=people.has_labels,
        unit=unit,
        n_reason_codes=0 if codes is None else codes.shape[1],
    )
    notes = (
        *([_OF_CODES] if has_codes_alone else []),
        *_on_sums(explained, len(people)),
        *_on_direction(model, people, scope, y, favorable),
        *reservations_on(X),
    )
    splits = as_splits(in_row_order(by, X, "by"), len(people))
    further = wanted_outcomes(outcomes, X, people, is_wanted=regressions)
    fitted = AuditReference.of(model, _settled(options, scope), pool, len(people), scope)
    with shown_progress("audit", BATCH_STEPS + FINISHING_STEPS, is_shown=progress, after=PATIENCE) as advance:
        found = audit_batch(fitted, people, splits, advance=advance)
        result = with_regressions(assembled(fitted, found, notes, advance), fitted, found, splits, further)
        return result if codes is None else with_given_reasons(result, fitted, found, codes, reason_map)


_OF_CODES = (
    "Decisions are taken from the reason codes: everyone with a reason was declined, and everyone else approved."
)


def _checked_codes(codes: Any, n: int, *, has_decisions: bool) -> pd.DataFrame | None:
    """Reason codes of n people; None if there are none."""
    if codes is None:
        return None
    if not has_decisions:
        raise InvalidInputError(
            "`reason_codes` (--reason-codes) belong to unfavorable decisions, but an outcome with a unit has none: "
            "pass `decisions` (--decision) too."
        )
    return as_reason_codes(codes, n)


def _given_model(
    table: pd.DataFrame,
    rows: Mapping[str, Any],
    base_values: Any,
    options: AuditOptions,
) -> tuple[AuditedModel, Explained]:
    """The given columns in the form of a model, with the sign reversed for a risk or a price."""
    n, features = len(table), [str(name) for name in table.columns]
    attributions, decisions = rows["attributions"], rows["decisions"]
    base = getattr(attributions, "base_values", None) if base_values is None else base_values
    if attributions is None and rows["scores"] is None:
        explained, kind = _of_decisions(decisions, n, options), "decisions, without a model"
    else:
        explained = explained_scores(
            None if rows["scores"] is None else as_scores(rows["scores"], n),
            None if attributions is None else as_attributions(attributions, features, n),
            None if base is None else as_base_value(base, n),
            options.output,
            options.unit,
        )
        kind = f"{'scores' if attributions is None else 'scores and attributions'}, without a model"
    model = GivenModel.of(explained.parts, explained.base, len(features), explained.scale, kind)
    return (RiskModel(model) if options.favorable == "low" else model), explained


def _of_decisions(decisions: Any, n: int, options: AuditOptions) -> Explained:
    """Decisions as a score of 0 or 1."""
    if decisions is None:
        raise InvalidInputError(
            "An audit without a model needs `scores` (--scores) or `decisions` (--decision), but neither was given; "
            "pass one of them, or a model to `audit`."
        )
    if options.unit is not None or options.favorable == "low":
        raise InvalidInputError(
            "`unit` (--unit) and `favorable` (--favorable low) apply to scores, but only decisions were given, 1 for a "
            "favorable one; leave these options out."
        )
    values = as_decisions(decisions, n).astype(np.float64)
    if n and (values == values[0]).all():
        raise InvalidInputError(
            f"`decisions` is {values[0]:g} for everyone, so there is nothing to compare; pass the decisions of "
            "everyone who applied."
        )
    return Explained(values[:, None], 0.0, "value")


def _settled(options: AuditOptions, scope: Scope) -> AuditOptions:
    """Options, with unset ones filled in."""
    given = options.decision_threshold
    return replace(
        options,
        attribution="given",
        favorable=options.favorable or "high",
        decision_threshold=_HALF if scope.outcome == "score" and given is None else given,
        unit=DECISION_UNIT if scope.outcome == "decision" else options.unit,
    )


def _on_sums(explained: Explained, n: int) -> tuple[str, ...]:
    """A note on attributions that do not quite sum to the scores."""
    if not explained.n_off:
        return ()
    return (
        f"The attributions of {explained.n_off:,} of {n:,} people do not quite sum to the score; they differ by up to "
        f"{explained.largest_gap:.3g}. The audit uses the attributions.",
    )


def _on_direction(
    model: AuditedModel,
    people: People,
    scope: Scope,
    y: Any,
    favorable: Favorable | None,
) -> tuple[str, ...]:
    """Notes on the name of the label; scores that rank people against it are rejected."""
    if not scope.labels or scope.unit is not None:
        return ()
    if favorable is None and scope.outcome == "score":
        check_direction(model, people)
    return notes_on_label(getattr(y, "name", None), favorable)
