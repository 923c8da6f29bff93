"""Sampling weights: rates, means, areas and gaps against statsmodels, scikit-learn, NumPy and people written out."""

import numpy as np
import pytest
import statsmodels.api as sm
from sklearn.metrics import roc_auc_score

from evenhand.exceptions import InvalidInputError
from evenhand.matching.diagnostics import Moments
from evenhand.metrics.disparity import (
    approval_disparity,
    approval_disparity_by_cutoff,
    error_rates,
    outcome_gaps,
    score_disparity,
    segmented_approvals,
)
from evenhand.metrics.estimate import RowWeights, effective_number_of_people, row_weights
from evenhand.metrics.intervals import cornfield, effective_counts, koopman, newcombe, wilson
from evenhand.metrics.outcomes import auc_interval, group_outcomes, outcome_metrics


@pytest.fixture
def people(rng):
    n = 400
    group, y = rng.integers(0, 2, n), rng.integers(0, 2, n)
    score = np.clip(0.5 + 0.15 * y - 0.1 * group + 0.2 * rng.normal(size=n), 0.01, 0.99)
    return {"y": y, "decision": (score >= 0.5).astype(int), "score": score, "group": group, "n": n}


def robust_mean(values, weights):
    """A weighted mean with its linearized standard error, by statsmodels."""
    fit = sm.WLS(values, np.ones(len(values)), weights=weights).fit(cov_type="HC0")
    return fit.params[0], fit.bse[0]


def test_weights_of_a_factor_are_the_same_and_equal_ones_are_counts():
    assert RowWeights.of([0.3, 0.3]).is_equal
    assert not RowWeights.of([0.3, 0.6]).is_equal
    np.testing.assert_allclose(RowWeights.of([1, 3]).scaled.total, [0.5, 1.5])
    np.testing.assert_allclose(RowWeights.of([5, 15]).scaled.squares, [0.25, 2.25])
    np.testing.assert_array_equal(row_weights([2, 5], 2).squares, [2, 5])
    assert effective_number_of_people(np.array(0.0), np.array(0.0)) == 0


@pytest.mark.parametrize("weights", [[1.0, 0.0], [1.0, -1.0], [1.0, np.nan], [[1.0]], []])
def test_weights_of_people_are_above_zero(weights):
    with pytest.raises(InvalidInputError, match="Sampling weights must be finite and above 0, one per person"):
        RowWeights.of(weights)
    with pytest.raises(InvalidInputError, match="`frequency` has 2 weights for 3 rows"):
        row_weights(RowWeights.of([1, 2]), 3)


def test_effective_counts_have_the_variance_of_a_robust_regression(rng, people):
    weights = rng.uniform(0.2, 4, people["n"]) * (1 + 0.5 * people["y"])  # weights that know the label
    ones, number = effective_counts(people["group"], 2, people["decision"], RowWeights.of(weights))
    for code in (0, 1):
        inside = people["group"] == code
        rate, error = robust_mean(people["decision"][inside], weights[inside])
        assert ones[code] / number[code] == pytest.approx(rate, rel=1e-12)
        assert number[code] == pytest.approx(rate * (1 - rate) / error**2, rel=1e-9)


def test_a_rate_without_variance_has_kish_number_and_none_is_worth_more_than_its_people(rng):
    weights = np.array([1.0, 2.0, 3.0, 1.0, 1.0])
    ones, number = effective_counts(np.array([0, 0, 0, 1, 1]), 3, np.array([1, 1, 1, 1, 0]), RowWeights.of(weights))
    np.testing.assert_allclose(number, [36 / 14, 2, 0])
    np.testing.assert_allclose(ones, [36 / 14, 1, 0])
    few = rng.uniform(0.5, 1.5, 30)
    values = (np.arange(30) == few.argmin()).astype(int)  # a single 1 with the least weight
    assert effective_counts(np.zeros(30, dtype=int), 1, values, RowWeights.of(few))[1][0] <= 30


def test_approvals_are_weighted_rates_with_robust_errors_and_counts_of_people(rng, people):
    weights = rng.uniform(0.2, 4, people["n"])
    table = approval_disparity(people["decision"], people["group"], frequency=RowWeights.of(weights))
    rates = []
    for row in table.groups:
        inside = people["group"] == int(row.group)
        rate, error = robust_mean(people["decision"][inside], weights[inside])
        rates.append(rate)
        assert row.approval_rate.value == pytest.approx(rate, rel=1e-12)
        # Wilson's interval is as wide as the normal one in large samples.
        assert row.approval_rate.high - row.approval_rate.low == pytest.approx(2 * 1.96 * error, rel=0.03)
        assert (row.n_people, row.n_approved) == (inside.sum(), people["decision"][inside].sum())
        kish = weights[inside].sum() ** 2 / (weights[inside] ** 2).sum()
        assert row.n_effective == pytest.approx(kish, rel=1e-12)
    reference = int(table.reference)
    row = table.groups[1 - reference]
    assert row.test == "two-proportion z, effective numbers"
    assert row.rate_difference_group_minus_reference_pp.value == pytest.approx(
        100 * (rates[1 - reference] - rates[reference]), rel=1e-9
    )
    assert row.approval_ratio_group_over_reference.value == pytest.approx(
        rates[1 - reference] / rates[reference], rel=1e-9
    )
    shortfall = row.n_people * (rates[reference] - rates[1 - reference])
    assert row.shortfall == pytest.approx(max(shortfall, 0), rel=1e-9)
    assert "weighted by the sampling weights" in table.note


