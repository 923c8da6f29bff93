"""Convert a user's model to the form of the audit."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.sparse.csgraph import connected_components
from scipy.special import expit
from sklearn.pipeline import Pipeline

from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.inputs.encoding import NumberColumn, TableEncoder
from evenhand.models.additive import boosting_machine
from evenhand.models.black_box import black_box_model, sampled_model
from evenhand.models.combined import exact_combination, opened
from evenhand.models.encoders import (
    OneToOne,
    PipelineEncoder,
    Steps,
    fitted_names,
    flat_steps,
    part_that_mixes,
    pipeline_encoder,
)
from evenhand.models.onnx import OnnxModel, onnx_model
from evenhand.models.pmml import PmmlModel, pmml_model
from evenhand.models.protocol import AttributionName, AuditedModel, LinearModel, Output, ShapleyModel
from evenhand.models.sklearn import (
    ScorecardBins,
    binned_columns,
    inner_estimator,
    is_kind,
    is_scorecard,
    linear_model,
    network_model,
    networks,
    unwrapped,
    value_model,
)
from evenhand.models.statsmodels import regression_columns, statsmodels_model
from evenhand.models.trees import TreeEnsemble, tree_library
from evenhand.models.trees.adapter import TreeGame, catboost_black_box, tree_model
from evenhand.models.trees.libraries import takes_words
from evenhand.models.wrapped import RiskModel

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
    if table is not None:
        _check_width(model, [str(column) for column in table.columns])
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
    if table is not None:
        unsettled_columns(model, found, table)
    return found


def _check_width(model: Any, columns: list[str]) -> None:
    """Reject a table that has more or fewer columns than a model that does not name its inputs."""
    is_known = isinstance(model, AuditedModel) or is_module(model) or tree_library(model) not in (None, "sklearn")
    if is_known or input_columns(model) is not None:
        return  # columns are compared by name, or counted by the library's reader
    expected = model.n_inputs if isinstance(model, OnnxModel) else getattr(unwrapped(model), "n_features_in_", None)
    if expected not in (None, len(columns)):
        raise InvalidInputError(
            f"The {type(model).__name__} takes {expected} inputs and has no names for them, but the table has "
            f"{len(columns)} columns: {columns}; keep its inputs alone, in the order of training (--columns a,b,c)."
        )


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
        return cast(AuditedModel, networks('attribution="integrated_gradients"').as_network(known))
    return known


def _known(model: Any, options: _Options) -> AuditedModel | None:
    """The model with the method that suits it best; None if it is a black box on the table's columns."""
    if isinstance(model, AuditedModel):
        return model
    if is_module(model):
        found = networks("A torch module").module_model(model, output=options.output, table=options.table)
        return cast(AuditedModel, found)
    if isinstance(model, OnnxModel):
        return onnx_model(model, table=options.table, **options.sampling)
    if isinstance(model, PmmlModel):
        return pmml_model(model, options.table, **options.sampling)
    if hasattr(model, "audited_model"):  # an estimator of ours
        return cast(AuditedModel, model.audited_model())
    if _is_statsmodels(model):
        return statsmodels_model(model, options.table, **options.sampling)
    model = unwrapped(model)
    if is_scorecard(model):
        bins = pipeline_encoder(ScorecardBins(model), options.table)
        return None if bins is None else _known_estimator(model.estimator_, options, bins)
    if is_kind(model, "ExplainableBoostingClassifier", library="interpret"):
        return boosting_machine(model, options.table)
    if is_kind(model, "Pipeline"):
        return _known_pipeline(model, options)
    return _known_estimator(model, options, None)


_COMBINATIONS = ("CalibratedClassifierCV", "VotingClassifier", "StackingClassifier", "BaggingClassifier")


def _is_combination(model: Any) -> bool:
    """Whether `model` is a fitted combination of classifiers that may be opened."""
    fitted = any(hasattr(model, name) for name in ("calibrated_classifiers_", "estimators_"))
    return is_kind(model, *_COMBINATIONS) and fitted and len(model.classes_) == 2 and hasattr(model, "predict_proba")


# Nothing is imported to see which library a model is from.


