"""The threshold at which a model makes its decisions, if it has one."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

from evenhand.exceptions import InvalidInputError
from evenhand.models.protocol import AuditedModel
from evenhand.models.sklearn import inner_estimator, is_kind

__all__ = ["own_threshold"]

_CHOOSERS = ("FixedThresholdClassifier", "TunedThresholdClassifierCV")


def own_threshold(model: Any, audited: AuditedModel) -> float | None:  # noqa: ANN401 - any model
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
    threshold, favorable_side = _threshold(model)
    if threshold is None:
        return None
    if _response(model) == "decision_function":
        if audited.output != "log-odds":
            raise InvalidInputError(
                f"The {type(model).__name__} decides by a margin, at {threshold:.6g}, but is explained by its "
                'probability; fit it with response_method="predict_proba".'
            )
        return float(expit(threshold if favorable_side else np.nextafter(-threshold, np.inf)))
    return float(np.clip(threshold if favorable_side else np.nextafter(1 - threshold, np.inf), 0, 1))


def _threshold(model: Any) -> tuple[float | None, bool]:  # noqa: ANN401
    """The threshold, and whether it applies to the favorable class, `classes_[1]` unless `pos_label` differs."""
    if is_kind(model, "FixedThresholdClassifier"):
        threshold, label = model.threshold, model.pos_label
    else:
        threshold, label = model.best_threshold_, model._curve_scorer._get_pos_label()
    return None if threshold == "auto" else float(threshold), label is None or bool(label == model.classes_[1])


def _response(model: Any) -> str:  # noqa: ANN401
    if model.response_method != "auto":
        return str(model.response_method)
    return "predict_proba" if hasattr(inner_estimator(model), "predict_proba") else "decision_function"
