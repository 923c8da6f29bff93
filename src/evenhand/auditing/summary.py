"""What was audited, the plain data from which every output is made, and quantiles of values in parts."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from evenhand.system import __version__
from evenhand.system.files import json_ready, write_text

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
    if isinstance(copy.get("outcome"), dict):
        copy["outcome"].setdefault("attributes", {})
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


@cache  # read from files, and each form of a result asks for it
def _version(package: str) -> str | None:
    with suppress(PackageNotFoundError):
        return version(package)
    return None


def library_versions() -> dict[str, str]:
    """Versions of everything that a metric depends on and that is installed."""
    found = {name: _version(name) for name in ("numpy", "scipy", "torch", "scikit-learn", "pandas")}
    known = {name: text for name, text in found.items() if text is not None}
    return {"evenhand": __version__, "python": platform.python_version(), **known}


def write_json(data: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write plain data as JSON, completely or not at all; a missing number is null."""
    write_text(path, json.dumps(json_ready(data), indent=2, allow_nan=False, ensure_ascii=False) + "\n")