def is_module(model: Any) -> bool:
    """Whether `model` is a torch module.

    Examples
    --------
    >>> is_module("text")
    False
    """
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def _is_statsmodels(model: Any) -> bool:
    """Whether `model` is the result of fitting a statsmodels model."""
    return type(model).__module__.startswith("statsmodels.") and hasattr(model, "params")


def _takes_categories(model: Any) -> bool:
    """Whether `model` is a fitted CatBoost model with categories or text among its features."""
    return tree_library(model) == "catboost" and getattr(model, "is_fitted", bool)() and takes_words(model)


def _known_estimator(model: Any, options: _Options, encoder: PipelineEncoder | None) -> AuditedModel | None:
    """An estimator on its inputs, encoded or not."""
    if encoder is None and options.table is not None and options.allows("sampled_shapley") and _takes_categories(model):
        return catboost_black_box(model, options.table, **options.sampling)
    if isinstance(model, TreeEnsemble) or tree_library(model) is not None:
        try:
            columns = None if options.table is None else [str(column) for column in options.table.columns]
            return tree_model(model, encoder, columns)
        except InvalidTypeError:
            if options.attribution == "tree_shap":
                raise
    if _is_combination(model):
        return _known_combination(model, options, encoder)
    known = linear_model(model, options.output, encoder) or network_model(model, encoder)
    return known or (None if encoder is None else _black_box(model, options, encoder))


def _known_combination(model: Any, options: _Options, encoder: PipelineEncoder | None) -> AuditedModel | None:
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
    if options.allows("sampled_shapley") and _takes_categories(last):
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


def _black_box(model: Any, options: _Options, encoder: PipelineEncoder | None = None) -> ShapleyModel:
    return black_box_model(unwrapped(model), encoder=encoder, table=options.table, **options.sampling)


_CHOOSERS = ("FixedThresholdClassifier", "TunedThresholdClassifierCV")


def own_threshold(model: Any, audited: AuditedModel) -> float | None:
    """The probability of the favorable outcome from which a model decides for it; None if it has no threshold.

    Parameters
    ----------
    model
        The user's model: a search, a pipeline or a threshold chooser around a model, or anything else.
    audited
        The same in the form of the audit.

    Raises
    ------
    InvalidInputError
        If the threshold applies to a margin that is not the explained score.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import FixedThresholdClassifier
    >>> from evenhand.models.dispatch import as_audited_model
    >>> model = FixedThresholdClassifier(LogisticRegression(), threshold=0.3).fit([[0.0], [1.0], [2.0]], [0, 0, 1])
    >>> own_threshold(model, as_audited_model(model))
    0.3
    """
    while not is_kind(model, *_CHOOSERS):
        inner = model.steps[-1][1] if is_kind(model, "Pipeline") else inner_estimator(model)
        if inner is None:
            return None
        model = inner
    if is_kind(model, "FixedThresholdClassifier"):
        threshold, label = model.threshold, model.pos_label
    else:
        threshold, label = model.best_threshold_, model._curve_scorer._get_pos_label()
    if threshold == "auto":
        return None
    favorable_side = label is None or bool(label == model.classes_[1])
    has_probabilities = hasattr(inner_estimator(model), "predict_proba")
    if model.response_method == "decision_function" or (model.response_method == "auto" and not has_probabilities):
        if audited.output != "log-odds":
            raise InvalidInputError(
                f"The {type(model).__name__} decides by a margin, at {threshold:.6g}, but is explained by its "
                'probability; fit it with response_method="predict_proba".'
            )
        return float(expit(threshold if favorable_side else np.nextafter(-threshold, np.inf)))
    return float(np.clip(threshold if favorable_side else np.nextafter(1 - threshold, np.inf), 0, 1))


_FEWEST_SPLITS = 10
_IMPUTERS = ("SimpleImputer", "KNNImputer", "IterativeImputer")
_QUARTILES = 1.349  # standard deviations between the quartiles of a normal distribution
_RANGE = 4.0  # and about as many between the extremes


@dataclass(frozen=True)
class FittedScale:
    """The approximate center and spread of a column when the model was fitted."""

    center: float
    spread: float


