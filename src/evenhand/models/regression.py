"""Fitted regressors, whose score is a value in some unit: a price, a rate spread, an amount."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch

from evenhand.exceptions import InvalidInputError
from evenhand.models.black_box import black_box_model
from evenhand.models.encoders.named_columns import NamedColumns, fitted_names
from evenhand.models.linear import LinearModel
from evenhand.models.protocol import AttributionName, AuditedModel
from evenhand.models.sklearn import is_kind

__all__ = ["value_model"]

_LINEAR = ("LinearRegression", "Ridge", "RidgeCV", "Lasso", "LassoCV", "ElasticNet", "ElasticNetCV", "SGDRegressor")


def value_model(
    model: Any,  # noqa: ANN401 - anything with a prediction
    attribution: AttributionName | str,
    table: pd.DataFrame | None,
    *,
    n_permutations: int = 32,
    random_state: int = 0,
) -> AuditedModel:
    """A regressor in the form of the audit: exact if it is linear, else with sampled Shapley values of its prediction.

    Raises
    ------
    InvalidInputError
        If the model is a classifier.

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> price = LinearRegression().fit([[0.0], [1.0], [2.0]], [5.0, 6.0, 7.0])
    >>> value_model(price, "auto", None).output
    'value'
    """
    name = type(model).__name__
    if hasattr(model, "predict_proba") or hasattr(model, "classes_"):
        raise InvalidInputError(
            f"A {name} returns classes or probabilities, but `unit` (--unit) is for an outcome that is a value; leave "
            "it out."
        )
    is_linear = is_kind(model, *_LINEAR) and attribution != "sampled_shapley"
    if is_linear and np.size(model.intercept_) == 1 and np.ndim(model.coef_) == 1:
        names = fitted_names(model)
        return LinearModel(
            torch.as_tensor(np.array(model.coef_, dtype=np.float64)),
            float(np.ravel(model.intercept_)[0]),
            f"scikit-learn {name}",
            None if names is None else NamedColumns(names),
            output="value",
        )
    return black_box_model(model, output="value", n_permutations=n_permutations, random_state=random_state, table=table)
