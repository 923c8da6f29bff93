"""The score gap: estimates against statsmodels, tests against all reshufflings, error rates against simulated truth."""

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats

from evenhand.matching.leaves import FinanceScale, Leaves
from evenhand.metrics import score_gap
from evenhand.metrics.adjustment import correlation_of, smallest_p_values, stepwise_p_values
from evenhand.metrics.score_gap import FinanceControls, LeafPeople, gap_coefficients, group_gaps

NO_CONTROLS = FinanceControls(np.zeros((0, 0)))


def people(rng, n=600, share=0.2, effect=0.0, right=1.0, depends=False, weight=None):
    """Two inputs apart from finances, the second a stand-in that is right for some; their sum; a decision."""
    finances = np.column_stack([np.exp(rng.normal(size=n)), rng.random(n) < 0.3, rng.normal(size=n)]).astype(float)
    chance = stats.norm.cdf(np.sin(2 * finances[:, 2]) + stats.norm.ppf(share)) if depends else np.full(n, share)
    group = (rng.random(n) < chance).astype(np.int64)
    label = (rng.random(n) < stats.norm.cdf(finances[:, 2])).astype(np.int64)
    stand_in = np.where(rng.random(n) < right, group, 1 - group)
    values = np.column_stack([rng.normal(size=n) + finances[:, 2] ** 2, effect * stand_in])
    total = values.sum(axis=1)
    leaves = Leaves.of(finances, label, np.arange(n, dtype=np.uint64), n)
    return LeafPeople(
        leaf=leaves.leaf(finances, label),
        group=group,
        label=label,
        person=rng.integers(0, 2**63, n).astype(np.uint64),
        weight=np.ones(n) if weight is None else weight,
        bucket=rng.integers(0, 1024, n),
        finances=leaves.scale.transform(finances),
        values=np.column_stack([values, total, total > 1]).astype(np.float32),
        by={},
    )


def gap_of(some, controls=None, n_inputs=2, **options):
    controls = FinanceControls.of(some.finances) if controls is None else controls
    return group_gaps(lambda: [some], controls, [(1, 0)], 2, np.ones(n_inputs, dtype=bool), **options)[0]


def few(values, leaf, group, **changes):
    """People without finances: everything is known from a few numbers."""
    n = len(leaf)
    made = LeafPeople(
        leaf=np.asarray(leaf),
        group=np.asarray(group),
        label=np.zeros(n, dtype=np.int64),
        person=np.arange(n, dtype=np.uint64),
        weight=np.ones(n),
        bucket=np.arange(n),
        finances=np.zeros((n, 0), dtype=np.float32),
        values=np.asarray(values, dtype=np.float32).reshape(n, -1),
        by={},
    )
    return replace(made, **changes)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_gap_is_the_coefficient_of_a_regression_with_a_constant_for_each_leaf(weighted):
    rng = np.random.default_rng(1)
    some = people(rng, effect=0.5, right=0.8, weight=rng.exponential(size=600) + 0.2 if weighted else None)
    controls = FinanceControls.of(some.finances)
    design = np.column_stack([some.group, np.eye(some.leaf.max() + 1)[some.leaf], controls.values(some)])
    found = gap_of(some, controls)
    coefficients = gap_coefficients(some, controls, 1, 0, np.ones((1, 600)))
    for k, column in enumerate(found.columns):
        y = some.values[:, k].astype(float)
        expected = np.linalg.lstsq(np.sqrt(some.weight)[:, None] * design, np.sqrt(some.weight) * y, rcond=1e-12)[0][0]
        assert column.value == pytest.approx(expected, abs=1e-9)
        assert (coefficients @ y)[0] == pytest.approx(expected, abs=1e-9)
    assert sum(column.value for column in found.columns[:2]) == pytest.approx(found.columns[2].value, abs=1e-6)
    assert found.n_people + found.n_alone == 600


