import json

import numpy as np
import pandas as pd
import pytest

from evenhand.exceptions import InvalidInputError
from evenhand.matching.diagnostics import match_diagnostics
from evenhand.matching.pairs import NO_ONE_OF_LABEL, match_pairs


@pytest.fixture
def shifted():
    """Two groups whose incomes differ by one standard deviation, and whose debts do not."""
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1], [300, 700])
    F = rng.normal(size=(1000, 2)) + np.column_stack([group, np.zeros(1000)])
    return pd.DataFrame(F, columns=["income", "debt"]), rng.integers(0, 2, 1000), group


def test_matching_brings_features_into_balance(shifted):
    F, y, group = shifted
    quality = match_diagnostics(match_pairs(F, y, group, max_distance=0.3), F)
    by_feature = {(row.feature, row.group): row for row in quality.balance}
    assert by_feature["income", 0].before == pytest.approx(-1, abs=0.15)
    assert by_feature["income", 1].before == pytest.approx(1, abs=0.15)
    assert quality.worst_balance < 0.1
    assert 0.7 < quality.coverage < 1


def test_standardized_mean_difference_follows_its_definition(shifted):
    F, y, group = shifted
    pairs = match_pairs(F, y, group)
    row = next(r for r in match_diagnostics(pairs, F).balance if (r.feature, r.group) == ("income", 1))
    income = F["income"].to_numpy()
    own, other = income[group == 1], income[group == 0]
    pooled = np.sqrt((own.var() + other.var()) / 2)
    from_own = pairs.group[pairs.person] == 1
    assert row.before == pytest.approx((own.mean() - other.mean()) / pooled)
    assert row.after == pytest.approx((income[pairs.person[from_own]] - income[pairs.match[from_own]]).mean() / pooled)


def test_reuse_is_counted():
    F = [[0.0], [0.0], [0.0], [0.0], [9.0]]
    quality = match_diagnostics(match_pairs(F, None, [0, 0, 0, 1, 1]), F)
    # rows 0-2 all take row 3; rows 3 and 4 take row 0
    assert (quality.reuse.n_distinct, quality.reuse.max, quality.reuse.mean) == (2, 3, 2.5)
    assert quality.reuse.distinct_share == pytest.approx(2 / 5)
    assert quality.reuse.effective_n == pytest.approx(25 / 13)
    assert quality.twin_share == 0.8
    assert quality.distance_quantiles[0.5] == 0


def test_coverage_is_told_for_each_pair_of_groups():
    F = [[0.0], [1.0], [2.0], [3.0]]
    quality = match_diagnostics(match_pairs(F, [0, 0, 1, 0], ["a", "b", "c", "b"]), F)
    told = {(c.group, c.other_group): (c.n_pairs, c.n_matched) for c in quality.coverage_by_group}
    assert told == {("a", "b"): (1, 1), ("a", "c"): (1, 0), ("b", "a"): (2, 2), ("b", "c"): (2, 0),
                    ("c", "a"): (1, 0), ("c", "b"): (1, 0)}  # fmt: skip
    assert quality.unmatched[NO_ONE_OF_LABEL] == 5
    assert quality.coverage == pytest.approx(3 / 8)


def test_metrics_that_cannot_be_estimated_are_nan_and_null_in_json():
    F = [[0.0, 1.0], [1.0, 1.0]]
    quality = match_diagnostics(match_pairs(F, [0, 1], [0, 1]), F)
    assert np.isnan(quality.worst_balance)
    assert np.isnan(quality.balance[0].before)  # constants that differ: no standard deviation to divide by
    assert quality.balance[1].before == 0
    assert quality.constant_features == ("column 1",)
    plain = json.loads(json.dumps(quality.to_dict(), allow_nan=False))
    assert plain["worst_balance"] is None
    assert plain["reuse"]["effective_n"] is None
    assert plain["distance_quantiles"]["0.5"] is None


def test_a_group_of_the_reference_may_have_no_one_to_match(shifted):
    F, y, group = shifted
    some = group == 0
    pairs = match_pairs(F[some], y[some], group[some], reference=(F, y, group))
    quality = match_diagnostics(pairs, F[some], F)
    assert np.isnan(quality.coverage_by_group[1].coverage)
    assert np.isnan(quality.balance[-1].before)
    assert abs(quality.balance[0].after) < abs(quality.balance[0].before)


def test_features_of_other_people_are_refused(shifted):
    F, y, group = shifted
    pairs = match_pairs(F, y, group)
    with pytest.raises(InvalidInputError, match="`F` has 10 rows, but 1000 people were matched"):
        match_diagnostics(pairs, F[:10])
    with pytest.raises(InvalidInputError, match="`F_ref` has 10 rows, but 1000 people were matched"):
        match_diagnostics(pairs, F, F[:10])
    elsewhere = match_pairs(F[:400], y[:400], group[:400], reference=(F, y, group))
    with pytest.raises(InvalidInputError, match=r"`F_ref` is required: .* a reference of 1000 others"):
        match_diagnostics(elsewhere, F[:400])


def test_balance_beside_a_value_that_dwarfs_the_others_does_not_depend_on_the_order():
    rng = np.random.default_rng(3)
    group = np.repeat(["a", "b", "c"], 40)
    F = rng.integers(0, 9_000, (120, 1)).astype(float)
    F[7] = 1e20
    for order in (np.arange(120), np.argsort(group == "b", kind="stable"), rng.permutation(120)):
        pairs = match_pairs(F[order], np.ones(120, dtype=int), group[order])
        balance = {(row.group, row.other_group): row for row in match_diagnostics(pairs, F[order]).balance}
        assert balance["b", "c"].before == 0  # alike to the last digits that are left
        assert balance["a", "b"].before == pytest.approx((2 / 39) ** 0.5)  # one of 40 has it all
