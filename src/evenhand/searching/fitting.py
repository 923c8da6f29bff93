"""Candidates refitted on everyone searched on."""

from __future__ import annotations

from typing import Any

import numpy as np

from evenhand.searching.estimators import fit_estimator
from evenhand.searching.families.libraries import held_to_one_thread
from evenhand.searching.people import EvaluationSettings, SearchPeople
from evenhand.searching.space import Candidate
from evenhand.training.classifier import CECClassifier

__all__ = ["Fit"]


class Fit:
    """Trains a candidate on everyone searched on, and remembers its models.

    Parameters
    ----------
    people, settings
        Everyone, and how candidates are evaluated.
    device
        Where networks are trained.
    """

    def __init__(self, people: SearchPeople, settings: EvaluationSettings, device: str) -> None:
        self._people, self._settings, self._device = people, settings, device
        self._fitted: dict[str, Any] = {}

    def __call__(self, candidate: Candidate) -> Any:  # noqa: ANN401 - a classifier of the family
        """The candidate's model."""
        if candidate.key not in self._fitted:
            self._fitted[candidate.key] = self._fit(candidate)
        return self._fitted[candidate.key]

    def _fit(self, candidate: Candidate) -> Any:  # noqa: ANN401
        people, settings = self._people, self._settings
        random_state = settings.random_state + candidate.seed
        if candidate.family != "network":
            with held_to_one_thread():
                return fit_estimator(candidate, people, people.searched, random_state)
        X = people.table.iloc[people.searched].reset_index(drop=True)
        y, group = people.labels[people.searched], people.groups.codes[people.searched]
        parameters = {**candidate.parameters, "hidden": tuple(candidate.parameters["hidden"])}
        del parameters["seed"]
        model = CECClassifier(
            **parameters,
            financial_features=people.financial_features,
            encoding=settings.encoding,
            max_distance=settings.max_distance,
            device=self._device,
            random_state=random_state,
        )
        names = np.asarray(people.groups.names)[group]
        return model.fit(X, y, sensitive_features=names)
