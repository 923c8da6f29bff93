"""Attribution of 1 million people: one GPU against two CPU cores of the same machine. Writes `$OUT/scale_gpu.json`.

Run with PYTHONPATH=src. Needs torch, numpy, scipy, scikit-learn, pandas, pyarrow and narwhals.
"""

import json
import os
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from evenhand.attribution import attribute, label_group_baselines

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


def main():
    x, baseline = people()
    model = network()
    torch.set_num_threads(2)
    with torch.no_grad():
        attribute(model, x[:5000], baseline[:5000], STEPS, "segments")
        cpu_s, on_cpu = timed(lambda: attribute(model, x, baseline, STEPS, "segments").values, 2)
        result = {"people": N, "cpu_two_cores_s": cpu_s, "torch": torch.__version__}
        if torch.cuda.is_available():
            gpu_model = network().cuda()
            torch.backends.cuda.matmul.allow_tf32 = False

            def with_copies():
                found = attribute(gpu_model, x.cuda(), baseline.cuda(), STEPS, "segments").values.cpu()
                torch.cuda.synchronize()
                return found

            x_gpu, b_gpu = x.cuda(), baseline.cuda()

            def without_copies():
                found = attribute(gpu_model, x_gpu, b_gpu, STEPS, "segments").values
                torch.cuda.synchronize()
                return found

            with_copies()
            copied_s, on_gpu = timed(with_copies, 5)
            kept_s, _ = timed(without_copies, 5)
            apart = float((on_gpu - on_cpu).abs().max())
            result |= {
                "device": torch.cuda.get_device_name(),
                "gpu_with_copies_s": copied_s,
                "gpu_s": kept_s,
                "times_faster_with_copies": cpu_s / copied_s,
                "times_faster": cpu_s / kept_s,
                "largest_difference": apart,
            }
    text = json.dumps(result, indent=2)
    print(text)
    if os.environ.get("OUT"):
        (Path(os.environ["OUT"]) / "scale_gpu.json").write_text(text + "\n")
    if torch.cuda.is_available():
        whole_audit()


def whole_audit():
    """A streamed audit with device="cuda" finds what the CPU finds; needs the whole package to import."""
    import tempfile

    import pandas as pd

    from evenhand.auditing.streaming import audit_stream

    x, _ = people()
    rng = np.random.default_rng(1)
    n = 60_000
    table = pd.DataFrame(x[:n].numpy(), columns=[f"x{j}" for j in range(D)])
    table["y"] = (table.iloc[:, :FINANCIAL].sum(axis=1) + rng.normal(size=n) > 0).astype(int)
    table["group"] = np.where(rng.random(n) < 0.3, "b", "a")
    folder = Path(tempfile.mkdtemp())
    table.to_parquet(folder / "people.parquet")
    found = {}
    for device in ("cpu", "cuda"):
        start = time.perf_counter()
        done = audit_stream(
            network(),
            folder / "people.parquet",
            label="y",
            group="group",
            device=device,
            reference_people=20_000,
            financial_features=[f"x{j}" for j in range(FINANCIAL)],
            out=folder / device,
            batch_rows=20_000,
        )
        data = done.to_dict()
        found[device] = {
            "seconds": time.perf_counter() - start,
            "cec": data["cec"]["mean"],
            "excess": data["cec"]["excess"],
        }
    print(json.dumps(found, indent=2))
    if os.environ.get("OUT"):
        (Path(os.environ["OUT"]) / "scale_gpu_audit.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
