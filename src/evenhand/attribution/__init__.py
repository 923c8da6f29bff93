"""Attributions of a person's score from a baseline: integrated gradients, Shapley values, and the baselines."""

from evenhand.attribution.baselines import label_group_baselines
from evenhand.attribution.explanation import Explanation
from evenhand.attribution.feed_forward import FeedForward, feed_forward
from evenhand.attribution.gradients import Attribution, attribute, integrated_gradients

__all__ = [
    "Attribution",
    "Explanation",
    "FeedForward",
    "attribute",
    "feed_forward",
    "integrated_gradients",
    "label_group_baselines",
]
