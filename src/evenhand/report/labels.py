"""The user's words for columns, values and groups, put into the plain data that every output is made from."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from evenhand.exceptions import InvalidInputError
from evenhand.inputs.reason_maps import table_in
from evenhand.inputs.validation import SEPARATOR, category_text

_WHAT = "`labels` (--labels)"
_BETWEEN = " - "  # between two groups that are compared
_MEAN = "mean attribution: "
_IS_MISSING = " is missing"

# Where the summary has names: values and keys of groups, values and keys of columns.
_GROUP = {"group", "reference", "other_group", "reference_group", "group_low", "group_high"}
_BY_GROUP = {"groups", "by_group", "counts", "auc_by_group", "declined", "without_reason", "expected", "thresholded"}
_COLUMN = {"feature", "reason", "column", "split", "group_columns", "financial_features", "names"}
_COLUMN |= {"financial features", "all inputs"}
_VALUE = {"value", "segment"}
_SPLITS = {"group", "groups compared", "label", "decision"}  # of every audit; all others are columns
_UNTOUCHED = {"schema", "created", "versions", "regimes", "influences", "stream", "report", "verdict"}


def read_labels(given: Any) -> dict[str, str]:
    """Labels by name, as plain data.

    Parameters
    ----------
    given
        A mapping of names of columns and groups to labels, and of ``"column=value"`` to the label of a value; a column
        may also have a mapping of its values. Or the path of a TOML file with a table ``[labels]``, or of a table of
        two columns.

    Raises
    ------
    InvalidInputError
        If it is none of these, or a label is empty.

    Examples
    --------
    >>> read_labels({"PAY_6": "payment status in April", "SEX": {1: "men", 2: "women"}})
    {'PAY_6': 'payment status in April', 'SEX=1': 'men', 'SEX=2': 'women'}
    """
    if isinstance(given, (str, os.PathLike)):
        path = Path(given)
        given = table_in(path, _WHAT, "labels", 'PAY_6 = "payment status in April"')
        if isinstance(given, pd.DataFrame):
            if given.shape[1] != 2:
                raise InvalidInputError(
                    f"{_WHAT}: {str(path)!r} must have two columns, names and labels, got {list(given.columns)}."
                )
            names, labels = (given.iloc[:, place].astype(object).map(category_text) for place in (0, 1))
            given = dict(zip(names, labels, strict=True))
    if not isinstance(given, Mapping):
        raise InvalidInputError(
            f"{_WHAT} must map names to labels, such as {{'PAY_6': 'payment status in April'}}, got {given!r}."
        )
    found: dict[str, str] = {}
    for name, label in given.items():
        for key, words in label.items() if isinstance(label, Mapping) else ((None, label),):
            named = str(name) if key is None else f"{name}={key}"
            if not isinstance(words, str) or not words.strip():
                raise InvalidInputError(f"{_WHAT}: the label of {named!r} must be a text, got {words!r}.")
            found[named] = words.strip()
    return found


@dataclass(frozen=True)
class Labels:
    """The words for the names of one audit.

    Attributes
    ----------
    names
        Labels by name, as in `read_labels`.
    groups
        The words for each group: of its name, or of the values that it consists of.
    """

    names: Mapping[str, str]
    groups: Mapping[str, str]

    @classmethod
    def of(cls, names: Mapping[str, str], summary: Mapping[str, Any]) -> Labels:
        """The words for an audit's summary.

        Raises
        ------
        InvalidInputError
            If two groups, or two inputs, would have the same name.

        Examples
        --------
        >>> data = {"groups": {"1 & old": 7}, "columns": {"group": ["SEX", "AGE"]}}
        >>> Labels.of({"SEX=1": "men", "old": "over 62"}, {"data": data, "features": [], "outcome": {}}).groups
        {'1 & old': 'men & over 62'}
        """
        columns = summary["data"]["columns"].get("group", ())

        def words(group: str, columns: Sequence[str]) -> str:
            parts = group.split(SEPARATOR)
            named = columns if len(columns) == len(parts) else [""] * len(parts)
            found = (names.get(part, names.get(f"{of}={part}", part)) for part, of in zip(parts, named, strict=True))
            return names.get(group, SEPARATOR.join(found))

        groups = {group: words(group, columns) for group in summary["data"]["groups"]}
        for column, table in summary["outcome"].get("attributes", {}).items():  # the parts of intersections, alone
            for group in (row["group"] for row in table["groups"]):
                value = group.removeprefix(f"{column}: ")
                label = words(value, [column])
                groups[group] = group if label == value else label
        inputs = {row["feature"]: names.get(row["feature"], row["feature"]) for row in summary["features"]}
        for what, labeled in (("groups", groups), ("inputs", inputs)):
            if twice := [label for label in labeled.values() if list(labeled.values()).count(label) > 1]:
                first, second, *_ = (name for name, label in labeled.items() if label == twice[0])
                raise InvalidInputError(
                    f"{_WHAT}: the {what} {first!r} and {second!r} are both called {twice[0]!r}; give each its own."
                )
        return cls(names, groups)

    def column(self, name: Any) -> Any:
        """The words for a column, or for whether its values are missing."""
        of = str(name).removesuffix(_IS_MISSING)
        return self.names.get(name, self.names[of] + _IS_MISSING if of != name and of in self.names else name)

    def value(self, column: str, value: Any) -> Any:
        """The words for a value of a column."""
        return value if pd.isna(value) else self.names.get(f"{column}={category_text(value)}", value)

    def group(self, name: Any) -> Any:
        """The words for a group."""
        return self.groups.get(name, name)

    def summary(self, summary: Mapping[str, Any]) -> Mapping[str, Any]:
        """A summary with the words in place of the names; sentences of findings and the verdict stay as they are."""
        if not self.names:
            return summary
        shown = {key: part if key in _UNTOUCHED else self._walk(part, key) for key, part in summary.items()}
        of_pairs = shown["distributions"]["regimes"]
        shown["distributions"]["regimes"] = {self.group(name): counts for name, counts in of_pairs.items()}
        shown["warnings"] = [self._quoted(warning) for warning in summary["warnings"]]
        return shown

    def _quoted(self, sentence: str) -> str:
        """A sentence in which quoted names, and a column before a colon at its start, are replaced."""
        sentence = re.sub(r"'([^']+)'", lambda found: f"'{self.group(self.column(found[1]))}'", sentence)
        return re.sub(r"^([^:']+)(?=: )", lambda found: str(self.column(found[1])), sentence)

    def _walk(self, part: Any, key: str, column: str = "") -> Any:
        """A part of the summary; `column` is the one whose values are named."""
        if isinstance(part, Mapping):
            return dict(self._items(part, key, column))
        if isinstance(part, (list, tuple)):
            return [self._walk(item, key if isinstance(item, str) else "", column) for item in part]
        if not isinstance(part, str):
            return part
        if key in _GROUP:
            return self.group(part)
        if key in _COLUMN:
            return part if key == "split" and part in _SPLITS else self.column(part)
        if key in _VALUE and column == "group":
            return self.group(part)
        if key in _VALUE and column:
            sides = part.split(_BETWEEN)
            if column == "groups compared" and all(side in self.groups for side in sides):
                return _BETWEEN.join(map(self.group, sides))
            return self.value(column, part)
        return part

    def _items(self, part: Mapping[str, Any], key: str, column: str) -> Iterator[tuple[str, Any]]:
        column = part.get("split") or part.get("column") or column
        for name, item in part.items():
            if key == "columns":  # names by role
                yield name, [self.column(one) for one in item]
            elif key == "exclusions":
                yield self._quoted(name), item
            elif key in ("segments", "attributes"):
                yield self.column(name), self._walk(item, name, name)
            elif key == "cut_offs":
                yield self.value(column, name), item
            elif key in _BY_GROUP and name in self.groups:
                yield self.group(name), self._walk(item, name, column)
            elif str(name).startswith(_MEAN):
                yield _MEAN + self.group(str(name).removeprefix(_MEAN)), item
            else:
                yield name, self._walk(item, name, column)

    def frame(self, table: pd.DataFrame) -> pd.DataFrame:
        """A table of pairs, cases or reasons with the words for groups, features, reasons and values."""
        if not self.names:
            return table
        changed: dict[str, Any] = {}
        for name in table.columns:
            if name in ("group", "other_group"):
                changed[name] = table[name].map(self.group)
            elif name == "feature" or re.fullmatch(r"reason_\d+", str(name)):
                changed[name] = table[name].map(self.column, na_action="ignore")
            elif name in ("value", "match_value") and "feature" in table:
                pairs = zip(table["feature"], table[name], strict=True)
                changed[name] = [self.value(feature, value) for feature, value in pairs]
        return table.assign(**changed)

    def people(self, table: pd.DataFrame) -> pd.DataFrame:
        """A table of people with the words for columns and values."""
        named = {name.partition("=")[0] for name in self.names if "=" in name} & set(map(str, table.columns))
        changed = {name: [self.value(name, value) for value in table[name]] for name in named}
        return table.assign(**changed).rename(columns=self.column) if self.names else table
