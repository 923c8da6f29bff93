import numpy as np
import pandas as pd
import pytest

from evenhand.exceptions import DataFileError
from evenhand.inputs.tables import read_table

TABLE = pd.DataFrame(
    {
        "income": [1.0, 2.0, 3.0, 4.0],
        "sex": ["m", "f", None, "m"],
    }
)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet"])
def test_every_kind_of_file_is_read(tmp_path, name):
    path = tmp_path / name
    TABLE.to_parquet(path) if name.endswith("parquet") else TABLE.to_csv(path, index=False)
    assert read_table(path)["income"].tolist() == [1, 2, 3, 4]


def test_numbers_come_back_from_csv_to_the_last_digit(tmp_path):
    numbers = np.random.default_rng(0).normal(size=2000)
    pd.DataFrame({"x": numbers}).to_csv(tmp_path / "a.csv", index=False)
    assert (read_table(tmp_path / "a.csv")["x"] == numbers).all()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xlsx", b"", r"must be one of .csv, .csv.gz, .parquet"),
        ("a.parquet", b"PAR1 but not really", "cannot be read"),
        ("a.csv.gz", b"not gzip", "cannot be read"),
        ("a.csv", b"", "cannot be read"),
        ("a.csv", b"x,y\n", "has no rows"),
    ],
)
def test_other_files_are_refused(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataFileError, match=message):
        read_table(path)


def test_an_absent_file_is_named():
    with pytest.raises(DataFileError, match=r"no file 'nowhere\.csv'"):
        read_table("nowhere.csv")
