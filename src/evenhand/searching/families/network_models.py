"""What a search knows about networks. `searching.networks` trains them in stacks."""

from __future__ import annotations

from evenhand.searching.families.family import FamilySpec

__all__ = ["NETWORK"]

_PLAIN = {"cec_weight": 0.0, "equalized_odds_weight": 0.0}

NETWORK = FamilySpec(
    name="network",
    words="networks",
    defaults={
        "objective": "reasoning_gap",
        "cec_weight": 0.0,
        "equalized_odds_weight": 0.0,
        "learning_rate": 3e-4,
        "epochs": 30,
        "hidden": (128, 64),
        "dropout": 0.2,
        "batch_size": 64,
        "n_steps": 1,
        "method": "segments",
        "cec_every": 1,
        "least_explained": 0.0,
        "seed": 0,
    },
    space={
        "objective": ("reasoning_gap", "excess", "reasoning_excess"),
        "cec_weight": (0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
        "equalized_odds_weight": (0.0, 0.1, 0.3, 1.0),
        "learning_rate": (3e-4, 1e-3),
        "epochs": (10, 20, 30),
    },
    plain=_PLAIN,
    unused={**_PLAIN, "objective": "reasoning_gap"},
)
