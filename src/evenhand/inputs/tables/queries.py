"""The answer to a query in SQL as a table, by DuckDB."""

from __future__ import annotations

from typing import Any

from evenhand.exceptions import DataFileError, InvalidInputError, first_line
from evenhand.inputs.tables.arrow_streams import StreamedTable
from evenhand.system.files import PrivateFolder
from evenhand.system.optional import optional_module

__all__ = ["query"]

_ROWS = 1 << 16
_LIMITS = {
    "threads": 1,  # with several, the order of joined and grouped rows changes from run to run
    "memory_limit": "2GB",  # what is larger goes to the folder below
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_unsigned_extensions": False,
    "python_enable_replacements": False,  # names are tables and files, never variables of this program
}


def query(sql: str) -> StreamedTable:
    """The rows that a query selects from files of this machine.

    The query is one SELECT. It reads what the user may read, and no more: it writes nothing, and installs and loads no
    extension, without which DuckDB opens no connection.

    Raises
    ------
    InvalidInputError
        If it is not one SELECT.
    DataFileError
        If DuckDB does not understand it.
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
            f"`sql` must be one SELECT that reads the people, got {found}; leave out what else it does."
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
    return f"The query (--sql) cannot be answered: {first_line(error)}."
