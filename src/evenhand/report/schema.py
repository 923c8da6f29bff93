"""The JSON Schema of the output of `AuditResult.to_json`, and what is wrong with a file that departs from one."""

from __future__ import annotations

import inspect
import json
import re
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from importlib.resources import files
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

_PLAIN = {str: "string", bool: "boolean", int: "integer", type(None): "null"}
_SHARES = ("share", "auc", "confidence")
_FIELD = re.compile(r"^(\w[\w, ]*)\n((?:    .+(?:\n|$))+)", re.MULTILINE)


def schema_with(kinds: Iterable[type], parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The schema of the audit's JSON: that of the file, with the dataclasses that it names and with optional keys."""
    text = (files("evenhand.report") / "audit.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    for kind in kinds:
        schema_of(kind, schema["$defs"])
    for part in parts:
        schema["properties"] |= part
    return schema


def schema_of(kind: Any, known: dict[str, Any] | None = None, name: str = "") -> dict[str, Any]:
    """The JSON Schema of a dataclass, or of any type of its fields; a number may be null, as NaN is written.

    A field whose metadata say `is_optional` may be absent.

    Parameters
    ----------
    kind
        The type.
    known
        Where to put the schemas of dataclasses, by their names, which are then referred to; None to nest them.
    name
        Name of the field, from which the range of a number follows.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Rate:
    ...     group: str
    ...     p_value: float
    >>> schema_of(list[Rate])["items"]["properties"]["p_value"]
    {'type': ['number', 'null'], 'minimum': 0, 'maximum': 1}
    """
    origin, inner = get_origin(kind), get_args(kind)
    if kind in (float, int):
        bounds: dict[str, Any] = {}
        if name.startswith("p_") or name.endswith("_rate") or name in _SHARES:
            bounds = {"minimum": 0, "maximum": 1}
        elif (kind is int and name.startswith("n_")) or name in ("n", "n_effective", "df", "standard_error"):
            bounds = {"minimum": 0}
        return {"type": ["number", "null"] if kind is float else "integer", **bounds}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(one, known, name) for one in inner]}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": schema_of(inner[1], known, name)}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        fixed = {} if len(inner) == 1 or inner[1] is ... else {"minItems": len(inner), "maxItems": len(inner)}
        return {"type": "array", "items": schema_of(inner[0], known, name), **fixed}
    reference = {"$ref": f"#/$defs/{kind.__name__}"}
    if known is not None and kind.__name__ in known:
        return reference
    hints, said = get_type_hints(kind), inspect.getdoc(kind) or ""
    words = {key: " ".join(text.split()) for keys, text in _FIELD.findall(said) for key in keys.split(", ")}
    names = [field.name for field in fields(kind)]
    required = [field.name for field in fields(kind) if not field.metadata.get("is_optional")]
    schema = {
        "description": " ".join(said.partition("\n\n")[0].split()),
        "type": "object",
        "required": required,
        "properties": {
            key: {**schema_of(hints[key], known, key), **({"description": words[key]} if key in words else {})}
            for key in names
        },
        "additionalProperties": False,
    }
    if known is None:
        return schema
    known[kind.__name__] = schema
    return reference


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
