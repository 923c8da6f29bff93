"""What was audited, the plain data from which every output is made, and quantiles of values in parts."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from evenhand.arrays import Floats
from evenhand.system import __version__
from evenhand.system.files import json_ready, write_atomically

SCHEMA = "evenhand.audit/3"
_RENAMED = {"ci_low": "low", "ci_high": "high", "excess_ci_low": "excess_low", "excess_ci_high": "excess_high"}
_UNKNOWN: dict[str, Any] = {**dict.fromkeys(("standard_error", "p_value", "n", "df", "n_effective")), "note": ""}


def upgraded(summary: Any) -> Any:
    """A summary that evenhand 0.2 wrote, in the form of this version; anything else as it is.

    Examples
    --------
    >>> gap = {"value": 0.1, "ci_low": 0.0, "ci_high": 0.2}
    >>> upgraded({"schema": "evenhand.audit/2", "gap": gap})["gap"]["low"]
    0.0
    """
    if not isinstance(summary, Mapping) or summary.get("schema") != "evenhand.audit/2":
        return summary

    def renamed(value: Any) -> Any:
        if isinstance(value, list):
            return [renamed(item) for item in value]
        if not isinstance(value, Mapping):
            return value
        # Groups and features have names of the user's choice, but none has all keys of an interval.
        has_interval = {"ci_low", "ci_high"} <= set(value) or {"excess_ci_low", "excess_ci_high"} <= set(value)
        keys = _RENAMED if has_interval else {}
        record = {keys.get(key, key): renamed(item) for key, item in value.items()}
        return {**_UNKNOWN, **record} if {"value", "low", "high"} <= set(record) else record

    copy = renamed(summary)
    for gap in copy.get("score_gaps", ()) if isinstance(copy.get("score_gaps"), list) else ():
        for name in ("n_pairs", "n_favor_group", "n_favor_reference"):
            gap.pop(name, None)
        gap |= {"n_alone": 0, "shuffles": []}
    if isinstance(copy.get("settings"), dict):
        copy["settings"] = {"regressions": "regressions" in copy, "reference_group": None, **copy["settings"]}
        if copy["settings"].get("favorable") == "low" and copy["settings"].get("unit"):
            copy = _with_values_as_given(copy)
    if isinstance(copy.get("data"), dict):
        copy["data"] = {"columns": {}, "files": {}, **copy["data"]}
    if isinstance(copy.get("verdict"), dict):
        copy["verdict"].setdefault("direction", "")
    return {**copy, "schema": SCHEMA}


def _with_values_as_given(summary: dict[str, Any]) -> dict[str, Any]:
    """A summary with turned gaps in value, of which those below 0 were worse; people's influences on them are lost."""

    def turned(record: Mapping[str, Any]) -> dict[str, Any]:
        value, low, high = (None if record[k] is None else -record[k] for k in ("value", "low", "high"))
        return {**record, "value": value, "low": high, "high": low}

    for key in ("score_gaps", "segment_gaps"):
        for gap in summary.get(key, ()):
            gap |= {"total": turned(gap["total"]), "features": [turned(row) for row in gap["features"]]}
    if "value" in summary.get("score_gap", {}):
        summary["score_gap"]["value"] = turned(summary["score_gap"]["value"])
    for one in (
        one for one in summary.get("findings", ()) if one["key"] == "score_gap" and one["estimate"] is not None
    ):
        one |= {"estimate": -one["estimate"], "ci": [None if end is None else -end for end in reversed(one["ci"])]}
    return {name: part for name, part in summary.items() if name != "influences"}


@dataclass(frozen=True)
class Provenance:
    """What was audited.

    Attributes
    ----------
    groups
        Number of audited people by group.
    group_columns
        Columns of the table whose values reveal the group: the model can see the group through them.
    attribution_method
        How the paths were integrated.
    completeness_gap
        Mean gap between the sum of attributions and the change in the logit, as a share of the latter.
    attribution_error
        Standard error of sampled attributions as a share of their size (root mean squares); None if nothing is
        sampled.
    integration_error
        Bound on the mean error of integrated gradients as a share of their size, from people of the reference; None
        if paths are not integrated by segments.
    n_without_baseline
        Audited people left out because the reference has no one of their label and group.
    exclusions
        Rows left out before the audit, by reason.
    fingerprint
        SHA-256 of the audited people's columns, labels and groups, whatever their order.
    column_prints
        Hexadecimal digits for labels and groups, and for each column, by which two audits of the same people are
        recognized even if one has additional columns.
    hashes
        SHA-256 of the reference, of the scores, and of the files that were read.
    columns
        Names of columns by role, such as label, group, clusters and dropped, and the favorable value of the label; only
        what is known.
    files
        Names of the files that were read.
    """

    model: str
    n_people: int
    n_reference: int | None
    n_features: int
    groups: Mapping[str, int]
    group_columns: list[str]
    attribution_method: str
    completeness_gap: float
    n_without_baseline: int
    exclusions: Mapping[str, int] = field(default_factory=dict)
    attribution_error: float | None = None
    fingerprint: str = ""
    column_prints: Mapping[str, str] = field(default_factory=dict)
    hashes: Mapping[str, str] = field(default_factory=dict)
    integration_error: float | None = None
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


_version = cache(version)  # read from files, and each form of a result asks for it


def library_versions() -> dict[str, str]:
    """Versions of everything that a metric depends on."""
    packages = ("numpy", "scipy", "torch", "scikit-learn", "pandas")
    return {"evenhand": __version__, "python": platform.python_version(), **{name: _version(name) for name in packages}}


