import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from evenhand.attribution.explanation import Attribution
from evenhand.exceptions import InvalidInputError
from evenhand.metrics.cec import cec_scores, feature_contributions, squared_cec
from evenhand.models.scoring import score_explained_pairs

finite = st.floats(-1e6, 1e6, allow_subnormal=False)
pairs_of_vectors = array_shapes(min_dims=2, max_dims=2, max_side=6).flatmap(
    lambda shape: st.tuples(arrays(np.float64, shape, elements=finite), arrays(np.float64, shape, elements=finite))
)


def definition_4(g, h):
    """The paper's formula, one pair at a time."""
    g = g / (np.linalg.norm(g) + 1e-8)
    h = h / (np.linalg.norm(h) + 1e-8)
    return np.linalg.norm(g - h) / 2


def scored(offset, gradients, match_offset, match_gradients, join=None):
    """Scores of pairs from the factors of their integrated gradients."""
    nothing = torch.zeros(len(offset))
    me, them = (
        Attribution(weights, steps, nothing, nothing, "exact")
        for weights, steps in ((gradients, offset), (match_gradients, match_offset))
    )
    return score_explained_pairs(me, them, join)


@given(pairs_of_vectors)
def test_scores_follow_the_definition_and_stay_in_range(vectors):
    g, h = vectors
    scores = cec_scores(g, h)
    assert ((scores >= 0) & (scores <= 1)).all()
    np.testing.assert_allclose(scores, [definition_4(a, b) for a, b in zip(g, h, strict=True)], atol=1e-7)


@given(pairs_of_vectors)
def test_a_person_paired_with_themselves_scores_zero(vectors):
    assert (cec_scores(vectors[0], vectors[0]) == 0).all()


@given(pairs_of_vectors)
def test_swapping_the_two_changes_nothing(vectors):
    np.testing.assert_array_equal(cec_scores(*vectors), cec_scores(*vectors[::-1]))


@given(pairs_of_vectors, st.floats(0.5, 1e3))
def test_the_size_of_a_model_changes_nothing(vectors, factor):
    g, h = vectors
    long_enough = (np.linalg.norm(g, axis=1) > 1e-2) & (np.linalg.norm(h, axis=1) > 1e-2)
    np.testing.assert_allclose(
        cec_scores(factor * g, factor * h)[long_enough], cec_scores(g, h)[long_enough], atol=2e-5
    )


@given(pairs_of_vectors)
def test_contributions_sum_to_the_score(vectors):
    g, h = (torch.from_numpy(v) for v in vectors)
    parts = feature_contributions(g, h)
    assert (parts >= 0).all()
    np.testing.assert_allclose(parts.sum(-1), cec_scores(*vectors), atol=1e-7)


def test_opposed_orthogonal_parallel_and_zero():
    g = [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 0.0]]
    h = [[-3.0, 0.0], [0.0, 2.0], [7.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    np.testing.assert_allclose(cec_scores(g, h), [1, np.sqrt(0.5), 0, 0.5, 0], atol=1e-7)


def test_tiny_opposed_vectors_are_damped_by_epsilon():
    # 1e-9 / (1e-9 + 1e-8) is 1/11 each way
    assert cec_scores([[1e-9]], [[-1e-9]])[0] == pytest.approx(1 / 11)


def test_the_normalized_score_is_not_free_of_the_baseline():
    def score(b):
        x, match = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
        return cec_scores(x - b, match - b)[0]

    assert score(np.zeros(2)) == pytest.approx(0.7071, abs=1e-4)
    assert score(np.full(2, -10.0)) == pytest.approx(0.0476, abs=1e-3)


def test_the_square_has_a_finite_gradient_at_zero_and_at_equality():
    g = torch.zeros(3, 4, dtype=torch.float64, requires_grad=True)
    h = torch.ones(3, 4, dtype=torch.float64, requires_grad=True)
    (squared_cec(g, h).sum() + squared_cec(h, h.detach()).sum()).backward()
    assert torch.isfinite(g.grad).all()
    assert torch.isfinite(h.grad).all()


def test_the_square_passes_gradcheck():
    torch.manual_seed(0)
    g, h = torch.randn(2, 3, 4, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(squared_cec, (g, h))


def test_metric_and_square_agree():
    g, h = torch.randn(2, 5, 4, dtype=torch.float64)
    torch.testing.assert_close(cec_scores(g, h) ** 2, squared_cec(g, h))


def test_a_linear_model_has_no_reasoning_gap():
    torch.manual_seed(1)
    offset, match_offset = torch.randn(2, 50, 6, dtype=torch.float64)
    weights = torch.randn(6, dtype=torch.float64).expand(50, 6)
    scores = scored(offset, weights, match_offset, weights)
    assert (scores.reasoning_gap == 0).all()
    torch.testing.assert_close(scores.input_gap, scores.cec)


def test_equal_inputs_have_no_input_gap():
    torch.manual_seed(1)
    offset = torch.randn(50, 6, dtype=torch.float64)
    first, second = torch.randn(2, 50, 6, dtype=torch.float64)
    scores = scored(offset, first, offset, second)
    assert (scores.input_gap == 0).all()
    torch.testing.assert_close(scores.reasoning_gap, scores.cec)


def test_gaps_follow_their_definition_one_pair_at_a_time():
    generator = np.random.default_rng(0)
    u, g, v, h = generator.normal(size=(4, 20, 5))
    scores = scored(*(torch.from_numpy(a) for a in (u, g, v, h)))
    for i in range(20):
        assert scores.input_gap[i].item() == pytest.approx(definition_4(u[i] * g[i], v[i] * g[i]))
        expected = (definition_4(v[i] * g[i], v[i] * h[i]) + definition_4(u[i] * g[i], u[i] * h[i])) / 2
        assert scores.reasoning_gap[i].item() == pytest.approx(expected)


def test_joined_columns_are_summed_before_they_are_scored():
    # Two encoded columns of one feature that cancel leave nothing of it.
    join = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    offset = torch.tensor([[1.0, 1.0, 1.0]], dtype=torch.float64)
    first = torch.tensor([[2.0, -2.0, 1.0]], dtype=torch.float64)
    second = torch.tensor([[-5.0, 5.0, 3.0]], dtype=torch.float64)
    assert scored(offset, first, offset, second, join).cec.item() == pytest.approx(0, abs=1e-7)
    assert scored(offset, first, offset, second).cec.item() > 0.5


def test_pairs_without_a_direction_are_flagged():
    one = torch.ones(2, 3, dtype=torch.float64)
    scores = scored(one, one, torch.tensor([[1.0], [1e-7]], dtype=torch.float64) * one, one)
    assert scores.is_negligible.tolist() == [False, True]


def test_shapes_that_differ_are_refused():
    with pytest.raises(InvalidInputError, match=r"same shape, got \(1, 2\) and \(2, 2\)"):
        cec_scores([[1.0, 2.0]], [[1.0, 2.0], [3.0, 4.0]])
