"""Commands of the command line, run one after the other, and what they have said so far."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

State = Literal["waiting", "running", "done", "failed", "canceled"]

_STEP = re.compile(r"(?P<what>\D+?),?(?: %)? (?P<count>\d+)/(?P<total>\d+)(?: (?P<status>.*))?")
_PATIENCE = 10.0  # seconds that a command has to end after Ctrl-C
_MOST_LINES, _LONGEST_LINE = 200, 1 << 26
_DONE = (0, 1)  # exit codes; 1 says that a gate was crossed


@dataclass
class Step:
    """A part of the work: how much of it is done, and since when."""

    count: int
    total: int
    status: str
    begun: float
    ended: float

    @property
    def seconds_left(self) -> float:
        """How long the rest takes if it goes on like this."""
        return (self.ended - self.begun) / self.count * (self.total - self.count)


@dataclass(eq=False)
class Job:
    """A command.

    Attributes
    ----------
    arguments
        What follows `evenhand`.
    lane
        Jobs of the same lane run one after the other.
    changed
        Called whenever the state has changed.
    said
        Warnings and errors, in lines.
    """

    arguments: tuple[str, ...]
    lane: str
    changed: Callable[[Job], None] = lambda job: None
    state: State = "waiting"
    steps: dict[str, Step] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    process: asyncio.subprocess.Process | None = None
    heard: float = 0.0

    @property
    def command(self) -> str:
        """As one would type it."""
        return shlex.join(("evenhand", *self.arguments))

    @property
    def is_open(self) -> bool:
        """Whether it waits or runs."""
        return self.state in ("waiting", "running")

    def hear(self, line: str) -> None:
        """Take in a line that the command wrote to its standard error.

        Examples
        --------
        >>> job = Job(("audit", "loans.csv"), "audits")
        >>> job.hear("batches 3/40")
        >>> job.steps["batches"].count, job.command
        (3, 'evenhand audit loans.csv')
        """
        found, now = _STEP.fullmatch(line), time.monotonic()
        if found is None:
            self.said = [*self.said, line][-_MOST_LINES:]
        else:
            begun = self.steps[found["what"]].begun if found["what"] in self.steps else self.heard
            step = Step(int(found["count"]), int(found["total"]), found["status"] or "", begun, now)
            self.steps[found["what"]] = step
        self.heard = now


class Queue:
    """Jobs of one server; those of the same lane run one after the other.

    Parameters
    ----------
    folder
        Where commands run.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs: dict[str, Job] = {}
        self._lanes: dict[str, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, key: str, job: Job) -> Job:
        """Run a job when its turn comes, under a name by which it is found again."""
        if key in self.jobs and self.jobs[key].is_open:
            return self.jobs[key]
        self.jobs.pop(key, None)  # to the end of the line
        self.jobs[key] = job
        self._do(self._run(job))
        return job

    def before(self, job: Job) -> int:
        """How many jobs of its lane are ahead of a job."""
        ahead = [other for other in self.jobs.values() if other.lane == job.lane and other.is_open]
        return ahead.index(job) if job in ahead else 0

    def cancel(self, job: Job) -> None:
        """End a job as Ctrl-C does; what has not ended some seconds later is killed."""
        if not job.is_open:
            return
        job.state = "canceled"
        if job.process is None:
            job.changed(job)
        else:
            self._do(_end(job.process))

    async def close(self) -> None:
        """End all jobs."""
        for job in self.jobs.values():
            self.cancel(job)
        await asyncio.gather(*self._tasks)

    def _do(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)  # which the loop itself would forget
        task.add_done_callback(self._tasks.discard)

    async def _run(self, job: Job) -> None:
        async with self._lanes.setdefault(job.lane, asyncio.Lock()):
            if job.state != "waiting":
                return
            job.state, job.heard = "running", time.monotonic()
            job.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "evenhand", *job.arguments),
                cwd=self.folder,
                # Every piece of work is told at once.
                env={**os.environ, "EVENHAND_PROGRESS_SECONDS": "0.2", "COLUMNS": "1000"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                limit=_LONGEST_LINE,
                **_APART,
            )
            if not job.is_open:  # canceled while the process was started
                self._do(_end(job.process))
            job.changed(job)
            assert job.process.stderr is not None
            async for line in job.process.stderr:
                job.hear(line.decode("utf-8", "replace").rstrip())
            code = await job.process.wait()
            if job.state == "running":
                job.state = "done" if code in _DONE else "failed"
            if job.state == "failed" and not any(line.startswith("Error: ") for line in job.said):
                job.said.append(
                    f"Error: The command ended with code {code}. Its last lines are above, if it wrote any."
                )
            job.changed(job)


async def _end(process: asyncio.subprocess.Process) -> None:
    for number in _ENDING:
        with suppress(ProcessLookupError, TimeoutError):
            _send(process.pid, number)
            await asyncio.wait_for(process.wait(), _PATIENCE)
            return


# A group of its own: Ctrl-C in the terminal ends the server, which then ends its commands.
_APART: dict[str, Any]
if sys.platform == "win32":
    _APART = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    _ENDING = (signal.CTRL_BREAK_EVENT, signal.SIGTERM)

    def _send(process: int, number: int) -> None:
        os.kill(process, number)
else:
    _APART = {"start_new_session": True}
    _ENDING = (signal.SIGINT, signal.SIGKILL)

    def _send(process: int, number: int) -> None:
        os.killpg(process, number)
