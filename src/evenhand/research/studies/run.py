"""Audits of a study: one line of JSON each, by any number of processes, resumable."""

from __future__ import annotations

import json
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from joblib import Parallel, delayed, parallel_config

from evenhand.exceptions import EvenhandWarning, InvalidInputError
from evenhand.research.studies.models import DATA_SETS_PER_MODEL
from evenhand.research.studies.study import Cell, Line
from evenhand.system.files import json_ready
from evenhand.system.progress import progress as shown_progress
from evenhand.system.threads import on_this_core, one_thread_each

__all__ = ["read_audits", "run_audits"]


@dataclass(frozen=True)
class _Task:
    """Datasets of one cell that share a model."""

    cell: Cell
    replicates: tuple[int, ...]
    stop_at: float

    def run(self) -> list[Line]:
        """A line for every audit that was started in time."""
        lines = []
        with on_this_core(), one_thread_each(), warnings.catch_warnings():
            # The warnings of an audit are part of the study, and thousands of audits warn.
            warnings.simplefilter("ignore", EvenhandWarning)
            for replicate in self.replicates:
                if time.time() >= self.stop_at:
                    break
                lines.append({"cell": self.cell.name, "replicate": replicate, **self.cell.audit(replicate)})
        return lines


def run_audits(
    cells: Sequence[Cell],
    replicates: int,
    path: Path,
    *,
    n_jobs: int = 1,
    minutes: float | None = None,
    progress: bool = False,
) -> dict[str, list[Line]]:
    """Audit the datasets that are not in the file yet, and add them to it.

    A dataset depends only on its cell and its number, whatever the number of processes. All cells get their first
    datasets before any gets more, so a run that is stopped has covered all of them.

    Parameters
    ----------
    cells, replicates
        What to audit, and how many datasets per cell.
    path
        The file of audits, one line of JSON each.
    n_jobs
        Number of processes; each uses one core.
    minutes
        Start no audit after this time; None for no limit.
    progress
        Whether to show progress.

    Returns
    -------
    All lines of these cells, by cell.

    Raises
    ------
    InvalidInputError
        If a number is out of range.
    """
    if n_jobs < 1:
        raise InvalidInputError(f"`n_jobs` (--n-jobs) must be at least 1, got {n_jobs}.")
    if replicates < 1:
        raise InvalidInputError(f"`replicates` (--replicates) must be at least 1, got {replicates}.")
    if minutes is not None and minutes < 0:
        raise InvalidInputError(f"`minutes` (--minutes) must not be negative, got {minutes}.")
    stop_at = float("inf") if minutes is None else time.time() + 60 * minutes
    done = read_audits(path)
    tasks = list(_tasks(cells, replicates, done, stop_at))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file, shown_progress("parts", len(tasks), is_shown=progress) as advance:
        for lines in _results(tasks, n_jobs):
            file.writelines(json.dumps(json_ready(line), separators=(",", ":")) + "\n" for line in lines)
            file.flush()
            advance(lines[-1]["cell"] if lines else "")
    found = read_audits(path)
    return {cell.name: [line for line in found[cell.name] if line["replicate"] < replicates] for cell in cells}


def read_audits(path: Path) -> Mapping[str, list[Line]]:
    """Lines of a file by cell, sorted by number; a truncated line is left out.

    A file that ends in the middle of a line gets a line end, so that the next one can be added.
    """
    found: dict[str, dict[int, Line]] = defaultdict(dict)
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if text and not text.endswith("\n"):
        with path.open("a", encoding="utf-8") as file:
            file.write("\n")
    for line in text.splitlines():
        try:
            audit = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[audit["cell"]][audit["replicate"]] = audit
    return defaultdict(list, {cell: [lines[k] for k in sorted(lines)] for cell, lines in found.items()})


def _tasks(
    cells: Sequence[Cell], replicates: int, done: Mapping[str, Sequence[Line]], stop_at: float
) -> Iterator[_Task]:
    known = {cell.name: {line["replicate"] for line in done.get(cell.name, ())} for cell in cells}
    for start in range(0, replicates, DATA_SETS_PER_MODEL):
        for cell in cells:
            numbers = range(start, min(start + DATA_SETS_PER_MODEL, replicates))
            missing = tuple(number for number in numbers if number not in known[cell.name])
            if missing:
                yield _Task(cell, missing, stop_at)


def _results(tasks: Sequence[_Task], n_jobs: int) -> Iterator[list[Line]]:
    begun = (task for task in tasks if time.time() < task.stop_at)
    if n_jobs == 1:
        yield from (task.run() for task in begun)
        return
    with parallel_config("loky", inner_max_num_threads=1):
        yield from Parallel(n_jobs, return_as="generator_unordered")(delayed(task.run)() for task in begun)
