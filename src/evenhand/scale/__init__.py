"""Audits of any size: in batches, resumable, on one machine or several."""

from evenhand.scale.result import StreamedAudit
from evenhand.scale.streaming import audit_stream

__all__ = ["StreamedAudit", "audit_stream"]
