"""Baselines of cells, and what they are without one person."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

from evenhand.attribution import label_group_baselines
from evenhand.auditing.people import Explainer, People
from evenhand.inputs.validation import as_groups
from evenhand.models.dispatch import as_audited_model


@pytest.fixture
def pool():
    """People of four cells, a fifth of whose values is missing, and trees that take that."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    X[rng.random(X.shape) < 0.2] = np.nan
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    labels = rng.integers(0, 2, 60)
    groups = as_groups(rng.choice(["f", "m"], 60), 60)
    model = as_audited_model(HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=3).fit(table, labels))
    return model, People(table, model.encode(table), labels, groups)


def test_what_is_known_is_counted_by_cell(pool):
    model, people = pool
    explainer = Explainer.of(model, people, 8, "segments")
    for cell in range(4):
        known = people.table[people.cells == cell].notna().sum().tolist()
        assert explainer.n_known[cell].tolist() == known
        assert explainer.cell_sizes[cell] == (people.cells == cell).sum()


def test_leaving_one_out_gives_the_means_of_all_others(pool):
    """Brute force: the baselines of a pool without that person."""
    model, people = pool
    explainer = Explainer.of(model, people, 8, "segments")
    cell = torch.as_tensor(people.cells)
    own = explainer.explain(people.x, people.cells).rows(torch.arange(len(people)))
    apart = own.leaving_out(own, explainer.n_known[cell])
    for k in range(len(people)):
        others = np.arange(len(people)) != k
        means = label_group_baselines(
            people.x.numpy()[others], people.labels[others], people.groups.codes[others], skip_missing=True
        )
        np.testing.assert_allclose(apart.baseline[k], means.reshape(4, 3)[people.cells[k]], rtol=1e-6)
