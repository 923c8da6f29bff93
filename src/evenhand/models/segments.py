"""How many segments the paths of integrated gradients need: measured on people of the reference beforehand.

More segments are closer to the integral, and halving their length at least halves the error. So with N segments, many
more than needed, the error of n is at most |IG(n) - IG(N)| + |IG(N) - IG(N / 2)|, by the triangle inequality; the
last term bounds the error of N segments.
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
"""Number of segments for networks that do not reach the error with fewer."""

ERROR = 0.001
"""Largest error of attributions, as a share of their size."""

_TRIED = (2, 3, 4, 5, 6)
_FINE = 64
_TRIED_PEOPLE = 1024
_STANDARD_ERRORS = 3.0  # by which the mean over everyone may exceed the mean over those tested


@dataclass(frozen=True)
class Segments:
    """Number of segments of every path, and a bound on the mean error of attributions as a share of their size.

    Attributes
    ----------
    n
        Number of segments.
    error
        None if paths are not integrated by segments.
    """

    n: int
    error: float | None = None


def needed_segments(explainer: Explainer, x: Tensor, cells: Ints, asked: int | None = None) -> Segments:
    """The fewest segments, at most 8, whose error is below 0.1%; or the requested number, and its error.

    Parameters
    ----------
    explainer
        Explainer of the model.
    x, cells
        Encoded people of the reference, and the cells they are explained from.
    asked
        The requested number; None to choose.
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
