"""Work done in a copy of this process: its imports are made once, and whatever it does ends with it.

The processes in which evenhand opens model files are copies, too. They run the same code under the same limits; only
the imports, which take most of the time of a process, are there already.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from evenhand.models import onnx_process
from evenhand.system import processes

__all__ = ["Ended", "copied_processes", "in_a_copy"]

_FAILED = 3
_MOST_MEMORY = 8 * 2**30  # of addresses, so that more than 4 GB can be seen and the machine is not filled
_LOADED = 2**29  # of addresses: what libraries take at least in a process that opens a file, out of its limit


@dataclass(frozen=True)
class Ended:
    """How a copy ended.

    Attributes
    ----------
    answer
        What the work returned, through JSON; None where it did not return.
    error
        The traceback, "signal" with its number, or "time"; empty where it returned.
    seconds, peak
        Time and most memory in use, in bytes, of the copy and of the processes that it started.
    """

    answer: Any
    error: str
    seconds: float
    peak: int


def in_a_copy(work: Callable[[], Any], seconds: float) -> Ended:
    """Do the work in a copy of this process, and stop it with all that it started when time is over."""
    reading, writing = os.pipe()
    begun = time.perf_counter()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _work(work, writing)
    os.close(writing)
    content, is_late = _received(reading, begun + seconds)
    if is_late:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    took = time.perf_counter() - begun
    with contextlib.suppress(ProcessLookupError):  # what it left behind
        os.killpg(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(status)
    error = "time" if is_late else "" if code == 0 else content.decode() if code == _FAILED else f"signal {-code}"
    answer = json.loads(content) if not error else None
    return Ended(answer, error, took, used.ru_maxrss * 1024)


def _work(work: Callable[[], Any], writing: int) -> None:
    os.setsid()
    limit = _addresses() + _MOST_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    try:
        said, code = json.dumps(work()).encode(), 0
    except BaseException:
        said, code = traceback.format_exc().encode(errors="replace"), _FAILED
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(said)
    os._exit(code)


def _received(reading: int, until: float) -> tuple[bytes, bool]:
    """What comes through a pipe, and whether its end did not come in time."""
    content = b""
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while True:
            if not select.select([pipe], [], [], max(0.0, until - time.perf_counter()))[0]:
                return content, True
            part = pipe.read(1 << 16)
            if not part:
                return content, False
            content += part


def _addresses() -> int:
    """Bytes of addresses that this process has: libraries take gigabytes of them and little memory."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


@contextlib.contextmanager
def copied_processes() -> Iterator[None]:
    """Let evenhand open and score model files in copies of this process, each with its limit of memory."""
    taken = _addresses() - _LOADED
    scores = SimpleNamespace(
        Popen=_Copy, PIPE=subprocess.PIPE, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired
    )
    with (
        patch.object(processes, "_answered", _answered),
        patch.object(onnx_process, "subprocess", scores),
        patch.object(processes, "_MEMORY", processes._MEMORY + taken),
        patch.object(onnx_process, "_MEMORY", onnx_process._MEMORY + taken),
    ):
        yield


def _answered(request: bytes, seconds: float | None) -> tuple[int | None, bytes]:
    """In place of the process with limits that reads a file."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(processes.answer(request))
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    content, is_late = _received(reading, time.perf_counter() + (seconds or 600))
    if is_late:
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return None if is_late else code, content


class _Copy:
    """In place of `subprocess.Popen`, for the process that scores an ONNX model."""

    def __init__(self, command: list[str], **_: object) -> None:
        asked, answered = os.pipe(), os.pipe()
        self._pid, self._code = os.fork(), None
        if self._pid == 0:
            try:
                os.dup2(asked[0], 0)
                os.dup2(answered[1], 1)
                for descriptor in (*asked, *answered):
                    os.close(descriptor)
                sys.stdin, sys.stdout = os.fdopen(0, "r"), os.fdopen(1, "w")
                onnx_process._main(command[-1])
            finally:
                os._exit(0)
        os.close(asked[0])
        os.close(answered[1])
        self.stdin, self.stdout = os.fdopen(asked[1], "wb"), os.fdopen(answered[0], "rb")

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)

    def wait(self) -> int:
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self._code

    def communicate(self) -> None:
        self.wait()
        for stream in (self.stdin, self.stdout):
            with contextlib.suppress(OSError):
                stream.close()
