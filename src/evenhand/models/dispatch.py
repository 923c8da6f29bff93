"""Convert a user's model to the form of the audit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

import pandas as pd
import torch
from sklearn.pipeline import Pipeline
from torch import nn

from evenhand.attribution import FeedForward
from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.models.additive import boosting_machine, is_boosting_machine
from evenhand.models.black_box import black_box_model, sampled_model
from evenhand.models.combined import exact_combination, is_combination, opened
from evenhand.models.encoders import Steps, flat_steps, part_that_mixes, pipeline_encoder
from evenhand.models.gradient import DifferentiableModel, module_model
from evenhand.models.onnx import OnnxModel, onnx_model
from evenhand.models.pmml import PmmlModel, pmml_model
from evenhand.models.protocol import (
    AttributionName,
    AuditedModel,
    EncodesTables,
    LinearModel,
    OffersAuditedModel,
    Output,
    ShapleyModel,
)
from evenhand.models.sklearn import (
    ScorecardBins,
    is_kind,
    is_scorecard,
    linear_model,
    network_model,
    unwrapped,
    value_model,
)
from evenhand.models.statsmodels import is_statsmodels, statsmodels_model
from evenhand.models.trees import TreeEnsemble, tree_library
from evenhand.models.trees.adapter import catboost_black_box, takes_categories, tree_model

AttributionChoice = Literal["auto"] | AttributionName
ATTRIBUTIONS: tuple[str, ...] = ("auto", *(name for name in get_args(AttributionName) if name != "given"))


@dataclass(frozen=True)
class _Options:
    """The user's options."""

    attribution: AttributionChoice
    sampling: dict[str, Any]
    table: pd.DataFrame | None

    @property
    def output(self) -> Output | None:
        return cast("Output | None", self.sampling["output"])

    def allows(self, attribution: AttributionName) -> bool:
        return self.attribution in ("auto", attribution)


def as_audited_model(
    model: Any,
    *,
    attribution: AttributionChoice = "auto",
    output: Output | None = None,
    n_permutations: int = 32,
    random_state: int = 0,
    table: pd.DataFrame | None = None,
) -> AuditedModel:
    """Return `model` in the form of the audit.

    Parameters
    ----------
    model
        A torch module; an estimator that has an `audited_model()` method, as `CECClassifier` does; a fitted classifier
        of scikit-learn, alone or in a Pipeline; trees of XGBoost, LightGBM or CatBoost; an ONNX model; anything with
        `predict_proba`, `decision_function` or `predict`; or a function that maps a matrix to one number per row, or a
        pandas table if `table` has columns that are not numbers.
    attribution
        How people are explained. ``"auto"`` picks the exact method if there is one.
    output
        Whether the score of a black box is ``"log-odds"`` or a ``"probability"``; None for what the model offers.
    n_permutations, random_state
        For sampled Shapley values.
    table
        People of the audit: a pipeline's steps are tested on them to see which columns they keep separate, and a black
        box gets tables like theirs.

    Raises
    ------
    InvalidTypeError
        If the model has no score.
    InvalidInputError
        If it cannot be audited, or not with the requested method.

    Examples
    --------
    >>> import torch
    >>> as_audited_model(torch.nn.Linear(3, 1)).kind
    'torch module Linear'
    >>> from sklearn.linear_model import LogisticRegression
    >>> classifier = LogisticRegression().fit([[0.0], [1.0], [2.0]], [0, 0, 1])
    >>> as_audited_model(classifier).attribution
    'linear'
    >>> as_audited_model(classifier, attribution="sampled_shapley").attribution
    'sampled_shapley'
    """
    if attribution not in ATTRIBUTIONS:
        raise InvalidInputError(f"`attribution` must be one of {list(ATTRIBUTIONS)}, got {attribution!r}.")
    if output not in (None, *get_args(Output)):
        raise InvalidInputError(f"`output` must be one of {['log-odds', 'probability']} or None, got {output!r}.")
    sampling = {"output": output, "n_permutations": n_permutations, "random_state": random_state}
    options = _Options(attribution, sampling, table)
    if output == "value":
        found = value_model(unwrapped(model), attribution, table, **sampling)
    else:
        found = _chosen(model, options)
    if not options.allows(found.attribution):
        raise InvalidInputError(
            f'attribution="{attribution}" does not apply to a {found.kind}, which is explained by '
            f'"{found.attribution}"; leave it at "auto".'
        )
    if output is not None and output != found.output:
        raise InvalidInputError(
            f'A {found.kind} is explained by "{found.attribution}" in {found.output}; to explain its {output}, pass '
            'attribution="sampled_shapley" (--attribution sampled_shapley).'
        )
    return found


