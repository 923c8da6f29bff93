"""The result of an SQL query as a table, with DuckDB."""

from __future__ import annotations

from typing import Any

from evenhand.exceptions import DataFileError, InvalidInputError, first_line
from evenhand.inputs.tables.arrow_streams import StreamedTable
from evenhand.system.files import PrivateFolder
from evenhand.system.optional import optional_module

__all__ = ["query"]

_ROWS = 1 << 16
_LIMITS = {
    "threads": 1,  # with several threads, the order of joined and grouped rows changes from run to run
    "memory_limit": "2GB",  # larger results go to the folder below
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_unsigned_extensions": False,
    "python_enable_replacements": False,  # names are tables and files, never variables of this program
}


def query(sql: str) -> StreamedTable:
    """The rows that a query selects from local files.

    The query is a single SELECT. It reads only what the user may read, writes nothing, and loads no extensions, without
    which DuckDB cannot open a connection.

    Raises
    ------
    InvalidInputError
        If it is not a single SELECT.
    DataFileError
        If DuckDB cannot run it.
    MissingExtraError
        If DuckDB is not installed.

    Examples
    --------
    >>> table = query("select 1 as income, 'f' as sex")
    >>> table.name, table.batches().read_all().to_pydict()
    ('the query', {'income': [1], 'sex': ['f']})
    """
    duckdb = optional_module("duckdb", "A query (--sql)", "duckdb", "duckdb")
    _check_statement(duckdb, sql)
    spill = PrivateFolder()
    return StreamedTable("the query", lambda: _answer(duckdb, sql, spill), version=" ".join(sql.split()))


def _check_statement(duckdb: Any, sql: str) -> None:  # noqa: ANN401 - the module
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise DataFileError(_on_mistake(error)) from error
    kinds = [statement.type for statement in statements]
    if kinds != [duckdb.StatementType.SELECT]:
        found = ", ".join(kind.name for kind in kinds) or "nothing"
        raise InvalidInputError(
            f"`sql` must be a single SELECT that reads the people, got {found}; remove everything else."
        )


def _answer(duckdb: Any, sql: str, spill: PrivateFolder) -> Any:  # noqa: ANN401 - a module, a `RecordBatchReader`
    connection = duckdb.connect(":memory:", config={**_LIMITS, "temp_directory": str(spill.path)})
    try:
        connection.execute("set lock_configuration = true")
        return connection.sql(sql).to_arrow_reader(_ROWS)
    except duckdb.Error as error:
        connection.close()
        raise DataFileError(_on_mistake(error)) from error


def _on_mistake(error: Exception) -> str:
    return f"The query (--sql) failed: {first_line(error)}."
