"""What a CSV file means, and which are refused."""

import gzip

import pandas as pd
import pyarrow as pa
import pytest

from evenhand.exceptions import DataFileError
from evenhand.inputs.read_options import ReadOptions
from evenhand.inputs.tables import read_table
from evenhand.inputs.tables.columns import MISSING_WORDS
from evenhand.inputs.tables.csv_files import CsvFile
from evenhand.inputs.tables.raw import LocalFile


@pytest.fixture
def path(tmp_path):
    return tmp_path / "people.csv"


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_the_separator_is_told_from_the_header(path, read, separator, mark, end):
    rows = [["income", '"debt, net"', "Beschäftigung"], ["1", "2", "ja"], ["3", "4.5", '"ne;in"']]
    path.write_bytes((mark + end.join(separator.join(row) for row in rows) + end).encode())
    table, notes = read(path)
    assert table.to_pydict() == {"income": [1, 3], "debt, net": [2.0, 4.5], "Beschäftigung": ["ja", "ne;in"]}
    assert not notes


def test_the_same_words_are_missing_in_text_and_numbers(path, read):
    words = [*MISSING_WORDS, " NA ", "  ", "missing", "?", "none", "-"]
    numbers = [*MISSING_WORDS, " NA ", "  ", "1", "2", "3", "4"]
    pd.DataFrame({"k": range(len(words)), "text": words, "number": numbers}).to_csv(path, index=False)
    table, _ = read(path)
    n = len(MISSING_WORDS) + 2
    assert table.column("text").to_pylist() == [None] * n + ["missing", "?", "none", "-"]
    assert table.column("number").to_pylist() == [None] * n + [1, 2, 3, 4]


def test_the_missing_words_are_those_that_pandas_users_know():
    from pandas._libs.parsers import STR_NA_VALUES

    assert set(MISSING_WORDS) == STR_NA_VALUES | {".", "NAN"}


def test_words_of_the_user_are_missing(path, read):
    path.write_text("income,k\n12,1\nExempt,2\n15,3\n")
    table, notes = read(path)
    assert table.column("income").to_pylist() == ["12", "Exempt", "15"]
    assert notes == (
        "income: 2 of 3 values are numbers, but others, such as 'Exempt', are not, so all were read as text; name "
        "words for a missing value with --missing.",
    )
    assert read(path, missing=("Exempt",))[0].column("income").to_pylist() == [12, None, 15]


def test_title_lines_and_empty_rows_are_left_out_and_said(path, read):
    path.write_text("Loans of 2024\n\nincome,sex\n1,f\n\n,\n  , \n2,m\n")
    table, notes = read(path)
    assert table.to_pydict() == {"income": [1, 2], "sex": ["f", "m"]}
    assert notes == (
        f"{str(path)!r}: the line 'Loans of 2024' above the header was not read.",
        f"{str(path)!r}: 2 empty rows were not read.",
    )


def test_a_title_with_the_separator_of_another_file_is_a_title(path, read):
    path.write_text("Loans, 2024;;\nincome;sex;paid\n1;f;0\n")
    assert read(path)[0].column_names == ["income", "sex", "paid"]


def test_decimal_commas_are_no_separators(path, read):
    path.write_text("income;rate;sex\n1.234,5;3,5;f\n99,5;4,0;m\n")
    assert read(path)[0].to_pydict() == {"income": [1234.5, 99.5], "rate": [3.5, 4.0], "sex": ["f", "m"]}


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("a,b,c\n1,2,3,\n4,5,6,\n", r"has 2 rows .* which has 3: line 2 \(4 cells\), line 3 \(4 cells\); correct them"),
        ("a,b,c\n1,2,3\n4,5\n6,7,8\n", r"has 1 rows .*: line 3 \(2 cells\);"),
        ('a,b,c\n1,"2\n2",3\n\n4,5\n', r"line 5 \(2 cells\)"),
        ("a,b,c\n" + "1,2\n" * 9, r"has 9 rows .*line 6 \(2 cells\) and 4 more;"),
        ("title\n\na,b,c\n1,2\n", r"line 4 \(2 cells\)"),
        ("a,b\n1\r2,3\n", r"line 2 \(1 cells\)"),
        ("Loans, 2024\na,b,c\n1,2,3\n", r"the header, which has 2: line 2 \(3 cells\)"),
    ],
)
def test_rows_that_are_too_long_or_short_are_refused_with_their_lines(path, content, lines):
    path.write_text(content, newline="")
    with pytest.raises(DataFileError, match=lines):
        read_table(path)


def test_a_last_column_without_name_or_values_is_no_column(path, read):
    path.write_text("a,b,\n1,2,\n3,4,\n")
    assert read(path)[0].to_pydict() == {"a": [1, 3], "b": [2, 4]}
    path.write_text("a,b,\n1,2,\n3,4,5\n")
    with pytest.raises(DataFileError, match="has values in column 3, which has no name in the header"):
        read_table(path)


