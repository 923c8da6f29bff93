"""Attribution of 1 million people: one GPU against two CPU cores of the same machine.

``PYTHONPATH=src python benchmarks/run.py gpu_attribution --at gpu --out $OUT``.
"""

import time

import numpy as np
import torch
from torch import nn

from evenhand.attribution.baselines import label_group_baselines
from evenhand.attribution.gradients import attribute

N, D, FINANCIAL, STEPS = 1_000_000, 20, 6, 8


def people():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)).astype(np.float32)
    X[:, :FINANCIAL] = np.round(X[:, :FINANCIAL] * 4) / 4
    y = (X[:, :FINANCIAL].sum(1) + rng.normal(size=N) > 0).astype(np.int64)
    group = (rng.random(N) < 0.3).astype(np.int64)
    means = label_group_baselines(X, y, group).astype(np.float32)
    return torch.from_numpy(X), torch.from_numpy(means[y, group])


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(D, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1)).eval()


def timed(call, repeats):
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        found = call()
        best = min(best, time.perf_counter() - start)
    return best, found


def run() -> list[dict]:
    x, baseline = people()
    model, gpu_model = network(), network().cuda()
    torch.set_num_threads(2)
    torch.backends.cuda.matmul.allow_tf32 = False
    x_gpu, b_gpu = x.cuda(), baseline.cuda()

    def explained(model, x, baseline):
        found = attribute(model, x, baseline, STEPS, "segments").values
        torch.cuda.synchronize()
        return found

    with torch.no_grad():
        explained(model, x[:5000], baseline[:5000])
        explained(gpu_model, x_gpu, b_gpu)
        cpu_s, on_cpu = timed(lambda: explained(model, x, baseline), 2)
        copied_s, on_gpu = timed(lambda: explained(gpu_model, x.cuda(), baseline.cuda()).cpu(), 5)
        kept_s, _ = timed(lambda: explained(gpu_model, x_gpu, b_gpu), 5)
    apart = float((on_gpu - on_cpu).abs().max())
    what = f"attribution of {N:,} people, {torch.cuda.get_device_name()} against two cores, equal to {apart:.0e}"
    rows = (("", kept_s), (", with the copies to and from the GPU", copied_s))
    return [
        {"what": what + how, "ours_s": ours, "theirs_s": cpu_s, "ratio": cpu_s / ours, "target": 20}
        for how, ours in rows
    ]


if __name__ == "__main__":
    from run import show

    show(run())
