"""Metrics in words."""

from __future__ import annotations

from evenhand.searching.metrics import asked_of

__all__ = ["capital", "metric_words"]

_METRIC_WORDS = {
    "auc": "AUC",
    "ks": "KS distance",
    "f1": "F1",
    "profit": "profit",
    "eo_gap": "equalized-odds gap",
    "air": "adverse impact ratio",
    "sp_gap": "statistical-parity gap",
    "positive_rate": "positive rate",
    "score_gap": "score gap",
    "score_gap_parts": "sum of score-gap parts",
    "probability_gap": "probability gap",
    "decision_gap": "decision gap",
    "excess": "excess",
    "excess_balanced": "excess, groups weighing equally",
    "reasoning_gap": "reasoning gap",
    "reasoning_excess": "reasoning excess",
    "excess_regime_b": "excess Regime B",
    "cec": "CEC score",
}
_OF_SOMETHING = {
    "score_gap": "score gap through {}",
    "approval_rate": "approval rate of {}",
    "effect": "effect of {}",
    "falls": "steps of {} at which the score falls",
    "rises": "steps of {} at which the score rises",
}


def metric_words(name: str) -> str:
    """A metric in words.

    Examples
    --------
    >>> metric_words("auc"), metric_words("score_gap[income]")
    ('AUC', 'score gap through income')
    """
    kind, of = asked_of(name)
    return _OF_SOMETHING[kind].format(of) if of else _METRIC_WORDS[name]


def capital(words: str) -> str:
    """The words with a capital first letter."""
    return words[:1].upper() + words[1:]
