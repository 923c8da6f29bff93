"""People, checked once wherever they come from, and the roles of a table's columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from evenhand.arrays import Bools, Floats, Ints, Keys, as_numpy
from evenhand.exceptions import InvalidInputError, InvalidTypeError, warn_caller
from evenhand.inputs.checking import check_table
from evenhand.inputs.group_probabilities import GroupProbabilities, PersonProbabilities
from evenhand.inputs.identity import Identity
from evenhand.inputs.read_options import ColumnOptions, ReadOptions
from evenhand.inputs.tables import open_table, typed
from evenhand.inputs.tables.columns import is_numeric
from evenhand.inputs.validation import (
    MISSING,
    SEPARATOR,
    Groups,
    as_clusters,
    as_decisions,
    as_groups,
    as_ids,
    as_labels,
    as_spelled,
    as_splits,
    as_table,
    as_weights,
    category_text,
    check_columns,
    in_row_order,
)


@dataclass(frozen=True, kw_only=True)
class Columns(ColumnOptions):
    """The roles of a file's columns; those that `ColumnOptions` names are described there.

    Attributes
    ----------
    label, group, features
        Column of the outcome, empty if there is none; of the protected attribute; inputs of the model, if named.
    financial_features
        Columns on which people are compared.
    favorable
        ``"low"`` if 1 is the unfavorable outcome for the model: the label is then 0 for the favorable value.
    outcomes
        Columns of additional outcomes, numeric if present.
    group_probabilities
        Columns with the probability of each group, in place of `group`.
    """

    label: str = ""
    group: tuple[str, ...] = ()
    features: tuple[str, ...] = None  # type: ignore[assignment] # until `among`, if the model names none
    financial_features: tuple[str, ...] = ()
    favorable: str | None = None
    outcomes: tuple[str, ...] = ()
    group_probabilities: tuple[str, ...] = ()
    groups: Mapping[str, str] = field(default_factory=dict)
    bands: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def among(self, available: Sequence[str]) -> Columns:
        """The roles with names as the columns of a table have them; features are all without a role, if none are named.

        Raises
        ------
        InvalidInputError
            If there is no such column, or one has two roles that exclude each other.
        """

        def checked(names: Iterable[str], what: str) -> tuple[str, ...]:
            return tuple(check_columns(names, available, what)) if names else ()

        label = next(iter(checked([self.label] if self.label else (), "`label` (--label)")), "")
        probable = checked(self.group_probabilities, "--group-probabilities")
        groups = () if probable else tuple(check_columns(self.group, available, "`group` (--group)"))
        dropped, splits = checked(self.drop, "`drop` (--drop)"), checked(self.by, "`by` (--by)")
        outcomes = checked(self.outcomes, "`outcomes` (--outcomes)")
        flags = {"decisions": "decision", "ids": "id", "clusters": "clusters", "sample_weight": "sample-weight"}
        named: dict[str, Any] = {
            name: checked([column], f"`{name}` (--{flag})")[0]
            for name, flag in flags.items()
            if (column := getattr(self, name)) is not None
        }
        cut = self.bands or {}
        bands = dict(zip(checked([*cut], "`bands` of [clean]"), cut.values(), strict=True))
        for name in bands:
            if name not in (*groups, *splits):
                raise InvalidInputError(
                    f"`bands` of [clean] cut {name!r}, which is neither `group` (--group) nor among `by` (--by): name "
                    "it there, or leave out its bands."
                )
        hidden = {label, *named.values(), *dropped, *outcomes, *(() if self.keep_group else (*groups, *probable))}
        financial = checked(self.financial_features, "`financial_features`")
        _check_apart(financial, label, [*groups, *probable], dropped)
        is_open = self.features is None
        own = [c for c in available if c not in hidden] if is_open else as_spelled(self.features, available)
        return replace(
            self,
            label=label,
            group=groups,
            features=tuple(check_columns(own, available, "The model")),
            financial_features=financial,
            outcomes=outcomes,
            group_probabilities=probable,
            drop=dropped,
            by=splits,
            groups=dict(self.groups or {}),
            bands=bands,
            **named,
        )

    @property
    def needed(self) -> list[str]:
        """Every column that is read, once."""
        return list(dict.fromkeys((*self._of_people, *self.by)))

    @property
    def _of_people(self) -> list[str]:
        """The columns of which people consist: all but those of `by`."""
        named = (getattr(self, name) for name in _CHECKS)
        columns = (*self.features, self.label, *self.group, *self.group_probabilities, *named, *self.outcomes)
        return list(dict.fromkeys(filter(None, columns)))

    def people_of(self, table: pa.Table, where: str, *, is_part: bool = True) -> People:
        """The people of a file or of a part of it.

        Parameters
        ----------
        table
            The columns `needed`.
        where
            Where they come from, for messages.
        is_part
            Whether there are more people, so that a label or a group may be absent here.

        Raises
        ------
        InvalidInputError
            If a label or a group is missing or invalid; the message begins with `where`.
        """
        kept = np.arange(len(table))
        exclusions: dict[str, int] = {}
        for column in filter(None, (self.label, *self.group, *self.group_probabilities)) if self.drop_missing else ():
            known = pc.is_valid(table.column(column)).to_numpy()
            if not known.all():
                exclusions[f"no value in {column!r}"] = int((~known).sum())
                table, kept = table.filter(known), kept[known]
        if not len(table):
            return People.nobody(exclusions)
        frame = table.select(self._of_people).to_pandas(use_threads=False)
        named = {name: column for name in _CHECKS if (column := getattr(self, name)) is not None}
        try:
            cleaned = {name: self._cleaned(name, table.column(name)) for name in {*self.group, *self.by}}
            people = People.of(
                frame[list(self.features)],
                self._labels(frame) if self.label else None,
                GroupProbabilities(frame[list(self.group_probabilities)])
                if self.group_probabilities
                else pd.DataFrame({name: cleaned[name].to_pandas() for name in self.group}),
                names={"y": self.label, "sensitive_features": " & ".join(self.group), **named},
                is_part=is_part,
                **{name: frame[column] for name, column in named.items()},
            )
        except (InvalidInputError, InvalidTypeError) as error:
            raise type(error)(f"{where}: {error}") from None
        by = {name: _texts(cleaned[name]) for name in self.by}
        outcomes = frame[list(self.outcomes)] if self.outcomes else None
        more = {
            "by": self.by,
            "outcomes": self.outcomes,
            "dropped": self.drop,
            "merged groups": [f"{spelling!r} as {name!r}" for spelling, name in self.groups.items()],
            "bands": [f"{name}: {', '.join(band_names(edges))}" for name, edges in self.bands.items()],
        }
        if self.positive_label is not None:
            more["favorable label"] = (self.positive_label,)
        columns = {**people.columns, **{role: list(names) for role, names in more.items() if names}}
        return replace(people, by=by, kept=kept, exclusions=exclusions, outcomes=outcomes, columns=columns)

    def _cleaned(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """The values of a column of the group or of `by`: in bands, if it is cut into them, and with one spelling."""
        if name in self.bands:
            edges, names = np.asarray(self.bands[name], dtype=np.float64), band_names(self.bands[name])
            if not is_numeric(column.type):
                raise InvalidInputError(f"`bands` of [clean] cut {name!r}, which does not hold numbers.")
            values = column.cast(pa.float64()).to_numpy()
            places = np.searchsorted(edges, values, side="right")
            return pa.chunked_array([pa.array(np.asarray(names)[places], mask=np.isnan(values))])
        if name not in self.group or not self.groups:
            return column
        given = column.to_pandas(use_threads=False).astype(object)
        texts = {value: category_text(value) for value in given.dropna().unique()}
        merged = given.map({value: self.groups.get(text, text) for value, text in texts.items()})
        return pa.chunked_array([pa.array(merged, pa.string(), from_pandas=True)])

    def _labels(self, frame: pd.DataFrame) -> pd.Series[Any]:
        values = frame[self.label]
        if self.positive_label is None:
            return values
        is_favorable = self.is_favorable(values)
        label = ~is_favorable if self.favorable == "low" else is_favorable
        return label.astype("int64").mask(values.isna())

    def is_favorable(self, labels: pd.Series[Any]) -> pd.Series[bool]:
        """Whether labels are the favorable value."""
        wanted = self.positive_label or ""
        if pd.api.types.is_bool_dtype(labels.dtype):  # a file may write true, True or TRUE
            wanted = wanted.capitalize()
        return labels.astype(object).map(category_text, na_action="ignore").str.strip() == wanted


def band_names(edges: Sequence[float]) -> list[str]:
    """The names of the ranges between ascending numbers.

    Examples
    --------
    >>> band_names([25, 62])
    ['under 25', '25 to under 62', '62 and over']
    """
    ends = [f"{edge:,.15g}" for edge in edges]
    between = [f"{low} to under {high}" for low, high in pairwise(ends)]
    return [f"under {ends[0]}", *between, f"{ends[-1]} and over"]


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


_UNCLEAR = {"yes", "no", "y", "n", "true", "false", "1", "0"}  # values that say nothing without their attribute
_CHECKS: dict[str, Callable[..., Any]] = {
    "decisions": as_decisions,
    "ids": as_ids,
    "clusters": as_clusters,
    "sample_weight": as_weights,
}


@dataclass(frozen=True, eq=False)
class People:
    """Checked people: the columns of a table, labels, groups, and whatever else was said about them.

    Attributes
    ----------
    table, labels, groups
        Inputs of the model, labels and groups. Without labels, everyone has the same. If only probabilities of groups
        are known, the groups are the likeliest, until they are drawn.
    by
        Columns by which metrics are split, as text.
    decisions, ids, sample_weight
        Decisions made about them, the user's ids, and how many people of the population each row stands for, up to a
        common factor; None if not given.
    clusters
        A hash of the person or household of each row, 0 if unknown; None if not given.
    outcomes
        Columns of additional outcomes; None if there are none.
    has_labels
        Whether labels were given.
    given_probabilities
        Probabilities of groups, as the user gave them; None if groups are known.
    kept, exclusions
        Rows of the table that was read, and how many rows were left out of it, by reason.
    columns
        Names of what was given, by role, as far as they are known.
    x, known_by
        Once a model is known: the table as the model sees it, and the numbers that identify equal rows, of shape
        (n, k), if `x` does not.
    cut_offs
        Probability of the favorable outcome from which each person is approved; None if there is one for all.
    probabilities
        Once a model is known: group probabilities with the hashes by which people are drawn.
    """

    table: pd.DataFrame
    labels: Ints
    groups: Groups
    by: Mapping[str, NDArray[np.str_]] = field(default_factory=dict)
    decisions: Ints | None = None
    ids: NDArray[np.object_] | None = None
    clusters: Keys | None = None
    sample_weight: Floats | None = None
    outcomes: pd.DataFrame | None = None
    has_labels: bool = True
    given_probabilities: GroupProbabilities | None = None
    kept: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    exclusions: Mapping[str, int] = field(default_factory=dict)
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    x: Any = None
    known_by: Floats | None = None
    cut_offs: Floats | None = None
    probabilities: PersonProbabilities | None = None

    @classmethod
    def of(
        cls,
        X: Any,
        y: Any,
        sensitive_features: Any,
        *,
        decisions: Any = None,
        ids: Any = None,
        clusters: Any = None,
        sample_weight: Any = None,
        by: Any = None,
        names: Mapping[str, str] | None = None,
        prefix: str = "",
        is_part: bool = False,
    ) -> People:
        """Check people as a user gave them: every audit begins here.

        Parameters
        ----------
        X, y, sensitive_features, decisions, ids, clusters, sample_weight, by
            As in `evenhand.audit`; `y` is None if there are no labels.
        names, prefix
            What messages call these, such as the names of columns, and what comes before the names.
        is_part
            Whether there are more people, so that a label or a group may be absent here.

        Raises
        ------
        InvalidInputError, InvalidTypeError
            If a value is missing or invalid, or rows do not belong together.

        Examples
        --------
        >>> people = People.of(pd.DataFrame({"income": [1.0, 2.0]}), [0, 1], ["f", "m"])
        >>> len(people), people.groups.names
        (2, ('f', 'm'))
        """
        has_no_inputs = is_part and isinstance(X, pd.DataFrame) and not X.shape[1]  # labels and groups alone are read
        table = X if has_no_inputs else as_table(X, f"{prefix}X")
        n = len(table)
        rows = {
            "y": y,
            "sensitive_features": sensitive_features,
            "decisions": decisions,
            "ids": ids,
            "clusters": clusters,
            "sample_weight": sample_weight,
            "by": by,
        }
        known = {_ROLES[name]: names_of(values) for name, values in rows.items()}
        called = {name: (names or {}).get(name, f"{prefix}{name}") for name in rows}
        probable = sensitive_features if isinstance(sensitive_features, GroupProbabilities) else None
        if probable is not None:
            probable = replace(probable, probabilities=probable.in_row_order(X, n, called["sensitive_features"]))
            del rows["sensitive_features"]
        rows = {name: in_row_order(values, X, called[name]) for name, values in rows.items()}
        checked: dict[str, Any] = {
            name: check(rows[name], n, called[name]) for name, check in _CHECKS.items() if rows[name] is not None
        }
        if "sample_weight" in checked and not is_part:
            check_counted(checked["sample_weight"], called["sample_weight"])
        return cls(
            table,
            np.ones(n, np.int64) if y is None else as_labels(rows["y"], n, called["y"], is_part=is_part),
            as_groups(rows["sensitive_features"], n, called["sensitive_features"], is_part=is_part)
            if probable is None
            else probable.likeliest,
            by=as_splits(rows["by"], n),
            has_labels=y is not None,
            given_probabilities=probable,
            kept=np.arange(n),
            columns={role: given for role, given in known.items() if given},
            **checked,
        )

    @classmethod
    def nobody(cls, exclusions: Mapping[str, int]) -> People:
        """No one, because every row was left out."""
        nothing = np.zeros(0, dtype=np.int64)
        return cls(pd.DataFrame(), nothing, Groups(nothing, ()), kept=nothing, exclusions=exclusions)

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, chosen: Ints) -> People:
        """Some of the people."""
        optional = ("decisions", "ids", "clusters", "sample_weight", "kept", "known_by", "cut_offs")
        given: dict[str, Any] = {name: v[chosen] for name in optional if (v := getattr(self, name)) is not None}
        if self.x is not None:
            given["x"] = self.x[chosen]
        if self.outcomes is not None:
            given["outcomes"] = self.outcomes.iloc[chosen].reset_index(drop=True)
        if (as_given := self.given_probabilities) is not None:
            given["given_probabilities"] = as_given.rows(chosen)
        if (probable := self.probabilities) is not None:
            given["probabilities"] = replace(probable, values=probable.values[chosen], keys=probable.keys[chosen])
        return replace(
            self,
            table=self.table.iloc[chosen].reset_index(drop=True),
            labels=self.labels[chosen],
            groups=Groups(self.groups.codes[chosen], self.groups.names),
            by={name: values[chosen] for name, values in self.by.items()},
            **given,
        )

    @property
    def group_of_each(self) -> NDArray[np.str_]:
        """The name of each person's group."""
        return np.asarray(self.groups.names)[self.groups.codes]

    @property
    def attributes(self) -> dict[str, Groups]:
        """Of groups that cross several attributes: the values of each attribute and, as codes, that of each group."""
        columns, parts = self.columns.get("group", ()), [name.split(SEPARATOR) for name in self.groups.names]
        if len(columns) < 2 or any(len(part) != len(columns) for part in parts):
            return {}
        valued = [sorted(set(values)) for values in zip(*parts, strict=True)]
        attributes: dict[str, Groups] = {}
        for place, (column, values) in enumerate(zip(columns, valued, strict=True)):
            codes = np.array([values.index(part[place]) for part in parts])
            unclear = _UNCLEAR | {value for k, others in enumerate(valued) if k != place for value in others}
            names = tuple(f"{column}: {value}" if {value, value.lower()} & unclear else value for value in values)
            attributes |= {column: Groups(codes, names)} if len(values) > 1 else {}
        return attributes

    @property
    def cells(self) -> Ints:
        """The (label, group) cell of each person."""
        return self.labels * len(self.groups.names) + self.groups.codes

    @cached_property
    def weight(self) -> Floats:
        """The weight of each row: 1 if no weights were given."""
        return np.ones(len(self)) if self.sample_weight is None else self.sample_weight

    @cached_property
    def identity(self) -> Identity:
        """Who each row is: given by the clusters, or by all of the model's inputs."""
        inputs = as_numpy(self.x) if self.known_by is None else self.known_by
        identity = Identity.of(inputs, self.labels, self.groups.codes, self.clusters)
        if self.clusters is None:
            return identity
        return replace(identity, person=np.where(self.clusters == 0, identity.content, self.clusters))

    def decided(self, score: Floats, threshold: float, rows: Ints | slice = slice(None)) -> Bools:
        """Decisions about some rows: the actual ones, or else those from their scores."""
        if self.decisions is not None:
            return self.decisions[rows].astype(np.bool_)
        return score >= self.cut_off(threshold, rows)

    def cut_off(self, threshold: float, rows: Ints | slice = slice(None)) -> float | Floats:
        """The thresholds for the scores of some rows: their own cutoffs, or else the common threshold."""
        return threshold if self.cut_offs is None else self.cut_offs[rows]


