"""The JSON Schema of the output of `AuditResult.to_json`, and what is wrong with a file that departs from one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any


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


_LARGEST = 1e300  # what is larger overflows when it is squared or scaled


@cache
def _checker() -> Any:
    """JSON Schema as files are held to it: numbers can be computed with, and keys of later versions are allowed."""
    from jsonschema import Draft202012Validator, validators  # here, because few commands read a file back

    def is_number(_: Any, value: Any) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _LARGEST

    def additional(validator: Any, form: Any, value: Any, schema: Any) -> Any:
        of_draft = Draft202012Validator.VALIDATORS["additionalProperties"]
        return of_draft(validator, form, value, schema) if isinstance(form, dict) else ()

    types = {"number": is_number, "integer": lambda _, value: isinstance(value, int) and is_number(_, value)}
    return validators.extend(
        Draft202012Validator,
        {"additionalProperties": additional},
        type_checker=Draft202012Validator.TYPE_CHECKER.redefine_many(types),
    )


def first_fault(value: Any, schema: Mapping[str, Any]) -> str:
    """Where a value departs most from a schema, in words; empty where it does not.

    Examples
    --------
    >>> schema = {"required": ["mean"], "properties": {"mean": {"type": ["number", "null"]}}}
    >>> first_fault({"mean": None, "median": 3}, schema)
    ''
    >>> first_fault({"mean": "x"}, schema)
    "mean must be number or null, got 'x'"
    >>> first_fault({"mean": float("inf")}, schema)
    'mean must be a number that can be computed with, got inf'
    >>> first_fault({"groups": [{}]}, {"properties": {"groups": {"items": schema}}})
    'groups[0].mean is missing'
    """
    from jsonschema.exceptions import best_match

    error = best_match(_checker()(schema).iter_errors(value))
    if error is None:
        return ""
    place = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in error.absolute_path).lstrip(".")
    rule, wanted, got = error.validator, error.validator_value, error.instance
    if rule == "required":
        missing = next(name for name in wanted if name not in got)
        return f"{place}.{missing} is missing".lstrip(".")
    if rule in ("minItems", "maxItems"):
        return f"{place} has {len(got)} entries"
    is_number = isinstance(got, (int, float)) and not isinstance(got, bool)
    if is_number and not abs(got) <= _LARGEST:
        expected = "a number that can be computed with"
    elif rule == "type":
        expected = " or ".join([wanted] if isinstance(wanted, str) else wanted)
    elif rule in ("const", "enum"):
        expected = " or ".join(map(repr, [wanted] if rule == "const" else wanted))
    elif rule in ("minimum", "maximum"):
        expected = f"from {error.schema.get('minimum', '-inf')} to {error.schema.get('maximum', 'inf')}"
    else:
        expected = f"as {rule} says"
    return f"{place or 'the whole'} must be {expected}, got {_shown(got)}"


def _shown(value: Any) -> str:
    if isinstance(value, int) and abs(value) > _LARGEST:
        return "an integer of hundreds of digits"
    shown = repr(value) if not isinstance(value, (dict, list)) else {dict: "an object", list: "an array"}[type(value)]
    return shown if len(shown) <= 40 else f"{shown[:40]}..."
