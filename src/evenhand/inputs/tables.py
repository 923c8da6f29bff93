"""Tables of applicants from files."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from evenhand.exceptions import DataFileError, first_line
from evenhand.inputs.csv_files import MISSING_WORDS, check_columns_differ, not_utf8, separator_of

__all__ = ["read_table"]

_READERS = (".csv", ".csv.gz", ".parquet")


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
        raise DataFileError(f"{str(file)!r} cannot be read: {first_line(error)}.") from error
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
