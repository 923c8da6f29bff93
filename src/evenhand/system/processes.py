"""Processes: pools that run functions, objects that they share, and limits for modules that open hostile files.

Neither Python's pools nor joblib's: in the former, each process runs the user's script again, which must then be
guarded; the latter outlive a killed parent by a minute, and ending them at once fails after a call was canceled. The
pools unpickle what their processes answer, so files that may be hostile are read by `run_limited`, in a process with
limits on memory and time that answers with plain data.

As a program, this file is such a process. It imports no torch, which processes that open files do not need.
"""

from __future__ import annotations

import copyreg
import hashlib
import json
import math
import mmap
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, ParamSpec, TypeVar

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from evenhand import exceptions
from evenhand.exceptions import EvenhandError, LimitError, first_line
from evenhand.system.files import temporary_path
from evenhand.system.threads import (
    Later,
    Threads,
    consumed_in_order,
    keep_freed_memory,
    on_this_core,
    one_thread_each,
    quick_imports,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module without importing anything from the working folder."""
    return [sys.executable, "-P", "-m", module, *arguments]


def module_environment() -> dict[str, str]:
    """The environment of such a process: this package is found, and libraries use one thread."""
    known = [str(Path(__file__).parents[2]), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return os.environ | _ONE_THREAD | {"PYTHONPATH": os.pathsep.join(known)}


_MEMORY, _MEMORY_PER_BYTE = 4 << 30, 20  # address space, because a damaged length may ask for any size
_SECONDS, _SECONDS_PER_MB = 30.0, 1.0  # of computing; an undamaged file takes far less
_PATIENCE = 4  # times the computing time, because the machine may be busy
_TIME_IS_OVER = getattr(signal, "SIGXCPU", None)  # Windows does not have it


def limit_resources(memory: int | None = None, seconds: float | None = None) -> None:
    """Limit the address space of this process and its computing time from now on, where the system can.

    Time spent waiting for a busy machine does not count. A process whose time is over ends by the signal SIGXCPU. It
    leaves no core file.
    """
    try:
        import resource
    except ImportError:  # not on Windows
        return
    limits: dict[int, float] = {resource.RLIMIT_CORE: 0}
    if memory is not None:
        limits[resource.RLIMIT_AS] = memory
    if seconds is not None:
        limits[resource.RLIMIT_CPU] = math.ceil(time.process_time() + seconds)
    for what, limit in limits.items():
        hard = resource.getrlimit(what)[1]
        resource.setrlimit(what, (int(limit) if hard == resource.RLIM_INFINITY else min(int(limit), hard), hard))


def run_limited(function: str, *arguments: Any, size: int | None) -> Any:
    """What a function returns that reads a file which may be damaged or hostile, in a process with limits.

    Parameters
    ----------
    function
        Its module and name, such as "evenhand.models.files.worker:read". It takes and returns what JSON can hold.
    *arguments
        Its arguments.
    size
        Size of the file, on which the limits depend; None for a table in a store: it may take half of the memory of
        this machine, and its time is limited by the function.

    Raises
    ------
    LimitError
        If the process crashed, or took too much time or memory: "crashed while reading it (signal 11)".
    EvenhandError, OSError, RuntimeError
        What the function raised: errors of ours and of the operating system, others as a `RuntimeError` that names
        them.
    """
    seconds = _SECONDS + _SECONDS_PER_MB * (size or 0) / 2**20
    memory = _MEMORY + _MEMORY_PER_BYTE * size if size is not None else max(_MEMORY, physical_memory() // 2)
    request = json.dumps([function, memory, seconds, *arguments]).encode()
    code, answer = _answered(request, None if size is None else _PATIENCE * seconds)
    if code is None or -code == _TIME_IS_OVER:
        raise LimitError(f"was still reading it after {seconds:.0f} seconds")
    if code or not answer:
        raise LimitError(f"crashed while reading it ({f'signal {-code}' if code < 0 else f'exit code {code}'})")
    value, error = json.loads(answer)
    if error is not None:
        raise error_of(error)
    return value


def _answered(request: bytes, seconds: float | None) -> tuple[int | None, bytes]:
    """How a process ended, None if it did not in time, and what it answered."""
    running = _READY.pop() if _READY else _limited()
    try:
        found, _ = running.communicate(request, timeout=seconds)
    except subprocess.TimeoutExpired:
        _end(running)
        return None, b""
    except BaseException:
        _end(running)
        raise
    return running.returncode, found


_READY: list[subprocess.Popen[bytes]] = []


def _limited(*preparation: str) -> subprocess.Popen[bytes]:
    command = module_command("evenhand.system.processes", "limited", *preparation)
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere, env=module_environment())


def _end(running: subprocess.Popen[bytes]) -> None:
    running.kill()
    running.communicate()


@contextmanager
def ready(preparation: str, *arguments: str) -> Iterator[None]:
    """Start the process of the next `run_limited` at once; until it is asked, it calls a function that imports.

    Parameters
    ----------
    preparation
        The function's module and name.
    *arguments
        Its arguments.
    """
    running = _limited(preparation, *arguments)
    _READY.append(running)
    try:
        yield
    finally:
        if running in _READY:
            _READY.remove(running)
            _end(running)


def answer(request: bytes) -> bytes:
    """In a process with limits: what the requested function returns or raises."""
    function, memory, seconds, *arguments = json.loads(request)
    limit_resources(memory, seconds)
    try:
        return json.dumps([_named(function)(*arguments), None]).encode()
    except MemoryError:
        return json.dumps([None, described(LimitError("asks for more memory than a file of its size needs"))]).encode()
    except Exception as error:  # whatever a library raises
        return json.dumps([None, described(error)]).encode()


def _named(function: str) -> Callable[..., Any]:
    module, _, name = function.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found


def described(error: Exception) -> dict[str, Any]:
    """An error as plain data, which other processes and machines send instead of the object."""
    kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == exceptions.__name__]
    is_ours, number = bool(kinds), getattr(error, "errno", None)
    return {
        "kind": kinds[0] if is_ours else type(error).__name__,
        "message": str(error) if is_ours else getattr(error, "strerror", None) or first_line(error),
        "errno": number if isinstance(number, int) and not is_ours else None,
        "file": str(getattr(error, "filename", None) or ""),
        "notes": list(getattr(error, "__notes__", ())),
    }


def error_of(sent: Any) -> Exception:
    """The error that was described: one of ours, of the operating system, or a `RuntimeError` that names its kind.

    Examples
    --------
    >>> error_of(described(KeyError("income")))
    RuntimeError("KeyError: 'income'")
    """
    kind, message = str(sent["kind"]), str(sent["message"])
    known: Any = getattr(exceptions, kind, None)
    error: Exception = RuntimeError(f"{kind}: {message}")
    if isinstance(known, type) and issubclass(known, EvenhandError):
        error = known(message)
    elif isinstance(sent["errno"], int):
        error = OSError(sent["errno"], message, str(sent["file"]) or None)
    for note in sent["notes"]:
        error.add_note(str(note))
    return error


def physical_memory() -> int:
    """Bytes of memory of this machine; 0 where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on Windows
        return 0


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
            with self._lock:
                if self._is_ended:
                    raise BrokenExecutor("the processes were ended") from None
                process = _Process()
                self._all.append(process)
        result: T
        result, error = process.call(fn, args, kwargs)
        self._idle.put(process)
        if error is not None:
            raise error
        return result


class _Process:
    def __init__(self) -> None:
        known = os.pathsep.join(str(Path(folder).absolute()) for folder in sys.path)
        # Everything worth knowing is in the result. Ctrl-C only reaches the parent, which ends this one.
        self._running = subprocess.Popen(
            [sys.executable, "-W", "ignore", *module_command("evenhand.system.processes")[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=module_environment() | {"PYTHONPATH": known},
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
            answer: tuple[Any, Any] = pickle.load(answers)
        except (OSError, EOFError, pickle.UnpicklingError, ValueError) as error:
            code = self._running.wait()
            raise BrokenExecutor(f"process {self._running.pid} ended with code {code}") from error
        return answer

    def end(self) -> None:
        self._running.kill()
        self._running.wait()
        for pipe in (self._running.stdin, self._running.stdout):
            assert pipe is not None
            with suppress(OSError):  # if something remained to be sent
                pipe.close()


def _main(*way: str) -> None:
    """Answer one request, or run functions until no one asks anymore."""
    asks, answers = (os.fdopen(os.dup(number), mode) for number, mode in ((0, "rb"), (1, "wb")))
    # Work that reads or prints must not use the pipes.
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    if way:
        if way[1:]:
            with quick_imports():
                _named(way[1])(*way[2:])
        with answers:
            answers.write(answer(asks.read()))
        os._exit(0)  # the process that asked waits for the end of this one, and modules take long to take down
    with suppress(EOFError, BrokenPipeError):  # the process that asked is gone
        while True:
            fn, args, kwargs = pickle.load(asks)
            result, error = None, None
            try:
                result = fn(*args, **kwargs)
            except Exception as raised:
                error = raised
            pickle.dump((result, error), answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()


_SMALLEST_APART = 4096  # bytes; smaller arrays are not worth a separate place in the file
_ALIGNMENT = 64  # bytes, as numpy and torch align what they allocate
_OPENING = threading.Lock()


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

    def open(self) -> Any:
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


def opened(sent: Parcel) -> Any:
    """On a worker: the object, opened once, by one of the worker's threads, and kept until a different one is opened.

    Raises
    ------
    OSError, ValueError
        As `Parcel.open` does.
    """
    with _OPENING:
        return _opened(sent)


@lru_cache(maxsize=1)
def _opened(sent: Parcel) -> Any:
    return sent.open()


@contextmanager
def parcel(value: Any, folder: Path) -> Iterator[Parcel]:
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
    """Write large arrays, and the memory of tensors, to a file as they are met."""

    def __init__(self, file: IO[bytes]) -> None:
        self.stream = BytesIO()
        self.spans: list[tuple[int, int]] = []
        self._file = file
        self._memories: dict[int, NDArray[np.uint8]] = {}
        super().__init__(self.stream, protocol=5, buffer_callback=self._is_kept_inside)

    def reducer_override(self, obj: Any) -> Any:
        if (torch := sys.modules.get("torch")) and type(obj) is torch.Tensor and _is_plain(obj):
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
    is_dense = str(tensor.layout) == "torch.strided" and tensor.device.type == "cpu" and not tensor.is_quantized
    return is_dense and not (tensor.requires_grad or tensor.is_conj() or tensor.is_neg()) and not tensor.__dict__


def _tensor(
    memory: NDArray[np.uint8], dtype: torch.dtype, offset: int, shape: tuple[int, ...], stride: tuple[int, ...]
) -> Tensor:
    import torch

    return torch.empty(0, dtype=dtype).set_(torch.from_numpy(memory).untyped_storage(), offset, shape, stride)


_AHEAD = 2  # items begun beyond one for each process: bounds memory


@dataclass(frozen=True, eq=False)
class Processes:
    """Processes of a pool: a `Crew`. Sent to a process, it is a single thread there.

    A function and what it refers to are written to a file that all processes open, so it may be large, but must not
    depend on this process. Items and results travel one by one.

    Attributes
    ----------
    pool
        The processes; each computes on one core.
    folder
        Where the file is written.
    """

    pool: Workers
    folder: Path

    def in_order(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Results of a function in the order of the items; only a few wait to be consumed.

        Raises
        ------
        BrokenExecutor
            If a process is lost.
        """
        work: Callable[[Any], R] = function
        todo: Iterable[Any] = items
        if isinstance(items, Later):
            work, todo = items.then(function), items.keys
        with parcel(work, self.folder) as sent:
            most = self.pool.n_workers + _AHEAD
            yield from consumed_in_order(lambda item: self.pool.submit(_result, sent, item), todo, most)

    def __reduce__(self) -> tuple[type[Threads], tuple[()]]:
        return Threads, ()


def _result(sent: Parcel, item: Any) -> Any:
    """In a process: what the function returns."""
    keep_freed_memory()
    try:
        work = opened(sent)  # which imports torch if it needs it
        if torch := sys.modules.get("torch"):  # its own way copies a result several times
            copyreg.pickle(torch.Tensor, lambda tensor: (torch.from_numpy, (tensor.numpy(),)))
        with on_this_core(), one_thread_each():
            return work(item)
    except EvenhandError:
        raise
    except Exception as error:
        error.add_note(traceback.format_exc())  # which cannot be sent between processes
        raise


if __name__ == "__main__":
    _main(*sys.argv[1:])
