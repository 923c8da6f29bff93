"""Runs the studies of calibration and power: a resumable file with a line of JSON for each audit, and its tables."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Generic, TypeAlias

import numpy as np
from joblib import Parallel, delayed, parallel_config
from scipy.stats import binom

from evenhand.auditing.summary import library_versions
from evenhand.exceptions import EvenhandWarning, InvalidInputError
from evenhand.system.files import json_ready, write_text
from evenhand.system.terminal import progress as shown_progress
from evenhand.system.threads import on_this_core, one_thread_each
from studies import calibration, power
from studies.calibration import CalibrationCell
from studies.power import ALTERNATIVES, PowerCell
from studies.study import FINDINGS, TESTS, C, Cell, Line, chosen_cells, plan_of, share_error
from studies.worlds import BIASES, DATA_SETS_PER_MODEL


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


Share: TypeAlias = dict[str, float | int]

_LEVEL = 0.05
# Targets, fixed before any run.
_POOLED = (0.04, 0.06)
_ORDINARY, _HARD = 0.07, 0.10
_COVERAGE = (0.93, 0.97)
_FOUND = {"50/50": 0.95, "80/20": 0.95, "95/5": 0.85, "98/2": 0.5}
_ADJUSTED = ("by_group", "worst_pair", "any")  # adjusted by rules that may be careful: only an upper limit


# --- shares of audits ---


def _share(values: Iterable[float]) -> Share:
    """Mean of a value per audit, the number of audits, and the Monte Carlo error of the mean."""
    known = np.fromiter(values, dtype=np.float64)
    n = len(known)
    if n == 0:
        return {"share": math.nan, "n": 0, "error": math.nan}
    share = float(known.mean())
    is_count = bool(np.isin(known, (0, 1)).all())
    error = share_error(share, n) if is_count else float(known.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan
    return {"share": share, "n": n, "error": error}


def _alarms(lines: Sequence[Line], test: str) -> Share:
    p = (line["p"][test] for line in lines)
    return _share(float(value <= _LEVEL) for value in p if value is not None)


def _coverage(lines: Sequence[Line], test: str) -> Share:
    counts = (line["intervals"][test] for line in lines)
    return _share(holding / n for holding, n in counts if n)


def _pooled(shares: Sequence[Share]) -> Share:
    """All audits of several cells."""
    known = [share for share in shares if share["n"]]
    n = sum(int(share["n"]) for share in known)
    if not n:
        return {"share": math.nan, "n": 0, "error": math.nan}
    variance = sum((share["n"] * share["error"]) ** 2 for share in known) / n**2
    return {"share": sum(s["n"] * s["share"] for s in known) / n, "n": n, "error": math.sqrt(variance)}


# --- calibration ---


def calibration_rows(cells: Sequence[CalibrationCell], audits: Mapping[str, Sequence[Line]]) -> list[dict[str, Any]]:
    """A row for each cell that was audited: alarms and coverage of every test."""
    return [
        {
            "cell": cell.name,
            "is_hard": cell.is_hard,
            "n_audits": len(audits[cell.name]),
            "alarms": {test: _alarms(audits[cell.name], test) for test in TESTS},
            "coverage": {test: _coverage(audits[cell.name], test) for test in TESTS if test != "any"},
            "seconds": median(line["seconds"] for line in audits[cell.name]),
        }
        for cell in cells
        if audits[cell.name]
    ]


def is_too_often(alarms: Share, *, is_hard: bool) -> bool:
    """Whether a cell misses its target: above 10% if named hard, else above 7% by more than chance allows.

    Examples
    --------
    >>> is_too_often({"share": 0.08, "n": 400, "error": 0.014}, is_hard=False)  # 32 of 400 are within chance of 7%
    False
    >>> is_too_often({"share": 0.1, "n": 400, "error": 0.015}, is_hard=False)
    True
    """
    if not alarms["n"]:
        return False
    if is_hard:
        return alarms["share"] > _HARD
    count = round(alarms["share"] * alarms["n"])
    return bool(binom.sf(count - 1, int(alarms["n"]), _ORDINARY) < _LEVEL)


def calibration_tables(rows: Sequence[Mapping[str, Any]]) -> str:
    """All audits together, then by how groups were drawn, over sources and models; bold where a target is missed."""
    pooled = _by_groups(rows)
    return "\n\n".join([_calibration_summary(pooled), _calibration_cells(pooled), _seconds(rows)])


def _by_groups(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Cells with the same groups as one, over all sources and models."""
    inside: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        source, model, *groups = row["cell"].split("/")
        inside["/".join(groups[:2]) or f"{source}/{model}"].append(row)
    return [
        {
            "cell": name,
            "is_hard": all(row["is_hard"] for row in some),
            "n_audits": sum(row["n_audits"] for row in some),
            **{
                kind: {test: _pooled([row[kind][test] for row in some]) for test in some[0][kind]}
                for kind in ("alarms", "coverage")
            },
        }
        for name, some in inside.items()
    ]