def test_the_distribution_is_that_of_all_reshufflings():
    rng = np.random.default_rng(2)
    leaf, group = np.repeat([0, 1, 2], [5, 4, 3]), np.array([1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0])
    values = rng.exponential(size=12)
    residual = values - np.bincount(leaf, values)[leaf] / np.bincount(leaf)[leaf]
    ways = product(combinations(range(5), 2), combinations(range(5, 9), 1))
    every = np.array([residual[[*first, *second]].sum() for first, second in ways])
    found = gap_of(few(values, leaf, group), NO_CONTROLS, 0)
    column, unit = found.columns[0], 2 * 3 / 5 + 3 / 4
    statistic = residual[group == 1].sum()
    assert column.value == pytest.approx(statistic / unit, rel=1e-4)
    assert column.standard_error == pytest.approx(every.std() / unit, rel=1e-5)
    p = (np.abs(every) >= abs(statistic) - 1e-9).mean()
    assert column.p_value == pytest.approx(p, abs=4 * np.sqrt(p * (1 - p) / 4000))
    assert (found.n_people, found.n_alone) == (9, 3)
    assert sum(found.shuffles[0].counts) == 4000


def test_an_interval_excludes_0_exactly_if_the_test_rejects_it():
    rejected = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        found = gap_of(people(rng, 250, share=rng.choice([0.04, 0.2, 0.5]), effect=0.6, right=0.7))
        for k, column in enumerate(found.columns):
            p = found.p_adjusted[k] if k < 2 else column.p_value
            excludes = column.low > 0 or column.high < 0
            assert excludes == (p <= 0.05)
            rejected.append(excludes)
    assert 20 < sum(rejected) < 200  # both occur


def test_both_ways_of_testing_agree_where_they_meet(monkeypatch):
    some = people(np.random.default_rng(3), 3000, 0.1, effect=0.1, right=0.8)
    monkeypatch.setattr(score_gap, "_LARGE", 10**9)
    drawn = gap_of(some)
    monkeypatch.setattr(score_gap, "_LARGE", 0)
    closed = gap_of(some)
    for one, other in zip(drawn.columns, closed.columns, strict=True):
        assert one.p_value == pytest.approx(other.p_value, abs=0.03)
        assert one.low == pytest.approx(other.low, abs=0.12 * one.standard_error)
        assert one.high == pytest.approx(other.high, abs=0.12 * one.standard_error)
    np.testing.assert_allclose(drawn.detectable, closed.detectable, rtol=0.05)
    assert drawn.shuffles[2].is_drawn
    assert not closed.shuffles[2].is_drawn


def test_neither_the_order_of_rows_nor_the_parts_matter():
    rng = np.random.default_rng(4)
    some = people(rng, 400, 0.1, effect=0.3, right=0.7)
    controls, tested, order = FinanceControls.of(some.finances), np.ones(2, dtype=bool), rng.permutation(400)
    whole = gap_of(some, controls)
    parts = [some.rows(order[:150]), some.rows(order[150:])]
    split = group_gaps(lambda: parts, controls, [(1, 0)], 2, tested)[0]
    turned = group_gaps(lambda: [some], controls, [(0, 1)], 2, tested)[0]
    for one, other, back in zip(whole.columns, split.columns, turned.columns, strict=True):
        assert other.value == pytest.approx(one.value, abs=1e-12)
        assert other.p_value == one.p_value == back.p_value
        assert (back.value, back.low) == pytest.approx((-one.value, -one.high), abs=1e-9)


def test_copies_of_an_applicant_are_one_person():
    rng = np.random.default_rng(5)
    some = people(rng, 300, 0.2, effect=0.3, right=0.7)
    tenfold = some.rows(np.tile(np.arange(300), 10))
    once, often = gap_of(some, is_given=True), gap_of(tenfold, is_given=True)
    for one, other in zip(once.columns, often.columns, strict=True):
        assert other.value == pytest.approx(one.value, abs=1e-9)
        assert other.standard_error == pytest.approx(one.standard_error, rel=1e-9)
        assert other.p_value == one.p_value
    # As different people, they would seem to be ten times as many.
    apart = replace(tenfold, person=np.arange(3000, dtype=np.uint64))
    assert gap_of(apart).columns[2].standard_error < 0.4 * once.columns[2].standard_error


