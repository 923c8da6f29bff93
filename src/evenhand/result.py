"""What an audit found: tables, figures, and the plain data that every output is made from."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand._version import __version__
from evenhand.files import write_atomically
from evenhand.matching import MatchDiagnostics
from evenhand.outcome_metrics import Figure, GroupOutcome
from evenhand.regimes import REGIMES, regime_shares

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

__all__ = ["SCHEMA", "AuditResult", "Provenance"]

SCHEMA = "evenhand.audit/1"

_REGIME_WORDS = {
    "A": "same decision, same reasoning",
    "B": "same decision, different reasoning",
    "C": "different decision, same reasoning",
    "D": "different decision, different reasoning",
}


@dataclass(frozen=True)
class Provenance:
    """What was audited.

    Attributes
    ----------
    groups
        Number of audited people by group.
    group_columns
        Columns of the table whose value tells the group: the model can see the group through them.
    attribution_method
        How the paths were integrated.
    completeness_gap
        Mean gap between the sum of attributions and the change in the logit, as a share of the latter.
    n_without_baseline
        Audited people left out because the reference has no one of their label and group.
    exclusions
        Rows left out before the audit, by reason.
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


@dataclass(frozen=True)
class AuditResult:
    """Result of `audit`.

    Attributes
    ----------
    pairs
        One row per person and other group: person (row of `X`), match (row of the reference, -1 where unmatched),
        distance, group, other_group, label, score, match_score, decision, match_decision, cec, placebo_cec,
        input_gap, reasoning_gap, regime, is_negligible. A pair that could not be scored has missing values.
    features
        One row per feature: its mean contribution to the CEC score, the share that is of the whole, and its mean
        attribution in each group; largest contribution first.
    outcome
        Utility and outcome figures by name.
    group_outcomes
        Decisions and errors of each group.
    matching
        Quality of the matches.
    settings
        Every choice that moves a figure.
    provenance
        What was audited.
    warnings
        Reservations, in words.
    """

    pairs: pd.DataFrame
    features: pd.DataFrame
    outcome: Mapping[str, Figure]
    group_outcomes: tuple[GroupOutcome, ...]
    matching: MatchDiagnostics
    settings: Mapping[str, Any]
    provenance: Provenance
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything but the pair table as plain data; a figure that could not be estimated is NaN with a note."""
        scored = self.pairs[self.pairs["cec"].notna()]
        shares = regime_shares(scored["regime"])
        cec = scored["cec"].to_numpy()
        return {
            "schema": SCHEMA,
            "versions": _versions(),
            "settings": dict(self.settings),
            "data": asdict(self.provenance),
            "cec": {
                "mean": _mean(cec),
                "median": float(np.median(cec)) if len(cec) else math.nan,
                "p90": float(np.quantile(cec, 0.9)) if len(cec) else math.nan,
                "input_gap": _mean(scored["input_gap"].to_numpy()),
                "reasoning_gap": _mean(scored["reasoning_gap"].to_numpy()),
                "n_pairs": len(scored),
                "n_negligible": int(scored["is_negligible"].sum()),
                "by_group": {str(k): float(v) for k, v in scored.groupby("group", sort=True)["cec"].mean().items()},
            },
            "regimes": shares,
            "outcome": {
                **{name: figure.value for name, figure in self.outcome.items()},
                "pfr": shares["C"] + shares["D"],
                "notes": {name: figure.note for name, figure in self.outcome.items() if figure.note},
                "groups": [asdict(outcome) for outcome in self.group_outcomes],
            },
            "matching": self.matching.to_dict(),
            "features": self.features.to_dict("records"),
            "warnings": list(self.warnings),
        }

    def summary(self) -> pd.DataFrame:
        """The figures of the audit: a table with columns metric, value, ci_low, ci_high, note."""
        import pandas as pd

        data = self.to_dict()
        notes = data["outcome"]["notes"]
        tau = self.settings["consistency_threshold"]
        rows = [
            ("CEC score, mean", data["cec"]["mean"], "0 identical reasoning, 1 opposed"),
            ("input gap, mean", data["cec"]["input_gap"], "other inputs under the same weights"),
            ("reasoning gap, mean", data["cec"]["reasoning_gap"], "the same inputs under other weights"),
            *(
                (
                    f"regime {regime}, share",
                    data["regimes"][regime],
                    f"{_REGIME_WORDS[regime]} (CEC {'above' if regime in 'BD' else 'up to'} {tau:g})",
                )
                for regime in REGIMES
            ),
            ("prediction flip rate", data["outcome"]["pfr"], "matched people who get different decisions"),
            *(
                (label, data["outcome"][name], notes.get(name, note))
                for name, label, note in (
                    ("auc", "AUC", ""),
                    ("f1", "F1", ""),
                    ("accuracy", "accuracy", ""),
                    ("positive_rate", "positive rate", "share of favourable decisions"),
                    ("eo_gap", "equalized odds gap", "larger of the gaps in true and false positive rate"),
                    ("sp_gap", "statistical parity gap", "gap in the positive rate"),
                )
            ),
            ("coverage", self.matching.coverage, "comparisons that have a match"),
        ]
        table = pd.DataFrame(rows, columns=["metric", "value", "note"])
        return table.assign(ci_low=np.nan, ci_high=np.nan)[["metric", "value", "ci_low", "ci_high", "note"]]

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write `to_dict` as JSON, whole or not at all; a missing number is null."""
        text = json.dumps(_json_ready(self.to_dict()), indent=2, allow_nan=False, ensure_ascii=False)
        with write_atomically(path) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write the pair table as Parquet, whole or not at all."""
        with write_atomically(path) as temporary:
            self.pairs.to_parquet(temporary, index=False)

    def __repr__(self) -> str:
        data = self.to_dict()
        return (
            f"AuditResult({self.provenance.n_people} people, {data['cec']['n_pairs']} pairs, "
            f"cec={data['cec']['mean']:.3f}, reasoning_gap={data['cec']['reasoning_gap']:.3f}, "
            f"regime_b={data['regimes']['B']:.1%}, auc={data['outcome']['auc']:.3f})"
        )

    def __rich__(self) -> RenderableType:
        """The summary for a terminal."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        groups = ", ".join(f"{name} {count:,}" for name, count in self.provenance.groups.items())
        parts: list[RenderableType] = [
            Text(f"{self.provenance.model}, {self.provenance.n_people:,} people ({groups})"),
        ]
        figures = Table("figure", "value", "", box=None, pad_edge=False)
        figures.columns[1].justify = "right"
        for row in self.summary().to_dict("records"):
            value = "n/a" if math.isnan(row["value"]) else f"{row['value']:.3f}"
            figures.add_row(Text(row["metric"]), value, Text(row["note"], style="dim"))
        drivers = Table("feature", "share of the CEC score", box=None, pad_edge=False)
        drivers.columns[1].justify = "right"
        for row in self.features.head(5).to_dict("records"):
            drivers.add_row(Text(row["feature"]), f"{row['share']:.1%}")
        parts += [Text(), figures, Text(), drivers]
        if self.warnings:
            parts += [Text(), *(Text(f"! {warning}", style="yellow") for warning in self.warnings)]
        return Group(*parts)


def _versions() -> dict[str, str]:
    """Versions of everything that a figure depends on."""
    found = {"evenhand": __version__, "python": platform.python_version()}
    for package in ("numpy", "scipy", "torch", "scikit-learn", "pandas"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


def _mean(values: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    return float(values.mean()) if len(values) else math.nan


def _json_ready(value: Any) -> Any:  # noqa: ANN401 - any plain data
    """Plain data without NaN or NumPy scalars."""
    if isinstance(value, Mapping):
        return {str(key): _json_ready(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_ready(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
