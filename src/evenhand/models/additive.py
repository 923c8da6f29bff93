"""Scores that are a sum of terms of a few inputs each, explained exactly, term by term."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.arrays import Floats
from evenhand.attribution.sampled import SampledShapley
from evenhand.attribution.shapley import Contributions
from evenhand.exceptions import InvalidInputError
from evenhand.models.encoders import CodedTable, NamedColumns, ValueCodes, spread_people
from evenhand.models.protocol import EncodesTables, ShapleyModel

_ALL = 128  # orders that cost more than all coalitions of up to ten inputs, which are then used
_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Term:
    """One term of a score.

    Attributes
    ----------
    inputs
        Positions of the inputs it reads.
    score
        Maps these inputs, of shape (n, k), to n numbers.
    """

    inputs: tuple[int, ...]
    score: Callable[[Floats], Floats]


@dataclass(frozen=True, eq=False)
class AdditiveGame:
    """A constant plus terms: a `Game`.

    The Shapley value of a sum is the sum of the Shapley values. A term of one input belongs to that input; a term of
    two or three is split over all their coalitions.

    Examples
    --------
    >>> game = AdditiveGame(0.5, (Term((0,), lambda x: 3 * x[:, 0]), Term((0, 1), lambda x: x[:, 0] * x[:, 1])))
    >>> x, baseline = np.array([[2.0, 4.0]]), np.zeros((1, 2))
    >>> game.contributions(x, x, baseline).values.tolist()
    [[10.0, 4.0]]
    """

    constant: float
    terms: tuple[Term, ...]
    method: ClassVar[str] = "Shapley values of each additive term, exact"

    def margin(self, x: Floats) -> Floats:
        """The score, of shape (n,)."""
        total = np.full(len(x), self.constant)
        for term in self.terms:
            total += term.score(x[:, term.inputs])
        return total

    def contributions(self, inputs: Floats, context: Floats, baseline: Floats) -> Contributions:
        """phi(inputs | context; baseline), exactly."""
        total = np.zeros(context.shape)
        for term in self.terms:
            chosen = list(term.inputs)
            of_context = context[:, chosen]
            of_inputs = of_context if inputs is context else inputs[:, chosen]
            game = SampledShapley(term.score, _ALL)
            total[:, chosen] += game.contributions(of_inputs, of_context, baseline[:, chosen]).values
        return Contributions(total)


def boosting_machine(model: Any, table: pd.DataFrame | None) -> ShapleyModel | None:
    """A fitted ExplainableBoostingClassifier in the form of the audit.

    The result is compared with the model's scores of people of the table before it is used; None if they differ, or if
    categories are unknown because there is no table.

    Raises
    ------
    InvalidInputError
        If it is not fitted or does not have two classes.
    """
    if not hasattr(model, "term_scores_"):
        raise InvalidInputError("This ExplainableBoostingClassifier is not fitted: call its `fit` first.")
    if len(model.classes_) != 2:
        raise InvalidInputError(
            f"This ExplainableBoostingClassifier has {len(model.classes_)} classes; an audit needs one outcome with "
            "two classes, the favorable one last."
        )
    names = [str(name) for name in model.feature_names_in_]
    is_nominal = [kind != "continuous" for kind in model.feature_types_in_]
    if table is not None and len(names) == table.shape[1] and not set(names) <= set(table.columns):
        names = [str(column) for column in table.columns]  # fitted without names
    has_names = names == [str(name) for name in model.feature_names_in_]
    encoder: EncodesTables = NamedColumns(names, takes_missing=True, takes_names=has_names)
    codes: Sequence[ValueCodes | None] = [None] * len(names)
    if any(is_nominal):
        if table is None or not set(names) <= set(table.columns):
            return None
        encoder = CodedTable.of(table[names], [name for name, each in zip(names, is_nominal, strict=True) if each])
        codes = encoder.columns
    terms = tuple(_term(model, number, codes) for number in range(len(model.term_features_)))
    audited = ShapleyModel(
        AdditiveGame(float(np.ravel(model.intercept_)[0]), terms),
        "InterpretML ExplainableBoostingClassifier",
        encoder,
        output="log-odds",
        takes_missing=True,
        attribution="additive",
        categorical_inputs=tuple(j for j, values in enumerate(codes) if values is not None),
    )
    if table is None or not set(names) <= set(table.columns):
        return audited  # columns that differ are rejected later, with their names
    few = spread_people(table[names])
    ours, theirs = audited.margin(audited.encode(few)), np.asarray(model.decision_function(few), np.float64)
    agrees = np.abs(ours - theirs).max(initial=0.0) <= _TOLERANCE * max(1.0, np.abs(theirs).max(initial=0.0))
    return audited if agrees else None


@dataclass(frozen=True, eq=False)
class _Bins:
    """The bin of each value of an input: 0 for a missing one, the last for an unknown one.

    Attributes
    ----------
    cuts
        Lower ends of the bins of numbers; None for a category.
    places
        The bin of each category, by its text.
    codes
        The values behind the codes of a category.
    """

    cuts: Floats | None
    places: dict[str, int]
    codes: ValueCodes | None

    def of(self, x: Floats) -> NDArray[np.int64]:
        is_missing = np.isnan(x)
        if self.cuts is not None:
            return np.where(is_missing, 0, np.searchsorted(self.cuts, x, side="right") + 1)
        assert self.codes is not None
        known = np.array([self.places.get(_text(value), -1) for value in self.codes.values] or [0], dtype=np.int64)
        return np.where(is_missing, 0, known[np.where(is_missing, 0, x).astype(np.int64)])


@dataclass(frozen=True, eq=False)
class _Lookup:
    """A term's score: one table entry for each combination of bins."""

    bins: tuple[_Bins, ...]
    scores: Floats

    def __call__(self, x: Floats) -> Floats:
        return self.scores[tuple(bins.of(x[:, k]) for k, bins in enumerate(self.bins))]


def _term(model: Any, number: int, codes: Sequence[ValueCodes | None]) -> Term:
    inputs = tuple(int(j) for j in model.term_features_[number])
    bins = []
    for j in inputs:
        levels = model.bins_[j]
        level = levels[min(len(levels), len(inputs)) - 1]  # terms of more inputs have coarser bins
        is_category = isinstance(level, dict)
        bins.append(_Bins(None if is_category else np.asarray(level), level if is_category else {}, codes[j]))
    return Term(inputs, _Lookup(tuple(bins), np.asarray(model.term_scores_[number], dtype=np.float64)))


def _text(value: Any) -> str:
    """A category in the notation of InterpretML."""
    return str(int(value)) if isinstance(value, (float, np.floating)) and value == int(value) else str(value)
