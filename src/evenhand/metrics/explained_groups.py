"""People with their explanations, checked, and the two groups that a measure finds least alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.exceptions import InvalidInputError
from evenhand.metrics.checks import group_codes
from evenhand.metrics.estimate import Plain

__all__ = [
    "HIGHER_IS_MORE_ALIKE",
    "LOWER_IS_MORE_ALIKE",
    "Compared",
    "ExplainedPeople",
    "ProceduralMetric",
    "explained_people",
    "feature_matrix",
    "least_alike",
    "probabilities",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

HIGHER_IS_MORE_ALIKE = "higher is more alike"
LOWER_IS_MORE_ALIKE = "lower is more alike"

# A smaller group is not informative.
_LEAST_PEOPLE = 10
_NAN = float("nan")


@dataclass(frozen=True)
class ProceduralMetric(Plain):
    """One measure of how alike groups are explained.

    Attributes
    ----------
    value
        The measure; NaN with the reason in `note` if it cannot be estimated.
    p_value
        For groups that are explained alike; None if the definition has no test.
    direction
        "higher is more alike" or "lower is more alike".
    groups
        The two groups of the value: the least similar pair.
    """

    name: str
    value: float
    p_value: float | None
    direction: str
    groups: tuple[str, str] | None = None
    note: str = ""


@dataclass(frozen=True)
class Compared:
    """A measure of two groups, and its p-value if there is a test."""

    value: float
    p_value: float | None


@dataclass(frozen=True)
class ExplainedPeople:
    """Checked arrays, one row per person."""

    attributions: Floats
    scores: Floats | None
    labels: Ints | None
    codes: Ints
    names: tuple[str, ...]


def least_alike(
    name: str, people: ExplainedPeople, contrast: Callable[[int, int], Compared], direction: str, note: str = ""
) -> ProceduralMetric:
    """The least similar pair of groups, with its p-value adjusted for the number of pairs."""
    sizes = np.bincount(people.codes, minlength=len(people.names))
    small = [group for group, size in zip(people.names, sizes, strict=True) if size < _LEAST_PEOPLE]
    judged = np.flatnonzero(sizes >= _LEAST_PEOPLE).tolist()
    left_out = f"not judged, fewer than {_LEAST_PEOPLE} people: {', '.join(small)}" if small else ""
    if len(judged) < 2:
        reason = f"not estimable: fewer than two groups of {_LEAST_PEOPLE} people; {left_out}"
        return ProceduralMetric(name, _NAN, None, direction, None, reason)
    pairs = list(combinations(judged, 2))
    found = [contrast(first, second) for first, second in pairs]
    sign = -1 if direction == HIGHER_IS_MORE_ALIKE else 1
    worst = int(np.argmax([sign * pair.value for pair in found]))
    p_value = found[worst].p_value
    first, second = pairs[worst]
    several = f"the least alike of {len(pairs)} pairs of groups" if len(pairs) > 1 else ""
    return ProceduralMetric(
        name=name,
        value=found[worst].value,
        p_value=None if p_value is None else min(1.0, p_value * len(pairs)),
        direction=direction,
        groups=(people.names[first], people.names[second]),
        note="; ".join(part for part in (several, left_out, note) if part),
    )


def explained_people(
    attributions: ArrayLike,
    scores: ArrayLike | None,
    labels: ArrayLike | None,
    group: ArrayLike,
    names: Sequence[str] | None,
) -> ExplainedPeople:
    """Check attributions, scores, labels and groups.

    Raises
    ------
    InvalidInputError
        If one of them is not one for each person, or has values that it cannot have.
    """
    values = np.asarray(attributions, dtype=np.float64)
    if values.ndim != 2 or values.size == 0:
        raise InvalidInputError(f"`attributions` must have shape (n, d), got {values.shape}.")
    if not np.isfinite(values).all():
        n_bad = int((~np.isfinite(values)).any(axis=1).sum())
        raise InvalidInputError(
            f"`attributions` must be finite, got {n_bad} people with missing or infinite values; drop those people."
        )
    n = len(values)
    codes, readable = group_codes(group, n, names)
    return ExplainedPeople(
        attributions=values,
        scores=None if scores is None else probabilities(scores, n, "`scores`"),
        labels=None if labels is None else _labels(labels, n),
        codes=codes,
        names=readable,
    )


def probabilities(scores: ArrayLike, n: int, what: str) -> Floats:
    """Check that there is a probability for each person; `what` names them in the error."""
    values = np.asarray(scores, dtype=np.float64)
    if values.shape != (n,):
        raise InvalidInputError(f"{what} must be one for each of {n} people, got shape {values.shape}.")
    if not ((values >= 0) & (values <= 1)).all():
        raise InvalidInputError(
            f"{what} must be probabilities in [0, 1], got values from {values.min():g} to {values.max():g}; "
            "convert them to probabilities first."
        )
    return values


def _labels(labels: ArrayLike, n: int) -> Ints:
    values = np.asarray(labels)
    if values.shape != (n,) or not np.isin(values, (0, 1)).all():
        raise InvalidInputError(f"`labels` must be 0 or 1 for each of {n} people, got shape {values.shape}.")
    return values.astype(np.int64)


def feature_matrix(X: ArrayLike | None, n: int, name: str) -> Floats:
    """Check the features that the measure `name` needs: a row for each person."""
    if X is None:
        raise InvalidInputError(f"`{name}` needs `X`, the features of each person, got None.")
    values = np.asarray(X, dtype=np.float64)
    if values.ndim != 2 or len(values) != n:
        raise InvalidInputError(f"`X` must have a row for each of {n} people, got shape {values.shape}.")
    if not np.isfinite(values).all():
        raise InvalidInputError("`X` must be finite, got missing or infinite values; fill them or drop those people.")
    return values
