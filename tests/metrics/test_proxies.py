import json
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.metrics import proxies

# A few trees show what the tests ask of all features together.
proxy_screen = partial(proxies.proxy_screen, n_trees=10)


def draw(seed, n=400, n_groups=2):
    rng = np.random.default_rng(seed)
    group = rng.integers(0, n_groups, n)
    table = pd.DataFrame(
        {
            "shifted": rng.normal(0, 1, n) + 0.8 * group,
            "noise": rng.normal(0, 1, n),
            "town": rng.integers(0, 8, n).astype(str),
        }
    )
    return table, group


def strengths(screen):
    return {row.feature: row for row in screen.features}


def test_a_number_has_the_auc_of_scikit_learn_in_the_direction_that_tells_more():
    table, group = draw(0)
    found = strengths(proxy_screen(table.assign(negative=-table["shifted"]), group))
    expected = roc_auc_score(group, table["shifted"])
    assert found["shifted"].auc == pytest.approx(expected)
    assert found["negative"].auc == pytest.approx(expected)
    assert found["shifted"].auc_by_group == pytest.approx({"0": expected, "1": expected})


def test_intervals_cover_the_known_area_of_shifted_normals_and_of_noise():
    rng = np.random.default_rng(0)
    group = (rng.random(300) < 0.3).astype(np.int64)
    columns = {f"shifted{j}": rng.normal(0, 1, 300) + 0.8 * group for j in range(80)}
    columns |= {f"noise{j}": rng.normal(0, 1, 300) for j in range(80)}
    columns |= {f"town{j}": rng.integers(0, 8, 300).astype(str) for j in range(80)}
    found = strengths(proxy_screen(pd.DataFrame(columns), group, n_trees=1))
    truth = {"shifted": norm.cdf(0.8 / np.sqrt(2)), "noise": 0.5, "town": 0.5}
    for kind, area in truth.items():
        covered = [row.low <= area <= row.high for name, row in found.items() if name.startswith(kind)]
        assert np.mean(covered) > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 80)


def test_strongest_comes_first_and_all_together_tell_at_least_as_much():
    table, group = draw(1, n=1500)
    screen = proxy_screen(table.assign(second=np.random.default_rng(0).normal(0, 1, 1500) + 0.8 * group), group)
    areas = [row.auc for row in screen.features]
    assert areas == sorted(areas, reverse=True)
    assert screen.all_features.auc > areas[0] + 0.03
    assert screen.all_features.low < screen.all_features.auc < screen.all_features.high


def test_a_relation_that_is_not_monotone_is_found():
    rng = np.random.default_rng(2)
    group = rng.integers(0, 2, 2000)
    number = np.where(group == 1, rng.choice([-2, 2], 2000), 0) + rng.normal(0, 1, 2000)
    assert abs(roc_auc_score(group, number) - 0.5) < 0.05
    assert strengths(proxy_screen(pd.DataFrame({"u": number}), group))["u"].auc > 0.8


def test_an_identifier_tells_nothing_of_held_out_people():
    _, group = draw(3)
    table = pd.DataFrame({"id": [f"person {i}" for i in range(len(group))], "other": np.zeros(len(group))})
    row = strengths(proxy_screen(table, group))["id"]
    assert row.auc == pytest.approx(0.5)
    assert (row.kind, row.n_values) == ("category", 400)


def test_missing_values_are_a_value_of_their_own():
    rng = np.random.default_rng(4)
    group = rng.integers(0, 2, 1000)
    number = np.where((group == 1) & (rng.random(1000) < 0.6), np.nan, rng.normal(0, 1, 1000))
    text = pd.Series(np.where((group == 1) & (rng.random(1000) < 0.6), "gone", "x"), dtype=object)
    text[text == "gone"] = None
    found = strengths(proxy_screen(pd.DataFrame({"number": number, "text": text}), group))
    assert found["number"].auc > 0.75
    assert found["text"].auc > 0.75
    assert found["number"].n_missing == np.isnan(number).sum()


@pytest.mark.parametrize("dtype", ["bool", "boolean", "category", "Int64", "string"])
def test_columns_of_any_kind_are_read(dtype):
    rng = np.random.default_rng(5)
    group = rng.integers(0, 2, 300)
    noisy = np.where(rng.random(300) < 0.2, 1 - group, group)
    column = pd.Series(noisy.astype(str if dtype in ("category", "string") else np.int64)).astype(dtype)
    row = proxy_screen(pd.DataFrame({"x": column, "y": column}), group, n_folds=2).features[0]
    assert row.auc == pytest.approx(roc_auc_score(group, noisy))


