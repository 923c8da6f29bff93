"""Principal reasons, how alike two lists of them are, and how often each is given."""

from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint, proportions_ztest

from evenhand.metrics.reason_codes import (
    PERSISTENCE,
    ReasonCounts,
    compacted,
    principal_reasons,
    pull_shares,
    rank_overlap,
    reason_rates,
    shared_share,
)


def by_hand(pulls, k):
    order = sorted((j for j in range(len(pulls)) if pulls[j] < 0), key=lambda j: (pulls[j], j))[:k]
    return [*order, *[-1] * (k - len(order))]


def test_reasons_are_those_that_pull_down_most():
    pulls = np.random.default_rng(0).integers(-4, 4, (300, 6)).astype(float)  # with ties
    np.testing.assert_array_equal(principal_reasons(pulls, 4), [by_hand(row, 4) for row in pulls])


def test_there_may_be_fewer_reasons_than_places():
    assert principal_reasons(np.array([[-1.0, -2.0]]), 4).tolist() == [[1, 0, -1, -1]]
    assert principal_reasons(np.array([[1.0, 0.0, np.nan]]), 2).tolist() == [[-1, -1]]


def test_rounding_makes_no_reason_and_breaks_no_tie():
    noise = 1e-9
    assert principal_reasons(np.array([[-noise, -0.5, -0.5 - noise]]), 3).tolist() == [[1, 2, -1]]


def test_shares_are_of_all_that_pulls_down():
    pulls = np.random.default_rng(1).normal(size=(100, 7))
    codes = principal_reasons(pulls, 3)
    down = -np.minimum(pulls, 0).sum(axis=1)
    for row, code, share in zip(pulls, codes, pull_shares(pulls, codes), strict=True):
        np.testing.assert_allclose(
            share, [np.nan if c < 0 else -row[c] / down[pulls.tolist().index(row.tolist())] for c in code]
        )


def test_shares_of_all_reasons_sum_to_one():
    pulls = np.random.default_rng(2).normal(size=(100, 5))
    shares = pull_shares(pulls, principal_reasons(pulls, 5))
    has_any = (pulls < 0).any(axis=1)
    np.testing.assert_allclose(np.nansum(shares, axis=1)[has_any], 1.0)


def lists(n, k=4, n_reasons=6, seed=3):
    rng = np.random.default_rng(seed)
    found = np.argsort(rng.random((n, n_reasons)), axis=1)[:, :k]
    return np.where(np.arange(k) < rng.integers(0, k + 1, n)[:, None], found, -1)


def as_list(row):
    return [code for code in row if code >= 0]


def test_shared_reasons_are_counted():
    first, second = lists(500), lists(500, seed=4)
    expected = [
        len(set(a) & set(b)) / max(len(a), len(b)) if a or b else np.nan
        for a, b in zip(map(as_list, first), map(as_list, second), strict=True)
    ]
    np.testing.assert_allclose(shared_share(first, second), expected)
    np.testing.assert_allclose(shared_share(first, second), shared_share(second, first))


def rbo_from_its_definition(first, second, p, depth=400):
    """The infinite sum, with agreement beyond the lists as the extrapolation has it, in exact arithmetic."""
    if not first and not second:
        return np.nan
    shorter, longer = sorted((first, second), key=len)
    s, n = len(shorter), len(longer)
    if s == 0:
        return 0.0

    def in_common(d):
        return len(set(shorter[:d]) & set(longer[:d]))

    def agreement(d):
        # Unseen items of the shorter list are taken to agree as often as its seen ones did.
        assumed = Fraction(in_common(s) * (d - s), s) if d > s else 0
        return (in_common(d) + assumed) / Fraction(d)

    total = sum(float(agreement(min(d, n))) * p ** (d - 1) for d in range(1, depth + 1))
    return (1 - p) * total


@pytest.mark.parametrize("p", [0.3, PERSISTENCE, 0.95])
def test_rank_overlap_is_the_infinite_sum(p):
    first, second = lists(150), lists(150, seed=4)
    expected = [
        rbo_from_its_definition(a, b, p) for a, b in zip(map(as_list, first), map(as_list, second), strict=True)
    ]
    np.testing.assert_allclose(rank_overlap(first, second, p), expected, atol=2 * p**400)


def test_rank_overlap_is_symmetric_and_from_0_to_1():
    first, second = lists(500), lists(500, seed=4)
    found = rank_overlap(first, second)
    np.testing.assert_allclose(found, rank_overlap(second, first))
    assert np.nanmin(found) >= 0
    assert np.nanmax(found) <= 1 + 1e-12
    has_any = (first >= 0).any(axis=1)
    np.testing.assert_allclose(rank_overlap(first, first)[has_any], 1.0)


