"""Datasets by name, and the three that the package contains."""

import dataclasses
import gzip
import hashlib
import runpy
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from evenhand.datasets import dataset_descriptions, dataset_names, load_adult, load_dataset, load_german, load_taiwan
from evenhand.datasets.dataset import GERMAN_CODES, TAIWAN_CODES, read_embedded, reservations_on
from evenhand.exceptions import InvalidInputError


def test_every_name_has_a_description():
    assert dataset_names() == ("taiwan", "german", "adult", "hmda", "synthetic") == tuple(dataset_descriptions())


@pytest.mark.parametrize("name", ["taiwan", "german", "adult", "synthetic"])
def test_columns_labels_and_groups_agree(name):
    data = load_dataset(name)
    assert data.name == name
    assert len(data) == len(data.X) == len(data.y) == len(data.group) == data.n_read
    assert data.y.dtype == np.int64
    assert set(data.y) == {0, 1}
    assert all(isinstance(member, str) for member in data.group)
    assert set(data.financial_features) <= set(data.X.columns)
    kinds = {"category" if str(dtype) == "category" else dtype.kind for dtype in data.X.dtypes}
    assert kinds <= {"category", "i", "f"}


def test_unknown_name_gets_the_nearest():
    with pytest.raises(InvalidInputError, match=r"got 'germany'\. Did you mean 'german'\?"):
        load_dataset("germany")


def test_name_like_no_other_gets_the_list():
    with pytest.raises(
        InvalidInputError, match="one of 'taiwan', 'german', 'adult', 'hmda', 'synthetic', got 'compas'"
    ):
        load_dataset("compas")


def test_unknown_option_is_named():
    with pytest.raises(InvalidInputError, match="'german' has no option 'seed'; it has group"):
        load_dataset("german", seed=1)
    with pytest.raises(InvalidInputError, match="'taiwan' has no option 'group'; it has none"):
        load_dataset("taiwan", group="age")


def test_reservations_travel_with_rows_and_columns():
    X = load_dataset("german").X
    assert reservations_on(X) == reservations_on(X.iloc[:5].drop(columns="age").reset_index(drop=True)) != []
    assert reservations_on(X.to_numpy()) == reservations_on(pd.DataFrame({"a": [1]})) == []


def test_options_reach_the_loader():
    assert load_dataset("synthetic", n=50, n_noise=0).X.shape == (50, 15)


def test_dataset_is_frozen():
    data = load_dataset("synthetic", n=10)
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.name = "other"


def test_repr_tells_counts_exclusions_and_notes():
    data = dataclasses.replace(load_dataset("german"), exclusions={"too late": 5, "lost": 1})
    text = repr(data)
    assert "1,000 people, 20 columns, 7 of them financial" in text
    assert "male 690, female 310" in text
    assert "left out of 1,006 rows: too late 5; lost 1" in text
    assert "CC BY 4.0" in text
    assert "protected basis" in text


EMBED = Path(__file__).parents[2] / "tools" / "embed_datasets.py"


def counts(values):
    return pd.Series(values).value_counts().to_dict()


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_files_together_stay_under_a_megabyte_and_a_quarter():
    folder = files("evenhand.datasets") / "files"
    assert sum((folder / f"{name}.parquet").stat().st_size for name in ("german", "adult", "taiwan")) < 1_250_000


class TestGerman:
    def test_counts_are_the_published_ones(self):
        data = load_german()
        assert data.X.shape == (1000, 20)
        assert counts(data.y) == {1: 700, 0: 300}
        assert counts(data.group) == {"male": 690, "female": 310}
        assert not data.X.isna().any(axis=None)

    def test_age_splits_at_25(self):
        assert counts(load_german(group="age").group) == {"over 25": 810, "25 or younger": 190}

    def test_other_groups_are_refused(self):
        with pytest.raises(InvalidInputError, match="German Credit must be 'sex' or 'age', got 'race'"):
            load_german(group="race")

    def test_integer_codes_are_those_of_the_sorted_raw_codes(self):
        raw, X = read_embedded("german.parquet"), load_german().X
        for column, readable in GERMAN_CODES.items():
            np.testing.assert_array_equal(X[column].cat.codes, np.unique(raw[column], return_inverse=True)[1])
            assert X[column].astype(object).tolist() == raw[column].map(readable).tolist()

    def test_financial_features_leave_out_sex_and_origin(self):
        assert not {"personal_status", "foreign_worker"} & set(load_german().financial_features)

    def test_embedded_values_are_the_raw_ones(self, german_dir):
        path = german_dir / "german.data"
        assert sha256(path) == "b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871"
        raw = [line.split() for line in path.read_text().splitlines()]
        embedded = read_embedded("german.parquet")
        assert tuple(embedded.columns) == runpy.run_path(str(EMBED))["GERMAN_COLUMNS"]
        assert embedded.astype(str).to_numpy().tolist() == raw

    @pytest.mark.parametrize("group", ["sex", "age"])
    def test_it_says_that_sex_cannot_be_recovered(self, group):
        assert any(
            "Sex cannot be recovered from personal_status" in note for note in load_german(group=group).reservations
        )


