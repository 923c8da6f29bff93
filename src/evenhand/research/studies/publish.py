"""A study from its cells to its page: the plan, the audits, the tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from evenhand.auditing.summary import library_versions
from evenhand.exceptions import InvalidInputError
from evenhand.research.studies import calibration, power
from evenhand.research.studies.run import run_audits
from evenhand.research.studies.study import Cell, Line, chosen_cells, plan_of
from evenhand.research.studies.study_tables import calibration_rows, calibration_tables, power_rows, power_tables
from evenhand.system.files import json_ready, write_text

__all__ = ["CALIBRATION", "POWER", "STUDIES", "Study", "run_study"]

C = TypeVar("C", bound=Cell)
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
