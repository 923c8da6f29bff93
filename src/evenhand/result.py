"""What an audit found: tables, figures, and the plain data that every output is made from."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand._version import __version__
from evenhand.disparity import (
    ApprovalTable,
    CutoffApprovals,
    GapEstimate,
    GroupErrorRates,
    ScoreDisparity,
    SegmentedApproval,
)
from evenhand.evidence import Evidence
from evenhand.files import write_atomically
from evenhand.matching import MatchDiagnostics
from evenhand.outcome_metrics import Figure, GroupOutcome
from evenhand.proxies import ProxyScreen
from evenhand.regimes import REGIMES, regime_shares
from evenhand.scoring import N_REASONS

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray
    from rich.console import RenderableType

    from evenhand.report.pair_sample import PairSample
    from evenhand.report.plots import Plots

__all__ = ["SCHEMA", "AuditResult", "Outcome", "Provenance"]

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


@dataclass(frozen=True, eq=False)
class AuditResult:
    """Result of `audit`.

    Attributes
    ----------
    pairs
        One row per person and other group: person (row of `X`), match (row of the reference, -1 where unmatched),
        distance, group, other_group, label, score, match_score, decision, match_decision, cec, placebo_cec,
        input_gap, reasoning_gap, regime, shared_reasons, q_value, is_negligible. A pair that could not be scored has
        missing values.
    features
        One row per feature: its mean contribution to the CEC score, the share that is of the whole, its contribution
        to the excess with interval, and its mean attribution in each group; largest contribution first.
    outcome
        Utility, and decisions and errors by group.
    matching
        Quality of the matches.
    evidence
        Excess over placebo pairs; None if it was not asked for.
    proxies
        How well features tell the group; None if evidence was not asked for.
    settings
        Every choice that moves a figure.
    provenance
        What was audited.
    warnings
        Reservations, in words.
    table, reference_table
        The audited people's columns, and those of the people they were matched in.
    attributions, match_attributions
        By feature: of each audited person, of shape (n_people, n_features), and of the match of each pair, of shape
        (n_pairs, n_features), both from the person's baseline.
    """

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
    reference_table: pd.DataFrame
    attributions: NDArray[np.float32]
    match_attributions: NDArray[np.float32]

    def to_dict(self) -> dict[str, Any]:
        """Everything but the pair table as plain data; a figure that could not be estimated is NaN with a note."""
        from evenhand.report.distributions import pair_distributions

        scored = self.pairs[self.pairs["cec"].notna()]
        shares = regime_shares(scored["regime"])
        return {
            "schema": SCHEMA,
            "versions": _versions(),
            "settings": dict(self.settings),
            "data": asdict(self.provenance),
            "cec": self._cec(scored),
            "regimes": shares,
            "reasons": self._reasons(scored),
            "outcome": {**self.outcome.to_dict(), "pfr": shares["C"] + shares["D"]},
            "matching": self.matching.to_dict(),
            "features": self.features.to_dict("records"),
            "evidence": None if self.evidence is None else self.evidence.to_dict(),
            "proxies": None if self.proxies is None else self.proxies.to_dict(),
            "distributions": pair_distributions(self.pairs),
            "warnings": list(self.warnings),
        }

    def _cec(self, scored: pd.DataFrame) -> dict[str, Any]:
        cec = scored["cec"].to_numpy()
        figures: dict[str, Any] = {
            "mean": _mean(cec),
            "median": float(np.median(cec)) if len(cec) else math.nan,
            "p90": float(np.quantile(cec, 0.9)) if len(cec) else math.nan,
            "input_gap": _mean(scored["input_gap"].to_numpy()),
            "reasoning_gap": _mean(scored["reasoning_gap"].to_numpy()),
            "n_pairs": len(scored),
            "n_negligible": int(scored["is_negligible"].sum()),
            "by_group": {str(k): float(v) for k, v in scored.groupby("group", sort=True)["cec"].mean().items()},
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

    def _reasons(self, scored: pd.DataFrame) -> dict[str, Any]:
        """Share of the four principal reasons that the two of a pair have in common."""
        by_group = scored.groupby("group", sort=True)["shared_reasons"].mean()
        return {
            "shared": _mean(scored["shared_reasons"].to_numpy()),
            "placebo_shared": math.nan if self.evidence is None else self.evidence.placebo_overlap,
            "by_group": {str(k): float(v) for k, v in by_group.items()},
        }

    def summary(self) -> pd.DataFrame:
        """The figures of the audit: a table with columns metric, value, ci_low, ci_high, note."""
        import pandas as pd

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
            ("coverage", self.matching.coverage, nan, nan, "comparisons that have a match"),
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
            ("positive_rate", "positive rate", "share of favourable decisions"),
            ("eo_gap", "equalized odds gap", "larger of the gaps in true and false positive rate"),
            ("sp_gap", "statistical parity gap", "gap in the positive rate"),
        )
        rows = []
        for name, label, note in labels:
            figure, gap = self.outcome.figures[name], self.outcome.gaps.get(name)
            low, high = (math.nan, math.nan) if gap is None else (gap.low, gap.high)
            rows.append((label, figure.value, low, high, figure.note or note))
        return rows

    def cases(self, n: int = 20) -> pd.DataFrame:
        """The people with the strongest evidence beside their matches, feature by feature.

        Parameters
        ----------
        n
            Number of pairs.

        Returns
        -------
        Table with a row for each pair and feature: person, match, group, other_group, q_value, cec, placebo_cec,
        score, match_score, feature, value, match_value, attribution, match_attribution, and reason and match_reason,
        the place of the feature among the four that told most against the one and the other. Pairs of the lowest
        `q_value` come first: the false-discovery rate of a list that ends with them.
        """
        import pandas as pd

        order = self.pairs.assign(over=self.pairs["cec"] - self.pairs["placebo_cec"].fillna(0))
        order = order[order["cec"].notna()].sort_values(["q_value", "over"], ascending=[True, False], kind="stable")
        columns = ["person", "match", "group", "other_group", "q_value", "cec", "placebo_cec", "score", "match_score"]
        parts = []
        for row, pair in order.head(n).iterrows():
            own, other = self.attributions[int(pair["person"])], self.match_attributions[int(str(row))]
            parts.append(
                pd.DataFrame(
                    {
                        **{column: pair[column] for column in columns},
                        "feature": list(self.table.columns),
                        "value": self.table.iloc[int(pair["person"])].astype(object).to_numpy(),
                        "match_value": self.reference_table.iloc[int(pair["match"])].astype(object).to_numpy(),
                        "attribution": own,
                        "match_attribution": other,
                        "reason": _reason_places(own),
                        "match_reason": _reason_places(other),
                    }
                )
            )
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)

    def related_metrics(
        self, score_function: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None, random_state: int = 0
    ) -> pd.DataFrame:
        """Other procedural metrics on the same attributions: GPF_FAE, REF, VEF and the explanation-disparity AUC.

        Parameters
        ----------
        score_function
            Scores of a numeric table; needed by REF and VEF, which blank out features. Only for tables of numbers.
        random_state
            Seed.

        Returns
        -------
        Table with columns name, value, p_value, direction, note.
        """
        import pandas as pd

        from evenhand.encoding import TableEncoder
        from evenhand.procedural_metrics import procedural_metrics

        person = self.pairs.drop_duplicates("person").set_index("person").sort_index()
        names, group = np.unique(person["group"].to_numpy(dtype=str), return_inverse=True)
        numbers = self.table.to_numpy(dtype=float) if score_function is not None else None
        X = TableEncoder.fit(self.table).transform(self.table).astype(np.float64) if numbers is None else numbers
        found = procedural_metrics(
            self.attributions.astype(np.float64),
            person["score"].to_numpy(),
            person["label"].to_numpy(),
            group,
            X=X,
            score_function=score_function,
            names=names.tolist(),
            random_state=random_state,
        )
        return pd.DataFrame([asdict(metric) for metric in found])

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write `to_dict` and the time as JSON, whole or not at all; a missing number is null."""
        write_json(self.to_dict(), path)

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write the pair table as Parquet, whole or not at all."""
        with write_atomically(path) as temporary:
            self.pairs.to_parquet(temporary, index=False)

    def pair_sample(self, max_pairs: int = 2000, random_state: int = 0) -> PairSample:
        """Pairs to look at one by one: a fifth are the strongest cases, the rest are drawn over regimes and groups.

        Parameters
        ----------
        max_pairs
            Most pairs to take.
        random_state
            Seed of the draw.

        Returns
        -------
        The pairs, the values and attributions of the two people of each, and in words how they were drawn.
        """
        return self._sample(self.pairs, self.match_attributions, max_pairs, random_state)

    def _sample(
        self, pairs: pd.DataFrame, match_attributions: NDArray[np.float32], max_pairs: int, random_state: int = 0
    ) -> PairSample:
        from evenhand.report.pair_sample import draw_pair_sample

        return draw_pair_sample(
            pairs,
            self.table,
            self.reference_table,
            self.attributions,
            match_attributions,
            max_pairs=max_pairs,
            random_state=random_state,
        )

    @property
    def plot(self) -> Plots:
        """Charts of the result by name, such as `result.plot.regimes()`; they show in notebooks and can be saved."""
        from evenhand.report.plots import Plots

        def sample_of(person: int) -> PairSample:
            rows = np.flatnonzero(self.pairs["person"].to_numpy() == person)
            return self._sample(self.pairs.iloc[rows], self.match_attributions[rows], max(1, len(rows)))

        return Plots(self.to_dict(), sample_of)

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
        from evenhand.report.contents import pairs_to_show, report_contents
        from evenhand.report.page import render_page

        sample = self.pair_sample(pairs_to_show(len(self.table.columns)))
        text = render_page(report_contents(self.to_dict(), sample, title=title, pairs_file=pairs_file))
        with write_atomically(path) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def to_excel(self, path: str | os.PathLike[str]) -> None:
        """Write the figures and tables as an Excel workbook, whole or not at all; needs the extra `excel`."""
        from evenhand.report.excel import write_workbook

        write_workbook(self, path)

    def _repr_html_(self) -> str:
        """A card for notebooks: the verdict, the key figures and the warnings."""
        from evenhand.report.page import render_card

        return render_card(self.to_dict())

    def __repr__(self) -> str:
        data = self.to_dict()
        return (
            f"AuditResult({self.provenance.n_people} people, {data['cec']['n_pairs']} pairs, "
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


def _reason_places(attributions: NDArray[np.float32]) -> list[int | None]:
    """Place of each feature among the principal reasons, from 1; None for one that is not."""
    places: list[int | None] = [None] * len(attributions)
    for place, feature in enumerate(np.argsort(attributions, kind="stable")[:N_REASONS], start=1):
        places[feature] = place
    return places


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
