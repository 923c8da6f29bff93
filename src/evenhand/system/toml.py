"""Plain data as TOML, which Python reads but does not write."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from evenhand.exceptions import InvalidTypeError

__all__ = ["toml_text", "toml_value"]


def toml_text(values: Mapping[str, object]) -> str:
    r"""One line per key; None, which TOML does not have, is left out.

    Examples
    --------
    >>> toml_text({"label": "paid", "group": ("sex", "age"), "limits": {"excess": 0.05}, "model": None})
    'label = "paid"\ngroup = ["sex", "age"]\nlimits = {"excess" = 0.05}\n'
    """
    return "".join(f"{key} = {toml_value(value)}\n" for key, value in values.items() if value is not None)


def toml_value(value: object) -> str:
    """A value as TOML, whose basic strings use JSON's escapes.

    Raises
    ------
    InvalidTypeError
        If TOML has no such type.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{toml_value(str(key))} = {toml_value(item)}' for key, item in value.items())}}}"
    if isinstance(value, Iterable):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    raise InvalidTypeError(
        f"A TOML file can contain strings, numbers, lists and tables, got {type(value).__name__}: {value!r}."
    )
