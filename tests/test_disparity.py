import json

import numpy as np
import pytest
from fairlearn.metrics import (
    demographic_parity_difference,
    equalized_odds_difference,
    false_positive_rate_difference,
    true_positive_rate_difference,
)
from scipy import optimize, stats
from sklearn.metrics import brier_score_loss, precision_score, roc_auc_score

from evenhand.disparity import (
    FOUR_FIFTHS,
    approval_disparity,
    approval_disparity_by_cutoff,
    error_rates,
    outcome_gaps,
    score_disparity,
    segmented_approvals,
)
from evenhand.exceptions import InvalidInputError


def people_of(*counts):
    """Decisions and codes from (approved, people) of each group."""
    decision = np.concatenate([np.repeat([1, 0], [approved, people - approved]) for approved, people in counts])
    return decision, np.repeat(np.arange(len(counts)), [people for _, people in counts])


def compared(approved, people, reference_approved, reference_people, **options):
    decision, group = people_of((reference_approved, reference_people), (approved, people))
    return approval_disparity(decision, group, names=["ref", "g"], reference="ref", **options).groups[1]


def draw(seed, n=400, n_groups=3):
    rng = np.random.default_rng(seed)
    y, group = rng.integers(0, 2, n), rng.integers(0, n_groups, n)
    score = np.round(np.clip(0.4 * y + rng.normal(0.3, 0.25, n), 0, 1), 2)  # with ties
    return y, (score >= 0.5).astype(np.int64), score, group


def numbers(estimate):
    return [estimate.value, estimate.low, estimate.high]


# --- approvals ---


@pytest.mark.parametrize(("x", "n"), [(0, 12), (3, 12), (12, 12), (560, 900)])
def test_rate_has_the_wilson_interval_of_scipy(x, n):
    row = compared(x, n, 5, 10)
    expected = stats.binomtest(x, n).proportion_ci(method="wilson")
    assert numbers(row.approval_rate) == pytest.approx([x / n, expected.low, expected.high], abs=1e-12)
    assert (row.n_people, row.n_approved, row.n_effective) == (n, x, n)


@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [((56, 70, 48, 80), 5.24, 33.39), ((9, 10, 3, 10), 17.05, 80.90), ((10, 10, 0, 10), 60.75, 100.0)],
)
def test_difference_has_the_published_intervals_of_newcombe_1998(counts, low, high):
    difference = compared(*counts).rate_difference_group_minus_reference_pp
    assert [difference.low, difference.high] == pytest.approx([low, high], abs=0.006)


def test_ratio_has_the_published_interval_of_koopman_1984():
    ratio = compared(36, 40, 16, 80).approval_ratio_group_over_reference
    assert numbers(ratio) == pytest.approx([4.5, 2.94, 7.15], abs=0.005)


def test_ratio_and_odds_ratio_agree_with_the_log_methods_of_scipy_in_a_large_sample():
    x1, n1, x0, n0 = 21_000, 50_000, 30_000, 60_000
    row = compared(x1, n1, x0, n0)
    risk = stats.contingency.relative_risk(x1, n1, x0, n0)
    odds = stats.contingency.odds_ratio([[x1, n1 - x1], [x0, n0 - x0]], kind="sample")
    for found, expected, value in (
        (row.approval_ratio_group_over_reference, risk.confidence_interval(), risk.relative_risk),
        (row.odds_ratio_group_over_reference, odds.confidence_interval(), odds.statistic),
    ):
        assert numbers(found) == pytest.approx([value, expected.low, expected.high], rel=1e-4)


@pytest.mark.parametrize("counts", [(30, 60, 45, 70), (12, 90, 80, 300), (200, 210, 700, 900)])
def test_intervals_end_at_one_exactly_when_the_z_test_is_at_its_level(counts):
    p_value = compared(*counts, test="z").p_value
    row = compared(*counts, test="z", confidence=1 - p_value)
    for estimate in (row.approval_ratio_group_over_reference, row.odds_ratio_group_over_reference):
        assert min(abs(estimate.low - 1), abs(estimate.high - 1)) < 1e-6


@pytest.mark.parametrize("counts", [(30, 60, 45, 70), (120, 900, 80, 300)])
def test_z_squared_is_the_chi_square_of_scipy(counts):
    row = compared(*counts)
    x1, n1, x0, n0 = counts
    expected = stats.chi2_contingency([[x1, n1 - x1], [x0, n0 - x0]], correction=False)
    assert row.test == "two-proportion z"
    assert row.n_standard_deviations**2 == pytest.approx(expected.statistic)
    assert row.n_standard_deviations * (x1 / n1 - x0 / n0) > 0
    assert row.p_value == pytest.approx(expected.pvalue)


def test_small_cells_get_the_exact_test():
    row = compared(1, 8, 9, 11)
    assert row.test == "Fisher exact"
    assert row.p_value == pytest.approx(stats.fisher_exact([[1, 7], [9, 2]]).pvalue)
    assert compared(30, 60, 45, 70, test="fisher").test == "Fisher exact"
    assert compared(1, 8, 9, 11, test="z").test == "two-proportion z"


