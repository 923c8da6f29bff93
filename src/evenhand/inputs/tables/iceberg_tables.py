"""Apache Iceberg tables, read with pyiceberg."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from evenhand.exceptions import DataFileError
from evenhand.inputs.tables.arrow_streams import StreamedTable
from evenhand.inputs.tables.lake_names import LakeName
from evenhand.inputs.tables.raw import reading
from evenhand.system.optional import optional_module

__all__ = ["iceberg_table"]

_METADATA = ".metadata.json"


def iceberg_table(name: LakeName) -> StreamedTable:
    """A snapshot of an Iceberg table, by default the current one; its files are sorted by name.

    The name consists of a catalog, as configured for pyiceberg, a slash, and the table: `lending/bank.loans`. Or it is
    the path of a metadata file of the table.

    Raises
    ------
    DataFileError
        If there is no such catalog, table or snapshot, or it has no rows.
    MissingExtraError
        If pyiceberg is not installed.
    """
    optional_module("pyiceberg", "An Iceberg table", "pyiceberg", "iceberg")
    catalog, slash, identifier = name.place.partition("/")
    if not name.place.endswith(_METADATA) and not (catalog and slash and "." in identifier):
        raise DataFileError(
            f"{name.latest!r} must name a catalog and a table, like iceberg:lending/bank.loans, or a file that ends in "
            f"{_METADATA}."
        )
    with reading(repr(str(name))):
        table = _opened(name, catalog, identifier)
        snapshot = table.current_snapshot() if name.version is None else table.snapshot_by_id(name.version)
        if snapshot is None:
            known = ", ".join(str(entry.snapshot_id) for entry in table.history()) or "none"
            wanted = "no snapshot" if name.version is None else f"no snapshot {name.version}"
            raise DataFileError(f"{name.latest!r} has {wanted}; it has {known}.")
        return StreamedTable(
            str(name),
            lambda: _batches(table, snapshot.snapshot_id),
            version=f"snapshot {snapshot.snapshot_id} of the Iceberg table {table.metadata.table_uuid}",
            identity=f"iceberg:{table.metadata.table_uuid}:{snapshot.snapshot_id}",
        )


def _opened(name: LakeName, catalog: str, identifier: str) -> Any:  # noqa: ANN401 - a table of pyiceberg
    from pyiceberg.catalog import load_catalog
    from pyiceberg.table import StaticTable

    if name.place.endswith(_METADATA):
        return StaticTable.from_metadata(name.place)
    return load_catalog(catalog).load_table(identifier)


def _batches(table: Any, snapshot: int) -> Any:  # noqa: ANN401 - a table of pyiceberg, a `RecordBatchReader`
    from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow

    scan = table.scan(snapshot_id=snapshot)
    schema = schema_to_pyarrow(scan.projection(), include_field_ids=False)
    reader = ArrowScan(table.metadata, table.io, scan.projection(), scan.row_filter)

    def in_order() -> Iterator[Any]:
        for task in sorted(scan.plan_files(), key=lambda task: str(task.file.file_path)):
            for batch in reader.to_record_batches([task]):
                yield from pa.Table.from_batches([batch]).cast(schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, in_order())