def _calibration_summary(rows: Sequence[Mapping[str, Any]]) -> str:
    head = [
        "test",
        "audits",
        f"alarms, % (target {_between(_POOLED)}; adjusted: at most {100 * _POOLED[1]:g})",
        f"intervals that hold 0, % (target {_between(_COVERAGE)})",
        f"highest ordinary cell, % ({100 * _ORDINARY:g}, and what chance allows)",
        f"highest hard cell, % (at most {100 * _HARD:g})",
        "cells that miss",
    ]
    body = []
    for test, words in TESTS.items():
        alarms = _pooled([row["alarms"][test] for row in rows])
        if not alarms["n"]:
            continue
        covered = _pooled([row["coverage"][test] for row in rows if test in row["coverage"]])
        low, high = (0.0 if test in _ADJUSTED else _POOLED[0]), _POOLED[1]
        missed = [row for row in rows if is_too_often(row["alarms"][test], is_hard=row["is_hard"])]
        body.append(
            [
                words,
                f"{alarms['n']:,}",
                _percent(alarms, is_missed=not low <= alarms["share"] <= high),
                _percent(covered, is_missed=not _COVERAGE[0] <= covered["share"] <= _COVERAGE[1]),
                _highest(rows, test, is_hard=False),
                _highest(rows, test, is_hard=True),
                str(len(missed)) if not missed else f"**{len(missed)}**",
            ]
        )
    return _markdown(head, body)


def _highest(rows: Sequence[Mapping[str, Any]], test: str, *, is_hard: bool) -> str:
    shares = [row["alarms"][test] for row in rows if row["is_hard"] is is_hard and row["alarms"][test]["n"]]
    if not shares:
        return ""
    highest = max(shares, key=lambda share: share["share"])
    return _percent(highest, is_missed=any(is_too_often(share, is_hard=is_hard) for share in shares))


def _calibration_cells(rows: Sequence[Mapping[str, Any]]) -> str:
    body = [
        [
            row["cell"] + (" (hard)" if row["is_hard"] else ""),
            str(row["n_audits"]),
            *(
                _percent(share, is_missed=is_too_often(share, is_hard=row["is_hard"]))
                for share in row["alarms"].values()
            ),
        ]
        for row in rows
    ]
    return _markdown(["alarms, %", "audits", *TESTS.values()], body)


# --- power ---


def power_rows(cells: Sequence[PowerCell], audits: Mapping[str, Sequence[Line]]) -> list[dict[str, Any]]:
    """A row for each cell that was audited: how often every test finds the bias."""
    return [
        {
            "cell": cell.name,
            "source": cell.source,
            "bias": cell.bias,
            "sizes": cell.sizes,
            "n_audits": len(lines),
            "found": {
                **{key: _share(float(line["found"][key]) for line in lines) for key in FINDINGS},
                "any": _share(float(any(line["found"].values())) for line in lines),
            },
            "alternatives": {key: _alternative(lines, key) for key in ALTERNATIVES},
            "regime_b_share": _share(line["regime_b_share"] for line in lines if line["regime_b_share"] is not None),
            "seconds": median(line["seconds"] for line in lines),
        }
        for cell in cells
        if (lines := audits[cell.name])
    ]


