"""How many segments the paths of integrated gradients need: tried out on people of the reference beforehand.

More segments are closer to the integral, and halving their length at least halves the error. So with N segments, many
more than are needed, the error of n is at most |IG(n) - IG(N)| + |IG(N) - IG(N / 2)|: the triangle inequality, and the
last term for what N segments themselves miss.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.models.explaining import Explainer

__all__ = ["MOST_SEGMENTS", "Segments", "needed_segments"]

Ints = NDArray[np.int64]

MOST_SEGMENTS = 8
"""Segments of networks that do not reach the error with fewer."""

ERROR = 0.001
"""Error of attributions to stay below, as a share of their size."""

_TRIED = (2, 3, 4, 5, 6)
_FINE = 64
_TRIED_PEOPLE = 1024
_STANDARD_ERRORS = 3.0  # that the mean over everyone may be above the mean over those tried


@dataclass(frozen=True)
class Segments:
    """Segments of every path, and a bound on the mean error of attributions as a share of their size.

    Attributes
    ----------
    n
        Number of segments.
    error
        None where paths are not integrated by segments.
    """

    n: int
    error: float | None = None


def needed_segments(explainer: Explainer, x: Tensor, cells: Ints, asked: int | None = None) -> Segments:
    """The fewest segments, at most 8, whose error is below 0.1 %; or the number asked for, and its error.

    Parameters
    ----------
    explainer
        Of the model.
    x, cells
        Encoded people of the reference, and the cells that they are explained from.
    asked
        Number that the user wants; None to choose.
    """
    rows = explainer.spread_people(cells, _TRIED_PEOPLE)
    most = asked or MOST_SEGMENTS
    if explainer.model.attribution != "integrated_gradients" or explainer.method != "segments" or not len(rows):
        return Segments(most)
    people, starts = x[rows], cells[rows]
    coarsest = replace(explainer, n_steps=_TRIED[0]).explain(people, starts)
    if coarsest.method != "segments":  # a module that is not a chain of layers
        return Segments(most)

    def found(n: int) -> Tensor:
        return replace(explainer, n_steps=n).explain(people, starts).values.double()

    n_fine = max(_FINE, 4 * most)
    fine = found(n_fine)
    size, rest = fine.norm(dim=-1), (fine - found(n_fine // 2)).norm(dim=-1)

    def error(n: int) -> float:
        values = coarsest.values.double() if n == _TRIED[0] else found(n)
        shares = (((values - fine).norm(dim=-1) + rest) / size)[size > 0].cpu().numpy()
        rounding = float(torch.finfo(x.dtype).eps)
        if not len(shares):
            return rounding
        return float(shares.mean() + _STANDARD_ERRORS * shares.std() / np.sqrt(len(shares))) + rounding

    for n in () if asked else _TRIED:
        if (bound := error(n)) <= ERROR:
            return Segments(n, bound)
    return Segments(most, error(most))
