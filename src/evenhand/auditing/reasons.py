"""Reasons for unfavorable decisions: how often each is given to which group, and whether comparable people share them.

This applies to reasons derived from a model's attributions and to codes in a lender's file.

Principal reasons from a model: everyone is explained from one baseline, the mean of the approved people.

A notice tells applicants what stood between them and an approval. So the reasons are measured from the mean of the
people of the reference with a favorable decision, over all groups and labels. The audit's usual baselines are not
suitable: they differ by group, so that the same applicant would get different reasons in a different group, and by
label, which is unknown when a decision is made. No declined person is part of this baseline, so it favors neither a
person's match nor the placebo.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from evenhand.arrays import Array, Bools, Floats, Ints, as_numpy, double, like
from evenhand.attribution.explanation import Explanation
from evenhand.auditing.options import AuditOptions
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.people import People
from evenhand.inputs.reason_maps import ReasonMap
from evenhand.matching.pairs import Pairs
from evenhand.matching.placebos import N_NEAR, PlaceboPairs
from evenhand.metrics.estimate import Estimate, Plain, p_above
from evenhand.metrics.excess import excess_columns
from evenhand.metrics.reason_codes import (
    NO_REASON,
    DeclinedPeople,
    ReasonCounts,
    ReasonRate,
    compacted,
    principal_reasons,
    pull_shares,
    rank_overlap,
    reason_rates,
    shared_share,
)
from evenhand.models.explaining import Explainer


@dataclass(frozen=True, eq=False)
class PeopleReasons:
    """Principal reasons of some people.

    Attributes
    ----------
    codes
        Reasons, of shape (n, k), the most important first; -1 after the last, and for people who were not declined.
    is_declined
        Who has an unfavorable decision.
    shares
        Share of each reason in everything that lowers the person's score, of shape (n, k); None for given codes.
    explanation
        Explanations of the declined, in order; None if there are none.
    """

    codes: Ints
    is_declined: Bools
    shares: Floats | None = None
    explanation: Explanation | None = None

    def explained(self, rows: Ints) -> Explanation:
        """Explanations of some people, all of them declined."""
        assert self.explanation is not None
        place = np.cumsum(self.is_declined)[rows] - 1
        return self.explanation.rows(like(place, self.explanation.logit))

    def table(self, names: Sequence[str], people: People, person: Ints | None = None) -> pd.DataFrame:
        """One row per declined person: person, group, decision, reason_1, ..., and share_1, ... of attributions.

        People are numbered from 0, or by `person`.
        """
        rows = np.flatnonzero(self.is_declined)
        words = np.array([*names, None], dtype=object)  # -1 refers to the last
        columns: dict[str, Any] = {"person": rows if person is None else person[rows]}
        if people.ids is not None:
            columns["person_id"] = people.ids[rows]
        columns["group"] = np.asarray(people.groups.names, dtype=object)[people.groups.codes[rows]]
        columns["decision"] = np.zeros(len(rows), dtype=np.int64)
        columns |= {f"reason_{k + 1}": words[column[rows]] for k, column in enumerate(self.codes.T)}
        if self.shares is not None:
            columns |= {f"share_{k + 1}": column[rows] for k, column in enumerate(self.shares.T)}
        return pd.DataFrame(columns)

    def counts(self, groups: Ints, n_reasons: int, n_groups: int, person: Ints, agreement: Floats) -> ReasonCounts:
        """Counts over people of `groups`, and over pairs whose people are the rows `person`."""
        codes, declined = self.codes[self.is_declined], groups[self.is_declined]
        return ReasonCounts.of(codes, declined, n_reasons, n_groups, groups[person], agreement)

    def agreement(self, rows: Ints, others: PeopleReasons, other_rows: Ints) -> Floats:
        """How alike the reasons of pairs are, of shape (n_pairs, 2): share in common, and rank-biased overlap.

        NaN unless both are declined and one of them has a reason.
        """
        alike = np.full((len(rows), 2), np.nan)
        both = np.flatnonzero(self.is_declined[rows] & others.is_declined[other_rows] & (other_rows >= 0))
        first, second = self.codes[rows[both]], others.codes[other_rows[both]]
        alike[both] = np.column_stack([shared_share(first, second), rank_overlap(first, second)])
        return alike

    def of_triples(self, pool: PeopleReasons, triples: PlaceboPairs) -> Floats:
        """Agreement of each near triple's pair and of its placebo pair, of shape (n_triples, 2, 2).

        NaN unless all three people are declined, so that a pair and its placebo pair are always compared together. With
        farther triples, the test raises too many false alarms if groups depend on finances.
        """
        sides = [self.agreement(triples.person, pool, side) for side in (triples.other, triples.own)]
        alike = np.stack(sides, axis=1)
        alike[np.isnan(alike).any(axis=(1, 2)) | (triples.rank > N_NEAR)] = np.nan
        return alike


@dataclass(frozen=True)
class Reasons(Plain):
    """The reasons for unfavorable decisions.

    Attributes
    ----------
    names
        All reasons, in the order of the map.
    n_reasons
        Largest number of reasons of a person.
    source
        Where the reasons come from, in words that follow "They are".
    reference
        The group that the others are compared with.
    declined, without_reason
        Declined people of each group, and how many of them have no input that lowers their score below the baseline.
    rates
        How often each reason is given, as the first one and among all, with differences from the reference group.
    n_pairs, shared, rank_overlap, shared_by_group
        Pairs of two declined people, and means of their share of reasons in common and of their rank-biased overlap.
    compared_shared, placebo_shared, compared_rank_overlap, placebo_rank_overlap
        The same for triples of three declined people, for pairs and placebo pairs; people weigh equally.
    shared_excess, rank_overlap_excess
        Overlap of pairs minus that of placebo pairs; below 0 means less in common. None without placebo pairs.
    of_features
        Place among `names` of the reason of each feature; empty for given codes.
    note
        Why there are no reasons; empty if there are.
    """

    names: tuple[str, ...]
    n_reasons: int
    source: str
    reference: str
    declined: Mapping[str, int]
    without_reason: Mapping[str, int]
    rates: tuple[ReasonRate, ...]
    n_pairs: int
    shared: float
    rank_overlap: float
    shared_by_group: Mapping[str, float]
    compared_shared: float = math.nan
    placebo_shared: float = math.nan
    compared_rank_overlap: float = math.nan
    placebo_rank_overlap: float = math.nan
    shared_excess: Estimate | None = None
    rank_overlap_excess: Estimate | None = None
    of_features: tuple[int, ...] = ()
    note: str = ""

    @classmethod
    def of(
        cls,
        counts: ReasonCounts,
        names: Sequence[str],
        groups: Sequence[str],
        reference: str,
        n_reasons: int,
        source: str,
        declined: DeclinedPeople | None = None,
    ) -> Reasons:
        """Results from counts of all people, and the declined if there are clusters; `with_placebos` adds placebos."""
        n_pairs = int(counts.n_pairs.sum())
        shared, overlap = (counts.agreement.sum(axis=0) / n_pairs).tolist() if n_pairs else (math.nan, math.nan)
        present = [code for code in np.argsort(groups) if counts.n_pairs[code]]
        return cls(
            names=tuple(names),
            n_reasons=n_reasons,
            source=source,
            reference=reference,
            declined=dict(zip(groups, counts.n_people.tolist(), strict=True)),
            without_reason=dict(zip(groups, counts.n_without.tolist(), strict=True)),
            rates=reason_rates(counts, names, groups, reference, declined=declined),
            n_pairs=n_pairs,
            shared=shared,
            rank_overlap=overlap,
            shared_by_group={groups[c]: float(counts.agreement[c, 0] / counts.n_pairs[c]) for c in present},
            note="" if counts.n_people.any() else "no one is declined",
        )

    def with_placebos(self, means: Floats, shared: Estimate, overlap: Estimate) -> Reasons:
        """Add the overlap of placebo pairs.

        Parameters
        ----------
        means
            For pairs, then for placebo pairs, of shape (2, 2): share in common, and rank-biased overlap.
        shared, overlap
            The excess of each, as `fewer_in_common` returns it.
        """
        names = ("compared_shared", "compared_rank_overlap", "placebo_shared", "placebo_rank_overlap")
        values: dict[str, Any] = dict(zip(names, means.ravel().tolist(), strict=True))
        return replace(self, **values, shared_excess=shared, rank_overlap_excess=overlap)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        plain = super().to_dict()
        plain["by_group"] = plain.pop("shared_by_group")
        return plain | {name: list(plain[name]) for name in ("names", "rates", "of_features")}


def fewer_in_common(excess: Estimate) -> Estimate:
    """An excess of agreement with its one-sided p-value, for the null that pairs have no less in common than placebos.

    Examples
    --------
    >>> less = Estimate(-0.2, standard_error=0.1, p_value=0.97, df=79.0)
    >>> round(fewer_in_common(less).p_value, 3)
    0.024
    """
    return replace(excess, p_value=p_above(-excess.value, excess.standard_error, excess.df))


def reasons_of_codes(
    codes: ArrayLike,
    names: Sequence[str],
    groups: ArrayLike,
    group_names: Sequence[str],
    decisions: ArrayLike,
    *,
    pairs: Pairs | None = None,
    triples: PlaceboPairs | None = None,
    reference: str | None = None,
    source: str = "codes in the data",
) -> Reasons:
    """Frequency and agreement of given reason codes, such as those in a lender's file.

    Parameters
    ----------
    codes, names
        Codes of everyone, of shape (n, k), as `evenhand.inputs.reason_maps.given_reasons` returns them, and their
        names; gaps and repeats are removed.
    groups, group_names
        Group codes of shape (n,), and their names.
    decisions
        1 for a favorable decision, of shape (n,). Codes of approved people are ignored.
    pairs, triples
        Who is compared with whom, as rows of the people; None to skip agreement, or placebo pairs.
    reference
        The group that the others are compared with; by default the largest.
    source
        Where the codes come from, in words that follow "They are".

    Raises
    ------
    InvalidInputError
        If lengths differ, or a code has no name.

    Examples
    --------
    >>> reasons = reasons_of_codes([[0, 1], [1, -1], [0, -1]], ["debt", "income"], [0, 0, 1], ["a", "b"], [0, 0, 1])
    >>> dict(reasons.declined), [(row.reason, row.n) for row in reasons.rates if row.place == "any"][::2]
    ({'a': 2, 'b': 0}, [('income', 2), ('debt', 1)])
    """
    given, group = np.asarray(codes, dtype=np.int64), np.asarray(groups, dtype=np.int64)
    is_declined = np.asarray(decisions) == 0
    if given.ndim != 2 or not len(given) == len(group) == len(is_declined) or given.max(initial=-1) >= len(names):
        raise InvalidInputError(
            "`codes` must have one row per person, with places among `names`, got shape "
            f"{given.shape} with codes up to {given.max(initial=-1)} for {len(group)} groups, {len(is_declined)} "
            f"decisions and {len(names)} names."
        )
    people = PeopleReasons(np.where(is_declined[:, None], compacted(given), -1), is_declined)
    counts = np.bincount(group, minlength=len(group_names))
    held = group_names[int(counts.argmax())] if reference is None else reference
    person = np.zeros(0, dtype=np.int64) if pairs is None else pairs.person
    agreement = np.zeros((0, 2)) if pairs is None else people.agreement(person, people, pairs.match)
    tallied = people.counts(group, len(names), len(group_names), person, agreement)
    reasons = Reasons.of(tallied, names, group_names, held, given.shape[1], source)
    if triples is None:
        return reasons
    alike = people.of_triples(people, triples)
    rows = np.flatnonzero(~np.isnan(alike[:, 0, 0]))
    excesses = excess_columns(alike[rows, 0], alike[rows, 1], triples.nodes[rows])
    n, total = agreement_sums(alike, triples.person)
    means = total / n if n else np.full((2, 2), np.nan)
    return reasons.with_placebos(means, *map(fewer_in_common, excesses))


def agreement_sums(alike: Floats, person: Ints) -> tuple[int, Floats]:
    """People with a triple of three declined people, and the sum over them of the means of their triples."""
    known = np.flatnonzero(~np.isnan(alike[:, 0, 0]))
    people, code, count = np.unique(person[known], return_inverse=True, return_counts=True)
    if not len(people):
        return 0, np.zeros((2, 2))
    return len(people), len(people) * np.average(alike[known], axis=0, weights=1 / count[code])


_BLOCK = 16_384  # triples processed together: bounds memory

BASELINE = (
    "what counts most against the applicant, measured from the mean of the people of the reference with a favorable "
    "decision, all groups together"
)
NO_BASELINE = "no one in the reference has a favorable decision, and reasons are measured from the mean of those who do"


@dataclass(frozen=True, eq=False)
class BatchReasons:
    """Principal reasons of a batch of people.

    Attributes
    ----------
    source
        What the reasons are measured from, and the reasons of the people of the reference.
    people
        Reasons of the batch.
    agreement
        How alike the reasons of pairs are, of shape (n_pairs, 2): see `PeopleReasons.agreement`.
    """

    source: ReasonReference
    people: PeopleReasons
    agreement: Floats

    def of_triples(self, triples: PlaceboPairs) -> tuple[Floats, Floats]:
        """Agreement of triples, of shape (n, 2, 2), as `PeopleReasons.of_triples` has it, and its control, (n, 2).

        The control is the effect of unequal finances alone: how alike a person's reasons are to those with the match's
        finances, minus the same with the placebo's. Its mean only shows that neighbors differ.
        """
        alike = self.people.of_triples(self.source.pool, triples)
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
        me, codes = self.people.explained(person), self.people.codes[person]
        theirs = self.source.by_feature(me.with_inputs_of(self.source.pool.explained(row)))
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
    pool: PeopleReasons

    @classmethod
    def of(cls, reason_map: ReasonMap, settings: AuditOptions, explainer: Explainer, pool: People) -> ReasonReference:
        """Explain the declined people of a pool from the mean of the approved people."""
        model = explainer.model
        score = as_numpy(model.probability(model.margin(pool.x)))
        decision = pool.decided(score, settings.approval_threshold).astype(np.int64)
        approved: Explainer | None = None
        if decision.any():
            one_group = np.zeros(len(pool), dtype=np.int64)
            approved = Explainer.of(model, pool.x, decision, one_group, explainer.n_steps, explainer.method)
        is_financial = np.isin(reason_map.features, settings.financial_features)
        nothing = PeopleReasons(decision[:0, None], decision[:0] == 0)
        empty = cls(reason_map, is_financial, settings.n_reasons, approved, nothing)
        return replace(empty, pool=empty.explained(pool.x, decision))

    def by_feature(self, values: Array) -> Floats:
        """Convert attributions of encoded inputs to attributions of features."""
        assert self.explainer is not None
        join = self.explainer.join
        by_feature: Floats = as_numpy(double(values) if join is None else double(values) @ join)
        return by_feature

    def explained(self, x: Array, decision: Ints) -> PeopleReasons:
        """Principal reasons of the declined among encoded people."""
        codes = np.full((len(decision), self.n_reasons), NO_REASON, dtype=np.int64)
        shares, rows, explanation = np.full(codes.shape, np.nan), np.flatnonzero(decision == 0), None
        if self.explainer is not None and len(rows):
            chosen = x[like(rows, x)]
            explanation = self.explainer.explain(chosen, np.ones(len(rows), dtype=np.int64))
            pulls = self.reason_map.summed(self.by_feature(explanation.values))
            codes[rows] = principal_reasons(pulls, self.n_reasons)
            shares[rows] = pull_shares(pulls, codes[rows])
        return PeopleReasons(codes, decision == 0, shares, explanation)

    def of_batch(self, people: People, decision: Ints, person: Ints, match: Ints, *, is_pool: bool) -> BatchReasons:
        """Reasons of a batch, and of pairs of its rows `person` and of rows `match` of the reference, -1 for none.

        `is_pool` says that the batch is the reference itself.
        """
        own = self.pool if is_pool else self.explained(people.x, decision)
        return BatchReasons(self, own, own.agreement(person, self.pool, match))