def _chosen(model: Any, options: _Options) -> AuditedModel:
    """The model with the requested method, or with the only one it has."""
    if isinstance(model, ShapleyModel):
        return model
    known = _known(model, options)
    if known is None or options.attribution == "auto" or options.attribution == known.attribution:
        return known or _black_box(model, options)
    if options.attribution == "sampled_shapley":
        return sampled_model(known, **options.sampling)
    if options.attribution == "integrated_gradients" and isinstance(known, LinearModel):
        intercept = torch.full((1,), known.intercept, dtype=known.dtype, device=known.device)
        return DifferentiableModel(
            FeedForward((known.weights.unsqueeze(-1),), (intercept,), ()), known.kind, known.encoder
        )
    return known


def _known(model: Any, options: _Options) -> AuditedModel | None:
    """The model with the method that suits it best; None if it is a black box on the table's columns."""
    if isinstance(model, AuditedModel):
        return model
    if isinstance(model, nn.Module):
        return module_model(model, output=options.output, table=options.table)
    if isinstance(model, OnnxModel):
        return onnx_model(model, table=options.table, **options.sampling)
    if isinstance(model, PmmlModel):
        return pmml_model(model, options.table, **options.sampling)
    if isinstance(model, OffersAuditedModel):
        return model.audited_model()
    if is_statsmodels(model):
        return statsmodels_model(model, options.table, **options.sampling)
    model = unwrapped(model)
    if is_scorecard(model):
        bins = pipeline_encoder(ScorecardBins(model), options.table)
        return None if bins is None else _known_estimator(model.estimator_, options, bins)
    if is_boosting_machine(model):
        return boosting_machine(model, options.table)
    if is_kind(model, "Pipeline"):
        return _known_pipeline(model, options)
    return _known_estimator(model, options, None)


def _known_estimator(model: Any, options: _Options, encoder: EncodesTables | None) -> AuditedModel | None:
    """An estimator on its inputs, encoded or not."""
    if encoder is None and options.table is not None and options.allows("sampled_shapley") and takes_categories(model):
        return catboost_black_box(model, options.table, **options.sampling)
    if isinstance(model, TreeEnsemble) or tree_library(model) is not None:
        try:
            columns = None if options.table is None else [str(column) for column in options.table.columns]
            return tree_model(model, encoder, columns)
        except InvalidTypeError:
            if options.attribution == "tree_shap":
                raise
    if is_combination(model):
        return _known_combination(model, options, encoder)
    known = linear_model(model, options.output, encoder) or network_model(model, encoder)
    return known or (None if encoder is None else _black_box(model, options, encoder))


def _known_combination(model: Any, options: _Options, encoder: EncodesTables | None) -> AuditedModel | None:
    """A combination of several models, evaluated through its members."""

    def member(estimator: Any, table: pd.DataFrame) -> AuditedModel | None:
        # A margin that is calibrated, or stacked, needs no interpretation.
        output = None if hasattr(estimator, "predict_proba") else "log-odds"
        return _known(estimator, replace(options, table=table, sampling={**options.sampling, "output": output}))

    def only_member(estimator: Any) -> AuditedModel | None:
        return (
            _known(estimator, options) if encoder is None else _known_estimator(unwrapped(estimator), options, encoder)
        )

    if options.table is None:
        return _black_box(model, options, encoder)
    exact = exact_combination(model, only_member, encoder, options.table)
    if exact is not None and (options.output in (None, exact.output) or not options.allows("sampled_shapley")):
        return exact
    base = _black_box(model, options, encoder)
    return opened(model, base, options.table, member)


def _known_pipeline(model: Any, options: _Options) -> AuditedModel | None:
    """The last step of a pipeline, applied to the output of the preceding steps."""
    *before, (_, last) = flat_steps(model)
    last = unwrapped(last)
    if not before:
        return _known(last, options)
    if is_kind(last, "Pipeline"):  # inside a search
        return _known_pipeline(Pipeline([*before, *last.steps]), options)
    if options.allows("sampled_shapley") and takes_categories(last):
        return None
    steps = Steps(tuple(before))
    encoder = pipeline_encoder(steps, options.table)
    if encoder is not None:
        return _known_estimator(last, options, encoder)
    step = type(part_that_mixes(steps, getattr(model, "n_features_in_", 0))).__name__
    if not options.allows("sampled_shapley"):
        raise InvalidInputError(
            f'attribution="{options.attribution}" does not apply: the pipeline\'s step {step} mixes columns, or does '
            'not return numbers, so only attribution="sampled_shapley" can show what each of the table\'s columns '
            "contributes."
        )
    return None


def _black_box(model: Any, options: _Options, encoder: EncodesTables | None = None) -> ShapleyModel:
    return black_box_model(unwrapped(model), encoder=encoder, table=options.table, **options.sampling)
