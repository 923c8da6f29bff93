"""FairSHAP: Shapley values against shap, and a planted stand-in for the group. Reweighing: a table counted by hand."""

import warnings

import numpy as np
import pytest
import torch
from scipy.stats.contingency import expected_freq
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors

import evenhand as eh
from evenhand.exceptions import InvalidInputError
from evenhand.matching.pairs import match_pairs
from evenhand.metrics.outcomes import auc, group_outcomes
from evenhand.models.dispatch import as_audited_model
from evenhand.training.repairs import matches_across, repaired, replaced, reweighing, shapley_values

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # shap's import meets a deprecation of matplotlib
    import shap

MERIT, PROXY = 0, 1


def people(n, seed, n_groups=2):
    """Labels favor group 0 over others of the same merit; column 1 predicts the group, columns 2 and 3 do not."""
    rng = np.random.default_rng(seed)
    groups, merit = rng.integers(0, n_groups, n), rng.normal(size=n)
    labels = (merit + 1.2 * (groups == 0) + rng.normal(size=n) > 0.6).astype(np.int64)
    proxy = 2 * (groups == 0) + 0.7 * rng.normal(size=n)
    return np.column_stack([merit, proxy, rng.normal(size=n), merit + rng.normal(size=n)]), labels, groups


def fit_logistic(features, labels):
    return LogisticRegression().fit(features, labels)


def repair(features, labels, groups, fit=fit_logistic, **options):
    is_financial = np.arange(features.shape[1]) == MERIT
    return repaired(
        features, labels, groups, fit=fit, finances=features[:, [MERIT]], is_financial=is_financial, **options
    )


@pytest.fixture(scope="module")
def trained():
    return people(1200, seed=0)


def test_shapley_values_of_trees_are_those_of_shap(trained):
    x, y, _ = trained
    forest = RandomForestClassifier(10, max_depth=4, random_state=0).fit(x, y)
    found = shapley_values(as_audited_model(forest), x[:20], x[20:40])
    for mine, row, against in zip(found, x[:20], x[20:40], strict=True):
        explainer = shap.TreeExplainer(forest, against[None], feature_perturbation="interventional")
        np.testing.assert_allclose(mine, explainer.shap_values(row[None])[0, :, 1], atol=1e-6)


@pytest.mark.slow
def test_shapley_values_of_a_network_are_those_of_shap(trained):
    x = trained[0].astype(np.float32)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).eval()

    def score(rows):
        with torch.no_grad():
            return network(torch.as_tensor(rows, dtype=torch.float32)).squeeze(-1).numpy()

    found = shapley_values(as_audited_model(network), x[:10], x[10:20])
    for mine, row, against in zip(found, x[:10], x[10:20], strict=True):
        exact = shap.ExactExplainer(score, shap.maskers.Independent(against[None]))(row[None])
        np.testing.assert_allclose(mine, exact.values[0], atol=1e-5)


def test_with_several_groups_people_are_matched_in_the_reference_group_and_its_people_in_any_other(trained):
    x, y, _ = trained
    groups = np.random.default_rng(1).integers(0, 3, len(y))
    found = matches_across(match_pairs(x, y, groups), reference=1)
    standard = (x - x.mean(0)) / x.std(0)
    for is_asking in (groups == 1, groups != 1):
        for label in (0, 1):
            asking, pool = (np.flatnonzero(who & (y == label)) for who in (is_asking, ~is_asking))
            nearest = NearestNeighbors(n_neighbors=1).fit(standard[pool]).kneighbors(standard[asking])[1][:, 0]
            np.testing.assert_array_equal(found[asking], pool[nearest])


def test_the_most_influential_values_are_replaced_and_a_column_of_the_table_as_a_whole():
    mine, theirs = np.zeros((2, 3)), np.ones((2, 3))
    columns = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])  # the last two belong together
    influence = np.array([[0.1, 0.5], [0.3, 0.0]])
    for share, expected in [
        (0, [[0, 0, 0], [0, 0, 0]]),
        (1 / 3, [[0, 1, 1], [0, 0, 0]]),
        (2 / 3, [[0, 1, 1], [1, 0, 0]]),
        (1, [[1, 1, 1], [1, 0, 0]]),
    ]:
        found, n_changed = replaced(mine, theirs, influence, share, columns)
        assert found.tolist() == expected
        assert n_changed == round(3 * share)


@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.slow
def test_a_planted_stand_in_is_repaired(n_groups):
    x, y, groups = people(1200, 0, n_groups)
    X_test, y_test, group_test = people(2000, 1, n_groups)
    found = repair(x, y, groups, reference=0, max_auc_loss=0.1)
    is_changed = found.features != x
    assert found.n_changed == is_changed.sum()
    assert is_changed[:, PROXY].sum() > 5 * np.delete(is_changed, PROXY, axis=1).sum(axis=0).max()

    def score_gap_and_auc(features):
        model = LogisticRegression().fit(features, y)
        audited = eh.audit(
            model, X_test, y_test, sensitive_features=group_test, financial_features=["x0"], evidence=True
        ).to_dict()
        return abs(audited["score_gap"]["logit"]["value"]), auc(y_test, model.predict_proba(X_test)[:, 1])

    (gap, utility), (gap_left, utility_left) = score_gap_and_auc(x), score_gap_and_auc(found.features)
    assert gap > 1
    assert gap_left < 0.4 * gap
    assert utility_left > utility - 0.12


