"""The common form of all datasets, and the three that the package contains."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from importlib.resources import as_file, files

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas import DataFrame

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
    >>> data = load_taiwan()
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
        names, counts = np.unique(self.group.astype(str), return_counts=True)
        members = ", ".join(f"{names[i]} {counts[i]:,}" for i in np.argsort(-counts, kind="stable"))
        positive = f"{100 * self.y.mean():.1f}% of people" if len(self) else "nobody"
        lines = [
            f"Dataset {self.name!r}: {shape}, {len(self.financial_features)} of them financial",
            f"  y: 1 = {self.positive_label}, {positive}",
            f"  {self.group_name}: {members}",
            f"  financial: {', '.join(self.financial_features)}",
        ]
        if self.exclusions:
            reasons = "; ".join(f"{reason} {count:,}" for reason, count in self.exclusions.items())
            lines.append(f"  left out of {self.n_read:,} rows: {reasons}")
        lines.append(f"  source: {self.source} ({self.license})")
        lines.extend(f"  note: {note}" for note in (*self.notes, *self.reservations))
        return "\n".join(lines)


def reservations_on(X: object) -> list[str]:
    """Reservations about the dataset that a table was selected from; none for any other table.

    Examples
    --------
    >>> reservations_on(load_taiwan().X.iloc[:3])
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
        return pd.read_parquet(path)


