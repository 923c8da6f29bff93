"""Controls of the regressions: inputs as numeric columns, in nested sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.inputs.encoding import CategoryColumn, TableEncoder
from evenhand.inputs.validation import is_number_column
from evenhand.metrics.regressions import Controls

__all__ = ["ALL_INPUTS", "FINANCES", "MOST_CATEGORIES", "NO_CONTROLS", "control_sets"]

NO_CONTROLS, FINANCES, ALL_INPUTS = "none", "financial features", "all inputs"
"""Names of the nested sets."""

MOST_CATEGORIES = 50
"""Number of values beyond which a category is not used as a control."""


def control_sets(
    table: pd.DataFrame, financial: Sequence[str], groups: NDArray[np.int64]
) -> tuple[dict[str, Controls], dict[str, str]]:
    """Return the nested sets of controls by name, and the inputs left out with the reasons.

    Parameters
    ----------
    table
        The inputs.
    financial
        Inputs that are held equal first.
    groups
        The code of each person's group; inputs that reveal the group are not held equal.
    """
    left_out = {
        name: "it is the group or a part of it" for name in map(str, table.columns) if _is_group(table[name], groups)
    }
    of_input: dict[str, Controls] = {}
    for name in map(str, table.columns):
        if name in left_out:
            continue
        found = _controls_of(table[name], name)
        if isinstance(found, str):
            left_out[name] = found
        else:
            of_input[name] = found
    finances = [name for name in financial if name in of_input]
    rest = [name for name in of_input if name not in finances]
    sets = {
        NO_CONTROLS: Controls.none(len(table)),
        FINANCES: _joined(of_input, finances, len(table)),
        ALL_INPUTS: _joined(of_input, [*finances, *rest], len(table)),
    }
    return ({name: sets[name] for name in sets if name != FINANCES or finances}), left_out


def _controls_of(values: pd.Series[Any], name: str) -> Controls | str:
    """Encode an input: a number and whether it is missing, or all but the most frequent value of a category."""
    if values.notna().sum() == 0:
        return "it has no values"
    if not is_number_column(values) and values.nunique() > MOST_CATEGORIES:
        return f"a category of {values.nunique():,} values, more than the {MOST_CATEGORIES} that are encoded"
    (column,) = TableEncoder.fit(values.to_frame(name)).columns
    encoded = column.transform(values)
    if not isinstance(column, CategoryColumn):
        return Controls(tuple(column.encoded_names), encoded)
    base = int(encoded.sum(axis=0).argmax())
    kept = [j for j in range(len(column.categories)) if j != base]
    return Controls(tuple(column.encoded_names), encoded).columns(kept)


def _joined(of_input: Mapping[str, Controls], names: Sequence[str], n: int) -> Controls:
    parts = [of_input[name] for name in names]
    values = np.column_stack([np.zeros((n, 0)), *(part.values for part in parts)])
    return Controls(tuple(name for part in parts for name in part.names), values)


def _is_group(values: pd.Series[Any], groups: NDArray[np.int64]) -> bool:
    """Whether each of a column's few values occurs in only one group, or each group has only one value."""
    codes, distinct = pd.factorize(values, use_na_sentinel=False)
    if not 1 < len(distinct) <= min(MOST_CATEGORIES, len(values) // 10):
        return False
    n_cells = np.unique(np.stack([codes, groups]), axis=1).shape[1]
    return n_cells in (len(distinct), len(np.unique(groups)))