class TestTaiwan:
    def test_counts_are_the_published_ones(self):
        data = load_taiwan()
        assert data.X.shape == (30_000, 22)
        assert counts(data.y) == {1: 23_364, 0: 6_636}
        assert counts(data.group) == {"female": 18_112, "male": 11_888}
        assert counts(data.X["EDUCATION"]) == {
            "university": 14_030,
            "graduate school": 10_585,
            "high school": 4_917,
            "other or unknown": 14 + 123 + 280 + 51,
        }
        assert counts(data.X["MARRIAGE"]) == {"single": 15_964, "married": 13_659, "other or unknown": 54 + 323}
        assert not data.X.isna().any(axis=None)

    def test_sex_and_number_are_no_inputs(self):
        assert not {"SEX", "ID", "default payment next month"} & set(load_taiwan().X.columns)

    def test_a_default_is_the_unfavorable_outcome(self):
        data = load_taiwan()
        is_late = data.X["PAY_0"] >= 2
        assert data.y[is_late].mean() < 0.4 < 0.8 < data.y[~is_late].mean()

    def test_every_published_code_has_a_value(self):
        raw = read_embedded("taiwan.parquet")
        assert all(set(raw[column]) == set(codes) for column, codes in TAIWAN_CODES.items())

    def test_embedded_values_are_the_raw_ones(self, taiwan_dir):
        path = taiwan_dir / "default_of_credit_card_clients.csv.gz"
        assert sha256(path) == "27795e7ee11c60e64c511c7f28d5b06970c01393e9e0abd5cfe3df43f198cc83"
        header, *raw = [line.split(",") for line in gzip.decompress(path.read_bytes()).decode().splitlines()]
        embedded = read_embedded("taiwan.parquet")
        assert embedded.columns.tolist() == header[1:]
        assert embedded.astype(str).to_numpy().tolist() == [row[1:] for row in raw]


class TestAdult:
    def test_counts_are_the_published_ones(self):
        data = load_adult()
        assert data.X.shape == (48_842, 14)
        assert counts(data.y) == {0: 37_155, 1: 11_687}
        assert counts(data.group) == {"Male": 32_650, "Female": 16_192}
        assert int(data.X.isna().any(axis=1).sum()) == 3_620

    def test_race_has_five_values(self):
        assert counts(load_adult(group="race").group) == {
            "White": 41_762,
            "Black": 4_685,
            "Asian-Pac-Islander": 1_519,
            "Amer-Indian-Eskimo": 470,
            "Other": 406,
        }

    def test_other_groups_are_refused(self):
        with pytest.raises(InvalidInputError, match="Adult must be 'sex' or 'race', got 'age'"):
            load_adult(group="age")

    def test_categories_are_alphabetical_without_the_question_mark(self):
        for column in load_adult().X.select_dtypes("category"):
            categories = load_adult().X[column].cat.categories.tolist()
            assert categories == sorted(categories)
            assert "?" not in categories

    def test_embedded_values_are_the_raw_ones(self, adult_dir):
        train, test = adult_dir / "adult.data", adult_dir / "adult.test"
        assert sha256(train) == "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"
        assert sha256(test) == "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"
        lines = [line for path in (train, test) for line in path.read_text().splitlines() if ", " in line]
        raw = [line.rstrip(".").split(", ") for line in lines]
        embedded = read_embedded("adult.parquet")
        assert tuple(embedded.columns) == runpy.run_path(str(EMBED))["ADULT_COLUMNS"]
        assert embedded.astype(str).to_numpy().tolist() == raw


class TestEmbedScript:
    def run(self, monkeypatch, *arguments):
        monkeypatch.setattr(sys, "argv", ["embed_datasets.py", *map(str, arguments)])
        runpy.run_path(str(EMBED), run_name="__main__")

    def test_missing_raw_file_is_named(self, monkeypatch, tmp_path):
        with pytest.raises(SystemExit, match=r"german\.data is missing"):
            self.run(monkeypatch, tmp_path)

    def test_altered_raw_file_is_refused(self, monkeypatch, tmp_path):
        (tmp_path / "german").mkdir()
        (tmp_path / "german" / "german.data").write_text("A11 6 A34\n")
        with pytest.raises(SystemExit, match="is not the published file"):
            self.run(monkeypatch, tmp_path)
