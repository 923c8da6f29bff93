"""What batches of people add up to and leave behind, in memory or on disk: an audit in memory is one batch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.arrays import Floats, Ints, Sums, double, text_codes
from evenhand.auditing.batch import BatchFindings
from evenhand.auditing.identity import people_prints
from evenhand.auditing.triples import EvidenceSums, return_much_freed_memory
from evenhand.inputs.validation import is_number_column
from evenhand.metrics.estimate import RowWeights
from evenhand.metrics.reason_codes import DeclinedPeople
from evenhand.metrics.score_gap import LeafPeople
from evenhand.metrics.triples import KeptTriples, Parts, Triples
from evenhand.report.section import Section
from evenhand.system.threads import ONE_THREAD, Crew, sum_in_order

_MOST_VALUES = 50  # a column with more values is not treated as a category that could reveal the group
_MOST_SCORES = 1 << 20
_STEPS_PER_LOGIT = 1 << 14
_LARGEST_LOGIT = 40.0  # beyond it, a probability is 0 or 1 in double precision


@dataclass(frozen=True, eq=False)
class ScoreCounts:
    """How many people have each score, label, group and decision, and their weights; sorted by score.

    With more than about a million distinct rows, scores are rounded to 1/16,384 of a logit. The decisions are not
    affected; a score changes by less than 0.00001, and the area under the ROC curve by less than half the share of
    pairs with different labels that the rounding ties.
    """

    score: Floats
    group: Ints
    label: Ints
    decision: Ints
    count: Ints
    weight: Floats
    square: Floats

    @property
    def weights(self) -> RowWeights:
        """The weights of the rows."""
        return RowWeights(self.count, self.weight, self.square)

    @classmethod
    def of_people(cls, score: Floats, group: Ints, label: Ints, decision: Ints, weight: Floats) -> ScoreCounts:
        """Count people; those with a weight of 0 are not counted."""
        rows = np.flatnonzero(weight > 0)
        counted = weight[rows]
        # Equal scores may differ in their last digits between batches.
        columns = (np.round(score[rows], 12), group[rows], label[rows], decision[rows])
        return cls.of(*columns, np.ones(len(rows), dtype=np.int64), counted, counted**2)

    @classmethod
    def of(
        cls, score: Floats, group: Ints, label: Ints, decision: Ints, count: Ints, weight: Floats, square: Floats
    ) -> ScoreCounts:
        """Join rows with the same score, group, label and decision."""
        order = _by_score(score, (group * 2 + label) * 2 + decision)
        rows = [values[order] for values in (score, group, label, decision)]
        is_new = np.ones(len(order), dtype=bool)
        if len(order):
            is_new[1:] = np.logical_or.reduce([values[1:] != values[:-1] for values in rows])
        first = np.flatnonzero(is_new)

        def total(values: NDArray[Any]) -> NDArray[Any]:
            return np.add.reduceat(values[order], first) if len(first) else values[:0]

        kept = order[first]
        found = cls(score[kept], group[kept], label[kept], decision[kept], total(count), total(weight), total(square))
        return found if len(first) <= _MOST_SCORES else found._rounded()

    def __add__(self, other: ScoreCounts) -> ScoreCounts:
        joined = [np.concatenate([getattr(self, f.name), getattr(other, f.name)]) for f in fields(self)]
        return ScoreCounts.of(*joined)

    def _rounded(self) -> ScoreCounts:
        with np.errstate(divide="ignore"):
            logit = np.clip(np.log(self.score) - np.log1p(-self.score), -_LARGEST_LOGIT, _LARGEST_LOGIT)
        logit = np.round(logit * _STEPS_PER_LOGIT) / _STEPS_PER_LOGIT
        score = 1 / (1 + np.exp(-logit))
        if (score == self.score).all():
            return self
        return ScoreCounts.of(score, self.group, self.label, self.decision, self.count, self.weight, self.square)


def _by_score(score: Floats, code: Ints) -> Ints:
    """The order by score, then by code; fast if the scores consist of a few ordered parts."""
    by_score = np.argsort(score, kind="stable")
    ordered = score[by_score]
    place = np.zeros(len(score), dtype=np.int64)
    place[1:] = np.cumsum(ordered[1:] != ordered[:-1])
    order: Ints = by_score[np.argsort(place * (code.max(initial=0) + 1) + code[by_score], kind="stable")]
    return order


@dataclass(frozen=True, eq=False)
class ClusteredPeople(ScoreCounts):
    """Counted people one by one, kept where clusters are given, because a cluster may have people in several batches.

    Attributes
    ----------
    cluster
        The hash of each person's cluster; once all batches are together (`joined`), its number, and 0 for a person who
        is alone.
    reasons
        Principal reasons of the declined, of shape (n, k).
    by
        Values of each column to split by.
    """

    cluster: NDArray[np.uint64] | Ints
    reasons: Ints
    by: Mapping[str, NDArray[np.str_]]

    @property
    def weights(self) -> RowWeights:
        """The weights and clusters of the people."""
        return replace(super().weights, clusters=self.cluster.astype(np.int64))

    @property
    def declined(self) -> DeclinedPeople:
        """The declined, with their reasons."""
        rows = self.decision == 0
        return DeclinedPeople(self.reasons[rows], self.group[rows], self.weights.rows(rows))

    def __add__(self, other: ScoreCounts) -> ClusteredPeople:
        assert isinstance(other, ClusteredPeople)
        plain = {f.name: np.concatenate([getattr(self, f.name), getattr(other, f.name)]) for f in fields(self)[:-1]}
        by = {name: np.concatenate([values, other.by[name]]) for name, values in self.by.items()}
        return ClusteredPeople(**plain, by=by)

    def joined(self) -> ClusteredPeople | None:
        """The people of all batches, in an order that does not depend on the batches; None if everyone is alone."""
        hashes, code, size = np.unique(self.cluster, return_inverse=True, return_counts=True)
        shared = (size > 1) & (hashes != 0)
        if not shared.any():
            return None
        number = np.where(shared, np.cumsum(shared), 0)[code]
        keys = (*self.by.values(), *self.reasons.T, self.weight, self.decision, self.label, self.group)
        order = np.lexsort((*keys, self.cluster, self.score))
        plain = {f.name: getattr(self, f.name)[order] for f in fields(self)[:-1]}
        by = {name: values[order] for name, values in self.by.items()}
        return replace(ClusteredPeople(**plain, by=by), cluster=number[order])


@dataclass(frozen=True, eq=False)
class ColumnValues:
    """The values of a column as text, with the groups in which each occurs, None if there are too many; its range."""

    groups: Mapping[str, tuple[int, ...]] | None
    low: float = math.nan
    high: float = math.nan

    @classmethod
    def of(cls, column: pd.Series[Any], codes: Ints, n_groups: int) -> ColumnValues:
        """Those of people with group codes."""
        place, values = pd.factorize(column, use_na_sentinel=False)
        ends = (math.nan, math.nan)
        if is_number_column(column) and column.notna().any():
            ends = float(column.min()), float(column.max())
        if len(values) > _MOST_VALUES:
            return cls(None, *ends)
        distinct = pd.Series(values)
        text = distinct.astype(object).where(distinct.notna(), None).map(str).to_numpy(dtype=str)
        names, of_value = text_codes(text)
        occurs = np.zeros((len(names), n_groups), dtype=bool)
        occurs[of_value[place], codes] = True
        return cls({name: tuple(np.flatnonzero(row).tolist()) for name, row in zip(names, occurs, strict=True)}, *ends)

    def __add__(self, other: ColumnValues) -> ColumnValues:
        first, second = self.groups, other.groups
        ends = float(np.fmin(self.low, other.low)), float(np.fmax(self.high, other.high))
        if first is None or second is None or len(names := sorted({*first, *second})) > _MOST_VALUES:
            return ColumnValues(None, *ends)
        groups = {name: tuple(sorted({*first.get(name, ()), *second.get(name, ())})) for name in names}
        return ColumnValues(groups, *ends)


@dataclass(frozen=True, eq=False)
class AuditSums(Sums):
    """Counts and sums over people; those of parts of the people can be added.

    Attributes
    ----------
    n_people
        Number of people of each group, of shape (G,).
    weights
        For each group, the people who are counted, and sums of their weights and squared weights, of shape (G, 3).
    scores, people
        How many people have each score; the people one by one, if clusters are given.
    approvals
        For each column to split by and each of its values, people of each group by decision: their number, and the sums
        of their weights and squared weights, of shape (G, 2, 3).
    evidence
        Sums over triples.
    n_without_baseline
        People whose label and group have no one in the reference.
    methods
        How many people were explained in which way.
    completeness_gap, moved
        Sums over people of the completeness gap of attributions, and of the distance of the logit from the baseline's.
    error_squares, value_squares
        Sums of squared standard errors of attributions, if they are sampled, and of squared attributions.
    values
        The values of each column of the table.
    prints
        Prints that show whether two audits are of the same people: see `auditing.identity.people_prints`.
    sections
        The sums of each section that has some, by its key.
    """

    n_people: Ints
    weights: Floats
    scores: ScoreCounts
    people: ClusteredPeople | None
    approvals: Mapping[str, Mapping[str, Floats]]
    evidence: EvidenceSums | None
    n_without_baseline: int
    methods: Mapping[str, int]
    completeness_gap: float
    moved: float
    error_squares: float | None
    value_squares: float
    values: Mapping[str, ColumnValues]
    prints: NDArray[np.uint64]
    sections: Mapping[str, Any]

    @cached_property
    def clustered(self) -> ClusteredPeople | None:
        """The people of all batches, if some are of the same cluster."""
        return None if self.people is None else self.people.joined()

    @property
    def rows(self) -> ScoreCounts:
        """People by score, label, group and decision, or one by one if some are of the same cluster."""
        return self.clustered or self.scores

    @property
    def by(self) -> dict[str, tuple[str, ...]]:
        """The values of each column to split by."""
        return {name: tuple(sorted(values)) for name, values in self.approvals.items()}

    @classmethod
    def of(cls, batch: BatchFindings, sections: Sequence[Section]) -> AuditSums:
        """The sums of a batch."""
        people, own, error = batch.people, batch.own, batch.own.standard_error
        codes, n_groups, weight = people.groups.codes, len(people.groups.names), people.weight
        return cls(
            n_people=np.bincount(codes, minlength=n_groups),
            weights=_weights(codes, weight, n_groups),
            scores=ScoreCounts.of_people(batch.score, codes, people.labels, batch.decision, weight),
            people=_clustered(batch),
            approvals={
                name: _approvals(values, codes, batch.decision, weight, n_groups) for name, values in people.by.items()
            },
            evidence=None if batch.evidence is None else batch.evidence.sums,
            n_without_baseline=int((~batch.fitted.explainer.has_baseline(people.cells)).sum()),
            methods={own.method: len(people)},
            completeness_gap=float(double(own.completeness_gap).sum()),
            moved=float(abs(double(own.logit - own.baseline_logit)).sum()),
            error_squares=None if error is None else float((double(error) ** 2).sum()),
            value_squares=float((double(own.values) ** 2).sum()),
            values={str(name): ColumnValues.of(people.table[name], codes, n_groups) for name in people.table.columns},
            prints=people_prints(people),
            sections={section.key: sums for section in sections if (sums := section.sums(batch)) is not None},
        )


def _clustered(batch: BatchFindings) -> ClusteredPeople | None:
    people = batch.people
    if people.clusters is None:
        return None
    rows = np.flatnonzero(people.weight > 0)
    weight = people.weight[rows]
    return ClusteredPeople(
        score=batch.score[rows],
        group=people.groups.codes[rows],
        label=people.labels[rows],
        decision=batch.decision[rows],
        count=np.ones(len(rows), dtype=np.int64),
        weight=weight,
        square=weight**2,
        cluster=people.clusters[rows],
        reasons=batch.reasons.people.codes[rows],
        by={name: values[rows] for name, values in people.by.items()},
    )


def sums_by_code(codes: Ints, values: NDArray[Any], n_codes: int) -> Floats:
    """The sum of the values of each code."""
    return np.bincount(codes, values, minlength=n_codes).astype(np.float64)


def _weights(codes: Ints, weight: Floats, n_codes: int) -> Floats:
    """Counted people of each code, and sums of their weights and squared weights, of shape (n_codes, 3)."""
    return np.column_stack([sums_by_code(codes, values, n_codes) for values in (weight > 0, weight, weight**2)])


def _approvals(
    values: NDArray[np.str_], codes: Ints, decision: Ints, weight: Floats, n_groups: int
) -> dict[str, Floats]:
    names, place = text_codes(values)
    found = _weights((place * n_groups + codes) * 2 + decision, weight, len(names) * n_groups * 2)
    return dict(zip(names, found.reshape(-1, n_groups, 2, 3), strict=True))


_ROWS_AT_ONCE = 65_536  # people in leaves who are worked on together


@dataclass(frozen=True, eq=False)
class PairNulls:
    """Input of q-values, one value per pair: person, stratum, and scores adjusted for unequal finances."""

    person: Ints
    stratum: Ints
    over_gap: Floats
    placebo_over_gap: Floats


@dataclass(frozen=True, eq=False)
class Merged(Sums):
    """The small results of a finished batch, or of several together.

    Attributes
    ----------
    exclusions
        Rows left out, by reason.
    people
        Sums for the metrics; None if all rows were left out.
    n_outside
        By batch that has people, triples of people who are not in the reference.
    by_values
        By batch, the values of each column to split by.
    """

    exclusions: Mapping[str, int]
    people: AuditSums | None = None
    n_outside: Mapping[int, int] = field(default_factory=dict)
    by_values: Mapping[int, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)

    @classmethod
    def of(cls, sums: AuditSums, number: int = 0, exclusions: Mapping[str, int] | None = None) -> Merged:
        """Those of one batch."""
        return cls(dict(exclusions or {}), sums, {number: 0}, {number: sums.by})

    @property
    def sums(self) -> AuditSums:
        """Sums for the metrics."""
        assert self.people is not None
        return self.people

    @property
    def numbers(self) -> tuple[int, ...]:
        """Batches that have people."""
        return tuple(self.n_outside)


@dataclass(frozen=True, eq=False)
class BatchOutput:
    """All results of auditing a batch.

    Attributes
    ----------
    number, record
        Number of the batch, and its small results.
    pairs
        The pair table; q-values are not known yet.
    triples, leaf_people, nulls
        Of the evidence; None without evidence.
    screened
        Features of the people who are screened for proxies; the index has their groups, and their clusters, 0 if
        unknown.
    reasons
        Principal reasons, a row for each declined person.
    """

    number: int
    record: Merged
    pairs: pd.DataFrame | None = None
    triples: Triples | None = None
    leaf_people: LeafPeople | None = None
    nulls: PairNulls | None = None
    screened: pd.DataFrame | None = None
    reasons: pd.DataFrame | None = None

    @classmethod
    def of(
        cls,
        found: BatchFindings,
        sums: AuditSums,
        *,
        screened: Ints,
        number: int = 0,
        row: Ints | None = None,
        first_person: int = 0,
        exclusions: Mapping[str, int] | None = None,
    ) -> BatchOutput:
        """The part of the results that is kept.

        Parameters
        ----------
        found, sums
            Results of the batch, and its sums.
        screened
            People of the batch who are screened for proxies.
        number, row, first_person
            Number of the batch; row of each person in the source, None for 0, 1, ...; number of the first person.
        exclusions
            Rows left out of the batch, by reason.
        """
        people, evidence = found.people, found.evidence
        clusters = np.zeros(len(people), dtype=np.uint64) if people.clusters is None else people.clusters
        pairs = found.pair_table()
        if row is not None:
            pairs["person"] = row[found.pairs.person]
        nulls = None
        if evidence is not None:
            cell = (found.pairs.person, found.pairs.other_group)
            nulls = PairNulls(
                person=found.pairs.person + first_person,
                # Excesses over placebo pairs are ranked within (label, group, other group).
                stratum=people.cells[cell[0]] * len(people.groups.names) + cell[1],
                over_gap=evidence.over_gap[cell],
                placebo_over_gap=evidence.placebo_over_gap[cell],
            )
        return cls(
            number=number,
            record=Merged.of(sums, number, exclusions),
            pairs=pairs,
            triples=None if evidence is None else evidence.triples,
            leaf_people=None if evidence is None else evidence.leaf_people,
            nulls=nulls,
            screened=people.table.iloc[screened].set_axis(
                pd.MultiIndex.from_arrays([people.groups.codes[screened], clusters[screened]])
            ),
            reasons=found.reasons.people.table(found.reasons.source.reason_map.names, people, row),
        )


class FinishedBatches(Protocol):
    """Results of audited batches."""

    @property
    def crew(self) -> Crew:
        """Workers that process batches at the same time; the metrics are the same to the last bit for any."""

    @property
    def all_numbers(self) -> Sequence[int]:
        """Every batch, including those without people."""

    def record(self, number: int) -> Merged:
        """The small results of a batch."""

    def pair_column(self, number: int, *columns: str) -> list[NDArray[Any]]:
        """Columns of the pair table of a batch."""

    def nulls(self, number: int) -> PairNulls:
        """Input of the q-values of a batch's pairs."""

    def write_q_values(self, number: int, q_value: Floats) -> None:
        """Put q-values into the pair table of a batch."""

    def distances(self, number: int) -> Floats:
        """Distances of the triples of a batch."""

    def triples(self, merged: Merged, limits: Sequence[float], n_reference: int) -> Parts:
        """The triples of all batches, with each person's number within limits of distance."""

    def leaf_people(self, merged: Merged) -> Iterable[LeafPeople]:
        """The people of all batches in their leaves."""

    def screened(self, number: int) -> pd.DataFrame | None:
        """The people of a batch who are screened for proxies, as in `BatchOutput`; None for no one."""


