"""The roles of a table's columns, and its rows as labels, groups and features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
        if label:
            (label,) = check_columns([label], available, "`label` (--label)")
        probable = check_columns(probabilities, available, "--group-probabilities") if probabilities else []
        groups = [] if probable else check_columns(group, available, "`group` (--group)")
        dropped = check_columns(drop, available, "`drop` (--drop)") if drop else []
        splits = check_columns(by, available, "`by` (--by)") if by else []
        further = check_columns(outcomes, available, "`outcomes` (--outcomes)") if outcomes else []
        asked = {"decisions": decisions, "ids": ids, "clusters": clusters, "sample_weight": sample_weight}
        options = {"decisions": "decision", "ids": "id", "clusters": "clusters", "sample_weight": "sample-weight"}
        named = {
            name: None if column is None else check_columns([column], available, f"`{name}` (--{options[name]})")[0]
            for name, column in asked.items()
        }
        hidden = {label, *named.values(), *dropped, *further, *(() if keep_group else (*groups, *probable))}
        finances = check_columns(financial, available, "`financial_features`") if financial else []
        _check_apart(finances, label, [*groups, *probable], dropped)
        chosen = [c for c in available if c not in hidden] if features is None else features
        features_ = check_columns(chosen, available, "The model")
        return cls(
            label,
            tuple(groups),
            tuple(features_),
            tuple(splits),
            positive_label,
            drop_missing,
            favorable,
            **named,
            outcomes=tuple(further),
            probabilities=tuple(probable),
        )

    @property
    def needed(self) -> list[str]:
        """Every column that is read, once."""
        parts = (self.features, self._label, self._of_group, self.by, self._named, self.outcomes)
        return list(dict.fromkeys(name for part in parts for name in part))

    @property
    def _label(self) -> list[str]:
        return [self.label] if self.label else []

    @property
    def _of_group(self) -> list[str]:
        return [*self.group, *self.probabilities]

    @property
    def _named(self) -> list[str]:
        columns = (self.decisions, self.ids, self.clusters, self.sample_weight)
        return [column for column in columns if column is not None]

    def rows_of(self, table: pa.Table, where: str) -> Rows:
        """Labels, groups and features of a part of a file.

        Raises
        ------
        InvalidInputError
            If a label or a group is missing or invalid; the message begins with `where`.
        """
        kept = np.arange(len(table))
        exclusions: dict[str, int] = {}
        if self.drop_missing:
            table, kept, exclusions = _without_missing(table, kept, [*self._label, *self._of_group])
        if not len(table):
            return Rows(None, np.zeros(0, dtype=np.int64), None, {}, kept, exclusions)
        try:
            parts = (self.features, self._label, self._of_group, self._named, self.outcomes)
            columns = list(dict.fromkeys(name for part in parts for name in part))
            frame = table.select(columns).to_pandas(use_threads=False)
            labels = np.ones(len(frame), dtype=np.int64)
            if self.label:
                labels = as_labels(self._labels(frame), len(frame), self.label, is_part=True)
            probable = GroupProbabilities(frame[list(self.probabilities)]) if self.probabilities else None
            groups = (
                as_groups(frame[list(self.group)], len(frame), " & ".join(self.group), is_part=True)
                if probable is None
                else probable.likeliest
            )
            by = {name: _texts(table.column(name)) for name in self.by}
            features = as_table(frame[list(self.features)]) if self.features else None
            decided = (
                None if self.decisions is None else as_decisions(frame[self.decisions], len(frame), self.decisions)
            )
            ids = None if self.ids is None else as_ids(frame[self.ids], len(frame), self.ids)
            clusters = None if self.clusters is None else as_clusters(frame[self.clusters], len(frame), self.clusters)
            further = frame[list(self.outcomes)] if self.outcomes else None
            weight = self.sample_weight
            weights = None if weight is None else as_weights(frame[weight], len(frame), weight)
            table_of_groups = None if probable is None else probable.probabilities
            return Rows(
                features,
                labels,
                groups,
                by,
                kept,
                exclusions,
                decided,
                ids,
                clusters,
                outcomes=further,
                sample_weight=weights,
                probabilities=table_of_groups,
            )
        except (InvalidInputError, InvalidTypeError) as error:
            raise type(error)(f"{where}: {error}") from None

    def _labels(self, frame: pd.DataFrame) -> pd.Series[Any]:
        values = frame[self.label]
        if self.positive_label is None:
            return values
        wanted = self.positive_label
        if pd.api.types.is_bool_dtype(values.dtype):  # a file may write true, True or TRUE
            wanted = wanted.capitalize()
        is_favorable = values.astype(object).map(category_text, na_action="ignore").str.strip() == wanted
        label = ~is_favorable if self.favorable == "low" else is_favorable
        return label.astype("int64").mask(values.isna())


def _check_apart(financial: Sequence[str], label: str, groups: Sequence[str], dropped: Sequence[str]) -> None:
    """Reject financial features that are the label, the group, or dropped."""
    for name in financial:
        for part, names, what in (
            ("is the label", [label], "people are compared within one label anyway"),
            ("is the group", groups, "people of different groups would never be comparable"),
            ("is removed by `drop` (--drop)", dropped, "people are compared on inputs of the model"),
        ):
            if name in names:
                raise InvalidInputError(
                    f"The financial feature {name!r} {part}: {what}. Remove it from `financial_features` (--financial)."
                )


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
        assert self.table is not None
        assert self.groups is not None
        return Rows(
            self.table.iloc[rows].reset_index(drop=True),
            self.labels[rows],
            Groups(self.groups.codes[rows], self.groups.names),
            {name: values[rows] for name, values in self.by.items()},
            self.kept[rows],
            {**self.exclusions, why_not: len(self) - len(rows)},
            None if self.decisions is None else self.decisions[rows],
            None if self.ids is None else self.ids[rows],
            None if self.clusters is None else self.clusters[rows],
            None if self.outcomes is None else self.outcomes.iloc[rows].reset_index(drop=True),
            None if self.sample_weight is None else self.sample_weight[rows],
            None if self.probabilities is None else self.probabilities.iloc[rows].reset_index(drop=True),
        )


def _without_missing(
    table: pa.Table, kept: NDArray[np.int64], columns: list[str]
) -> tuple[pa.Table, NDArray[np.int64], dict[str, int]]:

    exclusions = {}
    for column in columns:
        known = pc.is_valid(table.column(column)).to_numpy()
        if not known.all():
            exclusions[f"no value in {column!r}"] = int((~known).sum())
            table, kept = table.filter(known), kept[known]
    return table, kept, exclusions


def _texts(column: pa.ChunkedArray) -> NDArray[np.str_]:
    """Values as text; a missing value is a separate value."""
    encoded = column.dictionary_encode().unify_dictionaries().combine_chunks()
    if hasattr(encoded, "chunks"):
        encoded = encoded.chunk(0)
    names = np.asarray([str(value) for value in encoded.dictionary.to_pylist()] + [MISSING])
    found: NDArray[np.str_] = names[encoded.indices.fill_null(len(names) - 1).to_numpy(zero_copy_only=False)]
    return found
