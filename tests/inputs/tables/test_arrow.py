"""Parquet files, partitions and streams of record batches."""

import tracemalloc
from dataclasses import replace

import adbc_driver_sqlite.dbapi as sqlite
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenhand.exceptions import DataFileError, InvalidTypeError
from evenhand.inputs.tables import open_table, read_table
from evenhand.inputs.tables.arrow import streamed


@pytest.fixture
def people():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "income": rng.normal(size=40),
            "state": rng.choice(["NY", "01", "New Mexico"], 40),
            "year": rng.choice([2023, 2024], 40),
        }
    ).sort_values(["year", "state"], kind="stable", ignore_index=True)


def test_a_partitioned_table_is_the_concatenated_one(people, tmp_path, read):
    """Written by pyarrow, and read as polars reads it."""
    pq.write_to_dataset(pa.Table.from_pandas(people), tmp_path / "loans", partition_cols=["year", "state"])
    table, _ = read(tmp_path / "loans", batch_rows=7)
    found = table.to_pandas()
    wanted = people.sort_values(["year", "state"], key=lambda c: c.astype(str).str.replace(" ", "%20"), kind="stable")
    pd.testing.assert_frame_equal(found[people.columns], wanted.reset_index(drop=True))
    by_polars = pl.read_parquet(tmp_path / "loans" / "**" / "*.parquet", hive_partitioning=True)
    assert found["income"].tolist() == by_polars["income"].to_list()
    assert found["year"].tolist() == by_polars["year"].to_list()
    assert found["state"].tolist() == by_polars["state"].to_list()


def test_a_column_of_a_folder_alone_can_be_read(people, tmp_path):
    pq.write_to_dataset(pa.Table.from_pandas(people), tmp_path / "loans", partition_cols=["year"])
    table = read_table(tmp_path / "loans")
    assert table["year"].value_counts().to_dict() == people["year"].value_counts().to_dict()


def test_a_missing_value_of_hive_is_missing(tmp_path):
    for value in ("7", "__HIVE_DEFAULT_PARTITION__"):
        folder = tmp_path / "loans" / f"branch={value}"
        folder.mkdir(parents=True)
        pd.DataFrame({"income": [1.0]}).to_parquet(folder / "a.parquet")
    assert read_table(tmp_path / "loans")["branch"].tolist()[0] == 7
    assert read_table(tmp_path / "loans")["branch"].isna().tolist() == [False, True]


def test_a_column_that_the_file_has_itself_is_read_from_the_file(tmp_path):
    folder = tmp_path / "loans" / "year=2024"
    folder.mkdir(parents=True)
    pd.DataFrame({"income": [1.0], "year": ["2024 FY"]}).to_parquet(folder / "a.parquet")
    assert read_table(tmp_path / "loans")["year"].tolist() == ["2024 FY"]


def test_folders_of_unlike_names_are_refused(tmp_path):
    for name in ("year=2023", "month=1"):
        (tmp_path / "loans" / name).mkdir(parents=True)
        pd.DataFrame({"income": [1.0]}).to_parquet(tmp_path / "loans" / name / "a.parquet")
    with pytest.raises(DataFileError, match=r"folders that name different columns: .*\['month'\].*\['year'\]"):
        read_table(tmp_path / "loans")


TABLE = pd.DataFrame({"income": [1.5, np.nan, 3.5], "sex": ["f", "m", None], "paid": [1, 0, 1]})


def of_duckdb():
    return duckdb.connect().sql(
        "select * from (values (1.5::decimal(9, 2), 'f', 1), (null, 'm', 0), (3.5, null, 1)) t(income, sex, paid)"
    )


SOURCES = {
    "pandas": lambda: TABLE.set_axis([5, 6, 7]),
    "polars": lambda: pl.from_pandas(TABLE),
    "table": lambda: pa.Table.from_pandas(TABLE),
    "reader": lambda: pa.Table.from_pandas(TABLE).to_reader(1),
    "duckdb": of_duckdb,
}


@pytest.mark.parametrize("kind", SOURCES)
def test_every_program_hands_over_the_same_table(kind):
    check_same(read_table(SOURCES[kind]()))


def test_the_reader_of_an_adbc_cursor_is_a_table():
    with sqlite.connect() as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("people", pa.Table.from_pandas(TABLE))
        cursor.execute("select * from people")
        check_same(read_table(cursor.fetch_record_batch()))


def check_same(found):
    assert found["income"].tolist()[::2] == [1.5, 3.5]
    assert np.isnan(found["income"][1])
    assert found["sex"].tolist()[:2] == ["f", "m"]
    assert found["sex"].isna().tolist() == [False, False, True]
    assert found["paid"].tolist() == [1, 0, 1]


def test_the_fingerprint_is_of_the_rows_however_they_are_cut():
    table = pa.table({"x": np.arange(1000) / 7, "s": [f"{k % 13}" for k in range(1000)], "b": [None, True] * 500})
    prints = {open_table(table.to_reader(rows)).fingerprint() for rows in (1000, 37, 1)}
    assert len(prints) == 1
    changed = table.set_column(1, "s", pa.array(["?", *table.column("s").to_pylist()[1:]]))
    moved = table.take([1, 0, *range(2, 1000)])
    renamed = table.rename_columns(["y", "s", "b"])
    assert len(prints | {open_table(other).fingerprint() for other in (changed, moved, renamed)}) == 4


def test_rows_are_written_down_once_in_little_memory(tmp_path):
    n, rows = 300, 10_000

    def batches():
        for k in range(n):
            yield pa.record_batch({f"x{j}": np.full(rows, float(k + j)) for j in range(4)})

    schema = next(batches()).schema
    tracemalloc.start()
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    raw = open_table(pa.RecordBatchReader.from_batches(schema, batches()), folder=tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 40e6 < n * rows * 4 * 8
    tracemalloc.stop()
    assert pool.bytes_allocated() - before < 10e6
    assert sum(len(piece) for piece in raw.pieces(["x0"])) == n * rows
    assert [path.name for path in tmp_path.iterdir()] == [raw.files[0].file.path.name]


def test_a_known_version_is_not_read_again(tmp_path):
    table = replace(streamed(pa.table({"x": [1, 2]})), identity="delta:1:3")
    first = open_table(table, folder=tmp_path)
    again = open_table(replace(table, batches=lambda: pytest.fail("it was read again")), folder=tmp_path)
    assert again.fingerprint() == first.fingerprint()


def test_a_source_that_breaks_off_leaves_nothing_and_says_so(tmp_path):
    def batches():
        yield pa.record_batch({"x": [1.0]})
        raise RuntimeError("the database went away")

    reader = pa.RecordBatchReader.from_batches(pa.schema([("x", pa.float64())]), batches())
    with pytest.raises(DataFileError, match=r"the given RecordBatchReader' cannot be read: .*the database went away"):
        open_table(reader, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_gives_no_arrow_data_is_refused():
    with pytest.raises(InvalidTypeError, match="must be a path, an address, or an object that provides Arrow data"):
        read_table({"x": [1]})
    with pytest.raises(DataFileError, match="has no rows"):
        read_table(pa.table({"x": pa.array([], pa.float64())}))
    with pytest.raises(DataFileError, match=r"more than one column named \['x'\]"):
        read_table(pa.table([[1], [2]], names=["x", "x"]))
