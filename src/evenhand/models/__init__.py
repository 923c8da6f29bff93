"""What a model must offer to be audited, and how models of each kind offer it."""

from evenhand.models.audited import AuditedModel, EncodesTables, OffersAuditedModel, Output
from evenhand.models.choosing import as_audited_model
from evenhand.models.differentiable import DifferentiableModel
from evenhand.models.playable import PlayableModel

__all__ = [
    "AuditedModel",
    "DifferentiableModel",
    "EncodesTables",
    "OffersAuditedModel",
    "Output",
    "PlayableModel",
    "as_audited_model",
]
