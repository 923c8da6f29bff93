"""Principal reasons from a model: everyone is explained from one baseline, the mean of the approved people.

A notice tells an applicant what stood between them and an approval. So the reasons are measured from the mean of the
people of the reference with a favorable decision, of all groups and labels together. The audit's own baselines would
not do: they differ by group, so that the same applicant would be given other reasons in another group, and by label,
which is not known when a decision is made. No one who is declined is part of this baseline, so that it leans neither
to a person's match nor to the placebo.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.auditing.people import People
from evenhand.auditing.reason_codes import PeopleReasons, ReasonSums, reason_table
from evenhand.inputs.reason_maps import ReasonMap
from evenhand.inputs.validation import Groups
from evenhand.metrics.reason_codes import NO_REASON, principal_reasons, pull_shares
from evenhand.models.explaining import Explainer

__all__ = ["BASELINE", "NO_BASELINE", "BatchReasons", "ReasonReference"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BASELINE = "attributions from the mean of the people of the reference with a favorable decision, all groups together"
NO_BASELINE = (
    "no one of the reference has a favorable decision, and reasons are measured from the mean of those who have"
)


@dataclass(frozen=True, eq=False)
class BatchReasons:
    """Principal reasons of a batch of people.

    Attributes
    ----------
    names
        All reasons.
    people, pool
        Those of the batch, and of the people of the reference.
    agreement
        How alike the reasons of pairs are, of shape (n_pairs, 2): see `PeopleReasons.agreement`.
    """

    names: tuple[str, ...]
    people: PeopleReasons
    pool: PeopleReasons
    agreement: Floats

    def sums(self, groups: Groups, person: Ints) -> ReasonSums:
        """Sums over the people of `groups` and over pairs whose people are the rows `person`."""
        return ReasonSums.of(self.people, groups.codes, len(self.names), len(groups.names), person, self.agreement)

    def table(self, people: People, person: Ints | None = None) -> pd.DataFrame:
        """The table of reasons: see `AuditResult.reasons`. People are numbered from 0, or by `person`."""
        numbers = np.arange(len(people)) if person is None else person
        groups = np.asarray(people.groups.names, dtype=object)[people.groups.codes]
        return reason_table(self.people, self.names, numbers, groups, people.ids)


@dataclass(frozen=True, eq=False)
class ReasonReference:
    """What reasons are measured from, and those of the people that all are matched in.

    Attributes
    ----------
    reason_map, n_reasons
        The reasons, and the most of a person.
    explainer
        From the mean of the approved people; None where there is no one.
    pool
        Reasons of the people of the reference.
    """

    reason_map: ReasonMap
    n_reasons: int
    explainer: Explainer | None
    pool: PeopleReasons

    @classmethod
    def of(
        cls, reason_map: ReasonMap, n_reasons: int, explainer: Explainer, pool: People, threshold: float
    ) -> ReasonReference:
        """Explain the declined people of a pool, whose explainer is given, from the mean of the approved."""
        model = explainer.model
        score = model.probability(model.margin(pool.x)).cpu().numpy()
        decision = pool.decided(score, threshold)
        one_group = np.zeros(len(pool), dtype=np.int64)
        approved: Explainer | None = Explainer.of(
            model, pool.x, decision, one_group, explainer.n_steps, explainer.method
        )
        if not decision.any():
            approved = None
        return cls(reason_map, n_reasons, approved, _reasons_of(reason_map, n_reasons, approved, pool.x, decision))

    def of_batch(self, people: People, decision: Ints, person: Ints, match: Ints, *, is_pool: bool) -> BatchReasons:
        """Reasons of a batch, and of pairs of its rows `person` and of rows `match` of the reference, -1 for none.

        `is_pool` says that the batch is the reference itself.
        """
        own = self.pool if is_pool else _reasons_of(self.reason_map, self.n_reasons, self.explainer, people.x, decision)
        return BatchReasons(self.reason_map.names, own, self.pool, own.agreement(person, self.pool, match))


def _reasons_of(
    reason_map: ReasonMap, n_reasons: int, explainer: Explainer | None, x: Tensor, decision: Ints
) -> PeopleReasons:
    codes = np.full((len(decision), n_reasons), NO_REASON, dtype=np.int64)
    shares = np.full(codes.shape, np.nan)
    rows = np.flatnonzero(decision == 0)
    if explainer is not None and len(rows):
        found = explainer.explain(x[torch.as_tensor(rows, device=x.device)], np.ones(len(rows), dtype=np.int64))
        values = found.values.double()
        joined = values if explainer.join is None else values @ explainer.join
        pulls = reason_map.summed(joined.cpu().numpy())
        codes[rows] = principal_reasons(pulls, n_reasons)
        shares[rows] = pull_shares(pulls, codes[rows])
    return PeopleReasons(codes, decision == 0, shares)
