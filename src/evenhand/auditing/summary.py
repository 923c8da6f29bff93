"""The results of an audit as frozen parts, and the plain data from which every output is made."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np

from evenhand._version import __version__
from evenhand.auditing.sums import AuditSums
from evenhand.metrics.disparity import (
    ApprovalTable,
    CalibrationTable,
    CutoffApprovals,
    GapEstimate,
    GroupErrorRates,
    ScoreDisparity,
    SegmentedApproval,
)
from evenhand.metrics.outcomes import GroupOutcome, Metric
from evenhand.metrics.regimes import REGIMES
from evenhand.system.files import json_ready, write_atomically

__all__ = ["SCHEMA", "Outcome", "PairMetrics", "Provenance", "library_versions", "write_json"]

SCHEMA = "evenhand.audit/2"


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

    metrics: Mapping[str, Metric]
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
        cls, sums: AuditSums, names: Sequence[str], quantiles: tuple[float, float], distributions: Mapping[str, Any]
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
        """
        n, total = int(sums.n_scored.sum()), float(sums.scored.sum())
        means = (sums.pair_means.sum(axis=0) / total).tolist() if n else [math.nan] * 3
        regimes = (sums.regimes.sum(axis=0) / total).tolist() if n else [math.nan] * len(REGIMES)
        present = [code for code in np.argsort(names) if sums.n_scored[code]]
        by_group = {names[code]: (sums.pair_means[code] / sums.scored[code]).tolist() for code in present}
        return cls(
            n_pairs=n,
            n_negligible=sums.n_negligible,
            cec=means[0],
            cec_median=quantiles[0],
            cec_p90=quantiles[1],
            input_gap=means[1],
            reasoning_gap=means[2],
            cec_by_group={name: group[0] for name, group in by_group.items()},
            regimes=dict(zip(REGIMES, regimes, strict=True)),
            distributions=distributions,
            flips=regimes[2] + regimes[3],
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
