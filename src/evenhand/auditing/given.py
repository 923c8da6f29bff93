"""The audit without a model: given scores, decisions and attributions replace it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from evenhand.auditing.audit import audit_seen, options_of, seen_by
from evenhand.auditing.fitted import check_direction, check_finances_apart, notes_on_label
from evenhand.auditing.options import AuditOptions, check_value
from evenhand.auditing.result import AuditResult
from evenhand.auditing.scope import DECISION_UNIT, Scope
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
from evenhand.inputs.people import People, names_of
from evenhand.inputs.reason_maps import given_reasons
from evenhand.inputs.validation import as_decisions, check_columns, in_row_order
from evenhand.models.protocol import AuditedModel
from evenhand.models.wrapped import GivenModel, RiskModel

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
    ids: Any = None,
    by: Any = None,
    clusters: Any = None,
    outcomes: Any = None,
    options: AuditOptions | None = None,
    progress: bool = False,
    **fields: Any,
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
    sensitive_features, financial_features, ids, by, clusters, outcomes, progress
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
    options, **fields
        As in `audit`. With a `unit`, such as ``"percentage points"``, the scores are values on any scale, and
        `favorable` is required: ``"low"`` for a price. `output` says whether attributions, and scores outside 0 to 1,
        are ``"log-odds"`` or a ``"probability"``; None for the one that makes attributions sum to the scores, or
        log-odds if there are no attributions. `reason_map` gives the meaning of the codes; without codes, the reason of
        each feature.

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
    options = options_of("eh.audit_given", options, fields, financial_features, audit_given)
    given = {"attributions": attributions, "scores": scores, "decisions": decisions, "reason_codes": reason_codes}
    rows = {name: in_row_order(values, X, name) for name, values in {**given, "base_values": base_values}.items()}
    people = People.of(X, y, sensitive_features, decisions=decisions, ids=ids, clusters=clusters, by=by)
    label = getattr(y, "name", None)
    notes = reservations_on(X)
    outcomes = in_row_order(outcomes, X, "outcomes")
    return audit_given_people(people, rows, options, label=label, outcomes=outcomes, notes=notes, progress=progress)


def audit_given_people(
    people: People,
    given: Mapping[str, Any],
    options: AuditOptions,
    *,
    label: object = None,
    outcomes: Any = None,
    notes: Sequence[str] = (),
    progress: bool = False,
) -> AuditResult:
    """Audit checked people without a model.

    Parameters
    ----------
    people
        The people, whom Python or a file gave.
    given
        Scores, decisions, attributions, base values and reason codes in the order of the people; None if absent.
    options
        Options of the audit.
    label
        Name of the label, which may say that 1 is a bad outcome.
    outcomes, notes, progress
        As in `auditing.audit.audit_people`.
    """
    check_value(options)
    named = {role.replace("_", " "): names_of(given[role]) for role in ("scores", "reason_codes")}
    people = replace(people, columns={**people.columns, **{role: names for role, names in named.items() if names}})
    financial = check_columns(options.financial_features, list(people.table.columns), "`financial_features`")
    has_decisions = options.unit is None or given["decisions"] is not None
    codes, reason_map, noted = given["reason_codes"], options.reason_map, list[str]()
    if codes is not None:
        if not has_decisions:
            raise InvalidInputError(
                "`reason_codes` (--reason-codes) belong to unfavorable decisions, but an outcome with a unit has none: "
                "pass `decisions` (--decision) too."
            )
        codes, options = as_reason_codes(codes, len(people)), replace(options, reason_map=None)
        if all(given[name] is None for name in ("scores", "attributions", "decisions")):
            approved = codes.isna().all(axis=1).to_numpy().astype(np.int64)
            given, people = {**given, "decisions": approved}, replace(people, decisions=approved)
            noted.append(
                "Decisions are taken from the reason codes: everyone with a reason was declined, and everyone else "
                "approved."
            )
    model, explained = _given_model(people.table, given, options)
    people, pool = seen_by(model, people, None, options)
    check_finances_apart(pool, financial)
    scope = Scope(
        model=False,
        attributions=given["attributions"] is not None,
        scores=given["scores"] is not None or given["attributions"] is not None,
        decisions=has_decisions,
        labels=people.has_labels,
        unit=options.unit,
        n_reason_codes=0 if codes is None else codes.shape[1],
    )
    if explained.n_off:
        noted.append(
            f"The attributions of {explained.n_off:,} of {len(people):,} people do not quite sum to the score; they "
            f"differ by up to {explained.largest_gap:.3g}. The audit uses the attributions."
        )
    if scope.labels and scope.unit is None:
        if options.favorable is None and scope.outcome == "score":
            check_direction(model, people)
        noted += notes_on_label(label, options.favorable)
    has_threshold = scope.outcome == "score" and options.decision_threshold is None
    options = replace(
        options,
        attribution="given",
        favorable=options.favorable or "high",
        decision_threshold=_HALF if has_threshold else options.decision_threshold,
        unit=DECISION_UNIT if scope.outcome == "decision" else options.unit,
    )
    return audit_seen(
        model,
        people,
        pool,
        options,
        scope=scope,
        outcomes=outcomes,
        notes=(*noted, *notes),
        progress=progress,
        codes=None if codes is None else given_reasons(codes, reason_map),
    )


def _given_model(
    table: pd.DataFrame,
    rows: Mapping[str, Any],
    options: AuditOptions,
) -> tuple[AuditedModel, Explained]:
    """The given columns in the form of a model, with the sign reversed for a risk or a price."""
    n, features = len(table), [str(name) for name in table.columns]
    attributions, decisions, base_values = rows["attributions"], rows["decisions"], rows["base_values"]
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
