"""Tables of a study, as rows for JSON and as Markdown with its targets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, TypeAlias

import numpy as np
from scipy.stats import binom

from evenhand.research.studies.alternatives import ALTERNATIVES
from evenhand.research.studies.calibration import CalibrationCell
from evenhand.research.studies.models import BIASES
from evenhand.research.studies.power import PowerCell
from evenhand.research.studies.readings import FINDINGS, TESTS
from evenhand.research.studies.study import Line, share_error

__all__ = ["calibration_rows", "calibration_tables", "is_too_often", "power_rows", "power_tables"]

Share: TypeAlias = dict[str, float | int]

_LEVEL = 0.05
# Targets, fixed before any run.
_POOLED = (0.04, 0.06)
_ORDINARY, _HARD = 0.07, 0.10
_COVERAGE = (0.93, 0.97)
_FOUND = {"50/50": 0.95, "80/20": 0.95, "95/5": 0.85}
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
    """All audits together, then cell by cell; bold where a target is missed."""
    return "\n\n".join([_calibration_summary(rows), _calibration_cells(rows), _seconds(rows)])


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