def test_shortfall_is_what_lifts_the_group_to_the_reference_rate_and_never_negative():
    assert compared(20, 80, 30, 60).shortfall == pytest.approx(20)
    assert compared(70, 80, 30, 60).shortfall == 0


def test_flags_follow_their_stated_thresholds():
    row = compared(300, 1000, 500, 1000)
    assert row.is_statistically_significant
    assert row.is_below_practical_threshold
    assert not compared(300, 1000, 500, 1000, four_fifths_threshold=0.5).is_below_practical_threshold
    assert compared(450, 1000, 500, 1000, significance_level=0.001).is_statistically_significant is False
    assert compared(410, 1000, 500, 1000).is_below_practical_threshold is False
    assert FOUR_FIFTHS == 0.8


def test_small_groups_are_flagged_and_still_shown():
    assert compared(3, 5, 50, 100).is_small_group
    assert not compared(3, 5, 50, 100, small_group=5).is_small_group


def test_p_values_are_holm_adjusted_over_groups():
    decision, group = people_of((500, 1000), (40, 100), (45, 100), (30, 100))
    rows = approval_disparity(decision, group).groups
    raw = np.array([row.p_value for row in rows[1:]])
    first, second, third = np.sort(raw)
    expected = dict(zip(np.argsort(raw), np.maximum.accumulate([3 * first, 2 * second, third]), strict=True))
    assert [row.p_value_holm for row in rows[1:]] == pytest.approx([expected[i] for i in range(3)])
    assert np.isnan(rows[0].p_value_holm)


def test_reference_is_the_largest_group_unless_named():
    decision, group = people_of((5, 10), (40, 100))
    table = approval_disparity(decision, group, names=["a", "b"])
    assert table.reference == "b"
    assert table.groups[1].is_reference
    assert "reference" in table.groups[1].approval_ratio_group_over_reference.note
    assert approval_disparity(decision, group, names=["a", "b"], reference="a").reference == "a"


def test_swapping_group_and_reference_inverts_the_ratios():
    one, other = compared(30, 60, 45, 70), compared(45, 70, 30, 60)
    for field in ("approval_ratio_group_over_reference", "odds_ratio_group_over_reference"):
        forward, backward = getattr(one, field), getattr(other, field)
        assert numbers(forward) == pytest.approx([1 / backward.value, 1 / backward.high, 1 / backward.low])
    assert one.p_value == pytest.approx(other.p_value)


def test_what_cannot_be_estimated_is_nan_with_the_reason():
    nobody = approval_disparity([1, 0, 1], [0, 0, 0], names=["a", "b"]).groups[1]
    assert np.isnan([nobody.approval_rate.value, nobody.shortfall, nobody.p_value]).all()
    assert "no one in group 'b'" in nobody.approval_rate.note
    assert "no one in group 'b'" in nobody.approval_ratio_group_over_reference.note
    assert nobody.is_statistically_significant is None
    assert nobody.is_below_practical_threshold is None

    none_approved = compared(3, 10, 0, 10)
    assert "reference group is approved" in none_approved.approval_ratio_group_over_reference.note
    assert "infinite in the sample" in none_approved.odds_ratio_group_over_reference.note
    assert none_approved.odds_ratio_group_over_reference.low > 0

    all_approved = compared(10, 10, 20, 20)
    assert "same decision throughout" in all_approved.odds_ratio_group_over_reference.note
    assert np.isnan(all_approved.n_standard_deviations)
    assert all_approved.approval_ratio_group_over_reference.value == 1
    assert all_approved.p_value == 1
    assert np.isnan(compared(10, 10, 20, 20, test="z").p_value)


def test_zero_approvals_in_the_group_is_a_ratio_of_zero_with_an_upper_end():
    row = compared(0, 10, 5, 10)
    for estimate in (row.approval_ratio_group_over_reference, row.odds_ratio_group_over_reference):
        assert estimate.value == estimate.low == 0
        assert 0 < estimate.high < 1


def test_table_is_plain_data():
    decision, group = people_of((5, 10), (4, 10))
    plain = approval_disparity(decision, group).to_dict()
    assert json.loads(json.dumps(plain))["groups"][1]["approval_rate"]["value"] == 0.4
    assert plain["four_fifths_threshold"] == 0.8
    row = approval_disparity(decision, group).groups[0]
    assert row.to_dict()["approval_rate"] == row.approval_rate.to_dict()
    segment = segmented_approvals(decision, group, np.zeros(20))[0].segments[0]
    assert segment.to_dict()["n_people_group"] == 10


