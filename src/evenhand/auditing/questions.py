"""Questions about triples: which triples they use, and what is averaged over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from evenhand.auditing.reason_evidence import SharedReasons
from evenhand.auditing.triples import Triples
from evenhand.matching.placebos import N_NEAR
from evenhand.metrics.clustering import Parts, Question, Selection
from evenhand.system.parallel import ONE_THREAD, Crew

__all__ = [
    "BetweenGroups",
    "Design",
    "Nearest",
    "Present",
    "RegimeB",
    "Weights",
    "WithinDistance",
    "main_questions",
    "split_questions",
    "values_present",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_NEAR = N_NEAR - 1  # the column of `Triples.n_within` that counts near triples


@dataclass(frozen=True)
class _Scores:
    """The excess of the CEC score, of the input gap and of the reasoning gap."""

    n_columns: int = 3

    def of(self, part: Triples) -> Selection:
        scores = np.column_stack([part.cec - part.placebo_cec, part.input_gap, part.reasoning_gap])
        return _selected(part, None, part.n_within[:, -1], part.controls, scores)


@dataclass(frozen=True)
class _Features:
    """Each feature's part of the excess; separate from the scores, because joining the two would copy all parts."""

    n_columns: int

    def of(self, part: Triples) -> Selection:
        return _selected(part, None, part.n_within[:, -1], part.controls, part.contributions)


@dataclass(frozen=True)
class _Balanced:
    """The excess of the scores with equal weight for each group, whatever its size."""

    weights: Mapping[int, float]
    n_columns: int = 1

    def of(self, part: Triples) -> Selection:
        everyone = sum(self.weights.values())
        factor = np.zeros(max(self.weights, default=0) + 1)
        for group, weight in self.weights.items():
            factor[group] = everyone / (len(self.weights) * weight)
        difference = (part.cec - part.placebo_cec)[:, None]
        chosen = _selected(part, None, part.n_within[:, -1], part.controls, difference)
        return replace(chosen, share=chosen.share * factor[part.group])


@dataclass(frozen=True)
class RegimeB:
    """The excess of the share in Regime B at a threshold."""

    threshold: float
    n_columns: int = 1

    def of(self, part: Triples) -> Selection:
        """Near triples, with the effect of unequal finances alone as controls."""

        def share(is_same: Bools, score: Floats) -> Floats:
            return (is_same & (score > self.threshold)).astype(np.float64)

        same, same_placebo = part.is_same_decision, part.is_same_placebo_decision
        difference = share(same, part.cec) - share(same_placebo, part.placebo_cec)
        # The effect of unequal finances alone on the regime, on the score, and on decisions.
        regime = share(same, part.gap) - share(same_placebo, part.placebo_gap)
        decision = same.astype(np.float64) - same_placebo
        control = np.column_stack([regime, part.controls, decision])
        rows, at = _chosen(_is_near(part))
        return _selected(part, rows, part.n_within[at, _NEAR], control[at], difference[at, None])


@dataclass(frozen=True)
class _WithinPeople:
    """The excess among people with one value of a column."""

    column: str
    code: int
    n_columns: int = 1

    def of(self, part: Triples) -> Selection:
        values = part.by[self.column] if self.column in part.by else _person_column(part, self.column)
        return _cec_of(part, _is_near(part) & (values == self.code), part.n_within[:, _NEAR])


@dataclass(frozen=True)
class BetweenGroups:
    """The excess of triples between two groups."""

    first: int
    second: int
    n_columns: int = 1

    @property
    def sides(self) -> tuple[int, int]:
        """The two groups whose triples this question is about."""
        return self.first, self.second

    def of(self, part: Triples) -> Selection:
        """Near triples between the two."""
        return _cec_of(part, _is_near(part) & _is_between(part, self.first, self.second), part.n_between)


