"""Rows of benchmarks: what was measured, its target, whether it is met; results as JSON, and tables for pages.

A benchmark returns rows, each a dictionary with ``what`` and any of

- ``ours_s``, ``theirs_s``: seconds of both sides;
- ``value``, ``unit``: what is compared with the target; by default the ratio, or else the seconds;
- ``target``, ``better``: a number, and ``"higher"`` or ``"lower"``. A target in words, such as "at most 2x the time" or
  "under 500 MB", is parsed; so is a ratio in words. A target that cannot be parsed is shown, and is neither met nor
  missed.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results" / "benchmarks"
LIBRARIES = ("numpy", "scipy", "torch", "scikit-learn", "numba", "pyarrow", "xgboost-cpu", "xgboost", "captum", "shap")

_TARGET = re.compile(
    r"(?P<how>at most|under|below|at least|over)?\s*(?P<number>\d[\d,]*\.?\d*(?:e-?\d+)?)\s*(?P<unit>x|s|MB|µs)?\b"
)
_LOWER = {"at most", "under", "below"}
_NUMBER = re.compile(r"\d[\d,]*\.?\d*")


@dataclass(frozen=True)
class Row:
    """One thing measured.

    Attributes
    ----------
    what
        What was measured, in words.
    ours_s, theirs_s
        Seconds of both sides, if measured.
    value, unit
        What is compared with the target: a ratio (``"x"``), seconds (``"s"``), megabytes (``"MB"``) ...
    target, better
        The number to reach, and which side of it is better; None without a target.
    note
        A target in words that could not be parsed.
    """

    what: str
    ours_s: float | None = None
    theirs_s: float | None = None
    value: float | None = None
    unit: str = ""
    target: float | None = None
    better: str = "higher"
    note: str = ""

    @property
    def is_met(self) -> bool | None:
        """Whether the value is on the right side of the target; None if there is nothing to compare."""
        if self.value is None or self.target is None:
            return None
        return self.value >= self.target if self.better == "higher" else self.value <= self.target

    @property
    def verdict(self) -> str:
        """``met``, ``missed by 12%``, or nothing."""
        if self.is_met is None:
            return self.note
        if self.is_met:
            return "met"
        return f"missed by {max(1, round(100 * abs(self.value - self.target) / self.target)):,}%"


def row_of(given: dict[str, Any]) -> Row:
    """A row from a benchmark's dictionary, with targets and ratios in words parsed."""
    ratio, target = _number(given.get("ratio")), given.get("target")
    ours = given.get("ours_s")
    value, unit = given.get("value"), given.get("unit", "")
    if value is None:
        value, unit = (ratio, "x") if ratio is not None else (ours, "s")
    plain = {"what": given["what"], "ours_s": ours, "theirs_s": given.get("theirs_s"), "value": value, "unit": unit}
    if target is None or isinstance(target, (int, float)):
        is_ratio_of_times = "the time" in str(given.get("ratio"))
        better = given.get("better") or ("lower" if is_ratio_of_times or unit != "x" else "higher")
        return Row(**plain, target=target, better=better)
    read = _TARGET.search(target)
    if read is None:
        return Row(**plain, note=target)
    number, of = float(read["number"].replace(",", "")), read["unit"]
    if of == "s":
        plain |= {"value": ours, "unit": "s"}
    elif of == "MB" and given.get("value") is None:
        used = re.search(r"(\d[\d,]*\.?\d*) MB", given["what"])
        plain |= {"value": _number(used[1]) if used else None, "unit": "MB"}
    is_least = read["how"] in _LOWER or (read["how"] is None and of in {"s", "MB", "µs"})
    return Row(**plain, target=number, better="lower" if is_least else "higher")


def _number(value: Any) -> float | None:
    if value is None or isinstance(value, (int, float)):
        return value
    found = _NUMBER.search(value)
    return float(found[0].replace(",", "")) if found else None


HEADING = "| what | ours (s) | other (s) | measured | target | |\n| --- | --: | --: | --: | --: | --- |"


def markdown(row: Row) -> str:
    """A line of a table. A value that misses its target has enough digits to show it."""
    digits = 3
    while row.is_met is False and digits < 9 and _shown(row.value, digits) == _shown(row.target, digits):
        digits += 1
    measured = "" if row.value is None else f"{_shown(row.value, digits)} {row.unit}".strip()
    sign = "≥" if row.better == "higher" else "≤"
    target = "" if row.target is None else f"{sign} {_shown(row.target, digits)} {row.unit}".strip()
    seconds = ("" if s is None else _shown(s, 3) for s in (row.ours_s, row.theirs_s))
    return f"| {' | '.join([row.what, *seconds, measured, target, row.verdict])} |"


def _shown(value: float, digits: int) -> str:
    """A number with this many significant digits, and all digits before the decimal point."""
    if not math.isfinite(value):
        return str(value)
    whole = len(str(int(abs(value))))
    return f"{value:,.{max(0, digits - whole)}f}" if abs(value) >= 0.01 or value == 0 else f"{value:.{digits}g}"


def table(rows: list[Row]) -> str:
    return "\n".join([HEADING, *map(markdown, rows)])


def show(rows: list[dict[str, Any]]) -> None:
    """Print rows that a benchmark returned."""
    print(table([row_of(row) for row in rows]), flush=True)


def machine() -> dict[str, Any]:
    """The machine, versions and commit of a measurement."""
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "gpu": gpu,
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "libraries": {name: _version(name) for name in LIBRARIES if _version(name)},
        "commit": _commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the working tree, marked if the code differs from it; without git, from the environment."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    commit = git("rev-parse", "--short=10", "HEAD")
    if not commit:
        return os.environ.get("EVENHAND_COMMIT")
    return f"{commit}, changed" if git("status", "--porcelain", "--", "src", "benchmarks") else commit


