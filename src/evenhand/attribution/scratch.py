"""Memory that a computation takes up again for the next people, so that it stays in the processor's cache."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

__all__ = ["Scratch", "room"]


@dataclass(frozen=True, eq=False)
class Scratch:
    """Tensors by name and shape; one scratch for each thread.

    New memory is mapped page by page when it is first written to, which takes longer than the sums that are written.
    """

    _held: dict[tuple[str, torch.Size], Tensor] = field(default_factory=dict)

    def take(self, name: str, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The tensor of a name and a shape, with whatever was last written to it."""
        key = (name, torch.Size(shape))
        if key not in self._held:
            self._held[key] = like.new_empty(shape)
        return self._held[key]


def room(scratch: Scratch | None, name: str, like: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """The `out` of an operation: a tensor of the scratch, or None, without one, for new memory.

    Examples
    --------
    >>> x, scratch = torch.ones(2), Scratch()
    >>> first, second = (torch.add(x, k, out=room(scratch, "sum", x, x.shape)) for k in (1, 2))
    >>> first is second, room(None, "sum", x, x.shape)
    (True, None)
    """
    return None if scratch is None else scratch.take(name, like, shape)
