"""How long a search takes: candidates x folds on German Credit, from data in memory to the choice."""

from __future__ import annotations

import argparse
import time

import torch

import evenhand as eh
from evenhand.searching import search

SPACE = {
    "objective": ["reasoning_gap", "reasoning_excess", "excess"],
    "cec_weight": [0.1, 0.3, 1.0, 2.0, 3.0, 5.0, 10.0],
    "equalized_odds_weight": [0.0, 0.1, 0.3, 0.5, 1.0, 3.0],
    "learning_rate": [1e-4, 3e-4, 5e-4, 1e-3],
    "epochs": [30],
}


def main() -> None:
    """Time one search, after a small one in which libraries set themselves up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=20)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    data = eh.load_dataset("german")
    given = {
        "X": data.X,
        "y": data.y,
        "sensitive_features": data.group,
        "financial_features": data.financial_features,
        "encoding": "ordinal",
        "device": options.device,
        "keep": [],
    }
    search(**given, space={"cec_weight": [1.0], "epochs": [1]}, folds=2)
    started = time.perf_counter()
    result = search(**given, space=SPACE, n_candidates=options.candidates, folds=options.folds)
    seconds = time.perf_counter() - started
    where = torch.cuda.get_device_name() if torch.cuda.is_available() and options.device != "cpu" else "CPU"
    print(f"{len(result.tried)} candidates x {options.folds} folds on {where}: {seconds:.1f} s")


if __name__ == "__main__":
    main()
