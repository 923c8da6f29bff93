"""People as the audit stores them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from evenhand.arrays import Floats, Ints
from evenhand.auditing.options import AuditOptions, SegmentThresholds
from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.inputs.fingerprints import hash_column, hash_rows
from evenhand.inputs.group_probabilities import PersonProbabilities
from evenhand.inputs.roles import MISSING, Rows
from evenhand.inputs.validation import Groups, category_text
from evenhand.matching.identity import Identity
from evenhand.metrics.sharing import N_BUCKETS
from evenhand.models.protocol import AuditedModel
from evenhand.system.hashing import person_hash

_ALL = slice(None)
_SHOWN = 6  # number of values without a cutoff that a message names


@dataclass(frozen=True, eq=False)
class People:
    """Checked people: the table, its encoding, labels and groups; decisions made about them and their ids, if given.

    Attributes
    ----------
    clusters
        A hash of the person or household of each row, 0 if unknown; None if not given.
    cut_offs
        Probability of the favorable outcome from which each person is approved; None if there is one for all.
    known_by
        Numbers that identify equal rows, of shape (n, k); None to use `x`.
    has_labels
        Whether labels were given; otherwise everyone has the same label.
    sample_weight
        How many people of the population each row stands for, up to a common factor; None if all weights are equal.
    probabilities
        Group probabilities, if the groups are those of one draw; None if groups are known.
    """

    table: pd.DataFrame
    x: Tensor
    labels: Ints
    groups: Groups
    decisions: Ints | None = None
    ids: NDArray[np.object_] | None = None
    clusters: NDArray[np.uint64] | None = None
    cut_offs: Floats | None = None
    known_by: NDArray[np.float64] | None = None
    has_labels: bool = True
    sample_weight: Floats | None = None
    probabilities: PersonProbabilities | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def cells(self) -> Ints:
        """The (label, group) cell of each person."""
        return self.labels * len(self.groups.names) + self.groups.codes

    def cut_off(self, threshold: float, rows: Ints | slice = _ALL) -> float | Floats:
        """The thresholds for the scores of some rows: their own cutoffs, or else the common threshold."""
        return threshold if self.cut_offs is None else self.cut_offs[rows]

    def decided(self, score: Floats, threshold: float, rows: Ints | slice = _ALL) -> NDArray[np.bool_]:
        """Decisions about some rows: the actual ones, or else those from their scores."""
        if self.decisions is not None:
            return self.decisions[rows].astype(np.bool_)
        favorable: NDArray[np.bool_] = score >= self.cut_off(threshold, rows)
        return favorable

    @cached_property
    def weight(self) -> Floats:
        """The weight of each row: 1 if no weights were given."""
        return np.ones(len(self)) if self.sample_weight is None else self.sample_weight

    @cached_property
    def identity(self) -> Identity:
        """Who each row is: given by the clusters, or by all of the model's inputs."""
        seen = self.x.cpu().numpy() if self.known_by is None else self.known_by
        found = Identity.of(seen, self.labels, self.groups.codes, self.clusters)
        if self.clusters is None:
            return found
        return replace(found, person=np.where(self.clusters == 0, found.content, self.clusters))


def check_known_groups(groups: Groups, names: tuple[str, ...]) -> None:
    """Reject groups with no one in the reference, whose groups are `names`."""
    unknown = [name for name in groups.names if name not in names]
    if unknown:
        raise InvalidInputError(
            f"The reference has no one of the groups {unknown}, only of {list(names)}; people are compared with, and "
            "explained from, the people of the reference."
        )


def check_finances_apart(people: People, financial_features: Sequence[str]) -> None:
    """Reject a financial feature that is the group or a part of it: people of different groups would never be alike.

    Raises
    ------
    InvalidInputError
        If everyone in a group has the same value of a feature, and groups differ in it.
    """
    for name in financial_features:
        codes, values = pd.factorize(people.table[name])
        if not 1 < len(values) <= len(people.groups.names):
            continue
        pairs = np.unique(np.stack([people.groups.codes, codes]), axis=1).shape[1]
        if pairs == len(np.unique(people.groups.codes)):
            raise InvalidInputError(
                f"The financial feature {name!r} is the group: everyone in a group has the same value, so people "
                "of different groups are never comparable. Remove it from `financial_features`."
            )


