"""scikit-learn's combinations of classifiers, opened if their members are known.

Averages of trees, and a single calibrated model, are explained exactly. Any other combination is explained by sampled
Shapley values of its probability, by the table's columns. Its members evaluate mixtures of a person and a baseline in
their fast ways, trees in one walk for all mixtures, linear models by a product; so does the whole, averaged, calibrated
or stacked, which needs to know nothing else about its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.arrays import Floats, as_numpy
from evenhand.attribution.sampled import Mixtures, SampledShapley, ScoresMixtures
from evenhand.exceptions import EvenhandError
from evenhand.models.black_box import Score, black_box_model, margins_of
from evenhand.models.encoders import CodedTable, NamedColumns, PipelineEncoder, fitted_names, spread_people
from evenhand.models.protocol import AuditedModel, LinearModel, ShapleyModel
from evenhand.models.sklearn import is_kind
from evenhand.models.trees import TreeEnsemble
from evenhand.models.trees.adapter import TreeGame, tree_model


def mixture_margins(model: AuditedModel, asked: Mixtures) -> Floats:
    """The margin of a model for mixtures of encoded rows, of shape (n, m)."""
    if isinstance(model, LinearModel):
        return _linear_margins(model, asked)
    if isinstance(model, ShapleyModel) and isinstance(model.game, TreeGame):
        return model.game.ensemble.mixtures(asked)
    if isinstance(model, ShapleyModel) and isinstance(model.game, SampledShapley):
        return asked.scores(model.game.score)
    return asked.scores(partial(margins_of, model))


def _linear_margins(model: LinearModel, asked: Mixtures) -> Floats:
    weights = model.weights
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
    calibrator
        A function of that, by which it is calibrated; None for none.
    """

    model: AuditedModel
    names: Sequence[str]
    coded: CodedTable | None = None
    columns: NDArray[np.int64] | None = None
    is_probability: bool = True
    calibrator: Callable[[Floats], Any] | None = None

    def mixtures(self, asked: Mixtures) -> Floats:
        """The margin, the probability, or what it is calibrated to, of each mixture for each person."""
        inputs = self._encoded(asked.inputs)
        context = inputs if asked.context is asked.inputs else self._encoded(asked.context)
        baseline = self._encoded(asked.baseline)
        taken = (asked.is_input[:, self._sources], asked.is_context[:, self._sources])
        margins = mixture_margins(self.model, Mixtures(inputs, context, baseline, *taken))
        scores: Floats = self.model.probability(margins) if self.is_probability else margins
        if self.calibrator is None:
            return scores
        return np.asarray(self.calibrator(scores.reshape(-1)), dtype=np.float64).reshape(scores.shape)

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
        result: NDArray[np.int64] = of_names[encoder.join_matrix.argmax(axis=1)]
        return result

    def _encoded(self, rows: Floats) -> Floats:
        """The member's inputs for rows of the outer model's inputs."""
        if self._takes_all:
            return rows if self.columns is None else rows[:, self.columns]
        table = pd.DataFrame(rows, columns=list(self.names)) if self.coded is None else self.coded.decoded(rows)
        if self.columns is not None:
            table = table.iloc[:, self.columns]
        encoded = as_numpy(self.model.encode(self.model.aligned(table)))
        return encoded.astype(np.float64, copy=False)


@dataclass(frozen=True, eq=False)
class Averaged:
    """The weighted mean of parts."""

    parts: Sequence[Member]
    weights: Floats

    def mixtures(self, asked: Mixtures) -> Floats:
        """The mean for each mixture for each person."""
        share = self.weights / self.weights.sum()
        total: Floats = share[0] * self.parts[0].mixtures(asked)
        for weight, part in zip(share[1:], self.parts[1:], strict=True):
            total += weight * part.mixtures(asked)
        return total


@dataclass(frozen=True, eq=False)
class Stacked:
    """A model of the parts' scores, and also of the inputs if it uses them.

    Attributes
    ----------
    final
        Maps the parts' scores, one column each, to one number per row.
    """

    parts: Sequence[Member]
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


# A member in the form of the audit; None if it is a black box.
Known = Callable[[Any, pd.DataFrame], AuditedModel | None]

_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class OpenedScore:
    """The score of a combination, computed from its members.

    Attributes
    ----------
    plain
        The same as a black box.
    whole
        The combination as parts.
    """

    plain: Score
    whole: ScoresMixtures

    def mixtures(self, asked: Mixtures) -> Floats:
        """The score of each mixture for each person, of shape (n, m)."""
        found = self.whole.mixtures(asked)
        return self.plain.checked(found.reshape(-1)).reshape(found.shape)

    def __call__(self, x: Floats) -> Floats:
        everything = np.ones((1, x.shape[1]), dtype=bool)
        return self.mixtures(Mixtures(x, x, x, ~everything, everything))[:, 0]


