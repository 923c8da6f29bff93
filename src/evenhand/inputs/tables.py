"""Tables of applicants from files, and the columns an audit needs of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from evenhand.exceptions import DataFileError, InvalidInputError
from evenhand.inputs.csv_files import MISSING_WORDS, check_columns_differ, not_utf8, separator_of
from evenhand.inputs.validation import check_columns

__all__ = ["Applicants", "applicants", "read_table"]

_READERS = (".csv", ".csv.gz", ".parquet")


@dataclass(frozen=True)
class Applicants:
    """Features, labels and groups taken from one table, and who was left out of it.

    Attributes
    ----------
    exclusions
        Number of rows left out, by reason.
    by
        Further columns to split figures by, if any.
    """

    X: pd.DataFrame
    y: pd.Series[Any]
    group: pd.DataFrame
    exclusions: dict[str, int] = field(default_factory=dict)
    by: pd.DataFrame | None = None


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a table from a CSV (plain or gzip) or Parquet file.

    Raises
    ------
    DataFileError
        If the file is absent, of another kind, unreadable or empty.
    """
    file = Path(path)
    if not file.is_file():
        raise DataFileError(f"There is no file {str(file)!r}.")
    if not file.name.lower().endswith(_READERS):
        raise DataFileError(f"{str(file)!r} must be one of {', '.join(_READERS)}; the ending tells how to read it.")
    try:
        table = _parquet(file) if file.suffix.lower() == ".parquet" else _csv(file)
    except DataFileError:
        raise
    except UnicodeDecodeError as error:
        raise DataFileError(not_utf8(file)) from error
    except Exception as error:  # whatever a reader raises, the user needs the file's name and the reason
        reason = str(error).strip().split("\n")[0]
        raise DataFileError(f"{str(file)!r} cannot be read: {reason.rstrip('.') or type(error).__name__}.") from error
    if table.empty:
        raise DataFileError(f"{str(file)!r} has no rows.")
    return table


def _csv(file: Path) -> pd.DataFrame:

    # Before version 3.1 pandas gets the last digit of a third of all long numbers wrong, unless it is asked not to.
    is_exact = tuple(int(part) for part in pd.__version__.split(".")[:2]) >= (3, 1)
    return pd.read_csv(
        file,
        sep=separator_of(file),
        na_values=list(MISSING_WORDS),
        keep_default_na=False,
        low_memory=False,
        float_precision=None if is_exact else "round_trip",
    )


def _parquet(file: Path) -> pd.DataFrame:

    check_columns_differ(pq.read_schema(file).names, file)
    return pd.read_parquet(file)


def applicants(
    table: pd.DataFrame,
    *,
    label: str,
    group: Sequence[str],
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    positive_label: str | None = None,
    keep_group: bool = False,
    drop_missing: bool = False,
    by: Sequence[str] = (),
) -> Applicants:
    """Features, labels and groups of a table.

    Parameters
    ----------
    table
        One row per applicant.
    label
        Column of the outcome.
    group
        Columns of the protected attribute; several are intersected.
    features
        Columns the model takes; by default every column but the label, the groups and `drop`.
    drop
        Columns to leave out.
    positive_label
        Value of `label` that is the favorable outcome; needed where it is not 0 or 1.
    keep_group
        Whether group columns are also features.
    drop_missing
        Leave out, and count, rows without a label or a group; otherwise they are an error later on.
    by
        Columns to split figures by; they may be features too.
    """
    names = [str(column) for column in table.columns]
    table = table.set_axis(names, axis=1)
    check_columns([label], names, "--label")
    group_names = check_columns(group, names, "--group")
    dropped = check_columns(drop, names, "--drop") if drop else []
    table, exclusions = _without_missing(table, [label, *group_names]) if drop_missing else (table, {})
    if features is None:
        hidden = {label, *dropped, *(() if keep_group else group_names)}
        features = [column for column in names if column not in hidden]
    features = check_columns(features, names, "The model")
    split = table[check_columns(by, names, "--by")] if by else None
    return Applicants(table[features], _labels(table[label], positive_label), table[group_names], exclusions, split)


def _labels(values: pd.Series[Any], positive_label: str | None) -> pd.Series[Any]:
    if positive_label is None:
        return values
    text = values.astype(str).str.strip()
    if not (text == positive_label).any():
        seen = sorted(text.dropna().unique())[:6]
        raise InvalidInputError(f"--positive-label {positive_label!r} does not occur in the label, which has {seen}.")
    return (text == positive_label).astype("int64").mask(values.isna())


def _without_missing(table: pd.DataFrame, columns: list[str]) -> tuple[pd.DataFrame, dict[str, int]]:
    exclusions = {}
    for column in columns:
        missing = table[column].isna()
        if missing.any():
            exclusions[f"no value in {column!r}"] = int(missing.sum())
            table = table[~missing]
    return table.reset_index(drop=True), exclusions
