"""What an audit of people in memory found."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from evenhand.auditing.cases import strongest_cases
from evenhand.auditing.figures import AuditFigures, PairFigures
from evenhand.metrics.regimes import regime_shares
from evenhand.system.files import write_atomically

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evenhand.auditing.sample import PairSample
    from evenhand.report.plots import Plots

__all__ = ["AuditResult"]


@dataclass(frozen=True, eq=False, repr=False)
class AuditResult(AuditFigures):
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

    reference_table: pd.DataFrame
    attributions: NDArray[np.float32]
    match_attributions: NDArray[np.float32]

    def pair_figures(self) -> PairFigures:
        """Figures of all scored pairs."""
        from evenhand.auditing.distributions import pair_distributions

        scored = self.pairs[self.pairs["cec"].notna()]
        cec = scored["cec"].to_numpy()
        by_group = scored.groupby("group", sort=True)[["cec", "shared_reasons"]].mean()
        names = [str(name) for name in by_group.index]
        return PairFigures(
            n_pairs=len(scored),
            n_negligible=int(scored["is_negligible"].sum()),
            cec=_mean(cec),
            cec_median=float(np.median(cec)) if len(cec) else math.nan,
            cec_p90=float(np.quantile(cec, 0.9)) if len(cec) else math.nan,
            input_gap=_mean(scored["input_gap"].to_numpy()),
            reasoning_gap=_mean(scored["reasoning_gap"].to_numpy()),
            shared_reasons=_mean(scored["shared_reasons"].to_numpy()),
            cec_by_group=dict(zip(names, by_group["cec"].tolist(), strict=True)),
            shared_reasons_by_group=dict(zip(names, by_group["shared_reasons"].tolist(), strict=True)),
            regimes=regime_shares(scored["regime"]),
            distributions=pair_distributions(self.pairs),
        )

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
        return strongest_cases(
            self.pairs, self.table, self.reference_table, self.attributions, self.match_attributions, n
        )

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
        from evenhand.inputs.encoding import TableEncoder
        from evenhand.metrics.related import procedural_metrics

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
        from evenhand.auditing.sample import draw_pair_sample

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

        def sample_of(person: int) -> dict[str, Any]:
            rows = np.flatnonzero(self.pairs["person"].to_numpy() == person)
            return self._sample(self.pairs.iloc[rows], self.match_attributions[rows], max(1, len(rows))).to_dict()

        return Plots(self.to_dict(), sample_of)


def _mean(values: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    return float(values.mean()) if len(values) else math.nan