def fitted_scales(model: Any, audited: AuditedModel, columns: Sequence[str]) -> dict[str, FittedScale]:
    """What a model records about its columns: from its encoder, from a scaler, or from the splits of its trees.

    Parameters
    ----------
    model, audited
        The user's model, and the same model in the form of the audit.
    columns
        Columns of the table.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from evenhand.models.dispatch import as_audited_model
    >>> model = make_pipeline(StandardScaler(), LogisticRegression()).fit([[1.0], [3.0]], [0, 1])
    >>> fitted_scales(model, as_audited_model(model), ["income"])
    {'income': FittedScale(center=2.0, spread=1.0)}
    """
    known = audited.risk if isinstance(audited, RiskModel) else audited
    if isinstance(known.encoder, TableEncoder):
        numbers = (column for column in known.encoder.columns if isinstance(column, NumberColumn))
        return {column.name: FittedScale(column.mean, column.scale) for column in numbers}
    takes_columns = known.encoder is None or isinstance(known.encoder, OneToOne)
    if takes_columns and isinstance(known, ShapleyModel) and isinstance(known.game, TreeGame):
        return _of_splits(known.game.ensemble, columns)
    estimator = unwrapped(model)
    return dict(_of_steps(estimator, columns)) if is_kind(estimator, "Pipeline") else {}


def _of_splits(trees: TreeEnsemble, columns: Sequence[str]) -> dict[str, FittedScale]:
    """From the thresholds of a column, which lie among its values, if there are enough of them."""
    found = {}
    is_split = (trees.feature >= 0) & (trees.rule != 2)
    for place, name in enumerate(columns[: trees.n_features]):
        splits = np.unique(trees.threshold[is_split & (trees.feature == place)])
        if len(splits) >= _FEWEST_SPLITS:
            found[name] = FittedScale(float(splits.mean()), float(splits.std()))
    return found


def _of_steps(pipeline: Any, columns: Sequence[str]) -> Iterator[tuple[str, FittedScale]]:
    """From a scaler that is applied first, or after missing values were filled."""
    for _, step in flat_steps(pipeline):
        if is_kind(step, "ColumnTransformer"):
            known = fitted_names(step) or list(columns)
            for name, part, _ in step.transformers_ if len(known) == step.n_features_in_ else ():
                names = [known[j] for j in step._transformer_to_input_indices[name]]
                if not isinstance(part, str):
                    yield from _of_steps(part, names) if is_kind(part, "Pipeline") else _of_scaler(part, names)
            return
        if not is_kind(step, *_IMPUTERS):
            yield from _of_scaler(step, columns)
            return


def _of_scaler(step: Any, columns: Sequence[str]) -> Iterator[tuple[str, FittedScale]]:
    if getattr(step, "n_features_in_", None) != len(columns):
        return
    center: Any = None
    if is_kind(step, "StandardScaler"):
        center, spread = step.mean_, step.scale_
    elif is_kind(step, "RobustScaler"):
        center, spread = step.center_, None if step.scale_ is None else step.scale_ / _QUARTILES
    elif is_kind(step, "MinMaxScaler"):
        center, spread = (step.data_min_ + step.data_max_) / 2, step.data_range_ / _RANGE
    if center is not None and spread is not None:
        for name, at, by in zip(columns, center, spread, strict=True):
            yield name, FittedScale(float(at), float(by))


_AS_WIDE = 5.0  # factor by which the spread of a column may differ from that of the model's input
_AS_FAR = 2.0  # spreads by which its center may differ


