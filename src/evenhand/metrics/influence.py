"""How much people influence an estimate, and so what two estimates of the same people have in common.

An estimate's error is a sum over rows (pairs or triples) of a residual times a weight. Summed over the rows that
contain a person, it is that person's influence. People are assigned to a fixed number of buckets by who they are, so
the influences of millions take no more space than those of a thousand; the correlation of two estimates is that of
their sums by bucket. People who share a bucket by chance add noise, but no bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.arrays import Floats, Ints
from evenhand.metrics.excess import excess_moments
from evenhand.metrics.sharing import Gathered, placed
from evenhand.metrics.triples import Parts, Question, Selection, Triples
from evenhand.system.threads import ONE_THREAD, Crew

N_BUCKETS = 1024


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


@dataclass(frozen=True)
class _First:
    """A question with no more than its first columns."""

    question: Question
    n_columns: int

    def of(self, part: Triples) -> Selection:
        """The selection of one part."""
        return self.question.of(part).only(slice(self.n_columns))


def excess_influence(
    questions: Sequence[tuple[Question, int]],
    parts: Parts,
    reference_buckets: Ints,
    device: torch.device | None = None,
    crew: Crew = ONE_THREAD,
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
    crew
        Who works on parts at the same time; the influences are the same to the last bit for any.
    """
    place = device or torch.device("cpu")
    wanted = [_First(question, n_columns) for question, n_columns in questions]
    fits = [
        None if one is None or round(one.n_people) < 1 else one.fit()
        for one in excess_moments(wanted, parts, crew, place)
    ]
    buckets = placed(reference_buckets, place)

    def of_part(part: Triples) -> list[Tensor]:
        columns = (part.bucket, part.other, part.own)
        own, other, placebo = (placed(codes, place, torch.int64) for codes in columns)
        found = []
        for question, fit in zip(wanted, fits, strict=True):
            n_columns = 0 if fit is None else question.n_columns
            residual = torch.zeros((len(part), n_columns), dtype=torch.float64, device=place)
            if fit is not None:
                there = question.of(part).on(place)
                there.spread(fit.residuals(there.share, there.control, there.difference), residual)
            found.append(bucket_sums(residual, own, buckets[other], buckets[placebo]))
        return found

    totals = [
        np.zeros((N_BUCKETS, 0 if fit is None else question.n_columns))
        for question, fit in zip(wanted, fits, strict=True)
    ]
    for sums in crew.in_order(of_part, parts.parts()):
        for total, more in zip(totals, sums, strict=True):
            total += more.cpu().numpy()
    return totals


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
