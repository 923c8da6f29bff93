"""Files of every kind are read alike, in memory and in batches."""

import datetime as dt

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pyreadstat
import pytest
import xlsxwriter

from evenhand.auditing.streaming.source import open_source
from evenhand.exceptions import DataFileError
from evenhand.inputs.tables import open_table, read_table, typed

TABLE = pd.DataFrame({"income": [1.5, 2.0, 3.0, 4.0], "sex": ["m", "f", None, "m"], "paid": [1, 0, 1, 1]})


def write(path, table=TABLE):
    writers = {
        ".csv": lambda: table.to_csv(path, index=False),
        ".gz": lambda: table.to_csv(path, index=False),
        ".parquet": lambda: table.to_parquet(path),
        ".feather": lambda: pa.feather.write_feather(pa.Table.from_pandas(table), path),
        ".xlsx": lambda: table.to_excel(path, index=False, engine="xlsxwriter"),
        ".dta": lambda: pyreadstat.write_dta(table, str(path)),
        ".sav": lambda: pyreadstat.write_sav(table, str(path)),
        ".xpt": lambda: pyreadstat.write_xport(table, str(path)),
    }
    writers[path.suffix]()
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "A.PARQUET", "a.feather", "a.xlsx", "a.dta", "a.sav", "a.xpt"])
def test_every_kind_of_file_is_read(tmp_path, read, name):
    path = write(tmp_path / name.lower()).rename(tmp_path / name)
    table, notes = read(path)
    assert table.column_names == ["income", "sex", "paid"]
    assert table.column("income").to_pylist() == [1.5, 2.0, 3.0, 4.0]
    assert table.column("sex").to_pylist() == ["m", "f", None, "m"]
    assert table.column("paid").to_pylist() == [1, 0, 1, 1]
    assert not notes


def test_a_batch_is_named_by_the_file_that_the_user_has(tmp_path):
    path = write(tmp_path / "a.csv")
    source = open_source(typed(open_table(path), ["income"]), 2, tmp_path / "spool.parquet")
    assert source.where(source.batches[1]) == f"{str(path)!r} (batch 1)"


def test_numbers_come_back_from_csv_to_the_last_digit(tmp_path):
    numbers = np.random.default_rng(0).normal(size=2000)
    pd.DataFrame({"x": numbers, "k": 1}).to_csv(tmp_path / "a.csv", index=False)
    assert (read_table(tmp_path / "a.csv")["x"] == numbers).all()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", r"must be one of \.csv, \.csv\.gz, \.parquet, .*, \.sas7bdat, .* or a folder of \.parquet"),
        ("a.parquet", b"PAR1 but not really", "cannot be read"),
        ("a.feather", b"no", "cannot be read"),
        ("a.xlsx", b"no", "cannot be read"),
        ("a.sav", b"no", "cannot be read"),
        ("a.dta", b"", "cannot be read"),
        ("a.sas7bdat", b"no", "cannot be read"),
        ("a.csv.gz", b"not gzip", "cannot be read"),
        ("a.csv", b"", "is empty"),
        ("a.csv", b"x,y\n", "has no rows"),
    ],
)
def test_other_files_are_refused(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataFileError, match=message) as caught:
        read_table(path)
    assert "\n" not in str(caught.value)


def test_an_absent_file_is_named():
    with pytest.raises(DataFileError, match=r"no file 'nowhere\.csv'"):
        read_table("nowhere.csv")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_two_columns_of_one_name_are_refused(tmp_path, ending):
    path = tmp_path / f"people.{ending}"
    if ending == "csv":
        path.write_text("debt,debt\n1,3\n2,4\n")
    else:
        pq.write_table(pa.Table.from_arrays([pa.array([1, 2]), pa.array([3, 4])], names=["debt", "debt"]), path)
    with pytest.raises(DataFileError, match=r"more than one column named \['debt'\]"):
        read_table(path)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([[1, 2], [3]]),
        pa.array([b"\xff", b"a"]),
        pa.array([{"a": 1}, {"a": 2}]),
        pa.array([1, 2], pa.duration("s")),
    ],
)
def test_columns_that_hold_no_values_are_refused_by_name(tmp_path, values):
    pq.write_table(pa.table({"income": [1, 2], "odd": values}), tmp_path / "a.parquet")
    with pytest.raises(DataFileError, match=r"neither numbers, text, dates nor booleans: 'odd' \(.*--drop"):
        read_table(tmp_path / "a.parquet")


