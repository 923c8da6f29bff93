"""What a streamed audit found."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from evenhand.auditing.cases import strongest_cases
from evenhand.auditing.figures import AuditFigures, PairFigures
from evenhand.auditing.sums import AuditSums
from evenhand.metrics.regimes import REGIMES

if TYPE_CHECKING:
    from evenhand.auditing.sample import PairSample

__all__ = ["StreamedAudit"]


@dataclass(frozen=True, eq=False, repr=False)
class StreamedAudit(AuditFigures):
    """Result of `audit_stream`: the figures of an `AuditResult`, with the pairs on disk.

    Attributes
    ----------
    pairs, table
        Pairs of the sample, and the features of their people; all pairs are at `pairs_path`.
    features, outcome, matching, evidence, proxies, settings, provenance, warnings
        As in `AuditResult`; `evidence` has no values of single people, which are in the pair table.
    folder
        Where everything was written.
    sums
        Counts and sums over all people and pairs.
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

    def _pair_parts(self) -> Iterable[pd.DataFrame]:
        return map(pd.read_parquet, sorted(self.pairs_path.glob("*.parquet")))

    def to_dict(self) -> dict[str, Any]:
        """Everything but the pair table as plain data, with the keys of `AuditResult.to_dict` and `stream`."""
        return {**super().to_dict(), "stream": dict(self.stream)}

    def pair_figures(self) -> PairFigures:
        """Figures of all scored pairs."""
        sums, names = self.sums, list(self.provenance.groups)
        n = int(sums.n_scored.sum())
        cec, input_gap, reasoning_gap, shared_reasons = (
            (sums.pair_means.sum(axis=0) / n).tolist() if n else [math.nan] * 4
        )
        regimes = (sums.regimes.sum(axis=0) / n).tolist() if n else [math.nan] * len(REGIMES)
        present = [code for code in np.argsort(names) if sums.n_scored[code]]
        by_group = {names[code]: (sums.pair_means[code] / sums.n_scored[code]).tolist() for code in present}
        return PairFigures(
            n_pairs=n,
            n_negligible=sums.n_negligible,
            cec=cec,
            cec_median=self.cec_quantiles[0],
            cec_p90=self.cec_quantiles[1],
            input_gap=input_gap,
            reasoning_gap=reasoning_gap,
            shared_reasons=shared_reasons,
            cec_by_group={name: means[0] for name, means in by_group.items()},
            shared_reasons_by_group={name: means[3] for name, means in by_group.items()},
            regimes=dict(zip(REGIMES, regimes, strict=True)),
            distributions=self.distributions,
        )

    def pair_sample(self, max_pairs: int = 2000, random_state: int = 0) -> PairSample:
        """Pairs to look at one by one, of the sample that was kept: see `AuditResult.pair_sample`.

        Parameters
        ----------
        max_pairs
            Most pairs to take.
        random_state
            Seed of the draw among those kept.
        """
        from evenhand.auditing.sample import draw_pair_sample

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

    def cases(self, n: int = 20) -> pd.DataFrame:
        """The people of the sample with the strongest evidence beside their matches: see `AuditResult.cases`."""
        kept, place = self.sample, np.arange(len(self.sample))
        found = strongest_cases(
            kept.pairs.assign(person=place, match=place),
            kept.values,
            kept.match_values,
            kept.attributions,
            kept.match_attributions,
            n,
        )
        rows = found["person"].to_numpy(dtype=np.int64)
        return found.assign(**{name: kept.pairs[name].to_numpy()[rows] for name in ("person", "match")})
