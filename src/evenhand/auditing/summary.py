"""The results of an audit as frozen parts, and the plain data from which every output is made."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.arrays import Floats
from evenhand.auditing.batch import AuditSums
from evenhand.auditing.scope import Scope
from evenhand.exceptions import InvalidInputError
from evenhand.metrics.cec import REGIMES
from evenhand.metrics.disparity import (
    ApprovalTable,
    CalibrationTable,
    CutoffApprovals,
    GapEstimate,
    GroupErrorRates,
    ScoreDisparity,
    SegmentedApproval,
)
from evenhand.metrics.estimate import Estimate, effective_number_of_people
from evenhand.metrics.outcomes import GroupOutcome
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


@dataclass(frozen=True)
class Outcome:
    """What the model decides, by group.

    Attributes
    ----------
    metrics
        Utility and gaps by name, each a number or NaN with the reason.
    groups
        Decisions and errors of each group.
    gaps
        The gaps with intervals.
    approvals, scores, error_rates
        Tables of a fair-lending file: approvals and scores next to a reference group, error rates of each group.
    cutoffs
        Approvals if the cutoff were at each decile of the score.
    segments
        For each requested column, approvals within its values and their common odds ratio.
    calibration
        The model's scores next to what was observed, by group.
    """

    metrics: Mapping[str, Estimate]
    groups: tuple[GroupOutcome, ...]
    gaps: Mapping[str, GapEstimate]
    approvals: ApprovalTable
    scores: tuple[ScoreDisparity, ...]
    error_rates: tuple[GroupErrorRates, ...]
    cutoffs: tuple[CutoffApprovals, ...]
    segments: Mapping[str, tuple[SegmentedApproval, ...]]
    calibration: CalibrationTable

    def to_dict(self) -> dict[str, Any]:
        """Plain data: metrics by name, and the tables."""
        return {
            **{name: metric.value for name, metric in self.metrics.items()},
            "notes": {name: metric.note for name, metric in self.metrics.items() if metric.note},
            "groups": [asdict(group) for group in self.groups],
            "gaps": {name: gap.to_dict() for name, gap in self.gaps.items()},
            "approvals": self.approvals.to_dict(),
            "scores": [row.to_dict() for row in self.scores],
            "error_rates": [row.to_dict() for row in self.error_rates],
            "cutoffs": [row.to_dict() for row in self.cutoffs],
            "segments": {name: [row.to_dict() for row in rows] for name, rows in self.segments.items()},
            "calibration": self.calibration.to_dict(),
        }


@dataclass(frozen=True)
class PairMetrics:
    """Metrics of all scored pairs.

    Attributes
    ----------
    cec, input_gap, reasoning_gap
        Means; NaN if no pair was scored.
    cec_median, cec_p90
        Quantiles of the CEC score.
    cec_by_group
        Means by group of the person, in order of the groups' names.
    regimes
        Share of pairs in each regime.
    distributions
        Histograms: see `auditing.distributions.pair_distributions`.
    flips
        Share of pairs whose two people get different decisions.
    """

    n_pairs: int
    n_negligible: int
    cec: float
    cec_median: float
    cec_p90: float
    input_gap: float
    reasoning_gap: float
    cec_by_group: Mapping[str, float]
    regimes: Mapping[str, float]
    distributions: Mapping[str, Any]
    flips: float = math.nan

    @classmethod
    def of(
        cls,
        sums: AuditSums,
        names: Sequence[str],
        quantiles: tuple[float, float],
        distributions: Mapping[str, Any],
        scope: Scope,
    ) -> PairMetrics:
        """Metrics from the sums over all pairs.

        Parameters
        ----------
        sums, names
            Sums over the pairs, and the names of the groups.
        quantiles
            Median and 0.9 quantile of the CEC score.
        distributions
            Histograms of the pairs.
        scope
            What can be found; the rest is NaN.
        """
        n, total = int(sums.n_scored.sum()), float(sums.scored.sum())
        means = (sums.pair_means.sum(axis=0) / total).tolist() if n else [math.nan] * 3
        regimes = (sums.regimes.sum(axis=0) / total).tolist() if n else [math.nan] * len(REGIMES)
        present = [code for code in np.argsort(names) if sums.n_scored[code]]
        by_group = {names[code]: (sums.pair_means[code] / sums.scored[code]).tolist() for code in present}
        nan, lost, has_explanations = math.nan, scope.not_possible, scope.attributions
        return cls(
            n_pairs=n,
            n_negligible=sums.n_negligible if has_explanations else 0,
            cec=means[0] if has_explanations else nan,
            cec_median=quantiles[0],
            cec_p90=quantiles[1],
            input_gap=nan if "weighing" in lost else means[1],
            reasoning_gap=nan if "weighing" in lost else means[2],
            cec_by_group={name: group[0] for name, group in by_group.items()} if has_explanations else {},
            regimes=dict.fromkeys(REGIMES, nan) if "regimes" in lost else dict(zip(REGIMES, regimes, strict=True)),
            distributions=distributions,
            flips=regimes[2] + regimes[3] if scope.decisions else nan,
        )


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


if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


CEC_EDGES = np.round(np.linspace(0, 1, 51), 3)
SCORE_EDGES = np.round(np.linspace(0, 1, 41), 4)
# Distances are unbounded: one bin for 0, then 20 per power of ten, and a last one for the rest.
DISTANCE_EDGES = np.concatenate([[0.0], np.round(np.logspace(-3, 3, 121), 6)])
PLANE_EDGES = (np.round(np.linspace(-1, 1, 41), 3), np.round(np.linspace(0, 1, 26), 3))


def pair_distributions(
    pairs: pd.DataFrame, is_scored: NDArray[np.bool_] | None = None, scope: Scope | None = None
) -> dict[str, Any]:
    """Counts of pairs by group, enough to draw the charts of a report; sums of weights if people have weights.

    Parameters
    ----------
    pairs
        Table of pairs, as `AuditResult.pairs`.
    is_scored
        Which pairs could be scored; by default those with a CEC score.
    scope
        What can be found; by default everything. For a value, the bins of scores cover its whole range.

    Returns
    -------
    Plain data. `cec` and `placebo_cec` (the mean over a person's placebo pairs), `distance` and `score`: `edges`, and
    `counts` by group. A bin includes its left edge, and the last bin both edges and everything beyond. `score` counts
    people, the others count pairs. `plane` counts pairs by score of the match minus score of the person, and by CEC
    score: `cells` are (bin of the difference, bin of the score, count). `regimes` counts pairs by group and regime.

    Examples
    --------
    >>> import pandas as pd
    >>> row = dict(person=0, group="a", score=0.7, match_score=0.5, cec=0.31, placebo_cec=0.2, distance=1.0, regime="B")
    >>> found = pair_distributions(pd.DataFrame([row]))
    >>> found["regimes"]["a"], found["plane"]["cells"]
    ({'A': 0, 'B': 1, 'C': 0, 'D': 0}, [[16, 7, 1]])
    """
    scope = scope or Scope()
    scored = pairs[pairs["cec"].notna() if is_scored is None else is_scored]
    people = pairs.drop_duplicates("person")
    groups = sorted(str(name) for name in pairs["group"].unique())
    explained = groups if scope.attributions else []
    cells: list[Any] = []
    if scope.attributions and scope.outcome == "score":
        difference = scored["match_score"].to_numpy(dtype=float) - scored["score"].to_numpy(dtype=float)
        cells = _cells(difference, scored["cec"].to_numpy(dtype=float), _weight(scored))
    edges = SCORE_EDGES
    if scope.outcome == "value":
        edges = np.linspace(people["score"].min(), people["score"].max(), len(SCORE_EDGES))
    return {
        "cec": _by_group(scored, "cec", CEC_EDGES, explained),
        "placebo_cec": _by_group(scored, "placebo_cec", CEC_EDGES, explained),
        "distance": _by_group(scored, "distance", DISTANCE_EDGES, groups),
        "score": _by_group(people, "score", edges, [] if scope.outcome == "decision" else groups),
        "plane": {
            "difference_edges": PLANE_EDGES[0].tolist(),
            "cec_edges": PLANE_EDGES[1].tolist(),
            "cells": cells,
        },
        "regimes": {} if "regimes" in scope.not_possible else _regimes(scored, groups),
    }


def merge_distributions(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Add the distributions of two sets of pairs.

    Raises
    ------
    InvalidInputError
        If the bins differ.

    Examples
    --------
    >>> import pandas as pd
    >>> row = dict(person=0, group="a", score=0.7, match_score=0.5, cec=0.31, placebo_cec=0.2, distance=1.0, regime="B")
    >>> part = pair_distributions(pd.DataFrame([row]))
    >>> merge_distributions(part, part)["regimes"]["a"]["B"]
    2
    """
    merged: dict[str, Any] = {}
    for name in ("cec", "placebo_cec", "distance", "score"):
        _check_edges(name, first[name]["edges"], second[name]["edges"])
        counts, more = first[name]["counts"], second[name]["counts"]
        zeros = [0] * (len(first[name]["edges"]) - 1)
        merged[name] = {
            "edges": list(first[name]["edges"]),
            "counts": {
                group: [a + b for a, b in zip(counts.get(group, zeros), more.get(group, zeros), strict=True)]
                for group in sorted({*counts, *more})
            },
        }
    plane, other = first["plane"], second["plane"]
    for edges in ("difference_edges", "cec_edges"):
        _check_edges("plane", plane[edges], other[edges])
    cells: dict[tuple[int, int], float] = {}
    for column, row, n in [*plane["cells"], *other["cells"]]:
        cells[column, row] = cells.get((column, row), 0) + n
    merged["plane"] = {**plane, "cells": [[*place, n] for place, n in sorted(cells.items())]}
    none: dict[str, float] = dict.fromkeys(REGIMES, 0)
    merged["regimes"] = {
        group: {r: first["regimes"].get(group, none)[r] + second["regimes"].get(group, none)[r] for r in REGIMES}
        for group in sorted({*first["regimes"], *second["regimes"]})
    }
    return merged


def scaled_distributions(distributions: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """Multiply every count of the distributions by a factor.

    Examples
    --------
    >>> import pandas as pd
    >>> row = dict(person=0, group="a", score=0.7, match_score=0.5, cec=0.31, placebo_cec=0.2, distance=1.0, regime="B")
    >>> scaled_distributions(pair_distributions(pd.DataFrame([row])), 0.5)["regimes"]["a"]["B"]
    0.5
    """

    def counts(found: Mapping[str, Any]) -> dict[str, list[float]]:
        return {group: [factor * n for n in numbers] for group, numbers in found.items()}

    histograms = {
        name: {**distributions[name], "counts": counts(distributions[name]["counts"])}
        for name in ("cec", "placebo_cec", "distance", "score")
    }
    plane = distributions["plane"]
    regimes = distributions["regimes"].items()
    return {
        **histograms,
        "plane": {**plane, "cells": [[column, row, factor * n] for column, row, n in plane["cells"]]},
        "regimes": {group: {regime: factor * n for regime, n in found.items()} for group, found in regimes},
    }


def _check_edges(name: str, first: list[float], second: list[float]) -> None:
    if list(first) != list(second):
        raise InvalidInputError(
            f"The distributions of {name!r} have different bins ({len(first) - 1} and {len(second) - 1}), "
            "so they cannot be added: create both with the same version of evenhand."
        )


def _weight(pairs: pd.DataFrame) -> NDArray[np.float64] | None:
    return pairs["sample_weight"].to_numpy(dtype=float) if "sample_weight" in pairs.columns else None


def _by_group(table: pd.DataFrame, column: str, edges: NDArray[np.float64], groups: list[str]) -> dict[str, Any]:
    of, weight = table["group"].astype(str).to_numpy(), _weight(table)
    values = table[column].to_numpy(dtype=float)
    counts = {
        name: _counts(values[of == name], edges, None if weight is None else weight[of == name]) for name in groups
    }
    return {"edges": edges.tolist(), "counts": counts}


def _counts(values: ArrayLike, edges: NDArray[np.float64], weight: NDArray[np.float64] | None) -> list[float]:
    known = np.asarray(values, dtype=float)
    finite = np.isfinite(known)
    known = np.minimum(known[finite], edges[-1])
    counts: list[float] = np.histogram(known, edges, weights=None if weight is None else weight[finite])[0].tolist()
    return counts


def _cells(
    difference: NDArray[np.float64], cec: NDArray[np.float64], weight: NDArray[np.float64] | None
) -> list[list[float]]:
    """Keep only bins that have pairs, because most of the plane is empty."""
    counts = np.histogram2d(difference, cec, PLANE_EDGES, weights=weight)[0]
    column, row = np.nonzero(counts)
    numbers = counts[column, row] if weight is not None else counts[column, row].astype(int)
    return [list(cell) for cell in zip(column.tolist(), row.tolist(), numbers.tolist(), strict=True)]


def _regimes(scored: pd.DataFrame, groups: list[str]) -> dict[str, dict[str, float]]:
    of, regime, weight = scored["group"].astype(str).to_numpy(), scored["regime"].to_numpy(dtype=str), _weight(scored)

    def number(inside: NDArray[np.bool_]) -> float:
        return int(inside.sum()) if weight is None else float(weight[inside].sum())

    return {name: {r: number((of == name) & (regime == r)) for r in REGIMES} for name in groups}


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


_LEAST_WORTH = 0.5  # effective sample size as a share of those counted, below which readers are warned


@dataclass(frozen=True)
class GroupWeight:
    """The weights of one group.

    Attributes
    ----------
    n_people, n_counted
        Rows of the group, and those with a weight above 0.
    n_effective
        Number of equally weighted people with the same information (Kish): (Σw)² / Σw².
    share, share_of_sample
        Share of the group in the population, according to the weights, and in the sample.
    """

    group: str
    n_people: int
    n_counted: int
    n_effective: float
    share: float
    share_of_sample: float

    @property
    def is_uneven(self) -> bool:
        """Whether the effective sample size is less than half of the people counted."""
        return self.n_effective < _LEAST_WORTH * self.n_counted


@dataclass(frozen=True)
class Weighting:
    """The sampling weights of an audit.

    Attributes
    ----------
    n_people, n_counted, n_effective
        As in `GroupWeight`, for everyone.
    groups
        By group.
    """

    n_people: int
    n_counted: int
    n_effective: float
    groups: tuple[GroupWeight, ...]

    @classmethod
    def of(cls, sums: AuditSums, names: tuple[str, ...]) -> Weighting:
        """Compute the weights from the sums over all people."""
        counted, total, squares = sums.weights.T
        worth = effective_number_of_people(total, squares)
        groups = tuple(
            GroupWeight(
                group=name,
                n_people=int(sums.n_people[code]),
                n_counted=int(counted[code]),
                n_effective=float(worth[code]),
                share=float(total[code] / total.sum()),
                share_of_sample=float(counted[code] / counted.sum()),
            )
            for code, name in enumerate(names)
        )
        everyone = effective_number_of_people(total.sum(), squares.sum())
        return cls(int(sums.n_people.sum()), int(counted.sum()), float(everyone), groups)

    def reservations(self) -> Iterator[str]:
        """What a reader must know about the weights."""
        n_left_out = self.n_people - self.n_counted
        if n_left_out:
            yield f"{n_left_out:,} of {self.n_people:,} people have a sampling weight of 0 and are not counted."
        uneven = [group for group in self.groups if group.is_uneven]
        if uneven:
            shown = ", ".join(f"{g.group} ({g.n_counted:,} people, effectively {g.n_effective:,.0f})" for g in uneven)
            yield (
                f"Sampling weights are so uneven that the effective size of groups is less than half of their people: "
                f"{shown}. A few people with large weights determine their metrics; check the weights, or trim them."
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "groups": [asdict(group) for group in self.groups]}
