"""The number of segments is chosen by a bound on the error, and the bound holds."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

import evenhand as eh
from evenhand.attribution import attribute
from evenhand.models.explaining import ERROR, MOST_SEGMENTS, Explainer, needed_segments
from evenhand.models.gradient import DifferentiableModel


def explained_people(network, x, labels, groups):
    model = DifferentiableModel(network, "network")
    return Explainer.of(model, x, labels, groups), x, labels * 2 + groups


def mean_error(network, explainer, x, cells, n):
    """Of everyone, against the exact integral."""
    starts = explainer.baselines.rows[torch.as_tensor(cells)]
    with torch.no_grad():
        exact = attribute(network, x, starts, method="exact").values
        found = attribute(network, x, starts, n).values
    return float(((found - exact).norm(dim=1) / exact.norm(dim=1)).mean())


def random_people(network_seed, hidden, scale=1.0, d=8, n=2000):
    rng = np.random.default_rng(network_seed)
    x = torch.as_tensor(rng.normal(size=(n, d)))
    torch.manual_seed(network_seed)
    widths = (d, *hidden, 1)
    layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]
    network = nn.Sequential(*layers[:-1]).double()
    with torch.no_grad():
        for layer in network[::2]:
            layer.weight *= scale
            layer.bias += scale  # most units stay on, so that a few segments do
    return network, x, rng.integers(0, 2, n), rng.integers(0, 2, n)


@pytest.mark.parametrize("hidden", [(16,), (32, 16), (64, 32, 16)])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_the_bound_holds_on_random_networks(hidden, seed, scale):
    network, *people = random_people(seed, hidden, scale)
    explainer, x, cells = explained_people(network, *people)
    chosen = needed_segments(explainer, x, cells)
    true = mean_error(network, explainer, x, cells, chosen.n)
    assert true <= chosen.error
    assert chosen.error <= max(3 * true, 1e-12)  # and is not far above
    assert chosen.error <= ERROR or chosen.n == MOST_SEGMENTS
    given = needed_segments(explainer, x, cells, 3)
    assert given.n == 3
    assert mean_error(network, explainer, x, cells, 3) <= given.error


@pytest.mark.parametrize("name", ["german", "taiwan"])
@pytest.mark.parametrize("encoding", ["ordinal", "onehot"])
def test_the_bound_holds_on_trained_networks(name, encoding):
    data = eh.load_dataset(name)
    rows = np.random.default_rng(0).permutation(len(data.X))[:2000]
    X, y, group = data.X.iloc[rows], np.asarray(data.y)[rows], np.asarray(data.group)[rows]
    model = eh.CECClassifier(
        financial_features=data.financial_features,
        cec_weight=0,
        equalized_odds_weight=0,
        encoding=encoding,
        epochs=15,
    ).fit(X, y, sensitive_features=group)
    network, x = model.network_.double(), torch.as_tensor(model.encoder_.transform(X)).double()
    explainer, x, cells = explained_people(network, x, y.astype(np.int64), np.unique(group, return_inverse=True)[1])
    chosen = needed_segments(explainer, x, cells)
    true = mean_error(network, explainer, x, cells, chosen.n)
    assert true <= chosen.error <= 1.5 * true
    # Never further from the integral than eight segments promised: 0.1%, or what eight give.
    assert true <= max(ERROR, mean_error(network, explainer, x, cells, MOST_SEGMENTS))


def test_a_linear_network_needs_the_fewest_segments():
    explainer, x, cells = explained_people(*random_people(0, ()))
    assert needed_segments(explainer, x, cells).n == 2
    assert needed_segments(explainer, x, cells).error < 1e-12


def test_a_module_that_is_not_a_chain_of_layers_keeps_its_steps():
    class Residual(nn.Module):
        def forward(self, z):
            return (z + z.tanh()).sum(-1)

    _, *people = random_people(0, ())
    found = needed_segments(*explained_people(Residual(), *people))
    assert (found.n, found.error) == (MOST_SEGMENTS, None)


def test_an_audit_reports_the_segments_and_their_error():
    network, x, y, group = random_people(0, (32, 16), 1.0, n=400)
    with torch.no_grad():
        network[-1].bias -= network(x).median()
    arguments = {"sensitive_features": group, "financial_features": ["x0", "x1"], "evidence": False}
    found = eh.audit(network, x.numpy(), y, **arguments).to_dict()
    assert found["settings"]["n_steps"] in range(2, 9)
    assert found["data"]["integration_error"] <= ERROR
    finer = eh.audit(network, x.numpy(), y, **arguments, options=eh.AuditOptions(n_steps=16)).to_dict()
    assert finer["settings"]["n_steps"] == 16
    assert finer["data"]["integration_error"] < found["data"]["integration_error"]
