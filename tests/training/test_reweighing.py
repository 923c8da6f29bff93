"""Reweighing against a table counted by hand, and against what independence means."""

import numpy as np
import pytest
from scipy.stats.contingency import expected_freq

from evenhand.exceptions import InvalidInputError
from evenhand.metrics.outcomes import group_outcomes
from evenhand.training.repairs import reweighing


@pytest.fixture
def people():
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
def test_weights_are_those_of_the_definition(people, is_weighted):
    labels, groups, weights = people
    given = weights if is_weighted else None
    expected = by_hand(labels, groups, weights if is_weighted else np.ones(len(labels)))
    np.testing.assert_allclose(reweighing(labels, groups, given), expected, rtol=1e-12)


def test_the_reweighed_table_is_the_one_scipy_expects_of_independence(people):
    labels, groups, weights = people

    def table(of):
        return np.bincount(groups * 2 + labels, of, 6).reshape(3, 2)

    np.testing.assert_allclose(table(reweighing(labels, groups, weights)), expected_freq(table(weights)))


def test_every_group_has_the_same_share_of_favorable_labels_in_fairlearn(people):
    from fairlearn.metrics import demographic_parity_difference

    labels, groups, _ = people
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
