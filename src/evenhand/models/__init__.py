"""What a model must offer to be audited, and how models of each kind offer it."""

from evenhand.models.dispatch import ATTRIBUTIONS, AttributionChoice, as_audited_model
from evenhand.models.gradient import DifferentiableModel
from evenhand.models.linear import LinearModel
from evenhand.models.onnx import OnnxModel
from evenhand.models.protocol import AttributionName, AuditedModel, EncodesTables, OffersAuditedModel, Output
from evenhand.models.shapley import ShapleyModel

__all__ = [
    "ATTRIBUTIONS",
    "AttributionChoice",
    "AttributionName",
    "AuditedModel",
    "DifferentiableModel",
    "EncodesTables",
    "LinearModel",
    "OffersAuditedModel",
    "OnnxModel",
    "Output",
    "ShapleyModel",
    "as_audited_model",
]
