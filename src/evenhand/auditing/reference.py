"""What is fitted once, on the people whom all others are matched with and explained from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from evenhand.auditing.options import AuditOptions, SegmentThresholds, check_value
from evenhand.auditing.people import People
from evenhand.auditing.reasons import ReasonReference
from evenhand.auditing.scope import Scope
from evenhand.auditing.triples import EvidenceReference
from evenhand.exceptions import warn_caller
from evenhand.inputs.reason_maps import ReasonMap
from evenhand.matching import MatchReference
from evenhand.matching.placebos import N_NEAR, N_NEIGHBORS
from evenhand.matching.space import Missing
from evenhand.models.dispatch import as_audited_model
from evenhand.models.explaining import (
    MOST_SEGMENTS,
    Explainer,
    is_sampled,
    needed_permutations,
    needed_segments,
    with_permutations,
)
from evenhand.models.introspection import own_threshold
from evenhand.models.protocol import AuditedModel
from evenhand.models.wrapped import RiskModel

_SAME_THRESHOLD = 1e-9
_ORDERS = 32  # number of orders of sampled Shapley values, until a trial shows how many are needed

# Candidates of each kind, and triples of a person with a group, by the number of people. More triples make the
# estimates more precise; with many people they mainly cost time and memory.
_REACH = {5_000: (64, 12), np.inf: (N_NEIGHBORS, N_NEAR)}


@dataclass(frozen=True, eq=False)
class AuditReference:
    """Everything that is fitted once, on the people whom all others are matched with and explained from.

    Attributes
    ----------
    pool
        The people of the reference.
    explainer
        Their baselines.
    matcher
        Their standardized financial features, indexed for matching.
    evidence
        The same, indexed for placebo triples; None if no evidence is wanted.
    scope
        What can be found with the given inputs.
    reasons
        What the reasons of declined people are measured from.
    integration_error
        Error of attributions as a share of their size: see `models.segments`.
    """

    model: AuditedModel
    settings: AuditOptions
    pool: People
    explainer: Explainer
    matcher: MatchReference
    evidence: EvidenceReference | None
    scope: Scope
    reasons: ReasonReference
    integration_error: float | None = None

    @property
    def approval_threshold(self) -> float:
        """Probability of the favorable outcome from which the decision is favorable; NaN if segments differ."""
        return self.settings.approval_threshold

    @classmethod
    def of(
        cls, model: AuditedModel, settings: AuditOptions, pool: People, n_people: int, scope: Scope | None = None
    ) -> AuditReference:
        """Fit standardization, neighbors and baselines on a pool, to audit `n_people`.

        The default `scope` is that of an audit with a model.
        """
        financial = list(settings.financial_features)
        reason_map = ReasonMap.of(settings.reason_map, [str(column) for column in pool.table.columns])
        if settings.reason_map is not None:
            settings = replace(settings, reason_map=reason_map.to_dict())
        # A bare network rejects missing values anyway; a model with an encoder can represent them.
        missing: Missing = "indicator" if model.accepts_missing else "error"
        names = np.asarray(pool.groups.names)[pool.groups.codes]
        device = None if pool.x.device.type == "cpu" else str(pool.x.device)
        explainer = Explainer.of(
            model,
            pool.x,
            pool.labels,
            pool.groups.codes,
            settings.n_steps or MOST_SEGMENTS,
            settings.method,
            sample_weight=pool.sample_weight,
        )
        segments = needed_segments(explainer, pool.x, pool.cells, settings.n_steps)
        explainer, settings = replace(explainer, n_steps=segments.n), replace(settings, n_steps=segments.n)
        if is_sampled(explainer) and settings.n_permutations is None:
            n_orders = needed_permutations(explainer, pool.x, pool.cells, settings.sampling_error)
            explainer, settings = with_permutations(explainer, n_orders), replace(settings, n_permutations=n_orders)
        F = model.financial_table(pool.table, financial)
        matcher = MatchReference.of(F, pool.labels, names, missing=missing, device=device)
        is_financial = model.is_financial(list(pool.table.columns), financial)
        return cls(
            model=explainer.model,
            settings=settings,
            pool=pool,
            explainer=explainer,
            matcher=matcher,
            evidence=EvidenceReference.of(
                pool,
                explainer,
                matcher.points,
                is_financial,
                settings.random_state,
                **_reach(model, max(n_people, len(pool))),
            )
            if settings.evidence
            else None,
            scope=scope or _scope_of_model(settings, pool),
            reasons=ReasonReference.of(reason_map, settings, explainer, pool),
            integration_error=segments.error,
        )


def _reach(model: AuditedModel, n_people: float) -> dict[str, int]:
    """Candidates and triples of each person; the fewest if every explanation is sampled anew."""
    n_people = np.inf if model.attribution == "sampled_shapley" else n_people
    n_neighbors, n_triples = next(reach for most, reach in _REACH.items() if n_people <= most)
    return {"n_neighbors": n_neighbors, "n_triples": n_triples}


def _scope_of_model(settings: AuditOptions, pool: People) -> Scope:
    """What can be found with a model: everything, unless its score is a value."""
    if settings.unit is None:
        return Scope()
    return Scope(decisions=pool.decisions is not None, labels=pool.has_labels, unit=settings.unit)


def audited_model(model: Any, options: AuditOptions, table: pd.DataFrame) -> AuditedModel:
    """The model in the form the audit needs, explained according to the options; `table` holds people to be scored."""
    check_value(options)
    audited = as_audited_model(
        model,
        attribution=options.attribution,
        output=options.output if options.unit is None else "value",
        n_permutations=options.n_permutations or _ORDERS,
        random_state=options.random_state,
        table=table,
    )
    return RiskModel(audited) if options.favorable == "low" else audited


def settled_options(
    model: Any,
    audited: AuditedModel,
    options: AuditOptions,
    financial_features: Sequence[str],
) -> tuple[AuditOptions, tuple[str, ...]]:
    """Fill in unset options from the model; return them with what a reader must know about it."""
    threshold, notes = _settled_threshold(model, audited, options)
    settled = replace(
        options,
        financial_features=tuple(financial_features),
        attribution=audited.attribution,
        favorable=options.favorable or "high",
        decision_threshold=threshold,
    )
    return settled, notes


def _settled_threshold(
    model: Any,
    audited: AuditedModel,
    options: AuditOptions,
) -> tuple[float | SegmentThresholds | None, tuple[str, ...]]:
    """The user's threshold, or else the model's, or else 0.5; and what a reader must know about it.

    If the user's threshold differs from the model's, this also raises a Python warning. A value has no threshold.
    """
    if options.unit is not None:
        return None, ()
    own, given = own_threshold(model, audited), options.decision_threshold
    if own is None:
        return 0.5 if given is None else given, ()
    decides = f"the {type(model).__name__} decides at a probability of {own:.6g}"
    if given is None:
        return own, (f"Decisions use the model's threshold: {decides}.",)
    if not isinstance(given, SegmentThresholds) and abs(own - given) <= _SAME_THRESHOLD:
        return given, ()
    is_by = f"depends on {given.column!r}" if isinstance(given, SegmentThresholds) else f"is {given:g}"
    message = (
        f"`decision_threshold` (--decision-threshold) {is_by}, but {decides}: the audit covers decisions that the "
        "model does not make. Leave the option out to audit the model's decisions."
    )
    warn_caller(message)
    return given, (message,)