def test_infinite_numbers_are_the_largest_and_constants_tell_nothing():
    table, group = draw(6)
    table["ratio"] = np.where(table["shifted"] > 1.5, np.inf, table["shifted"])
    table["same"], table["empty"] = 1, np.nan
    found = strengths(proxy_screen(table, group))
    assert found["ratio"].auc == pytest.approx(roc_auc_score(group, np.minimum(table["shifted"], 1.5)), abs=1e-9)
    for name in ("same", "empty"):
        assert found[name].auc == 0.5
        assert "constant" in found[name].note
    assert proxy_screen(table[["empty"]], group).all_features.auc == 0.5


def test_a_perfect_proxy_has_no_interval_and_says_why():
    _, group = draw(7)
    row = proxy_screen(pd.DataFrame({"copy": group, "text": group.astype(str)}), group).features[0]
    assert row.auc == 1
    assert np.isnan([row.low, row.high]).all()
    assert "separated" in row.note


def test_several_groups_are_judged_one_against_the_rest():
    rng = np.random.default_rng(8)
    group = rng.integers(0, 3, 600)
    table = pd.DataFrame({"x": rng.normal(0, 1, 600) + np.array([0, 0, 3])[group]})
    row = proxy_screen(table, group, names=["a", "b", "c"]).features[0]
    assert row.auc == row.auc_by_group["c"]
    assert row.auc_by_group["c"] == pytest.approx(roc_auc_score(group == 2, table["x"]))
    assert row.auc_by_group["c"] > row.auc_by_group["a"]


def test_small_groups_are_shown_as_not_judged():
    table, group = draw(9)
    group = group.copy()
    group[:3] = 2
    screen = proxy_screen(table, group, names=["a", "b", "tiny"])
    assert np.isnan(screen.features[0].auc_by_group["tiny"])
    assert not np.isnan(screen.all_features.auc)
    assert "not judged, fewer than 10 people: tiny" in screen.note


def test_work_is_bounded_and_the_result_says_so():
    table, group = draw(10, n=700)
    screen = proxy_screen(table, group, max_people=300)
    assert (screen.n_people, screen.n_people_used) == (700, 300)
    assert "300 of 700 people, drawn at random" in screen.note


def test_same_seed_same_result_and_plain_data():
    table, group = draw(11)
    first, second = proxy_screen(table, group, random_state=3), proxy_screen(table, group, random_state=3)
    assert first == second
    assert json.loads(json.dumps(first.to_dict()))["features"][0]["feature"] == "shifted"
    assert first.features[0].to_dict()["kind"] == "number"


TABLE, GROUP = draw(13, n=40)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: proxy_screen(TABLE[[]], GROUP), "`X` must have at least one column"),
        (lambda: proxy_screen(TABLE, GROUP[:5]), "has 5 values for 40 people"),
        (lambda: proxy_screen(TABLE, np.full((40, 2), 0.5)), "are not supported here"),
        (lambda: proxy_screen(TABLE, GROUP.astype(str)), "`group` must hold integer codes from 0"),
        (lambda: proxy_screen(TABLE, GROUP - 1), "`group` must hold integer codes from 0"),
        (lambda: proxy_screen(TABLE, GROUP, names=["a"]), "`names` has 1 names for 2 group codes"),
        (lambda: proxy_screen(TABLE, GROUP, n_folds=1), "`n_folds` must be at least 2 to hold people out, got 1"),
        (lambda: proxy_screen(TABLE, GROUP, max_people=5), "`max_people` must be at least 100, got 5"),
        (lambda: proxy_screen(TABLE, GROUP, n_trees=0), "`n_trees` must be at least 1, got 0"),
        (lambda: proxy_screen(TABLE, GROUP, confidence=1), "`confidence` must be a number between 0 and 1, got 1"),
        (lambda: proxy_screen(TABLE[:4], GROUP[:4]), "At least two groups of 10 people are needed for 5 folds"),
        (lambda: proxy_screen(TABLE, GROUP * 0), r"got \{'0': 40\}; use fewer folds, or combine groups"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()


def test_another_kind_of_table_is_refused():
    with pytest.raises(InvalidTypeError, match="`X` must be a pandas table, got ndarray"):
        proxy_screen(np.zeros((4, 1)), [0, 1, 0, 1])
