"""The score gap: coefficients against statsmodels, errors against loops, adjusted p-values against simulation."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import statsmodels.api as sm
import torch
from scipy import stats
from scipy.spatial import cKDTree

from evenhand.metrics.score_gap import FinanceControls, group_gap, smallest_p_values


@dataclass(frozen=True)
class Pairs:
    person: np.ndarray
    person_row: np.ndarray
    other: np.ndarray
    group: np.ndarray
    other_group: np.ndarray
    label: np.ndarray
    finances: np.ndarray
    score_gaps: np.ndarray
    pair_weight: np.ndarray

    @property
    def unit(self):
        return self.person

    @property
    def match(self):
        return self.other

    def taken(self, rows):
        return Pairs(**{name: values[rows] for name, values in vars(self).items()})


def made(rng, n=120, k=2, gap=0.0, n_each=3, n_columns=3, n_outside=0):
    """People matched at random with others of the other group and their label; columns depend on finances too."""
    points = rng.normal(size=(n, k))
    group, label = rng.integers(0, 2, n), rng.integers(0, 2, n)
    own = rng.normal(size=(n, n_columns)) + points[:, :1] + 0.5 * points[:, :1] ** 2
    own[:, 0] += gap * group
    rows = []
    for i in range(n):
        near = np.flatnonzero((group != group[i]) & (label == label[i]))
        near = near[np.argsort(np.linalg.norm(points[near] - points[i], axis=1))[:n_each]]
        rows += [(i, j) for j in near]
    i, j = np.array(rows).T
    pairs = Pairs(
        person=i,
        person_row=np.where(i < n_outside, -1, i),
        other=j,
        group=group[i],
        other_group=group[j],
        label=label[i],
        finances=points[i],
        score_gaps=np.column_stack([own[i] - own[j], (own[i] - own[j]).sum(axis=1)]),
        pair_weight=np.ones(len(i)),
    )
    return pairs, FinanceControls.of(points)


def weighted(pairs, rng):
    """The same with sampling weights."""
    return replace(pairs, pair_weight=rng.uniform(0.2, 4, len(pairs.person)))


def weights_of(pairs):
    share = pairs.pair_weight / np.bincount(pairs.person)[pairs.person]
    return share * 0.5 / np.bincount(pairs.group, share)[pairs.group]


def regressors_of(pairs, controls):
    rows = np.arange(len(pairs.person))
    columns = (pairs.finances[rows], pairs.match[rows], pairs.label[rows])
    apart = controls.difference(*map(torch.from_numpy, columns)).numpy()
    return np.column_stack([np.where(pairs.group == 1, 1.0, -1.0), apart])


@pytest.mark.parametrize("is_weighted", [False, True])
def test_gaps_are_the_coefficients_of_a_weighted_regression(rng, is_weighted):
    pairs, controls = made(rng)
    pairs = weighted(pairs, rng) if is_weighted else pairs
    found = group_gap(lambda: iter([pairs]), controls, 1, 0)
    X, w = regressors_of(pairs, controls), weights_of(pairs)
    for k, column in enumerate(found.columns):
        assert column.value == pytest.approx(sm.WLS(pairs.score_gaps[:, k], X, weights=w).fit().params[0], rel=1e-9)


@pytest.mark.parametrize("n_outside", [0, 30])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_errors_are_those_of_a_loop_over_people(rng, n_outside, is_weighted):
    pairs, controls = made(rng, n_outside=n_outside)
    pairs = weighted(pairs, rng) if is_weighted else pairs
    if n_outside:  # people outside the reference are no one's match
        pairs = pairs.taken(np.flatnonzero(pairs.other >= n_outside))
    found = group_gap(lambda: iter([pairs]), controls, 1, 0)
    X, w = regressors_of(pairs, controls), weights_of(pairs)
    inverse = np.linalg.pinv(X.T @ (w[:, None] * X), hermitian=True)
    linear = w * (X @ inverse[0])
    for k, column in enumerate(found.columns):
        fit = sm.WLS(pairs.score_gaps[:, k], X, weights=w).fit()
        squares = leverage = 0.0
        for v in range(len(controls.of_reference)):
            has = (pairs.person == v) | (pairs.other == v)
            total = (linear * fit.resid)[has].sum() / np.sqrt(max(1 - 2 * w[has].sum(), 0.1))
            squares += total**2
            leverage += (linear[pairs.person == v].sum() - linear[pairs.other == v].sum()) ** 2
        pooled = leverage * np.sum(w * fit.resid**2) / 2
        assert column.standard_error == pytest.approx(np.sqrt(max(squares, pooled)), rel=1e-7)


def test_errors_of_weighted_pairs_are_those_of_clustered_regressions(rng):
    """Of matches who serve once each: what people share and what matches share, both by statsmodels."""
    n, n_each = 1500, 2
    person, group = np.repeat(np.arange(n), n_each), np.arange(n) % 2
    other = n + rng.permutation(len(person))
    points = rng.normal(size=(n + len(person), 1))
    weight = rng.uniform(0.2, 4, n)[person] * rng.uniform(0.5, 1.5, len(person))
    noise = (rng.normal(size=n)[person] + rng.normal(size=len(person))) * weight  # not the same for all weights
    gaps = np.where(group[person] == 1, 0.3, -0.3) + noise
    pairs = Pairs(
        person, np.full(len(person), -1), other, group[person], 1 - group[person], rng.integers(0, 2, n)[person],
        points[person], gaps[:, None], weight,
    )  # fmt: skip
    controls = FinanceControls.of(points)
    (found,) = group_gap(lambda: iter([pairs]), controls, 1, 0).columns
    regression = sm.WLS(gaps, regressors_of(pairs, controls), weights=weights_of(pairs))
    by_person = regression.fit(
        cov_type="cluster", cov_kwds={"groups": person, "use_correction": False, "df_correction": False}
    )
    assert found.value == pytest.approx(by_person.params[0], rel=1e-9)
    variance = by_person.bse[0] ** 2 + regression.fit(cov_type="HC0").bse[0] ** 2
    assert found.standard_error == pytest.approx(np.sqrt(variance), rel=0.01)


def test_pairs_that_weigh_nothing_are_as_good_as_absent(rng):
    pairs, controls = made(rng)
    absent = np.isin(pairs.person, np.arange(20))
    zero = replace(pairs, pair_weight=np.where(absent, 0.0, 1.0))
    with_zeros, without = (
        group_gap(lambda p=p: iter([p]), controls, 1, 0) for p in (zero, pairs.taken(np.flatnonzero(~absent)))
    )
    assert with_zeros.n_people == without.n_people
    assert with_zeros.n_pairs == without.n_pairs
    for one, other in zip(with_zeros.columns, without.columns, strict=True):
        assert {**vars(one), "note": 0} == pytest.approx({**vars(other), "note": 0}, rel=1e-9, nan_ok=True)


def test_decisions_have_the_degrees_of_freedom_of_their_people(rng):
    pairs, controls = made(rng)
    pairs = replace(pairs, score_gaps=np.sign(pairs.score_gaps) * (np.abs(pairs.score_gaps) > 2))
    found = group_gap(lambda: iter([pairs]), controls, 1, 0, decisions=[1, 2]).columns
    usual = group_gap(lambda: iter([pairs]), controls, 1, 0).columns
    X, w = regressors_of(pairs, controls), weights_of(pairs)
    linear = w * (X @ np.linalg.pinv(X.T @ (w[:, None] * X), hermitian=True)[0])
    for k in (1, 2):
        influence = linear * sm.WLS(pairs.score_gaps[:, k], X, weights=w).fit().resid
        sums = []
        for v in range(len(controls.of_reference)):
            has = (pairs.person == v) | (pairs.other == v)
            sums.append(influence[has].sum() / np.sqrt(1 - 2 * w[has].sum()))
        assert found[k].df == pytest.approx(np.sum(np.square(sums)) ** 2 / np.sum(np.power(sums, 4)) - 1, rel=1e-7)
        assert (found[k].value, found[k].standard_error) == (usual[k].value, usual[k].standard_error)
    for k in (0, 3):
        assert {**vars(found[k]), "note": 0} == pytest.approx({**vars(usual[k]), "note": 0}, nan_ok=True)


def decided(rng, n, share, flips, unlike=0.0):
    """The gap in decisions by a threshold, where inputs weigh so much that a given share of pairs differ.

    Groups depend on squared finances and on the label, and not on the inputs; with `unlike`, one group gets a penalty.
    """
    points, inputs = rng.normal(size=(n, 3)), rng.normal(size=(n, 3)) @ np.array([1.0, 0.6, -0.4])
    label = (rng.random(n) < 1 / (1 + np.exp(-points[:, 0] - 0.4 * inputs))).astype(np.int64)
    inclined = 0.6 * points[:, 0] ** 2 + 0.4 * points[:, 1] + 0.5 * label + rng.logistic(size=n)
    group = (inclined > np.quantile(inclined, share)).astype(np.int64)
    pairs = []
    for code in range(4):
        own, others = (
            np.flatnonzero((label == code // 2) & ((group == code % 2) == is_own)) for is_own in (True, False)
        )
        near = cKDTree(points[others]).query(points[own], k=4)[1]
        pairs.append(np.column_stack([np.repeat(own, 4), others[near.ravel()]]))
    i, j = np.concatenate(pairs).T
    score, low, high = points @ np.array([1.0, -0.5, 0.3]), 0.0, 3.0
    limit = np.quantile(score, 0.2)
    for _ in range(20):
        weight = (low + high) / 2
        extra = weight * (inputs - unlike * group)
        gaps = (score[j] + extra[i] >= limit).astype(float) - (score[j] + extra[j] >= limit)
        low, high = (weight, high) if np.abs(gaps).mean() < flips else (low, weight)
    found = Pairs(i, i, j, group[i], group[j], label[i], points[i], gaps[:, None], np.ones(len(i)))
    controls = FinanceControls.of(points)
    return group_gap(lambda: iter([found]), controls, 1, 0, decisions=[0]).columns[0]


@pytest.mark.parametrize(
    ("n", "share", "flips"), [(1000, 0.5, 0.02), (1000, 0.8, 0.05), (1000, 0.95, 0.05), (2000, 0.5, 0.01)]
)
def test_decisions_that_seldom_differ_make_no_false_alarms(n, share, flips):
    rng, n_audits = np.random.default_rng(7), 60
    found = [decided(rng, n, share, flips) for _ in range(n_audits)]
    alarms = sum(column.p_value <= 0.05 for column in found)
    assert alarms <= stats.binom.ppf(0.999, n_audits, 0.05)


def test_decisions_that_seldom_differ_are_tested_and_a_penalty_is_found():
    rng = np.random.default_rng(8)
    found = [decided(rng, 2000, 0.8, 0.05, unlike=2.0) for _ in range(20)]
    assert np.mean([np.isfinite(column.p_value) for column in found]) >= 0.8
    assert np.mean([column.p_value <= 0.05 and column.value < 0 for column in found]) >= 0.6


def test_columns_add_up_and_exchanging_the_groups_changes_the_sign(rng):
    pairs, controls = made(rng, gap=1.0)
    forward, backward = (group_gap(lambda: iter([pairs]), controls, a, 1 - a) for a in (1, 0))
    values = [column.value for column in forward.columns]
    assert sum(values[:-1]) == pytest.approx(values[-1], abs=1e-9)
    for one, other in zip(forward.columns, backward.columns, strict=True):
        assert other.value == pytest.approx(-one.value, abs=1e-9)
        assert other.standard_error == pytest.approx(one.standard_error, rel=1e-9)


def test_parts_give_what_the_whole_gives(rng):
    pairs, controls = made(rng)
    half = [pairs.taken(np.flatnonzero(pairs.person % 2 == k)) for k in (0, 1)]
    whole, parts = (group_gap(lambda p=p: iter(p), controls, 1, 0) for p in ([pairs], half))
    for one, other in zip(whole.columns, parts.columns, strict=True):
        assert {**vars(other), "note": 0} == pytest.approx({**vars(one), "note": 0}, rel=1e-9, nan_ok=True)
    np.testing.assert_allclose(parts.correlation, whole.correlation, atol=1e-9)


def test_a_planted_gap_is_found_with_its_size_and_side():
    pairs, controls = made(np.random.default_rng(3), n=600, gap=-0.5)
    first = group_gap(lambda: iter([pairs]), controls, 1, 0).columns[0]
    assert first.p_value < 1e-4
    assert first.low < -0.5 < first.high


def test_finances_alone_make_no_gap(rng):
    """Groups that depend on the finances, in which columns are curved: the gap is 0 but for noise."""
    values = []
    for _ in range(30):
        pairs, controls = made(rng, n=200)
        values.append(group_gap(lambda p=pairs: iter([p]), controls, 1, 0).columns[1].p_value)
    assert np.mean(np.array(values) < 0.05) < 0.2


def test_too_few_people_and_constant_columns_say_so(rng):
    pairs, controls = made(rng)
    few = pairs.taken(np.flatnonzero((pairs.group == 0) | (pairs.person < 6)))
    found = group_gap(lambda: iter([few]), controls, 1, 0)
    assert all(np.isnan(column.value) and "are compared, but at least 10" in column.note for column in found.columns)
    flat = replace(pairs, score_gaps=np.zeros_like(pairs.score_gaps))
    column = group_gap(lambda: iter([flat]), controls, 1, 0).columns[0]
    assert (column.value, column.p_value) == (0.0, 1.0)


def test_an_input_that_few_people_carry_is_estimated_and_not_tested(rng):
    pairs, controls = made(rng)
    rare = np.zeros(len(controls.of_reference))
    rare[:4] = 1.0
    column = (rare[pairs.person] - rare[pairs.other])[:, None]
    found = group_gap(lambda: iter([replace(pairs, score_gaps=column)]), controls, 1, 0).columns[0]
    assert np.isfinite(found.value)
    assert np.isnan(found.p_value)
    assert "too few to test" in found.note


@pytest.mark.parametrize("correlated", [0.0, 0.9])
def test_the_smallest_p_value_is_uniform_under_its_own_correlation(rng, correlated):
    correlation = np.full((8, 8), correlated) + (1 - correlated) * np.eye(8)
    draws = rng.multivariate_normal(np.zeros(8), correlation, size=300)
    smallest = [smallest_p_values(2 * stats.norm.sf(np.abs(z)), correlation)[1] for z in draws]
    assert stats.kstest(smallest, "uniform").pvalue > 0.001
