"""Scores of triples against their definition, one by one; and in blocks of any size."""

import numpy as np
import pytest
import torch
from torch import nn

from evenhand.attribution import integrated_gradients
from evenhand.matching.placebos import placebo_pairs
from evenhand.metrics.cec import cec_scores
from evenhand.models import scoring
from evenhand.models.explaining import Explainer, Seen
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
    triples = placebo_pairs(x[:, :2].numpy(), labels, groups)
    return network, x, labels * 2 + groups, explainer, triples


def blocks(compared):
    _, x, cells, explainer, triples = compared
    own, seen_from = explainer.explain(x, cells), cells[triples.person]
    matches = explainer.see(x, triples.other, seen_from)
    placebos = Seen(own, torch.as_tensor(triples.own))
    is_financial = torch.tensor([True, True, False, False])
    return score_triples(explainer, own, x, cells, x, triples, matches, placebos, is_financial)


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
    network, x, cells, _, triples = compared
    pair, gap, placebo, placebo_gap, _, stretch = columns(compared)
    assert len(pair) == len(triples) > 50
    for k in range(0, len(triples), 7):
        me, them, like_me = (x[rows[k]] for rows in (triples.person, triples.other, triples.own))
        cell = cells[triples.person[k]]
        b = x[cells == cell].mean(0)
        n = (cells == cell).sum()

        def explained(z, start=b, mean=b):
            # Gradients are of the path from the cell's mean; only the offset is from the mean without the placebo.
            values = integrated_gradients(network, z[None], mean, n_steps=8)[0]
            return (z - start) * (values / (z - mean))

        def with_finances(z, me=me):
            return torch.cat([z[:2], me[2:]])

        without = (n * b - like_me) / (n - 1)
        apart = explained(me, without)
        assert pair[k].item() == pytest.approx(cec_scores(apart, explained(them, without)).item())
        moved = explained(with_finances(them), without)
        assert gap[k].item() == pytest.approx(cec_scores(apart, moved).item())
        assert placebo[k].item() == pytest.approx(cec_scores(apart, explained(like_me, without)).item())
        moved_control = explained(with_finances(like_me), without)
        assert placebo_gap[k].item() == pytest.approx(cec_scores(apart, moved_control).item())
        assert stretch[k].item() == pytest.approx((moved.norm() / moved_control.norm()).log().item())


def test_the_size_of_blocks_changes_nothing(compared, monkeypatch):
    whole = columns(compared)
    monkeypatch.setattr(scoring, "_BLOCK", {"cpu": 7})
    assert len(list(blocks(compared))) > 1
    for one, other in zip(whole, columns(compared), strict=True):
        torch.testing.assert_close(one, other)
