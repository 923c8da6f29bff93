"""Objects written once to a file that many processes open, without a copy of the arrays in each of them."""

from __future__ import annotations

import hashlib
import mmap
import pickle
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import IO, Any

import cloudpickle  # handles classes and functions of a script, which other processes cannot import
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.system.files import temporary_path

__all__ = ["Parcel", "opened", "parcel"]

_SMALLEST_APART = 4096  # bytes; smaller arrays are not worth a separate place in the file
_ALIGNMENT = 64  # bytes, as numpy and torch align what they allocate
_OPENING = Lock()


@dataclass(frozen=True)
class Parcel:
    """An object in a file.

    Attributes
    ----------
    path
        The file: arrays, followed by the pickled part.
    start
        Where the pickled part starts, in bytes.
    sha256
        SHA-256 of the pickled part, so that only what was written is unpickled.
    """

    path: Path
    start: int
    sha256: str

    def open(self) -> Any:  # noqa: ANN401 - the original object
        """The object; its arrays are in the file, and only pages that are written to are copied.

        Raises
        ------
        OSError
            If there is no such file.
        ValueError
            If it was changed.
        """
        with self.path.open("rb") as file:
            content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        pickled = content[self.start :]
        if hashlib.sha256(pickled).hexdigest() != self.sha256:
            raise ValueError(f"{str(self.path)!r} was changed after it was written")
        spans, value = pickle.loads(pickled)
        return pickle.loads(value, buffers=[content[first:last] for first, last in spans])


def opened(sent: Parcel) -> Any:  # noqa: ANN401 - the original object
    """On a worker: the object, opened once, by one of the worker's threads, and kept until a different one is opened.

    Raises
    ------
    OSError, ValueError
        As `Parcel.open` does.
    """
    with _OPENING:
        return _opened(sent)


@lru_cache(maxsize=1)
def _opened(sent: Parcel) -> Any:  # noqa: ANN401
    return sent.open()


@contextmanager
def parcel(value: Any, folder: Path) -> Iterator[Parcel]:  # noqa: ANN401
    """Write an object to a file that is removed at the end of the block.

    Raises
    ------
    Exception
        Any error, if something in the object cannot be pickled.
    """
    path = temporary_path(folder / "parcel")
    try:
        path.touch(mode=0o600, exist_ok=False)
        with path.open("wb") as file:
            pickler = _Pickler(file)
            pickler.dump(value)
            start = file.tell()
            pickled = pickle.dumps((pickler.spans, pickler.stream.getvalue()))
            file.write(pickled)
        yield Parcel(path.absolute(), start, hashlib.sha256(pickled).hexdigest())
    finally:
        with suppress(PermissionError):  # on Windows, while a worker of a different pool has it open
            path.unlink(missing_ok=True)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc] # has no types
    """Write large arrays, and the memory of tensors, to a file as they are found."""

    def __init__(self, file: IO[bytes]) -> None:
        self.stream = BytesIO()
        self.spans: list[tuple[int, int]] = []
        self._file = file
        self._memories: dict[int, NDArray[np.uint8]] = {}
        super().__init__(self.stream, protocol=5, buffer_callback=self._is_kept_inside)

    def reducer_override(self, obj: Any) -> Any:  # noqa: ANN401
        if type(obj) is Tensor and _is_plain(obj):
            storage = obj.untyped_storage()
            # Tensors that share memory continue to share it: a repeated array is not written again.
            memory = self._memories.setdefault(
                storage.data_ptr(), torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
            )
            return _tensor, (memory, obj.dtype, obj.storage_offset(), tuple(obj.shape), obj.stride())
        return super().reducer_override(obj)

    def _is_kept_inside(self, buffer: pickle.PickleBuffer) -> bool:
        content = buffer.raw()
        if content.nbytes < _SMALLEST_APART:
            return True
        self._file.write(bytes(-self._file.tell() % _ALIGNMENT))
        first = self._file.tell()
        self._file.write(content)
        self.spans.append((first, first + content.nbytes))
        return False


def _is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is fully described by its memory, type and strides."""
    is_dense = tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
    return is_dense and not (tensor.requires_grad or tensor.is_conj() or tensor.is_neg()) and not tensor.__dict__


def _tensor(
    memory: NDArray[np.uint8], dtype: torch.dtype, offset: int, shape: tuple[int, ...], stride: tuple[int, ...]
) -> Tensor:
    return torch.empty(0, dtype=dtype).set_(torch.from_numpy(memory).untyped_storage(), offset, shape, stride)