def embedded_rows(name: str) -> list[dict[str, str]]:
    """Rows of the embedded CSV file `name`.

    Examples
    --------
    >>> embedded_rows("german_codes.csv")[0]
    {'column': 'checking_status', 'code': 'A11', 'value': 'below 0 DM'}
    """
    text = (files("evenhand.datasets") / "files" / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


GERMAN_CODES: dict[str, dict[str, str]] = {}
"""Readable value of each published code.

Categories of `load_german` keep this order, that of the sorted codes that occur (A47 and A95 never do), so
the integer code of a category is its rank among them.
"""
for _row in embedded_rows("german_codes.csv"):
    GERMAN_CODES.setdefault(_row["column"], {})[_row["code"]] = _row["value"]

_FINANCIAL = (
    "credit_amount", "duration", "installment_rate", "residence_since", "age", "existing_credits", "dependents",
)  # fmt: skip
_YOUNG = 25
_SEX_IS_UNKNOWN = (
    "Sex cannot be recovered from personal_status: the published table of codes is wrong, and A92, read as female, "
    "also holds single men (U. Grömping, South German Credit Data, 2019). Nothing here is a finding on women and men."
)
_GROUP_IS_AN_INPUT = (
    "The groups are derived from personal_status as in the paper, and the column is among the inputs.",
)


def load_german(*, group: str = "sex") -> Dataset:
    """German Credit with all 20 attributes; ``y == 1`` is good credit.

    Parameters
    ----------
    group
        ``"sex"``, derived from the personal status as in the paper, or ``"age"``, 25 and under against over 25. The sex
        is not reliable: see the dataset's notes.

    Raises
    ------
    InvalidInputError
        If `group` is neither.

    Examples
    --------
    >>> data = load_german()
    >>> data.X["housing"].cat.categories.tolist()
    ['rent', 'own', 'free']
    >>> int((data.group == "female").sum())
    310
    """
    if group not in ("sex", "age"):
        raise InvalidInputError(f"`group` of German Credit must be 'sex' or 'age', got {group!r}.")
    X = read_embedded("german.parquet")
    y = (X.pop("class") == 1).to_numpy().astype(np.int64)
    if group == "sex":
        members = np.where(X["personal_status"] == "A92", "female", "male")
    else:
        members = np.where(X["age"] <= _YOUNG, "25 or younger", "over 25")
    for column, readable in GERMAN_CODES.items():
        codes = pd.Categorical(X[column], categories=list(readable))
        X[column] = codes.rename_categories(readable)
    return Dataset(
        name="german",
        X=X,
        y=y,
        group=members.astype(object),
        group_name=group,
        financial_features=_FINANCIAL,
        positive_label="good credit",
        source="Statlog (German Credit Data), H. Hofmann, UCI, https://doi.org/10.24432/C5NC77",
        license="CC BY 4.0",
        notes=(
            "The financial features contain age, a protected basis under US law; they are the paper's.",
            *(_GROUP_IS_AN_INPUT if group == "sex" else ()),
        ),
        reservations=(_SEX_IS_UNKNOWN,),
    )


_CATEGORIES = (
    "workclass", "education", "marital-status", "occupation", "relationship", "race", "sex", "native-country",
)  # fmt: skip


def load_adult(*, group: str = "sex") -> Dataset:
    """Adult with all 14 attributes, training file then test file; ``y == 1`` is an income above 50K.

    A published ``?`` is a missing value. Categories are in alphabetical order.

    Parameters
    ----------
    group
        ``"sex"``, as in the paper, or ``"race"``, with five values.

    Raises
    ------
    InvalidInputError
        If `group` is neither.

    Examples
    --------
    >>> data = load_adult(group="race")
    >>> len(data), int(data.y.sum())
    (48842, 11687)
    >>> sorted(set(data.group))
    ['Amer-Indian-Eskimo', 'Asian-Pac-Islander', 'Black', 'Other', 'White']
    """
    if group not in ("sex", "race"):
        raise InvalidInputError(f"`group` of Adult must be 'sex' or 'race', got {group!r}.")
    X = read_embedded("adult.parquet")
    y = (X.pop("income") == ">50K").to_numpy().astype(np.int64)
    members = X[group].to_numpy(dtype=object)
    for column in _CATEGORIES:
        published = pd.Categorical(X[column])
        X[column] = published.remove_categories([c for c in published.categories if c == "?"])
    return Dataset(
        name="adult",
        X=X,
        y=y,
        group=members,
        group_name=group,
        financial_features=("capital-gain", "capital-loss", "hours-per-week", "occupation"),
        positive_label="income above $50K",
        source="Adult (Census Income), B. Becker and R. Kohavi, UCI, https://doi.org/10.24432/C5XW20",
        license="CC BY 4.0",
        notes=(
            "Occupation is a financial feature and a category: matching needs it encoded.",
            "The inputs hold sex and race; fnlwgt is a survey weight, kept as published.",
        ),
    )


_EDUCATION = ("graduate school", "university", "high school", "other or unknown")
_MARRIAGE = ("married", "single", "other or unknown")

TAIWAN_CODES = {
    "EDUCATION": dict(zip((1, 2, 3, 0, 4, 5, 6), (*_EDUCATION, *_EDUCATION[-1:] * 3), strict=True)),
    "MARRIAGE": dict(zip((1, 2, 0, 3), (*_MARRIAGE, *_MARRIAGE[-1:]), strict=True)),
}
"""Readable value of each published code; codes without a published meaning are combined with the one for others."""


def load_taiwan() -> Dataset:
    """Credit-card accounts in Taiwan with 22 attributes; ``y == 1`` is an account that did not default.

    The published label is the default in October 2005, 1 for yes: it is reversed, so that 1 is the favorable outcome.
    Sex is the group and not an input.

    Examples
    --------
    >>> data = load_taiwan()
    >>> len(data), int(data.y.sum())
    (30000, 23364)
    >>> data.X["EDUCATION"].cat.categories.tolist()
    ['graduate school', 'university', 'high school', 'other or unknown']
    """
    X = read_embedded("taiwan.parquet")
    y = (X.pop("default payment next month") == 0).to_numpy().astype(np.int64)
    members = np.where(X.pop("SEX") == 2, "female", "male").astype(object)
    for column, readable in TAIWAN_CODES.items():
        X[column] = pd.Categorical(X[column].map(readable), categories=list(dict.fromkeys(readable.values())))
    return Dataset(
        name="taiwan",
        X=X,
        y=y,
        group=members,
        group_name="sex",
        financial_features=("LIMIT_BAL", "BILL_AMT1", "PAY_AMT1", "PAY_0"),
        positive_label="no default in the next month",
        source="Default of Credit Card Clients, I-Cheng Yeh, UCI, https://doi.org/10.24432/C55S3H",
        license="CC BY 4.0",
        notes=("The columns AGE and MARRIAGE are protected bases under US law.",),
        reservations=("Everyone already has a card: the label is a default on it, not the answer to an application.",),
    )
