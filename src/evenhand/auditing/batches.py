"""Results of audited batches, in memory or on disk: an audit in memory is one batch that is kept in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.arrays import Floats, Ints, Sums
from evenhand.auditing.batch import BatchFindings
from evenhand.auditing.sums import AuditSums
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
