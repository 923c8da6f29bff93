"""Tables of Delta Lake and Iceberg, and queries of DuckDB, as streams of record batches."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow.fs import FileSystem

from evenhand.exceptions import DataFileError, InvalidInputError, LimitError, first_line
from evenhand.inputs.tables.arrow import ParquetFiles, StreamedTable, rows_written, stored
from evenhand.inputs.tables.raw import reading, shown
from evenhand.system.files import PrivateFolder
from evenhand.system.libraries import optional_module
from evenhand.system.processes import limit_resources, run_limited

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
        match = _NAME.fullmatch(text)
        return None if match is None else cls(match[1], match[2], None if match[3] is None else int(match[3]))

    def __str__(self) -> str:
        return self.latest + ("" if self.version is None else f"@{self.version}")

    @property
    def latest(self) -> str:
        """Name of the table shown to users, without its version."""
        return f"{self.kind}:{shown(self.place)}"


_SECONDS = 30.0  # of computing for each batch of rows


def lake_table(name: LakeName, folder: Path | None = None) -> ParquetFiles:
    """A Delta or Iceberg table, read in a process with limits: what is in it, and what it names, may be hostile.

    Parameters
    ----------
    name
        Which one.
    folder
        Where to keep its rows; None for a private folder, removed when the table is no longer used.

    Raises
    ------
    DataFileError
        As `delta_table` and `iceberg_table` do.
    MissingExtraError
        If the library for it is not installed.
    """

    def write(place: Path) -> tuple[Path, str, str]:
        given = (name.kind, name.place, name.version, str(place))
        try:
            facts = run_limited("evenhand.inputs.tables.lakes:store_lake", *given, size=None)
        except LimitError as error:
            raise DataFileError(f"{str(name)!r} cannot be read: its reader {error}.") from None
        return place / facts["file"], facts["content"], facts["version"]

    return stored(str(name), folder, write)


def store_lake(kind: str, place: str, version: int | None, folder: str) -> dict[str, str]:
    """In a process with limits: write the rows of a table to a folder, and tell what they are."""
    name = LakeName(kind, place, version)
    table = delta_table(name) if kind == "delta" else iceberg_table(name)

    def batches() -> Any:
        reader = table.batches()

        def in_time() -> Iterator[Any]:
            for batch in reader:
                limit_resources(seconds=_SECONDS)
                yield batch

        return pa.RecordBatchReader.from_batches(reader.schema, in_time())

    path, content, _ = rows_written(replace(table, batches=batches), Path(folder))
    return {"file": path.name, "version": table.version, "content": content}


_DELTA_ROWS = 1 << 17
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_NOT_BELOW = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*:|/|.*[\\\x00-\x1f]", re.DOTALL
)  # addresses, and what URLs read as ../


def delta_table(name: LakeName) -> StreamedTable:
    """A version of a Delta table, by default the latest.

    Its files are read in name order. If the table has deletion vectors or mapped columns, Delta's engine reads it,
    which guarantees no row order.

    Raises
    ------
    DataFileError
        If there is no such table or version, or its log names a file that is not below its folder.
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
        root = Path(FileSystem.from_uri(table.table_uri)[1]) if table.table_uri.startswith("file:") else None
        for path in pa.table(table.get_add_actions(flatten=True)).column("path").to_pylist():
            if not _is_below(path, root):
                raise _elsewhere(name, path)
        return StreamedTable(
            str(name),
            lambda: _delta_batches(deltalake, table),
            version=f"version {version} of the Delta table {table.metadata().id}",
            identity=f"delta:{table.metadata().id}:{version}",
        )


def _is_below(path: str, root: Path | None) -> bool:
    """Whether a path in the log of a table stays below the table's folder, which is None in a store."""
    while (plain := unquote(path)) != path:
        path = plain
    if _NOT_BELOW.match(path) or ".." in PurePosixPath(path).parts:
        return False
    return root is None or (root / path).resolve().is_relative_to(root.resolve())


