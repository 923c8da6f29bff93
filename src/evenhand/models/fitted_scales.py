"""The unit of a column when a model was fitted, as far as the model records it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenhand.inputs.encoding import NumberColumn, TableEncoder
from evenhand.models.encoders.named_columns import OneToOne
from evenhand.models.encoders.steps import flat_steps
from evenhand.models.protocol import AuditedModel
from evenhand.models.risk import RiskModel
from evenhand.models.shapley import ShapleyModel
from evenhand.models.sklearn import is_kind, unwrapped
from evenhand.models.trees.adapter import TreeGame
from evenhand.models.trees.ensemble import TreeEnsemble

__all__ = ["FittedScale", "fitted_scales"]

_FEWEST_SPLITS = 10
_IMPUTERS = ("SimpleImputer", "KNNImputer", "IterativeImputer")
_QUARTILES = 1.349  # standard deviations between the quartiles of a normal distribution
_RANGE = 4.0  # and about as many between the extremes


@dataclass(frozen=True)
class FittedScale:
    """The approximate center and spread of a column when the model was fitted."""

    center: float
    spread: float


def fitted_scales(model: Any, audited: AuditedModel, columns: Sequence[str]) -> dict[str, FittedScale]:  # noqa: ANN401
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


def _of_steps(pipeline: Any, columns: Sequence[str]) -> Iterator[tuple[str, FittedScale]]:  # noqa: ANN401
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


def _names(chosen: Any, columns: Sequence[str]) -> list[str] | None:  # noqa: ANN401 - what a ColumnTransformer holds
    """Columns by name; None if they are not selected by names or positions."""
    if not isinstance(chosen, (list, tuple, np.ndarray)):
        return None
    if all(isinstance(name, str) for name in chosen):
        return list(chosen)
    is_place = all(isinstance(k, (int, np.integer)) and not isinstance(k, bool) and k < len(columns) for k in chosen)
    return [columns[k] for k in chosen] if is_place else None


def _of_scaler(step: Any, columns: Sequence[str]) -> Iterator[tuple[str, FittedScale]]:  # noqa: ANN401
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