_ROLES = {
    "y": "label",
    "sensitive_features": "group",
    "decisions": "decisions",
    "ids": "ids",
    "clusters": "clusters",
    "sample_weight": "sample weight",
    "by": "by",
}


def names_of(given: Any) -> list[str]:
    """Names of the columns of a table or a matrix, or of a column; none of an array or a number."""
    given = given.probabilities if isinstance(given, GroupProbabilities) else given
    if isinstance(given, np.ndarray) and given.ndim == 2:
        return [f"x{place}" for place in range(given.shape[1])]
    columns = getattr(given, "column_names", getattr(given, "columns", [getattr(given, "name", None)]))
    return [str(name) for name in (given if isinstance(given, Mapping) else columns) if name not in (None, "")]


def check_counted(sample_weight: Floats, name: str | None) -> None:
    """Reject weights that are all 0."""
    if not sample_weight.any():
        raise InvalidInputError(
            f"`{name}` is 0 for everyone, so no one is counted; check the column of weights, or leave it out."
        )


def _texts(column: pa.ChunkedArray) -> NDArray[np.str_]:
    """Values as text; a missing value is a separate value."""
    encoded = column.dictionary_encode().unify_dictionaries().combine_chunks()
    if hasattr(encoded, "chunks"):
        encoded = encoded.chunk(0)
    names = np.asarray([str(value) for value in encoded.dictionary.to_pylist()] + [MISSING])
    result: NDArray[np.str_] = names[encoded.indices.fill_null(len(names) - 1).to_numpy(zero_copy_only=False)]
    return result