def _elsewhere(name: LakeName, path: str) -> DataFileError:
    return DataFileError(
        f"{name.latest!r} names a file outside the folder or the store of the table, {shown(path)!r}; only the files "
        "of the table itself are read: copy the table, so that it has all of its files."
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
_CODE = ("py-io-impl", "py-catalog-impl", "s3.retry-strategy-impl")  # properties that name a class to be called
_SETTINGS = ".pyiceberg.yaml"


def iceberg_table(name: LakeName) -> StreamedTable:
    """A snapshot of an Iceberg table, by default the current one; its files are sorted by name.

    The name consists of a catalog, as configured for pyiceberg, a slash, and the table: `lending/bank.loans`. Or it is
    the path of a metadata file of the table.

    The properties in a table's metadata choose neither code nor a store: files are opened as the user, or the catalog
    that the user configured, says, and only those in the folder or the store of the metadata file.

    Raises
    ------
    DataFileError
        If there is no such catalog, table or snapshot, it has no rows, it names code to run or a file elsewhere.
    MissingExtraError
        If pyiceberg is not installed.
    """
    optional_module("pyiceberg", "An Iceberg table", "pyiceberg", "iceberg")

    catalog, _, identifier = name.place.partition("/")
    is_file = name.place.endswith(_METADATA)
    if not is_file and not (catalog and "." in identifier):
        raise DataFileError(
            f"{name.latest!r} must name a catalog and a table, like iceberg:lending/bank.loans, or a file that ends in "
            f"{_METADATA}."
        )
    with reading(repr(str(name))):
        table = _table_of_file(name) if is_file else _table_of_catalog(name, catalog, identifier)
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


def _table_of_file(name: LakeName) -> Any:
    """The table of a metadata file. `StaticTable.from_metadata` would call the classes that its properties name."""
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.io import load_file_io
    from pyiceberg.serializers import FromInputFile
    from pyiceberg.table import StaticTable

    files = load_file_io(location=name.place)
    metadata = FromInputFile.table_metadata(files.new_input(name.place))
    _check_properties(name, metadata.properties)
    files = _confined(files, name.place, name)
    return StaticTable(("static-table", name.place), metadata, name.place, files, NoopCatalog("static-table"))


def _table_of_catalog(name: LakeName, catalog: str, identifier: str) -> Any:
    from pyiceberg.catalog import load_catalog

    homes = {Path.home().resolve(), Path(os.environ.get("PYICEBERG_HOME") or Path.home()).resolve()}
    if Path(_SETTINGS).is_file() and Path.cwd() not in homes:
        raise DataFileError(
            f"The working folder has a {_SETTINGS}, which may have come with the data, and such a file can name code "
            "to run: move it to your home folder, or set PYICEBERG_HOME to its folder."
        )
    loaded: Any = load_catalog(catalog)
    load_files, sent = loaded._load_file_io, dict[str, Any]()

    def without_properties(properties: Any = None, location: str | None = None) -> Any:
        _check_properties(name, properties or {})
        sent.update(properties or {})
        return load_files(location=location)

    loaded._load_file_io = without_properties
    table = loaded.load_table(identifier)
    # Credentials from the server of a catalog arrive together with the properties of the table.
    own = table.metadata.properties
    granted = {key: value for key, value in sent.items() if own.get(key) != value} | table.config
    place = table.metadata_location or table.location()
    table.io = _confined(load_files(granted, place), place, name)
    return table


def _check_properties(name: LakeName, properties: Any) -> None:
    for key in _CODE:
        if key in properties:
            raise DataFileError(
                f"{name.latest!r} names code to run, in its property {key!r}; a table is only read as data: remove the "
                "property."
            )


def _confined(files: Any, place: str, name: LakeName) -> Any:
    """Let a FileIO open only what is in the folder of a table, or in its store, given the place of its metadata."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    def parts(location: str) -> tuple[str, str, str]:
        scheme, host, path = PyArrowFileIO.parse_location(location)
        return "s3" if scheme in ("s3a", "s3n") else scheme, host, path

    open_file, store, metadata = files.new_input, parts(place)[:2], Path(parts(place)[2])
    folder = (metadata.parents[1] if metadata.parent.name == "metadata" else metadata.parent).resolve()

    def new_input(location: str) -> Any:
        scheme, host, path = parts(location)
        if (scheme, host) != store or (scheme == "file" and not Path(path).resolve().is_relative_to(folder)):
            raise _elsewhere(name, location)
        return open_file(location)

    files.new_input = new_input
    return files


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


_CSV_NAME = re.compile(r"(?:\bfrom|\bjoin|,)\s*'((?:[^']|'')+\.csv(?:\.gz)?)'", re.IGNORECASE)


def _keep_words(connection: Any, file: str) -> None:
    """Have columns such as yes and no be read as words, as they are from the file itself, and not as true and false."""
    source = _quoted("'", file)
    columns = connection.execute(f"describe select * from read_csv({source})").fetchall()
    logical = [name for name, kind, *_ in columns if kind == "BOOLEAN"]

    def with_texts(names: list[str]) -> str:
        types = ", ".join(_quoted("'", name) + ": 'VARCHAR'" for name in names)
        return f"select * from read_csv({source}, types = {{{types}}})"

    words = []
    for name in logical:
        column = _quoted('"', name)
        others = f"{with_texts(logical)} where lower({column}) not in ('true', 'false') limit 1"
        if connection.execute(others).fetchone():
            words.append(name)
    if words:
        view = _quoted('"', file)
        connection.execute(f"create view {view} as {with_texts(words)}")  # found before the file itself


def _quoted(mark: str, name: str) -> str:
    return mark + name.replace(mark, 2 * mark) + mark


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
            for file in {name.replace("''", "'") for name in _CSV_NAME.findall(sql)}:
                _keep_words(connection, file)
            return connection.sql(sql).to_arrow_reader(_QUERY_ROWS)
        except duckdb.Error as error:
            connection.close()
            raise DataFileError(f"The query (--sql) failed: {first_line(error)}.") from error

    return StreamedTable("the query", batches, version=" ".join(sql.split()))
