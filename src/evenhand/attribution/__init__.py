"""Attributions of a person's score from a baseline: integrated gradients, Shapley values, and the baselines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenhand.attribution.baselines import label_group_baselines
from evenhand.attribution.explanation import Attribution, Explanation
from evenhand.system.libraries import optional_module

if TYPE_CHECKING:
    from evenhand.attribution.gradients import attribute, integrated_gradients

__all__ = [
    "Attribution",
    "Explanation",
    "attribute",
    "integrated_gradients",
    "label_group_baselines",
]

# Loaded on first use: an audit without a network must not wait for torch.
_OF_NETWORKS = ("attribute", "integrated_gradients")


def __getattr__(name: str) -> object:
    if name not in _OF_NETWORKS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = optional_module(f"{__name__}.gradients", f"`{name}`", "torch", "torch")
    globals()[name] = value = getattr(module, name)
    return value