def test_an_applicant_in_several_leaves_is_shuffled_as_one():
    rng = np.random.default_rng(6)
    rates = []
    for _ in range(150):
        applicant = np.repeat(np.arange(120), 3)
        group = (rng.random(120) < 0.3).astype(np.int64)[applicant]
        values = rng.normal(size=120)[applicant] + 0.1 * rng.normal(size=360)
        some = few(values, rng.integers(0, 12, 360), group, person=applicant.astype(np.uint64))
        rates.append([gap_of(some, NO_CONTROLS, 0, is_given=given).columns[0].p_value <= 0.05 for given in (True,)])
    assert np.mean(rates) < 0.11


@pytest.mark.slow
@pytest.mark.parametrize("leaning", [0.0, 1.0])
def test_applicants_with_up_to_four_rows_raise_no_more_false_alarms(leaning):
    """An applicant's rows differ in finances, label and inputs; the group depends on the applicant's own finances."""
    rejected = []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        applicant = np.repeat(np.arange(300), rng.integers(1, 5, 300))
        n, own = len(applicant), rng.normal(size=(300, 3))
        finances = 0.8 * own[applicant] + 0.6 * rng.normal(size=(n, 3))
        group = (rng.random(300) < stats.norm.cdf(leaning * own[:, 0] - 0.5)).astype(np.int64)[applicant]
        label = (rng.random(n) < stats.norm.cdf(finances[:, 0])).astype(np.int64)
        inputs = 0.8 * rng.normal(size=(300, 3))[applicant] + 0.6 * rng.normal(size=(n, 3)) + 0.6 * finances
        total = inputs.sum(axis=1)
        leaves = Leaves.of(finances, label, rng.integers(0, 2**62, n).astype(np.uint64), n)
        some = few(
            np.column_stack([inputs, total, total > 0]), leaves.leaf(finances, label), group, label=label,
            person=applicant.astype(np.uint64), finances=leaves.scale.transform(finances),
        )  # fmt: skip
        found = gap_of(some, n_inputs=3, is_given=True)
        rejected.append([found.columns[3].p_value, found.columns[4].p_value, min(found.p_adjusted)])
    assert np.mean(np.array(rejected) <= 0.05, axis=0) == pytest.approx(0.05, abs=0.03)


def test_three_groups_are_tested_two_by_two():
    rng = np.random.default_rng(7)
    leaf, group = rng.integers(0, 30, 900), rng.integers(0, 3, 900)
    values = rng.normal(size=900) - 5.0 * (group == 2)
    sides = [(1, 0), (2, 0), (2, 1)]
    every = group_gaps(lambda: [few(values, leaf, group)], NO_CONTROLS, sides, 3, np.zeros(0, dtype=bool))
    two = few(values, leaf, group).rows(group < 2)
    # The gap of a third group neither moves nor blurs that of two others.
    alone = group_gaps(lambda: [two], NO_CONTROLS, [(1, 0)], 3, np.zeros(0, dtype=bool))[0]
    assert every[0].columns[0].value == pytest.approx(alone.columns[0].value)
    assert every[0].columns[0].standard_error == pytest.approx(alone.columns[0].standard_error)
    assert [gap.columns[0].value for gap in every[1:]] == pytest.approx([-5, -5], abs=0.3)