def test_a_saved_index_keeps_the_name_that_pandas_gives(path, read):
    pd.DataFrame({"a": [5, 6]}).to_csv(path)
    assert read(path)[0].to_pydict() == {"Unnamed: 0": [0, 1], "a": [5, 6]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'a,b\n1,"x\n2,y\n3,z\n', "has a quotation mark that is never closed, after line 1"),
        (b'a,b\n1,2\n"', "has a quotation mark that is never closed, after line 2"),
        (b"a,b\n1,x\n2,y\xff\n", r"is not UTF-8 text \(line 3\); save it as UTF-8 .*--encoding cp1252"),
        ("a,b\n1,é\n".encode("utf-16"), r"is not UTF-8 text \(line 1\); .*--encoding utf-16"),
        (b"a,b\n1,x\n2,y\0\n", "contains a NUL character in line 3"),
        (b"a\xff,b\n1,x\n", "is not UTF-8 text"),
        (b"\n \n", "is empty"),
    ],
)
def test_damaged_text_is_refused_with_its_place(path, content, message):
    path.write_bytes(content)
    with pytest.raises(DataFileError, match=message):
        read_table(path)


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8", "latin-1", "utf-16-le"])
def test_other_encodings_are_read_when_named(path, read, encoding):
    path.write_bytes("income;work\n1;Küche\n2;Büro\n".encode(encoding))
    assert read(path, encoding=encoding)[0].to_pydict() == {"income": [1, 2], "work": ["Küche", "Büro"]}


def test_a_wrong_encoding_is_named(path, read):
    path.write_bytes(b"income,work\n1,\x81\n")
    with pytest.raises(DataFileError, match=r"is not text in 'cp1252' \(line 2\)"):
        read(path, encoding="cp1252")


def test_a_damaged_gzip_file_is_refused(tmp_path):
    path = tmp_path / "people.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" * 1000)[:30])
    with pytest.raises(DataFileError, match=r"people\.csv\.gz' cannot be read"):
        read_table(path)


@pytest.mark.parametrize(
    ("early", "late", "kind"),
    [
        ("7", "24.5", "double"),
        ("", "24.5", "double"),
        ("7", "plenty", "string"),
        ("2.5", "plenty", "string"),
        ("true", "plenty", "string"),
        ("7", "$8", "double"),
        ("7", "", "int64"),
        ("true", "False", "bool"),
        ("", "", "double"),
    ],
)
def test_the_kind_of_a_column_is_decided_on_all_rows(path, read, monkeypatch, early, late, kind):
    monkeypatch.setattr("evenhand.inputs.tables.csv_files._BLOCK", 4096)
    values = [early] * 3000 + [late]
    path.write_text("n,x\n" + "".join(f"{k},{value}\n" for k, value in enumerate(values)))
    table, _ = read(path, batch_rows=700)
    assert str(table.schema.field("x").type) == kind
    assert len(table) == 3001
    if kind == "string":
        assert table.column("x")[0].as_py() == early


def test_a_row_longer_than_a_block_is_refused(path, monkeypatch):
    monkeypatch.setattr("evenhand.inputs.tables.csv_files._BLOCK", 4096)
    path.write_text("a,b\n1,2\n3," + "x" * 20_000 + "\n4,5\n")
    with pytest.raises(DataFileError, match="a quotation mark is never closed"):
        read_table(path)


def test_hexadecimal_codes_are_text(path, read):
    path.write_text("code,k\n0x1F,1\n0x20,2\n")
    assert read(path)[0].column("code").to_pylist() == ["0x1F", "0x20"]


@pytest.mark.parametrize("value", ["inf", "-Infinity", "1e400"])
def test_infinite_numbers_are_numbers(path, read, value):
    path.write_text(f"x,k\n{value},1\n$5,2\n")
    table, _ = read(path)
    assert abs(table.column("x")[0].as_py()) == float("inf")


@pytest.mark.parametrize(
    ("last", "kind"), [("7", "int64"), ("7.5", "double"), ("", "int64"), ("seven", "string"), (" 7 ", "int64")]
)
def test_a_cell_far_down_decides_the_type_as_one_at_the_top_does(path, read, last, kind):
    path.write_text("\n".join(["number,name", *(f"{k},x" for k in range(3_000)), f"{last},x"]))
    found = read(path, batch_rows=1000)[0].column("number")
    assert str(found.type) == kind
    assert found.to_pylist()[:3_000] == [str(k) if kind == "string" else k for k in range(3_000)]


def test_a_file_that_is_read_again_gives_the_same_rows_and_notes(path):
    path.write_text("Loans of 2024,\nincome,sex\n1,f\n,\n2,m\n")
    file = CsvFile(LocalFile.at(path), ReadOptions())
    first = pa.concat_tables(file.pieces(["sex", "income"]))
    notes = file.notes
    again = pa.concat_tables(file.pieces(["income"]))
    assert first.to_pydict() == {"sex": ["f", "m"], "income": ["1", "2"]}
    assert again.to_pydict() == {"income": ["1", "2"]}
    assert file.notes == notes
    assert len(notes) == 2
