"""What a model records about itself: its threshold, and the names and scales of its columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from evenhand.exceptions import InvalidInputError
from evenhand.inputs.encoding import NumberColumn, TableEncoder
from evenhand.models.encoders import OneToOne, flat_steps
from evenhand.models.protocol import AuditedModel, ShapleyModel
from evenhand.models.sklearn import binned_columns, inner_estimator, is_kind, unwrapped
from evenhand.models.statsmodels import is_statsmodels, regression_columns
from evenhand.models.trees.adapter import TreeGame
from evenhand.models.trees import TreeEnsemble
from evenhand.models.wrapped import RiskModel

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
            for _, part, chosen in step.transformers_:
                names = _names(chosen, columns)
                if names is not None and not isinstance(part, str):
                    yield from _of_steps(part, names) if is_kind(part, "Pipeline") else _of_scaler(part, names)
            return
        if not is_kind(step, *_IMPUTERS):
            yield from _of_scaler(step, columns)
            return


def _names(chosen: Any, columns: Sequence[str]) -> list[str] | None:
    """Columns by name; None if they are not selected by names or positions."""
    if not isinstance(chosen, (list, tuple, np.ndarray)):
        return None
    if all(isinstance(name, str) for name in chosen):
        return list(chosen)
    is_place = all(isinstance(k, (int, np.integer)) and not isinstance(k, bool) and k < len(columns) for k in chosen)
    return [columns[k] for k in chosen] if is_place else None


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
    if is_statsmodels(model):
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
