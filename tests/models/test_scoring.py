"""Scores of triples against their definition, one by one; and in blocks of any size."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import GradientBoostingClassifier
from torch import nn

from evenhand.attribution.gradients import integrated_gradients
from evenhand.attribution.shapley import ShapleyAttribution
from evenhand.matching.placebos import placebo_pairs
from evenhand.metrics.cec import cec_scores
from evenhand.models import scoring
from evenhand.models.dispatch import as_audited_model
from evenhand.models.explaining import Explainer, HalvedExplainer
from evenhand.models.gradient import DifferentiableModel
from evenhand.models.scoring import joined, score_triples
from evenhand.models.trees.adapter import TreeGame
from evenhand.models.wrapped import RiskModel


@pytest.fixture(scope="module")
def compared():
    """A network, people among themselves, and the blocks of their triples."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).double()
    rng = np.random.default_rng(0)
    x, labels, groups = torch.as_tensor(rng.normal(size=(60, 4))), rng.integers(0, 2, 60), rng.integers(0, 2, 60)
    explainer = Explainer.of(DifferentiableModel(network, "network"), x, labels, groups)
    halved = HalvedExplainer.of(explainer, x, labels, groups, rng.integers(0, 2, 60))
    triples = placebo_pairs(x[:, :2].numpy(), labels, groups)
    return network, x, labels * 2 + groups, halved, triples


def blocks(compared):
    _, x, cells, halved, triples = compared
    seen = halved.see(x, cells, x, triples.person, triples.other, triples.own)
    return score_triples(halved, seen, x, x, triples, torch.tensor([True, True, False, False]))


def columns(compared):
    return joined(
        (
            part.pair.cec,
            part.gap,
            part.placebo.cec,
            part.placebo_gap,
            part.weight_difference(torch.ones(4)).mT,
            part.stretch,
        )
        for _, part in blocks(compared)
    )


def test_triples_are_scored_as_defined(compared):
    network, x, cells, halved, triples = compared
    pair, gap, placebo, placebo_gap, _, stretch = columns(compared)
    assert len(pair) == len(triples) > 50
    for k in range(0, len(triples), 7):
        me, them, like_me = (x[rows[k]] for rows in (triples.person, triples.other, triples.own))
        is_apart = halved.half != halved.half[triples.own[k]]
        b = x[torch.as_tensor((cells == cells[triples.person[k]]) & is_apart)].mean(0)

        def explained(z, b=b):
            return integrated_gradients(network, z[None], b, n_steps=8)[0]

        def with_finances(z, me=me):
            return torch.cat([z[:2], me[2:]])

        own, moved, moved_control = (explained(z) for z in (me, with_finances(them), with_finances(like_me)))
        assert pair[k].item() == pytest.approx(cec_scores(own, explained(them)).item())
        assert placebo[k].item() == pytest.approx(cec_scores(own, explained(like_me)).item())
        assert gap[k].item() == pytest.approx(cec_scores(own, moved).item())
        assert placebo_gap[k].item() == pytest.approx(cec_scores(own, moved_control).item())
        assert stretch[k].item() == pytest.approx((moved.norm() / moved_control.norm()).log().item())


class WeighsByFinances(nn.Module):
    def forward(self, x):
        return torch.where(x[..., 0] > 0, 2 * x[..., 2] + x[..., 3], x[..., 2] + 2 * x[..., 3])


def test_weights_that_depend_on_finances_alone_are_not_weighing(compared):
    _, x, cells, halved, triples = compared
    model = DifferentiableModel(WeighsByFinances(), "weighs by finances")
    explainer = HalvedExplainer(Explainer(model, halved.explainer.baselines, 8, "midpoint"), halved.half)
    parts = [part for _, part in blocks((None, x, cells, explainer, triples))]
    (reasoning_gap,) = joined((part.reasoning_gap,) for part in parts)
    assert reasoning_gap.abs().max() < 1e-12
    (pair, placebo) = joined((part.pair.cec, part.placebo.cec) for part in parts)
    assert (pair - placebo).abs().max() > 0.1


def test_the_size_of_blocks_changes_nothing(compared, monkeypatch):
    whole = columns(compared)
    monkeypatch.setattr(scoring, "_BLOCK", (7, 7))
    assert len(list(blocks(compared))) > 1
    for one, other in zip(whole, columns(compared), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("turned", "is_pool"), [(False, True), (True, False)])
def test_people_of_trees_seen_in_contexts_of_each_other_are_seen_as_one_by_one(turned, is_pool, monkeypatch):
    rng = np.random.default_rng(0)
    X, labels, groups = rng.normal(size=(50, 4)), rng.integers(0, 2, 50), rng.integers(0, 2, 50)
    trees = GradientBoostingClassifier(n_estimators=8, random_state=0).fit(X, X[:, 0] * X[:, 1] + X[:, 2] > 0)
    model = as_audited_model(trees)
    x = X
    explainer = Explainer.of(RiskModel(model) if turned else model, x, labels, groups)
    halved = HalvedExplainer.of(explainer, x, labels, groups, rng.integers(0, 2, 50))
    triples = placebo_pairs(X[:, :2], labels, groups)
    pool = x if is_pool else x.copy()
    case = (None, x, labels * 2 + groups, halved, triples)
    monkeypatch.setattr(scoring, "_TOGETHER", 50)

    def gaps():
        seen = halved.see(x, case[2], pool, triples.person, triples.other, triples.own)
        parts = list(score_triples(halved, seen, x, pool, triples, np.array([True, True, False, False])))
        assert [part[0].start for part in parts] == [0, 50, 100, 150]
        return joined(
            (
                scores.pair.input_gap,
                scores.placebo.input_gap,
                scores.reasoning_gap,
                scores.weight_difference(np.ones(4)).T,
            )
            for _, scores in parts
        )

    together = gaps()
    monkeypatch.setattr(ShapleyAttribution, "crossed", one_by_one)
    monkeypatch.setattr(TreeGame, "margin", lambda game, x: game.ensemble.margin(x))
    for one, other in zip(together, gaps(), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
    assert together[0].max() > 0.01


def one_by_one(me, contexts, them, inputs):
    return np.concatenate(
        [me.rows(k[None]).with_inputs_of(them.rows(j[None])) for k, j in zip(contexts, inputs, strict=True)]
    )
