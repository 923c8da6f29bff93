"""Sampled Shapley values against brute force, closed forms and shap."""

import itertools
import math
import warnings

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier

from evenhand.attribution.sampled import SampledShapley, antithetic_permutations, coalitions
from evenhand.attribution.shapley import Game, shapley_attribution
from evenhand.exceptions import InvalidInputError


def polynomial(x):
    """Interactions of up to four of eight inputs."""
    return x[:, 0] * x[:, 1] * x[:, 2] - 2 * x[:, 3] * x[:, 4] + x[:, 5] ** 2 + x[:, 0] * x[:, 3] * x[:, 6] * x[:, 7]


def by_all_orders(f, z, w, b):
    """phi(z | w; b) of one person straight from the definition."""
    d = len(w)
    phi = np.zeros(d)
    for j in range(d):
        others = [k for k in range(d) if k != j]
        for size in range(d):
            weight = math.factorial(size) * math.factorial(d - size - 1) / math.factorial(d)
            for chosen in itertools.combinations(others, size):
                before = b.copy()
                before[list(chosen)] = w[list(chosen)]
                after = before.copy()
                after[j] = z[j]
                phi[j] += weight * (f(after[None])[0] - f(before[None])[0])
    return phi


@pytest.fixture
def rows(rng):
    return tuple(rng.normal(size=(5, 8)) for _ in range(3))


def test_it_is_a_game():
    assert isinstance(SampledShapley(polynomial), Game)


def test_orders_are_permutations_each_followed_by_its_reverse():
    for d, n in ((2, 4), (5, 8), (20, 76), (3, 40)):
        orders = antithetic_permutations(d, n, random_state=3)
        assert orders.shape == (n, d)
        assert (np.sort(orders, axis=1) == np.arange(d)).all()
        assert (orders[1::2] == orders[::2, ::-1]).all()
    assert not np.array_equal(antithetic_permutations(20, 8, 0), antithetic_permutations(20, 8, 1))


def test_each_input_is_first_about_equally_often():
    first = antithetic_permutations(6, 6000, random_state=0)[:, 0]
    counts = np.bincount(first, minlength=6)
    assert counts.sum() == 6000
    assert abs(counts - 1000).max() < 5 * np.sqrt(1000)


@pytest.mark.parametrize("own", [True, False])
def test_all_coalitions_give_the_definition(rows, own):
    z, w, b = rows
    z = w if own else z
    game = SampledShapley(polynomial, n_permutations=38)  # 2^8 coalitions are no more than 38 walks
    assert coalitions(8, 38, 0).is_exact
    found = game.contributions(z, w, b)
    expected = [by_all_orders(polynomial, *(t[i] for t in (z, w, b))) for i in range(5)]
    np.testing.assert_allclose(found.values, expected, atol=1e-12)
    assert found.standard_error is None


def test_one_pair_of_orders_is_exact_where_at_most_two_inputs_interact(rng):
    weights = rng.normal(size=(12, 12))

    def quadratic(x):
        return np.einsum("ni,ij,nj->n", x, weights, x) + np.sin(x).sum(axis=1)

    z, w, b = (rng.normal(size=(3, 12)) for _ in range(3))
    few, many = SampledShapley(quadratic, 4, random_state=1), SampledShapley(quadratic, 400, random_state=2)
    own = few.contributions(w, w, b)
    np.testing.assert_allclose(own.values, many.contributions(w, w, b).values, atol=1e-10)
    np.testing.assert_allclose(few.contributions(z, w, b).values, many.contributions(z, w, b).values, atol=1e-10)
    assert np.abs(own.standard_error).max() < 1e-10


def test_contributions_sum_to_the_score_whatever_the_number_of_orders(rng):
    def score(x):
        return np.exp(x.mean(axis=1)) * np.tanh(x.prod(axis=1))

    x, b = (rng.normal(size=(20, 15)) for _ in range(2))
    found = shapley_attribution(SampledShapley(score, 4), x, b)
    assert found.completeness_gap.max() < 1e-12


