"""A Dask cluster whose worker answers with objects instead of data: none of them is unpickled here."""

import os
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.exceptions import StreamError

pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning"),
]

CLUSTER = """
import os, pickle, sys, time
import distributed, numpy as np
from pathlib import Path
from evenhand.auditing.streaming.engines import dask

folder = Path(sys.argv[1])

class Bomb(Exception):
    def __reduce__(self):
        return os.system, (f"touch '{folder}/mark-'$PPID",)  # of the process that unpickles

module, name = dask, "_answer" if hasattr(dask, "_answer") else "on_worker"  # in 0.2
honest = getattr(module, name)

def hostile(function, *given):
    how = (folder / "how").read_text()
    if how == "error":
        raise Bomb
    if how == "array":
        return np.array([Bomb()], dtype=object)
    if how == "files":
        return {"batches/000000.npz": Bomb()}
    if how == "warning":
        distributed.get_worker().log_event("warn", {"message": pickle.dumps(Bomb()), "category": pickle.dumps(Bomb())})
        time.sleep(1)
    return Bomb() if how == "object" else honest(function, *given)

hostile.__module__, hostile.__qualname__ = module.__name__, name
setattr(module, name, hostile)
quiet = {"dashboard_address": None, "protocol": "tcp://"}
cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, **quiet)
print(cluster.scheduler_address, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    words = [sys.executable, "-c", CLUSTER, str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(words, text=True, **pipes, env=os.environ | {"OMP_NUM_THREADS": "1"}) as running:
        yield running.stdout.readline().strip(), folder
        running.kill()


@pytest.fixture
def audit(cluster, tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"income": rng.normal(size=90), "debt": rng.normal(size=90), "sex": list("fm") * 45})
    table["paid"] = (table["income"] + rng.normal(size=90) > 0).astype(int)
    model = LogisticRegression().fit(table[["income", "debt"]], table["paid"])
    table.to_parquet(tmp_path / "people.parquet")
    address, folder = cluster

    def run(how):
        (folder / "how").write_text(how)
        roles = {"label": "paid", "group": "sex", "financial_features": ["income", "debt"], "evidence": False}
        return eh.audit_stream(
            model, tmp_path / "people.parquet", out=tmp_path / "out", engine="dask", scheduler=address, **roles
        )

    yield run
    time.sleep(0.2)
    assert not (folder / f"mark-{os.getpid()}").exists()


@pytest.mark.parametrize("how", ["object", "error", "array", "files", "warning"])
def test_an_answer_that_is_no_data_is_refused(audit, how, tmp_path):
    with pytest.raises(StreamError, match=r"answered with something other than data|A Dask worker failed") as told:
        audit(how)
    assert "\n" not in str(told.value)
    assert not list((tmp_path / "out").rglob("*.npz"))


def test_an_honest_cluster_elsewhere_is_believed(audit):
    assert audit("").provenance.n_people == 90
