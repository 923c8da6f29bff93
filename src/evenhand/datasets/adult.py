"""Adult: 48,842 people of the 1994 US census, embedded in the package."""

from __future__ import annotations

import numpy as np
import pandas as pd

from evenhand.datasets.dataset import Dataset, read_embedded
from evenhand.exceptions import InvalidInputError

__all__ = ["load_adult"]

_CATEGORIES = (
    "workclass",
    "education",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "native-country",
)


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
