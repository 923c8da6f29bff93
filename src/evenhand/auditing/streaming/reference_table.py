"""The people that a streamed audit matches in, as a table in memory."""

from __future__ import annotations

import os
from typing import Any

import narwhals as nw
import pyarrow as pa

from evenhand.exceptions import InvalidTypeError
from evenhand.inputs.read_options import ReadOptions
from evenhand.inputs.tables import open_table, typed
from evenhand.inputs.validation import check_columns

__all__ = ["reference_table"]


def reference_table(reference: Any, columns: list[str], reading: ReadOptions) -> pa.Table:  # noqa: ANN401
    """Columns of the reference, which is a table in memory or anything that `evenhand.read_table` accepts.

    Raises
    ------
    InvalidInputError
        If a column is missing.
    InvalidTypeError
        If the reference is not a table.
    """
    who = "The reference must have the columns of the source, which"
    table = None if isinstance(reference, (str, os.PathLike)) else _in_memory(reference)
    if table is not None:
        return table.select(check_columns(columns, table.column_names, who))
    if not isinstance(reference, (str, os.PathLike)) and not hasattr(reference, "__arrow_c_stream__"):
        raise InvalidTypeError(
            "`reference` must be the path of a file, an address or a pandas, polars or pyarrow table, got "
            f"{type(reference).__name__}."
        )
    raw = open_table(reference, reading)
    return typed(raw, check_columns(columns, raw.schema.names, who), reading).table


def _in_memory(reference: Any) -> pa.Table | None:  # noqa: ANN401
    """The table if it is already in memory; None for any other source."""
    if isinstance(reference, pa.Table):
        return reference
    frame = nw.from_native(reference, eager_only=True, pass_through=True)
    return frame.to_arrow() if isinstance(frame, nw.DataFrame) else None
