"""Changes within people: standard errors of differences between two audits of the same people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.auditing.history.metrics import People, pair_codes, people_of
from evenhand.metrics.excess import excess
from evenhand.metrics.roc import auc_influence

__all__ = ["errors_within_people"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]


def errors_within_people(
    own: pd.DataFrame, new: pd.DataFrame, reference: str, own_data: Mapping[str, Any], new_data: Mapping[str, Any]
) -> dict[str, float]:
    """Standard errors of changes in decisions, the AUC and CEC scores for the same people, by key of the metric.

    Parameters
    ----------
    own, new
        Pairs of both audits, as `sorted_pairs` orders them.
    reference
        The group that the others are compared with.
    own_data, new_data
        Summaries of both.

    Returns
    -------
    Empty if the people of the two tables are in a different order: decisions cannot be matched up then.
    """
    first, second = people_of(own_data, own), people_of(new_data, new)
    if len(first) != len(second) or (first.label != second.label).any() or (first.group != second.group).any():
        return {}
    variances = {**_rate_variances(first, second, reference), **_area_variances(first, second)}
    return {key: math.sqrt(variance) for key, variance in variances.items()} | _reasoning_errors(
        own, new, pair_codes(own_data, own), pair_codes(new_data, new)
    )


def _rate_variances(first: People, second: People, reference: str) -> dict[str, float]:
    everyone = np.ones(len(first), dtype=bool)
    parts = {"positive rate": everyone, "true positive rate": first.label == 1, "false positive rate": first.label == 0}
    correct = [(people.decision == people.label).astype(np.int64) for people in (first, second)]
    found = {
        "accuracy": _paired_variance(correct[0], correct[1]),
        "positive rate": _paired_variance(first.decision, second.decision),
    }
    groups = np.unique(first.group).tolist()
    for rate, part in parts.items():
        of_group = {}
        for group in groups:
            inside = part & (first.group == group)
            of_group[group] = _paired_variance(first.decision[inside], second.decision[inside])
            found[f"{rate}: {group}"] = of_group[group]
        for group in groups:
            found[f"gap: {rate}, {group} minus {reference}"] = of_group[group] + of_group[reference]
    logs = {
        g: _paired_log_variance(first.decision[first.group == g], second.decision[first.group == g]) for g in groups
    }
    for group in groups:
        found[f"ratio: approval ratio, {group} over {reference}"] = logs[group] + logs[reference]
    return found


def _paired_variance(first: Ints, second: Ints, scale: tuple[float, float] = (1, 1)) -> float:
    """Variance of the difference of two shares of the same people (Agresti and Min 2005).

    Half a person is added to each of the four combinations, so that decisions that all agree still vary. `scale`
    multiplies the two shares.
    """
    if not len(first):
        return math.nan
    counts = np.bincount(first * 2 + second, minlength=4) + 0.5
    value = np.array([0, scale[1], -scale[0], scale[1] - scale[0]])
    n = counts.sum()
    mean = counts @ value / n
    return float((counts @ value**2 / n - mean**2) / n)


def _paired_log_variance(first: Ints, second: Ints) -> float:
    """The same for the difference of the logarithms of the shares."""
    if not len(first):
        return math.nan
    shares = [(float(decision.sum()) + 0.5) / (len(decision) + 1) for decision in (first, second)]
    return _paired_variance(first, second, (1 / shares[0], 1 / shares[1]))


def _area_variances(first: People, second: People) -> dict[str, float]:
    """DeLong's variance of the difference of two areas of the same people."""
    parts: dict[str, Bools] = {"auc": np.ones(len(first), dtype=bool)}
    parts |= {f"auc: {group}": first.group == group for group in np.unique(first.group)}
    found = {}
    for key, inside in parts.items():
        label = first.label[inside]
        own = auc_influence(label, first.score[inside])
        other = auc_influence(label, second.score[inside])
        found[key] = float(((other - own) ** 2).sum())
    return found


def _reasoning_errors(own: pd.DataFrame, new: pd.DataFrame, codes: Ints, new_codes: Ints) -> dict[str, float]:
    """Standard errors of changes in the mean CEC score and the regimes.

    The same people have the same pairs if they were matched on the same features in the same reference. Otherwise
    nothing can be subtracted, and the audits are treated as independent.
    """
    if codes.shape != new_codes.shape or (codes != new_codes).any():
        return {}
    scored = (own["cec"].notna() & new["cec"].notna()).to_numpy()
    return {
        key: excess(_column(new, key)[scored], _column(own, key)[scored], codes[scored]).standard_error
        for key in ("cec", "regime B", "regime D")
    }


def _column(pairs: pd.DataFrame, key: str) -> Floats:
    if key == "cec":
        return pairs["cec"].to_numpy(dtype=np.float64)
    return np.asarray(pairs["regime"] == key.removeprefix("regime "), dtype=np.float64)
