"""Both readers of CSV, pandas for tables in memory and pyarrow for streams, take a file to mean the same."""

import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from evenhand.auditing.streaming.source import open_source
from evenhand.exceptions import DataFileError
from evenhand.inputs.csv_files import MISSING_WORDS, separator_of
from evenhand.inputs.tables import read_table


def streamed(path, batch_rows=1000):
    source = open_source(path, batch_rows, path.parent / "spool.parquet")
    return pa.concat_tables([source.read(batch, list(source.kinds)) for batch in source.batches]).to_pandas()


def both(path):
    return read_table(path), streamed(path)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_the_separator_is_told_from_the_header(tmp_path, separator, mark):
    path = tmp_path / "people.csv"
    rows = [["income", '"debt, net"', "Beschäftigung"], ["1", "2", "ja"], ["3", "4.5", "nein"]]
    path.write_text(mark + "\n".join(separator.join(row) for row in rows) + "\n", encoding="utf-8")
    for table in both(path):
        assert list(table.columns) == ["income", "debt, net", "Beschäftigung"]
        assert table["debt, net"].tolist() == [2.0, 4.5]


def test_the_same_cells_are_missing_for_both(tmp_path):
    path = tmp_path / "people.csv"
    words = [*MISSING_WORDS, "missing", "?", "none", "-"]
    pd.DataFrame({"n": range(len(words)), "text": words}).to_csv(path, index=False)
    for table in both(path):
        assert table["text"].isna().tolist() == [True] * len(MISSING_WORDS) + [False] * 4


def test_the_missing_words_are_those_that_pandas_users_know():
    from pandas._libs.parsers import STR_NA_VALUES

    assert set(MISSING_WORDS) == STR_NA_VALUES


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_other_encodings_are_refused_by_both(tmp_path, encoding):
    path = tmp_path / "people.csv"
    path.write_text("income,work\n1,Küche\n2,Büro\n", encoding=encoding)
    with pytest.raises(DataFileError, match=r"people\.csv' is not UTF-8 text; save it as UTF-8"):
        read_table(path)
    with pytest.raises(DataFileError, match=r"people\.csv' is not UTF-8 text"):
        streamed(path)


def test_a_header_in_another_encoding_is_refused(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("Beschäftigung,income\n1,2\n", encoding="latin-1")
    with pytest.raises(DataFileError, match="is not UTF-8 text"):
        separator_of(path)


def test_a_damaged_gzip_file_is_refused(tmp_path):
    path = tmp_path / "people.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" * 1000)[:30])
    with pytest.raises(DataFileError, match=r"people\.csv\.gz' cannot be read"):
        separator_of(path)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_two_columns_of_one_name_are_refused_by_both(tmp_path, ending):
    path = tmp_path / f"people.{ending}"
    table = pa.Table.from_arrays([pa.array([1, 2]), pa.array([3, 4])], names=["debt", "debt"])
    if ending == "csv":
        path.write_text("debt,debt\n1,3\n2,4\n")
    else:
        pa.parquet.write_table(table, path)
    for read in (read_table, streamed):
        with pytest.raises(DataFileError, match=r"more than one column with the name \['debt'\]"):
            read(path)


@pytest.mark.parametrize(
    ("early", "late"), [("7", "24.5"), ("", "24.5"), ("7", "plenty"), ("2.5", "plenty"), ("true", "plenty")]
)
def test_a_column_that_changes_its_kind_on_the_way_is_read_with_room_for_both(tmp_path, monkeypatch, early, late):
    monkeypatch.setattr("evenhand.auditing.streaming.source._CSV_BLOCK", 4096)
    path = tmp_path / "people.csv"
    values = [early] * 3000 + [late]
    path.write_text("n,x\n" + "".join(f"{k},{value}\n" for k, value in enumerate(values)))
    whole, found = both(path)
    if late == "plenty":
        assert found["x"].iloc[-1] == "plenty"
        assert found["x"].iloc[0] == early
    else:
        np.testing.assert_array_equal(found["x"].to_numpy(), whole["x"].to_numpy())
