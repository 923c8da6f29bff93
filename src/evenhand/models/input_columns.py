"""The columns that a model names as its inputs, for any library."""

from __future__ import annotations

from typing import Any

from evenhand.models.encoders.steps import flat_steps
from evenhand.models.optbinning import binned_columns
from evenhand.models.protocol import AuditedModel
from evenhand.models.sklearn import is_kind, unwrapped
from evenhand.models.statsmodels import is_statsmodels, regression_columns

__all__ = ["input_columns"]


def input_columns(model: Any) -> list[str] | None:  # noqa: ANN401 - any model
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
