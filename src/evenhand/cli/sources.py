"""The table of applicants named on the command line: a path, an address, a versioned table or a query."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from evenhand.cli.options import AuditPlan, CheckPlan, TablePlan
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.read_options import ReadOptions

__all__ = ["TableArgument", "is_streamed", "named_table", "opened_table", "read_in"]

TableArgument = Annotated[
    str | None,
    typer.Argument(
        help="Table of applicants, one row each: a CSV, Parquet, Arrow, Excel, SAS, Stata or SPSS file; a folder of "
        "Parquet files; an address (s3://, gs://, abfss://, https://); delta:PATH@VERSION or "
        "iceberg:CATALOG/TABLE@SNAPSHOT; with --engine spark, the name of a table. "
        "Use --sql instead to select the people with a query."
    ),
]
"""Where the people are."""


def named_table(data: str | None, plan: AuditPlan | CheckPlan | TablePlan, folder: Path | None = None) -> Any:  # noqa: ANN401
    """Return what the command line names: a local path, or anything else as an open table.

    Parameters
    ----------
    data
        Path or address.
    plan
        Its query replaces `data`.
    folder
        Where to store rows that can be read only once; None for a private folder.

    Raises
    ------
    InvalidInputError
        If both `data` and a query are given, or neither.
    """
    if data is not None and plan.sql is not None:
        raise InvalidInputError(f"The table {_shown(data)!r} and --sql both name the people: use only one of them.")
    if plan.sql is not None:
        from evenhand.inputs.tables import open_table
        from evenhand.inputs.tables.queries import query

        return open_table(query(plan.sql), folder=folder)
    if data is None:
        raise InvalidInputError(
            "The table of applicants is missing: name a file, a folder or an address, or use --sql."
        )
    return opened_table(data, plan, folder)


def opened_table(data: str, plan: AuditPlan | CheckPlan | TablePlan, folder: Path | None = None) -> Any:  # noqa: ANN401
    """Return a local path unchanged, and anything else as an open table, so that it is fetched once."""
    from evenhand.inputs.tables import is_near, open_table

    reading = ReadOptions(**{option.name: getattr(plan, option.name) for option in fields(ReadOptions)})
    return Path(data) if is_near(data) else open_table(data, reading, folder=folder)


def is_streamed(data: str | None, plan: AuditPlan) -> bool:
    """Whether people are read in batches, because the user asked for it or they are in a folder of files."""
    from evenhand.inputs.tables import is_folder

    return plan.stream or (data is not None and is_folder(data))


def read_in(people: Any, out: Path) -> Any:  # noqa: ANN401
    """What an audit in a folder read: the named table, or the rows that Spark stored there."""
    if not isinstance(people, Path) or people.exists():
        return people
    from evenhand.auditing.streaming.spark_tables import ROWS

    return out / ROWS


def _shown(data: str) -> str:
    from evenhand.inputs.tables.addresses import shown

    return shown(data)
