"""Candidates of libraries, trained and scored on the folds of a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.exceptions import InvalidInputError
from evenhand.searching.families import ESTIMATORS, QUICK_REPAIRS, Training, repaired
from evenhand.searching.families.columns import kept_columns
from evenhand.searching.people import EvaluationSettings, SearchPeople
from evenhand.searching.scoring import score_model
from evenhand.searching.space import Candidate
from evenhand.searching.store import Scored
from evenhand.system.threads import on_this_core
from evenhand.training.folds import ComparedFold

__all__ = ["EstimatorRuns", "check_seen", "fit_estimator", "repaired_people"]


@dataclass(frozen=True, eq=False)
class EstimatorRuns:
    """Estimators on the folds of a search; each candidate is one block, on one thread.

    Attributes
    ----------
    people, compared, settings
        Everyone, the folds, and how candidates are evaluated.
    n_threads
        Candidates that are trained at once.
    """

    people: SearchPeople
    compared: Sequence[ComparedFold]
    settings: EvaluationSettings
    n_threads: int
    _repaired: dict[tuple[Any, ...], Training] = field(default_factory=dict, init=False, repr=False)
    _turn: Lock = field(default_factory=Lock, init=False, repr=False)

    def takes(self, candidate: Candidate) -> bool:
        """Whether it is of any family except the networks."""
        return candidate.family != "network"

    def blocks(self, candidates: Sequence[Candidate]) -> list[tuple[Candidate, ...]]:
        """One block for each candidate."""
        return [(candidate,) for candidate in candidates]

    def run(self, block: Sequence[Candidate]) -> list[Scored]:
        """Train and score a block."""
        with on_this_core():
            return [
                Scored(candidate.key, fold, seed, self._metrics(candidate, compared, seed))
                for candidate in block
                for fold, compared in enumerate(self.compared)
                for seed in range(self.settings.seeds)
            ]

    def _metrics(self, candidate: Candidate, compared: ComparedFold, seed: int) -> dict[str, float]:
        training = self._training(candidate, compared)
        random_state = self.settings.random_state + candidate.seed + seed
        model = ESTIMATORS[candidate.family].fit(candidate.parameters, training, random_state)
        return score_model(model, self.people, compared, self.settings)

    def _training(self, candidate: Candidate, compared: ComparedFold) -> Training:
        """The training people of a fold; candidates share slow repairs, which are made once."""
        rows, repair = compared.fold.train, candidate.parameters["repair"]
        if repair in QUICK_REPAIRS:
            return repaired_people(candidate, self.people, rows)
        name = (repair, tuple(sorted(candidate.parameters["drop"])), rows.tobytes())
        with self._turn:
            if name not in self._repaired:
                self._repaired[name] = repaired_people(candidate, self.people, rows)
            return self._repaired[name]


def fit_estimator(candidate: Candidate, people: SearchPeople, rows: NDArray[np.int64], random_state: int) -> Any:  # noqa: ANN401 - a classifier of the family
    """A candidate's model, fitted on some of the people."""
    training = repaired_people(candidate, people, rows)
    return ESTIMATORS[candidate.family].fit(candidate.parameters, training, random_state)


def repaired_people(candidate: Candidate, people: SearchPeople, rows: NDArray[np.int64]) -> Training:
    """Some of the people, as training data of a candidate."""
    X = people.categorized.iloc[rows].reset_index(drop=True)
    training = Training(X, people.labels[rows], people.groups.codes[rows], people.financial_features)
    columns = kept_columns(candidate.parameters, [str(column) for column in X.columns])
    return repaired(candidate.parameters["repair"], training, columns)


def check_seen(candidates: Sequence[Candidate], people: SearchPeople) -> None:
    """Refuse to drop columns that people are matched on, if the model's file names only the columns it keeps.

    Raises
    ------
    InvalidInputError
        If a candidate drops one.
    """
    for candidate in candidates:
        if candidate.family != "network" and ESTIMATORS[candidate.family].is_native:
            lost = [name for name in candidate.parameters["drop"] if name in people.financial_features]
            if lost:
                raise InvalidInputError(
                    f"`drop` names {lost}, on which people are matched: an audit needs a model of {candidate.family} "
                    "to take the financial features. Drop different columns, or match on different ones."
                )
