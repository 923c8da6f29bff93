"""Explanations made of Shapley values: what becomes of a game's contributions in the audit."""

import numpy as np
import pytest
import torch

from evenhand.attribution.sampled import SampledShapley
from evenhand.attribution.shapley import ShapleyAttribution, shapley_attribution


def score(x):
    return x[:, 0] * x[:, 1] + np.sin(x[:, 2])


@pytest.fixture
def game():
    return SampledShapley(score)


@pytest.fixture
def found(game, rng):
    x, b = (torch.from_numpy(rng.normal(size=(6, 3))) for _ in range(2))
    return shapley_attribution(game, x, b)


def closed_form(z, w, b):
    """phi(z | w; b) of the score: a product is shared, half before and half after."""
    return torch.stack(
        [
            (z[:, 0] - b[:, 0]) * (w[:, 1] + b[:, 1]) / 2,
            (z[:, 1] - b[:, 1]) * (w[:, 0] + b[:, 0]) / 2,
            z[:, 2].sin() - b[:, 2].sin(),
        ],
        dim=1,
    )


def test_values_are_the_closed_form_and_complete(found):
    torch.testing.assert_close(found.values, closed_form(found.x, found.x, found.baseline))
    assert found.completeness_gap.max() < 1e-12
    torch.testing.assert_close(found.logit, torch.from_numpy(score(found.x.numpy())))
    torch.testing.assert_close(found.baseline_logit, torch.from_numpy(score(found.baseline.numpy())))
    assert found.method == found.game.method


def test_rows_are_people_in_any_order_and_may_repeat(found):
    index = torch.tensor([4, 0, 4])
    part = found.rows(index)
    assert isinstance(part, ShapleyAttribution)
    for name in ("x", "baseline", "values", "logit", "baseline_logit"):
        assert torch.equal(getattr(part, name), getattr(found, name)[index])


def test_inputs_of_another_in_the_context_of_the_one(game, rng):
    x, other, b = (torch.from_numpy(rng.normal(size=(6, 3))) for _ in range(3))
    one, another = shapley_attribution(game, x, b), shapley_attribution(game, other, b)
    torch.testing.assert_close(one.with_inputs_of(another), closed_form(other, x, b))
    torch.testing.assert_close(one.with_inputs_of(one), one.values)


def test_a_step_from_the_baseline_in_each_context(found):
    step = torch.tensor([0.5, 1.0, 2.0]).double()
    expected = closed_form(found.baseline + step, found.x, found.baseline)
    torch.testing.assert_close(found.per_deviation(step), expected)


def score_of_a_category(x):
    return np.array([0.3, -1.0, 2.0])[x[:, 0].astype(int)] * x[:, 1]


def test_no_step_is_taken_from_a_category(rng):
    x = torch.tensor([[2.0, 1.5], [0.0, -1.0]]).double()
    baseline = torch.tensor([[1.0, 0.5]]).double().expand_as(x)
    is_category = torch.tensor([True, False])
    found = shapley_attribution(SampledShapley(score_of_a_category), x, baseline, is_category)
    steps = found.per_deviation(torch.tensor([0.7, 2.0]).double())
    # The number moves by 2 before and after the category takes the person's place.
    torch.testing.assert_close(steps, torch.tensor([[0.0, (-1.0 + 2.0)], [0.0, (-1.0 + 0.3)]]).double())


def test_standard_errors_follow_the_people(rng):
    game = SampledShapley(lambda x: x.prod(axis=1), n_permutations=4)
    x, b = (torch.from_numpy(rng.normal(size=(5, 9))) for _ in range(2))
    found = shapley_attribution(game, x, b)
    assert found.standard_error.shape == (5, 9)
    assert torch.equal(found.rows(torch.tensor([3])).standard_error, found.standard_error[[3]])


def test_steps_of_rows_are_found_once_for_all_rows(found):
    asked, deviation = [], torch.ones(3, dtype=torch.float64)
    play = type(found.game).contributions
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(found.game), "contributions", lambda *rows: asked.append(1) or play(*rows))
        parts = [found.rows(torch.tensor(rows)).per_deviation(deviation) for rows in ([0, 1, 2], [3, 4, 5, 0])]
    assert len(asked) == 1
    torch.testing.assert_close(torch.cat(parts)[:6], found.per_deviation(deviation))
    doubled = found.rows(torch.tensor([2])).per_deviation(2 * deviation)
    torch.testing.assert_close(doubled, found.per_deviation(2 * deviation)[2:3])
