"""Candidates of the network family: blocks of a stack, trained on all folds at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from evenhand.exceptions import InvalidInputError
from evenhand.models.protocol import EncodesTables
from evenhand.searching.families import ESTIMATORS, QUICK_REPAIRS, Training, repaired
from evenhand.searching.families.family import held_to_one_thread, kept_columns
from evenhand.searching.people import EvaluationSettings, SearchPeople
from evenhand.searching.scoring import score_model, score_stack
from evenhand.searching.space import Candidate
from evenhand.searching.store import Scored
from evenhand.system.threads import on_this_core
from evenhand.training import StackedNetwork, Trainer, TrainingData, TrainingDivergedError, TrainingSettings
from evenhand.training.classifier import CECClassifier
from evenhand.training.folds import ComparedFold, stack_tables

# Members trained together: as many as fill a device, and few enough that a stopped search loses little.
_MEMBERS_PER_BLOCK = {"cpu": 40, "cuda": 3_000}

_SHARED = ("hidden", "dropout", "batch_size", "n_steps", "method", "cec_every", "least_explained")

Trained: TypeAlias = tuple[float, float, float, int]
"""cec_weight, equalized_odds_weight, learning_rate and seed of a model."""


@dataclass(frozen=True, eq=False)
class NetworkFamily:
    """Networks on the folds of a search.

    Attributes
    ----------
    people, encoder
        Everyone, and the encoding that their folds have.
    compared, settings
        The folds, and how candidates are evaluated.
    device
        ``"cpu"`` or ``"cuda"``.
    """

    people: SearchPeople
    encoder: EncodesTables
    compared: Sequence[ComparedFold]
    settings: EvaluationSettings
    device: torch.device

    @property
    def n_threads(self) -> None:
        """None: a stack is trained on all cores or on a GPU, so blocks run one after the other."""
        return

    def takes(self, candidate: Candidate) -> bool:
        """Whether it is a network."""
        return candidate.family == "network"

    def blocks(self, candidates: Sequence[Candidate]) -> list[tuple[Candidate, ...]]:
        """Candidates that are trained together: the same blocks for the same candidates, also in a resumed search."""
        groups: dict[str, dict[Trained, list[Candidate]]] = defaultdict(lambda: defaultdict(list))
        for candidate in candidates:
            p = candidate.parameters
            objective = p["objective"] if p["cec_weight"] else "none"
            groups[repr((objective, [p[name] for name in _SHARED]))][_trained(candidate)].append(candidate)
        per_block = max(
            1,
            _MEMBERS_PER_BLOCK.get(self.device.type, _MEMBERS_PER_BLOCK["cpu"])
            // (len(self.compared) * self.settings.seeds),
        )
        blocks = []
        for models in groups.values():
            # Models that train for equally long go together.
            ordered = sorted(models.values(), key=lambda same: max(c.parameters["epochs"] for c in same))
            for start in range(0, len(ordered), per_block):
                blocks.append(tuple(c for same in ordered[start : start + per_block] for c in same))
        return blocks

    def run(self, block: Sequence[Candidate]) -> list[Scored]:
        """Train and score a block. A candidate whose training diverges is left without metrics, with a note."""
        try:
            return list(self._run(block))
        except TrainingDivergedError as error:
            if len({_trained(candidate) for candidate in block}) == 1:
                return [
                    Scored(candidate.key, fold, seed, {}, f"training diverged: {error}")
                    for candidate in block
                    for fold, seed in self._places()
                ]
        middle = len(block) // 2
        # Never separate candidates that are one model at different numbers of epochs: it would be trained twice.
        while middle < len(block) and _trained(block[middle]) == _trained(block[middle - 1]):
            middle += 1
        if middle == len(block):
            middle = next(k for k, c in enumerate(block) if _trained(c) == _trained(block[-1]))
        return self.run(block[:middle]) + self.run(block[middle:])

    def _run(self, block: Sequence[Candidate]) -> Iterator[Scored]:
        models = list(dict.fromkeys(_trained(candidate) for candidate in block))
        places = self._places()
        members = [(model, fold, seed) for model in models for fold, seed in places]
        place_of = {member: index for index, member in enumerate(members)}
        epochs = sorted({int(c.parameters["epochs"]) for c in block})
        settings = self._settings(block[0].parameters, members, epochs[-1])
        stacks = train_stack(self._data(settings), settings, epochs)
        for fold in range(len(self.compared)):
            asked = [
                (candidate, seed, place_of[_trained(candidate), fold, seed])
                for candidate in block
                for seed in range(self.settings.seeds)
            ]
            rows = [stacks[int(c.parameters["epochs"])].flat.detach()[index] for c, _, index in asked]
            layout = stacks[epochs[-1]].layout
            metrics = score_stack(
                torch.stack(rows).to(self.device),
                layout,
                self.encoder,
                self.people,
                self.compared[fold],
                self.settings,
            )
            for (candidate, seed, _), found in zip(asked, metrics, strict=True):
                yield Scored(candidate.key, fold, seed, found)

    def _places(self) -> list[tuple[int, int]]:
        return [(fold, seed) for fold in range(len(self.compared)) for seed in range(self.settings.seeds)]

    def _settings(
        self,
        parameters: Mapping[str, Any],
        members: Sequence[tuple[Trained, int, int]],
        epochs: int,
    ) -> TrainingSettings:
        models, folds, seeds = zip(*members, strict=True)
        cec, odds, rates, own = zip(*models, strict=True)
        n_folds, start = len(self.compared), self.settings.random_state
        shared = {name: parameters[name] for name in _SHARED}
        return TrainingSettings(
            table=folds,
            seed=tuple(start + f + n_folds * (seed + s) for f, seed, s in zip(folds, seeds, own, strict=True)),
            cec_weight=cec,
            equalized_odds_weight=odds,
            learning_rate=rates,
            objective=parameters["objective"],
            epochs=epochs,
            device=str(self.device),
            **{**shared, "hidden": tuple(shared["hidden"])},
        )

    def _data(self, settings: TrainingSettings) -> TrainingData:
        folds = [compared.fold for compared in self.compared]
        if not (settings.uses_placebo and any(settings.of_member("cec_weight"))):
            return stack_tables(folds)
        triples = [compared.triples for compared in self.compared]
        assert all(rows is not None for rows in triples)
        return stack_tables(folds, [rows for rows in triples if rows is not None])


def train_stack(data: TrainingData, settings: TrainingSettings, epochs: Sequence[int]) -> dict[int, StackedNetwork]:
    """Trained stacks by number of epochs; the last number is that of the settings."""
    trainer, kept = Trainer(data, settings), {}

    def after_epoch(epoch: int, metrics: dict[str, torch.Tensor]) -> None:
        if epoch + 1 in epochs:
            kept[epoch + 1] = trainer.network()

    trainer.run(after_epoch)
    return kept


def _trained(candidate: Candidate) -> Trained:
    p = candidate.parameters
    return p["cec_weight"], p["equalized_odds_weight"], p["learning_rate"], candidate.seed


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


def fit_estimator(candidate: Candidate, people: SearchPeople, rows: NDArray[np.int64], random_state: int) -> Any:
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

    def __call__(self, candidate: Candidate) -> Any:
        """The candidate's model."""
        if candidate.key not in self._fitted:
            self._fitted[candidate.key] = self._fit(candidate)
        return self._fitted[candidate.key]

    def _fit(self, candidate: Candidate) -> Any:
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
