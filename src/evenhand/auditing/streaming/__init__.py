"""Audits of any size: in batches, resumable, on one machine or several."""

from evenhand.auditing.streaming.stream import audit_stream

__all__ = ["audit_stream"]
