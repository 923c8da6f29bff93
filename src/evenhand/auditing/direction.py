"""Which end of the score is good, and whether scores and labels agree on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from evenhand.auditing.options import Favorable
from evenhand.exceptions import InvalidInputError, warn_caller
from evenhand.inputs.checking import names_a_bad_outcome
from evenhand.inputs.people import People
from evenhand.inputs.validation import is_number_column
from evenhand.metrics.estimate import Estimate
from evenhand.metrics.roc import auc_interval
from evenhand.models.introspection import FittedScale, fitted_scales
from evenhand.models.protocol import AuditedModel

_ASKED = 20_000  # people who are scored to see which end of the score is good
_FEW = 10  # people with each label, whom a score may rank in the wrong order by chance

Score = TypeVar("Score", float, NDArray[np.float64])


def own_score(score: Score, favorable: Favorable, unit: str | None = None) -> Score:
    """Convert the score of the favorable outcome to the model's score, or back.

    Without a unit it is a probability.

    Examples
    --------
    >>> own_score(0.75, "low"), own_score(0.75, "high"), own_score(-6.5, "low", "percent")
    (0.25, 0.75, 6.5)
    """
    if favorable == "high":
        return score
    return 1 - score if unit is None else -score


def notes_on_label(name: object, favorable: Favorable | None) -> tuple[str, ...]:
    """Notes on a label named like a bad outcome, unless the user said which scores are good.

    Examples
    --------
    >>> notes_on_label("repaid", None), notes_on_label("default", "low")
    ((), ())
    >>> notes_on_label("default", None)[0][:72]
    "The label is called 'default', and 1 counts as the favorable outcome: if"
    """
    if favorable is not None or not isinstance(name, str) or not names_a_bad_outcome(name):
        return ()
    return (
        f"The label is called {name!r}, and 1 counts as the favorable outcome: if 1 is the bad one, pass "
        '`favorable="low"` (--favorable low), or decisions, regimes and reasons will be reversed.',
    )


def is_wrong_way_round(area: Estimate, n_fewest: int) -> bool:
    """Whether an area under the ROC curve is below one half by more than chance, given the size of the rarer label.

    Examples
    --------
    >>> is_wrong_way_round(Estimate(0.35, 0.33, 0.37), 100), is_wrong_way_round(Estimate(0.45, 0.3, 0.6), 20)
    (True, False)
    """
    return area.high < 0.5 if math.isfinite(area.high) else area.value == 0 and n_fewest >= _FEW


def check_direction(model: AuditedModel, people: People) -> None:
    """Reject a score that ranks people against their labels.

    Raises
    ------
    InvalidInputError
        If the area under the ROC curve is below one half by more than chance.
    """
    rows = np.linspace(0, len(people) - 1, min(len(people), _ASKED)).astype(np.int64)
    with torch.no_grad():
        score = model.margin(people.x[torch.as_tensor(rows, device=people.x.device)]).double().cpu().numpy()
    labels = people.labels[rows]
    if not np.isfinite(score).all():
        return  # rejected when people are explained
    area = auc_interval(labels, score)
    if is_wrong_way_round(area, int(np.bincount(labels, minlength=2).min())):
        interval = f" (95% interval {area.low:.3f} to {area.high:.3f})" if math.isfinite(area.high) else ""
        raise InvalidInputError(
            f"The model ranks people against `y`, with an AUC of {area.value:.3f}{interval}; high scores and 1 "
            'in `y` should both be favorable: for a score that is a risk, pass `favorable="low"` (--favorable low) and '
            "`y` as the model was fitted, 1 for the bad outcome, or name the good one with --positive-label; if only "
            '`y` is reversed, flip it; if the model really is this bad, pass `favorable="high"` '
            "(--favorable high)."
        )


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
    numbers = _finite(values)
    if len(numbers) < _FEWEST or fitted.spread <= 0 or numbers.min() == numbers.max():
        return None
    center, ratio = float(numbers.mean()), float(numbers.std()) / fitted.spread
    for factor in _FACTORS:
        if abs(math.log10(ratio / factor)) < _ABOUT and abs(center / factor - fitted.center) < _NEAR * fitted.spread:
            return factor
    return None


def notes_on_scales(
    model: Any, audited: AuditedModel, table: pd.DataFrame, reference: pd.DataFrame | None = None
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
        known = {name: _finite(reference[name]) for name in numbers if is_number_column(reference[name])}
        scales = {name: FittedScale(float(v.mean()), float(v.std())) for name, v in known.items() if len(v)}
        notes = _notes(table, list(scales), scales, "the reference has")
    for note in notes:
        warn_caller(note)
    return notes


def _finite(values: pd.Series[Any]) -> NDArray[np.float64]:
    numbers: NDArray[np.float64] = values.to_numpy(dtype=np.float64, na_value=np.nan)
    return numbers[np.isfinite(numbers)]


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
