"""Scores of every pair of a batch: a person and the match, both explained from the person's baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenhand.attribution import Explanation
from evenhand.auditing.people import People
from evenhand.matching import Pairs
from evenhand.models.explaining import Explainer
from evenhand.models.scoring import score_pairs

__all__ = ["ScoredPairs", "score_batch_pairs"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_METRICS = ("cec", "input_gap", "reasoning_gap")


@dataclass(frozen=True)
class ScoredPairs:
    """Metrics of every pair, NaN if it could not be scored."""

    cec: Floats
    input_gap: Floats
    reasoning_gap: Floats
    is_negligible: Bools
    contributions: NDArray[np.float32]
    match_score: Floats
    match_attributions: NDArray[np.float32]

    @property
    def is_scored(self) -> Bools:
        """Whether a pair has a score."""
        return ~np.isnan(self.cec)


def score_batch_pairs(
    explainer: Explainer, own: Explanation, people: People, pool: People, pairs: Pairs
) -> ScoredPairs:
    """Scores of every pair whose person has a baseline and a match."""
    usable = np.flatnonzero((pairs.match >= 0) & explainer.has_baseline(people.cells)[pairs.person])
    person = pairs.person[usable]
    matches = explainer.see(pool.x, pairs.match[usable], people.cells[person])
    shape = (len(pairs.person), len(people.table.columns))
    scored = ScoredPairs(
        **{name: np.full(shape[0], np.nan) for name in (*_METRICS, "match_score")},
        is_negligible=np.zeros(shape[0], dtype=bool),
        contributions=np.zeros(shape, dtype=np.float32),
        match_attributions=np.full(shape, np.nan, dtype=np.float32),
    )
    scored.match_score[usable] = explainer.model.probability(matches.logit).cpu().numpy()
    for block, part in score_pairs(explainer, own, person, matches):
        rows = usable[block]
        for name in (*_METRICS, "is_negligible", "contributions"):
            getattr(scored, name)[rows] = getattr(part, name).cpu().numpy()
        scored.match_attributions[rows] = part.other.cpu().numpy()
    return scored