def test_labels_finances_and_the_callers_rows_stay(trained):
    x, y, groups = trained
    before = x.copy()
    found = repair(x, y, groups, max_auc_loss=0.1)
    assert found.n_changed > 0
    np.testing.assert_array_equal(x, before)
    np.testing.assert_array_equal(found.features[:, MERIT], x[:, MERIT])
    assert found.labels is y


def test_the_number_is_the_one_with_the_least_gap_within_the_loss_of_auc(trained):
    found = repair(*trained, max_auc_loss=0.03)
    allowed = [trial for trial in found.trials if trial.auc >= found.trials[0].auc - 0.03]
    assert 0 < len(allowed) < len(found.trials)
    assert found.share == min(allowed, key=lambda trial: trial.score_gap).share
    assert found.trials[0].score_gap > 1  # signed gaps do not cancel over the two sides of pairs


def test_where_the_group_plays_no_part_almost_nothing_is_gained(trained):
    x, y, _ = trained
    groups = np.random.default_rng(2).integers(0, 2, len(y))
    found = repair(x, y, groups)
    assert max(trial.score_gap for trial in found.trials[:3]) < 0.2


def test_the_same_seed_gives_the_same_repair_and_codes_of_groups_do_not_matter(trained):
    x, y, groups = trained
    first, second = repair(x, y, groups, reference=0), repair(x, y, 3 * groups + 1, reference=1)
    np.testing.assert_array_equal(first.features, second.features)
    assert first.trials == second.trials


def test_what_cannot_be_repaired_is_named(trained):
    x, y, groups = trained
    with pytest.raises(InvalidInputError, match=r"at least two groups, got 1200 training rows of the groups \[0\]"):
        repair(x, y, np.zeros_like(groups))
    with pytest.raises(InvalidInputError, match=r"the reference group 7 among them, got .* groups \[0, 1\]"):
        repair(x, y, groups, reference=7)
    with pytest.raises(InvalidInputError, match=r"begin with 0 and ascend to at most 1, got \[0.1, 0.2\]"):
        repair(x, y, groups, shares=(0.1, 0.2))


# --- reweighing ---


@pytest.fixture
def labeled():
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 3, 400)
    return (rng.random(400) < 0.3 + 0.2 * groups).astype(int), groups, rng.gamma(2.0, size=400)


def by_hand(labels, groups, weights):
    """P(g) P(y) / P(g, y), person by person."""
    total = sum(weights)
    found = []
    for y, g, w in zip(labels, groups, weights, strict=True):
        of_group = sum(v for other, v in zip(groups, weights, strict=True) if other == g) / total
        of_label = sum(v for other, v in zip(labels, weights, strict=True) if other == y) / total
        of_both = sum(v for a, b, v in zip(labels, groups, weights, strict=True) if (a, b) == (y, g)) / total
        found.append(w * of_group * of_label / of_both)
    return found


@pytest.mark.parametrize("is_weighted", [False, True])
def test_weights_are_those_of_the_definition(labeled, is_weighted):
    labels, groups, weights = labeled
    given = weights if is_weighted else None
    expected = by_hand(labels, groups, weights if is_weighted else np.ones(len(labels)))
    np.testing.assert_allclose(reweighing(labels, groups, given), expected, rtol=1e-12)


def test_the_reweighed_table_is_the_one_scipy_expects_of_independence(labeled):
    labels, groups, weights = labeled

    def table(of):
        return np.bincount(groups * 2 + labels, of, 6).reshape(3, 2)

    np.testing.assert_allclose(table(reweighing(labels, groups, weights)), expected_freq(table(weights)))


def test_every_group_has_the_same_share_of_favorable_labels_in_fairlearn(labeled):
    from fairlearn.metrics import demographic_parity_difference

    labels, groups, _ = labeled
    found = reweighing(labels, groups)
    apart = [
        demographic_parity_difference(labels, labels, sensitive_features=groups, sample_weight=w)
        for w in (np.ones(len(labels)), found)
    ]
    assert apart[0] > 0.3
    assert apart[1] < 1e-12


def test_independent_people_keep_their_weights():
    labels, groups = np.tile([0, 1], 20), np.repeat([0, 1], 20)
    np.testing.assert_allclose(reweighing(labels, groups, np.full(40, 2.5)), 2.5)


def test_a_logistic_regression_on_the_weights_treats_groups_more_alike():
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(1)
    groups = rng.integers(0, 2, 4000)
    X = np.column_stack([rng.normal(size=4000), groups + 0.3 * rng.normal(size=4000)])
    labels = (X[:, 0] + 1.5 * groups + rng.normal(size=4000) > 0.7).astype(int)

    def gap(weights):
        model = LogisticRegression().fit(X, labels, sample_weight=weights)
        outcomes = group_outcomes(labels, model.predict(X), model.predict_proba(X)[:, 1], groups, ("a", "b"))
        return abs(outcomes[0].positive_rate - outcomes[1].positive_rate)

    assert gap(reweighing(labels, groups)) < 0.5 * gap(None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1], [0, 1, 1]), "got 2 labels, 3 groups"),
        (([0, 1], [0, 1], [1.0]), r"weights of shape \(1,\)"),
        (([0, 1], [0, 1], [1.0, -1.0]), "got 1 of 2 that are not"),
        (([0, 1, 1], ["a", "a", "b"]), "no one .* of b with label 0; merge groups"),
        (([0, 1, 1, 0], ["a", "a", "b", "b"], [1.0, 1.0, 1.0, 0.0]), "of b with label 0"),
    ],
)
def test_what_cannot_be_reweighed_is_named(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        reweighing(*arguments)
