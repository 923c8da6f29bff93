"""What a report says."""

import copy
import json
import math

import numpy as np
import pytest

from evenhand.report.contents import explorer_data, key_figures, pairs_to_show, report_contents
from evenhand.report.figures import figures


@pytest.fixture(scope="module")
def contents(result):
    return report_contents(result.to_dict(), result.pair_sample(), pairs_file="pairs.parquet")


def cells(table):
    return [cell for row in table.rows for cell in row]


def test_it_is_made_from_plain_data_and_a_sample_alone(result, contents):
    again = report_contents(json.loads(json.dumps(_none_for_nan(result.to_dict()))), result.pair_sample())
    assert again.verdict == contents.verdict
    assert again.figures == contents.figures
    assert again.explorer == contents.explorer


def _none_for_nan(value):
    if isinstance(value, dict):
        return {str(k): _none_for_nan(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_none_for_nan(v) for v in value]
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def test_the_title_names_the_model_unless_one_is_given(result, contents):
    assert contents.title == f"Audit of {result.provenance.model}"
    assert report_contents(result.to_dict(), result.pair_sample(5), title="Q3 review").title == "Q3 review"


def test_everything_audited_and_every_setting_is_listed(result, contents):
    data = result.to_dict()
    assert len(contents.audited) == len(set(data["data"]) - {"fingerprint", "hashes"})
    assert dict(contents.hashes) == {
        "Audited people": data["data"]["fingerprint"],
        "Scores": data["data"]["hashes"]["scores"],
        **({"Reference": data["data"]["hashes"]["reference"]} if "reference" in data["data"]["hashes"] else {}),
    }
    assert len(contents.settings) == len(data["settings"])
    assert dict(contents.versions) == data["versions"]


def test_each_figure_has_a_caption_and_a_table_behind_it(contents):
    for figure in contents.figures.values():
        assert figure.specification, figure.note
        assert "config" not in figure.specification
        assert figure.caption.endswith(".")
        assert "nan" not in figure.caption
        assert figure.table.rows
        assert {len(row) for row in figure.table.rows} == {len(figure.table.columns)} == {len(figure.table.is_number)}


def test_tables_have_the_numbers_of_the_audit(result, contents):
    data = result.to_dict()
    table = contents.figures["excess"].table
    assert table.rows[0][1] == f"{data['cec']['excess']:.3f}".replace("-", "−")
    shares = contents.figures["regimes"].table.rows[-1]
    assert shares[:5] == ("all pairs", *(f"{100 * data['regimes'][r]:.1f} %" for r in "ABCD"))
    assert len(contents.figures["drivers"].table.rows) == len(result.features)
    assert len(contents.segments) == 1
    assert contents.segments[0].columns[1] == "branch"


def test_a_figure_that_was_not_estimated_says_so_with_its_note(result):
    data = copy.deepcopy(result.to_dict())
    nothing = dict.fromkeys(("value", "ci_low", "ci_high", "p_value"), math.nan)
    data["evidence"]["splits"][0]["estimate"] |= {**nothing, "note": "only 3 people"}
    data["outcome"]["auc"], data["outcome"]["notes"]["auc"] = math.nan, "one label only"
    made = report_contents(data, result.pair_sample(5))
    row = made.figures["excess_by"].table.rows[0]
    assert "not estimated" in row
    assert row[-1] == "only 3 people"
    assert made.gaps.rows[0] == ("AUC", "not estimated", "", "", "one label only")
    assert "nan" not in " ".join(cells(made.gaps))


def test_nothing_was_estimated_at_all(result):
    data = copy.deepcopy(result.to_dict())
    _to_nan(data["evidence"])
    _to_nan(data["outcome"])
    made = report_contents(data, result.pair_sample(5))
    assert made.verdict.kind == "not estimated"
    assert made.figures["excess"].specification is None
    assert "none of its figures could be estimated" in made.figures["excess"].note
    text = " ".join(cell for figure in made.figures.values() for cell in (*cells(figure.table), figure.caption))
    assert "nan" not in text.lower().replace("finance", "")


def _to_nan(value):
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in list(items):
        if isinstance(item, (dict, list, tuple)):
            if isinstance(item, tuple):
                value[key] = item = list(item)
            _to_nan(item)
        elif isinstance(item, float) and key not in ("max_distance", "consistency_threshold"):
            value[key] = math.nan


def test_without_evidence_figures_say_what_they_need(without_evidence):
    found = figures(without_evidence.to_dict())
    assert "evidence=True" in found["excess"].note
    assert found["regimes"].specification
    assert key_figures(without_evidence.to_dict())[0].name == "Mean CEC score"


def test_the_explorer_has_the_pairs_as_they_are(result):
    sample = result.pair_sample()
    found = explorer_data(result.to_dict(), sample)
    pairs = sample.pairs
    assert found["person"] == pairs["person"].tolist()
    assert list(found["regime"]) == pairs["regime"].tolist()
    assert [found["groups"][g] for g in found["group"]] == pairs["group"].astype(str).tolist()
    for name in ("cec", "score", "match_score", "distance", "q_value"):
        known = [math.nan if v is None else v for v in found[name]]
        np.testing.assert_allclose(known, pairs[name].to_numpy(dtype=float), atol=5.1e-5)


def test_scores_follow_from_the_attributions_of_the_explorer(result):
    found = explorer_data(result.to_dict(), result.pair_sample())
    own, match = np.array(found["own"]) / 1e4, np.array(found["match_attribution"]) / 1e4
    half = np.linalg.norm(own - match, axis=0) / 2
    np.testing.assert_allclose(half, found["cec"], atol=1e-3)


def test_values_of_the_explorer_are_those_of_the_tables(hostile):
    sample = hostile.pair_sample(100)
    found = explorer_data(hostile.to_dict(), sample)
    text, gaps, numbers = (found["values"][list(sample.values.columns).index(n)] for n in (
        sample.values.columns[0], "feature_2", "feature_3"))  # fmt: skip
    assert [text["levels"][i] for i in text["own"]] == [
        v[:199] + "…" if len(v) > 200 else v for v in sample.values.iloc[:, 0]
    ]
    assert [v is None for v in gaps["match"]] == sample.match_values["feature_2"].isna().tolist()
    np.testing.assert_allclose(numbers["own"], sample.values["feature_3"].to_numpy(float), rtol=1e-5)


def test_very_many_features_leave_room_for_fewer_pairs():
    assert pairs_to_show(60) == 2000
    assert pairs_to_show(1_000_000) == 1
    assert pairs_to_show(3000) * 3000 <= 150_000
