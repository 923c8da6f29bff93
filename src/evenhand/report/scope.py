"""What an audit could not find with the given inputs, and what a report leaves out because of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evenhand.report.tables import Column, Table, text

__all__ = ["is_shown", "lacking", "scope_table"]

Summary = Mapping[str, Any]

_NAMES = {
    "inputs": "Inputs",
    "weighing": "Weighing",
    "excess": "Excess",
    "regimes": "Regimes",
    "decisions": "Decisions",
    "errors": "AUC and error rates",
}


def lacking(summary: Summary, *needs: str) -> str:
    """Why the first unmet need is not met; empty if all are met.

    A need is a key of what may not be possible, ``"labels"``, ``"scores"``, or ``"probability"`` for scores that are
    probabilities.

    Examples
    --------
    >>> lacking({}, "weighing")
    ''
    >>> scope = {"outcome": "value", "has_labels": True, "not_possible": {"weighing": "There is no model."}}
    >>> lacking({"scope": scope}, "weighing"), lacking({"scope": scope}, "probability")
    ('There is no model.', 'The outcome is not a probability.')
    """
    scope = summary.get("scope")
    if not scope:
        return ""
    found = {
        **scope["not_possible"],
        **({} if scope["has_labels"] else {"labels": "There are no labels."}),
        **({"scores": "There are no scores."} if scope["outcome"] == "decision" else {}),
        **({} if scope["outcome"] == "score" else {"probability": "The outcome is not a probability."}),
    }
    return next((found[need] for need in needs if need in found), "")


def is_shown(summary: Summary, table: Table) -> bool:
    """Whether a table has what it needs."""
    return not lacking(summary, *table.needs)


def scope_table(summary: Summary) -> Table:
    """What could not be found, and why; empty if everything could."""
    scope = summary.get("scope") or {"given": (), "not_possible": {}}
    records = [{"what": _NAMES[key], "why": why} for key, why in scope["not_possible"].items()]
    columns = (text("not possible", "what"), Column("why", "long text", "why"))
    caption = f"What cannot be found with the given inputs: {', '.join(scope['given'])}"
    return Table("Not possible", caption, columns, records)
