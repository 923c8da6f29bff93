"""Limits that a user sets on an audit's metrics, such as ``regimes.B > 0.4``."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
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
_SHOWN = 6  # how many candidates an ambiguous name lists
_FORM = re.compile(r"\s*([\w.]+)\s*(>=|<=|>|<)\s*([-+.\deE]+)\s*")


@dataclass(frozen=True)
class Gate:
    """A metric, a comparison and a limit; crossed when the comparison holds."""

    metric: str
    comparison: str
    limit: float

    def __str__(self) -> str:
        return f"{self.metric} {self.comparison} {self.limit:g}"


def parse_gate(text: str) -> Gate:
    """Parse a gate.

    Examples
    --------
    >>> parse_gate("eo_gap > 0.1")
    Gate(metric='eo_gap', comparison='>', limit=0.1)
    """
    form = _FORM.fullmatch(text)
    if form is None:
        raise InvalidInputError(f"A gate must look like 'eo_gap > 0.1' (with >, >=, < or <=), got {text!r}.")
    try:
        return Gate(form[1], form[2], float(form[3]))
    except ValueError:
        raise InvalidInputError(f"The limit of a gate must be a number, got {form[3]!r}.") from None


def crossed_gates(gates: list[Gate], summary: Mapping[str, Any]) -> list[str]:
    """Return one sentence for each gate that is crossed.

    Parameters
    ----------
    gates
        The limits.
    summary
        `AuditResult.to_dict()`. A gate names a metric in full (``outcome.eo_gap``) or by its last part (``eo_gap``),
        in which case the metric nearest to the top is used. The four findings have short names: ``score_gap`` and
        ``inputs`` (their absolute size), ``weighing`` and ``excess``; add ``_p`` for the adjusted p-value.


    Raises
    ------
    InvalidInputError
        If a gate names no known metric, is ambiguous, or names a metric that could not be estimated.
    """
    known = {**dict(_numbers(summary)), **dict(_of_findings(summary.get("findings", ())))}
    values = [(gate, _metric(gate.metric, known)) for gate in gates]
    return [
        f"{gate} is crossed: {gate.metric} is {value:.4g}"
        for gate, value in values
        if _OPERATORS[gate.comparison](value, gate.limit)
    ]


def _metric(name: str, known: Mapping[str, float]) -> float:
    full = [key for key in known if key == name or key.endswith(f".{name}")]
    # Take the one nearest to the top: `auc` is the model's, not that of a nested screen.
    full = [key for key in full if key.count(".") == min(k.count(".") for k in full)]
    if len(full) > 1:
        more = f", or one of {len(full) - _SHOWN:,} more" if len(full) > _SHOWN else ""
        shown = ", ".join(full[:_SHOWN]) if more else f"{', '.join(full[:-1])} or {full[-1]}"
        raise InvalidInputError(
            f"The gate's metric {name!r} is ambiguous: it may be {shown}{more}. Give the full name."
        )
    if not full:
        options = [*(key.rpartition(".")[2] for key in known), *known]
        raise InvalidInputError(f"The gate names an unknown metric: {name!r}.{did_you_mean(name, options)}")
    value = known[full[0]]
    if math.isnan(value):
        raise InvalidInputError(f"The gate on {name!r} cannot be checked because the metric could not be estimated.")
    return value


def _of_findings(findings: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    for found in findings:
        has_side = found["key"] in ("score_gap", "inputs")
        # A result read from a file has None where there is no number.
        estimate, p = (math.nan if found[name] is None else found[name] for name in ("estimate", "p_adjusted"))
        yield found["key"], abs(estimate) if has_side else estimate
        yield f"{found['key']}_p", p


def _numbers(summary: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for key, value in summary.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{key}.")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield f"{prefix}{key}", float(value)
