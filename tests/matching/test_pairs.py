import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.matching.pairs import BEYOND_MAX_DISTANCE, NO_ONE_OF_LABEL, match_pairs

seeds = st.integers(0, 2**32 - 1)


def people(seed, n=60, n_groups=2, n_features=3, n_levels=12):
    """Rounded features with ties; the first rows make sure that every group is there."""
    rng = np.random.default_rng(seed)
    F = rng.integers(0, n_levels, (n, n_features)) * np.array([1.0, 250.0, 0.01])[:n_features]
    group = np.concatenate([np.arange(n_groups), rng.integers(0, n_groups, n - n_groups)])
    return F, rng.integers(0, 2, n), group


@given(seeds)
def test_match_is_the_nearest_of_the_other_group_with_the_same_label(seed):
    F, y, group = people(seed)
    pairs = match_pairs(F, y, group)
    z = (F - F.mean(axis=0)) / F.std(axis=0)
    for i, match, distance in zip(pairs.person, pairs.match, pairs.distance, strict=True):
        candidates = np.flatnonzero((y == y[i]) & (group != group[i]))
        if not len(candidates):
            assert match == -1
            continue
        to = np.sqrt(((z[candidates] - z[i]) ** 2).sum(axis=1))
        assert distance == pytest.approx(to.min(), rel=1e-9, abs=1e-12)
        assert match == candidates[to <= to.min() * (1 + 1e-9) + 1e-14].min()


@given(seeds, st.floats(1e-3, 1e3), st.floats(-1e3, 1e3), st.sampled_from([-1, 1]))
def test_units_of_a_feature_do_not_matter(seed, scale, shift, sign):
    F, y, group = people(seed)
    rescaled = F.copy()
    rescaled[:, 1] = sign * scale * F[:, 1] + shift
    expected, got = match_pairs(F, y, group), match_pairs(rescaled, y, group)
    np.testing.assert_allclose(got.distance, expected.distance, rtol=1e-6, atol=1e-9)


@given(seeds)
def test_names_of_groups_do_not_matter(seed):
    F, y, group = people(seed)
    expected = match_pairs(F, y, group)
    for names in (["z", "a"], [True, False], [9, -1], [("w", 1), ("b", 2)], [2.5, 0.5]):
        got = match_pairs(F, y, [names[g] for g in group])
        assert got.group_names == tuple(sorted(names))
        np.testing.assert_array_equal(got.match, expected.match)
        np.testing.assert_array_equal(got.other_group, 1 - expected.other_group)


@given(seeds)
def test_order_of_rows_does_not_change_distances(seed):
    F, y, group = people(seed)
    order = np.random.default_rng(seed).permutation(len(F))
    shuffled = match_pairs(F[order], y[order], group[order])
    np.testing.assert_allclose(shuffled.distance, match_pairs(F, y, group).distance[order], rtol=1e-9, atol=1e-12)


@given(seeds)
def test_coverage_never_falls_as_max_distance_grows(seed):
    F, y, group = people(seed)
    everyone = match_pairs(F, y, group)
    limits = [0.0, 0.1, 0.5, 1.0, 5.0, np.inf]
    limited = [match_pairs(F, y, group, max_distance=limit) for limit in limits]
    coverage = [pairs.coverage for pairs in limited]
    assert coverage == sorted(coverage)
    assert coverage[-1] == everyone.coverage
    for limit, pairs in zip(limits, limited, strict=True):
        np.testing.assert_array_equal(pairs.is_matched, everyone.is_matched & (everyone.distance <= limit))
        np.testing.assert_array_equal(pairs.match[pairs.is_matched], everyone.match[pairs.is_matched])
        assert sum(pairs.unmatched.values()) == int((~pairs.is_matched).sum())


def test_three_groups_give_each_person_two_rows_in_order():
    F, y, group = people(1, n=200, n_groups=3)
    pairs = match_pairs(F, y, group)
    assert len(pairs) == 400
    assert pairs.n_persons == 200
    np.testing.assert_array_equal(pairs.person, np.repeat(np.arange(200), 2))
    assert all(pairs.other_group[2 * i : 2 * i + 2].tolist() == sorted({0, 1, 2} - {group[i]}) for i in range(len(F)))
    np.testing.assert_array_equal(group[pairs.match], pairs.other_group)
    np.testing.assert_array_equal(y[pairs.match], y[pairs.person])
    two = group != 2  # with the third group taken away, the pairs between the others remain, but for the scale
    z = (F - F.mean(axis=0)) / F.std(axis=0)
    kept = two[pairs.person] & (pairs.other_group != 2)
    for i, d in zip(pairs.person[kept], pairs.distance[kept], strict=True):
        other = (group == 1 - group[i]) & (y == y[i])
        assert d == pytest.approx(np.sqrt(((z[other] - z[i]) ** 2).sum(axis=1)).min(), abs=1e-12)


def test_a_reference_of_the_same_people_gives_the_same_pairs():
    F, y, group = people(2, n=300, n_groups=3)
    expected, got = match_pairs(F, y, group), match_pairs(F, y, group, reference=(F, y, group))
    np.testing.assert_array_equal(got.match, expected.match)
    np.testing.assert_array_equal(got.distance, expected.distance)


def test_people_are_standardized_on_the_reference():
    reference = (np.array([[0.0], [10.0], [0.0], [10.0]]), [1, 1, 1, 1], ["a", "a", "b", "b"])
    pairs = match_pairs(np.array([[100.0]]), [1], ["a"], reference=reference)
    assert (pairs.match.tolist(), pairs.distance.tolist()) == ([3], [18.0])