@pytest.mark.slow
def test_pairs_find_as_much_as_reshuffling_all_labels_at_once():
    """With three groups, one of which differs, against the largest of all pairs over shuffles of every label."""
    rng = np.random.default_rng(14)
    leaf, sides, found = np.repeat(np.arange(33), 30), [(1, 0), (2, 0), (2, 1)], []
    for _ in range(100):
        group = rng.choice(3, 990, p=[0.4, 0.4, 0.2])
        values = rng.normal(size=990) + 0.25 * (group == 2)
        every = group_gaps(lambda: [few(values, leaf, group)], NO_CONTROLS, sides, 3, np.zeros(0, dtype=bool))  # noqa: B023
        p = np.array([gap.columns[0].p_value for gap in every])
        adjusted = stepwise_p_values(p, correlation_of([gap.influence[:, 0] for gap in every]), rng)
        residual = values - (np.bincount(leaf, values) / 30)[leaf]
        keys = rng.random((1000, 990))
        keys[0] = np.arange(990) / 990
        n, sizes = np.zeros((33, 3)), []
        np.add.at(n, (leaf, group), 1)
        for a, b in sides:
            weight = n[:, [a, b]].prod(axis=1) / np.maximum(n[:, a] + n[:, b], 1)
            share = [np.where(group == g, (weight / np.maximum(n[:, g], 1))[leaf], 0) for g in (a, b)]
            gap = residual[np.argsort(leaf + keys, axis=1)] @ (share[0] - share[1])
            sizes.append(np.abs(gap) / gap.std())
        at_once = (np.max(sizes, axis=0) >= np.array(sizes)[:, :1] - 1e-9).mean(axis=1)
        found.append([(p_values[1:] <= 0.05).mean() for p_values in (adjusted, at_once)])
    stepwise, at_once = np.mean(found, axis=0)
    assert 0.3 < at_once < 0.9
    assert stepwise > at_once - 0.02


def test_no_one_to_compare_with_is_said_and_few_have_an_interval_without_end():
    apart = gap_of(few(np.arange(6.0), [0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1]), NO_CONTROLS, 0)
    assert np.isnan(apart.columns[0].value)
    assert "both groups" in apart.columns[0].note
    assert apart.n_alone == 6
    lonely = gap_of(few([0.0, 1.0, 5.0], [0, 0, 0], [0, 0, 1]), NO_CONTROLS, 0).columns[0]
    assert (lonely.low, lonely.high) == (-np.inf, np.inf)
    assert lonely.p_value > 0.3
    assert "any size" in lonely.note


def test_the_same_value_for_everyone_is_no_gap_at_all():
    some = people(np.random.default_rng(8))
    flat = gap_of(replace(some, values=np.ones_like(some.values)))
    assert [(c.value, c.standard_error, c.p_value) for c in flat.columns] == [(0.0, 0.0, 1.0)] * 4


@pytest.mark.parametrize("extreme", [99999.0, 1e300, -1e12])
def test_an_extreme_value_does_not_hide_a_gap(extreme):
    rng = np.random.default_rng(9)
    n = 1000
    group, label = (rng.random(n) < 0.3).astype(np.int64), rng.integers(0, 2, n)
    finances = np.column_stack([rng.random(n), rng.normal(size=n)])
    values = -0.8 * group + 0.3 * rng.normal(size=n)
    gaps = []
    for most in (1.0, extreme):
        points = finances.copy()
        points[7, 0] = most
        leaves = Leaves.of(points, label, np.arange(n, dtype=np.uint64), n)
        some = few(values, leaves.leaf(points, label), group, label=label, finances=leaves.scale.transform(points))
        gaps.append(gap_of(some, FinanceControls.of(some.finances), 0).columns[0])
    assert gaps[1].value == pytest.approx(gaps[0].value, abs=0.02)
    assert gaps[1].high < -0.7


def test_the_scale_keeps_what_is_rare_apart():
    rare = (np.arange(1000) % 250 == 0).astype(float)
    scale = FinanceScale.of(np.column_stack([rare, np.full(1000, 3.0)]))
    at = scale.transform(np.array([[0.0, 3.0], [1.0, 9.0]]))
    assert at[1, 0] - at[0, 0] > 5
    assert (at[:, 1] == 0).all()


def test_leaves_are_found_again_whatever_the_order():
    rng = np.random.default_rng(10)
    points, label = rng.normal(size=(500, 3)), rng.integers(0, 2, 500)
    keys, order = rng.integers(0, 2**63, 500).astype(np.uint64), rng.permutation(500)
    first, second = Leaves.of(points, label, keys, 500), Leaves.of(points[order], label[order], keys[order], 500)
    np.testing.assert_array_equal(first.leaf(points, label), second.leaf(points, label))
    np.testing.assert_array_equal(first.row, order[second.row])
    sizes = np.bincount(first.leaf(points, label))
    assert sizes.min() >= 5
    assert sizes.max() < 40
    assert all(len(np.unique(label[first.leaf(points, label) == leaf])) == 1 for leaf in range(len(first)))


