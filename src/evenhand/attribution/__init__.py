"""Integrated gradients of a person from a baseline, and the baselines."""

from evenhand.attribution.baselines import label_group_baselines
from evenhand.attribution.feed_forward import FeedForward, feed_forward
from evenhand.attribution.gradients import Attribution, attribute, integrated_gradients

__all__ = [
    "Attribution",
    "FeedForward",
    "attribute",
    "feed_forward",
    "integrated_gradients",
    "label_group_baselines",
]
