"""Scores of pairs: a person and the match, both explained from the person's baseline."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray

from evenhand.attribution import Explanation
from evenhand.auditing.people import Explainer, People
from evenhand.matching import Pairs
from evenhand.metrics.cec import reason_overlap, score_contributions

__all__ = ["ScoredPairs", "score_pairs"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


_PAIR_BLOCK = 16_384  # pairs scored at once: bounds memory whatever the number of people
_PAIR_FIGURES = ("cec", "input_gap", "reasoning_gap", "match_score", "shared_reasons")


@dataclass(frozen=True)
class ScoredPairs:
    """Figures of every pair, NaN where it could not be scored."""

    cec: Floats
    input_gap: Floats
    reasoning_gap: Floats
    is_negligible: Bools
    contributions: NDArray[np.float32]
    match_score: Floats
    match_attributions: NDArray[np.float32]
    shared_reasons: Floats

    @property
    def is_scored(self) -> Bools:
        """Whether a pair has a score."""
        return ~np.isnan(self.cec)


def score_pairs(explainer: Explainer, own: Explanation, people: People, pool: People, pairs: Pairs) -> ScoredPairs:
    """Scores of every pair whose person has a baseline and a match."""
    usable = np.flatnonzero((pairs.match >= 0) & explainer.has_baseline(people)[pairs.person])
    other = explainer.see(pool, pairs.match[usable], people.cells[pairs.person[usable]])
    join = explainer.model.join_matrix()
    join = None if join is None else join.double()
    shape = (len(pairs.person), len(people.table.columns))
    scored = ScoredPairs(
        **{name: np.full(shape[0], np.nan) for name in _PAIR_FIGURES},
        is_negligible=np.zeros(shape[0], dtype=bool),
        contributions=np.zeros(shape, dtype=np.float32),
        match_attributions=np.full(shape, np.nan, dtype=np.float32),
    )
    scored.match_score[usable] = explainer.model.probability(other.logit).cpu().numpy()
    for start in range(0, len(usable), _PAIR_BLOCK):
        block = usable[start : start + _PAIR_BLOCK]
        first = torch.as_tensor(pairs.person[block], device=people.x.device)
        me, them = own.rows(first), other[slice(start, start + _PAIR_BLOCK)]
        part = score_contributions(me.values, them.values, me.with_inputs_of(them), them.with_inputs_of(me), join)
        for field in fields(part):
            getattr(scored, field.name)[block] = getattr(part, field.name).cpu().numpy()
        scored.match_attributions[block] = (them.values if join is None else them.values @ join).cpu().numpy()
        scored.shared_reasons[block] = reason_overlap(me.values, them.values, join).cpu().numpy()
    return scored