def write_results(name: str, rows: list[Row], folder: Path = RESULTS, **further: Any) -> Path:
    """Save what a benchmark measured, and on which machine."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    content = {"name": name, "machine": machine(), "rows": [asdict(row) for row in rows], **further}
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def where_words(found: dict[str, Any]) -> str:
    """The machine of a result in a line."""
    libraries = ", ".join(f"{name} {version}" for name, version in found["libraries"].items())
    hardware = f"{found['cores']} cores of {found['processor']}" + (f", {found['gpu']}" if found["gpu"] else "")
    load = f", load {found['load']} at the end" if "load" in found else ""
    return (
        f"{hardware}{load}; Python {found['python']}, {libraries}; commit "
        f"{found['commit'] or 'unknown'}, {found['date']}."
    )


_MARK = re.compile(r"(<!-- results: (?P<names>[^>]*?) -->\n).*?(<!-- end of results -->)", re.DOTALL)


@dataclass(frozen=True)
class Question:
    """What a user asks, and the row of a benchmark that answers it.

    Attributes
    ----------
    asked
        The question.
    name, start
        The benchmark, and how what was measured starts.
    in_seconds
        Whether the answer is our time; otherwise it is the value that is compared with the target.
    """

    asked: str
    name: str
    start: str
    in_seconds: bool = True

    def answered(self, folder: Path) -> tuple[Row, str] | None:
        """The row, and the commit it was measured at; None if it was not."""
        path = folder / f"{self.name}.json"
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"rows": ()}
        rows = (Row(**row) for row in found["rows"] if row["what"].startswith(self.start))
        return next(((row, found["machine"]["commit"]) for row in rows), None)

    def line(self, folder: Path) -> str:
        """A line of the table of answers; the earlier figure is there if it is of a different commit."""
        now, before = self.answered(folder), self.answered(folder / "before")
        if now is None:
            return f"| {self.asked} | | not measured yet | | |"
        earlier = "" if before is None or before[1] == now[1] else self._figure(before[0])
        row = now[0]
        is_compared = not self.in_seconds or row.unit == "s"
        sign = "≥" if row.better == "higher" else "≤"
        target = f"{sign} {_shown(row.target, 3)} {row.unit}" if is_compared and row.target is not None else ""
        return f"| {self.asked} | {earlier} | {self._figure(row)} | {target} | {row.verdict if target else ''} |"

    def _figure(self, row: Row) -> str:
        value, unit = (row.ours_s, "s") if self.in_seconds else (row.value, row.unit)
        return "" if value is None else f"{_shown(value, 3)} {unit}".strip()


QUESTIONS = (
    Question("How soon does `evenhand audit` of 3,000 people have all its files?", "start", "`evenhand audit`"),
    Question("How long does an audit of 100,000 people take, pairs alone?", "audit", "audit of"),
    Question("And with placebo pairs?", "evidence", "audit of 100,000 x 20 with evidence, against"),
    Question("And with 12 of them for each person?", "evidence", "audit of 100,000 x 20 with evidence, 12"),
    Question("How much memory does it take beside the data?", "audit", "peak memory", in_seconds=False),
    Question("How much faster is it than captum with scikit-learn?", "audit", "audit of", in_seconds=False),
    Question(
        "XGBoost, 300 trees of depth 6, 10,000 people?",
        "trees",
        "audit with evidence, XGBoost 300 x 6, 10,000 people, 4",
    ),
    Question("And with 12 placebo pairs a person?", "trees", "audit with evidence, XGBoost 300 x 6, 10,000 people, 12"),
    Question("How much faster is matching than scikit-learn's tree?", "matching", "matching", in_seconds=False),
    Question("How much faster are attributions than captum's?", "attribution", "4 segments (", in_seconds=False),
    Question("A million people from a file?", "scale", "audit of 1,000,000"),
    Question("Ten million?", "scale_ten_million", "audit of 10,000,000"),
    Question("How many times one core are 16?", "cores@16", "batches of", in_seconds=False),
    Question("How many times 16 cores is a GPU?", "gpu_stream@gpu", "streamed audit", in_seconds=False),
)

_ANSWERS = re.compile(r"(<!-- answers -->\n).*?(<!-- end of answers -->)", re.DOTALL)


def answers(folder: Path) -> str:
    """The table of what users ask: the earlier figure and the present one."""
    heading = "| question | before | now | target | |\n| --- | --: | --: | --: | --- |"
    return "\n".join([heading, *(question.line(folder) for question in QUESTIONS)])


def renew(page: Path, folder: Path = RESULTS) -> None:
    """Rewrite the tables of a page, between the marks that name them, from the results in a folder."""

    def block(mark: re.Match[str]) -> str:
        parts = [_section(folder / f"{name}.json") for name in mark["names"].split()]
        return f"{mark[1]}\n{chr(10).join(parts)}\n{mark[3]}"

    text = _MARK.sub(block, page.read_text(encoding="utf-8"))
    page.write_text(_ANSWERS.sub(lambda mark: f"{mark[1]}\n{answers(folder)}\n\n{mark[2]}", text), encoding="utf-8")


def _section(path: Path) -> str:
    if not path.is_file():
        return f"Not measured yet: `{path.stem}`.\n"
    found = json.loads(path.read_text(encoding="utf-8"))
    tables = found.get("tables") or [table([Row(**row) for row in found["rows"]])]
    return "\n\n".join([*tables, where_words(found["machine"])]) + "\n"
