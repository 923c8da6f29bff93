"""How much people influence an estimate, and so what two estimates of the same people have in common.

An estimate's error is a sum over rows (pairs or triples) of a residual times a weight. Summed over the rows that
contain a person, it is that person's influence. People are assigned to a fixed number of buckets by who they are, so
the influences of millions take no more space than those of a thousand; the correlation of two estimates is that of
their sums by bucket. People who share a bucket by chance add noise, but no bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.metrics.clustering import Part, Parts, Question
from evenhand.metrics.excess import ExcessMoments
from evenhand.metrics.sharing import Gathered, placed

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


def bucket_sums(values: Tensor, *buckets: Tensor) -> Tensor:
    """Sums of the rows of `values` over the buckets of each of their people, of shape (N_BUCKETS, n_columns).

    Examples
    --------
    >>> found = bucket_sums(torch.tensor([[1.0], [2.0]]), torch.tensor([0, 1]), torch.tensor([3, 0]))
    >>> found[[0, 1, 3], 0].tolist()
    [3.0, 2.0, 1.0]
    """
    rows = torch.arange(len(values), device=values.device).repeat(len(buckets))
    return Gathered(torch.cat(buckets), N_BUCKETS, rows=rows).sums(values)


def excess_influence(
    questions: Sequence[tuple[Question[P], int]],
    parts: Parts[P],
    reference_buckets: Ints,
    device: torch.device | None = None,
) -> list[Floats]:
    """Influences of people on excesses, for each question of shape (N_BUCKETS, n_columns); no columns without people.

    Parameters
    ----------
    questions
        What is averaged, and how many of its first columns are wanted.
    parts
        The triples, which are iterated over twice.
    reference_buckets
        Bucket of each person of the reference.
    device
        Where sums are taken; None for the CPU.
    """
    place = device or torch.device("cpu")
    moments: list[ExcessMoments | None] = [None] * len(questions)
    for part in parts.parts():
        for k, (question, n_columns) in enumerate(questions):
            chosen, before = question.of(part).first(n_columns), moments[k]
            there = chosen.on(place)
            more = ExcessMoments.of(there.share, there.control, there.difference.double(), chosen.n_people)
            moments[k] = more if before is None else before + more
    fits = [None if one is None or round(one.n_people) < 1 else one.fit() for one in moments]
    found = [
        torch.zeros((N_BUCKETS, 0 if fit is None else len(fit.values)), dtype=torch.float64, device=place)
        for fit in fits
    ]
    buckets = placed(reference_buckets, place)
    for part in parts.parts():
        columns = (part.bucket, part.other, part.own)
        own, other, placebo = (placed(codes, place, torch.int64) for codes in columns)
        everyone = (own, buckets[other], buckets[placebo])
        for (question, n_columns), fit, total in zip(questions, fits, found, strict=True):
            if fit is not None:
                there = question.of(part).first(n_columns).on(place)
                residual = fit.residuals(there.share, there.control, there.difference.double())
                total += bucket_sums(there.spread(residual, len(part)), *everyone)
    return [total.cpu().numpy() for total in found]


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

    is its square, with r the correlation of the influences about 0, which is their mean. It is 0 for two identical
    estimates, and the sum of the variances if nothing is in common.

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