def write_json(data: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write plain data as JSON, completely or not at all; a missing number is null."""
    text = json.dumps(json_ready(data), indent=2, allow_nan=False, ensure_ascii=False)
    with write_atomically(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


_MOST_KEPT = 1 << 22  # values: 32 MB
_DIGIT = 16  # bits of a value looked at in each pass
_ROUNDING = 1e-12  # of sums of weights, as a share of them


def quantiles_of_parts(parts: Callable[[], Iterator[Floats]], shares: Sequence[float]) -> list[float]:
    """Quantiles of all values together, as `numpy.quantile` computes them; NaN if there are no values.

    Where they are too many to keep, values are compared by their bits, sixteen at a time: four passes count them, and
    nothing is kept but counts.

    Parameters
    ----------
    parts
        Iterates over the parts anew at each call. No value may be NaN.
    shares
        Which quantiles, from 0 to 1.

    Examples
    --------
    >>> quantiles_of_parts(lambda: iter([np.array([1.0, 4.0]), np.array([2.0, 3.0])]), [0.0, 0.5, 1.0])
    [1.0, 2.5, 4.0]
    """
    n, kept = 0, list[Floats]()
    for part in parts():
        n += len(part)
        kept.append(part)
        if n > _MOST_KEPT:
            kept.clear()
    if not n:
        return [float("nan")] * len(shares)
    if n <= _MOST_KEPT:
        found: list[float] = np.quantile(np.concatenate(kept), shares).tolist()
        return found
    # NumPy interpolates between the two values around place (n - 1) * share.
    places = [(n - 1) * share for share in shares]
    below = [min(int(place), n - 1) for place in places]
    wanted = sorted({k for first in below for k in (first, min(first + 1, n - 1))})

    def counted() -> Iterator[tuple[Floats, None]]:
        return ((part, None) for part in parts())

    value = dict(zip(wanted, _order_statistics(counted, np.asarray(wanted), side="right"), strict=True))
    return [
        _interpolated(value[first], value[min(first + 1, n - 1)], place - first)
        for first, place in zip(below, places, strict=True)
    ]


def weighted_quantiles_of_parts(
    parts: Callable[[], Iterator[tuple[Floats, Floats]]], shares: Sequence[float]
) -> list[float]:
    """Quantiles of weighted values: the smallest value up to which the weights reach the share; NaN if there are none.

    They equal those of `numpy.quantile` with weights, which does not interpolate.

    Parameters
    ----------
    parts
        Iterates over values and their weights anew at each call. Values of weight 0 do not count.
    shares
        Which quantiles, from 0 to 1.

    Examples
    --------
    >>> weighted_quantiles_of_parts(lambda: iter([(np.array([1.0, 2.0, 9.0]), np.array([1.0, 1.0, 3.0]))]), [0.4, 0.5])
    [2.0, 9.0]
    """

    def counted() -> Iterator[tuple[Floats, Floats]]:
        for values, weight in parts():
            yield values[weight > 0], weight[weight > 0]

    total = sum(float(weight.sum()) for _, weight in counted())
    if not total:
        return [float("nan")] * len(shares)
    # For a share of 0, the smallest value with a positive weight.
    places = np.maximum((np.asarray(shares) - _ROUNDING) * total, np.finfo(np.float64).tiny)
    return _order_statistics(counted, places, side="left")


def _order_statistics(
    parts: Callable[[], Iterator[tuple[Floats, Floats | None]]],
    wanted: NDArray[np.int64] | Floats,
    side: Literal["left", "right"],
) -> list[float]:
    """The values at places of the sorted whole; places are numbers of preceding values, or sums of their weights."""
    prefix = np.zeros(len(wanted), dtype=np.uint64)
    place = np.array(wanted)
    for shift in range(64 - _DIGIT, -1, -_DIGIT):
        counts = {int(p): np.zeros(1 << _DIGIT, dtype=place.dtype) for p in prefix}
        for part, weight in parts():
            bits = _ordered_bits(part)
            upper = bits >> np.uint64(shift)
            # A shift by all 64 bits is undefined, so the first pass has no prefix to compare.
            known = upper >> np.uint64(_DIGIT)
            digits = (upper & np.uint64((1 << _DIGIT) - 1)).astype(np.int64)
            for p, count in counts.items():
                inside = known == np.uint64(p)
                count += np.bincount(digits[inside], None if weight is None else weight[inside], minlength=1 << _DIGIT)
        for k in range(len(wanted)):
            upto = np.cumsum(counts[int(prefix[k])])
            # Sums of weights may end just below the target.
            digit = int(np.searchsorted(upto, min(place[k], upto[-1]), side=side))
            place[k] -= upto[digit - 1] if digit else 0
            prefix[k] = (prefix[k] << np.uint64(_DIGIT)) | np.uint64(digit)
    return [float(value) for value in _from_ordered_bits(prefix)]


def _ordered_bits(values: Floats) -> NDArray[np.uint64]:
    """Bits that sort in the order of the values."""
    bits = np.ascontiguousarray(values + 0.0, dtype=np.float64).view(np.uint64)  # -0.0 becomes 0.0
    is_negative = bits >> np.uint64(63) == 1
    return np.where(is_negative, ~bits, bits | np.uint64(1 << 63))


def _from_ordered_bits(bits: NDArray[np.uint64]) -> Floats:
    is_negative = bits >> np.uint64(63) == 0
    return np.where(is_negative, ~bits, bits & np.uint64((1 << 63) - 1)).view(np.float64)


def _interpolated(low: float, high: float, share: float) -> float:
    """Interpolate, with the same rounding as NumPy."""
    if low == high:
        return low
    return high - (high - low) * (1 - share) if share >= 0.5 else low + (high - low) * share