@dataclass(frozen=True)
class WithinDistance:
    """The excess of triples within a distance."""

    place: int
    limit: float
    n_columns: int = 1

    def of(self, part: Triples) -> Selection:
        """Triples within the limit."""
        return _cec_of(part, part.distance <= self.limit, part.n_near[:, self.place])


@dataclass(frozen=True)
class Nearest:
    """The excess of each person's nearest near triples with a group."""

    n_nearest: int
    n_columns: int = 1

    def of(self, part: Triples) -> Selection:
        """Triples up to the rank."""
        return _cec_of(part, part.rank <= self.n_nearest, part.n_within[:, self.n_nearest - 1])


@dataclass(frozen=True)
class Weights:
    """Weights in one group minus those in another, feature by feature."""

    first: int
    second: int
    features: tuple[int, ...]

    @property
    def n_columns(self) -> int:
        """One for each feature."""
        return len(self.features)

    @property
    def sides(self) -> tuple[int, int]:
        """The two groups whose triples this question is about."""
        return self.first, self.second

    def of(self, part: Triples) -> Selection:
        """Near triples between the two groups."""
        rows, at = _chosen(_is_near(part) & _is_between(part, self.first, self.second))
        # The difference is of the other's weight over the placebo's, who is of the person's own group.
        sign = np.where(part.group[at] == self.second, 1.0, -1.0).astype(np.float32)
        weights = part.weights[at]
        if self.n_columns < weights.shape[1]:
            weights = weights[:, list(self.features)]
        return _selected(part, rows, part.n_between[at], part.controls[at], sign[:, None] * weights)


def _is_near(part: Triples) -> Bools:
    """Near triples: with farther ones, the tests of splits, regimes and weights raise too many false alarms."""
    is_near: Bools = part.rank <= N_NEAR
    return is_near


def _selected(
    part: Triples, rows: Ints | None, n_of_person: Ints, control: Floats, difference: NDArray[np.floating]
) -> Selection:
    """Some triples, each weighted by one over the number of the person's triples."""
    weight, each = part.weight if rows is None else part.weight[rows], 1 / n_of_person.astype(np.float64)
    return Selection(rows, weight * each, control, difference, float(each.sum()))


def _cec_of(part: Triples, is_in: Bools, n_of_person: Ints) -> Selection:
    rows, at = _chosen(is_in)
    difference = part.cec[at] - part.placebo_cec[at]
    return _selected(part, rows, n_of_person[at], part.controls[at], difference[:, None])


def _chosen(is_in: Bools) -> tuple[Ints | None, Ints | slice]:
    """The rows of a selection, None for all; and what takes them from an array."""
    rows = np.flatnonzero(is_in)
    return (None, slice(None)) if len(rows) == len(is_in) else (rows, rows)


def _person_column(part: Triples, name: str) -> Ints:
    return {"group": part.group, "label": part.label, "decision": part.is_favorable.astype(np.int64)}[name]


def _is_between(part: Triples, first: int, second: int) -> Bools:
    low, high = np.minimum(part.group, part.other_group), np.maximum(part.group, part.other_group)
    is_between: Bools = (low == first) & (high == second)
    return is_between


@dataclass(frozen=True)
class Design:
    """How the evidence is split.

    Attributes
    ----------
    features, groups
        Their names.
    by
        Values of each column to split by, in code order.
    consistency_threshold
        As in `evenhand.audit`.
    without_weight
        Features that the model treats as categories.
    """

    features: tuple[str, ...]
    groups: tuple[str, ...]
    by: Mapping[str, tuple[str, ...]]
    consistency_threshold: float
    without_weight: tuple[str, ...] = ()


def main_questions(design: Design, present: Present) -> list[Question[Triples]]:
    """The excess of the scores and of each feature, the same with groups weighing equally, and that of Regime B."""
    return [
        _Scores(),
        _Features(len(design.features)),
        _Balanced(present.weights),
        SharedReasons(),
        RegimeB(design.consistency_threshold),
    ]


