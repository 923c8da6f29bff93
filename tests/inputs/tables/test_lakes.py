"""Delta and Iceberg tables, and queries."""

import shutil
import sys

import deltalake
import pandas as pd
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config

from evenhand.exceptions import DataFileError, EvenhandError, InvalidInputError, MissingExtraError
from evenhand.inputs.tables import is_folder, is_near, open_table, read_table
from evenhand.inputs.tables.lakes import query

FIRST = pa.table({"income": [1.5, 2.5, 3.5], "sex": ["f", "m", "f"], "year": [2023, 2024, 2024]})
SECOND = pa.table({"income": [9.5], "sex": ["m"], "year": [2025]})


def values(table):
    return sorted(zip(*(table[name].tolist() for name in ("income", "sex", "year")), strict=True))


@pytest.fixture
def delta(tmp_path):
    path = tmp_path / "loans"
    deltalake.write_deltalake(path, FIRST, partition_by=["year"])
    deltalake.write_deltalake(path, SECOND, mode="append")
    deltalake.DeltaTable(path).delete("income = 2.5")
    return path


@pytest.fixture
def iceberg(tmp_path, monkeypatch):
    monkeypatch.setenv("PYICEBERG_CATALOG__LENDING__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LENDING__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # read once, when it is imported
    catalog = load_catalog("lending")
    catalog.create_namespace("bank")
    table = catalog.create_table("bank.loans", schema=FIRST.schema)
    table.append(FIRST)
    table.append(SECOND)
    yield table
    catalog.engine.dispose()


@pytest.mark.parametrize(("version", "n"), [("@0", 3), ("@1", 4), ("@2", 3), ("", 3)])
def test_a_version_of_a_delta_table_is_what_deltalake_reads(delta, version, n):
    found = read_table(f"delta:{delta}{version}")
    wanted = deltalake.DeltaTable(delta, version=int(version[1:]) if version else None).to_pandas()
    assert len(found) == n
    assert values(found) == values(wanted)


def test_the_folder_of_a_delta_table_is_the_table_and_not_its_files(delta):
    assert len(list(delta.rglob("*.parquet"))) > 2
    assert values(read_table(delta)) == values(read_table(f"delta:{delta}"))
    assert not is_folder(delta)
    assert not is_near(delta)


def test_the_order_of_rows_is_that_of_the_names_of_files(delta):
    first, second = (read_table(f"delta:{delta}@1") for _ in range(2))
    pd.testing.assert_frame_equal(first, second)
    assert first["year"].is_monotonic_increasing


def test_versions_have_fingerprints_and_words(delta):
    latest, pinned, earlier = (open_table(f"delta:{delta}{version}") for version in ("", "@2", "@1"))
    assert latest.fingerprint() == pinned.fingerprint() != earlier.fingerprint()
    assert latest.version.startswith("version 2 of the Delta table ")
    copy = delta.parent / "copy"
    shutil.copytree(delta, copy)
    assert open_table(f"delta:{copy}").fingerprint() == latest.fingerprint()


def test_deletion_vectors_are_respected(tmp_path, monkeypatch):
    """What pyarrow cannot read of a table, Delta's engine reads."""
    deltalake.write_deltalake(tmp_path / "loans", FIRST)

    def refuse(*_):
        raise deltalake.exceptions.DeltaProtocolError("deletion vectors")

    monkeypatch.setattr(deltalake.DeltaTable, "to_pyarrow_dataset", refuse)
    assert values(read_table(f"delta:{tmp_path}/loans")) == values(FIRST.to_pandas())


def test_a_delta_table_in_an_object_store(object_store):
    options = {"allow_http": "true", "aws_s3_allow_unsafe_rename": "true"}
    deltalake.write_deltalake("s3://lending/loans", FIRST, storage_options=options)
    deltalake.write_deltalake("s3://lending/loans", SECOND, mode="append", storage_options=options)
    assert values(read_table("delta:s3://lending/loans@0")) == values(FIRST.to_pandas())
    assert len(read_table("delta:s3://lending/loans")) == 4


def test_a_snapshot_of_an_iceberg_table_is_what_pyiceberg_reads(iceberg):
    first, second = (entry.snapshot_id for entry in iceberg.history())
    for name, snapshot in ((f"@{first}", first), (f"@{second}", second), ("", second)):
        found = read_table(f"iceberg:lending/bank.loans{name}")
        assert values(found) == values(iceberg.scan(snapshot_id=snapshot).to_pandas())
    by_file = read_table(f"iceberg:{iceberg.metadata_location}")
    assert values(by_file) == values(found)
    raw = open_table("iceberg:lending/bank.loans")
    assert raw.version == f"snapshot {second} of the Iceberg table {iceberg.metadata.table_uuid}"
    assert raw.fingerprint() != open_table(f"iceberg:lending/bank.loans@{first}").fingerprint()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("delta:{folder}/none", "There is no Delta table 'delta:.*/none'"),
        ("delta:{folder}/loans@7", "has no version 7: the latest is 2"),
    ],
)
def test_an_absent_delta_table_is_named(delta, name, message):
    with pytest.raises(DataFileError, match=message):
        read_table(name.format(folder=delta.parent))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("iceberg:lending/bank.none", "'iceberg:lending/bank.none' cannot be read: Table does not exist: bank.none"),
        ("iceberg:nobody/bank.loans", "cannot be read: URI missing"),
        ("iceberg:loans", "must name a catalog and a table, like iceberg:lending/bank.loans"),
        ("iceberg:lending/bank.loans@5", r"has no snapshot 5; it has \d+, \d+"),
    ],
)
@pytest.mark.usefixtures("iceberg")
def test_an_absent_iceberg_table_is_named(name, message):
    with pytest.raises(DataFileError, match=message):
        read_table(name)


