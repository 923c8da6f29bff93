"""A study: cells, each a setting that is audited on many datasets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from evenhand.auditing.result import AuditResult
from evenhand.exceptions import InvalidInputError

Line: TypeAlias = dict[str, Any]
"""The result of one audit, as written to the file of audits."""


class Cell(Protocol):
    """One setting."""

    @property
    def name(self) -> str:
        """Settings in words, separated by slashes; unique to the cell."""

    @property
    def left_out(self) -> str:
        """Why the cell cannot be run here; empty if it can."""

    def audit(self, replicate: int) -> Line:
        """The result of the audit of dataset number `replicate`."""


C = TypeVar("C", bound=Cell)


def chosen_cells(cells: Sequence[C], words: Sequence[str]) -> tuple[C, ...]:
    """Cells whose name contains any of the words; all without words.

    Raises
    ------
    InvalidInputError
        If a word is in no name.
    """
    for word in words:
        if not any(word in cell.name for cell in cells):
            names = ", ".join(cell.name for cell in cells[:3])
            raise InvalidInputError(
                f"`cells` (--cells) must be parts of names of cells, such as {names}; no name contains {word!r}."
            )
    return tuple(cell for cell in cells if not words or any(word in cell.name for word in words))


def plan_of(n_cells: int, replicates: int, rate: float) -> str:
    """A sentence on what will be run, and how precise a share of about `rate` will be.

    Examples
    --------
    >>> print(plan_of(50, 400, 0.05))
    50 cells, 400 datasets each, 20,000 audits: the standard error of a share of 5% is
    1.1 points in a cell, 0.15 in all.
    """
    n = n_cells * replicates
    alone, together = (100 * share_error(rate, count) for count in (replicates, n))
    return (
        f"{n_cells} cells, {replicates} datasets each, {n:,} audits: the standard error of a share of "
        f"{100 * rate:g}% is {alone:.1f} points in a cell, {together:.2f} in all."
    )


def share_error(share: float, n: int) -> float:
    """Monte Carlo standard error of a share of n datasets; NaN if there are none.

    Examples
    --------
    >>> round(share_error(0.05, 400), 4)
    0.0109
    """
    return math.sqrt(share * (1 - share) / n) if n else math.nan


Data: TypeAlias = Mapping[str, Any]

FINDINGS = ("score_gap", "inputs", "weighing", "excess")
"""The four questions, by their keys."""

TESTS = {
    "score_gap": "score gap",
    "score_gap_probability": "score gap, probability",
    "score_gap_decision": "score gap, decisions",
    "inputs": "inputs, smallest p",
    "weighing": "weighing",
    "excess": "excess",
    "balanced": "excess, groups weighing equally",
    "by_group": "excess by group, Holm",
    "worst_pair": "worst pair of groups",
    "regime_b": "Regime B",
    "any": "any of the four, Holm",
}
"""The tests of every audit, and their names in the tables."""


def read_audit(result: AuditResult) -> Line:
    """The p-value of every test, the estimates of the main ones, and how many 95% intervals cover 0.

    A test of something that is 0 by construction, without any error, is not a test: its p-value is None. So is that of
    a test that the audit could not perform.

    Returns
    -------
    dict with ``p`` by test; ``found``, whether each of the four questions was answered with yes; ``intervals``, by
    test the number that cover 0 and the number of all (for inputs, of gaps in which all do); ``value``;
    ``regime_b_share``, the share of pairs.
    """
    found = result.to_dict()
    gaps, evidence = found["score_gaps"], found["evidence"]
    by_group = [split for split in evidence["splits"] if split["split"] == "group"]
    worst = evidence["worst_pair"]
    answers = {finding["key"]: finding for finding in found["findings"]}
    of = {
        "score_gap": [gap["total"] for gap in gaps],
        "score_gap_probability": [gap["probability"] for gap in gaps],
        "score_gap_decision": [gap["decision"] for gap in gaps],
        "inputs": [feature for gap in gaps for feature in gap["features"]],
        "weighing": [evidence["reasoning_gap"]],
        "excess": [evidence["cec"]],
        "balanced": [evidence["balanced"]],
        "by_group": [split["estimate"] for split in by_group],
        "worst_pair": [] if worst is None else [worst["estimate"]],
        "regime_b": [evidence["regime_b"]],
    }
    p = {
        **{key: _tested(answers[key]["p_value"], of[key]) for key in FINDINGS},
        **{key: _bonferroni(of[key]) for key in ("score_gap_probability", "score_gap_decision")},
        **{key: _tested(of[key][0]["p_value"], of[key]) for key in ("balanced", "regime_b")},
        "by_group": _tested(_smallest(split["p_adjusted"] for split in by_group), of["by_group"]),
        "worst_pair": None if worst is None else _tested(worst["p_adjusted"], of["worst_pair"]),
        "any": _number(_smallest(finding["p_adjusted"] for finding in answers.values())),
    }
    return {
        "p": {key: p[key] for key in TESTS},
        "found": {key: answers[key]["answer"] == "yes" for key in FINDINGS},
        "intervals": {
            **{key: _holding_zero(estimates) for key, estimates in of.items()},
            "inputs": _holding_zero_at_once([gap["features"] for gap in gaps]),
        },
        "value": {key: _number(answers[key]["estimate"]) for key in FINDINGS},
        "regime_b_share": _number(found["regimes"]["B"]),
    }


def _is_exact(estimate: Data) -> bool:
    return bool(estimate["value"] == 0 and estimate["standard_error"] == 0)


def _number(value: float | None) -> float | None:
    """Five digits are enough to distinguish a p-value from 0.05, and keep lines short."""
    return None if value is None or math.isnan(value) else float(f"{value:.5g}")


def _tested(p: float | None, estimates: list[Data]) -> float | None:
    return None if all(_is_exact(estimate) for estimate in estimates) else _number(p)


def _smallest(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None and not math.isnan(value)), default=None)


def _bonferroni(estimates: list[Data]) -> float | None:
    smallest = _smallest(estimate["p_value"] for estimate in estimates if not _is_exact(estimate))
    return None if smallest is None else min(1.0, smallest * len(estimates))


def _holding_zero(estimates: list[Data]) -> list[int]:
    known = [
        (estimate["low"], estimate["high"])
        for estimate in estimates
        if _number(estimate["low"]) is not None and _number(estimate["high"]) is not None
    ]
    tested = [(low, high) for low, high in known if low < high]
    return [sum(low <= 0 <= high for low, high in tested), len(tested)]


def _holding_zero_at_once(families: list[list[Data]]) -> list[int]:
    """Gaps of which the intervals of all inputs cover 0: these hold for all inputs of a gap at once."""
    counts = [(holding, n) for holding, n in map(_holding_zero, families) if n]
    return [sum(holding == n for holding, n in counts), len(counts)]