CHECKED_ROWS = 10_000
"""Number of rows that show whether a column is an id, a date or a saved index; the same in memory and streamed."""


def unasked(columns: Columns, asked: Iterable[str]) -> list[str]:
    """Features that the user did not name."""
    kept = {name.strip() for name in asked}
    return [name for name in columns.features if name.strip() not in kept]


def without_unfit(
    columns: Columns, rows: pd.DataFrame, *, asked: Iterable[str], is_named: bool
) -> tuple[Columns, tuple[str, ...]]:
    """Remove ids, dates and saved indexes from the features, and return a sentence on what was left out.

    Parameters
    ----------
    columns
        The roles of the columns.
    rows
        The features not named by the user, for everyone or for the first `CHECKED_ROWS` people.
    asked
        Features that the user named, which are always kept.
    is_named
        Whether the model names the features, so that it needs each of them.

    Raises
    ------
    InvalidInputError
        If the model needs an id, a date or a saved index that the user did not name.
    """
    looked_at = rows[unasked(columns, asked)]
    unfit = {c.name: c.signs[0] for c in check_table(looked_at[:CHECKED_ROWS]) if c.is_unfit}
    if not unfit:
        return columns, ()
    shown = ", ".join(f"{name!r} ({sign.kind}: {sign.clause})" for name, sign in unfit.items())
    if is_named:
        raise InvalidInputError(
            f"The model uses {shown}, from which no model should learn; audit a model without it, or name "
            f"{'it' if len(unfit) == 1 else 'them'} in `keep_inputs` (--keep-inputs) to audit this one as it is."
        )
    sentence = (
        f"Left out of the inputs: {shown}. If the model uses one of them, name it in `keep_inputs` (--keep-inputs), "
        "and the rest in `drop` (--drop)."
    )
    warn_caller(sentence)
    features = check_columns([name for name in columns.features if name not in unfit], columns.features, "The model")
    return replace(columns, features=tuple(features)), (sentence,)


