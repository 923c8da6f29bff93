"""Tables that try to run code, or to have files read that are not theirs. Each is read as data, or refused."""

import json
import pickle
import sys
import zipfile
from pathlib import Path
from typing import ClassVar

import deltalake
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.utils.config import Config

from evenhand import cli
from evenhand.exceptions import DataFileError
from evenhand.inputs.tables import read_table

PEOPLE = pa.table({"income": [1.5, 2.5, 3.5], "sex": ["f", "m", "f"]})
SECRET = pa.table({"income": [777.0], "sex": ["secret"]})


class Trap:
    """What a table names as its reader of files; pyiceberg would import and call it."""

    calls: ClassVar[list[object]] = []

    def __init__(self, *given):
        self.calls.append(given)


@pytest.fixture(autouse=True)
def no_calls(monkeypatch):
    monkeypatch.setattr(Trap, "calls", [])
    monkeypatch.setitem(sys.modules, "a_trap", sys.modules[__name__])


@pytest.fixture
def secret(tmp_path):
    folder = tmp_path / "secret"
    folder.mkdir()
    pq.write_table(SECRET, folder / "people.parquet")
    return folder / "people.parquet"


@pytest.fixture
def iceberg(tmp_path, monkeypatch):
    monkeypatch.setenv("PYICEBERG_CATALOG__LENDING__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LENDING__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    catalog = load_catalog("lending")
    catalog.create_namespace("bank")
    table = catalog.create_table("bank.loans", schema=PEOPLE.schema)
    table.append(PEOPLE)
    yield table
    catalog.engine.dispose()


def metadata_of(table):
    return Path(table.metadata_location.removeprefix("file://"))


def changed(table, change):
    """The path of the metadata file of a table, with a change."""
    path = metadata_of(table)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize("key", ["py-io-impl", "py-catalog-impl", "s3.retry-strategy-impl"])
@pytest.mark.parametrize("place", ["file", "catalog"])
def test_a_class_named_by_an_iceberg_table_is_not_called(iceberg, place, key):
    path = changed(iceberg, lambda content: content["properties"].update({key: "a_trap.Trap"}))
    with pytest.raises(DataFileError, match=f"names code to run, in its property '{key}'"):
        read_table(f"iceberg:{path}" if place == "file" else "iceberg:lending/bank.loans")
    assert Trap.calls == []


def test_an_iceberg_table_does_not_start_a_program(iceberg, tmp_path, monkeypatch, capsys):
    mark = tmp_path / "mark"
    wanted = {"py-io-impl": "subprocess.Popen", "touch": "", str(mark): ""}
    path = changed(iceberg, lambda content: content.update(properties=wanted))
    monkeypatch.setattr(sys, "argv", ["evenhand", "check", f"iceberg:{path}", "--out", str(tmp_path / "check")])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "names code to run" in capsys.readouterr().err
    assert not mark.exists()


def test_the_properties_of_an_iceberg_table_choose_no_store(iceberg, monkeypatch):
    """In a store, these would send every request, and the credentials of the user, to another server."""
    seen, begin = [], PyArrowFileIO.__init__
    monkeypatch.setattr(PyArrowFileIO, "__init__", lambda io, given: (seen.append(given), begin(io, given))[1])
    path = changed(iceberg, lambda content: content["properties"].update({"s3.endpoint": "https://evil.example"}))
    for name in (f"iceberg:{path}", "iceberg:lending/bank.loans"):
        assert len(read_table(name)) == len(PEOPLE)
    assert seen
    assert not any("s3.endpoint" in given for given in seen)


@pytest.mark.parametrize("place", ["{folder}/secret/list.avro", "file:{folder}/x.avro", "s3://evil/list.avro"])
def test_an_iceberg_table_reads_no_list_of_files_elsewhere(iceberg, tmp_path, place):
    def change(content):
        content["snapshots"][-1]["manifest-list"] = place.format(folder=tmp_path)

    path = changed(iceberg, change)
    with pytest.raises(DataFileError, match="names a file outside the folder or the store of the table"):
        read_table(f"iceberg:{path}")


def test_an_iceberg_table_reads_no_rows_elsewhere(iceberg, secret):
    iceberg.add_files([f"file://{secret}"])
    for name in ("iceberg:lending/bank.loans", f"iceberg:{metadata_of(iceberg.refresh())}"):
        with pytest.raises(DataFileError, match=r"outside the folder or the store of the table, '.*people\.parquet'"):
            read_table(name)


def test_a_link_inside_an_iceberg_table_leads_nowhere(iceberg, secret):
    (file,) = (Path(task.file.file_path.removeprefix("file://")) for task in iceberg.scan().plan_files())
    file.unlink()
    file.symlink_to(secret)
    with pytest.raises(DataFileError, match="outside the folder"):
        read_table(f"iceberg:{metadata_of(iceberg)}")


@pytest.mark.usefixtures("iceberg")
def test_settings_of_catalogs_that_came_with_the_data_are_not_used(tmp_path, monkeypatch):
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / ".pyiceberg.yaml").write_text("catalog:\n  lending:\n    py-io-impl: a_trap.Trap\n")
    monkeypatch.chdir(folder)
    with pytest.raises(DataFileError, match=r"may have come with the data.*PYICEBERG_HOME"):
        read_table("iceberg:lending/bank.loans")
    monkeypatch.setenv("PYICEBERG_HOME", str(folder))
    assert len(read_table("iceberg:lending/bank.loans")) == len(PEOPLE)


