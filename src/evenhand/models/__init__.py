"""What a model must offer to be audited, and how models of each kind offer it."""

from evenhand.models.audited import AttributionName, AuditedModel, EncodesTables, OffersAuditedModel, Output
from evenhand.models.choosing import ATTRIBUTIONS, AttributionChoice, as_audited_model
from evenhand.models.differentiable import DifferentiableModel
from evenhand.models.linear import LinearModel
from evenhand.models.onnx_graph import OnnxModel
from evenhand.models.playable import PlayableModel

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
    "PlayableModel",
    "as_audited_model",
]
