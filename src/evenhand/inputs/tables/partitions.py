"""Columns given by the names of folders, as in Hive: `year=2024/part-0.parquet`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.dataset as ds

from evenhand.exceptions import DataFileError

__all__ = ["partition_values"]

_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")


def partition_values(paths: Sequence[str], where: str) -> tuple[pa.Schema, tuple[Mapping[str, object], ...]]:
    """Names and types of the columns given by the names of folders, and the values of each file.

    A column has whole numbers if every value is one in the usual notation; otherwise, as with codes such as 01, it is
    text. Hive's mark for a missing value is recognized.

    Parameters
    ----------
    paths
        Paths of files, below the folder of the table, with forward slashes.
    where
        Name of the table, for messages.

    Raises
    ------
    DataFileError
        If the folders of two files name different columns.

    Examples
    --------
    >>> schema, values = partition_values(["year=2024/state=01/a.parquet", "year=2025/state=12/b.parquet"], "'loans'")
    >>> dict(zip(schema.names, map(str, schema.types), strict=True)), values[0]["year"], values[0]["state"]
    ({'year': 'int64', 'state': 'string'}, 2024, '01')
    """
    folders = [[part for part in path.split("/")[:-1] if "=" in part] for path in paths]
    names = [tuple(part.partition("=")[0] for part in parts) for parts in folders]
    other = next((place for place, found in enumerate(names) if found != names[0]), None)
    if other is not None:
        raise DataFileError(
            f"{where} has files in folders that name different columns: {paths[0]!r} {list(names[0])}, "
            f"{paths[other]!r} {list(names[other])}; all files must be in folders with the same names."
        )
    as_text = _read(folders, pa.schema([(name, pa.string()) for name in (names[0] if names else ())]))
    schema = pa.schema([(name, _type([found.get(name) for found in as_text])) for name in (names[0] if names else ())])
    return schema, tuple(_read(folders, schema))


def _read(folders: Sequence[Sequence[str]], schema: pa.Schema) -> list[Mapping[str, object]]:
    hive = ds.HivePartitioning(schema)
    return [ds.get_partition_keys(hive.parse("/".join([*parts, ""]))) for parts in folders]


def _type(values: Sequence[object]) -> pa.DataType:
    """The type of values that were read as text."""
    given = [str(value) for value in values if value is not None]
    return pa.int64() if given and all(map(_WHOLE.fullmatch, given)) else pa.string()