@pytest.mark.parametrize("share", [0.05, pytest.param(0.5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("depends", [False, True])
def test_false_alarms_and_coverage_without_a_gap(share, depends):
    rejected, covered = [], []
    for seed in range(120):
        some = people(np.random.default_rng(seed), 500, share, effect=0.4, right=0.5, depends=depends)
        found = gap_of(some)
        rejected.append(
            [found.columns[2].p_value <= 0.05, found.columns[3].p_value <= 0.05, min(found.p_adjusted) <= 0.05]
        )
        known = gap_of(replace(some, values=some.values + np.float32(0.7) * some.group[:, None]))
        covered.append(known.columns[2].low <= 0.7 <= known.columns[2].high)
    assert (np.mean(rejected, axis=0) < 0.11).all()
    assert np.mean(covered) > 0.89


@pytest.mark.parametrize(("right", "least"), [(1.0, 1.0), (0.8, 0.95)])
def test_a_stand_in_is_found_in_a_group_of_fifty(right, least):
    effect = -0.3 / (2 * right - 1)
    found = [
        min(gap_of(people(np.random.default_rng(seed), 1000, 0.05, effect, right)).p_adjusted) for seed in range(40)
    ]
    assert np.mean(np.array(found) <= 0.05 / 4) >= least


def test_an_input_that_moves_scores_more_has_more_of_the_level():
    rng = np.random.default_rng(13)
    leaf, group = rng.integers(0, 20, 600), (rng.random(600) < 0.1).astype(np.int64)
    values = rng.normal(size=(600, 10))

    def found(scale):
        parts = values * scale
        some = few(np.column_stack([parts, parts.sum(axis=1)]), leaf, group)
        return group_gaps(lambda: [some], NO_CONTROLS, [(1, 0)], 2, np.ones(10, dtype=bool))[0]

    heavy, equal = found(np.r_[5.0, np.ones(9)]), found(np.ones(10))
    # A gap of so many standard errors is what the interval allows for; no input has less than half of an equal share.
    reach = [
        [(column.high - column.low) / column.standard_error / 2 for column in gap.columns] for gap in (heavy, equal)
    ]
    assert reach[0][0] < reach[1][0] - 0.3
    assert all(one < other + 0.5 for one, other in zip(reach[0][1:10], reach[1][1:10], strict=True))


def test_weights_of_a_person_stay_while_labels_move():
    rng = np.random.default_rng(11)
    rejected = []
    for _ in range(150):
        leaf, group = rng.integers(0, 15, 400), (rng.random(400) < 0.15).astype(np.int64)
        weight = rng.exponential(size=400) + 0.1
        some = few(rng.normal(size=400) / weight, leaf, group, weight=weight)
        rejected.append(gap_of(some, NO_CONTROLS, 0).columns[0].p_value <= 0.05)
    assert np.mean(rejected) < 0.1
    fitted = sm.WLS(some.values[:, 0], np.column_stack([group, np.eye(15)[leaf]]), weights=weight).fit()
    assert gap_of(some, NO_CONTROLS, 0).columns[0].value == pytest.approx(fitted.params[0])


def test_smallest_p_values_hold_their_level():
    rng = np.random.default_rng(12)
    correlation = np.full((6, 6), 0.6) + 0.4 * np.eye(6)
    draws = rng.multivariate_normal(np.zeros(6), correlation, 400)
    smallest = [
        smallest_p_values(2 * stats.norm.sf(np.abs(z)), correlation, np.arange(6), np.random.default_rng(0))
        for z in draws
    ]
    assert np.mean([adjusted.min() <= 0.05 for adjusted, _ in smallest]) == pytest.approx(0.05, abs=0.03)
    assert 0.05 / 6 < smallest[0][1] < 0.05