def read_people(
    source: Any, roles: Columns, reading: ReadOptions, *, is_checked: bool = False
) -> tuple[People, tuple[str, ...]]:
    """Read the people of a table into memory.

    Parameters
    ----------
    source
        A file, address or table that `evenhand.read_table` accepts.
    roles
        The roles of its columns; features, if there are any, are named by the model.
    reading
        What the file does not specify.
    is_checked
        Whether ids, dates and saved indexes among the inputs were looked for before.

    Returns
    -------
    The people, and notes on how cells were read and on columns that are not inputs.

    Raises
    ------
    InvalidInputError, DataFileError
        If the table cannot be read, or a value is missing or invalid.
    """
    raw = open_table(source, reading)
    columns = roles.among(raw.schema.names)
    file = typed(raw, columns.needed, reading)
    notes = tuple(file.notes)
    if not is_checked:
        inputs = file.table.select(list(columns.features)).to_pandas()
        asked = (*roles.financial_features, *roles.keep_inputs)
        columns, left_out = without_unfit(columns, inputs, asked=asked, is_named=roles.features is not None)
        notes += left_out
    if columns.label and columns.positive_label is not None:
        labels = file.table.column(columns.label).drop_null().unique().to_pandas()
        if not columns.is_favorable(labels).any():
            seen = sorted({str(value).strip() for value in labels})[:6]
            raise InvalidInputError(
                f"--positive-label {columns.positive_label!r} is not a value of the label, which has {seen}."
            )
    people = columns.people_of(file.table, raw.where, is_part=False)
    if not len(people):
        raise InvalidInputError(f"{raw.where} has no row with both a label and a group.")
    return people, notes
