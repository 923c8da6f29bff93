"""Taiwan: 30,000 credit-card accounts of 2005, embedded in the package."""

from __future__ import annotations

import numpy as np
import pandas as pd

from evenhand.datasets.dataset import Dataset, read_embedded

__all__ = ["TAIWAN_CODES", "load_taiwan"]

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
