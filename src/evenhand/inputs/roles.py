"""The roles of a table's columns, and its rows as labels, groups and features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.inputs.group_probabilities import GroupProbabilities
from evenhand.inputs.validation import (
    Groups,
    as_clusters,
    as_decisions,
    as_groups,
    as_ids,
    as_labels,
    as_table,
    as_weights,
    category_text,
    check_columns,
)

T = TypeVar("T")

MISSING = "(missing)"
"""The value for a missing one."""


@dataclass(frozen=True)
class Columns:
    """The roles of a file's columns.

    Attributes
    ----------
    label, group, features, by
        Column of the outcome, empty if there is none; of the protected attribute; inputs of the model; columns to split
        metrics by.
    positive_label
        Value of the label that is the favorable outcome; None if it is 0 or 1.
    drop_missing
        Whether rows without a label or a group are left out and counted, rather than rejected.
    favorable
        ``"low"`` if 1 is the unfavorable outcome for the model: the label is then 0 for the favorable value.
    decisions, ids, clusters, sample_weight
        Columns of the actual decisions, of ids, of what identifies the rows of the same applicant or household, and of
        how many people each row stands for; None if there are none.
    outcomes
        Columns of additional outcomes, numeric if present.
    probabilities
        Columns with the probability of each group, in place of `group`.
    """

    label: str
    group: tuple[str, ...]
    features: tuple[str, ...]
    by: tuple[str, ...] = ()
    positive_label: str | None = None
    drop_missing: bool = False
    favorable: str | None = None
    decisions: str | None = None
    ids: str | None = None
    clusters: str | None = None
    outcomes: tuple[str, ...] = ()
    sample_weight: str | None = None
    probabilities: tuple[str, ...] = ()

    @classmethod
    def among(
        cls,
        available: Sequence[str],
        *,
        label: str,
        group: str | Sequence[str],
        features: Sequence[str] | None,
        drop: Sequence[str],
        keep_group: bool,
        by: Sequence[str],
        positive_label: str | None,
        drop_missing: bool,
        favorable: str | None = None,
        decisions: str | None = None,
        ids: str | None = None,
        clusters: str | None = None,
        sample_weight: str | None = None,
        financial: Sequence[str] = (),
        outcomes: Sequence[str] = (),
        probabilities: Sequence[str] = (),
    ) -> Columns:
        """Check names against the existing columns; by default, features are all columns without a different role."""

        def several(names: Sequence[str], what: str) -> tuple[str, ...]:
            return tuple(check_columns(names, available, what)) if names else ()

        def one(name: str | None, what: str) -> str | None:
            return None if name is None else check_columns([name], available, what)[0]

        label = one(label or None, "`label` (--label)") or ""
        probabilities = several(probabilities, "--group-probabilities")
        group = () if probabilities else tuple(check_columns(group, available, "`group` (--group)"))
        drop = several(drop, "`drop` (--drop)")
        by = several(by, "`by` (--by)")
        outcomes = several(outcomes, "`outcomes` (--outcomes)")
        named = {
            "decisions": one(decisions, "`decisions` (--decision)"),
            "ids": one(ids, "`ids` (--id)"),
            "clusters": one(clusters, "`clusters` (--clusters)"),
            "sample_weight": one(sample_weight, "`sample_weight` (--sample-weight)"),
        }
        of_group = (*group, *probabilities)
        for name in several(financial, "`financial_features`"):
            for part, names, why in (
                ("is the label", (label,), "people are compared within one label anyway"),
                ("is the group", of_group, "people of different groups would never be comparable"),
                ("is removed by `drop` (--drop)", drop, "people are compared on inputs of the model"),
            ):
                if name in names:
                    raise InvalidInputError(
                        f"The financial feature {name!r} {part}: {why}. Remove it from `financial_features` "
                        "(--financial)."
                    )
        if features is None:
            hidden = {label, *named.values(), *drop, *outcomes, *(() if keep_group else of_group)}
            features = [name for name in available if name not in hidden]
        return cls(
            label,
            group,
            tuple(check_columns(features, available, "The model")),
            by,
            positive_label,
            drop_missing,
            favorable,
            **named,
            outcomes=outcomes,
            probabilities=probabilities,
        )

    @property
    def needed(self) -> list[str]:
        """Every column that is read, once."""
        return list(dict.fromkeys((*self.features, *self._required, *self.by, *self._further)))

    @property
    def _required(self) -> tuple[str, ...]:
        """The columns of the label and the group, without which a row is of no use."""
        return (*([self.label] if self.label else []), *self.group, *self.probabilities)

    @property
    def _further(self) -> tuple[str, ...]:
        single = (self.decisions, self.ids, self.clusters, self.sample_weight)
        return (*(name for name in single if name is not None), *self.outcomes)

    def rows_of(self, table: pa.Table, where: str) -> Rows:
        """Labels, groups and features of a part of a file.

        Raises
        ------
        InvalidInputError
            If a label or a group is missing or invalid; the message begins with `where`.
        """
        kept = np.arange(len(table))
        exclusions: dict[str, int] = {}
        for name in self._required if self.drop_missing else ():
            known = pc.is_valid(table.column(name)).to_numpy()
            if not known.all():
                exclusions[f"no value in {name!r}"] = int((~known).sum())
                table, kept = table.filter(known), kept[known]
        n = len(table)
        if not n:
            return Rows(None, np.zeros(0, dtype=np.int64), None, {}, kept, exclusions)
        by = {name: _texts(table.column(name)) for name in self.by}
        names = list(dict.fromkeys((*self.features, *self._required, *self._further)))
        frame = table.select(names).to_pandas(use_threads=False)

        def read(name: str | None, check: Callable[[Any, int, str], T]) -> T | None:
            return None if name is None else check(frame[name], n, name)

        try:
            labels = self._labels(frame)
            if self.probabilities:
                probable = GroupProbabilities(frame[list(self.probabilities)])
                groups, probabilities = probable.likeliest, probable.probabilities
            else:
                groups = as_groups(frame[list(self.group)], n, " & ".join(self.group), is_part=True)
                probabilities = None
            return Rows(
                as_table(frame[list(self.features)]) if self.features else None,
                labels,
                groups,
                by,
                kept,
                exclusions,
                read(self.decisions, as_decisions),
                read(self.ids, as_ids),
                read(self.clusters, as_clusters),
                frame[list(self.outcomes)] if self.outcomes else None,
                read(self.sample_weight, as_weights),
                probabilities,
            )
        except (InvalidInputError, InvalidTypeError) as error:
            raise type(error)(f"{where}: {error}") from None

    def _labels(self, frame: pd.DataFrame) -> NDArray[np.int64]:
        """Labels 0 and 1; 1 for everyone if there is no label."""
        if not self.label:
            return np.ones(len(frame), dtype=np.int64)
        values, wanted = frame[self.label], self.positive_label
        if wanted is None:
            return as_labels(values, len(frame), self.label, is_part=True)
        if pd.api.types.is_bool_dtype(values.dtype):  # a file may write true, True or TRUE
            wanted = wanted.capitalize()
        is_favorable = values.astype(object).map(category_text, na_action="ignore").str.strip() == wanted
        label = ~is_favorable if self.favorable == "low" else is_favorable
        return as_labels(label.astype("int64").mask(values.isna()), len(frame), self.label, is_part=True)


@dataclass(frozen=True, eq=False)
class Rows:
    """A checked part of a file; `table` and `groups` are None if no row is left.

    If groups are known as `probabilities`, the groups are the most likely ones.
    """

    table: pd.DataFrame | None
    labels: NDArray[np.int64]
    groups: Groups | None
    by: Mapping[str, NDArray[np.str_]]
    kept: NDArray[np.int64]
    exclusions: Mapping[str, int]
    decisions: NDArray[np.int64] | None = None
    ids: NDArray[np.object_] | None = None
    clusters: NDArray[np.uint64] | None = None
    outcomes: pd.DataFrame | None = None
    sample_weight: NDArray[np.float64] | None = None
    probabilities: pd.DataFrame | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def drawn(self, rows: NDArray[np.int64], why_not: str) -> Rows:
        """Keep some of the rows; the others are counted as left out, for the given reason."""
        drawn: dict[str, Any] = {}
        for name, values in vars(self).items():
            if isinstance(values, pd.DataFrame):
                drawn[name] = values.iloc[rows].reset_index(drop=True)
            elif isinstance(values, np.ndarray):
                drawn[name] = values[rows]
        assert self.groups is not None
        return replace(
            self,
            **drawn,
            groups=Groups(self.groups.codes[rows], self.groups.names),
            by={name: values[rows] for name, values in self.by.items()},
            exclusions={**self.exclusions, why_not: len(self) - len(rows)},
        )


def _texts(column: pa.ChunkedArray) -> NDArray[np.str_]:
    """Values as text; a missing value is a separate value."""
    encoded = column.dictionary_encode().unify_dictionaries().combine_chunks()
    if hasattr(encoded, "chunks"):
        encoded = encoded.chunk(0)
    names = np.asarray([str(value) for value in encoded.dictionary.to_pylist()] + [MISSING])
    texts: NDArray[np.str_] = names[encoded.indices.fill_null(len(names) - 1).to_numpy(zero_copy_only=False)]
    return texts