def merge_batches(batches: FinishedBatches) -> Merged | None:
    """All batches together, in order; None if every row was left out."""
    merged = sum_in_order(batches.record, batches.all_numbers, batches.crew)
    return None if merged is None or merged.people is None else merged


@dataclass(frozen=True, eq=False)
class OneBatch:
    """A single batch, kept in memory."""

    output: BatchOutput
    crew: Crew = ONE_THREAD

    @property
    def all_numbers(self) -> Sequence[int]:
        """The number of the batch."""
        return [self.output.number]

    def record(self, number: int) -> Merged:
        """The small things of the batch."""
        return self.output.record

    def pair_column(self, number: int, *columns: str) -> list[NDArray[Any]]:
        """Columns of the pair table."""
        assert self.output.pairs is not None
        return [self.output.pairs[name].to_numpy() for name in columns]

    def nulls(self, number: int) -> PairNulls:
        """Input of the q-values."""
        assert self.output.nulls is not None
        return self.output.nulls

    def write_q_values(self, number: int, q_value: Floats) -> None:
        """Put q-values into the pair table."""
        assert self.output.pairs is not None
        self.output.pairs["q_value"] = q_value

    def distances(self, number: int) -> Floats:
        """Distances of the triples."""
        assert self.output.triples is not None
        return self.output.triples.distance

    def triples(self, merged: Merged, limits: Sequence[float], n_reference: int) -> Parts:
        """The triples, a few at a time."""
        assert self.output.triples is not None
        assert merged.sums.evidence is not None
        return_much_freed_memory(len(self.output.triples))
        return KeptTriples(self.output.triples.within(limits), n_reference, merged.sums.evidence.n_left_out)

    def leaf_people(self, merged: Merged) -> Iterable[LeafPeople]:
        """The people in their leaves, a few at a time."""
        people = self.output.leaf_people
        assert people is not None
        return [people.rows(slice(k, k + _ROWS_AT_ONCE)) for k in range(0, max(len(people), 1), _ROWS_AT_ONCE)]

    def screened(self, number: int) -> pd.DataFrame | None:
        """The people who are screened for proxies."""
        return self.output.screened