def _alternative(lines: Sequence[Line], key: str) -> Share:
    p = (line["alternatives"][key] for line in lines)
    return _share(float(value <= _LEVEL) for value in p if value is not None)


def power_tables(rows: Sequence[Mapping[str, Any]]) -> str:
    """Every bias over all sources, then cell by cell; bold where a target is missed."""
    return "\n\n".join([_power_summary(rows), _power_cells(rows), _seconds(rows)])


_POWER_HEAD = [
    *(key.replace("_", " ") for key in FINDINGS),
    "any of the four",
    *ALTERNATIVES.values(),
    "people in Regime B",
]


def _power_summary(rows: Sequence[Mapping[str, Any]]) -> str:
    body = []
    for bias in BIASES:
        for sizes, target in _FOUND.items():
            inside = [row for row in rows if (row["bias"], row["sizes"]) == (bias, sizes)]
            if not inside:
                continue
            shares = [
                *(_pooled([row["found"][key] for row in inside]) for key in inside[0]["found"]),
                *(_pooled([row["alternatives"][key] for row in inside]) for key in ALTERNATIVES),
                _pooled([row["regime_b_share"] for row in inside]),
            ]
            least = min(inside, key=lambda row: row["found"]["any"]["share"])["found"]["any"]
            is_missed = bias != "none" and least["share"] < target
            body.append(
                [
                    bias,
                    sizes,
                    *(_rounded(share) for share in shares),
                    "" if bias == "none" else f"{100 * target:g}",
                    "" if bias == "none" else _percent(least, is_missed=is_missed),
                ]
            )
    return _markdown(["found, %", "groups", *_POWER_HEAD, "target", "lowest source, any of the four"], body)


def _power_cells(rows: Sequence[Mapping[str, Any]]) -> str:
    body = []
    for row in rows:
        shares = [*row["found"].values(), *row["alternatives"].values(), row["regime_b_share"]]
        shown = [_rounded(share) for share in shares]
        if row["bias"] != "none" and row["found"]["any"]["share"] < _FOUND[row["sizes"]]:
            shown[len(FINDINGS)] = f"**{shown[len(FINDINGS)]}**"
        body.append([row["cell"], str(row["n_audits"]), *shown])
    return _markdown(["found, %", "audits", *_POWER_HEAD], body)


# --- Markdown ---


def _seconds(rows: Sequence[Mapping[str, Any]]) -> str:
    """Median CPU seconds of an audit on one core, by what comes first in the name of a cell, and by the second."""

    def by(part: int) -> str:
        found: dict[str, list[float]] = {}
        for row in rows:
            found.setdefault(row["cell"].split("/")[part], []).append(row["seconds"])
        return ", ".join(f"{name} {median(seconds):.2f}" for name, seconds in found.items())

    return f"Median CPU seconds of an audit on one core: {by(0)}; {by(1)}."


def _percent(share: Share, *, is_missed: bool) -> str:
    if not share["n"]:
        return ""
    text = f"{100 * share['share']:.1f} ± {100 * share['error']:.1f}"
    return f"**{text}**" if is_missed else text


def _rounded(share: Share) -> str:
    return f"{100 * share['share']:.0f}" if share["n"] else ""


def _between(limits: tuple[float, float]) -> str:
    return f"{100 * limits[0]:g} to {100 * limits[1]:g}"


def _markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    align = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, align, *body))


_BEGIN, _END = "<!-- tables: begin -->", "<!-- tables: end -->"


