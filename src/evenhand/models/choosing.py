"""The model that a user holds, as the audit sees it."""

from __future__ import annotations

from typing import Any

from torch import nn

from evenhand.exceptions import InvalidTypeError
from evenhand.models.audited import AuditedModel, OffersAuditedModel
from evenhand.models.differentiable import DifferentiableModel

__all__ = ["as_audited_model"]


def as_audited_model(model: Any) -> AuditedModel:  # noqa: ANN401 - anything a user may hold
    """Return `model` as the audit sees it.

    A torch module is taken as it is; an estimator that has an `audited_model()` method, as `CECClassifier` does,
    answers for itself.

    Examples
    --------
    >>> import torch
    >>> as_audited_model(torch.nn.Linear(3, 1)).kind
    'torch module Linear'
    """
    if isinstance(model, AuditedModel):
        return model
    if isinstance(model, nn.Module):
        return DifferentiableModel(model, f"torch module {type(model).__name__}")
    if isinstance(model, OffersAuditedModel):
        return model.audited_model()
    raise InvalidTypeError(
        f"Cannot audit a {type(model).__name__}: expected a torch module that maps (n, d) to one logit per row, "
        "or a fitted CECClassifier."
    )
