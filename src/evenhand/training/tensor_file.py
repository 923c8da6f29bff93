"""Tensors and text as the bytes of a safetensors file, the same bytes for the same content."""

from __future__ import annotations

import json

from safetensors.torch import save
from torch import Tensor

__all__ = ["tensor_bytes"]

_LENGTH_BYTES = 8  # size of the header's length, and the multiple to which the header is padded


def tensor_bytes(tensors: dict[str, Tensor], metadata: dict[str, str]) -> bytes:
    """What `safetensors.torch.save` writes, with the header's keys sorted, because the library's order is random.

    Examples
    --------
    >>> import torch
    >>> contents = {tensor_bytes({"x": torch.zeros(2)}, {"a": "1", "b": "2", "c": "3"}) for _ in range(9)}
    >>> len(contents)
    1
    """
    content = save({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata)
    end = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
    ordered = json.dumps(json.loads(content[_LENGTH_BYTES:end]), sort_keys=True, separators=(",", ":"))
    header = ordered.encode()
    header += b" " * (-len(header) % _LENGTH_BYTES)
    return len(header).to_bytes(_LENGTH_BYTES, "little") + header + content[end:]
