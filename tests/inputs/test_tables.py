import numpy as np
import pandas as pd
import pytest

from evenhand.exceptions import DataFileError, InvalidInputError
from evenhand.inputs.tables import applicants, read_table

TABLE = pd.DataFrame(
    {
        "id": [1, 2, 3, 4],
        "income": [1.0, 2.0, 3.0, 4.0],
        "sex": ["m", "f", None, "m"],
        "paid": ["Yes ", "No", "Yes", None],
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


def test_columns_are_sorted_into_their_parts():
    found = applicants(TABLE, label="paid", group=["sex"], drop=["id"], positive_label="Yes", drop_missing=True)
    assert list(found.X.columns) == ["income"]
    assert found.y.tolist() == [1, 0]
    assert found.group["sex"].tolist() == ["m", "f"]
    assert found.exclusions == {"no value in 'paid'": 1, "no value in 'sex'": 1}


def test_the_group_may_be_a_feature():
    assert list(applicants(TABLE, label="paid", group=["sex"], keep_group=True).X.columns) == ["id", "income", "sex"]


def test_a_missing_label_stays_missing_unless_dropped():
    assert applicants(TABLE, label="paid", group=["sex"], positive_label="Yes").y.isna().sum() == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "payd", "group": ["sex"]}, "--label names columns absent .* Did you mean 'paid'"),
        ({"label": "paid", "group": ["sx"]}, "--group names columns absent"),
        ({"label": "paid", "group": ["sex"], "drop": ["no"]}, "--drop names columns absent"),
        ({"label": "paid", "group": ["sex"], "features": ["age"]}, "The model names columns absent"),
        ({"label": "paid", "group": ["sex"], "positive_label": "maybe"}, "'maybe' does not occur in the label"),
    ],
)
def test_wrong_names_are_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        applicants(TABLE, **options)
