"""The JSON Schema of what `AuditResult.to_json` writes."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

__all__ = ["load_schema"]


def load_schema() -> dict[str, Any]:
    """The schema of the audit's JSON, version 2, as plain data (JSON Schema 2020-12).

    What may change within the version is written in the documentation of the JSON.

    Examples
    --------
    >>> schema = load_schema()
    >>> schema["title"], "cec" in schema["required"]
    ('evenhand.audit/2', True)
    """
    text = (files("evenhand.report") / "audit.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema
