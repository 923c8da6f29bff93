"""Tiny models and people shared by the tests."""

import os
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, settings

import evenhand as eh

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


@pytest.fixture(scope="session")
def with_people():
    """A function that gives an audit in memory other pairs, people or attributions than it found."""

    def changed(found, **people):
        return replace(found, source=replace(found.source, **people))

    return changed


@pytest.fixture(scope="session")
def result(with_people):
    """Two groups, a model that weighs them unlike, some numbers and some categories."""
    planted = eh.make_planted_bias(300, strength=1.0, random_state=0)
    people = planted.dataset
    found = eh.audit(
        planted.model,
        people.X,
        people.y,
        sensitive_features=people.group,
        financial_features=people.financial_features,
        by=pd.Series([f"branch {i % 3}" for i in range(len(people.y))], name="branch"),
    )
    table = found.table.copy()
    first = table.columns[0]
    table[first] = pd.Categorical(np.where(table[first] > 0, "own home", "rented"))
    return with_people(found, table=table, reference_table=table)


@pytest.fixture(scope="session")
def without_evidence(result, with_people):
    features = result.features.drop(columns=[c for c in result.features if c.startswith("excess")])
    pairs = result.pairs.assign(placebo_cec=np.nan, q_value=np.nan)
    return with_people(replace(result, evidence=None, proxies=None, features=features), pairs=pairs)
