"""Memory that a computation reuses for the next people, so that it stays in the processor's cache."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

__all__ = ["Scratch", "room"]


@dataclass(frozen=True, eq=False)
class Scratch:
    """Tensors by name, of any shape; one scratch for each thread.

    New memory is mapped page by page when it is first written, which takes longer than computing the sums.
    """

    _held: dict[tuple[str, torch.dtype], Tensor] = field(default_factory=dict)

    def take(self, name: str, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        """A tensor with a given shape in the memory of a name, with whatever was last written there."""
        n = math.prod(shape)
        held = self._held.get((name, like.dtype))
        if held is None or held.numel() < n:
            held = self._held[name, like.dtype] = like.new_empty(n)
        return held[:n].view(shape)


def room(scratch: Scratch | None, name: str, like: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """The `out` of an operation: a tensor of the scratch, or, without one, None for new memory.

    Examples
    --------
    >>> x, scratch = torch.ones(2), Scratch()
    >>> first, second = (torch.add(x, k, out=room(scratch, "sum", x, x.shape)) for k in (1, 2))
    >>> first.data_ptr() == second.data_ptr(), room(None, "sum", x, x.shape)
    (True, None)
    """
    return None if scratch is None else scratch.take(name, like, shape)