def test_without_labels_everyone_of_the_other_group_is_a_candidate():
    F, y, group = [[0.0], [1.0], [5.0], [1.1]], [0, 0, 0, 1], [0, 0, 1, 1]
    assert match_pairs(F, y, group).match.tolist() == [2, 2, 1, -1]
    assert match_pairs(F, None, group).match.tolist() == [3, 3, 1, 1]
    assert match_pairs(F, None, group, reference=(F, None, group)).match.tolist() == [3, 3, 1, 1]


def test_ties_go_to_the_lowest_row():
    F = np.repeat([[0.0], [1.0]], [4, 4], axis=0)
    assert match_pairs(F, None, [1, 0, 0, 0, 1, 1, 0, 0]).match.tolist() == [1, 0, 0, 0, 6, 6, 4, 4]


def test_people_without_a_match_are_counted_by_reason():
    F, y, group = [[0.0], [0.0], [1.0], [7.0]], ["no", "no", "no", "yes"], ["a", "b", "a", "a"]
    pairs = match_pairs(F, y, group, max_distance=0)
    assert pairs.match.tolist() == [1, 0, -1, -1]
    assert pairs.distance.tolist() == [0, 0, np.inf, np.inf]
    assert pairs.unmatched == {NO_ONE_OF_LABEL: 1, BEYOND_MAX_DISTANCE: 1}
    assert pairs.coverage == 0.5


def test_a_label_the_reference_lacks_leaves_people_unmatched():
    reference = ([[0.0], [1.0]], [0, 0], [0, 1])
    pairs = match_pairs([[0.0], [0.0]], [0, 7], [0, 0], reference=reference)
    assert pairs.match.tolist() == [1, -1]
    assert pairs.unmatched[NO_ONE_OF_LABEL] == 1


def test_no_people_make_no_pairs():
    pairs = match_pairs(np.empty((0, 1)), [], [], reference=([[0.0], [1.0]], [0, 0], [0, 1]))
    assert len(pairs) == 0
    assert np.isnan(pairs.coverage)


def test_tables_with_categories_are_matched():
    F = pd.DataFrame({"income": [1.0, 1.0, 1.0], "purpose": ["car", "home", "car"]})
    assert match_pairs(F, None, pd.Series(["a", "b", "b"])).match.tolist() == [2, 0, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": [1, 1, 1]}, r"`y` has 3 values, but F has 4 rows \(reference\)"),
        ({"group": [0, 1]}, r"`group` has 2 values, but F has 4 rows \(reference\)"),
        ({"group": np.eye(4)}, r"`group` must be one-dimensional; got shape \(4, 4\)"),
        ({"group": ["a", None, "b", "b"]}, "`group` is missing for 1 of 4 people of the reference"),
        ({"group": pd.Series(["a", pd.NA, pd.NA, "b"], dtype=object)}, "`group` is missing for 2 of 4"),
        ({"group": [0.0, 1.0, np.nan, np.nan]}, "`group` is missing for 2 of 4 people"),
        ({"y": [0.0, 1.0, np.nan, 1.0]}, "`y` is missing for 1 of 4 people of the reference"),
        ({"y": pd.Series([1, None, 1, 1], dtype=object)}, "`y` is missing for 1 of 4"),
        ({"group": ["a"] * 4}, "at least two groups; all 4 people of the reference are in 'a'"),
        ({"F": [[1.0], [np.nan], [1.0], [2.0]]}, r"missing values: 'column 0' \(1\)"),
        ({"max_distance": -1.0}, "`max_distance` must be 0 or more, or None for no limit; got -1.0"),
        ({"max_distance": float("nan")}, "`max_distance` must be 0 or more"),
        ({"reference": ([[1.0, 2.0]] * 2, [0, 1], [0, 1])}, "reference has 2 financial features, but this table has 1"),
        (
            {"reference": ([[1.0], [2.0]], [0, 1], [0, 7])},
            r"2 people are in groups that the reference does not have, \[1\]; it has \[0, 7\]",
        ),
        ({"reference": ([[1.0], [2.0]], None, [0, 1])}, "for neither; the reference has none"),
        ({"y": None, "reference": ([[1.0], [2.0]], [0, 1], [0, 1])}, "for neither; the people has none"),
        ({"y": [1], "reference": ([[1.0], [2.0]], [0, 1], [0, 1])}, r"`y` has 1 values, but F has 4 rows \(people\)"),
    ],
)
def test_bad_input_is_refused(change, message):
    arguments = {"F": [[1.0], [2.0], [3.0], [4.0]], "y": [0, 1, 0, 1], "group": [0, 0, 1, 1], **change}
    with pytest.raises(InvalidInputError, match=message):
        match_pairs(**arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reference": ([[1.0]], [0])}, r"`reference` must be a tuple \(F, y, group\); got 2 items"),
        ({"reference": np.eye(2)}, "got ndarray"),
        ({"group": pd.Series([["a"], ["b"]])}, "`group` must hold hashable values; unhashable type: 'list'"),
    ],
)
def test_things_of_the_wrong_kind_are_refused(change, message):
    with pytest.raises(InvalidTypeError, match=message):
        match_pairs(**{"F": [[1.0], [2.0]], "y": [0, 0], "group": [0, 1], **change})
