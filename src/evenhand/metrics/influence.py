"""How much people move an estimate: what two estimates of the same people have in common.

An estimate's error is a sum over rows (pairs or triples) of a residual times a weight. Added up over the rows that
contain a person, it is that person's influence. People are put into a fixed number of buckets by who they are, so that
the influences of millions take no more room than those of a thousand; the correlation of two estimates is that of
their sums by bucket. People who share a bucket by chance add noise to it and no bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from evenhand.metrics.clustering import Part, Parts, Question, Selection
from evenhand.metrics.excess import ExcessMoments

__all__ = ["N_BUCKETS", "PartOfPeople", "bucket_sums", "excess_influence", "folded", "standard_error_of_difference"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

N_BUCKETS = 1024


class PartOfPeople(Part, Protocol):
    """Triples whose people are in buckets."""

    @property
    def bucket(self) -> Ints:
        """Bucket of the person."""


P = TypeVar("P", bound=PartOfPeople)


def bucket_sums(values: Floats, *buckets: Ints) -> Floats:
    """Sums of the rows of `values` over the buckets of each of their people, of shape (N_BUCKETS, n_columns).

    Examples
    --------
    >>> found = bucket_sums(np.array([[1.0], [2.0]]), np.array([0, 1]), np.array([3, 0]))
    >>> found[[0, 1, 3], 0]
    array([3., 2., 1.])
    """
    code = np.concatenate(buckets)
    return np.column_stack(
        [np.bincount(code, np.tile(column, len(buckets)), minlength=N_BUCKETS) for column in values.T]
    ).astype(np.float64)


def excess_influence(
    questions: Sequence[tuple[Question[P], int]], parts: Parts[P], reference_buckets: Ints
) -> list[Floats]:
    """Influences of people on excesses, for each question of shape (N_BUCKETS, n_columns); no column without people.

    Parameters
    ----------
    questions
        What is averaged, and how many of its columns, from the first, are wanted.
    parts
        The triples, gone through twice.
    reference_buckets
        Bucket of each person of the reference.
    """
    moments: list[ExcessMoments | None] = [None] * len(questions)
    for part in parts.parts():
        for k, (question, n_columns) in enumerate(questions):
            chosen, before = question.of(part), moments[k]
            more = ExcessMoments.of(chosen.share, chosen.control, _columns(chosen, n_columns), chosen.n_people)
            moments[k] = more if before is None else before + more
    fits = [None if one is None or round(one.n_people) < 1 else one.fit() for one in moments]
    found = [np.zeros((N_BUCKETS, 0 if fit is None else len(fit.values))) for fit in fits]
    for part in parts.parts():
        for (question, n_columns), fit, total in zip(questions, fits, found, strict=True):
            if fit is not None:
                chosen = question.of(part)
                residual = fit.residuals(chosen.share, chosen.control, _columns(chosen, n_columns)).numpy()
                rows = slice(None) if chosen.rows is None else chosen.rows
                others = (reference_buckets[part.other[rows]], reference_buckets[part.own[rows]])
                total += bucket_sums(residual, part.bucket[rows], *others)
    return found


def _columns(chosen: Selection, n_columns: int) -> Floats:
    return chosen.difference[:, :n_columns].astype(np.float64)


def folded(values: NDArray[np.floating], n_buckets: int) -> Floats:
    """Influences in fewer buckets, whose number divides theirs.

    Examples
    --------
    >>> folded(np.array([1.0, 2.0, 3.0, 4.0]), 2)
    array([4., 6.])
    """
    found: Floats = values.astype(np.float64).reshape(-1, n_buckets).sum(axis=0)
    return found


def standard_error_of_difference(
    first_error: float, second_error: float, first: NDArray[np.floating], second: NDArray[np.floating]
) -> float:
    r"""Standard error of the difference of two estimates of the same people.

    .. math:: (s_1 - s_2)^2 + 2 s_1 s_2 (1 - r)

    is its square, with r the correlation of the influences, taken about 0, where they have their mean. It is 0 for two
    estimates that are one and the same, and the sum of the variances where nothing is in common.

    Parameters
    ----------
    first_error, second_error
        Standard errors of the two.
    first, second
        Their influences by bucket, up to a factor; one may be in fewer buckets, as `folded` makes them.

    Examples
    --------
    >>> influence = np.array([1.0, -2.0, 1.0])
    >>> standard_error_of_difference(0.3, 0.3, influence, influence * 4)
    0.0
    >>> standard_error_of_difference(0.3, 0.4, influence, np.array([1.0, 1.0, 1.0]))
    0.5
    """
    n_buckets = min(len(first), len(second))
    own, other = (folded(values, n_buckets) for values in (first, second))
    size, other_size = float(np.sqrt(own @ own)), float(np.sqrt(other @ other))
    if size == 0 or other_size == 0:
        return float(np.hypot(first_error, second_error))
    apart = own / size - other / other_size  # squares to 2 (1 - r), and is exactly 0 for equal influences
    return float(np.sqrt((first_error - second_error) ** 2 + first_error * second_error * (apart @ apart)))
