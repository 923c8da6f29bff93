"""What may be done to training people before a model learns from them, so that the model needs no group to decide.

A repair is one value of the parameter ``repair``. It sees labels and groups of the training people alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.exceptions import InvalidInputError
from evenhand.inputs.validation import did_you_mean
from evenhand.training.reweighing import reweighing

__all__ = ["REPAIRS", "Training", "repaired"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Training:
    """People that a model learns from.

    Attributes
    ----------
    X, y
        Their table and labels.
    group
        Codes of their groups, which no model sees.
    weight
        How much each counts; None for the same.
    """

    X: pd.DataFrame
    y: Ints
    group: Ints
    weight: NDArray[np.float64] | None = None


def _reweighed(training: Training) -> Training:
    return replace(training, weight=reweighing(training.y, training.group, training.weight))


_REPAIRS: dict[str, Callable[[Training], Training]] = {"none": lambda training: training, "reweighing": _reweighed}
REPAIRS = tuple(_REPAIRS)
"""Names of repairs: none, and weights under which label and group are independent (Kamiran and Calders, 2012)."""


def repaired(name: str, training: Training) -> Training:
    """The training people as a repair leaves them.

    Raises
    ------
    InvalidInputError
        If there is no such repair, or it cannot be made on these people.

    Examples
    --------
    >>> people = Training(pd.DataFrame({"x": range(4)}), np.array([1, 1, 0, 1]), np.array([0, 0, 0, 1]))
    >>> repaired("none", people) is people
    True
    """
    if name not in _REPAIRS:
        raise InvalidInputError(f"`repair` must be one of {list(REPAIRS)}, got {name!r}.{did_you_mean(name, REPAIRS)}")
    return _REPAIRS[name](training)