def weight_unit(sample_weight: Floats | None, name: str = "sample_weight") -> float:
    """The largest weight, used as the unit of weights, so that equal weights are exactly 1.

    Raises
    ------
    InvalidInputError
        If all weights are 0.
    """
    if sample_weight is None:
        return 1.0
    check_counted(sample_weight, name)
    return float(sample_weight.max())


def check_counted(sample_weight: Floats, name: str | None) -> None:
    """Reject weights that are all 0."""
    if not sample_weight.any():
        raise InvalidInputError(
            f"`{name}` is 0 for everyone, so no one is counted; check the column of weights, or leave it out."
        )


def in_unit_of(people: People, sample_weight: Floats | None) -> People:
    """The same people with their weights in a different unit."""
    if people.sample_weight is None:
        return people
    return replace(people, sample_weight=people.sample_weight / weight_unit(sample_weight))


def people_of(
    rows: Rows, model: AuditedModel, names: tuple[str, ...], where: str, unit_of_weight: float = 1.0
) -> People:
    """Turn rows of a table into people, with the group codes and weight unit of the reference.

    Raises
    ------
    InvalidInputError
        If a group is not in the reference, or a value is invalid; the message begins with `where`.
    """
    assert rows.table is not None
    assert rows.groups is not None
    try:
        check_known_groups(rows.groups, names)
        table = model.aligned(rows.table)
        return People(
            table,
            model.encode(table),
            model.favorable_labels(rows.labels),
            rows.groups.recoded(names),
            decisions=rows.decisions,
            ids=rows.ids,
            clusters=rows.clusters,
            sample_weight=None if rows.sample_weight is None else rows.sample_weight / unit_of_weight,
        )
    except (InvalidInputError, InvalidTypeError) as error:
        raise type(error)(f"{where}: {error}") from None


def with_cut_offs(people: People, options: AuditOptions, by: Mapping[str, NDArray[np.str_]], where: str) -> People:
    """Give people the cutoffs of their segments; unchanged if there is one threshold for all.

    Parameters
    ----------
    people, by
        The people, and their columns to split by, as text.
    options
        Options with the thresholds.
    where
        Name of the table, for messages.

    Raises
    ------
    InvalidInputError
        If there is no such column, one of its values has no cutoff, or decisions were given as well.
    """
    segments = options.decision_threshold
    if not isinstance(segments, SegmentThresholds):
        return people
    if people.decisions is not None:
        raise InvalidInputError(
            "`decisions` (--decision) and cutoffs by segment in `decision_threshold` both say who is approved; use "
            "only one of them."
        )
    codes, values = pd.factorize(_segments(people.table, by, segments.column, where))
    unknown = [k for k, value in enumerate(values) if value not in segments.cut_offs]
    if unknown:
        counts = np.bincount(codes)
        raise InvalidInputError(
            f"`decision_threshold` has no cutoff for {len(unknown)} of {len(values)} values of {segments.column!r} in "
            f"{where}: {', '.join(f'{str(values[k])!r} ({counts[k]:,} people)' for k in unknown[:_SHOWN])}"
            f"{', ...' if len(unknown) > _SHOWN else ''}; it has cutoffs for "
            f"{', '.join(map(repr, segments.cut_offs))}. Add the missing ones."
        )
    cut_offs = np.array([segments.cut_offs[value] for value in values])[codes]
    return replace(people, cut_offs=1 - cut_offs if options.favorable == "low" else cut_offs)


