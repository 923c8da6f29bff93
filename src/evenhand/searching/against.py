"""Audits of the chosen model and of the model it would replace, on the same people, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evenhand.models.input_columns import input_columns
from evenhand.searching.families.columns import spelled_as
from evenhand.searching.people import EvaluationSettings, SearchPeople

if TYPE_CHECKING:
    from evenhand.auditing.history import Comparison
    from evenhand.auditing.result import AuditResult

__all__ = ["audit_model", "compare_models", "spelled_columns"]


def audit_model(
    model: Any,  # noqa: ANN401 - anything that can be audited
    people: SearchPeople,
    evaluation: EvaluationSettings,
    options: dict[str, Any],
    *,
    is_risk: bool = False,
) -> AuditResult:
    """Audit a model on the people held out of a search or, if there are none, on those searched on.

    Parameters
    ----------
    model, people, evaluation
        The model, everyone, and how candidates are evaluated.
    options
        Options of `evenhand.audit`.
    is_risk
        Whether it scores the unfavorable outcome.
    """
    from evenhand.auditing.audit import audit

    names = np.asarray(people.groups.names)[people.groups.codes]
    labels = 1 - people.labels if is_risk else people.labels
    columns = spelled_columns(model, people)

    def part(rows: NDArray[np.int64]) -> tuple[Any, Any, Any]:
        return people.table[columns].iloc[rows].reset_index(drop=True), labels[rows], names[rows]

    searched = part(people.searched)
    audited, reference = (part(people.confirming), searched) if len(people.confirming) else (searched, None)
    threshold = evaluation.decision_threshold
    settings = {
        "financial_features": list(people.financial_features),
        "decision_threshold": 1 - threshold if is_risk else threshold,
        "consistency_threshold": evaluation.consistency_threshold,
        "max_distance": evaluation.max_distance,
        "random_state": evaluation.random_state,
        "favorable": "low" if is_risk else None,
    }
    X, y, groups = audited
    return audit(model, X, y, sensitive_features=groups, reference=reference, **{**settings, **options})


def compare_models(before: AuditResult, after: AuditResult, names: tuple[str, str]) -> Comparison:
    """Two audits of `audit_model` compared, within people."""
    from evenhand.auditing.history import compare_audits

    is_alike = before.settings["attribution"] == after.settings["attribution"]
    return compare_audits(
        dict(zip(names, (before, after), strict=True)), same_people=True, allow_different_settings=not is_alike
    )


def spelled_columns(model: Any, people: SearchPeople) -> list[str]:  # noqa: ANN401 - any model
    """Columns that a model takes, as the table spells them; all columns if the model does not name any."""
    columns = [str(column) for column in people.table.columns]
    seen = input_columns(model)
    return columns if seen is None else spelled_as(columns, seen)
