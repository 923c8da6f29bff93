"""People of one cluster are one unit: against statsmodels' clustered errors, and with copies of everyone."""

import math

import numpy as np
import pytest
import statsmodels.api as sm

from evenhand.auditing.sections.roc import group_curve
from evenhand.metrics.disparity import (
    approval_disparity,
    approval_disparity_by_cutoff,
    error_rates,
    group_calibration,
    outcome_gaps,
    score_disparity,
    segmented_approvals,
)
from evenhand.metrics.estimate import RowWeights
from evenhand.metrics.intervals import effective_counts, effective_counts_of_two
from evenhand.metrics.outcomes import auc_interval
from evenhand.metrics.reason_codes import DeclinedPeople, ReasonCounts, reason_rates


@pytest.fixture
def households(rng):
    """Households of one to five people, of both groups, whose scores are alike."""
    household = np.repeat(np.arange(400), rng.integers(1, 6, 400))
    n = len(household)
    score = 1 / (1 + np.exp(-(rng.normal(size=400)[household] * 1.5 + rng.normal(size=n) * 0.7)))
    group = np.where(rng.random(n) < 0.7, (household % 3 == 0), rng.random(n) < 0.5).astype(np.int64)
    label = (rng.random(n) < score).astype(np.int64)
    decision = (score + 0.1 * rng.normal(size=n) > 0.5).astype(np.int64)
    return {"household": household, "n": n, "score": score, "group": group, "label": label, "decision": decision}


@pytest.mark.parametrize("is_weighted", [False, True])
def test_rates_and_differences_have_the_clustered_errors_of_statsmodels(rng, households, is_weighted):
    people = households
    share = rng.uniform(0.5, 2, people["n"]) if is_weighted else np.ones(people["n"])
    weights = RowWeights.of(share, people["household"])
    design = np.column_stack([people["group"] == code for code in (0, 1)]).astype(float)
    fitted = sm.WLS(people["decision"], design, share).fit(
        cov_type="cluster", cov_kwds={"groups": people["household"], "use_correction": False}
    )
    ones, number = effective_counts(people["group"], 2, people["decision"], weights)
    rate = ones / number
    np.testing.assert_allclose(np.sqrt(rate * (1 - rate) / number), fitted.bse, rtol=1e-9)
    assert (number < 0.7 * np.bincount(people["group"])).all()
    x1, n1, x0, n0 = effective_counts_of_two(people["group"], 1, 0, people["decision"], weights)
    error = math.sqrt(x1 / n1 * (1 - x1 / n1) / n1 + x0 / n0 * (1 - x0 / n0) / n0)
    contrast = np.array([-1.0, 1.0])
    assert error == pytest.approx(math.sqrt(contrast @ fitted.cov_params() @ contrast), rel=1e-9)
    row = approval_disparity(people["decision"], people["group"], reference="0", frequency=weights).groups[1]
    assert row.test == "two-proportion z, robust to clusters"
    assert row.n_standard_deviations == pytest.approx((x1 / n1 - x0 / n0) / error, rel=0.1)
    # Means: the clustered error of statsmodels with Student's factor of the effective number of people.
    mean = score_disparity(people["score"], people["group"], frequency=weights)[1].mean_score
    of_group = sm.WLS(people["score"], design, share).fit(
        cov_type="cluster", cov_kwds={"groups": people["household"], "use_correction": False}
    )
    assert mean.standard_error == pytest.approx(of_group.bse[1] * math.sqrt((mean.df + 1) / mean.df), rel=1e-9)


def test_recalibration_has_the_clustered_errors_of_statsmodels(households):
    people = households
    weights = RowWeights.of(np.ones(people["n"]), people["household"])
    found = group_calibration(people["label"], people["score"], people["group"], frequency=weights)[1]
    rows = people["group"] == 1
    log_odds = np.log(people["score"] / (1 - people["score"]))[rows]
    options = {"cov_type": "cluster", "cov_kwds": {"groups": people["household"][rows], "use_correction": False}}
    fitted = sm.GLM(people["label"][rows], sm.add_constant(log_odds), sm.families.Binomial()).fit(**options)
    assert (found.slope.low, found.slope.high) == pytest.approx(tuple(fitted.conf_int()[1]), rel=1e-6)
    alone = np.ones((rows.sum(), 1))
    fitted = sm.GLM(people["label"][rows], alone, sm.families.Binomial(), offset=log_odds).fit(**options)
    assert (found.intercept.low, found.intercept.high) == pytest.approx(tuple(fitted.conf_int()[0]), rel=1e-6)