def _segments(
    table: pd.DataFrame, by: Mapping[str, NDArray[np.str_]], column: str, where: str
) -> NDArray[np.str_] | pd.Series[str]:
    """The value of each person in the column of the cutoffs, as text."""
    if column in by:
        return by[column]
    if column in table.columns:
        return table[column].astype(object).map(category_text, na_action="ignore").fillna(MISSING)
    raise InvalidInputError(
        f"The column {column!r} of `decision_threshold` is neither an input of the model nor a column of `by` (--by) "
        f"in {where}; add it to `by`."
    )


EVERYONE = "(label and group)"
"""Name of the print of labels and groups."""
_ID = "(id)"


def person_buckets(people: People, financial: Sequence[str]) -> NDArray[np.int64]:
    """The bucket of each person, computed from label, group and finances, which any two comparable audits share.

    A person's bucket does not depend on the rest of the table or on the order and batches in which people are read.
    People with the same label, group and finances share a bucket.
    """
    known = hash_rows(people.table[list(financial)].assign(**_cells(people)))
    return (person_hash(known) % np.uint64(N_BUCKETS)).astype(np.int64)


def people_prints(people: People) -> NDArray[np.uint64]:
    """Sums of the people's bits: for label and group, and then including ids and each column, (2 + n_columns,).

    Sums of parts of the people can be added, and the order of the people does not matter. Without ids, their sum is 0.
    """
    cells = pd.DataFrame(_cells(people))
    whose = hash_rows(cells)
    columns = [person_hash(hash_column(column) + whose) for _, column in people.table.items()]
    no_one = np.zeros(0, dtype=np.uint64)
    ids = no_one if people.ids is None else person_hash(hash_rows(pd.DataFrame({_ID: people.ids}).astype(str)) + whose)
    return np.array([bits.sum(dtype=np.uint64) for bits in (person_hash(whose), ids, *columns)], dtype=np.uint64)


def shown_prints(prints: NDArray[np.uint64], columns: Sequence[str]) -> dict[str, str]:
    """The sums by column, as sixteen hexadecimal digits each; ids only if there are any."""
    named = zip((EVERYONE, _ID, *columns), prints.tolist(), strict=True)
    return {name: f"{bits:016x}" for name, bits in named if bits or name != _ID}


def fingerprint_of(prints: Mapping[str, str], n_people: int) -> str:
    """SHA-256 of people's columns, labels and groups, whatever the ids and the order of people and columns."""
    lines = [f"{len(name)}:{name}:{bits}" for name, bits in sorted(prints.items()) if name != _ID]
    return hashlib.sha256("\n".join([str(n_people), *lines]).encode()).hexdigest()


def reference_hash(pool: People) -> str:
    """The fingerprint of the people of the reference."""
    return fingerprint_of(shown_prints(people_prints(pool), [str(name) for name in pool.table.columns]), len(pool))


def is_same_people(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool | None:
    """Whether two audits are of the same people, from the `data` of their summaries; None if unknown.

    They are if their number, labels and groups are the same, and also the ids if both have ids; otherwise, if their
    shared columns are the same.
    """
    own, other = (data.get("column_prints") for data in (first, second))
    if not own or not other:
        return None
    has_ids = _ID in own and _ID in other
    shared = [_ID] if has_ids else [name for name in own if name in other and name not in (EVERYONE, _ID)]
    return (
        first["n_people"] == second["n_people"]
        and own[EVERYONE] == other[EVERYONE]
        and bool(shared)
        and all(own[name] == other[name] for name in shared)
    )


def _cells(people: People) -> dict[str, Any]:
    """Label and group; if groups are drawn, their probabilities in place of the group."""
    if people.probabilities is not None:
        known = hash_rows(pd.DataFrame(people.probabilities.values, columns=list(people.probabilities.names)))
        return {"(label)": people.labels, "(group)": (known >> np.uint64(12)).astype(np.float64)}
    names = np.asarray(people.groups.names, dtype=object)
    return {"(label)": people.labels, "(group)": names[people.groups.codes]}
