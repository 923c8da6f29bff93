"""People in a Spark table, written down once as Parquet so that every row has a number that stays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from evenhand.auditing.streaming.manifest import is_begun
from evenhand.auditing.streaming.spark_sessions import is_spark_frame, reason
from evenhand.auditing.streaming.store import Store
from evenhand.exceptions import DataFileError, InvalidInputError, InvalidTypeError, StreamError
from evenhand.inputs.roles import Columns
from evenhand.inputs.tables.arrow_files import ParquetFiles
from evenhand.system.optional import optional_module

__all__ = ["ROWS", "spark_frame", "written_rows"]

ROWS = "rows"
"""Folder of the rows of a Spark table, within that of the audit."""

_NOTE = "rows.json"


def spark_frame(source: Any, session: Any) -> Any:  # noqa: ANN401
    """The Spark DataFrame that a source is or names; None where it is files.

    Parameters
    ----------
    source
        A DataFrame, a path, or the name of a table.
    session
        The Spark session; None for an engine that is not Spark.

    Raises
    ------
    InvalidInputError
        If a DataFrame comes without Spark.
    DataFileError
        If there is neither a file nor a table of the name.
    """
    if is_spark_frame(source):
        if session is None:
            raise InvalidInputError('A Spark DataFrame is audited by Spark: pass `engine="spark"`, too.')
        return source
    if not isinstance(source, (str, os.PathLike)):
        kinds = "the path of a file or folder, or a Spark DataFrame"
        raise InvalidTypeError(f"`source` must be {kinds}, got {type(source).__name__}; `evenhand.audit` takes tables.")
    if session is None or "://" in os.fspath(source) or Path(source).exists():
        return None
    try:
        frame = session.table(os.fspath(source))
        frame.schema  # noqa: B018 - asks the server, which is told nothing before
    except Exception as error:  # of PySpark, Java and gRPC alike
        raise DataFileError(f"There is no file and no Spark table {os.fspath(source)!r} ({reason(error)}).") from error
    return frame


def written_rows(frame: Any, columns: Columns, store: Store, batch_rows: int) -> ParquetFiles:  # noqa: ANN401
    """The columns that an audit needs of a Spark table, written by Spark to the folder of the audit.

    They are written once. An audit that goes on is of the rows that it was begun with. Rows are in the order of the
    ids, if there are any, else in the order in which Spark gives them.

    Raises
    ------
    InvalidInputError
        If the folder holds an audit of different columns.
    StreamError
        If Spark cannot write, or the folder is not the same one for Spark and for this process.
    """
    asked = {"columns": columns.needed, "ids": columns.ids}
    folder = store.folder.absolute() / ROWS
    if is_begun(store):
        note = store.read_json(_NOTE)
        if note is None or {name: note[name] for name in asked} != asked:
            raise InvalidInputError(
                f"`out` already holds an audit, {str(store.folder)!r}, of different rows or columns; name another "
                "folder."
            )
        return ParquetFiles.at(folder)
    n_rows = _write(frame, columns, folder, batch_rows)
    n_seen = sum(pq.read_metadata(file).num_rows for file in folder.rglob("*.parquet"))
    if n_seen != n_rows:
        raise StreamError(
            f"Spark wrote {n_rows:,} rows to {str(folder)!r}, but {n_seen:,} are there for this process: `out` "
            "(--out) must be a folder on storage that this process and all executors share, such as /Volumes or a "
            "network drive."
        )
    if not n_rows:
        raise DataFileError("The Spark table has no rows.")
    store.write_json(_NOTE, {**asked, "n_rows": n_rows})
    return ParquetFiles.at(folder)


def _write(frame: Any, columns: Columns, folder: Path, batch_rows: int) -> int:  # noqa: ANN401
    """Write columns of a table, and return the number of rows as Spark counts them."""
    sql = optional_module("pyspark.sql", "`engine='spark'`", "PySpark", "spark")
    functions = optional_module("pyspark.sql.functions", "`engine='spark'`", "PySpark", "spark")
    counted = sql.Observation()
    rows = frame.select([functions.col(_quoted(name)) for name in columns.needed])
    if columns.ids is not None:
        rows = rows.orderBy(functions.col(_quoted(columns.ids)))
    rows = rows.observe(counted, functions.count(functions.lit(1)).alias("n"))
    try:
        rows.write.mode("overwrite").option("maxRecordsPerFile", batch_rows).parquet(_address(folder))
        return int(counted.get["n"])
    except Exception as error:  # of PySpark, Java and gRPC alike
        raise StreamError(f"Spark could not write the rows to {str(folder)!r} ({reason(error)}).") from error


def _quoted(name: str) -> str:
    """A name of a column, in which a dot does not stand for a part.

    Examples
    --------
    >>> _quoted("loan.amount")
    '`loan.amount`'
    """
    return f"`{name.replace('`', '``')}`"


def _address(folder: Path) -> str:
    """A folder as Spark calls it: Databricks has volumes and its file system under paths, others files of a machine.

    Examples
    --------
    >>> _address(Path("/Volumes/main/lending/audits")), _address(Path("/dbfs/audits")), _address(Path("/mnt/audits"))
    ('/Volumes/main/lending/audits', 'dbfs:/audits', 'file:///mnt/audits')
    """
    if folder.parts[1:2] == ("Volumes",):
        return folder.as_posix()
    if folder.parts[1:2] == ("dbfs",):
        return f"dbfs:/{folder.relative_to('/dbfs').as_posix()}"
    return folder.as_uri()
