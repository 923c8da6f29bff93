"""Limits that a user sets on figures of an audit, such as ``regimes.B > 0.4``."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from evenhand.exceptions import InvalidInputError
from evenhand.inputs.validation import did_you_mean

__all__ = ["Gate", "crossed_gates", "parse_gate"]

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_FORM = re.compile(r"\s*([\w.]+)\s*(>=|<=|>|<)\s*([-+.\deE]+)\s*")


@dataclass(frozen=True)
class Gate:
    """A figure, a comparison and a limit; crossed when the comparison holds."""

    figure: str
    comparison: str
    limit: float

    def __str__(self) -> str:
        return f"{self.figure} {self.comparison} {self.limit:g}"


def parse_gate(text: str) -> Gate:
    """A gate from its text.

    Examples
    --------
    >>> parse_gate("eo_gap > 0.1")
    Gate(figure='eo_gap', comparison='>', limit=0.1)
    """
    form = _FORM.fullmatch(text)
    if form is None:
        raise InvalidInputError(f"A gate reads like 'eo_gap > 0.1' (with >, >=, < or <=), got {text!r}.")
    try:
        return Gate(form[1], form[2], float(form[3]))
    except ValueError:
        raise InvalidInputError(f"The limit of a gate must be a number, got {form[3]!r}.") from None


def crossed_gates(gates: list[Gate], figures: Mapping[str, Any]) -> list[str]:
    """A sentence for each gate that is crossed.

    Parameters
    ----------
    gates
        The limits.
    figures
        `AuditResult.to_dict()`. A gate names a figure in full (``outcome.eo_gap``) or by its last part (``eo_gap``),
        which stands for the figure nearest to the top.

    Raises
    ------
    InvalidInputError
        If a gate names no figure, several, or one that could not be estimated.
    """
    known = dict(_numbers(figures))
    values = [(gate, _figure(gate.figure, known)) for gate in gates]
    return [
        f"{gate} is crossed: {gate.figure} is {value:.4g}"
        for gate, value in values
        if _OPERATORS[gate.comparison](value, gate.limit)
    ]


def _figure(name: str, known: Mapping[str, float]) -> float:
    full = [key for key in known if key == name or key.endswith(f".{name}")]
    # The nearest to the top is meant: `auc` is the model's, not that of a screen deep down.
    full = [key for key in full if key.count(".") == min(k.count(".") for k in full)]
    if len(full) > 1:
        raise InvalidInputError(f"The gate's figure {name!r} may be any of {full}; name one in full.")
    if not full:
        options = [*(key.rpartition(".")[2] for key in known), *known]
        raise InvalidInputError(f"The gate names no figure: {name!r}.{did_you_mean(name, options)}")
    value = known[full[0]]
    if math.isnan(value):
        raise InvalidInputError(f"The gate on {name!r} cannot be judged: the figure could not be estimated.")
    return value


def _numbers(figures: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for key, value in figures.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{key}.")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield f"{prefix}{key}", float(value)
