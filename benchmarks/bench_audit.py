"""The whole audit of 100,000 people against scikit-learn and captum doing the same, and its peak memory."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

import evenhand as eh

N, D, FINANCIAL = 100_000, 20, 6


def people(n: int = N):
    """Applicants with rounded, tie-heavy financial features, and a network to audit."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, D)).astype(np.float32)
    X[:, :FINANCIAL] = np.round(X[:, :FINANCIAL] * 4) / 4
    y = (X[:, :FINANCIAL].sum(1) + rng.normal(size=n) > 0).astype(np.int64)
    group = np.where(rng.random(n) < 0.3, "b", "a")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(D, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1)).eval()
    with torch.no_grad():
        model[-1].weight *= 10
        model[-1].bias -= model(torch.from_numpy(X[:1000])).median()
    return model, X, y, group


def ours(model, X, y, group, *, evidence=False):
    """The mean CEC score, without evidence, which the others do not have; memory is measured with it."""
    financial = [f"x{j}" for j in range(FINANCIAL)]
    result = eh.audit(model, X, y, sensitive_features=group, financial_features=financial, evidence=evidence)
    return result.to_dict()["cec"]["mean"]


def theirs(model, X, y, group):
    """Matching with scikit-learn's kd_tree, attributions with captum at 32 midpoints, scores with NumPy."""
    from captum.attr import IntegratedGradients
    from sklearn.neighbors import NearestNeighbors
    from sklearn.preprocessing import StandardScaler

    F = StandardScaler().fit_transform(X[:, :FINANCIAL].astype(np.float64))
    match = np.empty(len(y), dtype=np.int64)
    baseline = np.empty_like(X)
    for label in (0, 1):
        for own in ("a", "b"):
            mine = np.flatnonzero((y == label) & (group == own))
            pool = np.flatnonzero((y == label) & (group != own))
            index = NearestNeighbors(n_neighbors=1, algorithm="kd_tree", n_jobs=-1).fit(F[pool])
            match[mine] = pool[index.kneighbors(F[mine], return_distance=False)[:, 0]]
            baseline[mine] = X[mine].mean(axis=0)
    explainer = IntegratedGradients(lambda z: model(z).squeeze(-1))

    def explain(values):
        parts = zip(torch.from_numpy(values).split(2000), torch.from_numpy(baseline).split(2000), strict=True)
        found = [explainer.attribute(x, b, n_steps=32, method="riemann_middle") for x, b in parts]
        return torch.cat(found).numpy()

    def unit(values):
        return values / (np.linalg.norm(values, axis=1, keepdims=True) + 1e-8)

    return float((np.linalg.norm(unit(explain(X)) - unit(explain(X[match])), axis=1) / 2).mean())


def run() -> list[dict]:
    torch.set_num_threads(2)
    arguments = people()
    ours(*people(2000))  # warm up
    start = time.perf_counter()
    mine = ours(*arguments)
    ours_s = time.perf_counter() - start
    start = time.perf_counter()
    reference = theirs(*arguments)
    theirs_s = time.perf_counter() - start
    memory = subprocess.run([sys.executable, __file__, "--memory"], check=True, capture_output=True, text=True)
    return [
        {
            "what": f"audit of {N:,} x {D} (mean CEC {mine:.4f}) against captum + scikit-learn ({reference:.4f})",
            "ours_s": ours_s,
            "theirs_s": theirs_s,
            "ratio": theirs_s / ours_s,
            "target": 10,
        },
        {
            "what": "peak memory of that audit, with evidence, above the data",
            "value": float(memory.stdout),
            "unit": "MB",
            "target": 500,
            "better": "lower",
        },
    ]


def _memory_mb(field: str) -> float:
    """Memory of this process as Linux reports it: VmRSS now, VmHWM at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


if __name__ == "__main__":
    if "--memory" in sys.argv:
        ours(*people(2000))
        loaded = people()
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        before = _memory_mb("VmRSS")
        ours(*loaded, evidence=True)
        print(round(_memory_mb("VmHWM") - before))
    else:
        from run import show

        show(run())
