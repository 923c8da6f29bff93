"""The model that a search starts from: the lender's model, judged like every alternative to it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.metrics.roc import auc
from evenhand.models.dispatch import as_audited_model
from evenhand.models.encoders import flat_steps
from evenhand.models.files import load_model
from evenhand.models.introspection import input_columns
from evenhand.models.protocol import AuditedModel
from evenhand.models.sklearn import is_kind, unwrapped
from evenhand.searching.families import ESTIMATORS, EstimatorFamily
from evenhand.searching.families.family import Reading, spelled_as
from evenhand.searching.people import EvaluationSettings, SearchPeople
from evenhand.searching.space import StartingPoint

if TYPE_CHECKING:
    from evenhand.auditing.history import Comparison
    from evenhand.auditing.result import AuditResult


def audit_model(
    model: Any,
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


def spelled_columns(model: Any, people: SearchPeople) -> list[str]:
    """Columns that a model takes, as the table spells them; all columns if the model does not name any."""
    columns = [str(column) for column in people.table.columns]
    seen = input_columns(model)
    return columns if seen is None else spelled_as(columns, seen)


_ASKED = 5_000  # people whose scores show whether high scores are good
_LEAST_AUC = 0.02  # beyond 0.5, to be sure


@dataclass(frozen=True, eq=False)
class Start:
    """A model that a search starts from.

    Attributes
    ----------
    model
        The model as given, or as read from its file.
    point
        Its family and parameters, with which it is retrained in every fold as a candidate.
    kind
        What it is, in words.
    favorable
        ``"low"`` if its score is a risk; candidates always score the favorable outcome.
    notes
        What could not be read, or what candidates do differently.
    warnings
        What makes the retrained model different from yours.
    """

    model: Any
    point: StartingPoint
    kind: str
    favorable: Literal["high", "low"]
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "kind": self.kind,
            "family": self.point.family,
            "favorable": self.favorable,
            "monotone": dict(self.point.parameters.get("monotone") or {}),
            "not_seen": list(self.point.parameters["drop"]),
            "notes": list(self.notes),
        }


def read_start(given: Any, people: SearchPeople) -> Start:
    """A fitted model, or the file of one, as a starting point.

    Raises
    ------
    InvalidTypeError
        If it does not belong to a family that can be searched.
    InvalidInputError
        If the people lack columns that it takes, or its scores do not show whether high ones are good.
    ModelFileError
        If its file cannot be read.
    """
    model, text = given, ""
    if isinstance(given, (str, os.PathLike)):
        model = load_model(given)
        text = Path(given).read_text(encoding="utf-8") if Path(given).suffix in (".txt", ".json") else ""
    family, reading = _read(model, text)
    columns = [str(column) for column in people.table.columns]
    seen = _seen(model, people)
    absent = [name for name in seen if name not in columns]
    if absent:
        raise InvalidInputError(f"`start` takes columns that the people do not have: {absent}.")
    unseen = [name for name in people.financial_features if name not in seen]
    if unseen:
        raise InvalidInputError(
            f"`start` does not take {unseen}, on which people are matched: an audit needs a model that does. Match on "
            "others."
        )
    audited = as_audited_model(model, table=people.table[seen])
    favorable = _favorable(audited, people.table[seen], people.labels)
    signs = _by_column(reading, audited, seen)
    parameters = family.starting_parameters(reading)
    notes = reading.notes
    if favorable == "low":
        signs = {name: -sign for name, sign in signs.items()}
        if "scale_pos_weight" in parameters:
            parameters["scale_pos_weight"] = 1 / parameters["scale_pos_weight"]
        notes += ("Your model scores the unfavorable outcome; candidates score the favorable one.",)
    own = {"monotone": signs} if family.takes_monotone else {}
    parameters |= {"drop": tuple(name for name in columns if name not in seen), **own}
    replaced = _replaced_steps(model)
    return Start(model, StartingPoint(family.name, parameters), audited.kind, favorable, notes, replaced)


def _read(model: Any, text: str) -> tuple[EstimatorFamily, Reading]:
    for family in ESTIMATORS.values():
        reading = family.read(model, text)
        if reading is not None:
            return family, reading
    raise InvalidTypeError(
        "`start` must be a fitted model of XGBoost, LightGBM, HistGradientBoostingClassifier or LogisticRegression, "
        f"alone or in a pipeline, a scorecard, or a file of one; got {type(model).__name__}."
    )


def _replaced_steps(model: Any) -> tuple[str, ...]:
    """A sentence on the steps of a pipeline in front of its classifier; none for a classifier alone."""
    model = unwrapped(model)
    steps = [type(step).__name__ for _, step in flat_steps(model)][:-1] if is_kind(model, "Pipeline") else []
    if not steps:
        return ()
    return (
        f"The search prepares columns in its own way: the steps of your pipeline before its classifier "
        f"({', '.join(steps)}) are replaced, so the retrained model may score people differently.",
    )


def _seen(model: Any, people: SearchPeople) -> list[str]:
    """Columns that a model takes."""
    if input_columns(model) is not None:
        return spelled_columns(model, people)
    encoder = as_audited_model(model, table=people.table).encoder  # a Booster has a different way to name them
    return [str(column) for column in people.table.columns] if encoder is None else encoder.names


def _favorable(audited: AuditedModel, table: pd.DataFrame, labels: NDArray[np.int64]) -> Literal["high", "low"]:
    """Whether high or low scores are good, by the outcomes of people with high scores."""
    rows = np.random.default_rng(0).permutation(len(table))[:_ASKED]
    scores = audited.margin(audited.encode(table.iloc[rows].reset_index(drop=True))).double().cpu().numpy()
    area = auc(labels[rows], scores)
    if not abs(area - 0.5) > _LEAST_AUC:
        raise InvalidInputError(
            f"`start` has an AUC of {area:.3f} on these people, which does not show whether high scores are good or "
            "bad. Check that it is a model of this outcome."
        )
    return "high" if area > 0.5 else "low"


def _by_column(reading: Reading, audited: AuditedModel, seen: list[str]) -> dict[str, int]:
    """Monotone constraints by the table's columns, from names or positions of the model's inputs."""
    if not reading.signs:
        return {}
    source = range(len(seen)) if audited.encoder is None else audited.encoder.join_matrix.argmax(axis=1)
    return {seen[source[name]] if isinstance(name, int) else name: sign for name, sign in reading.signs.items()}