def test_inputs_in_their_own_context_are_the_attribution(rows):
    _, w, b = rows
    game = SampledShapley(polynomial, 4)
    assert not coalitions(8, 4, 0).is_exact
    np.testing.assert_allclose(
        game.contributions(w.copy(), w, b).values, game.contributions(w, w, b).values, atol=1e-13
    )


def test_an_additive_score_is_weighed_alike_in_every_context(rng):
    def additive(x):
        return (np.sin(x) * np.arange(1, 13)).sum(axis=1)

    z, w, u, b = (rng.normal(size=(4, 12)) for _ in range(4))
    game = SampledShapley(additive, 8)
    expected = np.arange(1, 13) * (np.sin(z) - np.sin(b))
    for context in (w, u):
        np.testing.assert_allclose(game.contributions(z, context, b).values, expected, atol=1e-12)


def test_the_same_seed_gives_the_same_answer_and_another_another(rng):
    def score(x):
        return x.prod(axis=1)

    x, b = (rng.normal(size=(3, 14)) for _ in range(2))
    first, again, other = (SampledShapley(score, 8, seed).contributions(x, x, b).values for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_person_is_explained_the_same_whoever_else_is_asked_about(rng, monkeypatch):
    x, z, b = (rng.normal(size=(30, 12)) for _ in range(3))
    game = SampledShapley(polynomial, 8)
    together = game.contributions(z, x, b).values
    monkeypatch.setattr("evenhand.attribution.sampled._CALL_VALUES", 5000)
    np.testing.assert_array_equal(together, game.contributions(z, x, b).values)
    assert np.array_equal(game.margin(x)[:7], game.margin(x[:7]))


def test_calls_are_of_bounded_size_and_none_is_asked_twice(rng, monkeypatch):
    asked = []

    def score(x):
        asked.append(x.copy())
        return x.sum(axis=1)

    monkeypatch.setattr("evenhand.attribution.sampled._CALL_VALUES", 10_000)
    x, b = (rng.normal(size=(40, 10)) for _ in range(2))
    SampledShapley(score, 8).contributions(x, x, b)
    assert max(part.size for part in asked) <= 10_000
    everything = np.concatenate(asked)
    assert len(np.unique(everything, axis=0)) == len(everything)


def test_standard_errors_cover_the_exact_values_of_a_tree_ensemble(rng):
    X = rng.normal(size=(600, 12))
    y = (X[:, 0] * X[:, 1] * X[:, 2] + X[:, 3] > 0).astype(int)
    model = GradientBoostingClassifier(n_estimators=40, max_depth=5, random_state=0).fit(X, y)
    baseline = X.mean(axis=0)
    with warnings.catch_warnings():  # of shap's own imports
        warnings.simplefilter("ignore")
        import shap
    exact = shap.TreeExplainer(model, baseline[None], feature_perturbation="interventional").shap_values(X[:40])
    game = SampledShapley(model.decision_function, 32)
    x = X[:40]
    found = game.contributions(x, x, np.broadcast_to(baseline, x.shape))
    error = np.abs(found.values - exact)
    used = found.standard_error > 1e-9
    assert 0.85 < (error[used] <= 2 * found.standard_error[used]).mean() <= 1
    assert error[~used].max() < 1e-6  # shap computes in float32
    assert np.sqrt(np.square(error).mean()) < 0.1 * np.sqrt(np.square(exact).mean())


def test_one_input_gets_the_whole_difference():
    x, b = np.array([[3.0]]), np.array([[1.0]])
    assert SampledShapley(lambda v: v[:, 0] ** 2).contributions(x, x, b).values.tolist() == [[8.0]]


def test_no_one_is_asked_about_no_one():
    nobody = np.zeros((0, 9))
    game = SampledShapley(polynomial, 8)
    assert game.margin(nobody).shape == (0,)
    assert game.contributions(nobody, nobody, nobody).values.shape == (0, 9)


@pytest.mark.parametrize("n", [0, 2, 5, 4.0, "8"])
def test_orders_must_be_an_even_number_of_at_least_four(n):
    with pytest.raises(InvalidInputError, match="`n_permutations` must be an even number of at least 4"):
        SampledShapley(polynomial, n)
