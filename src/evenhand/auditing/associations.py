"""Inputs that nearly determine the label or the group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from evenhand.inputs.checking.columns import ColumnCheck
from evenhand.inputs.checking.names import may_be_known_after
from evenhand.inputs.checking.signs import Sign
from evenhand.inputs.group_names import MOST_GROUPS
from evenhand.metrics.proxies import PERFECT_PROXY, feature_strengths

__all__ = ["with_associations"]

_LEAK = 0.98  # area under the ROC curve from which a single column nearly determines the label
_MAY_BE_LEAK = 0.75  # and from which a column that is often set by the decision probably is
_PEOPLE, _FOLDS = 5_000, 3
_FEWEST_PEOPLE = 50


def with_associations(
    checks: Sequence[ColumnCheck],
    table: pd.DataFrame,
    favorable: pd.Series[float],
    groups: pd.Series[str] | None,
    parts: set[str],
) -> tuple[tuple[ColumnCheck, ...], dict[str, float]]:
    """Find columns that nearly determine the label or the group, and how well each column predicts the label.

    Parameters
    ----------
    favorable
        1 or 0 for each row; missing if unknown.
    groups
        The group of each row; None if there are no groups.
    parts
        Columns that are themselves the label or the group.
    """
    asked = [c.name for c in checks if c.name not in parts and not c.is_unfit and not c.has("constant", "free text")]
    of_label = _areas(table[asked], favorable)
    of_group = {} if groups is None or groups.nunique() > MOST_GROUPS else _areas(table[asked], groups)
    found = []
    for column in checks:
        label_area, group_area = of_label.get(column.name, 0.5), of_group.get(column.name, 0.5)
        signs = []
        if label_area >= _LEAK:
            signs.append(Sign("leaks the label", f"alone predicts the label with AUC {label_area:.2f}"))
        elif label_area >= _MAY_BE_LEAK and may_be_known_after(column.name):
            clause = f"may be set by the decision, and predicts the label with AUC {label_area:.2f}"
            signs.append(Sign("known after the decision", clause))
        if group_area > PERFECT_PROXY:
            signs.append(Sign("predicts the group", f"alone predicts the group with AUC {group_area:.2f}"))
        found.append(column.with_signs(*signs))
    return tuple(found), of_label


def _areas(table: pd.DataFrame, target: pd.Series[Any]) -> dict[str, float]:
    """Area under the ROC curve with which each column alone predicts the target; empty if there are too few people."""
    known = target.notna().to_numpy()
    codes, values = pd.factorize(target[known], sort=True)
    counts = np.bincount(codes, minlength=len(values))
    if not table.shape[1] or known.sum() < _FEWEST_PEOPLE or (counts >= 2 * _FOLDS).sum() < 2:
        return {}
    rows = feature_strengths(table[known], codes.astype(np.int64), n_folds=_FOLDS, max_people=_PEOPLE)
    return {row.feature: row.auc for row in rows}