@dataclass(frozen=True)
class Present:
    """Which values occur among some triples, and what each group weighs; those of parts can be added.

    Attributes
    ----------
    differing
        Pairs with different decisions by the person's group, the match's, and whether the person's is the favorable
        one, of shape (n_groups, n_groups, 2).
    """

    groups: frozenset[int]
    weights: Mapping[int, float]
    labels: frozenset[int]
    decisions: frozenset[int]
    between: frozenset[tuple[int, int]]
    by: Mapping[str, frozenset[int]]
    largest_rank: int
    differing: Ints

    def __add__(self, other: Present) -> Present:
        weights, by = dict(self.weights), dict(self.by)
        for code, weight in other.weights.items():
            weights[code] = weights.get(code, 0.0) + weight
        for name, codes in other.by.items():
            by[name] = by.get(name, frozenset()) | codes
        return Present(
            groups=self.groups | other.groups,
            weights=dict(sorted(weights.items())),
            labels=self.labels | other.labels,
            decisions=self.decisions | other.decisions,
            between=self.between | other.between,
            by=by,
            largest_rank=max(self.largest_rank, other.largest_rank),
            differing=self.differing + other.differing,
        )


def values_present(parts: Parts[Triples], n_groups: int, crew: Crew = ONE_THREAD) -> Present:
    """Scan the triples for the values that occur and the weight of each group."""
    none = frozenset[int]()
    found = Present(none, {}, none, none, frozenset(), {}, 0, np.zeros((n_groups, n_groups, 2), dtype=np.int64))
    for more in crew.in_order(lambda part: _present(part, n_groups), parts.parts()):
        found += more
    return found


def _present(part: Triples, n_groups: int) -> Present:
    sides = part.group * n_groups + part.other_group
    differing = np.bincount((2 * sides + part.is_favorable)[~part.is_same_decision], minlength=2 * n_groups**2)
    weights = np.bincount(part.group, part.weight / part.n_within[:, -1], minlength=n_groups)
    return Present(
        groups=_occurring(part.group),
        weights={code: float(weight) for code, weight in enumerate(weights) if weight > 0},
        labels=_occurring(part.label),
        decisions=_occurring(part.is_favorable.astype(np.int64)),
        between=frozenset((min(two), max(two)) for two in (divmod(code, n_groups) for code in _occurring(sides))),
        by={name: _occurring(codes) for name, codes in part.by.items()},
        largest_rank=int(part.rank.max(initial=0)),
        differing=differing.reshape(n_groups, n_groups, 2),
    )


def _occurring(codes: NDArray[np.signedinteger]) -> frozenset[int]:
    """Which of few codes occur."""
    return frozenset(np.flatnonzero(np.bincount(codes)).tolist())


def split_questions(
    design: Design, between: list[tuple[int, int]], present: Present
) -> list[tuple[str, str, Question[Triples]]]:
    """Split, value and question; every group is shown, even one without triples."""
    found: list[tuple[str, str, Question[Triples]]] = []

    def add(split: str, names: Mapping[int, str], codes: Iterable[int]) -> None:
        ordered = sorted(codes, key=lambda code: names[code])
        found.extend((split, names[code], _WithinPeople(split, code)) for code in ordered)

    groups = dict(enumerate(design.groups))
    add("group", groups, present.groups)
    found += [("group", groups[c], _WithinPeople("group", c)) for c in groups if c not in present.groups]
    add("label", {0: "0", 1: "1"}, present.labels)
    add("decision", {1: "favorable", 0: "unfavorable"}, present.decisions)
    if len(groups) > 2:
        order = sorted(between, key=lambda sides: (sides not in present.between, _sides(design, sides)))
        found += [("groups compared", _sides(design, sides), BetweenGroups(*sides)) for sides in order]
    for name, values in design.by.items():
        add(name, dict(enumerate(values)), present.by.get(name, frozenset()))
    return found


def _sides(design: Design, sides: tuple[int, int]) -> str:
    return f"{design.groups[sides[0]]} - {design.groups[sides[1]]}"
