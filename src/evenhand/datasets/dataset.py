"""The common form of all datasets, and how to load one by name."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from importlib import import_module
from importlib.resources import as_file, files
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame, read_parquet

from evenhand.exceptions import InvalidInputError

_RESERVATIONS = "evenhand.reservations"


@dataclass(frozen=True, repr=False, eq=False)
class Dataset:
    """Applicants, their outcomes and their groups, row by row.

    Attributes
    ----------
    name
        Its name in `load_dataset`.
    X
        Original columns of shape (n, d): numbers and pandas categories, not encoded, not standardized.
    y
        Labels of shape (n,), 1 for the favorable outcome and 0 for the other.
    group
        Protected group of each person, of shape (n,), as readable strings.
    group_name
        What `group` is, such as ``"sex"``.
    financial_features
        Columns of `X` on which people are matched.
    positive_label
        What ``y == 1`` means.
    source, license
        Where the data come from, and their license.
    exclusions
        Rows left out, each counted once under the first reason that applies.
    notes
        What users of these data should know about their columns.
    reservations
        What a reader of any result from these data should know, whatever columns were used. They are kept in
        ``X.attrs`` when rows and columns are selected, so that an audit can repeat them.

    Examples
    --------
    >>> data = load_dataset("taiwan")
    >>> len(data), data.positive_label
    (30000, 'no default in the next month')
    >>> data
    Dataset 'taiwan': 30,000 people, 22 columns, 4 of them financial
      y: 1 = no default in the next month, 77.9% of people
      sex: female 18,112, male 11,888
      ...
    """

    name: str
    X: DataFrame
    y: NDArray[np.int64]
    group: NDArray[np.object_]
    group_name: str
    financial_features: tuple[str, ...]
    positive_label: str
    source: str
    license: str
    exclusions: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    reservations: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.X.attrs[_RESERVATIONS] = list(self.reservations)

    def __len__(self) -> int:
        return len(self.y)

    @property
    def n_read(self) -> int:
        """Number of rows before any exclusion."""
        return len(self) + sum(self.exclusions.values())

    def __repr__(self) -> str:
        shape = f"{len(self):,} people, {self.X.shape[1]} columns"
        positive = f"{100 * self.y.mean():.1f}% of people" if len(self) else "nobody"
        lines = [
            f"Dataset {self.name!r}: {shape}, {len(self.financial_features)} of them financial",
            f"  y: 1 = {self.positive_label}, {positive}",
            f"  {self.group_name}: {_counts(self.group)}",
            f"  financial: {', '.join(self.financial_features)}",
        ]
        if self.exclusions:
            reasons = "; ".join(f"{reason} {count:,}" for reason, count in self.exclusions.items())
            lines.append(f"  left out of {self.n_read:,} rows: {reasons}")
        lines.append(f"  source: {self.source} ({self.license})")
        lines.extend(f"  note: {note}" for note in (*self.notes, *self.reservations))
        return "\n".join(lines)


def _counts(group: NDArray[np.object_]) -> str:
    values, counts = np.unique(group.astype(str), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return ", ".join(f"{values[i]} {counts[i]:,}" for i in order)


class _Entry(NamedTuple):
    function: str
    description: str


# Loaders are given by name, not imported: each imports this module for `Dataset`.
_LOADERS = {
    "taiwan": _Entry("embedded.load_taiwan", "Taiwan credit cards (UCI), 30,000 accounts, sex; embedded"),
    "german": _Entry("embedded.load_german", "German Credit (UCI), 1,000 loans, sex as the paper reads it; embedded"),
    "adult": _Entry("embedded.load_adult", "Adult census income (UCI), 48,842 people, sex or race; embedded"),
    "hmda": _Entry("hmda.load_hmda", "US mortgage applications (CFPB), race, sex, ethnicity or age; by state and year"),
    "synthetic": _Entry("synthetic.make_synthetic", "the paper's generator, 10,000 people, two groups; seeded"),
}


def dataset_names() -> tuple[str, ...]:
    """Names that `load_dataset` knows.

    Examples
    --------
    >>> dataset_names()
    ('taiwan', 'german', 'adult', 'hmda', 'synthetic')
    """
    return tuple(_LOADERS)


def dataset_descriptions() -> dict[str, str]:
    """One line on each dataset, by name.

    Examples
    --------
    >>> dataset_descriptions()["taiwan"]
    'Taiwan credit cards (UCI), 30,000 accounts, sex; embedded'
    """
    return {name: entry.description for name, entry in _LOADERS.items()}


def load_dataset(name: str, **options: Any) -> Dataset:
    """Load a dataset with its financial features and protected attribute (as in the paper, if it has the data).

    Parameters
    ----------
    name
        One of `dataset_names`.
    **options
        Passed to the dataset's loader: `load_german`, `load_adult`, `load_hmda` or `make_synthetic`; that of
        ``"taiwan"`` has none.

    Raises
    ------
    InvalidInputError
        If there is no such dataset, or its loader has no such option.

    Examples
    --------
    >>> load_dataset("synthetic", n=200).X.shape
    (200, 20)
    """
    if name not in _LOADERS:
        close = difflib.get_close_matches(str(name).lower(), _LOADERS, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else "Use one of those names."
        raise InvalidInputError(f"`name` must be one of {', '.join(map(repr, _LOADERS))}, got {name!r}. {hint}")
    module, function = _LOADERS[name].function.split(".")
    loader = getattr(import_module(f"evenhand.datasets.{module}"), function)
    accepted = [option for option in loader.__annotations__ if option != "return"]
    unknown = sorted(set(options) - set(accepted))
    if unknown:
        raise InvalidInputError(
            f"Dataset {name!r} has no option {', '.join(map(repr, unknown))}; it has {', '.join(accepted) or 'none'}."
        )
    return cast(Dataset, loader(**options))


def reservations_on(X: object) -> list[str]:
    """Reservations about the dataset that a table was selected from; none for any other table.

    Examples
    --------
    >>> reservations_on(load_dataset("taiwan").X.iloc[:3])
    ['Everyone already has a card: the label is a default on it, not the answer to an application.']
    >>> reservations_on([[1.0, 2.0]])
    []
    """
    return list(X.attrs.get(_RESERVATIONS, ())) if isinstance(X, DataFrame) else []


def read_embedded(name: str) -> DataFrame:
    """Table of the embedded file `name`, with values as published.

    Examples
    --------
    >>> read_embedded("german.parquet").shape
    (1000, 21)
    """
    with as_file(files("evenhand.datasets") / "files" / name) as path:
        return read_parquet(path)
