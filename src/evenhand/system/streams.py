"""Output of a command whose reader may have gone."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["outlive_readers"]


class _Outlet(io.FileIO):
    """A file that accepts output although its reader has gone."""

    def write(self, content: ReadableBuffer, /) -> int:
        try:
            return super().write(content)
        except BrokenPipeError:
            return memoryview(content).nbytes


def outlive_readers() -> None:
    """Continue after the reader of a pipe, such as `head`, has gone: later output is lost, the exit code is not.

    Click and rich both end the process with code 1, which says that a gate was crossed.
    """
    sys.stdout, sys.stderr = _without_reader(sys.stdout), _without_reader(sys.stderr)


def _without_reader(stream: TextIO) -> TextIO:
    """The stream, or one to the same file that outlives its reader; a stream that a program replaced stays."""
    if type(stream) is not io.TextIOWrapper:
        return stream
    raw = getattr(stream.buffer, "raw", stream.buffer)  # PYTHONUNBUFFERED leaves the buffer out
    if type(raw) is not io.FileIO:
        return stream
    stream.flush()
    outlet = _Outlet(stream.fileno(), "wb", closefd=False)
    return io.TextIOWrapper(
        outlet if raw is stream.buffer else io.BufferedWriter(outlet),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
