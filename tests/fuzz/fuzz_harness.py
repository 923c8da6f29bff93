"""The command line on spoiled tables, in memory and streamed, in this process."""

from __future__ import annotations

import contextlib
import io
import json
import math
import shutil
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from rich.console import Console
from spoiled_tables import WRITERS, options

from evenhand.auditing.result import AuditResult
from evenhand.cli import main

__all__ = ["Outcome", "Spoiled", "answers_differ", "run", "spoiled_file"]

# A network computes in 32 bits, whose last digits depend on how many people it is asked about at once. Attributions are
# from the mean of a group, so that their own mean is what is left of large numbers that cancel.
# Recalibration is fitted to log-odds of scores that are almost 0 or 1. The completeness gap is itself a rounding error.
_SINGLE_PRECISION = ("/mean attribution", "/calibration/", "/completeness_gap")
_SAME, _LESS_SAME = 1e-6, 1e-4


@dataclass(frozen=True)
class Spoiled:
    """A file, and the words of the command line that go with it."""

    path: Path
    words: list[str]


@dataclass(frozen=True)
class Outcome:
    """What a command ended with: exit code, error stream, and the summary it wrote."""

    code: int
    errors: str
    summary: dict[str, Any] | None


def spoiled_file(kind: str, seed: int, folder: Path) -> Spoiled:
    """The file of a seed."""
    rng = np.random.default_rng([seed, sorted(WRITERS).index(kind)])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return Spoiled(WRITERS[kind](rng, folder), options(rng))


def run(spoiled: Spoiled, model: Path, *, is_streamed: bool, is_written: bool) -> Outcome:
    """Audit the people of a file; page and workbook, which take most of the time, are written where it is wanted."""
    out = spoiled.path.parent / ("streamed" if is_streamed else "in_memory")
    words = ["audit", str(spoiled.path), "--model", str(model), "--label", "paid", "--group", "sex"]
    words += ["--financial", "income,debt", "--no-evidence", "--out", str(out), *spoiled.words]
    words += ["--stream", "--batch-rows", "20", "--n-jobs", "1"] if is_streamed else []
    errors, shown = io.StringIO(), io.StringIO()
    before = sys.argv, warnings.showwarning
    try:
        sys.argv = ["evenhand", *words]
        writer = contextlib.nullcontext() if is_written else patch("evenhand.cli.audits.show_and_write", _show)
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(shown), writer:
            main()
    except SystemExit as done:
        code = int(done.code or 0)
    finally:
        sys.argv, warnings.showwarning = before
    written = out / "audit.json"
    summary = json.loads(written.read_text(encoding="utf-8")) if code == 0 and written.exists() else None
    return Outcome(code, errors.getvalue(), summary)


def _show(result: AuditResult, out: Path, _further: object) -> None:
    Console().print(result)
    result.to_json(out / "audit.json")


def answers_differ(first: Any, second: Any, path: str = "") -> str:
    """Where two summaries differ by more than rounding; empty where they do not."""
    if isinstance(first, dict) and isinstance(second, dict):
        if set(first) != set(second):
            return f"{path}: {sorted(set(first) ^ set(second))}"
        return next(filter(None, (answers_differ(first[key], second[key], f"{path}/{key}") for key in first)), "")
    if isinstance(first, list) and isinstance(second, list):
        if len(first) != len(second):
            return f"{path}: {len(first)} and {len(second)} entries"
        pairs = enumerate(zip(first, second, strict=True))
        return next(filter(None, (answers_differ(a, b, f"{path}/{k}") for k, (a, b) in pairs)), "")
    if isinstance(first, float) and isinstance(second, (float, int)):
        near = _LESS_SAME if any(name in path for name in _SINGLE_PRECISION) else _SAME
        is_same = math.isclose(first, second, rel_tol=near, abs_tol=near)
        return "" if is_same else f"{path}: {first} and {second}"
    return "" if first == second else f"{path}: {first!r} and {second!r}"
