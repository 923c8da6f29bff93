"""Metrics of candidates by fold, as means over the models of each seed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from evenhand.searching.fold_gaps import is_signed_gap, oriented_gaps
from evenhand.searching.metrics import DIRECTIONS
from evenhand.searching.people import EvaluationSettings
from evenhand.searching.space import Candidate
from evenhand.searching.store import Scored

__all__ = ["Collated", "collate"]

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Collated:
    """Metrics of candidates.

    Attributes
    ----------
    metrics
        By name, of shape (n_candidates, n_folds), averaged over seeds; NaN if a metric could not be estimated.
    gaps
        Signed gaps of scores, by the names of `searching.fold_gaps`, of the same shape.
    notes
        Why a candidate has no metrics, by its number.
    """

    metrics: dict[str, Floats]
    gaps: dict[str, Floats]
    notes: dict[int, str]


def collate(
    scored: Sequence[Scored], candidates: Sequence[Candidate], settings: EvaluationSettings, features: Sequence[str]
) -> Collated:
    """Metrics of candidates from the metrics of their models in each fold and for each seed.

    Parameters
    ----------
    scored
        A row for each model.
    candidates, settings
        What was trained, and on how many folds and seeds.
    features
        Names of the table's columns.
    """
    number = {candidate.key: candidate.number for candidate in candidates}
    names = dict.fromkeys([*DIRECTIONS, *(name for row in scored for name in row.metrics)])
    if settings.payoff is None:
        del names["profit"]
    sums = {name: np.zeros((len(candidates), settings.folds)) for name in names}
    notes: dict[int, list[str]] = defaultdict(list)
    for row in scored:
        k = number[row.candidate]
        if row.note:
            notes[k].append(row.note)
        for name, values in sums.items():
            values[k, row.fold] += row.metrics.get(name, np.nan) / settings.seeds
    gaps = {name: values for name, values in sums.items() if is_signed_gap(name)}
    metrics = {name: values for name, values in sums.items() if name not in gaps}
    means = {name: values.mean(1) for name, values in gaps.items()}
    metrics |= oriented_gaps(gaps, means, features) if gaps else {}
    return Collated(metrics, gaps, {k: told[0] for k, told in notes.items()})
