"""Score ONNX models in a process with limits on time and memory.

Whether a graph terminates, and how much memory it needs, may depend on the people it scores: no trial beforehand can
show this. This file is both sides of the pipe; as a program it is the side that scores, and needs no torch.
"""

from __future__ import annotations

import json
import math
import queue
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from evenhand.exceptions import first_line
from evenhand.system.processes import limit_resources, module_command, module_environment

_MEMORY, _MEMORY_PER_BYTE = 4 * 2**30, 20  # address space, in total and per byte of the model
_SECONDS, _SECONDS_PER_ROW = 30.0, 0.01  # to answer; a command that meets a hanging graph ends within a minute
_MOST_IDLE = 64
_MOST_SCORES = 1024  # for each person: more would fill the memory of whoever asks


class OnnxProcesses:
    """Processes that score people with one ONNX model, as many as there are simultaneous calls.

    Parameters
    ----------
    content
        The model's bytes.

    Raises
    ------
    ValueError
        If onnxruntime cannot run the model, with its message.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._idle: queue.LifoQueue[_Process] = queue.LifoQueue(_MOST_IDLE)
        first = _Process(content)
        self.inputs: list[dict[str, Any]] = first.answer["inputs"]
        self.outputs: list[dict[str, Any]] = first.answer["outputs"]
        self._idle.put(first)

    def run(self, output: str, columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """An output of the model for its inputs, with one row per person.

        Raises
        ------
        ValueError
            If the model fails, or takes too long or too much memory, with a description.
        """
        try:
            process = self._idle.get_nowait()
        except queue.Empty:
            process = _Process(self._content)
        scores = process.run(output, columns)
        try:
            self._idle.put_nowait(process)
        except queue.Full:
            process.end()
        return scores


class _Process:
    def __init__(self, content: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            path.write_bytes(content)
            self._popen = subprocess.Popen(
                module_command("evenhand.models.onnx_process", str(path)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=module_environment(),
            )
            self.end = weakref.finalize(self, _end, self._popen)
            with self._limited(_SECONDS) as (_, answers):
                self.answer = _answer(answers)

    def run(self, output: str, columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
        with self._limited(_SECONDS + _SECONDS_PER_ROW * len(columns[0])) as (asks, answers):
            _say(asks, {"output": output, "n": len(columns)})
            for column in columns:
                _send(asks, column)
            _answer(answers)
            return _received(answers)

    @contextmanager
    def _limited(self, seconds: float) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
        """Both ends of the pipe to the process, which is ended if it takes too long."""
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        watch = threading.Timer(seconds, self._popen.kill)
        watch.start()
        try:
            yield self._popen.stdin, self._popen.stdout
        except (OSError, EOFError) as error:  # the pipe broke or was closed
            code = self._popen.wait()
            ended = f"its process ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}"
            raise ValueError(f"it did not answer within {seconds:.0f} seconds" if code == -9 else ended) from error
        finally:
            watch.cancel()


def _answer(stream: IO[bytes]) -> dict[str, Any]:
    """The next answer of a process, unless it is an error."""
    answer: dict[str, Any] = _heard(stream)
    if "error" in answer:
        raise ValueError(answer["error"])
    return answer


def _heard(stream: IO[bytes]) -> Any:
    """The next line of a pipe."""
    line = stream.readline()
    if not line:
        raise EOFError
    return json.loads(line)


def _send(stream: IO[bytes], array: NDArray[Any]) -> None:
    """Write an array to a pipe; numpy's format needs a file."""
    _say(stream, [array.dtype.str, array.shape])
    stream.write(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
    stream.flush()


def _received(stream: IO[bytes]) -> NDArray[Any]:
    dtype, shape = _heard(stream)
    n_bytes = np.dtype(dtype).itemsize * math.prod(shape)
    content = stream.read(n_bytes)
    if len(content) < n_bytes:
        raise EOFError
    return np.frombuffer(content, dtype=dtype).reshape(shape)


def _end(popen: subprocess.Popen[bytes]) -> None:
    popen.kill()
    popen.communicate()


def _main(path: str) -> None:
    """Answer requests on the standard input until it ends."""
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    content = Path(path).read_bytes()
    limit_resources(_MEMORY + _MEMORY_PER_BYTE * len(content))
    try:
        session = _session(content)
        _say(answers, {"inputs": _described(session.get_inputs()), "outputs": _described(session.get_outputs())})
    except Exception as error:  # onnxruntime has an exception for each cause
        _say(answers, {"error": _why(error)})
        return
    while line := asked.readline():
        question = json.loads(line)
        given = [_received(asked) for _ in range(question["n"])]
        try:
            named = {item.name: column for item, column in zip(session.get_inputs(), given, strict=True)}
            scores = _checked(session.run([question["output"]], named)[0], len(given[0]))
        except Exception as error:
            _say(answers, {"error": _why(error)})
            continue
        _say(answers, {})
        _send(answers, scores)


def _session(content: bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors come as exceptions
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _checked(found: Any, n_people: int) -> NDArray[Any]:
    """Scores that are numbers, and not far more of them than people."""
    scores = np.asarray(found)
    if scores.dtype.kind not in "fiub" or scores.size > _MOST_SCORES * max(1, n_people):
        raise ValueError(f"it returns {scores.size:,} values of type {scores.dtype} for {n_people:,} people")
    return scores


def _described(items: Sequence[Any]) -> list[dict[str, Any]]:
    return [
        {"name": item.name, "type": item.type, "shape": [n if isinstance(n, int) else None for n in item.shape]}
        for item in items
    ]


def _say(stream: IO[bytes], what: Any) -> None:
    stream.write(json.dumps(what).encode() + b"\n")
    stream.flush()


def _why(error: Exception) -> str:
    if isinstance(error, MemoryError) or "bad_alloc" in str(error) or "Failed to allocate memory" in str(error):
        return "it asks for more memory than a model of its size needs"
    return first_line(error)[:300]


if __name__ == "__main__":
    _main(sys.argv[1])
