"""Scores of triples against their definition, one by one; and in blocks of any size."""

import numpy as np
import pytest
import torch
from torch import nn

from evenhand.attribution import integrated_gradients
from evenhand.matching.placebos import placebo_pairs
from evenhand.metrics.cec import cec_scores
from evenhand.models import scoring
from evenhand.models.explaining import Explainer, HalvedExplainer
from evenhand.models.gradient import DifferentiableModel
from evenhand.models.scoring import joined, score_triples


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


def test_the_size_of_blocks_changes_nothing(compared, monkeypatch):
    whole = columns(compared)
    monkeypatch.setattr(scoring, "_BLOCK", {"cpu": 7})
    assert len(list(blocks(compared))) > 1
    for one, other in zip(whole, columns(compared), strict=True):
        torch.testing.assert_close(one, other)
