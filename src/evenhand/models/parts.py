"""Scores composed of the scores of other models: averaged, calibrated, stacked.

Each part evaluates mixtures of a person and a baseline in its fast way, trees in one walk for all mixtures, linear
models by a product. So does the whole, which needs to know nothing else about its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from evenhand.attribution.sampled import Mixtures, SampledShapley, ScoresMixtures
from evenhand.models.encoders.coded_table import CodedTable
from evenhand.models.encoders.named_columns import NamedColumns
from evenhand.models.linear import LinearModel
from evenhand.models.protocol import AuditedModel
from evenhand.models.shapley import ShapleyModel
from evenhand.models.trees.adapter import TreeGame

__all__ = ["Averaged", "Calibrated", "Member", "Part", "Stacked", "mixture_margins"]

Floats = NDArray[np.float64]


class Part(Protocol):
    """A score of mixtures."""

    def mixtures(self, asked: Mixtures) -> Floats:
        """The score of each mixture for each person, of shape (n, m)."""
        ...


def mixture_margins(model: AuditedModel, asked: Mixtures) -> Floats:
    """The margin of a model for mixtures of encoded rows, of shape (n, m)."""
    if isinstance(model, LinearModel):
        return _linear_margins(model, asked)
    if isinstance(model, ShapleyModel) and isinstance(model.game, TreeGame):
        return model.game.ensemble.mixtures(asked)
    if isinstance(model, ShapleyModel) and isinstance(model.game, SampledShapley):
        score = model.game.score
        if isinstance(score, ScoresMixtures):
            return score.mixtures(asked)
    margins = np.empty((len(asked.context), len(asked.is_context)))
    for rows, part in asked.blocks(asked.is_context.size):
        points = torch.as_tensor(
            part.points.reshape(-1, asked.context.shape[1]), dtype=model.dtype, device=model.device
        )
        margins[rows] = model.margin(points).double().cpu().numpy().reshape(-1, len(asked.is_context))
    return margins


def _linear_margins(model: LinearModel, asked: Mixtures) -> Floats:
    weights = model.weights.double().cpu().numpy()
    of_context = (asked.context - asked.baseline) * weights
    of_input = (asked.inputs - asked.baseline) * weights
    start: Floats = asked.baseline @ weights + model.intercept
    is_context = asked.is_context & ~asked.is_input
    moved: Floats = of_context @ is_context.T.astype(np.float64) + of_input @ asked.is_input.T.astype(np.float64)
    moved += start[:, None]
    return moved


@dataclass(frozen=True, eq=False)
class Member:
    """A model inside another one, evaluated on rows of the outer model's inputs.

    Attributes
    ----------
    model
        The model, in the form of the audit.
    names
        Names of the inputs.
    coded
        The encoding of the inputs, if some are categories.
    columns
        Positions of the inputs that it uses; None for all.
    is_probability
        Whether to use its probability; otherwise its margin.
    """

    model: AuditedModel
    names: Sequence[str]
    coded: CodedTable | None = None
    columns: NDArray[np.int64] | None = None
    is_probability: bool = True

    def mixtures(self, asked: Mixtures) -> Floats:
        """The margin, or the probability, of each mixture for each person."""
        inputs = self._encoded(asked.inputs)
        context = inputs if asked.context is asked.inputs else self._encoded(asked.context)
        baseline = self._encoded(asked.baseline)
        taken = (asked.is_input[:, self._sources], asked.is_context[:, self._sources])
        margins = mixture_margins(self.model, Mixtures(inputs, context, baseline, *taken))
        return self.model.probability(torch.from_numpy(margins)).numpy() if self.is_probability else margins

    @cached_property
    def _takes_all(self) -> bool:
        encoder = self.model.encoder
        own = list(self.names) if self.columns is None else [self.names[j] for j in self.columns]
        return self.coded is None and (encoder is None or (isinstance(encoder, NamedColumns) and encoder.names == own))

    @cached_property
    def _sources(self) -> NDArray[np.int64]:
        """Position of the outer model's input behind each of the member's."""
        positions = np.arange(len(self.names)) if self.columns is None else self.columns
        encoder = self.model.encoder
        if encoder is None or self._takes_all:
            return positions
        place = {self.names[j]: j for j in positions}
        of_names = np.array([place[name] for name in encoder.names])
        sources: NDArray[np.int64] = of_names[encoder.join_matrix.argmax(axis=1)]
        return sources

    def _encoded(self, rows: Floats) -> Floats:
        """The member's inputs for rows of the outer model's inputs."""
        if self._takes_all:
            return rows if self.columns is None else rows[:, self.columns]
        table = pd.DataFrame(rows, columns=list(self.names)) if self.coded is None else self.coded.decoded(rows)
        if self.columns is not None:
            table = table.iloc[:, self.columns]
        return self.model.encode(self.model.aligned(table)).double().cpu().numpy()


@dataclass(frozen=True, eq=False)
class Averaged:
    """The weighted mean of parts."""

    parts: tuple[Part, ...]
    weights: Floats

    def mixtures(self, asked: Mixtures) -> Floats:
        """The mean for each mixture for each person."""
        share = self.weights / self.weights.sum()
        total: Floats = share[0] * self.parts[0].mixtures(asked)
        for weight, part in zip(share[1:], self.parts[1:], strict=True):
            total += weight * part.mixtures(asked)
        return total


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A function of one part."""

    part: Part
    function: Callable[[Floats], Any]

    def mixtures(self, asked: Mixtures) -> Floats:
        """The function's value for each mixture for each person."""
        found = self.part.mixtures(asked)
        return np.asarray(self.function(found.reshape(-1)), dtype=np.float64).reshape(found.shape)


@dataclass(frozen=True, eq=False)
class Stacked:
    """A model of the parts' scores, and also of the inputs if it uses them.

    Attributes
    ----------
    final
        Maps the parts' scores, one column each, to one number per row.
    """

    parts: tuple[Part, ...]
    final: Callable[[Floats], Floats]
    passes_inputs: bool = False

    def mixtures(self, asked: Mixtures) -> Floats:
        """The final model's score of each mixture for each person."""
        scores = np.stack([part.mixtures(asked) for part in self.parts], axis=-1)
        found = np.empty(scores.shape[:2])
        width = asked.is_context.size if self.passes_inputs else scores.shape[1] * scores.shape[2]
        for rows, block in asked.blocks(width):
            seen = np.concatenate([scores[rows], block.points], axis=-1) if self.passes_inputs else scores[rows]
            found[rows] = self.final(seen.reshape(-1, seen.shape[-1])).reshape(found[rows].shape)
        return found
