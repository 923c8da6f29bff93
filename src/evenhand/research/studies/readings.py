"""The results of an audit as a line of JSON: p-values, estimates, and whether intervals cover 0."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from evenhand.auditing.result import AuditResult

__all__ = ["FINDINGS", "TESTS", "read_audit"]

Data: TypeAlias = Mapping[str, Any]
Line: TypeAlias = dict[str, Any]

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
    test the number that cover 0 and the number of all; ``value``; ``regime_b_share``, the share of pairs.
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
        "intervals": {key: _holding_zero(estimates) for key, estimates in of.items()},
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
        (estimate["ci_low"], estimate["ci_high"])
        for estimate in estimates
        if _number(estimate["ci_low"]) is not None and _number(estimate["ci_high"]) is not None
    ]
    tested = [(low, high) for low, high in known if low < high]
    return [sum(low <= 0 <= high for low, high in tested), len(tested)]
