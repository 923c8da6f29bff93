"""Candidates of the network family: blocks of a stack, trained on all folds at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from evenhand.models.protocol import EncodesTables
from evenhand.searching.people import EvaluationSettings, SearchPeople
from evenhand.searching.scoring import score_stack
from evenhand.searching.space import Candidate
from evenhand.searching.store import Scored
from evenhand.training import StackedNetwork, Trainer, TrainingData, TrainingDivergedError, TrainingSettings
from evenhand.training.folds import ComparedFold, stack_tables

__all__ = ["NetworkFamily"]

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
