"""What a streamed audit found."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from evenhand.evidence import Evidence
from evenhand.findings import AuditSums
from evenhand.matching import MatchDiagnostics
from evenhand.proxies import ProxyScreen
from evenhand.regimes import REGIMES
from evenhand.result import SCHEMA, AuditResult, Outcome, Provenance, _versions

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

    from evenhand.report.pair_sample import PairSample

__all__ = ["StreamedAudit"]


@dataclass(frozen=True, eq=False)
class StreamedAudit:
    """Result of `audit_stream`: the figures of an `AuditResult`, with the pairs on disk.

    Attributes
    ----------
    folder
        Where everything was written.
    sums
        Counts and sums over all people and pairs.
    features, outcome, matching, evidence, proxies, settings, provenance, warnings
        As in `AuditResult`; `evidence` has no values of single people, which are in the pair table.
    cec_quantiles
        Median and 0.9 quantile of the CEC score.
    distributions
        Histograms of the pairs.
    sample
        Pairs to look at one by one.
    stream
        How the audit was cut into batches, and how the reference was chosen.
    """

    folder: Path
    sums: AuditSums
    features: pd.DataFrame
    outcome: Outcome
    matching: MatchDiagnostics
    evidence: Evidence | None
    proxies: ProxyScreen | None
    settings: Mapping[str, Any]
    provenance: Provenance
    warnings: tuple[str, ...]
    cec_quantiles: tuple[float, float]
    distributions: Mapping[str, Any]
    sample: PairSample
    stream: Mapping[str, Any]

    @property
    def pairs_path(self) -> Path:
        """Folder of the pair table, a Parquet file for each batch; the columns are those of `AuditResult.pairs`.

        `person` is the row in the source and `match` the row in the reference.
        """
        return self.folder / "pairs"

    def to_dict(self) -> dict[str, Any]:
        """Everything but the pair table as plain data, with the keys of `AuditResult.to_dict` and `stream`."""
        sums, names = self.sums, list(self.provenance.groups)
        n_scored = int(sums.n_scored.sum())
        totals = sums.pair_means.sum(axis=0) / n_scored if n_scored else np.full(4, np.nan)
        shares = dict(zip(REGIMES, (sums.regimes.sum(axis=0) / n_scored).tolist(), strict=True)) if n_scored else {}
        shares = shares or dict.fromkeys(REGIMES, float("nan"))
        present = [code for code in np.argsort(names) if sums.n_scored[code]]
        by_group = {
            k: {names[code]: float(sums.pair_means[code, column] / sums.n_scored[code]) for code in present}
            for k, column in (("cec", 0), ("reasons", 3))
        }
        cec: dict[str, Any] = {
            "mean": float(totals[0]),
            "median": self.cec_quantiles[0],
            "p90": self.cec_quantiles[1],
            "input_gap": float(totals[1]),
            "reasoning_gap": float(totals[2]),
            "n_pairs": n_scored,
            "n_negligible": sums.n_negligible,
            "by_group": by_group["cec"],
        }
        found = self.evidence
        if found is not None:
            cec |= {
                "placebo": found.placebo_mean,
                "excess": found.cec.value,
                "excess_ci": [found.cec.ci_low, found.cec.ci_high],
                "p_value": found.cec.p_value,
                "reasoning_gap_excess": found.reasoning_gap.value,
                "input_gap_excess": found.input_gap.value,
                "regime_b_excess": found.regime_b.value,
            }
        return {
            "schema": SCHEMA,
            "versions": _versions(),
            "settings": dict(self.settings),
            "data": asdict(self.provenance),
            "cec": cec,
            "regimes": shares,
            "reasons": {
                "shared": float(totals[3]),
                "placebo_shared": float("nan") if found is None else found.placebo_overlap,
                "by_group": by_group["reasons"],
            },
            "outcome": {**self.outcome.to_dict(), "pfr": shares["C"] + shares["D"]},
            "matching": self.matching.to_dict(),
            "features": self.features.to_dict("records"),
            "evidence": None if found is None else found.to_dict(),
            "proxies": None if self.proxies is None else self.proxies.to_dict(),
            "distributions": dict(self.distributions),
            "warnings": list(self.warnings),
            "stream": dict(self.stream),
        }

    def pair_sample(self, max_pairs: int = 2000, random_state: int = 0) -> PairSample:
        """Pairs to look at one by one, of the sample that was kept: see `AuditResult.pair_sample`.

        Parameters
        ----------
        max_pairs
            Most pairs to take.
        random_state
            Seed of the draw among those kept.
        """
        from evenhand.report.pair_sample import draw_pair_sample

        kept = self.sample
        if max_pairs >= len(kept):
            return kept
        place = np.arange(len(kept))
        drawn = draw_pair_sample(
            kept.pairs.assign(person=place, match=place),
            kept.values,
            kept.match_values,
            kept.attributions,
            kept.match_attributions,
            max_pairs=max_pairs,
            random_state=random_state,
        )
        pairs = kept.pairs.iloc[drawn.pairs["person"].to_numpy()].reset_index(drop=True)
        how = drawn.how.replace(f"of {len(kept):,} scored", f"of {kept.n_scored:,} scored")
        return replace(drawn, pairs=pairs, n_pairs=kept.n_pairs, n_scored=kept.n_scored, how=how)

    # An audit that was streamed is shown and written by the same code as one that was not.
    @property
    def _as_result(self) -> AuditResult:
        return cast(AuditResult, self)

    @property
    def table(self) -> pd.DataFrame:
        """Features of the people of the sample."""
        return self.sample.values

    def summary(self) -> pd.DataFrame:
        """The figures of the audit: a table with columns metric, value, ci_low, ci_high, note."""
        return AuditResult.summary(self._as_result)

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write `to_dict` as JSON, whole or not at all; a missing number is null."""
        AuditResult.to_json(self._as_result, path)

    def to_html(self, path: str | os.PathLike[str], *, title: str | None = None, pairs_file: str | None = None) -> None:
        """Write the report as one HTML file that needs no network, whole or not at all: see `AuditResult.to_html`."""
        AuditResult.to_html(self._as_result, path, title=title, pairs_file=pairs_file)

    def to_excel(self, path: str | os.PathLike[str]) -> None:
        """Write the figures and tables as an Excel workbook; its sheet of pairs holds the sample."""
        AuditResult.to_excel(self._as_result, path)

    @property
    def pairs(self) -> pd.DataFrame:
        """Pairs of the sample; all pairs are at `pairs_path`."""
        return self.sample.pairs

    def cases(self, n: int = 20) -> pd.DataFrame:
        """The people of the sample with the strongest evidence beside their matches: see `AuditResult.cases`."""
        kept, place = self.sample, np.arange(len(self.sample))
        view = SimpleNamespace(
            pairs=kept.pairs.assign(person=place, match=place),
            attributions=kept.attributions,
            match_attributions=kept.match_attributions,
            table=kept.values,
            reference_table=kept.match_values,
        )
        found = AuditResult.cases(cast(AuditResult, view), n)
        rows = found["person"].to_numpy(dtype=np.int64)
        return found.assign(**{name: kept.pairs[name].to_numpy()[rows] for name in ("person", "match")})

    def _evidence_rows(self) -> list[tuple[str, float, float, float, str]]:
        return AuditResult._evidence_rows(self._as_result)

    def _outcome_rows(self) -> list[tuple[str, float, float, float, str]]:
        return AuditResult._outcome_rows(self._as_result)

    def __repr__(self) -> str:
        return AuditResult.__repr__(self._as_result).replace("AuditResult", "StreamedAudit")

    def __str__(self) -> str:
        """The summary as plain text."""
        return AuditResult.__str__(self._as_result)

    def __rich__(self) -> RenderableType:
        """The summary for a terminal."""
        return AuditResult.__rich__(self._as_result)