def opened(model: Any, base: ShapleyModel, table: pd.DataFrame, known: Known) -> ShapleyModel:
    """A combination that is evaluated through its members.

    Parameters
    ----------
    model
        A fitted combination.
    base
        The same as a black box, which is used if a member cannot be opened, or if the members do not reproduce the
        combination's scores of people of the table.
    table
        People of the audit.
    known
        Opens a member.
    """
    assert isinstance(base.game, SampledShapley)
    score = base.game.score
    assert isinstance(score, Score)
    inputs = _inputs(base, table)
    if inputs is None:
        return base
    try:
        whole = _whole(model, inputs, known)
        if whole is None:
            return base
        through = OpenedScore(score, whole)
        few = base.encode(inputs.people)
        if np.abs(through(few) - score(few)).max(initial=0.0) > _TOLERANCE:
            return base
    except (EvenhandError, KeyError, ValueError):  # a member takes different columns, or not numbers
        return base
    return replace(base, game=replace(base.game, score=through), kind=f"scikit-learn {type(model).__name__}")


@dataclass(frozen=True, eq=False)
class _Inputs:
    """The inputs of a combination's members.

    Attributes
    ----------
    people
        Rows of the table to compare scores on.
    table
        The members' inputs for all people.
    coded
        The encoding of the matrix of inputs, if some are categories.
    """

    people: pd.DataFrame
    table: pd.DataFrame
    coded: CodedTable | None

    @property
    def names(self) -> list[str]:
        return [str(column) for column in self.table.columns]

    def member(self, estimator: Any, known: Known, method: str, columns: NDArray[np.int64] | None = None) -> Member:
        """A member that is evaluated by one of its methods."""
        seen = self.table if columns is None else self.table.iloc[:, columns]
        model = known(estimator, seen)
        is_probability = method == "predict_proba"
        if model is None or (not is_probability and model.output != "log-odds"):
            response = partial(_response, getattr(estimator, method))
            model = black_box_model(response, output="log-odds", table=seen, names=fitted_names(estimator))
            is_probability = False
        return Member(model, self.names, self.coded, columns, is_probability)


def _inputs(base: ShapleyModel, table: pd.DataFrame) -> _Inputs | None:
    """The inputs of a combination: columns of the table, or the output of preceding steps."""
    encoder = base.encoder
    if encoder is not None and not set(encoder.names) <= set(table.columns):
        return None
    people = table if encoder is None else table[encoder.names]
    few = spread_people(people)
    if encoder is None or isinstance(encoder, (NamedColumns, CodedTable)):
        return _Inputs(few, people, encoder if isinstance(encoder, CodedTable) else None)
    made = encoder.transform(people)
    return _Inputs(few, pd.DataFrame(made, columns=[f"x{j}" for j in range(made.shape[1])]), None)


def _response(method: Callable[[Any], Any], x: Any) -> Floats:
    found = np.asarray(method(x), dtype=np.float64)
    return found[:, 1] if found.ndim == 2 else found


def _whole(model: Any, inputs: _Inputs, known: Known) -> ScoresMixtures | None:
    """The combination as parts; None if the way it combines them is unknown."""
    if is_kind(model, "CalibratedClassifierCV"):
        pairs = model.calibrated_classifiers_
        if not {pair.method for pair in pairs} <= {"sigmoid", "isotonic"}:
            return None
        members = [inputs.member(pair.estimator, known, _method(pair.estimator)) for pair in pairs]
        calibrators = [pair.calibrators[0].predict for pair in pairs]
        parts = [replace(each, calibrator=by) for each, by in zip(members, calibrators, strict=True)]
        return Averaged(parts, np.ones(len(parts)))
    if not is_kind(model, "StackingClassifier"):
        voters = [inputs.member(member, known, "predict_proba", columns) for member, columns in _voters(model)]
        return Averaged(voters, _weights(model))
    methods = [name for name in model.stack_method_ if name != "drop"]
    if not set(methods) <= {"predict_proba", "decision_function"} or (model.passthrough and inputs.coded is not None):
        return None
    stacked = zip(model.estimators_, methods, strict=True)
    parts = [inputs.member(member, known, method) for member, method in stacked]
    return Stacked(parts, partial(_response, model.final_estimator_.predict_proba), model.passthrough)