def everything(people, frequency, segment):
    """Every interval and p-value of a fair-lending file, by name."""
    group, decision, score, label = (people[name] for name in ("group", "decision", "score", "label"))
    calibration = group_calibration(label, score, group, frequency=frequency, n_bins=4)
    parts = {
        "approvals": approval_disparity(decision, group, frequency=frequency, test="z").to_dict(),
        "cutoffs": [
            cut.to_dict()
            for cut in approval_disparity_by_cutoff(score, group, frequency=frequency, quantiles=[0.5], test="z")
        ],
        "errors": [row.to_dict() for row in error_rates(label, decision, score, group, frequency=frequency)],
        "scores": [row.to_dict() for row in score_disparity(score, group, frequency=frequency)],
        "gaps": {
            name: gap.to_dict() for name, gap in outcome_gaps(label, decision, group, frequency=frequency).items()
        },
        "calibration": [row.to_dict() for row in calibration],
        "segments": [row.to_dict() for row in segmented_approvals(decision, group, segment, frequency=frequency)],
    }
    flat = {}

    def walk(value, path):
        if isinstance(value, dict):
            for name, inner in value.items():
                walk(inner, f"{path}/{name}")
        elif isinstance(value, (list, tuple)):
            for place, inner in enumerate(value):
                walk(inner, f"{path}/{place}")
        elif isinstance(value, float):
            flat[path] = value

    walk(parts, "")
    return {path: value for path, value in flat.items() if "/n_" not in path and "shortfall" not in path}


def test_copies_of_everyone_change_no_interval_and_no_test(rng, households):
    people = {name: v[:600] if np.ndim(v) else 600 for name, v in households.items()}
    segment = rng.integers(0, 3, 600)
    once = everything(people, None, segment)
    copied = {name: np.tile(v, 4) if np.ndim(v) else 2400 for name, v in people.items()}
    weights = RowWeights.of(np.ones(2400), np.tile(np.arange(600), 4))
    copies = everything(copied, weights, np.tile(segment, 4))
    assert once.keys() == copies.keys()
    naive = everything(copied, None, np.tile(segment, 4))
    approximate = {
        "chi_square": 1e-2,  # a factor n / (n - 1)
        "p_value_holm": 1e-2,
        "p_value": 1e-2,
        "ks_p_value": 0.5,  # exact for fewer than 500 people
        "intercept": 0.2,  # errors of the model, and robust ones
        "slope": 0.2,
        "bins": 0.1,  # ties at the edges
        "expected_calibration_error": 0.1,
        "error_by_chance": 0.1,
    }
    n_narrower = 0
    for path, value in once.items():
        name = next((part for part in reversed(path.split("/")) if part in approximate), "")
        is_exact = not name or path.startswith(("/approvals", "/cutoffs", "/errors"))
        tolerance = 1e-6 if is_exact else approximate[name]
        assert copies[path] == pytest.approx(value, rel=tolerance, abs=tolerance / 10, nan_ok=True), path
        n_narrower += path.endswith("/low") and naive[path] > value + 1e-4
    assert n_narrower > 30
    area = auc_interval(people["label"], people["score"])
    again = auc_interval(copied["label"], copied["score"], weights)
    assert (again.low, again.high, again.standard_error) == pytest.approx((area.low, area.high, area.standard_error))
    curve, copied_curve = (
        group_curve("a", p["label"], p["score"], w)
        for p, w in ((people, RowWeights.of(np.ones(600))), (copied, weights))
    )
    assert copied_curve.ks.standard_error == pytest.approx(curve.ks.standard_error)
    assert (copied_curve.ks.low, copied_curve.ks.high) == pytest.approx((curve.ks.low, curve.ks.high))


def test_reasons_of_a_cluster_are_one_observation(rng):
    codes, groups = rng.integers(0, 3, (200, 1)), rng.integers(0, 2, 200)
    names = ["debt", "income", "age of account"]
    once = reason_rates(ReasonCounts.of(codes, groups, 3, 2), names, ["a", "b"], "a")
    codes, groups = np.tile(codes, (3, 1)), np.tile(groups, 3)
    declined = DeclinedPeople(codes, groups, RowWeights.of(np.ones(600), np.tile(np.arange(200), 3)))
    copies = reason_rates(ReasonCounts.of(codes, groups, 3, 2), names, ["a", "b"], "a", declined=declined)
    for one, other in zip(once, copies, strict=True):
        assert other.n == 3 * one.n
        assert other.p_value_holm == pytest.approx(one.p_value_holm, nan_ok=True)
        assert (other.rate.low, other.rate.high) == pytest.approx((one.rate.low, one.rate.high))
        assert (other.difference.low, other.difference.high) == pytest.approx(
            (one.difference.low, one.difference.high), nan_ok=True
        )
    assert {row.test for row in copies if not row.is_reference} == {"two-proportion z, robust to clusters"}


def test_clusters_with_people_of_both_groups_count_as_pairs(rng):
    """Couples whose decisions are mostly the same: the difference is known better than from as many strangers."""
    couple = np.repeat(np.arange(300), 2)
    group = np.tile([0, 1], 300)
    decision = (rng.random(300) < 0.5)[couple].astype(np.int64)
    flipped = rng.random(600) < 0.05
    decision[flipped] = 1 - decision[flipped]
    weights = RowWeights.of(np.ones(600), couple)
    paired, strangers = (
        approval_disparity(decision, group, frequency=w).groups[1].rate_difference_group_minus_reference_pp
        for w in (weights, None)
    )
    difference = decision[group == 1] - decision[group == 0]
    error = 100 * difference.std() / math.sqrt(300)
    assert (paired.high - paired.low) / 2 == pytest.approx(1.96 * error, rel=0.03)
    assert (paired.high - paired.low) < 0.6 * (strangers.high - strangers.low)
