import numpy as np
import pytest
from fairlearn.metrics import demographic_parity_difference, equalized_odds_difference
from sklearn.metrics import f1_score, roc_auc_score

from evenhand.metrics.outcomes import f1, group_outcomes, outcome_metrics


def draw(seed, n=300, n_groups=2):
    rng = np.random.default_rng(seed)
    y, group = rng.integers(0, 2, n), rng.integers(0, n_groups, n)
    score = np.round(np.clip(0.5 * y + rng.normal(0.25, 0.3, n), 0, 1), 2)  # with ties
    return y, (score >= 0.5).astype(np.int64), score, group


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n_groups", [2, 3, 5])
def test_metrics_equal_fairlearn_and_scikit_learn(seed, n_groups):
    y, decision, score, group = draw(seed, n_groups=n_groups)
    names = tuple(f"g{i}" for i in range(n_groups))
    metrics = outcome_metrics(y, decision, score, group_outcomes(y, decision, score, group, names))
    assert metrics["auc"].value == pytest.approx(roc_auc_score(y, score))
    assert metrics["f1"].value == pytest.approx(f1_score(y, decision))
    assert metrics["eo_gap"].value == pytest.approx(equalized_odds_difference(y, decision, sensitive_features=group))
    assert metrics["sp_gap"].value == pytest.approx(
        demographic_parity_difference(y, decision, sensitive_features=group)
    )
    assert metrics["positive_rate"].value == pytest.approx(decision.mean())
    assert metrics["accuracy"].value == pytest.approx((y == decision).mean())


def test_gaps_that_cannot_be_estimated_are_nan_with_the_reason():
    y, group = np.array([0, 1, 1, 1]), np.array([0, 0, 1, 1])
    decision, score = np.array([0, 1, 1, 0]), np.array([0.1, 0.9, 0.8, 0.2])
    outcomes = group_outcomes(y, decision, score, group, ("a", "b"))
    metrics = outcome_metrics(y, decision, score, outcomes)
    assert np.isnan(metrics["eo_gap"].value)
    assert "no one with the unfavorable label in group 'b'" in metrics["eo_gap"].note
    assert np.isnan(outcomes[1].false_positive_rate)
    assert np.isnan(outcomes[1].auc)
    assert not np.isnan(metrics["sp_gap"].value)


def test_a_group_without_people_has_no_parity_gap():
    y, decision, score, group = draw(0)
    outcomes = group_outcomes(y, decision, score, group, ("a", "b", "c"))
    metrics = outcome_metrics(y, decision, score, outcomes)
    assert np.isnan(metrics["sp_gap"].value)
    assert metrics["sp_gap"].note.endswith("no one in c")


def test_constant_decisions_are_noted():
    y, _, score, group = draw(0)
    decision = np.ones_like(y)
    metrics = outcome_metrics(y, decision, score, group_outcomes(y, decision, score, group, ("a", "b")))
    assert "constant" in metrics["positive_rate"].note
    assert metrics["eo_gap"].value == 0


def test_no_positives_have_no_f1():
    assert np.isnan(f1(np.array([0, 0]), np.array([0, 0])))