@pytest.mark.parametrize("rates", [(0.5, 0.5), (0.1, 0.3), (0.9, 0.95)])
def test_intervals_cover_the_truth_at_about_their_confidence(rates):
    rng = np.random.default_rng(1)
    p1, p0 = rates
    truth = [100 * (p1 - p0), p1 / p0, p1 / (1 - p1) / (p0 / (1 - p0))]
    covered = []
    for x1, x0 in zip(rng.binomial(60, p1, 300), rng.binomial(140, p0, 300), strict=True):
        row = compared(int(x1), 60, int(x0), 140)
        found = (
            row.rate_difference_group_minus_reference_pp,
            row.approval_ratio_group_over_reference,
            row.odds_ratio_group_over_reference,
        )
        covered.append([not (e.low > t or e.high < t) for e, t in zip(found, truth, strict=True)])
    assert (np.mean(covered, axis=0) > 0.92).all()
    assert (np.mean(covered, axis=0) < 0.985).all()


# --- cut-offs ---


def test_cutoffs_are_the_deciles_and_each_equals_the_table_of_its_decisions():
    _, _, _, group = draw(0)
    score = np.random.default_rng(0).permutation(len(group)) / len(group)
    rows = approval_disparity_by_cutoff(score, group)
    assert [row.overall_approval_rate for row in rows] == pytest.approx(np.arange(0.9, 0.05, -0.1))
    # repr: the reference's NaN is not equal to itself
    assert repr(rows[3].table) == repr(approval_disparity(score >= rows[3].cutoff, group))
    assert rows[0].to_dict()["table"]["reference"] == rows[0].table.reference


def test_tied_scores_give_the_share_that_is_really_approved():
    rows = approval_disparity_by_cutoff([0.1, 0.5, 0.5, 0.5], [0, 0, 1, 1], quantiles=[0.5])
    assert (rows[0].cutoff, rows[0].overall_approval_rate) == (0.5, 0.75)


# --- scores ---


def test_score_disparity_equals_its_formula_and_scipy():
    _, _, score, group = draw(0)
    rows = score_disparity(score, group, reference="0")
    base = score[group == 0]
    for code in (1, 2):
        one = score[group == code]
        expected = (one.mean() - base.mean()) / np.sqrt((one.var(ddof=1) + base.var(ddof=1)) / 2)
        assert rows[code].standardized_mean_difference_group_minus_reference.value == pytest.approx(expected)
        found = stats.ks_2samp(one, base)
        assert (rows[code].ks_distance, rows[code].ks_p_value) == pytest.approx((found.statistic, found.pvalue))
        interval = stats.ttest_1samp(one, 0).confidence_interval()
        assert numbers(rows[code].mean_score) == pytest.approx([one.mean(), interval.low, interval.high])


def test_standardized_difference_has_the_textbook_error_for_normal_scores():
    rng = np.random.default_rng(0)
    n = 40_000
    score = np.concatenate([rng.normal(0, 1, n), rng.normal(-0.6, 1, n)])
    found = score_disparity(score, np.repeat([0, 1], n))[1].standardized_mean_difference_group_minus_reference
    expected = 1.96 * np.sqrt(2 / n + 0.6**2 / (4 * n))
    assert (found.high - found.low) / 2 == pytest.approx(expected, rel=0.02)
    assert found.low < -0.6 < found.high


