r"""Principal reasons of declined people: what they are, how often each is given, how alike those of two people are.

Reasons are codes, places in a list of reasons, of shape (n, k): one row per person, the most important first, and -1
after the last. It does not matter here whether they come from attributions or from a lender's file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from evenhand.arrays import Floats, Ints, Sums
from evenhand.metrics.adjustment import holm
from evenhand.metrics.disparity import contrast_counts, contrast_groups, no_contrast
from evenhand.metrics.estimate import Estimate, Plain, RowWeights
from evenhand.metrics.excess import ROUNDING
from evenhand.metrics.intervals import CONFIDENCE, Membership, group_rate, rate_estimate

Place: TypeAlias = Literal["first", "any"]

NO_REASON = -1
"""The code for no reason."""

_NO_ONE = "not estimable: no one in the group is declined"

PERSISTENCE = 0.8
"""Persistence of `rank_overlap`: the first reason then has 40% of the weight, the first four have 81%."""


def principal_reasons(pulls: NDArray[np.floating], n_reasons: int) -> Ints:
    """The reasons that lower each score the most, of shape (n, n_reasons), the strongest first.

    Only what lowers the score is a reason; among equally strong ones, the first in the list comes first. They are
    compared to the sixth decimal, because attributions are computed in single precision.

    Parameters
    ----------
    pulls
        What each reason adds to each person's score, of shape (n, R).
    n_reasons
        Largest number of reasons of a person.

    Examples
    --------
    >>> principal_reasons(np.array([[-0.1, 0.4, -0.3, -0.1], [0.2, 0.0, 0.1, -0.5]]), 2)
    array([[ 2,  0],
           [ 3, -1]])
    """
    found = np.full((len(pulls), n_reasons), NO_REASON, dtype=np.int64)
    steps = _steps(pulls)
    order = np.argsort(steps, axis=1, kind="stable")[:, :n_reasons]
    is_reason = np.take_along_axis(steps, order, axis=1) < 0
    found[:, : order.shape[1]] = np.where(is_reason, order, NO_REASON)
    return found


def pull_shares(pulls: NDArray[np.floating], codes: Ints) -> Floats:
    """Each principal reason's share of everything that lowers the person's score, of shape (n, k); NaN if none.

    Examples
    --------
    >>> pulls = np.array([[-1.0, 2.0, -3.0]])
    >>> pull_shares(pulls, principal_reasons(pulls, 3))
    array([[0.75, 0.25,  nan]])
    """
    down = np.where(_steps(pulls) < 0, pulls, 0.0).astype(np.float64)
    shares = np.full(codes.shape, np.nan)
    taken = np.take_along_axis(down, np.maximum(codes, 0), axis=1)
    np.divide(taken, down.sum(axis=1, keepdims=True), out=shares, where=codes >= 0)
    return shares


def _steps(pulls: NDArray[np.floating]) -> Floats:
    return np.round(pulls.astype(np.float64) / ROUNDING)


def compacted(codes: Ints) -> Ints:
    """Codes from a lender's file without gaps, with each reason of a person once, at its first place.

    Examples
    --------
    >>> compacted(np.array([[-1, 2, 2, 0]]))
    array([[ 2,  0, -1, -1]])
    """
    is_earlier = np.tril(np.ones((codes.shape[1], codes.shape[1]), dtype=bool), -1)
    is_repeated = ((codes[:, :, None] == codes[:, None, :]) & is_earlier).any(axis=2)
    kept = np.where(is_repeated, NO_REASON, codes)
    order = np.argsort(kept < 0, axis=1, kind="stable")
    return np.take_along_axis(kept, order, axis=1)


def shared_share(first: Ints, second: Ints) -> Floats:
    """Share of the principal reasons that the two people of each pair have in common, of shape (n,).

    The number in common divided by the larger number of reasons; NaN if neither person has any.

    Parameters
    ----------
    first, second
        Codes of shape (n, k), without repeats in a row.

    Examples
    --------
    >>> shared_share(np.array([[3, 1, -1], [0, -1, -1]]), np.array([[1, 2, -1], [-1, -1, -1]]))
    array([0.5, 0. ])
    """
    n_most = np.maximum((first >= 0).sum(axis=1), (second >= 0).sum(axis=1))
    found = np.full(len(first), np.nan)
    np.divide(_same(first, second).sum(axis=(1, 2)), n_most, out=found, where=n_most > 0)
    return found


def rank_overlap(first: Ints, second: Ints, persistence: float = PERSISTENCE) -> Floats:
    r"""Rank-biased overlap of the principal reasons of the two people of each pair, of shape (n,), from 0 to 1.

    Reasons in common count more the closer to the top they are. At depth d, the two lists agree by

    .. math:: A_d = \frac{1}{d} \left( X_d + X_s \frac{\max(d - s, 0)}{s} \right)

    where :math:`X_d` is the number of reasons among the first d of both, s the length of the shorter list and l that of
    the longer; beyond l, the agreement is assumed to stay the same. With persistence p (Webber, Moffat and Zobel 2010,
    equation 32),

    .. math:: \mathrm{RBO} = \frac{1 - p}{p} \sum_{d=1}^{l} A_d \, p^d + A_l \, p^l.

    It is 1 for equal lists, 0 for lists with nothing in common, and NaN if both are empty.

    Parameters
    ----------
    first, second
        Codes of shape (n, k), without repeats in a row and without gaps.
    persistence
        How far down a reader is assumed to go, between 0 and 1.

    Examples
    --------
    >>> rank_overlap(np.array([[0, 1], [0, 1], [0, 1]]), np.array([[0, 1], [1, 0], [2, 3]])).round(3)
    array([1. , 0.8, 0. ])
    """
    same, n_depths = _same(first, second), first.shape[1]
    lengths = np.stack([(first >= 0).sum(axis=1), (second >= 0).sum(axis=1)])
    shorter, longer = lengths.min(axis=0), lengths.max(axis=0)
    in_common = np.column_stack([same[:, :d, :d].sum(axis=(1, 2)) for d in range(1, n_depths + 1)])
    at_shorter = np.where(shorter > 0, in_common[np.arange(len(first)), shorter - 1], 0)
    rate = at_shorter / np.maximum(shorter, 1)
    depths = np.arange(1, n_depths + 1)
    agreement = (in_common + rate[:, None] * np.maximum(depths - shorter[:, None], 0)) / depths
    total = np.where(depths <= longer[:, None], agreement * persistence**depths, 0.0).sum(axis=1)
    last = agreement[np.arange(len(first)), longer - 1]
    found = (1 - persistence) / persistence * total + last * persistence**longer
    return np.where(longer > 0, found, np.nan)


def _same(first: Ints, second: Ints) -> NDArray[np.bool_]:
    same: NDArray[np.bool_] = (first[:, :, None] == second[:, None, :]) & (first >= 0)[:, :, None]
    return same


@dataclass(frozen=True, eq=False)
class ReasonCounts(Sums):
    """How often reasons are given to declined people; counts of parts of the people can be added.

    Attributes
    ----------
    n_people, n_without
        Declined people of each group, and how many of them have no reason, of shape (G,).
    first, any
        How many have each reason as the first one, and among all of theirs, of shape (R, G).
    n_pairs, agreement
        Pairs of two declined people by group of the person, of shape (G,), and sums over them of the share of reasons
        in common and of the rank-biased overlap, of shape (G, 2).
    """

    n_people: Ints
    n_without: Ints
    first: Ints
    any: Ints
    n_pairs: Ints
    agreement: Floats

    @classmethod
    def of(
        cls,
        codes: Ints,
        groups: Ints,
        n_reasons: int,
        n_groups: int,
        pair_groups: Ints | None = None,
        pair_agreement: Floats | None = None,
    ) -> ReasonCounts:
        """Count the reasons of declined people.

        Parameters
        ----------
        codes, groups
            Reasons and groups of the declined people, of shape (n, k) and (n,).
        n_reasons, n_groups
            Numbers of reasons and of groups.
        pair_groups, pair_agreement
            Group of the person and agreement of each pair, of shape (n_pairs,) and (n_pairs, 2), NaN unless both are
            declined.

        Examples
        --------
        >>> counts = ReasonCounts.of(np.array([[1, 0], [1, -1], [-1, -1]]), np.array([0, 0, 1]), 2, 2)
        >>> counts.first[:, 0], counts.any[:, 0], counts.n_without
        (array([0, 2]), array([1, 2]), array([0, 1]))
        """

        def counted(place: slice) -> Ints:
            chosen = codes[:, place]
            cell = (chosen * n_groups + groups[:, None])[chosen >= 0]
            return np.bincount(cell, minlength=n_reasons * n_groups).reshape(n_reasons, n_groups)

        pairs = np.zeros(0, dtype=np.int64) if pair_groups is None else pair_groups
        alike = np.zeros((0, 2)) if pair_agreement is None else pair_agreement
        known = ~np.isnan(alike[:, 0])
        return cls(
            n_people=np.bincount(groups, minlength=n_groups),
            n_without=np.bincount(groups[(codes < 0).all(axis=1)], minlength=n_groups),
            first=counted(slice(1)),
            any=counted(slice(None)),
            n_pairs=np.bincount(pairs[known], minlength=n_groups),
            agreement=np.column_stack([np.bincount(pairs[known], c, minlength=n_groups) for c in alike[known].T]),
        )


@dataclass(frozen=True)
class ReasonRate(Plain):
    """How often a reason is given to the declined people of a group, compared with the reference group.

    Attributes
    ----------
    place
        "first" for the first reason, "any" for any of a person's principal reasons.
    n_people, n
        Declined people of the group, and how many of them have the reason.
    rate
        Their share, with Wilson's interval.
    difference
        Share in the group minus share in the reference group, with Newcombe's interval.
    p_value, test
        Two-sided, for equal shares: from a z test, or from Fisher's exact test if an expected count is below 5 and
        there are no clusters.
    p_value_holm
        Adjusted for all reasons and groups of the place (Holm).
    """

    place: Place
    reason: str
    group: str
    is_reference: bool
    n_people: int
    n: int
    rate: Estimate
    difference: Estimate
    p_value: float
    p_value_holm: float
    test: str


@dataclass(frozen=True, eq=False)
class DeclinedPeople:
    """Declined people one by one: their reasons, of shape (n, k), groups, and clusters in their weights."""

    codes: Ints
    groups: Ints
    weights: RowWeights


def reason_rates(
    counts: ReasonCounts,
    reasons: Sequence[str],
    groups: Sequence[str],
    reference: str,
    declined: DeclinedPeople | None = None,
) -> tuple[ReasonRate, ...]:
    """How often each reason is given to the declined people of each group.

    Parameters
    ----------
    counts
        Of the declined people.
    reasons, groups
        Names of both, in the order of their codes.
    reference
        The group that the others are compared with.
    declined
        The same people, if some are of the same cluster, which is then one unit in intervals and tests.

    Returns
    -------
    By place, first reasons first; then by reason, those given most often first; then by group.

    Examples
    --------
    >>> counts = ReasonCounts.of(np.array([[0], [0], [1], [1]]), np.array([0, 0, 0, 1]), 2, 2)
    >>> rates = reason_rates(counts, ["debt", "income"], ["a", "b"], "a")
    >>> [(row.reason, row.group, row.n, row.n_people) for row in rates if row.place == "first"]
    [('debt', 'a', 2, 3), ('debt', 'b', 0, 1), ('income', 'a', 1, 3), ('income', 'b', 1, 1)]
    """
    members = None if declined is None else Membership(tuple(groups), declined.groups, declined.weights)
    at = list(groups).index(reference)
    n0 = int(counts.n_people[at])
    rates: list[ReasonRate] = []
    places: tuple[tuple[Place, Ints], ...] = (("first", counts.first), ("any", counts.any))
    for place, given in places:
        totals = given.sum(axis=1)
        rows = []
        for reason in sorted(np.flatnonzero(totals).tolist(), key=lambda code: -totals[code]):
            if declined is not None and members is not None:
                codes = declined.codes[:, :1] if place == "first" else declined.codes
                has_reason = (codes == reason).any(axis=1).astype(np.int64)
            for code, name in enumerate(groups):
                n, n_people = int(given[reason, code]), int(counts.n_people[code])
                if code == at:
                    contrast = no_contrast("this is the reference group")
                elif not n_people:
                    contrast = no_contrast(_NO_ONE)
                elif not n0:
                    contrast = no_contrast("not estimable: no one in the reference group is declined")
                elif members is not None:
                    contrast = contrast_groups(has_reason, members, code, at, "auto", CONFIDENCE)
                else:
                    contrast = contrast_counts(n, n_people, int(given[reason, at]), n0, "auto", CONFIDENCE)
                rate = rate_estimate(n, n_people, absent=_NO_ONE)
                if members is not None and n_people:
                    everyone = np.ones(len(has_reason), dtype=bool)
                    rate = group_rate(members, code, has_reason, everyone, _NO_ONE)
                rows.append(
                    ReasonRate(
                        place=place,
                        reason=reasons[reason],
                        group=name,
                        is_reference=code == at,
                        n_people=n_people,
                        n=n,
                        rate=rate,
                        difference=contrast.difference,
                        p_value=contrast.p_value,
                        p_value_holm=math.nan,
                        test=contrast.test,
                    )
                )
        adjusted = holm([row.p_value for row in rows]).tolist()
        rates += [replace(row, p_value_holm=p) for row, p in zip(rows, adjusted, strict=True)]
    return tuple(rates)
