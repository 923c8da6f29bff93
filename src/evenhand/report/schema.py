"""The JSON Schema of the output of `AuditResult.to_json`."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

__all__ = ["load_schema"]


def load_schema() -> dict[str, Any]:
    """The schema of the audit's JSON, version 2, as plain data (JSON Schema 2020-12).

    The documentation of the JSON says what may change within the version.

    Examples
    --------
    >>> schema = load_schema()
    >>> schema["title"], "cec" in schema["required"]
    ('evenhand.audit/2', True)
    """
    text = (files("evenhand.report") / "audit.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema
