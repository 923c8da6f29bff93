import csv
import gzip
import hashlib
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from evenhand.datasets import fetch_hmda, hmda, load_hmda
from evenhand.datasets.hmda import (
    HMDA_CATEGORIES,
    HMDA_FINANCIAL,
    HMDA_NOT_INPUTS,
    HMDA_NUMBERS,
    HMDA_POST_DECISION,
    HMDA_PROTECTED,
    parse_debt_to_income,
)
from evenhand.exceptions import DataFileError, DownloadError, InvalidInputError

ALL_LISTS = (HMDA_NUMBERS, HMDA_CATEGORIES, HMDA_POST_DECISION, HMDA_PROTECTED, HMDA_NOT_INPUTS)


def counts(values):
    return pd.Series(values).value_counts().to_dict()


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch, tmp_path):
    """No test reads this machine's data folder or cache."""
    monkeypatch.delenv("EVENHAND_DATA", raising=False)
    folder = tmp_path / "cache" / "hmda"
    monkeypatch.setattr(hmda, "_cache_folder", lambda: folder)
    return folder


class TestColumns:
    def test_no_column_is_in_two_lists(self):
        names = [name for columns in ALL_LISTS for name in columns]
        assert len(names) == len(set(names)) == 99

    def test_the_documentation_has_every_column(self):
        page = (Path(__file__).parents[2] / "docs/reference/data.md").read_text(encoding="utf-8")
        rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
        assert [row[0].strip("|` ") for row in rows] == [name for columns in ALL_LISTS for name in columns]
        assert {row[0].strip("|` "): row[3].strip(" |") for row in rows}.items() >= HMDA_POST_DECISION.items()

    def test_the_lists_are_the_header_of_a_real_export(self, hmda_dir):
        for path in hmda_dir.glob("*.csv.gz"):
            with gzip.open(path, "rt") as stream:
                header = next(csv.reader(stream))
            assert set(header) == {name for columns in ALL_LISTS for name in columns}


class TestDebtToIncome:
    @pytest.mark.parametrize(
        ("text", "value"),
        [("<20%", 10), ("20%-<30%", 25), ("30%-<36%", 33), ("36", 36), ("49", 49), ("50%-60%", 55), (">60%", 65)],
    )
    def test_published_forms(self, text, value):
        assert parse_debt_to_income(text) == value

    @pytest.mark.parametrize("text", ["", "NA", "Exempt"])
    def test_not_given_is_nan(self, text):
        assert math.isnan(parse_debt_to_income(text))

    @pytest.mark.parametrize("text", ["20-30", "inf"])
    def test_other_forms_are_refused(self, text):
        with pytest.raises(ValueError, match=text):
            parse_debt_to_income(text)


class TestRows:
    def test_originated_is_1_and_denied_is_0(self, write_export, tmp_path):
        path = write_export(tmp_path / "a.csv", {"action_taken": "1"}, {"action_taken": "3"})
        assert load_hmda(path=path).y.tolist() == [1, 0]

    def test_everyone_left_out_is_counted_once(self, write_export, tmp_path):
        path = write_export(
            tmp_path / "a.csv.gz",
            {},
            {"action_taken": "6", "derived_race": "Joint"},
            {"action_taken": "9"},
            {"derived_race": "Race Not Available", "income": "NA"},
            {"derived_race": "Joint"},
            {"derived_race": "Free Form Text Only"},
            {"income": "", "loan_term": "NA"},
            {"property_value": "Exempt", "loan_term": "Exempt"},
        )
        data = load_hmda(path=path)
        assert len(data) == 1
        assert data.n_read == 8
        assert data.exclusions == {
            "purchased loan": 1,
            "action_taken is '9'": 1,
            "derived_race is 'Free Form Text Only'": 1,
            "derived_race is 'Joint'": 1,
            "derived_race is 'Race Not Available'": 1,
            "income missing": 1,
            "property_value exempt from reporting": 1,
        }

    @pytest.mark.parametrize(
        ("group", "field", "expected"),
        [
            ("race", {"derived_race": "Asian"}, "non-White"),
            ("race", {"derived_race": "White"}, "White"),
            ("derived_race", {"derived_race": "Joint"}, "Joint"),
            ("sex", {"derived_sex": "Male"}, "Male"),
            ("ethnicity", {"derived_ethnicity": "Hispanic or Latino"}, "Hispanic or Latino"),
            ("age", {"applicant_age_above_62": "Yes"}, "62 or older"),
            ("age", {"applicant_age_above_62": "No"}, "under 62"),
        ],
    )
    def test_groups_are_readable(self, write_export, tmp_path, group, field, expected):
        data = load_hmda(path=write_export(tmp_path / "a.csv", field), group=group)
        assert data.group.tolist() == [expected]
        assert data.group_name == group

    def test_states_and_year_filter_and_are_counted(self, write_export, tmp_path):
        path = write_export(tmp_path / "a.csv", {}, {"state_code": "NY"}, {"activity_year": "2023"})
        data = load_hmda(path=path, states="dc", year=2024)
        assert len(data) == 1
        assert data.exclusions == {"state other than DC": 1, "year other than 2024": 1}

    def test_nobody_left_is_an_error_with_the_reasons(self, write_export, tmp_path):
        path = write_export(tmp_path / "a.csv", {"action_taken": "6"})
        with pytest.raises(DataFileError, match=r"No application is left of the 1 rows in a\.csv \(purchased loan 1\)"):
            load_hmda(path=path)

    def test_file_without_rows_is_an_error(self, write_export, tmp_path):
        with pytest.raises(DataFileError, match="the files are empty"):
            load_hmda(path=write_export(tmp_path / "a.csv"))


class TestInputs:
    def test_neither_outcome_nor_protected_columns_are_inputs(self, write_export, tmp_path):
        X = load_hmda(path=write_export(tmp_path / "a.csv", {})).X
        assert tuple(X.columns) == (*HMDA_NUMBERS, *HMDA_CATEGORIES)
        assert set(HMDA_FINANCIAL) < set(X.columns)

    def test_columns_known_after_the_decision_can_be_put_back(self, write_export, tmp_path):
        data = load_hmda(path=write_export(tmp_path / "a.csv", {}), include_post_decision=True)
        assert set(HMDA_POST_DECISION) < set(data.X.columns)
        assert data.X["interest_rate"].dtype == np.float64
        assert any("after the decision" in note for note in data.notes)

    def test_protected_columns_can_be_put_back(self, write_export, tmp_path):
        data = load_hmda(path=write_export(tmp_path / "a.csv", {}), include_protected=True)
        assert set(HMDA_PROTECTED) < set(data.X.columns)
        assert data.X["tract_minority_population_percent"].dtype == np.float64
        assert any("race, ethnicity, sex and age" in note for note in data.notes)

    def test_other_missing_values_stay_missing(self, write_export, tmp_path):
        row = {"intro_rate_period": "NA", "tract_population": "Exempt", "aus-1": "", "conforming_loan_limit": "NA"}
        X = load_hmda(path=write_export(tmp_path / "a.csv", row, {})).X
        assert X.loc[0, list(row)].isna().all()
        assert X.loc[1, list(row)].notna().all()

    def test_column_without_any_value_is_left_out_and_noted(self, write_export, tmp_path):
        data = load_hmda(path=write_export(tmp_path / "a.csv", {"aus-1": "NA", "intro_rate_period": "Exempt"}))
        assert not {"aus-1", "intro_rate_period"} & set(data.X.columns)
        assert any(note.endswith("has a value: aus-1, intro_rate_period.") for note in data.notes)

    def test_categories_follow_their_numbers(self, write_export, tmp_path):
        rows = [{"total_units": units} for units in ("25-49", "10", "2", "5-24")]
        X = load_hmda(path=write_export(tmp_path / "a.csv", *rows)).X
        assert X["total_units"].cat.categories.tolist() == ["2", "5-24", "10", "25-49"]

    def test_files_with_different_values_are_joined(self, write_export, tmp_path):
        write_export(tmp_path / "a.csv", {"loan_type": "2", "income": "50"})
        write_export(tmp_path / "b.csv.gz", {"loan_type": "1", "income": "NA"}, {"loan_type": "1", "income": "70.5"})
        data = load_hmda(path=tmp_path)
        assert data.X["loan_type"].tolist() == ["2", "1"]
        assert data.X["income"].tolist() == [50.0, 70.5]
        assert data.X.index.tolist() == [0, 1]

    def test_compressed_copy_beside_its_file_is_not_read_twice(self, write_export, tmp_path):
        for name in ("a.csv", "a.csv.gz"):
            write_export(tmp_path / name, {})
        assert load_hmda(path=tmp_path).n_read == 1


class TestBadFiles:
    def test_unrelated_csv_is_named_with_what_it_lacks(self, tmp_path):
        path = tmp_path / "iris.csv"
        path.write_text("sepal,petal\n1,2\n")
        with pytest.raises(DataFileError, match=r"iris\.csv is not an HMDA Data Browser export: it lacks 38 of 38"):
            load_hmda(path=path)

    def test_one_missing_column_is_named(self, write_export, tmp_path):
        path = write_export(tmp_path / "a.csv", {})
        path.write_text(path.read_text().replace("loan_term", "term", 1))
        with pytest.raises(DataFileError, match=r"lacks 1 of 38 required columns \(loan_term\)"):
            load_hmda(path=path)

    def test_empty_file_is_no_export(self, tmp_path):
        (tmp_path / "a.csv").touch()
        with pytest.raises(DataFileError, match=r"a\.csv is not an HMDA Data Browser export"):
            load_hmda(path=tmp_path)

    @pytest.mark.parametrize("share", [0.02, 0.9])
    def test_truncated_gzip_is_named(self, write_export, tmp_path, share):
        rows = [{"lei": hashlib.sha256(bytes([i])).hexdigest()} for i in range(200)]
        path = write_export(tmp_path / "a.csv.gz", *rows)
        content = path.read_bytes()
        path.write_bytes(content[: int(share * len(content))])
        with pytest.raises(DataFileError, match=r"a\.csv\.gz (is damaged|cannot be read) \(.*\): export or copy"):
            load_hmda(path=path)

    def test_file_that_is_no_gzip_is_named(self, tmp_path):
        (tmp_path / "a.csv.gz").write_text("plain")
        with pytest.raises(DataFileError, match=r"a\.csv\.gz cannot be read \(Not a gzipped file"):
            load_hmda(path=tmp_path)

    def test_row_cut_short_is_named(self, write_export, tmp_path):
        path = write_export(tmp_path / "a.csv", {}, {})
        path.write_bytes(path.read_bytes()[:-50])
        with pytest.raises(DataFileError, match=r"a\.csv is damaged \(CSV parse error: Expected 99 columns"):
            load_hmda(path=path)

    def test_text_in_a_numeric_column_is_named_with_its_file(self, write_export, tmp_path):
        write_export(tmp_path / "a.csv", {})
        write_export(tmp_path / "b.csv", {"income": "lots"})
        with pytest.raises(DataFileError, match=r"b\.csv has 'lots' in column income, where a number"):
            load_hmda(path=tmp_path)

    def test_missing_path_is_named(self, tmp_path):
        with pytest.raises(DataFileError, match=r"nowhere\.csv does not exist"):
            load_hmda(path=tmp_path / "nowhere.csv")

    def test_folder_without_exports_is_named(self, tmp_path):
        with pytest.raises(DataFileError, match=r"has no \.csv or \.csv\.gz file"):
            load_hmda(path=tmp_path)


class TestOptions:
    def test_unknown_group(self):
        with pytest.raises(InvalidInputError, match=r"`group` of HMDA must be one of 'race', .* got 'religion'"):
            load_hmda(group="religion")

    @pytest.mark.parametrize("states", ["New York", [], ["N&"], [3]])
    def test_states_that_cannot_be(self, states):
        with pytest.raises(InvalidInputError, match="`states` must be two-letter codes"):
            load_hmda(states=states)

    @pytest.mark.parametrize("year", [2017, "2024"])
    def test_years_that_cannot_be(self, year):
        with pytest.raises(InvalidInputError, match="`year` must be 2018 or later"):
            load_hmda(year=year)


class TestPlaces:
    def test_environment_comes_before_the_cache(self, write_export, tmp_path, empty_cache, monkeypatch):
        (tmp_path / "home" / "hmda").mkdir(parents=True)
        empty_cache.mkdir(parents=True)
        write_export(tmp_path / "home" / "hmda" / "mine.csv", {}, {})
        write_export(empty_cache / "hmda_2024_DC.csv", {})
        monkeypatch.setenv("EVENHAND_DATA", str(tmp_path / "home"))
        assert load_hmda().n_read == 2
        monkeypatch.setenv("EVENHAND_DATA", str(tmp_path / "elsewhere"))
        assert load_hmda().n_read == 1

    def test_cache_is_chosen_by_year_and_state(self, write_export, empty_cache):
        empty_cache.mkdir(parents=True)
        write_export(empty_cache / "hmda_2024_DC.csv", {})
        write_export(empty_cache / "hmda_2023_NY.csv", *[{"activity_year": "2023", "state_code": "NY"}] * 3)
        assert load_hmda().n_read == 4
        assert load_hmda(year=2023).n_read == 3
        assert load_hmda(states="NY", year=2023).n_read == 3
        assert load_hmda(states="DC").n_read == 1

    def test_cache_lies_in_the_users_cache_folder(self, monkeypatch):
        monkeypatch.undo()
        assert hmda._cache_folder().parts[-2:] == ("evenhand", "hmda")


class TestFetch:
    @pytest.fixture(autouse=True)
    def address(self, server, monkeypatch):
        monkeypatch.setattr(hmda, "HMDA_ADDRESS", server.url)

    def test_missing_export_is_downloaded_once(self, server, write_export, tmp_path, empty_cache):
        body = write_export(tmp_path / "a.csv", {}, {"action_taken": "3"}).read_bytes()
        server.answers = [(200, {}, body)]
        assert len(load_hmda()) == 2
        assert len(load_hmda()) == 2
        assert server.requests == ["/file.csv?states=DC&years=2024&actions_taken=1,3"]
        assert [path.name for path in empty_cache.iterdir()] == ["hmda_2024_DC.csv"]

    def test_each_state_has_its_file_and_overwrite_fetches_again(self, server, write_export, tmp_path):
        server.answers = [(200, {}, write_export(tmp_path / "a.csv", {}).read_bytes())]
        for overwrite in (False, True):
            paths = fetch_hmda(["ny", "NJ"], 2023, folder=tmp_path / "x", overwrite=overwrite)
        assert [path.name for path in paths] == ["hmda_2023_NY.csv", "hmda_2023_NJ.csv"]
        assert len(server.requests) == 4

    def test_answer_that_is_no_export_is_not_kept(self, server, tmp_path):
        server.answers = [(200, {}, b"<html>maintenance</html>")]
        with pytest.raises(DownloadError, match="answered with something other than a Data Browser export"):
            fetch_hmda("NY", folder=tmp_path)
        assert list(tmp_path.iterdir()) == []

    def test_refusal_gives_address_and_manual_way(self, server, tmp_path):
        server.answers = [(400, {}, b"")]
        with pytest.raises(DownloadError, match=r"states=NY&years=2024.* save it as .*hmda_2024_NY\.csv"):
            fetch_hmda("NY", folder=tmp_path)


NEW_YORK_2023 = ("dutchess", "onondaga", "richmond", "tompkins")
RAW_SHA256 = {
    "dutchess_home_purchase.csv": "c747e83d654b4eee1fe40d572924a6306bf247f5fe471f55833d02bece6d5465",
    "onondaga_home_purchase.csv": "bc6cfa9e476b9842887eb3cb212593171092fb8e1ea11a160769ba1df612b275",
    "richmond_home_purchase.csv": "fcb7aab00d1fef4197b8327f6db6c288d8965241297c9de82543c482db72cc1b",
    "tompkins_home_purchase.csv": "a6c51ebd2f37c156378a80bafceedf64e60a8167f42b12d06b75d454fa09c0ac",
    "travis_cu_2024_hmda.csv": "516842a556822b508143f39627a526a1ef433de3e1645e7765084fcb8c20dd79",
    "NY_Bank_Data_2020.csv": "47ec25b17b231214b13a23fa2fa49cf810860448f80e2d67711eb45447d0e223",
}


class TestRealExports:
    def test_files_are_the_ones_the_counts_below_were_taken_from(self, hmda_dir):
        for name, digest in RAW_SHA256.items():
            assert hashlib.sha256(gzip.decompress((hmda_dir / f"{name}.gz").read_bytes())).hexdigest() == digest

    def test_new_york_2023_holds_the_published_races(self, hmda_dir):
        files = [hmda_dir / f"{county}_home_purchase.csv.gz" for county in NEW_YORK_2023]
        races = hmda._read_exports(files, ["derived_race"])["derived_race"]
        assert len(races) == 15_674
        assert counts(races)["White"] == 8_214
        assert counts(races)["Asian"] == 2_175

    def test_kept_and_excluded_add_up(self, hmda_dir, monkeypatch):
        monkeypatch.setenv("EVENHAND_DATA", str(hmda_dir.parent))
        data = load_hmda(states="NY", year=2023)
        assert counts(data.group) == {"White": 6_024, "non-White": 1_990}
        assert data.n_read == 17_404
        assert data.exclusions == {
            "state other than NY": 1_446,
            "year other than 2023": 288,
            "approved but not accepted": 471,
            "withdrawn by the applicant": 1_576,
            "closed as incomplete": 332,
            "purchased loan": 1_816,
            "preapproval request denied": 18,
            "preapproval request approved but not accepted": 37,
            "derived_race is 'Free Form Text Only'": 3,
            "derived_race is 'Joint'": 252,
            "derived_race is 'Race Not Available'": 1_966,
            "income missing": 554,
            "debt_to_income_ratio exempt from reporting": 351,
            "debt_to_income_ratio missing": 65,
            "property_value missing": 76,
            "loan_to_value_ratio missing": 122,
            "loan_term missing": 17,
        }

    def test_financial_features_are_complete_numbers(self, hmda_dir):
        X = load_hmda(path=hmda_dir, group="derived_race").X
        assert np.isfinite(X[[*HMDA_FINANCIAL]].to_numpy()).all()

    def test_columns_left_out_after_the_decision_do_give_it_away(self, hmda_dir):
        data = load_hmda(path=hmda_dir, include_post_decision=True)
        denied = data.y == 0
        assert data.X.loc[denied, "interest_rate"].isna().all()
        assert set(data.X.loc[denied, "hoepa_status"]) == {"3"}
        assert not (data.X.loc[denied, "preapproval"] == "1").any()
        assert not (data.X.loc[~denied, "initially_payable_to_institution"] == "3").any()
