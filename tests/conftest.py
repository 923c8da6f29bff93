"""Tiny models and people shared by the tests."""

import os

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), max_examples=150, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.fixture(autouse=True)
def _no_user_cache(tmp_path_factory, monkeypatch):
    """Tests never read or write the user's own cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(autouse=True)
def _same_draws_in_every_run():
    torch.manual_seed(0)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def people():
    """Forty people, two groups, both labels in each group, five features."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(40, 5))
    y = np.tile([0, 1], 20)
    group = np.repeat(["a", "b"], 20)
    return X, y, group
