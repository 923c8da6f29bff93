"""Delta Lake tables, read with deltalake."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from evenhand.exceptions import DataFileError
from evenhand.inputs.tables.arrow_streams import StreamedTable
from evenhand.inputs.tables.lake_names import LakeName
from evenhand.inputs.tables.raw import reading
from evenhand.system.optional import optional_module

__all__ = ["delta_table"]

_ROWS = 1 << 17
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


def delta_table(name: LakeName) -> StreamedTable:
    """A version of a Delta table, by default the latest.

    Its files are read in name order. If the table has deletion vectors or mapped columns, Delta's engine reads it,
    which guarantees no row order.

    Raises
    ------
    DataFileError
        If there is no such table or version.
    MissingExtraError
        If deltalake is not installed.
    """
    deltalake = optional_module("deltalake", "A Delta table", "deltalake", "delta")
    try:
        table = deltalake.DeltaTable(name.place, storage_options=_storage_options())
    except deltalake.exceptions.TableNotFoundError:
        raise DataFileError(f"There is no Delta table {name.latest!r}; check its name.") from None
    except Exception as error:
        with reading(repr(str(name))):
            raise error
    if name.version is not None and name.version > table.version():
        raise DataFileError(
            f"{name.latest!r} has no version {name.version}: the latest is {table.version()}; name that or an earlier "
            "one."
        )
    with reading(repr(str(name))):
        if name.version is not None:
            table.load_as_version(name.version)
        version = table.version()
        return StreamedTable(
            str(name),
            lambda: _batches(deltalake, table),
            version=f"version {version} of the Delta table {table.metadata().id}",
            identity=f"delta:{table.metadata().id}:{version}",
        )


def _batches(deltalake: Any, table: Any) -> Any:  # noqa: ANN401 - a module, a table, a `RecordBatchReader`
    try:
        dataset = table.to_pyarrow_dataset()
    except deltalake.exceptions.DeltaProtocolError:
        return pa.RecordBatchReader.from_stream(table.scan())
    return pa.RecordBatchReader.from_batches(dataset.schema, _in_order(dataset))


def _in_order(dataset: Any) -> Iterator[Any]:  # noqa: ANN401 - a dataset of pyarrow
    for fragment in sorted(dataset.get_fragments(), key=lambda fragment: str(fragment.path)):
        yield from fragment.to_batches(dataset.schema, batch_size=_ROWS, use_threads=False)


def _storage_options() -> dict[str, str]:
    """Allow deltalake a plain http endpoint that the user set in the environment."""
    endpoint = next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), "")
    return {"allow_http": "true"} if endpoint.startswith("http://") else {}
