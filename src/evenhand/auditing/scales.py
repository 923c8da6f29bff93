"""Inputs whose unit differs from that of the model or the reference, such as percent instead of shares."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from evenhand.exceptions import warn_caller
from evenhand.inputs.validation import is_number_column
from evenhand.models.fitted_scales import FittedScale, fitted_scales
from evenhand.models.protocol import AuditedModel

__all__ = ["notes_on_scales", "unit_factor"]

_FACTORS = (1000.0, 100.0, 0.01, 0.001)
_ABOUT = 0.4  # orders of magnitude from a factor
_NEAR = 2.0  # standard deviations from the center, after dividing by the factor
_FEWEST = 20  # people


def unit_factor(values: pd.Series[Any], fitted: FittedScale) -> float | None:
    """The ratio of values to those that a scale was fitted on, if it is a change of unit; else None.

    Examples
    --------
    >>> shares = FittedScale(center=0.4, spread=0.2)
    >>> unit_factor(pd.Series(range(100)), shares), unit_factor(pd.Series(range(100)) / 100, shares)
    (100.0, None)
    """
    numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
    numbers = numbers[np.isfinite(numbers)]
    if len(numbers) < _FEWEST or fitted.spread <= 0 or numbers.min() == numbers.max():
        return None
    center, ratio = float(numbers.mean()), float(numbers.std()) / fitted.spread
    for factor in _FACTORS:
        if abs(math.log10(ratio / factor)) < _ABOUT and abs(center / factor - fitted.center) < _NEAR * fitted.spread:
            return factor
    return None


def notes_on_scales(
    model: Any,  # noqa: ANN401 - any model
    audited: AuditedModel,
    table: pd.DataFrame,
    reference: pd.DataFrame | None = None,
) -> tuple[str, ...]:
    """A sentence, and a Python warning, for each input whose unit differs from that of the model or the reference.

    Parameters
    ----------
    model, audited
        The user's model, and the same model in the form of the audit.
    table
        People of the audit.
    reference
        The people they are matched in, if these are different people.
    """
    numbers = [str(name) for name in table.columns if is_number_column(table[name])]
    fitted = fitted_scales(model, audited, [str(name) for name in table.columns])
    notes = _notes(table, numbers, fitted, "the model was fitted on")
    if not notes and reference is not None and reference is not table:
        known = [name for name in numbers if is_number_column(reference[name])]
        notes = _notes(table, known, {name: _scale_of(reference[name]) for name in known}, "the reference has")
    for note in notes:
        warn_caller(note)
    return notes


def _scale_of(values: pd.Series[Any]) -> FittedScale:
    numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
    numbers = numbers[np.isfinite(numbers)]
    return FittedScale(float(numbers.mean()), float(numbers.std())) if len(numbers) else FittedScale(0.0, 0.0)


def _notes(table: pd.DataFrame, names: list[str], fitted: Mapping[str, FittedScale], where: str) -> tuple[str, ...]:
    notes = []
    for name in names:
        factor = None if name not in fitted else unit_factor(table[name], fitted[name])
        if factor is not None:
            times, what = (factor, "large") if factor > 1 else (1 / factor, "small")
            notes.append(
                f"The input {name!r} is about {times:.0f} times as {what} as what {where} (mean "
                f"{float(table[name].mean()):.3g} here, about {fitted[name].center:.3g} there): if it is in a "
                f"different unit, such as percent, {'divide' if factor > 1 else 'multiply'} it by {times:.0f}."
            )
    return tuple(notes)