@dataclass(frozen=True)
class Study(Generic[C]):
    """What is run, and how it is reported.

    Attributes
    ----------
    name
        Of its files.
    cells, replicates
        The whole study, and the default number of datasets in each cell.
    quick_cells, quick_replicates
        The same for continuous integration.
    rate
        The share for which the error is planned.
    rows, tables
        A row for each cell, and all rows as Markdown.
    """

    name: str
    cells: tuple[C, ...]
    replicates: int
    quick_cells: tuple[C, ...]
    quick_replicates: int
    rate: float
    rows: Callable[[Sequence[C], Mapping[str, Sequence[Line]]], list[dict[str, Any]]]
    tables: Callable[[Sequence[Mapping[str, Any]]], str]


CALIBRATION = Study(
    "calibration",
    calibration.CELLS,
    400,
    calibration.QUICK_CELLS,
    20,
    0.05,
    calibration_rows,
    calibration_tables,
)
POWER = Study("power", power.CELLS, 100, power.QUICK_CELLS, 8, 0.95, power_rows, power_tables)
STUDIES: dict[str, Study[Any]] = {study.name: study for study in (CALIBRATION, POWER)}


def run_study(
    study: Study[C],
    out: Path,
    *,
    quick: bool = False,
    cells: Sequence[str] = (),
    replicates: int | None = None,
    n_jobs: int = 1,
    minutes: float | None = None,
    page: Path | None = None,
    progress: bool = False,
    say: Callable[[str], None] = print,
) -> list[dict[str, Any]]:
    """Run a study, or its missing audits, and write its tables.

    Parameters
    ----------
    study, quick
        What to run: the whole, or a few small cells.
    out
        Folder for the audits (``calibration.jsonl``), to which missing ones are added, the rows (``.json``) and the
        tables (``.md``).
    cells
        Parts of the names of cells to run; none for all.
    replicates
        Datasets in each cell.
    n_jobs, minutes
        Number of processes, and the time after which no audit is started.
    page
        A Markdown page whose tables are replaced.
    progress, say
        Whether to show progress, and a function that reports what is run and what was.

    Returns
    -------
    A row for each cell.

    Raises
    ------
    InvalidInputError
        If a number is out of range, no cell is left, or the page has no place for tables.
    """
    if page is not None:
        _parts_of(page)
    planned = study.quick_replicates if quick else study.replicates
    number = planned if replicates is None else replicates
    asked = chosen_cells(study.quick_cells if quick else study.cells, cells)
    reasons = {cell.name: cell.left_out for cell in asked}
    able = [cell for cell in asked if not reasons[cell.name]]
    for reason in dict.fromkeys(filter(None, reasons.values())):
        say(f"{sum(reason == why for why in reasons.values())} cells are left out: {reason}")
    if not able:
        raise InvalidInputError(f"No cell of {len(asked)} can be run here: {next(iter(reasons.values()))}")
    plan = plan_of(len(able), number, study.rate)
    say(plan)
    audits = run_audits(able, number, out / f"{study.name}.jsonl", n_jobs=n_jobs, minutes=minutes, progress=progress)
    rows = study.rows(able, audits)
    if not rows:
        raise InvalidInputError(f"No audit of {len(able) * number:,} was made in {minutes} minutes: allow more.")
    n_done = sum(row["n_audits"] for row in rows)
    done = f"{n_done:,} of {len(able) * number:,} audits were made."
    say(done)
    tables = study.tables(rows)
    summary = {"study": study.name, "plan": plan, "done": done, "versions": library_versions(), "rows": rows}
    write_text(out / f"{study.name}.json", json.dumps(json_ready(summary), indent=1) + "\n")
    write_text(out / f"{study.name}.md", f"{plan} {done}\n\n{tables}\n")
    if page is not None:
        before, after = _parts_of(page)
        write_text(page, f"{before}{_BEGIN}\n\n{plan} {done}\n\n{tables}\n\n{_END}{after}")
    return rows


def _parts_of(page: Path) -> tuple[str, str]:
    """The text before and after the tables of a page."""
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    if text.count(_BEGIN) != 1 or text.count(_END) != 1:
        raise InvalidInputError(f"{page} must have the lines {_BEGIN} and {_END} once each, around its tables.")
    return text.partition(_BEGIN)[0], text.partition(_END)[2]
