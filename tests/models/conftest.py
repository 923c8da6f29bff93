"""Tables of applicants, and a model of every kind fitted on them."""

import base64
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
from math import comb

import numpy as np
import pandas as pd
import pytest
import statsmodels

from evenhand.system.processes import _answered as ANSWERED  # noqa: N812


@pytest.fixture(params=["patsy", "formulaic"])
def formula_engine(request, monkeypatch):
    """What reads the formulas of statsmodels; before 0.15, patsy alone does."""
    if importlib.util.find_spec("statsmodels.formula.options") is not None:
        monkeypatch.setattr("statsmodels.formula.options.formula_engine", request.param)
    elif request.param != "patsy":
        pytest.skip(f"statsmodels {statsmodels.__version__} knows patsy only")


@pytest.fixture(scope="session")
def numbers():
    """Number columns only: 240 people of two groups, a label with an interaction in it."""
    rng = np.random.default_rng(5)
    X = pd.DataFrame(rng.normal(size=(240, 4)), columns=["income", "debt", "years", "assets"])
    logit = X["income"] - X["debt"] + 0.8 * X["years"] * X["assets"]
    y = (rng.random(240) < 1 / (1 + np.exp(-2 * logit))).astype(int)
    return X, y.to_numpy(), rng.choice(["a", "b"], 240)


@pytest.fixture(scope="session")
def mixed():
    """Numbers with holes and categories."""
    rng = np.random.default_rng(6)
    X = pd.DataFrame(
        {
            "income": rng.normal(size=240),
            "home": rng.choice(["own", "rent", "free"], 240),
            "debt": np.where(rng.random(240) < 0.1, np.nan, rng.normal(size=240)),
            "job": rng.choice(["clerk", "cook"], 240),
        }
    )
    logit = X["income"] + (X["home"] == "own") - X["debt"].fillna(1.0)
    y = (rng.random(240) < 1 / (1 + np.exp(-logit))).astype(int)
    return X, y.to_numpy(), rng.choice(["a", "b"], 240)


def applicants_with_categories(strength, n=1000, seed=7):
    """People of two groups who mostly live in different areas, decided on by a rule that may look at the area.

    With `strength` the weight of the income depends on the area, which nine in ten of a group share.
    """
    rng = np.random.default_rng(seed)
    group = rng.choice(["a", "b"], n)
    usual = np.where(group == "a", "north", "south")
    X = pd.DataFrame(
        {
            "income now": rng.normal(size=n),
            "home": rng.choice(["own", "rent", "free"], n, p=[0.5, 0.3, 0.2]),
            "debt": rng.normal(size=n),
            "area": np.where(rng.random(n) < 0.9, usual, rng.choice(["north", "south", "east"], n)),
        }
    )
    weight = 1 + strength * np.where(X["area"] == "south", -1.0, 1.0)
    logit = 2 * (weight * X["income now"] - X["debt"] + (X["home"] == "own") - 0.5)
    return X, (rng.random(n) < 1 / (1 + np.exp(-logit))).astype(int).to_numpy(), group


@pytest.fixture(scope="session")
def with_categories():
    """Makes people whose decision rule may depend on a category."""
    return applicants_with_categories


def shapley_of_all_coalitions(margin, people, baseline):
    """Shapley values by their definition: `margin` is asked about every mixture of the columns of two tables."""
    names = list(people.columns)
    d = len(names)
    worth = []
    for coalition in range(2**d):
        taken = [names[j] for j in range(d) if coalition >> j & 1]
        worth.append(np.asarray(margin(baseline.assign(**{name: people[name] for name in taken}))))
    found = np.zeros((len(people), d))
    for j in range(d):
        for coalition in range(2**d):
            if not coalition >> j & 1:
                weight = 1 / (d * comb(d - 1, coalition.bit_count()))
                found[:, j] += weight * (worth[coalition | 1 << j] - worth[coalition])
    return found


@pytest.fixture(scope="session")
def all_coalitions():
    return shapley_of_all_coalitions


def mean_people(X, y, group, rows):
    """The cell's mean numbers and most common categories for each of the rows, by pandas."""
    cells = [X[(y == y[i]) & (group == group[i])] for i in rows]
    columns = {
        name: [
            cell[name].mean() if pd.api.types.is_numeric_dtype(X[name]) else cell[name].mode().iloc[0] for cell in cells
        ]
        for name in X.columns
    }
    return pd.DataFrame(columns).astype({c: t for c, t in X.dtypes.items() if not pd.api.types.is_numeric_dtype(t)})


@pytest.fixture(scope="session")
def baselines_of():
    return mean_people


# Most of the time of a process that opens a file goes into imports. Here they are made once, and each file is opened by
# a copy of the process, which runs the same code under the same limits.
COPYING = """
import base64, contextlib, importlib, os, signal, sys
from evenhand.system import processes
for name in sys.argv[1:]:
    with contextlib.suppress(Exception):
        importlib.import_module(name)
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what libraries print is no answer
print("ready", file=answers, flush=True)
for line in sys.stdin:
    seconds, request = line.split()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(int(float(seconds)))
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(processes.answer(base64.b64decode(request)))
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = base64.b64encode(pipe.read()).decode()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), answer, file=answers, flush=True)
"""
# torch, which the process that opens other files does without, takes much of the memory that it may take.
IMPORTS = {
    "with torch": ("evenhand.models.onnx", "evenhand.models.pmml", "onnx", "onnxruntime", "sklearn_pmml_model"),
    "other": ("catboost", "lightgbm", "pandas", "skops.io", "xgboost", "evenhand.models.files.skops"),
}


@pytest.fixture(scope="session")
def copied_processes():
    """Runs a command that opens a file as a copy of a process with its imports made."""
    servers, one_at_a_time = {}, threading.Lock()

    def run(request, seconds):
        kind = "with torch" if json.loads(request)[3] in ("onnx", "pmml") else "other"
        with one_at_a_time:
            if kind not in servers:
                pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
                servers[kind] = subprocess.Popen([sys.executable, "-c", COPYING, *IMPORTS[kind]], text=True, **pipes)
                assert servers[kind].stdout.readline() == "ready\n"
            server = servers[kind]
            server.stdin.write(f"{seconds} {base64.b64encode(request).decode()}\n")
            server.stdin.flush()
            code, answer = server.stdout.readline().removesuffix("\n").split(" ")
        return None if int(code) == -signal.SIGALRM else int(code), base64.b64decode(answer)

    yield run
    for server in servers.values():
        server.communicate()


@pytest.fixture(autouse=True)
def processes(copied_processes, monkeypatch):
    if hasattr(os, "fork"):
        monkeypatch.setattr("evenhand.system.processes._answered", copied_processes)


@pytest.fixture
def own_processes(processes, monkeypatch):
    """Every file is opened in a process of its own."""
    monkeypatch.setattr("evenhand.system.processes._answered", ANSWERED)