@pytest.mark.parametrize(
    ("module", "name", "extra"), [("deltalake", "delta:x", "delta"), ("pyiceberg", "iceberg:x/y.z", "iceberg")]
)
def test_the_extra_is_named(monkeypatch, module, name, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'evenhand\[{extra}\]'"):
        read_table(name)


@pytest.fixture
def loans(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame({"income": [1.5, 2.5, 3.5], "sex": ["f", "m", "f"], "year": [2023, 2024, 2024]})
    table.to_parquet("loans.parquet")
    table.to_csv("loans.csv", index=False)
    return table


@pytest.mark.parametrize("file", ["loans.parquet", "loans.csv"])
def test_the_rows_of_a_query_are_a_table(loans, file):
    found = read_table(query(f"select income, sex from '{file}' where year = 2024"))
    pd.testing.assert_frame_equal(found, loans.loc[loans["year"] == 2024, ["income", "sex"]].reset_index(drop=True))


def test_the_order_of_joined_and_grouped_rows_is_the_same_every_time():
    sql = "select a.i % 1000 as k, count(*) as n from range(200000) a(i) join range(3) b(j) on a.i % 3 = b.j group by 1"
    assert len({open_table(query(sql)).fingerprint() for _ in range(3)}) == 1


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("selct 1", r'The query \(--sql\) failed: Parser Error: syntax error at or near "selct"\.$'),
        ("select nope from 'loans.parquet'", 'Binder Error: Referenced column "nope" not found'),
        ("select * from 'none.parquet'", 'No files found that match the pattern "none.parquet"'),
        ("select cast(sex as int) as x from 'loans.parquet'", "Could not convert string 'f' to INT"),
        ("select 1; select 2", "must be a single SELECT that reads the people, got SELECT, SELECT"),
        ("copy (select 1) to 'stolen.csv'", "must be a single SELECT .*, got COPY"),
        ("install httpfs", "must be a single SELECT .*, got LOAD"),
        ("attach 'x.db'", "must be a single SELECT .*, got ATTACH"),
        ("", "must be a single SELECT .*, got nothing"),
        ("select * from 'https://bank.example/x.parquet'", "requires the extension httpfs to be loaded"),
        ("select * from loans", "Table with name loans does not exist"),
    ],
)
def test_a_mistake_is_said_in_one_sentence(loans, sql, message):
    with pytest.raises((DataFileError, InvalidInputError), match=message) as refused:
        read_table(query(sql))
    assert isinstance(refused.value, EvenhandError)
    assert "\n" not in str(refused.value)


def test_the_extra_of_a_query_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'evenhand\[duckdb\]'"):
        query("select 1")
