"""People and decisions for trees to be grown on, and what contributions of a model are checked against."""

import warnings
from math import comb

import numpy as np
import pytest

from evenhand.models.trees import contributions, read_trees


@pytest.fixture(scope="session")
def applicants():
    """Six numeric features of 400 people, one of them with few values, and a decision that is no sum of parts."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(400, 6))
    X[:, 3] = rng.integers(0, 4, 400)
    y = (X[:, 0] + X[:, 1] * X[:, 2] + (X[:, 3] == 2) + 0.3 * rng.normal(size=400) > 0.4).astype(int)
    return X, y


@pytest.fixture(scope="session")
def applicants_with_gaps(applicants):
    """The same people, a tenth of their values missing and a tenth zero."""
    X, y = applicants
    rng = np.random.default_rng(4)
    X = np.where(rng.random(X.shape) < 0.1, 0.0, X)
    return np.where(rng.random(X.shape) < 0.1, np.nan, X), y


@pytest.fixture(scope="session")
def coded(applicants_with_gaps):
    """The same people with two columns of category codes in front, on which the decision turns."""
    X, _ = applicants_with_gaps
    rng = np.random.default_rng(5)
    codes = np.column_stack([rng.integers(0, 12, len(X)), rng.integers(0, 5, len(X))]).astype(float)
    y = (codes[:, 0] % 3 == 0) ^ (codes[:, 1] == 1) ^ (np.nan_to_num(X[:, 0]) > 1)
    return np.column_stack([X[:, 0], codes[:, 0], X[:, 1], codes[:, 1]]), y.astype(int)


def equal_to_shap(model, X, atol, scale=1.0):
    """Ours against shap's interventional TreeSHAP with the same background row, for three such rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # shap's import meets a deprecation of matplotlib
        import shap
    ensemble = read_trees(model)
    for b in X[:3]:
        explainer = shap.TreeExplainer(model, b[None], feature_perturbation="interventional", model_output="raw")
        theirs = np.asarray(explainer.shap_values(X, check_additivity=False))
        theirs = theirs[..., 1] if theirs.ndim == 3 else theirs  # the second of two classes
        np.testing.assert_allclose(contributions(ensemble, X, X, b), scale * theirs, atol=atol)


def equal_to_all_coalitions(model, margin, X, atol):
    """Ours against the definition, with the library's own margin evaluated on every mix of two rows."""
    n, d = X.shape
    x, b = X, np.roll(X, 1, axis=0)
    members = (np.arange(2**d)[:, None] >> np.arange(d)) & 1
    mixed = np.where(members[:, None, :] == 1, x, b)
    worth = margin(mixed.reshape(-1, d)).reshape(2**d, n).astype(float)
    expected = np.zeros((n, d))
    for j in range(d):
        without = np.flatnonzero(members[:, j] == 0)
        weight = 1 / (d * np.array([comb(d - 1, size) for size in members[without].sum(axis=1)]))
        expected[:, j] = weight @ (worth[without | (1 << j)] - worth[without])
    np.testing.assert_allclose(contributions(read_trees(model), x, x, b), expected, atol=atol)


@pytest.fixture(scope="session")
def assert_equal_to_shap():
    return equal_to_shap


@pytest.fixture(scope="session")
def assert_equal_to_all_coalitions():
    return equal_to_all_coalitions
