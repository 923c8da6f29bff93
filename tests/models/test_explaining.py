"""Baselines of cells, explanations from them, and scores of pairs; of one model and of a stack."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

from evenhand.attribution import label_group_baselines
from evenhand.models.dispatch import as_audited_model
from evenhand.models.explaining import Explainer
from evenhand.models.gradient import DifferentiableModel
from evenhand.models.scoring import score_pairs
from evenhand.training.network import StackedNetwork


@pytest.fixture
def pool():
    """People of four cells, a fifth of whose values is missing, and trees that take that."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    X[rng.random(X.shape) < 0.2] = np.nan
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    labels = rng.integers(0, 2, 60)
    groups = rng.integers(0, 2, 60)
    model = as_audited_model(HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=3).fit(table, labels))
    return model, model.encode(table), labels, groups


def test_what_is_known_is_counted_by_cell(pool):
    model, x, labels, groups = pool
    baselines = Explainer.of(model, x, labels, groups).baselines
    for cell in range(4):
        members = x[labels * 2 + groups == cell]
        assert baselines.n_known[cell].tolist() == (~members.isnan()).sum(0).tolist()
        assert baselines.sizes[cell] == len(members)


def test_leaving_one_out_gives_the_means_of_all_others(pool):
    """Brute force: the baselines of a pool without that person."""
    model, x, labels, groups = pool
    explainer, cells = Explainer.of(model, x, labels, groups), labels * 2 + groups
    own = explainer.explain(x, cells).rows(torch.arange(len(x)))
    apart = own.leaving_out(own, explainer.baselines.n_known[torch.as_tensor(cells)])
    for k in range(len(x)):
        others = np.arange(len(x)) != k
        means = label_group_baselines(x.numpy()[others], labels[others], groups[others], skip_missing=True)
        np.testing.assert_allclose(apart.baseline[k], means.reshape(4, 3)[cells[k]], rtol=1e-6)


def test_a_row_is_explained_once_from_each_cell(pool):
    model, x, labels, groups = pool
    explainer = Explainer.of(model, x, labels, groups)
    rows = np.array([3, 5, 3, 3])
    cells = labels[rows] * 2 + np.array([0, 0, 1, 0])
    seen = explainer.see(x, rows, cells)
    assert len(seen.attribution.values) == 3
    alone = explainer.explain(x[rows], cells)
    assert torch.equal(seen[slice(None)].values, alone.values.double())
    assert torch.equal(explainer.knowing(x, labels).see(x, rows, cells)[slice(None)].values, alone.values.double())
    first, second = seen.split([1, 3])
    assert torch.equal(torch.cat([first.logit, second.logit]), alone.logit)


def test_an_empty_cell_has_no_baseline(pool):
    model, x, labels, groups = pool
    kept = torch.as_tensor(labels + groups < 2)
    explainer = Explainer.of(model, x[kept], labels[kept], groups[kept])
    assert explainer.has_baseline(np.arange(4)).tolist() == [True, True, True, False]
    assert explainer.baselines.rows[3].isnan().all()
    assert explainer.explain(x, np.full(len(x), 3)).values.isfinite().all()


def test_a_stack_is_explained_as_its_members_are():
    stack = StackedNetwork(3, hidden=(8, 4), seeds=(0, 1))
    nets = DifferentiableModel(stack.layout.networks(stack.flat.detach()), "stack")
    rng = np.random.default_rng(0)
    x, labels = torch.as_tensor(rng.normal(size=(40, 3)), dtype=torch.float32), rng.integers(0, 2, 40)
    groups, person, rows = rng.integers(0, 2, 40), np.arange(40), rng.permutation(40)
    cells = labels * 2 + groups
    explainer = Explainer.of(nets, x, labels, groups)
    ((_, together),) = score_pairs(explainer, explainer.explain(x, cells), person, explainer.see(x, rows, cells))
    for k in range(2):
        one = replace(explainer, model=DifferentiableModel(stack.member(k), "member"))
        ((_, alone),) = score_pairs(one, one.explain(x, cells), person, one.see(x, rows, cells))
        for name in ("cec", "input_gap", "reasoning_gap", "contributions", "shared_reasons", "is_negligible"):
            torch.testing.assert_close(getattr(together, name)[k], getattr(alone, name), atol=1e-6, rtol=1e-5)
