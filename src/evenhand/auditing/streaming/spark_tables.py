"""People in a Spark table, stored once as Parquet so that every row has a permanent number."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from evenhand.auditing.options import StreamOptions
from evenhand.auditing.streaming.engines.spark_sessions import is_spark_frame, reason, spark_session
from evenhand.auditing.streaming.manifest import is_begun
from evenhand.auditing.streaming.source import rows_in_batch
from evenhand.auditing.streaming.store import Store
from evenhand.exceptions import DataFileError, InvalidInputError, StreamError
from evenhand.inputs.tables.arrow_files import ParquetFiles
from evenhand.inputs.tables.data_files import LocalFile
from evenhand.inputs.tables.files import is_near
from evenhand.system.optional import optional_module

__all__ = ["ROWS", "at_rest"]

ROWS = "rows"
"""Folder of the rows of a Spark table, inside that of the audit."""

_NOTE = "rows.json"


def at_rest(
    source: Any,  # noqa: ANN401 - whatever `audit_stream` takes
    how: StreamOptions,
    store: Store,
    ids: str | None,
) -> Any:  # noqa: ANN401
    """Return a Spark table as files that Spark wrote to the folder of the audit, and any other source unchanged.

    They are written once. A resumed audit uses the rows that it was started with. Rows are in the order of the
    ids, if there are any, else in the order in which Spark returns them.

    Raises
    ------
    DataFileError
        If there is neither a file nor a table with this name, or the table has no rows.
    InvalidInputError
        If the folder holds an audit with different columns.
    StreamError
        If Spark cannot write, or the folder is not the same one for Spark and for this process.
    """
    frame = _frame(source, how.scheduler) if how.engine == "spark" else None
    if frame is None:
        return source
    folder = store.folder.absolute() / ROWS
    asked = {"columns": [list(column) for column in frame.dtypes], "ids": ids}
    if not is_begun(store):
        n_rows = _write(frame, ids, folder, rows_in_batch(sys.maxsize, how.batch_rows))
        _check_written(n_rows, folder)
        store.write_json(_NOTE, asked)
    elif store.read_json(_NOTE) != asked:
        raise InvalidInputError(
            f"`out` already holds an audit, {str(store.folder)!r}, of a table with different columns or ids; choose a "
            "different folder."
        )
    return ParquetFiles.at(LocalFile.at(folder))


def _frame(source: Any, scheduler: str | None) -> Any:  # noqa: ANN401
    """The Spark DataFrame that a source is or names; None if it is something else."""
    if is_spark_frame(source):
        return source
    is_name = isinstance(source, (str, os.PathLike)) and is_near(source) and not Path(source).exists()
    if not is_name:
        return None
    session = spark_session(scheduler)
    try:
        frame = session.table(os.fspath(source))
        frame.schema  # noqa: B018 - asks the server, which is told nothing before
    except Exception as error:  # of PySpark, Java and gRPC alike
        raise DataFileError(f"There is no file and no Spark table {os.fspath(source)!r} ({reason(error)}).") from error
    return frame


def _check_written(n_rows: int, folder: Path) -> None:
    """Reject a table without rows, and rows that this process cannot see."""
    n_seen = sum(pq.read_metadata(file).num_rows for file in folder.rglob("*.parquet"))
    if n_seen != n_rows:
        raise StreamError(
            f"Spark wrote {n_rows:,} rows to {str(folder)!r}, but this process sees {n_seen:,}: `out` "
            "(--out) must be a folder on storage that this process and all executors share, such as /Volumes or a "
            "network drive."
        )
    if not n_rows:
        raise DataFileError("The Spark table has no rows.")


def _write(frame: Any, ids: str | None, folder: Path, rows_in_file: int) -> int:  # noqa: ANN401
    """Write a table, and return the number of rows as Spark counts them."""
    sql = optional_module("pyspark.sql", "`engine='spark'`", "PySpark", "spark")
    functions = optional_module("pyspark.sql.functions", "`engine='spark'`", "PySpark", "spark")
    counted = sql.Observation()
    rows = frame if ids is None else frame.orderBy(functions.col(_quoted(ids)))
    rows = rows.observe(counted, functions.count(functions.lit(1)).alias("n"))
    try:
        rows.write.mode("overwrite").option("maxRecordsPerFile", rows_in_file).parquet(_address(folder))
        return int(counted.get["n"])
    except Exception as error:  # of PySpark, Java and gRPC alike
        raise StreamError(f"Spark could not write the rows to {str(folder)!r} ({reason(error)}).") from error


def _quoted(name: str) -> str:
    """Quote the name of a column, so that a dot does not separate parts.

    Examples
    --------
    >>> _quoted("loan.amount")
    '`loan.amount`'
    """
    return f"`{name.replace('`', '``')}`"


def _address(folder: Path) -> str:
    """A folder in Spark's notation: Databricks has volumes and its file system under paths, others have local files.

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
