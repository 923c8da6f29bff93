"""Queries, answered by DuckDB."""

import sys

import pandas as pd
import pytest

from evenhand.exceptions import DataFileError, EvenhandError, InvalidInputError, MissingExtraError
from evenhand.inputs.tables import open_table, read_table
from evenhand.inputs.tables.lakes import query


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


def test_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'evenhand\[duckdb\]'"):
        query("select 1")
