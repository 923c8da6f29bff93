"""Reading the Parquet files that travel with the package."""

from __future__ import annotations

from importlib.resources import as_file, files

import pandas as pd
from pandas import DataFrame

__all__ = ["read_embedded"]


def read_embedded(name: str) -> DataFrame:
    """Table of the embedded file `name`, with values as published.

    Examples
    --------
    >>> read_embedded("german.parquet").shape
    (1000, 21)
    """
    with as_file(files("evenhand.datasets") / "files" / name) as path:
        return pd.read_parquet(path)
