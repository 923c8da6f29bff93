"""The figures of an audit, however it was run, and everything that is shown and written from them."""

from __future__ import annotations

import json
import math
import os
import platform
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from evenhand._version import __version__
from evenhand.auditing.evidence import Evidence
from evenhand.auditing.verdict import verdict
from evenhand.matching import MatchDiagnostics
from evenhand.metrics.disparity import (
    ApprovalTable,
    CutoffApprovals,
    GapEstimate,
    GroupErrorRates,
    ScoreDisparity,
    SegmentedApproval,
)
from evenhand.metrics.outcomes import Figure, GroupOutcome
from evenhand.metrics.proxies import ProxyScreen
from evenhand.metrics.regimes import REGIMES
from evenhand.system.files import write_atomically

if TYPE_CHECKING:
    from rich.console import RenderableType

    from evenhand.auditing.sample import PairSample

__all__ = ["SCHEMA", "AuditFigures", "Outcome", "PairFigures", "Provenance", "write_json"]

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
    attribution_error
        Standard error of sampled attributions as a share of their size (root mean squares); None where nothing is
        sampled.
    n_without_baseline
        Audited people left out because the reference has no one of their label and group.
    exclusions
        Rows left out before the audit, by reason.
    fingerprint
        SHA-256 of the audited people's columns, labels and groups.
    hashes
        SHA-256 of the reference, of the scores, and of the files that were read, by what they are of.
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
    hashes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What the model decides, by group.

    Attributes
    ----------
    figures
        Utility and gaps by name, each a number or NaN with the reason.
    groups
        Decisions and errors of each group.
    gaps
        The gaps with intervals.
    approvals, scores, error_rates
        Tables of a fair-lending file: approvals and scores beside a reference group, error rates of each group.
    cutoffs
        Approvals if the cut-off were at each decile of the score.
    segments
        For each column asked for, approvals within its values and their common odds ratio.
    """

    figures: Mapping[str, Figure]
    groups: tuple[GroupOutcome, ...]
    gaps: Mapping[str, GapEstimate]
    approvals: ApprovalTable
    scores: tuple[ScoreDisparity, ...]
    error_rates: tuple[GroupErrorRates, ...]
    cutoffs: tuple[CutoffApprovals, ...]
    segments: Mapping[str, tuple[SegmentedApproval, ...]]

    def to_dict(self) -> dict[str, Any]:
        """Plain data: figures by name, and the tables."""
        return {
            **{name: figure.value for name, figure in self.figures.items()},
            "notes": {name: figure.note for name, figure in self.figures.items() if figure.note},
            "groups": [asdict(group) for group in self.groups],
            "gaps": {name: gap.to_dict() for name, gap in self.gaps.items()},
            "approvals": self.approvals.to_dict(),
            "scores": [row.to_dict() for row in self.scores],
            "error_rates": [row.to_dict() for row in self.error_rates],
            "cutoffs": [row.to_dict() for row in self.cutoffs],
            "segments": {name: [row.to_dict() for row in rows] for name, rows in self.segments.items()},
        }


@dataclass(frozen=True)
class PairFigures:
    """Figures of all scored pairs.

    Attributes
    ----------
    cec, input_gap, reasoning_gap, shared_reasons
        Means; NaN where no pair was scored.
    cec_median, cec_p90
        Quantiles of the CEC score.
    cec_by_group, shared_reasons_by_group
        Means by group of the person, in order of the groups' names.
    regimes
        Share of pairs in each regime.
    distributions
        Histograms: see `report.distributions.pair_distributions`.
    """

    n_pairs: int
    n_negligible: int
    cec: float
    cec_median: float
    cec_p90: float
    input_gap: float
    reasoning_gap: float
    shared_reasons: float
    cec_by_group: Mapping[str, float]
    shared_reasons_by_group: Mapping[str, float]
    regimes: Mapping[str, float]
    distributions: Mapping[str, Any]


@dataclass(frozen=True, eq=False, repr=False)
class AuditFigures(ABC):
    """What every audit has; the attributes are described where they are filled, in `AuditResult`."""

    pairs: pd.DataFrame
    features: pd.DataFrame
    outcome: Outcome
    matching: MatchDiagnostics
    evidence: Evidence | None
    proxies: ProxyScreen | None
    settings: Mapping[str, Any]
    provenance: Provenance
    warnings: tuple[str, ...]
    table: pd.DataFrame

    @abstractmethod
    def pair_figures(self) -> PairFigures:
        """Figures of all scored pairs."""

    @abstractmethod
    def pair_sample(self, max_pairs: int = 2000, random_state: int = 0) -> PairSample:
        """Pairs to look at one by one."""

    @abstractmethod
    def cases(self, n: int = 20) -> pd.DataFrame:
        """The people with the strongest evidence beside their matches."""

    def to_dict(self) -> dict[str, Any]:
        """Everything but the pair table as plain data; a figure that could not be estimated is NaN with a note."""
        pairs = self.pair_figures()
        found = {
            "schema": SCHEMA,
            "versions": _versions(),
            "settings": dict(self.settings),
            "data": asdict(self.provenance),
            "cec": self._cec(pairs),
            "regimes": dict(pairs.regimes),
            "reasons": {
                "shared": pairs.shared_reasons,
                "placebo_shared": math.nan if self.evidence is None else self.evidence.placebo_overlap,
                "by_group": dict(pairs.shared_reasons_by_group),
            },
            "outcome": {**self.outcome.to_dict(), "pfr": pairs.regimes["C"] + pairs.regimes["D"]},
            "matching": self.matching.to_dict(),
            "features": self.features.to_dict("records"),
            "evidence": None if self.evidence is None else self.evidence.to_dict(),
            "proxies": None if self.proxies is None else self.proxies.to_dict(),
            "distributions": dict(pairs.distributions),
            "warnings": list(self.warnings),
        }
        return {**found, "verdict": verdict(found).to_dict()}

    def _cec(self, pairs: PairFigures) -> dict[str, Any]:
        figures: dict[str, Any] = {
            "mean": pairs.cec,
            "median": pairs.cec_median,
            "p90": pairs.cec_p90,
            "input_gap": pairs.input_gap,
            "reasoning_gap": pairs.reasoning_gap,
            "n_pairs": pairs.n_pairs,
            "n_negligible": pairs.n_negligible,
            "by_group": dict(pairs.cec_by_group),
        }
        if self.evidence is not None:
            found = self.evidence
            figures |= {
                "placebo": found.placebo_mean,
                "excess": found.cec.value,
                "excess_ci": [found.cec.ci_low, found.cec.ci_high],
                "p_value": found.cec.p_value,
                "reasoning_gap_excess": found.reasoning_gap.value,
                "input_gap_excess": found.input_gap.value,
                "regime_b_excess": found.regime_b.value,
            }
        return figures

    def summary(self) -> pd.DataFrame:
        """The figures of the audit: a table with columns metric, value, ci_low, ci_high, note."""
        data, nan = self.to_dict(), math.nan
        tau = self.settings["consistency_threshold"]
        rows: list[tuple[str, float, float, float, str]] = [
            ("CEC score, mean", data["cec"]["mean"], nan, nan, "0 identical reasoning, 1 opposed"),
            ("input gap, mean", data["cec"]["input_gap"], nan, nan, "other inputs under the same weights"),
            ("reasoning gap, mean", data["cec"]["reasoning_gap"], nan, nan, "the same inputs under other weights"),
            *self._evidence_rows(),
            *((f"regime {r}, share", data["regimes"][r], nan, nan, _regime_note(r, tau)) for r in REGIMES),
            ("prediction flip rate", data["outcome"]["pfr"], nan, nan, "matched people who get different decisions"),
            *self._outcome_rows(),
            ("coverage", self.matching.coverage, nan, nan, "people who have a match in another group"),
        ]
        return pd.DataFrame(rows, columns=["metric", "value", "ci_low", "ci_high", "note"])

    def _evidence_rows(self) -> list[tuple[str, float, float, float, str]]:
        if self.evidence is None:
            return []
        found, nan = self.evidence, math.nan
        p = found.cec.p_value
        shown = "" if math.isnan(p) else "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
        note = ", ".join(part for part in ("over placebo pairs", shown, found.cec.note) if part)
        return [
            ("compared pairs, CEC mean", found.compared_mean, nan, nan, "pairs that have a placebo pair"),
            ("placebo pairs, CEC mean", found.placebo_mean, nan, nan, "within a group, at the same distance"),
            ("excess", found.cec.value, found.cec.ci_low, found.cec.ci_high, note),
            *(
                (name, e.value, e.ci_low, e.ci_high, e.note)
                for name, e in (
                    ("excess, reasoning gap", found.reasoning_gap),
                    ("excess, regime B share", found.regime_b),
                    ("excess, shared principal reasons", found.reason_overlap),
                )
            ),
        ]

    def _outcome_rows(self) -> list[tuple[str, float, float, float, str]]:
        labels = (
            ("auc", "AUC", ""),
            ("f1", "F1", ""),
            ("accuracy", "accuracy", ""),
            ("positive_rate", "positive rate", "share of favorable decisions"),
            ("eo_gap", "equalized odds gap", "larger of the gaps in true and false positive rate"),
            ("sp_gap", "statistical parity gap", "gap in the positive rate"),
        )
        rows = []
        for name, label, note in labels:
            figure, gap = self.outcome.figures[name], self.outcome.gaps.get(name)
            low, high = (math.nan, math.nan) if gap is None else (gap.low, gap.high)
            rows.append((label, figure.value, low, high, figure.note or note))
        return rows

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write `to_dict` and the time as JSON, whole or not at all; a missing number is null."""
        write_json(self.to_dict(), path)

    def to_html(self, path: str | os.PathLike[str], *, title: str | None = None, pairs_file: str | None = None) -> None:
        """Write the report as one HTML file that needs no network, whole or not at all.

        Parameters
        ----------
        path
            Of the file.
        title
            Of the page; by default it names the model.
        pairs_file
            Name of the file of `to_parquet`, if it lies beside the page.
        """
        from evenhand.report.explorer import pairs_to_show
        from evenhand.report.page import audit_page

        sample = self.pair_sample(pairs_to_show(len(self.table.columns))).to_dict()
        text = audit_page(self.to_dict(), sample, title=title, pairs_file=pairs_file)
        with write_atomically(path) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def to_excel(self, path: str | os.PathLike[str]) -> None:
        """Write the metrics and tables as an Excel workbook, whole or not at all; needs the extra `excel`.

        Pairs are listed up to the number of rows that a sheet has; beyond, those with the strongest evidence.
        """
        from evenhand.auditing.sample import strongest_pairs
        from evenhand.report.workbook import MAX_PAIRS, write_workbook

        pairs, n_left_out = strongest_pairs(self._pair_parts(), MAX_PAIRS)
        write_workbook(self.to_dict(), path, pairs=pairs, n_left_out=n_left_out, cases=self.cases(50))

    def _pair_parts(self) -> Iterable[pd.DataFrame]:
        """All pairs, in one or several tables."""
        return (self.pairs,)

    def _repr_html_(self) -> str:
        """A card for notebooks: the verdict, the key metrics and the warnings."""
        from evenhand.report.page import audit_card

        return audit_card(self.to_dict())

    def __repr__(self) -> str:
        data = self.to_dict()
        return (
            f"{type(self).__name__}({self.provenance.n_people} people, {data['cec']['n_pairs']} pairs, "
            f"cec={data['cec']['mean']:.3f}, excess={data['cec'].get('excess', math.nan):.3f}, "
            f"regime_b={data['regimes']['B']:.1%}, auc={data['outcome']['auc']:.3f})"
        )

    def __str__(self) -> str:
        """The summary as plain text."""
        import io

        from rich.console import Console

        console = Console(file=io.StringIO(), width=120, record=True)
        console.print(self)
        return console.export_text().rstrip()

    def __rich__(self) -> RenderableType:
        """The summary for a terminal."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        groups = ", ".join(f"{name} {count:,}" for name, count in self.provenance.groups.items())
        parts: list[RenderableType] = [
            Text(f"{self.provenance.model}, {self.provenance.n_people:,} people ({groups})"),
        ]
        figures = Table("figure", "value", "95 % interval", "", box=None, pad_edge=False)
        figures.columns[1].justify = "right"
        for row in self.summary().to_dict("records"):
            value = "n/a" if math.isnan(row["value"]) else f"{row['value']:.3f}"
            interval = "" if math.isnan(row["ci_low"]) else f"{row['ci_low']:.3f} to {row['ci_high']:.3f}"
            figures.add_row(Text(row["metric"]), value, interval, Text(row["note"], style="dim"))
        drivers = Table("feature", "share of the CEC score", box=None, pad_edge=False)
        drivers.columns[1].justify = "right"
        for row in self.features.head(5).to_dict("records"):
            drivers.add_row(Text(row["feature"]), f"{row['share']:.1%}")
        parts += [Text(), figures, Text(), drivers]
        if self.evidence is not None:
            parts += [Text(), *(Text(sentence) for sentence in self.evidence.sentences)]
        if self.warnings:
            parts += [Text(), *(Text(f"! {warning}", style="yellow") for warning in self.warnings)]
        return Group(*parts)


def _regime_note(regime: str, threshold: float) -> str:
    return f"{_REGIME_WORDS[regime]} (CEC {'above' if regime in 'BD' else 'up to'} {threshold:g})"


def _versions() -> dict[str, str]:
    """Versions of everything that a figure depends on."""
    found = {"evenhand": __version__, "python": platform.python_version()}
    for package in ("numpy", "scipy", "torch", "scikit-learn", "pandas"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


def write_json(data: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write the plain data of an audit and the time as JSON, whole or not at all; a missing number is null."""
    schema, *rest = data.items()
    stamped = dict([schema, ("created", datetime.now(UTC).isoformat(timespec="seconds")), *rest])
    text = json.dumps(_json_ready(stamped), indent=2, allow_nan=False, ensure_ascii=False)
    with write_atomically(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


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
