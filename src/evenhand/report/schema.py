"""The JSON Schema of the output of `AuditResult.to_json`, and what departs from a schema."""

from __future__ import annotations

import json
import math
import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from importlib.resources import files
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


def schema_with(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The schema of the audit's JSON: that of the file, and the schemas of further keys, which need not be present."""
    text = (files("evenhand.report") / "audit.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    for part in parts:
        schema["properties"] |= part
    return schema


_PLAIN = {str: "string", bool: "boolean", int: "integer", type(None): "null"}


def schema_of(kind: Any) -> dict[str, Any]:
    """The JSON Schema of a dataclass, or of any type of its fields; a number may be null, as NaN is written.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Rate:
    ...     group: str
    ...     value: float
    >>> schema_of(list[Rate])["items"]["properties"]
    {'group': {'type': 'string'}, 'value': {'type': ['number', 'null']}}
    """
    origin, inner = get_origin(kind), get_args(kind)
    if kind is float:
        return {"type": ["number", "null"]}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(one) for one in inner]}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": schema_of(inner[1])}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return {"type": "array", "items": schema_of(inner[0])}
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)]
    properties = {name: schema_of(hints[name]) for name in names}
    return {"type": "object", "required": names, "properties": properties, "additionalProperties": False}


_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "integer": int,
    "number": (int, float),
}
_LARGEST = 1e300  # what is larger overflows when it is squared or scaled


def first_fault(value: Any, schema: Mapping[str, Any]) -> str:
    """Where a value first departs from a schema, in words; empty where it does not.

    Of JSON Schema, what the schemas of this package use. Keys that a schema does not name are allowed: a later version
    may have written them.

    Examples
    --------
    >>> schema = {"required": ["mean"], "properties": {"mean": {"type": ["number", "null"]}}}
    >>> first_fault({"mean": None, "median": 3}, schema)
    ''
    >>> first_fault({"mean": "x"}, schema)
    "mean must be number or null, got 'x'"
    >>> first_fault({}, schema)
    'mean is missing'
    """
    return next(_faults(value, schema, schema, ""), "")


def _faults(value: Any, part: Mapping[str, Any], schema: Mapping[str, Any], where: str) -> Iterator[str]:
    place = where or "the whole"
    if "$ref" in part:
        yield from _faults(value, schema["$defs"][part["$ref"].rpartition("/")[2]], schema, where)
    if "anyOf" in part and all(any(_faults(value, form, schema, where)) for form in part["anyOf"]):
        yield from _faults(value, part["anyOf"][-1], schema, where)
    kinds = [part["type"]] if isinstance(part.get("type"), str) else part.get("type", [])
    if kinds and not any(_is_of(value, kind) for kind in kinds):
        yield f"{place} must be {' or '.join(kinds)}, got {_shown(value)}"
        return
    allowed = [part["const"]] if "const" in part else part.get("enum", [])
    if allowed and value not in allowed:
        yield f"{place} must be {' or '.join(map(repr, allowed))}, got {_shown(value)}"
    if _is_of(value, "number"):
        yield from _number_faults(value, part, place)
    elif isinstance(value, list):
        if not part.get("minItems", 0) <= len(value) <= part.get("maxItems", len(value)):
            yield f"{place} has {len(value)} entries"
        for k, item in enumerate(value):
            yield from _faults(item, part.get("items", {}), schema, f"{where}[{k}]")
    elif isinstance(value, dict):
        yield from (f"{_joined(where, name)} is missing" for name in part.get("required", ()) if name not in value)
        named, patterns = part.get("properties", {}), part.get("patternProperties", {})
        rest = part.get("additionalProperties")
        for name, item in value.items():
            like = (of_pattern for pattern, of_pattern in patterns.items() if re.search(pattern, name))
            form = named.get(name) or next(like, rest if isinstance(rest, dict) else {})
            yield from _faults(item, form, schema, _joined(where, name))


def _number_faults(value: float, part: Mapping[str, Any], place: str) -> Iterator[str]:
    if not abs(value) <= _LARGEST:
        yield f"{place} must be a number that can be computed with, got {_shown(value)}"
    elif value <= part.get("exclusiveMinimum", -math.inf):
        yield f"{place} must be above {part['exclusiveMinimum']}, got {value!r}"
    elif not part.get("minimum", value) <= value <= part.get("maximum", value):
        yield f"{place} must be from {part.get('minimum', '-inf')} to {part.get('maximum', 'inf')}, got {value!r}"


def _is_of(value: Any, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _joined(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _shown(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _LARGEST:
        return "an integer of hundreds of digits"
    shown = repr(value) if not isinstance(value, (dict, list)) else {dict: "an object", list: "an array"}[type(value)]
    return shown if len(shown) <= 40 else f"{shown[:40]}..."