@pytest.fixture(params=["pyarrow", "deltalake"])
def delta(request, tmp_path, monkeypatch):
    """A table that pyarrow reads, and one that Delta's own engine reads, as those with deletion vectors."""
    deltalake.write_deltalake(tmp_path / "loans", PEOPLE)
    if request.param == "deltalake":

        def refuse(*_):
            raise deltalake.exceptions.DeltaProtocolError("deletion vectors")

        monkeypatch.setattr(deltalake.DeltaTable, "to_pyarrow_dataset", refuse)
    return tmp_path / "loans"


def with_entry(table, path, size):
    entry = {"path": path, "partitionValues": {}, "size": size, "modificationTime": 1, "dataChange": True}
    (table / "_delta_log" / f"{1:020d}.json").write_text(json.dumps({"add": entry}) + "\n")


@pytest.mark.parametrize(
    "path",
    [
        "../secret/people.parquet",
        "{folder}/secret/people.parquet",
        "file://{folder}/secret/people.parquet",
        "%2E%2E/secret/people.parquet",
        "%252E%252E/secret/people.parquet",
        "x/../../secret/people.parquet",
        "..\\secret\\people.parquet",
        ".\t./secret/people.parquet",
        "s3://evil/people.parquet",
        "link.parquet",
    ],
)
def test_the_log_of_a_delta_table_names_only_its_own_files(delta, secret, path):
    (delta / "link.parquet").symlink_to(secret)
    with_entry(delta, path.format(folder=delta.parent), secret.stat().st_size)
    with pytest.raises(DataFileError, match="names a file outside the folder or the store of the table"):
        read_table(f"delta:{delta}")


def test_an_ordinary_file_of_a_delta_table_is_read(delta):
    folder = delta / "name=a b%3Ac"
    folder.mkdir()
    pq.write_table(PEOPLE, folder / "part.parquet")
    with_entry(delta, "name=a%20b%253Ac/part.parquet", (folder / "part.parquet").stat().st_size)
    assert len(read_table(f"delta:{delta}")) == 2 * len(PEOPLE)


@pytest.mark.parametrize(
    "address",
    [
        "zip://people.csv::file://{folder}/people.zip",
        "reference://people.csv::file://{folder}/references.json",
        "simplecache://people.csv::file://{folder}/people.csv",
        "memory://x::simplecache://y.csv",
    ],
)
def test_chained_addresses_are_refused(tmp_path, address):
    with zipfile.ZipFile(tmp_path / "people.zip", "w") as file:
        file.writestr("people.csv", "income,sex\n1,f\n")
    with pytest.raises(DataFileError, match="chains addresses with '::'"):
        read_table(address.format(folder=tmp_path))


@pytest.mark.parametrize("address", ["simplecache::file://{folder}/p.csv", "filecache::memory://p.csv"])
def test_a_chained_prefix_is_a_path(tmp_path, address):
    (tmp_path / "p.csv").write_text("income,sex\n1,f\n")
    with pytest.raises(DataFileError, match="There is no file"):
        read_table(address.format(folder=tmp_path))


class _Bomb:
    def __reduce__(self):
        return Trap, ("unpickled",)


@pytest.mark.parametrize("ending", ["parquet", "feather"])
def test_pickled_types_and_metadata_stay_bytes(tmp_path, ending):
    """Early versions of Arrow unpickled extension types as soon as a file was opened."""
    bomb = pickle.dumps(_Bomb())
    of_column = {b"ARROW:extension:name": b"arrow.py_extension_type", b"ARROW:extension:metadata": bomb}
    of_table = {b"pandas": _pandas_metadata(bomb)}
    schema = pa.schema([PEOPLE.schema.field("income").with_metadata(of_column), PEOPLE.schema.field("sex")], of_table)
    file = tmp_path / f"people.{ending}"
    table = PEOPLE.cast(schema)
    if ending == "parquet":
        pq.write_table(table, file)
    else:
        pyarrow.feather.write_feather(table, file)
    assert read_table(file)["income"].tolist() == [1.5, 2.5, 3.5]
    assert Trap.calls == []


def _pandas_metadata(bomb):
    column = {"name": "income", "field_name": "income", "pandas_type": "object", "numpy_type": "object"}
    described = {"columns": [{**column, "metadata": {"pickle": bomb.decode("latin-1")}}], "index_columns": []}
    return json.dumps({**described, "column_indexes": [], "pandas_version": "2.0.0"}).encode()


def test_links_and_macros_of_a_workbook_are_not_followed(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in [["income", "sex"], [1.5, "f"], ['=cmd|"/c touch mark"!A1', "m"], ["='[http://evil/x.xlsx]S'!A1", "f"]]:
        book.active.append(row)
    file = tmp_path / "people.xlsm"
    book.save(file)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("xl/vbaProject.bin", b"Sub Auto_Open()")
        archive.writestr("xl/externalLinks/externalLink1.xml", "<externalLink/>")
    table = read_table(file)
    assert table["sex"].tolist() == ["f", "m", "f"]
    assert table["income"].isna().sum() == 2  # what no one computed has no value


def test_a_statistics_file_is_bytes(tmp_path):
    pyreadstat = pytest.importorskip("pyreadstat")
    file = tmp_path / "people.sav"
    pyreadstat.write_sav(pd.DataFrame({"income": [1.0], "sex": ["f"]}), file, note="GET FILE='../secret.sav'.")
    assert read_table(file)["income"].tolist() == [1.0]