def unsettled_columns(model: Any, audited: AuditedModel, table: pd.DataFrame) -> list[str]:
    """Columns whose place among a model's inputs neither names nor statistics of the training data settle.

    A model without names takes columns by position. Its statistics settle the order if the columns fit the inputs in no
    other order.

    Parameters
    ----------
    model, audited
        The user's model, and the same model in the form of the audit.
    table
        People of the audit.

    Raises
    ------
    InvalidInputError
        If columns contradict the statistics of the inputs in their place, and fit those of others.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> people = pd.DataFrame({"income": [0.0, 1.0, 2.0], "debt": [2.0, 1.0, 3.0]})
    >>> model = LogisticRegression().fit(people.to_numpy(), [0, 1, 1])
    >>> unsettled_columns(model, as_audited_model(model, table=people), people)
    ['income', 'debt']
    """
    columns = [str(column) for column in table.columns]
    is_named = audited.encoder is not None and getattr(audited.encoder, "takes_names", True)
    if is_named or len(columns) < 2 or columns == [f"x{j}" for j in range(len(columns))]:
        return []
    fits = _fitting(table, fitted_scales(model, audited, columns))
    is_own = fits.diagonal()
    if not is_own.all():
        inputs, places = linear_sum_assignment(~fits)
        if (~is_own).sum() >= 2 and fits[inputs, places].all():
            j = int((~is_own).argmax())
            raise InvalidInputError(
                f"The columns are in a different order than the {audited.kind} was fitted on, which has no names for "
                f"them: {columns[j]!r} does not fit the values of input {j + 1}, but {columns[places[j]]!r} does. In "
                f"the order {[columns[k] for k in places]} all fit: pass them in the order of training "
                "(--columns a,b,c)."
            )
        return columns
    _, part = connected_components(fits, connection="strong")  # columns that can trade places
    return [column for column, k in zip(columns, part, strict=True) if (part == k).sum() > 1]


def _fitting(table: pd.DataFrame, scales: dict[str, FittedScale]) -> NDArray[np.bool_]:
    """Whether each column (column) may be the input that was fitted in the place of another one (row)."""
    fits = np.ones((table.shape[1], table.shape[1]), dtype=bool)
    numbers = {name: pd.to_numeric(table[name], errors="coerce") for name in table.columns}
    values = pd.DataFrame({name: np.asarray(column, dtype=np.float64) for name, column in numbers.items()})
    values = values.where(np.isfinite(values))
    center, spread = values.mean().to_numpy(), values.std(ddof=0).to_numpy()
    for i, name in enumerate(table.columns):
        scale = scales.get(str(name))
        if scale is not None and scale.spread > 0:
            ratio = spread / scale.spread
            is_near = np.abs(center - scale.center) <= _AS_FAR * np.maximum(spread, scale.spread)
            fits[i] = (ratio >= 1 / _AS_WIDE) & (ratio <= _AS_WIDE) & is_near
    return fits


def notes_on_order(model: Any, audited: AuditedModel, table: pd.DataFrame) -> tuple[str, ...]:
    """A sentence on the order in which a fitted model without names took its inputs, if nothing else settles it.

    A torch module, a function, or an object that does not say what it was fitted on takes the table as it is.
    """
    is_fitted = (
        isinstance(model, (OnnxModel, TreeEnsemble)) or tree_library(model) is not None or _is_statsmodels(model)
    )
    if not is_fitted and not hasattr(unwrapped(model), "n_features_in_"):
        return ()
    unsettled = unsettled_columns(model, audited, table)
    if not unsettled:
        return ()
    return (
        f"The {audited.kind} has no names for its inputs. They were taken in the order of the columns: "
        f"{', '.join(map(repr, map(str, table.columns)))}; nothing in the model tells "
        f"{'them' if len(unsettled) == table.shape[1] else ', '.join(map(repr, unsettled))} apart. If it was fitted in "
        "a different order, its scores are wrong.",
    )


def input_columns(model: Any) -> list[str] | None:
    """Columns that a model names as its inputs; None if it names none.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.linear_model import LogisticRegression
    >>> people = pd.DataFrame({"income": [0.0, 1.0], "debt": [2.0, 1.0]})
    >>> input_columns(LogisticRegression().fit(people, [0, 1]))
    ['income', 'debt']
    """
    if _is_statsmodels(model):
        return regression_columns(model)
    encoder = getattr(model, "encoder_", None) or (model.encoder if isinstance(model, AuditedModel) else None)
    # Of our models; of scikit-learn; of trees; of ONNX.
    names = None if encoder is None else encoder.names
    for attribute in ("feature_names_in_", "feature_names", "column_names"):
        names = getattr(model, attribute, None) if names is None else names
    if names is None:
        model = unwrapped(model)
        names = binned_columns(next(flat_steps(model))[1] if is_kind(model, "Pipeline") else model)
    return None if names is None else [str(name) for name in names]
