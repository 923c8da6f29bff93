"""Baselines of cells, explanations from them, and scores of pairs; of one model and of a stack."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

from evenhand.models.dispatch import as_audited_model
from evenhand.models.explaining import Explainer, HalvedExplainer
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


def test_people_are_counted_by_cell(pool):
    model, x, labels, groups = pool
    baselines = Explainer.of(model, x, labels, groups).baselines
    assert baselines.sizes.tolist() == [int((labels * 2 + groups == cell).sum()) for cell in range(4)]


def test_triples_are_explained_from_the_half_of_the_cell_without_the_placebo(pool):
    """Brute force: the mean of those of the person's cell who are in the other half than the placebo."""
    model, x, labels, groups = pool
    cells = labels * 2 + groups
    half = np.random.default_rng(1).integers(0, 2, len(x))
    halved = HalvedExplainer.of(Explainer.of(model, x, labels, groups), x, labels, groups, half)
    person, match = np.arange(20), np.arange(20, 40)
    placebo = np.array([np.flatnonzero(cells == cells[i])[i % 3] for i in person])
    seen = halved.see(x, cells, x, person, match, placebo)
    for k, i in enumerate(person):
        members = x.numpy()[(cells == cells[i]) & (half != half[placebo[k]])]
        for who, row in ((seen.person, i), (seen.match, match[k]), (seen.placebo, placebo[k])):
            found = who[slice(k, k + 1)]
            np.testing.assert_allclose(found.baseline[0], np.nanmean(members, axis=0), rtol=1e-6)
            np.testing.assert_allclose(found.x[0], x[row], equal_nan=True)


@pytest.mark.parametrize("is_pool", [True, False])
def test_whoever_is_in_several_triples_is_explained_once_from_each_half(pool, is_pool, monkeypatch):
    model, x, labels, groups = pool
    cells = labels * 2 + groups
    half = np.random.default_rng(1).integers(0, 2, len(x))
    halved = HalvedExplainer.of(Explainer.of(model, x, labels, groups), x, labels, groups, half)
    people = x if is_pool else x.clone()
    rng = np.random.default_rng(2)
    person, match = np.repeat(np.arange(20), 4), rng.integers(0, len(x), 80)
    placebo = np.array([rng.choice(np.flatnonzero(cells == cells[i])) for i in person])
    asked = []
    explain = Explainer.explain
    monkeypatch.setattr(Explainer, "explain", lambda self, z, c: asked.append(len(z)) or explain(self, z, c))
    seen = halved.see(people, cells, x, person, match, placebo)
    halves = halved.cells(cells[person], placebo).tolist()
    own, others = ({*zip(rows, halves, strict=True)} for rows in (person, match))
    others |= {*zip(placebo, halves, strict=True)}
    assert sum(asked) == (len(own | others) if is_pool else len(own) + len(others))
    alone = explain(halved.explainer, x[match], halves)
    assert torch.equal(seen.match[slice(None)].values, alone.values.double())


def test_a_half_with_no_one_has_no_baseline(pool):
    model, x, labels, groups = pool
    halved = HalvedExplainer.of(Explainer.of(model, x, labels, groups), x, labels, groups, np.zeros(len(x), dtype=int))
    assert not halved.has_baseline(labels * 2 + groups, np.arange(len(x))).any()


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
        for name in ("cec", "input_gap", "reasoning_gap", "contributions", "is_negligible"):
            torch.testing.assert_close(getattr(together, name)[k], getattr(alone, name), atol=1e-6, rtol=1e-5)
