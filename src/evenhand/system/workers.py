"""Local processes that run functions, for any script or notebook.

In Python's pools, each process reads the user's script again, which must then be guarded. joblib's do not, but their
processes outlive a killed parent by a minute, and ending them at once fails after a call was canceled. This file is
both sides of the pipe; as a program it is the side that runs functions.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, ParamSpec, TypeVar

from evenhand.system.processes import module_command, module_environment

__all__ = ["Workers"]

P = ParamSpec("P")
T = TypeVar("T")


class Workers(Executor):
    """An executor of processes with one thread each, which end with it, or with this process however it ends.

    Functions, their arguments and results must be importable; what they print goes to the error stream.

    Parameters
    ----------
    n_workers
        Largest number of processes; each is started when it is needed.
    """

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self._threads = ThreadPoolExecutor(n_workers)  # each waits for a process
        self._idle: queue.SimpleQueue[_Process] = queue.SimpleQueue()
        self._all: list[_Process] = []
        self._lock, self._is_ended = threading.Lock(), False

    @property
    def is_started(self) -> bool:
        """Whether there are processes already."""
        return bool(self._all)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a function in a process; the future raises `BrokenExecutor` if the process is lost."""
        return self._threads.submit(self._call, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for submitted work, then end the processes."""
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        if wait:
            self.end()

    def end(self) -> None:
        """End the processes at once, whatever they are doing."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._is_ended = True
        for process in self._all:
            process.end()
        self._threads.shutdown(wait=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for submitted work, unless the block ends with an error."""
        if kind is None:
            self.shutdown()
        else:
            self.end()

    def _call(self, fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        try:
            process = self._idle.get_nowait()
        except queue.Empty:
            process = self._started()
        found, error = process.call(fn, args, kwargs)
        self._idle.put(process)
        if error is not None:
            raise error
        result: T = found
        return result

    def _started(self) -> _Process:
        with self._lock:
            if self._is_ended:
                raise BrokenExecutor("the processes were ended")
            process = _Process()
            self._all.append(process)
            return process


class _Process:
    def __init__(self) -> None:
        found = os.pathsep.join(str(Path(folder).absolute()) for folder in sys.path)
        # Everything worth knowing is in the result. Ctrl-C only reaches the parent, which ends this one.
        self._running = subprocess.Popen(
            [sys.executable, "-W", "ignore", *module_command("evenhand.system.workers")[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=module_environment() | {"PYTHONPATH": found},
            start_new_session=True,
        )

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """What a function returns, or raises."""
        asks, answers = self._running.stdin, self._running.stdout
        assert asks is not None
        assert answers is not None
        try:
            pickle.dump((fn, args, kwargs), asks, pickle.HIGHEST_PROTOCOL)
            asks.flush()
            found: tuple[Any, Any] = pickle.load(answers)
        except (OSError, EOFError, pickle.UnpicklingError, ValueError) as error:
            code = self._running.wait()
            raise BrokenExecutor(f"process {self._running.pid} ended with code {code}") from error
        return found

    def end(self) -> None:
        self._running.kill()
        self._running.wait()
        for pipe in (self._running.stdin, self._running.stdout):
            assert pipe is not None
            with suppress(OSError):  # if something remained to be sent
                pipe.close()


def _serve(asks: IO[bytes], answers: IO[bytes]) -> None:
    """Run functions until no one asks anymore."""
    while True:
        try:
            fn, args, kwargs = pickle.load(asks)
        except EOFError:
            return
        found, error = None, None
        try:
            found = fn(*args, **kwargs)
        except Exception as raised:
            error = raised
        pickle.dump((found, error), answers, pickle.HIGHEST_PROTOCOL)
        answers.flush()


def _main() -> None:
    asks, answers = (os.fdopen(os.dup(number), mode) for number, mode in ((0, "rb"), (1, "wb")))
    # Work that reads or prints must not use the pipes.
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    with suppress(BrokenPipeError):  # the process that asked is gone
        _serve(asks, answers)


if __name__ == "__main__":
    _main()