def test_decimals_are_numbers(tmp_path, read):
    pq.write_table(pa.table({"income": pa.array([1, None], pa.decimal128(9, 2))}), tmp_path / "a.parquet")
    table, _ = read(tmp_path / "a.parquet")
    assert table.schema.field("income").type == pa.float64()
    assert table.column("income").to_pylist() == [1.0, None]


def test_text_that_a_file_declares_stays_text_unless_it_is_decorated(tmp_path, read):
    pq.write_table(
        pa.table({"code": ["01", "02", "10"], "income": ["$1,000", "n/a", "$2,500.50"], "answer": ["", "NA", "x"]}),
        tmp_path / "a.parquet",
    )
    table, notes = read(tmp_path / "a.parquet")
    assert table.to_pydict() == {
        "code": ["01", "02", "10"],
        "income": [1000.0, None, 2500.5],
        "answer": ["", "NA", "x"],
    }
    assert notes == (
        "code: read as text, as stored in the file, though every value is a number like '01'.",
        "income: 2 values like '$1,000' were read as numbers, this one as 1000.",
    )


def test_folders_of_files_are_typed_as_one(tmp_path, read):
    folder = tmp_path / "people"
    folder.mkdir()
    pq.write_table(pa.table({"income": ["1,234", "5,678"]}), folder / "a.parquet")
    pq.write_table(pa.table({"income": ["12.5"]}), folder / "b.parquet")
    assert read(folder)[0].column("income").to_pylist() == [1234.0, 5678.0, 12.5]


def workbook(path, sheets):
    with xlsxwriter.Workbook(str(path)) as book:
        date = book.add_format({"num_format": "yyyy-mm-dd"})
        for name, rows in sheets.items():
            sheet = book.add_worksheet(name)
            for i, row in enumerate(rows):
                for j, cell in enumerate(row):
                    if isinstance(cell, dt.date):
                        sheet.write_datetime(i, j, cell, date)
                    else:
                        sheet.write(i, j, cell)
    return path


def test_a_messy_sheet(tmp_path, read):
    rows = [
        ["Applicants, spring"],
        [],
        ["income", "sex", "since", "owner", "score"],
        [89000, "f", dt.datetime(2024, 1, 2), True, "12"],
        [],
        ["$1,250", "m", dt.datetime(2023, 5, 6), False, "#N/A"],
        [None, "m", None, None, 7.5],
    ]
    table, notes = read(workbook(tmp_path / "a.xlsx", {"data": rows, "notes": []}))
    assert table.to_pydict() == {
        "income": [89000.0, 1250.0, None],
        "sex": ["f", "m", "m"],
        "since": [dt.date(2024, 1, 2), dt.date(2023, 5, 6), None],
        "owner": [True, False, None],
        "score": [12.0, None, 7.5],
    }
    assert [note.split(": ", 1)[1] for note in notes] == [
        "the row 'Applicants, spring' above the header was not read.",
        "1 empty rows were not read.",
        "2 values like '$1,250' were read as numbers, this one as 1250.",
    ]


def test_the_sheet_is_asked_for_where_several_have_cells(tmp_path, read):
    path = workbook(tmp_path / "a.xlsx", {"old": [["a", "b"], [1, 2]], "new": [["a", "b"], [3, 4]]})
    with pytest.raises(DataFileError, match=r"several sheets, \['old', 'new'\]; name one with --sheet"):
        read_table(path)
    with pytest.raises(DataFileError, match=r"has no sheet 'nw'\. Did you mean 'new'"):
        read(path, sheet="nw")
    assert read(path, sheet="new")[0].to_pydict() == {"a": [3], "b": [4]}


def test_values_without_a_name_in_a_sheet_are_refused(tmp_path):
    path = workbook(tmp_path / "a.xlsx", {"data": [["a", "b"], [1, 2, 3]]})
    with pytest.raises(DataFileError, match="has values in column 3 of the sheet 'data', which has no name"):
        read_table(path)
