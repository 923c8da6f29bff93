"""Tables of Delta Lake and Iceberg, and queries of DuckDB, as streams of record batches."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from evenhand.exceptions import DataFileError, InvalidInputError, first_line
from evenhand.inputs.tables.arrow import StreamedTable
from evenhand.inputs.tables.raw import reading, shown
from evenhand.system.files import PrivateFolder
from evenhand.system.libraries import optional_module

_NAME = re.compile(r"(delta|iceberg):(.+?)(?:@(\d+))?", re.DOTALL)


@dataclass(frozen=True)
class LakeName:
    """Which table, and which version of it.

    Attributes
    ----------
    kind
        "delta" or "iceberg".
    place
        Folder, address or name in a catalog; may contain a password, so do not show it.
    version
        Number of the version, or of the snapshot; None for the latest.
    """

    kind: str
    place: str = field(repr=False)
    version: int | None = None

    @classmethod
    def of(cls, text: str) -> LakeName | None:
        """Parse the name of a table; None for a path or an address.

        Examples
        --------
        >>> name = LakeName.of("delta:s3://bank/loans@12")
        >>> name.kind, name.place, name.version, str(name)
        ('delta', 's3://bank/loans', 12, 'delta:s3://bank/loans@12')
        >>> print(LakeName.of("delta.parquet"))
        None
        """
        found = _NAME.fullmatch(text)
        return None if found is None else cls(found[1], found[2], None if found[3] is None else int(found[3]))

    def __str__(self) -> str:
        return self.latest + ("" if self.version is None else f"@{self.version}")

    @property
    def latest(self) -> str:
        """Name of the table shown to users, without its version."""
        return f"{self.kind}:{shown(self.place)}"


_DELTA_ROWS = 1 << 17
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
    endpoint = next((os.environ[variable] for variable in _ENDPOINTS if os.environ.get(variable)), "")
    # A plain http endpoint is allowed if the user set it in the environment.
    options = {"allow_http": "true"} if endpoint.startswith("http://") else {}
    try:
        table = deltalake.DeltaTable(name.place, storage_options=options)
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
            lambda: _delta_batches(deltalake, table),
            version=f"version {version} of the Delta table {table.metadata().id}",
            identity=f"delta:{table.metadata().id}:{version}",
        )


def _delta_batches(deltalake: Any, table: Any) -> Any:
    try:
        dataset = table.to_pyarrow_dataset()
    except deltalake.exceptions.DeltaProtocolError:
        return pa.RecordBatchReader.from_stream(table.scan())

    def in_order() -> Iterator[Any]:
        for fragment in sorted(dataset.get_fragments(), key=lambda fragment: str(fragment.path)):
            yield from fragment.to_batches(dataset.schema, batch_size=_DELTA_ROWS, use_threads=False)

    return pa.RecordBatchReader.from_batches(dataset.schema, in_order())


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
    from pyiceberg.catalog import load_catalog
    from pyiceberg.table import StaticTable

    catalog, _, identifier = name.place.partition("/")
    is_file = name.place.endswith(_METADATA)
    if not is_file and not (catalog and "." in identifier):
        raise DataFileError(
            f"{name.latest!r} must name a catalog and a table, like iceberg:lending/bank.loans, or a file that ends in "
            f"{_METADATA}."
        )
    with reading(repr(str(name))):
        table: Any = StaticTable.from_metadata(name.place) if is_file else load_catalog(catalog).load_table(identifier)
        snapshot = table.current_snapshot() if name.version is None else table.snapshot_by_id(name.version)
        if snapshot is None:
            known = ", ".join(str(entry.snapshot_id) for entry in table.history()) or "none"
            wanted = "no snapshot" if name.version is None else f"no snapshot {name.version}"
            raise DataFileError(f"{name.latest!r} has {wanted}; it has {known}.")
        return StreamedTable(
            str(name),
            lambda: _iceberg_batches(table, snapshot.snapshot_id),
            version=f"snapshot {snapshot.snapshot_id} of the Iceberg table {table.metadata.table_uuid}",
            identity=f"iceberg:{table.metadata.table_uuid}:{snapshot.snapshot_id}",
        )


def _iceberg_batches(table: Any, snapshot: int) -> Any:
    from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow

    scan = table.scan(snapshot_id=snapshot)
    schema = schema_to_pyarrow(scan.projection(), include_field_ids=False)
    reader = ArrowScan(table.metadata, table.io, scan.projection(), scan.row_filter)

    def in_order() -> Iterator[Any]:
        for task in sorted(scan.plan_files(), key=lambda task: str(task.file.file_path)):
            for batch in reader.to_record_batches([task]):
                yield from pa.Table.from_batches([batch]).cast(schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, in_order())


_QUERY_ROWS = 1 << 16
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
    try:
        kinds = [statement.type for statement in duckdb.extract_statements(sql)]
    except duckdb.Error as error:
        raise DataFileError(f"The query (--sql) failed: {first_line(error)}.") from error
    if kinds != [duckdb.StatementType.SELECT]:
        got = ", ".join(kind.name for kind in kinds) or "nothing"
        raise InvalidInputError(
            f"`sql` must be a single SELECT that reads the people, got {got}; remove everything else."
        )
    spill = PrivateFolder()

    def batches() -> Any:
        connection = duckdb.connect(":memory:", config={**_LIMITS, "temp_directory": str(spill.path)})
        try:
            connection.execute("set lock_configuration = true")
            return connection.sql(sql).to_arrow_reader(_QUERY_ROWS)
        except duckdb.Error as error:
            connection.close()
            raise DataFileError(f"The query (--sql) failed: {first_line(error)}.") from error

    return StreamedTable("the query", batches, version=" ".join(sql.split()))
