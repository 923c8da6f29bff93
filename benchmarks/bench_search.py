"""How long a search takes: candidates x folds on German Credit, from data in memory to the choice."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import torch

import evenhand as eh

SPACE = {
    "objective": ["reasoning_gap", "reasoning_excess", "excess"],
    "cec_weight": [0.1, 0.3, 1.0, 2.0, 3.0, 5.0, 10.0],
    "equalized_odds_weight": [0.0, 0.1, 0.3, 0.5, 1.0, 3.0],
    "learning_rate": [1e-4, 3e-4, 5e-4, 1e-3],
    "epochs": [30],
}


def seconds(n_candidates: int, folds: int, device: str) -> tuple[int, float]:
    """How many candidates were tried, and the time of one search, after a small one that sets up libraries."""
    data = eh.load_dataset("german")
    given = {
        "X": data.X,
        "y": data.y,
        "sensitive_features": data.group,
        "financial_features": data.financial_features,
        "keep": [],
    }
    options = eh.SearchOptions(folds=folds, encoding="ordinal", device=device)
    eh.search(**given, space={"cec_weight": [1.0], "epochs": [1]}, options=replace(options, folds=2))
    started = time.perf_counter()
    result = eh.search(**given, space=SPACE, n_candidates=n_candidates, options=options)
    return len(result.tried), time.perf_counter() - started


def run(n_candidates: int | None = None, folds: int = 5, device: str = "auto") -> list[dict]:
    """500 candidates on a GPU, 20 on a CPU."""
    is_gpu = torch.cuda.is_available() and device != "cpu"
    n, taken = seconds(n_candidates or (500 if is_gpu else 20), folds, device)
    where = torch.cuda.get_device_name() if is_gpu else "CPU"
    what = f"search of {n} candidates x {folds} folds on German Credit, 30 epochs, {where}"
    return [{"what": what, "ours_s": taken, "target": "under 10 s" if is_gpu and n >= 500 else None}]


if __name__ == "__main__":
    from run import show

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    show(run(options.candidates, options.folds, options.device))