def test_standardized_difference_covers_the_truth_for_skewed_scores():
    rng = np.random.default_rng(2)
    n, covered = 150, 0
    for _ in range(300):
        score = np.concatenate([rng.exponential(1, n), 0.5 + rng.exponential(1, n // 2)])
        found = score_disparity(score, np.repeat([0, 1], [n, n // 2]))[1]
        estimate = found.standardized_mean_difference_group_minus_reference
        covered += estimate.low < 0.5 < estimate.high
    assert 0.91 < covered / 300 < 0.985


def test_scores_that_cannot_be_compared_say_why():
    rows = score_disparity([0.1, 0.2, 0.3], [0, 0, 1], names=["a", "b", "c"])
    assert "fewer than two people" in rows[1].standardized_mean_difference_group_minus_reference.note
    assert "one person" in rows[1].mean_score.note
    assert "no one in group 'c'" in rows[2].mean_score.note
    assert "no one in group 'c'" in rows[2].note
    assert np.isnan(rows[2].ks_distance)
    constant = score_disparity([0.5] * 4, [0, 0, 1, 1])[1]
    assert "constant" in constant.standardized_mean_difference_group_minus_reference.note
    assert constant.to_dict()["ks_distance"] == 0


# --- errors ---


def test_error_rates_equal_scikit_learn_by_group():
    y, decision, score, group = draw(3)
    for code, row in enumerate(error_rates(y, decision, score, group)):
        members = group == code
        labels, decided, scores = y[members], decision[members], score[members]
        assert row.true_positive_rate.value == pytest.approx(decided[labels == 1].mean())
        assert row.false_positive_rate.value == pytest.approx(decided[labels == 0].mean())
        assert row.false_discovery_rate.value == pytest.approx(1 - precision_score(labels, decided))
        assert row.positive_rate.value == pytest.approx(decided.mean())
        assert row.auc.value == pytest.approx(roc_auc_score(labels, scores))
        assert row.brier_score.value == pytest.approx(brier_score_loss(labels, scores))
        assert row.mean_score_minus_observed_rate.value == pytest.approx(scores.mean() - labels.mean())
        assert row.n_positive_label == labels.sum()
        expected = stats.binomtest(int(decided[labels == 1].sum()), int(labels.sum())).proportion_ci(method="wilson")
        assert row.true_positive_rate.high == pytest.approx(expected.high)


def test_auc_interval_has_the_variance_of_delong_written_out():
    y, decision, score, _ = draw(4, n=80)
    group = np.append(np.zeros(len(y), dtype=np.int64), [1])
    found = error_rates(np.append(y, 1), np.append(decision, 1), np.append(score, 1.0), group)[0].auc
    pos, neg = score[y == 1], score[y == 0]
    kernel = (pos[:, None] > neg[None, :]) + 0.5 * (pos[:, None] == neg[None, :])
    error = np.sqrt(kernel.mean(1).var(ddof=1) / len(pos) + kernel.mean(0).var(ddof=1) / len(neg))
    area = kernel.mean()
    half = stats.norm.ppf(0.975) * error / (area * (1 - area))
    logit = np.log(area / (1 - area))
    expected = [area, 1 / (1 + np.exp(half - logit)), 1 / (1 + np.exp(-half - logit))]
    assert numbers(found) == pytest.approx(expected)


def test_auc_and_calibration_intervals_cover_the_truth():
    rng = np.random.default_rng(5)
    covered = []
    for _ in range(200):
        chance = rng.beta(2, 2, 240)
        y = (rng.random(240) < chance).astype(np.int64)
        shifted = np.clip(chance, 0, 1)
        row = error_rates(y, y, shifted, np.repeat([0, 1], [160, 80]))[0]
        calibration, auc = row.mean_score_minus_observed_rate, row.auc
        covered.append([calibration.low < 0 < calibration.high, auc.low < 0.7571 < auc.high])
    assert (np.abs(np.mean(covered, axis=0) - 0.95) < 0.045).all()


def test_rates_over_no_one_are_nan_with_the_reason():
    rows = error_rates([1, 1, 0, 1, 1], [0, 0, 1, 1, 0], [0.1, 0.2, 0.3, 0.9, 0.2], [0, 0, 1, 1, 1], names="abc")
    assert "no one with label 0 in group 'a'" in rows[0].false_positive_rate.note
    assert "no one with label 0 in group 'a'" in rows[0].auc.note
    assert "no one approved in group 'a'" in rows[0].false_discovery_rate.note
    assert "one person with a label" in rows[1].auc.note
    assert "no one in group 'c'" in rows[2].brier_score.note
    assert np.isnan(rows[2].positive_rate.value)
    only_zero = error_rates([0, 0, 1], [0, 0, 1], [0.1, 0.2, 0.3], [0, 0, 1])[0]
    assert "no one with label 1 in group '0'" in only_zero.auc.note


def test_separated_labels_have_an_auc_without_interval():
    row = error_rates([0, 0, 1, 1, 1], [0, 0, 1, 1, 1], [0.1, 0.2, 0.8, 0.9, 0.9], [0, 0, 0, 0, 1])[0]
    assert row.auc.value == 1
    assert np.isnan(row.auc.low)
    assert "separated" in row.auc.note


def test_scores_that_are_not_probabilities_have_no_calibration():
    row = error_rates([0, 1, 0, 1], [0, 1, 0, 1], [300.0, 700.0, 500.0, 600.0], [0, 0, 1, 1])[0]
    assert "outside [0, 1]" in row.brier_score.note
    assert "outside [0, 1]" in row.to_dict()["mean_score_minus_observed_rate"]["note"]


# --- gaps ---


@pytest.mark.parametrize("n_groups", [2, 3, 5])
def test_gaps_equal_fairlearn(n_groups):
    y, decision, _, group = draw(6, n_groups=n_groups)
    gaps = outcome_gaps(y, decision, group, n_draws=100)
    for name, reference in (
        ("sp_gap", demographic_parity_difference),
        ("eo_gap", equalized_odds_difference),
        ("tpr_gap", true_positive_rate_difference),
        ("fpr_gap", false_positive_rate_difference),
    ):
        assert gaps[name].value == pytest.approx(reference(y, decision, sensitive_features=group))
        assert gaps[name].low <= gaps[name].value <= gaps[name].high


def test_gap_names_the_rate_and_the_groups_it_is_between():
    decision, group = people_of((50, 100), (20, 100), (80, 100))
    gap = outcome_gaps(np.tile([0, 1], 150), decision, group, names=["a", "b", "c"])["sp_gap"]
    assert (gap.rate, gap.group_low, gap.group_high) == ("approval rate", "b", "c")
    assert gap.to_dict()["value"] == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("rates", "sizes", "n_data_sets"),
    [
        ((0.5, 0.5), (150, 60), 400),
        ((0.5, 0.8), (150, 60), 400),
        ((0.5, 0.5, 0.5, 0.5), (200, 80, 50, 40), 400),
        ((0.98, 0.98), (500, 40), 100),  # covers nearly always: the draws barely vary here
    ],
)
def test_gap_intervals_cover_the_truth_also_when_there_is_no_gap(rates, sizes, n_data_sets):
    rng = np.random.default_rng(7)
    group = np.repeat(np.arange(len(sizes)), sizes)
    y = np.concatenate([np.arange(size) % 2 for size in sizes])
    truth, covered = max(rates) - min(rates), []
    for seed in range(n_data_sets):
        decision = (rng.random(len(group)) < np.asarray(rates)[group]).astype(np.int64)
        gaps = outcome_gaps(y, decision, group, n_draws=200, random_state=seed)
        covered.append([gaps[name].low <= truth <= gaps[name].high for name in ("sp_gap", "eo_gap")])
    three_errors = 3 * np.sqrt(0.95 * 0.05 / n_data_sets)
    assert (np.mean(covered, axis=0) >= 0.95 - three_errors).all()


def test_gaps_of_an_empty_cell_are_nan_with_the_reason():
    gaps = outcome_gaps([0, 1, 1, 1], [0, 1, 1, 0], [0, 0, 1, 1], names=["a", "b"])
    assert np.isnan(gaps["eo_gap"].value)
    assert gaps["eo_gap"].note == "not estimable: no one with label 0 in groups ['b']"
    assert gaps["tpr_gap"].value == 0.5
    empty = outcome_gaps([0, 1], [0, 1], [0, 0], names=["a", "b"])
    assert "no one in groups ['b']" in empty["sp_gap"].note


def test_gaps_depend_on_the_seed_alone():
    y, decision, _, group = draw(8)
    assert outcome_gaps(y, decision, group) == outcome_gaps(y, decision, group)
    assert outcome_gaps(y, decision, group) != outcome_gaps(y, decision, group, random_state=1)


# --- segments ---

# Admissions to six departments (Bickel, Hammel and O'Connell, Science 1975): men admitted, rejected, women likewise.
ADMISSIONS = {
    "A": (512, 313, 89, 19),
    "B": (353, 207, 17, 8),
    "C": (120, 205, 202, 391),
    "D": (138, 279, 131, 244),
    "E": (53, 138, 94, 299),
    "F": (22, 351, 24, 317),
}


def admissions():
    counts = np.array(list(ADMISSIONS.values()))
    decision = np.repeat(np.tile([1, 0, 1, 0], 6), counts.ravel())
    group = np.repeat(np.tile([1, 1, 0, 0], 6), counts.ravel())
    return decision, group, np.repeat(list(ADMISSIONS), counts.sum(axis=1))


def test_berkeley_admissions_give_the_published_common_odds_ratio():
    row = segmented_approvals(*admissions(), names=["women", "men"], reference="women")[0]
    assert (row.group, row.reference, row.n_segments_used, row.n_people_used) == ("men", "women", 6, 4526)
    common = row.common_odds_ratio_group_over_reference
    assert numbers(common) == pytest.approx([0.9046968, 0.7719074, 1.0603298], abs=1e-7)
    assert row.chi_square == pytest.approx(1.5246, abs=1e-4)
    assert row.p_value == row.p_value_holm == pytest.approx(0.2169, abs=1e-4)
    assert stats.chi2.isf(row.homogeneity_p_value, 5) == pytest.approx(18.826, abs=1e-3)
    whole = approval_disparity(*admissions()[:2], reference="0").groups[1]
    assert whole.odds_ratio_group_over_reference.value == pytest.approx(1.84108, abs=1e-5)


def test_one_segment_is_the_chi_square_of_scipy_but_for_its_degree_of_freedom():
    decision, group = people_of((45, 70), (30, 60))
    row = segmented_approvals(decision, group, np.zeros(130), reference="0")[0]
    expected = stats.chi2_contingency([[30, 30], [45, 25]], correction=False).statistic
    assert row.chi_square == pytest.approx(expected * 129 / 130)
    assert row.common_odds_ratio_group_over_reference.value == pytest.approx(30 * 25 / (30 * 45))
    assert np.isnan(row.homogeneity_p_value)
    segment = row.segments[0]
    assert segment.odds_ratio_group_over_reference.value == pytest.approx(30 * 25 / (30 * 45))
    assert segment.approval_rate_group.value == 0.5
    assert segment.note == ""


def test_one_segment_has_the_interval_of_woolf():
    decision, group = people_of((45, 70), (30, 60))
    found = segmented_approvals(decision, group, np.zeros(130), reference="0")[0]
    expected = stats.contingency.odds_ratio([[30, 30], [45, 25]], kind="sample").confidence_interval()
    estimate = found.common_odds_ratio_group_over_reference
    assert [estimate.low, estimate.high] == pytest.approx([expected.low, expected.high])


def test_homogeneity_in_sparse_segments_equals_a_plain_transcription_with_tarones_term():
    # Approved and people, of the group and of the reference, in each segment.
    counts = [(1, 6, 3, 5), (4, 5, 2, 9), (2, 4, 3, 3), (1, 7, 1, 8)]
    decision = np.concatenate([np.repeat([1, 0, 1, 0], [x1, n1 - x1, x0, n0 - x0]) for x1, n1, x0, n0 in counts])
    group = np.concatenate([np.repeat([1, 0], [n1, n0]) for _, n1, _, n0 in counts])
    segment = np.repeat(np.arange(4), [n1 + n0 for _, n1, _, n0 in counts])
    row = segmented_approvals(decision, group, segment, reference="0")[0]
    common = row.common_odds_ratio_group_over_reference.value
    apart, variance = [], []
    for x1, n1, x0, n0 in counts:
        m = x1 + x0

        def excess(a, m=m, n1=n1, n0=n0):
            return a * (n0 - m + a) - common * (m - a) * (n1 - a)

        fitted = optimize.brentq(excess, max(0, m - n0), min(m, n1), xtol=1e-14)
        cells = np.array([fitted, m - fitted, n1 - fitted, n0 - m + fitted])
        apart.append(x1 - fitted)
        variance.append(1 / (1 / cells).sum())
    apart, variance = np.array(apart), np.array(variance)
    breslow_day = (apart**2 / variance).sum()
    tarone = breslow_day - apart.sum() ** 2 / variance.sum()
    assert breslow_day > tarone + 1e-4  # small, and far above the tolerance below
    assert row.homogeneity_p_value == pytest.approx(stats.chi2.sf(tarone, 3), rel=1e-9)


def test_segments_that_say_nothing_are_listed_and_counted():
    decision = [1, 0, 1, 0, 1, 1, 0, 1]
    group = [0, 0, 1, 1, 0, 1, 0, 1]
    rows = segmented_approvals(decision, group, [*"wwww", *"xx", "y", "z"], names=["a", "b"], reference="a")
    found = rows[0]
    assert found.n_segments_used == 1
    assert (found.n_people_used, found.n_people_left_out) == (4, 4)
    notes = [segment.note for segment in found.segments]
    assert "fewer than 30" in notes[0]
    assert "same decision" in notes[1]
    assert "no one of the group" in notes[2]
    assert "no one of the reference" in notes[3]
    assert np.isnan(found.segments[2].approval_rate_group.value)
    assert "3 of 4 segments" in found.note


def test_no_informative_segment_is_nan_with_the_reason():
    row = segmented_approvals([1, 0, 1, 0], [0, 1, 0, 1], ["x", "y", "x", "y"])[0]
    assert np.isnan(row.p_value)
    assert "no segment holds both groups" in row.note
    assert "no segment holds both groups" in row.to_dict()["common_odds_ratio_group_over_reference"]["note"]


def test_common_odds_ratio_at_its_borders():
    never = segmented_approvals([0, 0, 1, 1], [1, 1, 0, 0], ["x"] * 4, reference="0")[0]
    assert never.common_odds_ratio_group_over_reference.value == 0
    assert "no upper end" in never.common_odds_ratio_group_over_reference.note
    always = segmented_approvals([1, 1, 0, 0], [1, 1, 0, 0], ["x"] * 4, reference="0")[0]
    assert "infinite in the sample" in always.common_odds_ratio_group_over_reference.note


# --- membership as probabilities ---


def test_certain_probabilities_give_the_same_figures_as_codes():
    y, decision, score, group = draw(9, n=3000)
    certain = np.eye(3)[group]
    hard, soft = approval_disparity(decision, group), approval_disparity(decision, certain)
    for one, other in zip(hard.groups, soft.groups, strict=True):
        assert one.n_people == pytest.approx(other.n_people)
        assert one.n_effective == pytest.approx(other.n_effective)
        assert one.shortfall == pytest.approx(other.shortfall)
        for field in ("approval_rate", "approval_ratio_group_over_reference", "odds_ratio_group_over_reference"):
            assert numbers(getattr(one, field)) == pytest.approx(numbers(getattr(other, field)), abs=0.01, nan_ok=True)
    scores = zip(score_disparity(score, group), score_disparity(score, certain), strict=True)
    for one, other in scores:
        assert one.ks_distance == pytest.approx(other.ks_distance, nan_ok=True)
        assert numbers(one.standardized_mean_difference_group_minus_reference) == pytest.approx(
            numbers(other.standardized_mean_difference_group_minus_reference), nan_ok=True
        )
    errors = error_rates(y, decision, score, certain)
    for one, other in zip(error_rates(y, decision, score, group), errors, strict=True):
        assert numbers(one.brier_score) == pytest.approx(numbers(other.brier_score))
        assert numbers(one.false_discovery_rate) == pytest.approx(numbers(other.false_discovery_rate), abs=0.01)
    gaps = outcome_gaps(y, decision, certain)
    for name, gap in outcome_gaps(y, decision, group).items():
        assert [gaps[name].value, gaps[name].low, gaps[name].high] == pytest.approx(
            [gap.value, gap.low, gap.high], abs=0.015
        )
    assert soft.is_probabilistic
    assert "probabilities" in soft.note
    assert "probabilities" in gaps["sp_gap"].note


def test_weighted_intervals_cover_when_decisions_depend_on_the_probabilities_alone():
    rng = np.random.default_rng(10)
    n, covered = 400, []
    for _ in range(200):
        p = rng.beta(1, 1, n)
        decision = (rng.random(n) < 0.3 + 0.4 * p).astype(np.int64)
        row = approval_disparity(decision, np.column_stack([1 - p, p]), reference="0").groups[1]
        # E[p (0.3 + 0.4 p)] / E[p] with p uniform, and likewise for 1 - p.
        rate, reference = 0.3 + 0.4 * 2 / 3, 0.3 + 0.4 / 3
        truth = [100 * (rate - reference), rate / reference]
        found = [row.rate_difference_group_minus_reference_pp, row.approval_ratio_group_over_reference]
        covered.append([e.low < t < e.high for e, t in zip(found, truth, strict=True)])
        assert row.n_effective < n
    assert (np.abs(np.mean(covered, axis=0) - 0.95) < 0.04).all()


def test_probabilities_are_refused_or_left_open_where_not_defined():
    y, decision, score, group = draw(11)
    soft = np.full((len(y), 3), 1 / 3)
    with pytest.raises(InvalidInputError, match="an exact test counts whole people"):
        approval_disparity(decision, soft, test="fisher")
    with pytest.raises(InvalidInputError, match="Segmented comparisons need known group membership"):
        segmented_approvals(decision, soft, group)
    assert "needs known membership" in error_rates(y, decision, score, soft)[0].auc.note
    assert "needs known membership" in score_disparity(score, soft)[1].note
    assert "no spread" in approval_disparity(decision, soft).groups[1].note
    nobody = np.column_stack([np.ones(len(y)), np.zeros(len(y))])
    assert "no one in group '1'" in approval_disparity(decision, nobody).groups[1].note
    sure = np.tile([0.3, 0.7], (4, 1)) + np.array([0, 0.1, 0.2, -0.1])[:, None] * [1, -1]
    constant = approval_disparity([1, 1, 1, 1], sure).groups[0]
    assert "no spread" in constant.note
    one_sided = approval_disparity([1, 1, 0], [[1, 0], [1, 0], [0, 1]]).groups[1]
    assert np.isnan(one_sided.odds_ratio_group_over_reference.value)


def test_a_weighted_rate_of_one_has_no_odds_ratio_and_says_why():
    soft = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    row = approval_disparity([1, 1, 0], soft, reference="1").groups[0]
    assert "odds ratio needs approvals and denials" in row.odds_ratio_group_over_reference.note
    assert not np.isnan(row.p_value)


# --- invariances ---


def test_order_of_people_does_not_matter():
    y, decision, score, group = draw(12)
    order = np.random.default_rng(0).permutation(len(y))
    # repr: the reference's NaN is not equal to itself
    assert repr(approval_disparity(decision, group)) == repr(approval_disparity(decision[order], group[order]))
    assert outcome_gaps(y, decision, group) == outcome_gaps(y[order], decision[order], group[order])
    assert repr(segmented_approvals(decision, group, y)) == repr(
        segmented_approvals(decision[order], group[order], y[order])
    )
    for one, other in zip(
        error_rates(y, decision, score, group),
        error_rates(y[order], decision[order], score[order], group[order]),
        strict=True,
    ):
        assert numbers(one.auc) == pytest.approx(numbers(other.auc))


def test_relabelled_groups_give_the_same_rows():
    _, decision, _, group = draw(13)
    recoded = np.array([2, 0, 1])[group]
    before = {row.group: row for row in approval_disparity(decision, group, names=["a", "b", "c"]).groups}
    after = {row.group: row for row in approval_disparity(decision, recoded, names=["b", "c", "a"]).groups}
    for name in "abc":
        assert before[name].p_value == pytest.approx(after[name].p_value, nan_ok=True)
        assert numbers(before[name].approval_rate) == numbers(after[name].approval_rate)


# --- bad input ---

OK = ([0, 1, 0, 1], [0, 0, 1, 1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: approval_disparity([0, 2], [0, 1]), r"`decision` must be 0 or 1 .* got \['0', '2'\]"),
        (lambda: approval_disparity(["yes", "no"], [0, 1]), "`decision` must be 0 or 1"),
        (lambda: approval_disparity([[0, 1]], [0, 1]), r"`decision` must be one value per person, got shape \(1, 2\)"),
        (lambda: approval_disparity([], []), r"got shape \(0,\)"),
        (lambda: approval_disparity([0, 1], [0, 1, 1]), "`group` has 3 values for 2 people"),
        (
            lambda: approval_disparity([0, 1], ["a", "b"]),
            "`group` must hold integer codes from 0, got <U1 values; turn",
        ),
        (lambda: approval_disparity([0, 1], [-1, 1]), "got int64 values from -1; turn"),
        (lambda: approval_disparity([0, 1], np.zeros((2, 1, 1))), r"got shape \(2, 1, 1\)"),
        (lambda: approval_disparity([0, 1], [0, 0]), "At least two groups are needed"),
        (lambda: approval_disparity(*OK, names=["a"]), "`names` has 1 names for 2 group codes"),
        (lambda: approval_disparity(*OK, names=["a", "a"]), r"`names` must differ from each other, got \['a'\]"),
        (lambda: approval_disparity([0, 1], np.eye(2), names=["a"]), "1 names for 2 columns of probabilities"),
        (lambda: approval_disparity([0, 1], [[0.5, 0.4], [0.5, 0.5]]), "got 1 rows that do not, the first at 0"),
        (lambda: approval_disparity([0, 1], [[0.5, 0.5], [np.nan, 1]]), "the first at 1"),
        (lambda: approval_disparity(*OK, reference="x"), r"one of the groups \['0', '1'\], got 'x'"),
        (lambda: approval_disparity(*OK, names=["a", "b", "c"], reference="c"), "'c' has no one in it"),
        (lambda: approval_disparity(*OK, test="t"), "`test` must be 'auto', 'fisher' or 'z', got 't'"),
        (lambda: approval_disparity(*OK, confidence=95), "`confidence` must be a number between 0 and 1, got 95"),
        (lambda: approval_disparity(*OK, four_fifths_threshold=0), "`four_fifths_threshold` must be"),
        (lambda: approval_disparity_by_cutoff([0.1, np.nan], [0, 1]), "`score` must be finite, got 1 missing"),
        (lambda: approval_disparity_by_cutoff([[0.1]], [0]), "`score` must be one number per person"),
        (lambda: approval_disparity_by_cutoff(*OK, quantiles=[0.5, 1]), r"`quantiles` must be .* got \[0.5, 1\]"),
        (lambda: error_rates([0, 1], [0, 1, 1], [0.1, 0.2], [0, 1]), "got lengths {'y': 2, 'decision': 3, 'score': 2}"),
        (lambda: outcome_gaps([0, 1], [0, 1], [0, 1], n_draws=10), "`n_draws` must be at least 100 .* got 10"),
        (lambda: segmented_approvals(*OK, ["x", "y"]), "`segment` has 2 values for 4 people"),
        (lambda: segmented_approvals(*OK, ["x", None, "y", "y"]), "`segment` has 1 missing values"),
        (
            lambda: segmented_approvals(np.tile([0, 1], 201), np.tile([0, 1], 201), np.arange(402)),
            "at most 200 distinct values, got 402; bin it first",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()


@pytest.mark.parametrize("soft", [False, True])
def test_distinct_rows_with_frequencies_give_the_figures_of_people_one_by_one(soft):
    rng = np.random.default_rng(4)
    n = 60
    times = rng.integers(1, 6, n)
    score = np.round(rng.random(n), 2)
    decision, label = (score >= 0.5).astype(int), rng.integers(0, 2, n)
    segment = rng.choice(["x", "y"], n)
    codes = rng.integers(0, 3, n)
    group = rng.dirichlet(np.ones(3), n) if soft else codes
    rows = {"frequency": times}
    one_by_one = np.repeat(np.arange(n), times)

    def both(function, *columns, **settings):
        return function(*columns, **rows, **settings), function(*(c[one_by_one] for c in columns), **settings)

    found = [
        both(approval_disparity, decision, group),
        both(approval_disparity_by_cutoff, score, group),
        both(score_disparity, score, group),
        both(error_rates, label, decision, score, group),
        both(outcome_gaps, label, decision, group, n_draws=200),
    ]
    if not soft:
        found.append(both(segmented_approvals, decision, codes, segment))
    for mine, theirs in found:
        assert _numbers(mine) == pytest.approx(_numbers(theirs), rel=1e-9, abs=1e-9, nan_ok=True)


def _numbers(value):
    """Every number of a nest of results, in order."""
    if isinstance(value, (list, tuple)):
        return [number for item in value for number in _numbers(item)]
    if isinstance(value, dict):
        return [number for item in value.values() for number in _numbers(item)]
    if hasattr(value, "to_dict"):
        return _numbers(value.to_dict())
    return [float(value)] if isinstance(value, (int, float)) else []


@pytest.mark.parametrize("frequency", [[1, 2], [1, 2, 0], [1.0, 2.0, 3.0]])
def test_frequencies_are_whole_numbers_of_people(frequency):
    with pytest.raises(InvalidInputError, match="`frequency` must be a whole number of at least 1 for each of 3 rows"):
        approval_disparity([1, 0, 1], [0, 1, 1], frequency=frequency)
