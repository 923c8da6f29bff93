"""Sentences on what the people held out of a search show: for the terminal, the page, the workbook and the JSON."""

from __future__ import annotations

import math

from evenhand.report.formatting import count, decimal, interval, listed, percent
from evenhand.searching.confirming import Confirmation, Confirmed
from evenhand.searching.words import capital, metric_words

__all__ = ["confirmation_sentences"]


def confirmation_sentences(confirmation: Confirmation, minimize: str) -> tuple[str, ...]:
    """A sentence on what is minimized and one on the constraints, for each reported candidate."""
    return tuple(
        sentence
        for of in confirmation.candidates
        for sentence in (_objective(of, confirmation, minimize), _limits(of))
        if sentence
    )


def _objective(of: Confirmed, confirmation: Confirmation, minimize: str) -> str:
    found, words = of.objective.difference, metric_words(minimize)
    start, mine = confirmation.unconstrained[minimize], of.metrics[minimize]
    told = (
        f"{capital(of.objective.answer)} for candidate {of.candidate}, on {count(confirmation.n_people)} people held "
        f"out: {words} {decimal(mine)} instead of {decimal(start)}"
    )
    if not math.isfinite(found.ci_low):
        return f"{told}; the smallest group has {count(confirmation.smallest_group)} of them."
    n = len(confirmation.candidates)
    allowing = f", which allows for {n} candidates" if n > 1 else ""
    level = percent(confirmation.confidence, 0 if n == 1 else 1)
    told = f"{told}, a difference of {decimal(found.value)} ({level} interval {interval(found.ci_low, found.ci_high)}"
    promised = decimal(of.promised)
    why = {
        "confirmed": "",
        "not confirmed": f" The interval excludes the gain that the search saw, {promised}." if of.promised > 0 else "",
        "too few people to say": f" The interval includes both no gain and the gain that the search saw, {promised}.",
    }[of.objective.answer]
    return f"{told}{allowing}).{why}"


def _limits(of: Confirmed) -> str:
    if not of.limits:
        return ""
    parts = []
    for answer in ("confirmed", "not confirmed", "too few people to say"):
        texts = [f"`{verdict.about}`" for verdict in of.limits if verdict.answer == answer]
        if texts:
            parts.append(f"{answer}: {listed(texts)}")
    return f"Constraints of candidate {of.candidate} on the people held out: {'; '.join(parts)}."
