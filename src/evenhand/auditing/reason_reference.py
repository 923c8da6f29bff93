"""Principal reasons from a model: everyone is explained from one baseline, the mean of the approved people.

A notice tells applicants what stood between them and an approval. So the reasons are measured from the mean of the
people of the reference with a favorable decision, over all groups and labels. The audit's usual baselines are not
suitable: they differ by group, so that the same applicant would get different reasons in a different group, and by
label, which is unknown when a decision is made. No declined person is part of this baseline, so it favors neither a
person's match nor the placebo.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.attribution import Explanation
from evenhand.auditing.options import AuditOptions
from evenhand.auditing.people import People
from evenhand.auditing.reason_codes import PeopleReasons, ReasonSums, reason_table
from evenhand.inputs.reason_maps import ReasonMap
from evenhand.inputs.validation import Groups
from evenhand.matching.placebos import PlaceboPairs
from evenhand.metrics.reason_codes import NO_REASON, principal_reasons, pull_shares, rank_overlap, shared_share
from evenhand.models.explaining import Explainer

__all__ = ["BASELINE", "NO_BASELINE", "BatchReasons", "ExplainedReasons", "ReasonReference"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BLOCK = 16_384  # triples processed together: bounds memory

BASELINE = (
    "what lowers the score the most, measured from the mean of the people of the reference with a favorable "
    "decision, all groups together"
)
NO_BASELINE = "no one in the reference has a favorable decision, and reasons are measured from the mean of those who do"


@dataclass(frozen=True, eq=False)
class ExplainedReasons:
    """Principal reasons of people, and the explanations behind them.

    Attributes
    ----------
    reasons
        Reasons of everyone.
    explanation, place
        Explanations of the declined, and each person's place among them, -1 if not declined; None if no one is.
    """

    reasons: PeopleReasons
    explanation: Explanation | None
    place: Ints

    def rows(self, rows: Ints) -> Explanation:
        """Explanations of some people, all of them declined."""
        assert self.explanation is not None
        return self.explanation.rows(torch.as_tensor(self.place[rows], device=self.explanation.logit.device))


@dataclass(frozen=True, eq=False)
class BatchReasons:
    """Principal reasons of a batch of people.

    Attributes
    ----------
    source
        What the reasons are measured from, and the reasons of the people of the reference.
    own
        Reasons of the batch.
    agreement
        How alike the reasons of pairs are, of shape (n_pairs, 2): see `PeopleReasons.agreement`.
    """

    source: ReasonReference
    own: ExplainedReasons
    agreement: Floats

    @property
    def people(self) -> PeopleReasons:
        """Reasons of the batch."""
        return self.own.reasons

    @property
    def pool(self) -> PeopleReasons:
        """Reasons of the people of the reference."""
        return self.source.pool.reasons

    def sums(self, groups: Groups, person: Ints) -> ReasonSums:
        """Sums over the people of `groups` and over pairs whose people are the rows `person`."""
        n_reasons = len(self.source.reason_map.names)
        return ReasonSums.of(self.people, groups.codes, n_reasons, len(groups.names), person, self.agreement)

    def table(self, people: People, person: Ints | None = None) -> pd.DataFrame:
        """The table of reasons: see `AuditResult.reasons`. People are numbered from 0, or by `person`."""
        numbers = np.arange(len(people)) if person is None else person
        groups = np.asarray(people.groups.names, dtype=object)[people.groups.codes]
        return reason_table(self.people, self.source.reason_map.names, numbers, groups, people.ids)

    def of_triples(self, triples: PlaceboPairs) -> tuple[Floats, Floats]:
        """Agreement of triples, of shape (n, 2, 2), as `PeopleReasons.of_triples` has it, and its control, (n, 2).

        The control is the effect of unequal finances alone: how alike a person's reasons are to those with the match's
        finances, minus the same with the placebo's. Its mean only shows that neighbors differ.
        """
        alike = self.people.of_triples(self.pool, triples)
        control = np.full((len(alike), 2), np.nan)
        rows = np.flatnonzero(~np.isnan(alike[:, 0, 0]))
        for start in range(0, len(rows), _BLOCK):
            block = rows[start : start + _BLOCK]
            person = triples.person[block]
            pair, placebo = (self._with_finances(person, side[block]) for side in (triples.other, triples.own))
            control[block] = pair - placebo
        return alike, control

    def _with_finances(self, person: Ints, row: Ints) -> Floats:
        """How alike people's reasons are to their reasons with the finances of reference rows, of shape (n, 2).

        The finances have the effect that they have in the person's context, so that a model that weighs them
        differently in the other group does not matter.
        """
        me, codes = self.own.rows(person), self.people.codes[person]
        theirs = self.source.by_feature(me.with_inputs_of(self.source.pool.rows(row)))
        moved = np.where(self.source.is_financial, theirs, self.source.by_feature(me.values))
        changed = principal_reasons(self.source.reason_map.summed(moved), codes.shape[1])
        # If neither side has a reason, nothing is in common.
        return np.nan_to_num(np.column_stack([shared_share(codes, changed), rank_overlap(codes, changed)]))


@dataclass(frozen=True, eq=False)
class ReasonReference:
    """What reasons are measured from, and the reasons of the people of the reference.

    Attributes
    ----------
    reason_map, is_financial, n_reasons
        The reason map, which features are financial, and the largest number of reasons of a person.
    explainer
        Explains from the mean of the approved people; None if there are none.
    pool
        Reasons of the people of the reference.
    """

    reason_map: ReasonMap
    is_financial: NDArray[np.bool_]
    n_reasons: int
    explainer: Explainer | None
    pool: ExplainedReasons

    @classmethod
    def of(cls, reason_map: ReasonMap, settings: AuditOptions, explainer: Explainer, pool: People) -> ReasonReference:
        """Explain the declined people of a pool from the mean of the approved people."""
        model = explainer.model
        score = model.probability(model.margin(pool.x)).cpu().numpy()
        decision = pool.decided(score, settings.approval_threshold).astype(np.int64)
        approved: Explainer | None = None
        if decision.any():
            one_group = np.zeros(len(pool), dtype=np.int64)
            approved = Explainer.of(model, pool.x, decision, one_group, explainer.n_steps, explainer.method)
        is_financial = np.isin(reason_map.features, settings.financial_features)
        nothing = ExplainedReasons(PeopleReasons(decision[:0, None], decision[:0] == 0), None, decision[:0])
        empty = cls(reason_map, is_financial, settings.n_reasons, approved, nothing)
        return replace(empty, pool=empty.explained(pool.x, decision))

    def by_feature(self, values: Tensor) -> Floats:
        """Convert attributions of encoded inputs to attributions of features."""
        assert self.explainer is not None
        join = self.explainer.join
        found: Floats = (values.double() if join is None else values.double() @ join).cpu().numpy()
        return found

    def explained(self, x: Tensor, decision: Ints) -> ExplainedReasons:
        """Principal reasons of the declined among encoded people."""
        codes = np.full((len(decision), self.n_reasons), NO_REASON, dtype=np.int64)
        shares, place = np.full(codes.shape, np.nan), np.full(len(decision), -1, dtype=np.int64)
        rows, found = np.flatnonzero(decision == 0), None
        if self.explainer is not None and len(rows):
            chosen = x[torch.as_tensor(rows, device=x.device)]
            found = self.explainer.explain(chosen, np.ones(len(rows), dtype=np.int64))
            pulls = self.reason_map.summed(self.by_feature(found.values))
            codes[rows] = principal_reasons(pulls, self.n_reasons)
            shares[rows] = pull_shares(pulls, codes[rows])
            place[rows] = np.arange(len(rows))
        return ExplainedReasons(PeopleReasons(codes, decision == 0, shares), found, place)

    def of_batch(self, people: People, decision: Ints, person: Ints, match: Ints, *, is_pool: bool) -> BatchReasons:
        """Reasons of a batch, and of pairs of its rows `person` and of rows `match` of the reference, -1 for none.

        `is_pool` says that the batch is the reference itself.
        """
        own = self.pool if is_pool else self.explained(people.x, decision)
        return BatchReasons(self, own, own.reasons.agreement(person, self.pool.reasons, match))