def test_whole_weights_give_the_estimates_of_people_written_out(rng, people):
    times = rng.integers(1, 5, people["n"])
    weighted, written = RowWeights.of(times), np.repeat(np.arange(people["n"]), times)
    names = ("a", "b")

    def estimates(rows, frequency):
        y, decision, score, group = (people[name][rows] for name in ("y", "decision", "score", "group"))
        keywords = {"names": names, "frequency": frequency}
        outcomes = group_outcomes(y, decision, score, group, names, frequency)
        approvals = approval_disparity(decision, group, **keywords)
        return [
            *(metric.value for metric in outcome_metrics(y, decision, score, outcomes, frequency).values()),
            *(getattr(o, name) for o in outcomes for name in ("positive_rate", "true_positive_rate", "auc")),
            *(gap.value for gap in outcome_gaps(y, decision, group, **keywords).values()),
            *(row.approval_rate.value for row in approvals.groups),
            *(row.odds_ratio_group_over_reference.value for row in approvals.groups if not row.is_reference),
            *(row.mean_score.value for row in score_disparity(score, group, **keywords)),
            *(row.ks_distance for row in score_disparity(score, group, **keywords) if not row.is_reference),
            *(row.brier_score.value for row in error_rates(y, decision, score, group, **keywords)),
            *(row.auc.value for row in error_rates(y, decision, score, group, **keywords)),
            *(row.approval_rate_group.value for row in _segments(rows, decision, group, keywords)),
        ]

    def _segments(rows, decision, group, keywords):
        return segmented_approvals(decision, group, np.arange(people["n"])[rows] % 3, **keywords)[0].segments

    everyone = np.arange(people["n"])
    np.testing.assert_allclose(estimates(everyone, weighted), estimates(written, None), rtol=1e-9)


def test_equal_weights_give_the_tables_of_no_weights(people):
    y, decision, score, group = (people[name][:60] for name in ("y", "decision", "score", "group"))

    def tables(frequency):
        return repr(
            [
                approval_disparity(decision[:12], group[:12], frequency=frequency and RowWeights.of(np.full(12, 0.7))),
                error_rates(y, decision, score, group, frequency=frequency),
                outcome_gaps(y, decision, group, frequency=frequency),
                segmented_approvals(decision, group, y, frequency=frequency),
                approval_disparity_by_cutoff(score, group, frequency=frequency),
                score_disparity(score, group, frequency=frequency),
            ]
        )

    assert tables(RowWeights.of(np.full(60, 0.7))) == tables(None)


def test_the_weighted_area_is_that_of_scikit_learn_and_its_error_that_of_influences_written_out(rng, people):
    weights = rng.uniform(0.2, 4, people["n"])
    y, score = people["y"], np.round(people["score"], 2)  # with ties
    found = auc_interval(y, score, RowWeights.of(weights))
    area = roc_auc_score(y, score, sample_weight=weights)
    assert found.value == pytest.approx(area, rel=1e-12)
    variance = 0.0
    for label in (0, 1):
        own, other = y == label, y != label
        share = weights[own] / weights[own].sum()
        above = np.sign(score[own][:, None] - score[other]) * (1 if label else -1)
        placement = (0.5 + above / 2) @ (weights[other] / weights[other].sum())
        worth = 1 / (share**2).sum()
        variance += ((share * (placement - area)) ** 2).sum() * worth / (worth - 1)
    half = 1.959964 * np.sqrt(variance) / (area * (1 - area))
    logit = np.log(area / (1 - area))
    assert found.low == pytest.approx(1 / (1 + np.exp(half - logit)), rel=1e-6)


def test_means_have_robust_errors(rng, people):
    weights = rng.uniform(0.2, 4, people["n"])
    for row in score_disparity(people["score"], people["group"], frequency=RowWeights.of(weights)):
        inside = people["group"] == int(row.group)
        mean, error = robust_mean(people["score"][inside], weights[inside])
        assert row.mean_score.value == pytest.approx(mean, rel=1e-12)
        assert row.mean_score.high - mean == pytest.approx(1.96 * error, rel=0.03)


@pytest.mark.parametrize(("x1", "n1", "x0", "n0"), [(0.0, 7.3, 4.1, 9.9), (3.3, 3.3, 2.2, 8.8), (2.7, 5.1, 6.4, 6.4)])
def test_score_intervals_take_counts_that_are_not_whole(x1, n1, x0, n0):
    for interval in (newcombe, koopman, cornfield):
        found = interval(x1, n1, x0, n0, 0.95)
        assert np.isnan(found.value) or found.low <= found.value <= found.high
    assert wilson(x1, n1, 0.95)[0] <= x1 / n1 <= wilson(x1, n1, 0.95)[1]


def test_moments_are_those_of_numpy_and_join(rng):
    points, weights = rng.normal(size=(60, 3)), rng.uniform(0, 3, 60)
    found = Moments.of(points[:20], weights[:20]) + Moments.of(points[20:], weights[20:])
    np.testing.assert_allclose(found.mean, np.average(points, axis=0, weights=weights))
    np.testing.assert_allclose(found.variances, np.cov(points.T, aweights=weights, ddof=0).diagonal())