def _method(estimator: Any) -> str:
    """The method of a member that a calibration uses."""
    return "decision_function" if hasattr(estimator, "decision_function") else "predict_proba"


def _voters(model: Any) -> list[tuple[Any, NDArray[np.int64] | None]]:
    """Members of an average, and the positions of the inputs that each uses, if a BaggingClassifier chose some."""
    columns = getattr(model, "estimators_features_", [None] * len(model.estimators_))
    return list(zip(model.estimators_, columns, strict=True))


def _weights(model: Any) -> Floats:
    weights = getattr(model, "_weights_not_none", None)
    return np.ones(len(model.estimators_)) if weights is None else np.asarray(weights, dtype=np.float64)


def exact_combination(
    model: Any,
    known: Callable[[Any], AuditedModel | None],
    encoder: PipelineEncoder | None,
    table: pd.DataFrame,
) -> AuditedModel | None:
    """A combination whose explanation follows from those of its members; None if it does not.

    A single model with a sigmoid calibration has log-odds that are linear in the model's margin. An average of trees,
    or of forests, is a forest. The result is compared with the combination's scores before it is used.

    Parameters
    ----------
    model, table
        As in `opened`.
    known
        Opens the only member of a calibration.
    encoder
        Steps that convert the table to inputs; None if it takes the columns directly.
    """
    if is_kind(model, "StackingClassifier"):
        return None
    if not is_kind(model, "CalibratedClassifierCV"):
        found = _forest(model, encoder, table)
    else:
        pairs = model.calibrated_classifiers_
        is_single = len(pairs) == 1 and pairs[0].method == "sigmoid"
        found = _rescaled(known(pairs[0].estimator), pairs[0], type(model).__name__) if is_single else None
    return found if found is not None and _agrees(found, model, encoder, table) else None


def _agrees(found: AuditedModel, model: Any, encoder: PipelineEncoder | None, table: pd.DataFrame) -> bool:
    """Whether a model reproduces a combination's scores of people of the table."""
    names = None if found.encoder is None else found.encoder.names
    if names is not None and not set(names) <= set(table.columns):
        return True  # rejected later, with the columns' names
    few = spread_people(table if names is None else table[names])
    seen = encoder.transform(few) if encoder is not None else few if fitted_names(model) is not None else few.to_numpy()
    ours = found.probability(found.margin(found.encode(few)))
    return bool(np.abs(ours - model.predict_proba(seen)[:, 1]).max(initial=0.0) <= _TOLERANCE)


def _rescaled(member: AuditedModel | None, pair: Any, name: str) -> AuditedModel | None:
    """A model whose log-odds are a linear function of a different model's margin."""
    slope, shift = -float(pair.calibrators[0].a_), -float(pair.calibrators[0].b_)
    is_margin = member is not None and (_method(pair.estimator) == "decision_function") == (member.output == "log-odds")
    if not is_margin:
        return None
    if isinstance(member, LinearModel):
        weights, intercept = slope * member.weights, slope * member.intercept + shift
        return replace(member, weights=weights, intercept=intercept, kind=f"{member.kind}, calibrated ({name})")
    if isinstance(member, ShapleyModel) and isinstance(member.game, TreeGame):
        trees = member.game.ensemble
        scaled = replace(
            trees,
            value=slope * trees.value,
            base_margin=slope * trees.base_margin + shift,
            output="log-odds",
            source=f"{trees.source}, calibrated ({name})",
        )
        return replace(member, game=TreeGame(scaled), output="log-odds", kind=scaled.source)
    return None


def _forest(model: Any, encoder: PipelineEncoder | None, table: pd.DataFrame) -> AuditedModel | None:
    """An average of trees that hold probabilities, as one forest."""
    weights = _weights(model)
    members = []
    for member, columns in _voters(model):
        if not is_kind(member, "DecisionTreeClassifier", "RandomForestClassifier", "ExtraTreesClassifier"):
            return None
        trees = tree_model(member).game
        assert isinstance(trees, TreeGame)
        members.append((trees.ensemble, columns))
    kind = f"scikit-learn {type(model).__name__} of trees"
    merged = TreeEnsemble.average(
        [trees for trees, _ in members],
        weights / weights.sum(),
        [columns for _, columns in members],
        n_features=model.n_features_in_,
        source=f"{kind} ({sum(trees.n_trees for trees, _ in members)} trees)",
        feature_names=fitted_names(model),
    )
    return tree_model(merged, encoder, [str(column) for column in table.columns])
