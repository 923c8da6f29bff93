"""What an audit is to do, from options and a TOML file."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from evenhand.exceptions import InvalidInputError

__all__ = ["AuditPlan", "plan_from_toml"]


_KINDS: dict[str, type] = {"str": str, "bool": bool, "int": int, "float": float, "tuple[str, ...]": tuple}


@dataclass(frozen=True)
class AuditPlan:
    """Everything `evenhand audit` can be told, by options or by a TOML file."""

    label: str = ""
    group: tuple[str, ...] = ()
    financial: tuple[str, ...] = ()
    model: str = ""
    trust_pickle: bool = False
    attribution: str = "auto"
    output: str = ""
    n_permutations: int = 32
    reference: str = ""
    drop: tuple[str, ...] = ()
    positive_label: str = ""
    keep_group: bool = False
    drop_missing: bool = False
    decision_threshold: float = 0.5
    consistency_threshold: float = 0.3
    max_distance: float | None = None
    by: tuple[str, ...] = ()
    no_evidence: bool = False
    stream: bool = False
    resume: bool = False
    batch_rows: int = 25_000
    reference_people: int = 200_000
    evidence_people: int | None = None
    engine: str = "local"
    scheduler: str = ""
    workers: int | None = None
    device: str = ""
    fail_on: tuple[str, ...] = ()
    random_state: int = 0


def plan_from_toml(path: Path | None) -> AuditPlan:
    """The plan of a TOML file; without one, the defaults."""
    if path is None:
        return AuditPlan()
    from evenhand.inputs.validation import did_you_mean

    try:
        settings: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidInputError(f"There is no file {str(path)!r}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{str(path)!r} is not valid TOML: {error}.") from None
    kinds = {field.name: _KINDS[str(field.type).removesuffix(" | None")] for field in fields(AuditPlan)}
    for key, value in settings.items():
        if key not in kinds:
            raise InvalidInputError(f"{str(path)!r} has an unknown key {key!r}.{did_you_mean(key, list(kinds))}")
        settings[key] = _toml_value(path, key, value, kinds[key])
    return replace(AuditPlan(), **settings)


def _toml_value(path: Path, key: str, value: Any, kind: type) -> Any:  # noqa: ANN401
    if kind is tuple:
        items = [value] if isinstance(value, str) else value
        if isinstance(items, list) and all(isinstance(item, str) for item in items):
            return tuple(items)
    elif kind is float:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    elif type(value) is kind:
        return value
    wanted = {tuple: "a text or a list of texts", str: "a text", bool: "true or false", int: "a whole number"}
    raise InvalidInputError(f"{str(path)!r}: {key} must be {wanted.get(kind, 'a number')}, got {value!r}.")
