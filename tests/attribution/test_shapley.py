"""Explanations made of Shapley values: what becomes of a game's contributions in the audit."""

import numpy as np
import pytest

from evenhand.attribution.sampled import SampledShapley
from evenhand.attribution.shapley import ShapleyAttribution, shapley_attribution


def score(x):
    return x[:, 0] * x[:, 1] + np.sin(x[:, 2])


@pytest.fixture
def game():
    return SampledShapley(score)


@pytest.fixture
def found(game, rng):
    x, b = (rng.normal(size=(6, 3)) for _ in range(2))
    return shapley_attribution(game, x, b)


def closed_form(z, w, b):
    """phi(z | w; b) of the score: a product is shared, half before and half after."""
    return np.stack(
        [
            (z[:, 0] - b[:, 0]) * (w[:, 1] + b[:, 1]) / 2,
            (z[:, 1] - b[:, 1]) * (w[:, 0] + b[:, 0]) / 2,
            np.sin(z[:, 2]) - np.sin(b[:, 2]),
        ],
        axis=1,
    )


def test_values_are_the_closed_form_and_complete(found):
    np.testing.assert_allclose(found.values, closed_form(found.x, found.x, found.baseline), atol=1e-12)
    assert found.completeness_gap.max() < 1e-12
    np.testing.assert_allclose(found.logit, score(found.x), atol=1e-12)
    np.testing.assert_allclose(found.baseline_logit, score(found.baseline), atol=1e-12)
    assert found.method == found.game.method


def test_rows_are_people_in_any_order_and_may_repeat(found):
    index = np.array([4, 0, 4])
    part = found.rows(index)
    assert isinstance(part, ShapleyAttribution)
    for name in ("x", "baseline", "values", "logit", "baseline_logit"):
        assert np.array_equal(getattr(part, name), getattr(found, name)[index])


def test_inputs_of_another_in_the_context_of_the_one(game, rng):
    x, other, b = (rng.normal(size=(6, 3)) for _ in range(3))
    one, another = shapley_attribution(game, x, b), shapley_attribution(game, other, b)
    np.testing.assert_allclose(one.with_inputs_of(another), closed_form(other, x, b), atol=1e-12)
    np.testing.assert_allclose(one.with_inputs_of(one), one.values, atol=1e-12)


def test_a_step_from_the_baseline_in_each_context(found):
    step = np.array([0.5, 1.0, 2.0])
    expected = closed_form(found.baseline + step, found.x, found.baseline)
    np.testing.assert_allclose(found.per_deviation(step), expected, atol=1e-12)


def score_of_a_category(x):
    return np.array([0.3, -1.0, 2.0])[x[:, 0].astype(int)] * x[:, 1]


def test_no_step_is_taken_from_a_category(rng):
    x = np.array([[2.0, 1.5], [0.0, -1.0]])
    baseline = np.broadcast_to([[1.0, 0.5]], x.shape)
    is_category = np.array([True, False])
    found = shapley_attribution(SampledShapley(score_of_a_category), x, baseline, is_category)
    steps = found.per_deviation(np.array([0.7, 2.0]))
    # The number moves by 2 before and after the category takes the person's place.
    np.testing.assert_allclose(steps, np.array([[0.0, (-1.0 + 2.0)], [0.0, (-1.0 + 0.3)]]), atol=1e-12)


def test_standard_errors_follow_the_people(rng):
    game = SampledShapley(lambda x: x.prod(axis=1), n_permutations=4)
    x, b = (rng.normal(size=(5, 9)) for _ in range(2))
    found = shapley_attribution(game, x, b)
    assert found.standard_error.shape == (5, 9)
    assert np.array_equal(found.rows(np.array([3])).standard_error, found.standard_error[[3]])


def test_steps_of_rows_are_found_once_for_all_rows(found):
    asked, deviation = [], np.ones(3)
    play = type(found.game).contributions
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(found.game), "contributions", lambda *rows: asked.append(1) or play(*rows))
        parts = [found.rows(np.array(rows)).per_deviation(deviation) for rows in ([0, 1, 2], [3, 4, 5, 0])]
    assert len(asked) == 1
    np.testing.assert_allclose(np.concatenate(parts)[:6], found.per_deviation(deviation), atol=1e-12)
    doubled = found.rows(np.array([2])).per_deviation(2 * deviation)
    np.testing.assert_allclose(doubled, found.per_deviation(2 * deviation)[2:3], atol=1e-12)
