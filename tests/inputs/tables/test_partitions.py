import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenhand.exceptions import DataFileError
from evenhand.inputs.tables import read_table


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