def test_rank_overlap_counts_the_first_reasons_most():
    base = np.array([0, 1, 2, 3])
    overlap = {order: rank_overlap(base[None], np.array([order]))[0] for order in permutations(range(4))}
    assert overlap[0, 1, 3, 2] > overlap[0, 2, 1, 3] > overlap[1, 0, 2, 3] > overlap[3, 2, 1, 0]


def test_the_weight_of_the_first_reasons_is_as_the_docs_say():
    rest = np.array([[10, 11, 12, 13]])

    def weight(d):  # agreement at depth d and beyond, of lists that are alike in the first d alone, never ends
        depths = np.arange(1, 20_000)
        return (1 - PERSISTENCE) * np.sum(np.minimum(d, depths) / depths * PERSISTENCE ** (depths - 1))

    assert weight(1) == pytest.approx(0.40, abs=0.005)
    assert weight(4) == pytest.approx(0.81, abs=0.005)
    assert rank_overlap(rest, rest + 10)[0] == 0


def test_codes_of_a_file_lose_gaps_and_repeats():
    codes = np.random.default_rng(5).integers(-1, 3, (200, 4))
    expected = [list(dict.fromkeys(as_list(row))) for row in codes]
    np.testing.assert_array_equal(compacted(codes), [[*row, *[-1] * (4 - len(row))] for row in expected])


@pytest.fixture(scope="module")
def counted():
    rng = np.random.default_rng(6)
    groups = rng.choice(3, 600, p=[0.6, 0.35, 0.05])
    codes = principal_reasons(rng.normal(size=(600, 5)) + 0.3 * groups[:, None] * np.arange(5), 3)
    return codes, groups, ReasonCounts.of(codes, groups, 5, 3)


def test_counts_are_by_group_and_add_up(counted):
    codes, groups, counts = counted
    for reason in range(5):
        for group in range(3):
            rows = codes[groups == group]
            assert counts.first[reason, group] == (rows[:, 0] == reason).sum()
            assert counts.any[reason, group] == (rows == reason).any(axis=1).sum()
    halves = [ReasonCounts.of(codes[part], groups[part], 5, 3) for part in (slice(200), slice(200, None))]
    for name in ("n_people", "n_without", "first", "any"):
        np.testing.assert_array_equal(getattr(halves[0] + halves[1], name), getattr(counts, name))


def test_rates_and_differences_equal_statsmodels(counted):
    counts = counted[2]
    rates = reason_rates(counts, list("vwxyz"), list("abc"), "a")
    n0 = counts.n_people[0]
    for row in rates:
        reason, group = "vwxyz".index(row.reason), "abc".index(row.group)
        x, x0 = (getattr(counts, row.place)[reason, g] for g in (group, 0))
        n = counts.n_people[group]
        assert (row.n, row.n_people, row.is_reference) == (x, n, group == 0)
        low, high = proportion_confint(x, n, method="wilson")
        assert row.rate.value == x / n
        assert (row.rate.low, row.rate.high) == pytest.approx((low, high), abs=1e-12)
        if group == 0:
            assert np.isnan(row.p_value)
            continue
        ends = confint_proportions_2indep(x, n, x0, n0, method="newcomb")
        assert row.difference.value == pytest.approx(x / n - x0 / n0)
        assert (row.difference.low, row.difference.high) == pytest.approx(ends)
        table = [[x, n - x], [x0, n0 - x0]]
        if stats.contingency.expected_freq(table).min() < 5:
            assert row.test == "Fisher exact"
            assert row.p_value == pytest.approx(stats.fisher_exact(table).pvalue)
        else:
            assert row.p_value == pytest.approx(proportions_ztest([x, x0], [n, n0])[1])


@pytest.mark.parametrize("place", ["first", "any"])
def test_p_values_are_adjusted_for_reasons_and_groups(counted, place):
    rows = [r for r in reason_rates(counted[2], list("vwxyz"), list("abc"), "a") if r.place == place]
    rows = [row for row in rows if not row.is_reference]
    assert len(rows) == 10
    np.testing.assert_allclose(
        [row.p_value_holm for row in rows], multipletests([row.p_value for row in rows], method="holm")[1]
    )


def test_a_group_without_declined_people_is_named():
    counts = ReasonCounts.of(np.array([[0], [0]]), np.array([1, 1]), 1, 3)
    a, b, c = reason_rates(counts, ["debt"], ["a", "b", "c"], "b")[:3]
    assert "no one in the group is declined" in a.rate.note
    assert np.isnan(c.difference.value)
    assert b.rate.value == 1.0
    rows = reason_rates(counts, ["debt"], ["a", "b", "c"], "a")
    assert "no one in the reference group" in rows[1].difference.note
