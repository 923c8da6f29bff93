"""Results of audited batches, in memory or on disk: an audit in memory is one batch that is kept in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Protocol

import pandas as pd
from numpy.typing import NDArray

from evenhand.arrays import Floats, Ints
from evenhand.auditing.batch import AuditSums, BatchFindings
from evenhand.auditing.summary import merge_distributions, pair_distributions
from evenhand.auditing.triples import return_much_freed_memory
from evenhand.metrics.score_gap import LeafPeople
from evenhand.metrics.triples import KeptTriples, Parts, Triples
from evenhand.system.threads import ONE_THREAD, Crew, sum_in_order

_ROWS_AT_ONCE = 65_536  # people in leaves who are worked on together


@dataclass(frozen=True, eq=False)
class PairNulls:
    """Input of q-values, one value per pair: person, stratum, and scores adjusted for unequal finances."""

    person: Ints
    stratum: Ints
    over_gap: Floats
    placebo_over_gap: Floats


@dataclass(frozen=True, eq=False)
class BatchRecord:
    """The small results of a finished batch; `sums` and `distributions` are None if all rows were left out.

    Attributes
    ----------
    number
        Number of the batch.
    exclusions
        Rows left out, by reason.
    sums, distributions
        Sums for the metrics, and histograms of the pairs.
    n_outside
        Triples of people who are not in the reference.
    """

    number: int
    exclusions: Mapping[str, int]
    sums: AuditSums | None = None
    distributions: Mapping[str, Any] | None = None
    n_outside: int = 0


@dataclass(frozen=True, eq=False)
class BatchOutput:
    """All results of auditing a batch.

    Attributes
    ----------
    record
        The small results.
    pairs
        The pair table; q-values are not known yet.
    triples, leaf_people, nulls
        Of the evidence; None without evidence.
    screened, screened_groups
        Features and groups of the people who are screened for proxies.
    reasons
        Principal reasons, a row for each declined person.
    """

    record: BatchRecord
    pairs: pd.DataFrame | None = None
    triples: Triples | None = None
    leaf_people: LeafPeople | None = None
    nulls: PairNulls | None = None
    screened: pd.DataFrame | None = None
    screened_groups: Ints | None = None
    reasons: pd.DataFrame | None = None

    @classmethod
    def of(
        cls,
        found: BatchFindings,
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
        found
            Results of the batch.
        screened
            People of the batch who are screened for proxies.
        number, row, first_person
            Number of the batch; row of each person in the source, None for 0, 1, ...; number of the first person.
        exclusions
            Rows left out of the batch, by reason.
        """
        people, evidence = found.people, found.evidence
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
            record=BatchRecord(
                number,
                dict(exclusions or {}),
                found.sums,
                pair_distributions(pairs, found.scored.is_scored, found.fitted.scope),
            ),
            pairs=pairs,
            triples=None if evidence is None else evidence.triples,
            leaf_people=None if evidence is None else evidence.leaf_people,
            nulls=nulls,
            screened=people.table.iloc[screened],
            screened_groups=people.groups.codes[screened],
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

    def record(self, number: int) -> BatchRecord:
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

    def screened(self, number: int) -> tuple[pd.DataFrame, Ints] | None:
        """Features and groups of the people of a batch who are screened for proxies; None for no one."""


@dataclass(frozen=True, eq=False)
class Merged:
    """The records of all batches together.

    Attributes
    ----------
    numbers
        Batches that have people.
    sums, distributions, exclusions
        Of all batches.
    n_outside
        By batch, triples of people who are not in the reference.
    by_values
        By batch, the values of each column to split by.
    """

    numbers: tuple[int, ...]
    sums: AuditSums
    distributions: Mapping[str, Any]
    exclusions: Mapping[str, int]
    n_outside: Mapping[int, int]
    by_values: Mapping[int, Mapping[str, tuple[str, ...]]]


def merge_batches(batches: FinishedBatches) -> Merged | None:
    """All batches together, in order; None if every row was left out."""
    found = sum_in_order(lambda number: _Records.of(batches.record(number)), batches.all_numbers, batches.crew)
    if found is None or found.sums is None:
        return None
    distributions = reduce(merge_distributions, found.distributions)
    return Merged(tuple(found.n_outside), found.sums, distributions, found.exclusions, found.n_outside, found.by_values)


@dataclass(frozen=True, eq=False)
class _Records:
    """The records of consecutive batches; the fields are those of `Merged`, with the distributions of each batch."""

    sums: AuditSums | None
    distributions: tuple[Mapping[str, Any], ...]
    exclusions: Mapping[str, int]
    n_outside: Mapping[int, int]
    by_values: Mapping[int, Mapping[str, tuple[str, ...]]]

    @classmethod
    def of(cls, record: BatchRecord) -> _Records:
        """Those of one batch."""
        if record.sums is None or record.distributions is None:
            return cls(None, (), record.exclusions, {}, {})
        by_values = {name: tuple(values) for name, values in record.sums.approvals.items()}
        return cls(
            record.sums,
            (record.distributions,),
            record.exclusions,
            {record.number: record.n_outside},
            {record.number: by_values},
        )

    def __add__(self, other: _Records) -> _Records:
        exclusions = dict(self.exclusions)
        for reason, n in other.exclusions.items():
            exclusions[reason] = exclusions.get(reason, 0) + n
        if self.sums is None or other.sums is None:
            return replace(other if self.sums is None else self, exclusions=exclusions)
        return _Records(
            self.sums + other.sums,
            self.distributions + other.distributions,
            exclusions,
            {**self.n_outside, **other.n_outside},
            {**self.by_values, **other.by_values},
        )


@dataclass(frozen=True, eq=False)
class OneBatch:
    """A single batch, kept in memory."""

    output: BatchOutput
    crew: Crew = ONE_THREAD

    @property
    def all_numbers(self) -> Sequence[int]:
        """The number of the batch."""
        return [self.output.record.number]

    def record(self, number: int) -> BatchRecord:
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

    def screened(self, number: int) -> tuple[pd.DataFrame, Ints] | None:
        """Features and groups of the people who are screened for proxies."""
        assert self.output.screened is not None
        assert self.output.screened_groups is not None
        return self.output.screened, self.output.screened_groups
