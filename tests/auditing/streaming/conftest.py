"""People in files, models to audit, and what an audit in memory finds about them."""

import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

import evenhand as eh
from evenhand.auditing.evidence import Influences
from evenhand.auditing.streaming import audit_stream

FINANCIAL = ["f0", "f1", "f2"]
FEATURES = [*FINANCIAL, "z0", "z1", "z2"]


def _applicants(n=900, groups=("a", "b"), shares=None, seed=0):
    """Tie-heavy finances, a label that follows them, groups, and two columns to split by."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, len(FEATURES)))
    X[:, :2] = np.round(X[:, :2] * 3) / 3
    table = pd.DataFrame(X, columns=FEATURES)
    table["y"] = (X[:, :3].sum(axis=1) + rng.normal(size=n) > 0).astype(int)
    table["sex"] = rng.choice(groups, size=n, p=shares)
    table["state"] = rng.choice(["NY", "TX", None], size=n, p=[0.5, 0.4, 0.1])
    table["branch"] = rng.integers(0, 3, n)
    return table


def _network(seed=0, hidden=12):
    """A network in double precision: nothing depends on how its products are cut into blocks."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(len(FEATURES), hidden), nn.ReLU(), nn.Linear(hidden, 1)).double().eval()
    with torch.no_grad():
        model[-1].weight *= 3
    return model


def _differences(first, second, rel=1e-9, path=""):
    """Where two nests of plain data differ."""
    if isinstance(first, dict):
        if not isinstance(second, dict) or list(map(str, first)) != list(map(str, second)):
            return [(path, first, second)]
        return [d for key in first for d in _differences(first[key], second[key], rel, f"{path}.{key}")]
    if isinstance(first, (list, tuple)):
        if not isinstance(second, (list, tuple)) or len(first) != len(second):
            return [(path, first, second)]
        pairs = enumerate(zip(first, second, strict=True))
        return [d for k, (a, b) in pairs for d in _differences(a, b, rel, f"{path}[{k}]")]
    if isinstance(first, float) and isinstance(second, (int, float)):
        same = (math.isnan(first) and math.isnan(second)) or math.isclose(first, second, rel_tol=rel, abs_tol=rel / 100)
        return [] if same else [(path, first, second)]
    return [] if first == second else [(path, first, second)]


def _in_memory(model, table, reference=None, by=(), **settings):
    three = None if reference is None else (reference[FEATURES], reference["y"], reference["sex"])
    return eh.audit(
        model,
        table[FEATURES],
        table["y"],
        sensitive_features=table["sex"],
        financial_features=FINANCIAL,
        reference=three,
        by=table[list(by)] if by else None,
        **settings,
    )


def _streamed(model, table, folder, row_group_size=100, **settings):
    path = folder / "people.parquet"
    pq.write_table(pa.Table.from_pandas(table, preserve_index=False), path, row_group_size=row_group_size)
    arguments = {"label": "y", "group": "sex", "financial_features": FINANCIAL, "features": FEATURES}
    return audit_stream(model, path, out=folder / "audit", **arguments | {"batch_rows": 130} | settings)


def _assert_same(stream, memory, rel=1e-9):
    mine, theirs = stream.to_dict(), memory.to_dict()
    mine.pop("stream")
    for data in (mine["data"], theirs["data"]):  # a file and a table in memory have names and hashes of their own
        assert data.pop("hashes")
        data.pop("files")
    own, other = (Influences.from_dict(summary.pop("influences", {})).columns for summary in (mine, theirs))
    assert own.keys() == other.keys()
    for name, values in own.items():  # half-precision numbers of about 1, which the last bit may round elsewhere
        np.testing.assert_allclose(values, other[name], atol=1e-3, err_msg=name)
    assert _differences(mine, theirs, rel) == []
    pairs = pd.read_parquet(stream.pairs_path)
    assert list(pairs.columns) == list(memory.pairs.columns)
    for column in pairs:
        first, second = pairs[column], memory.pairs[column]
        if first.dtype.kind == "f":
            np.testing.assert_allclose(first, second, rtol=rel, atol=rel / 100, err_msg=column)
        else:
            assert first.isna().equals(second.isna()), column
            assert (first.dropna().astype(str) == second.dropna().astype(str)).all(), column


@pytest.fixture
def people():
    return _applicants()


@pytest.fixture
def model():
    return _network()


@pytest.fixture(name="applicants", scope="session")
def _applicants_fixture():
    return _applicants


@pytest.fixture(name="network", scope="session")
def _network_fixture():
    return _network


@pytest.fixture(name="differences", scope="session")
def _differences_fixture():
    return _differences


@pytest.fixture(name="in_memory", scope="session")
def _in_memory_fixture():
    return _in_memory


@pytest.fixture(name="streamed", scope="session")
def _streamed_fixture():
    return _streamed


@pytest.fixture(name="assert_same", scope="session")
def _assert_same_fixture():
    return _assert_same
