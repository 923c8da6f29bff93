"""Parts of an audit's result with numbers pooled over draws of the groups."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.auditing.draw_estimates import EXCESSES, SCORE_GAPS, DrawKey, Estimates
from evenhand.auditing.evidence import Evidence
from evenhand.auditing.influences import Influences, gap_key, input_key
from evenhand.auditing.score_gaps import FeatureGap, ScoreGap
from evenhand.auditing.summary import Outcome, PairMetrics
from evenhand.metrics.adjustment import holm
from evenhand.metrics.disparity import ApprovalTable, GapEstimate, GroupApproval
from evenhand.metrics.disparity.membership import SOFT_NOTE
from evenhand.metrics.estimate import Estimate, size_found
from evenhand.metrics.excess import ExcessEstimate
from evenhand.metrics.outcomes import Metric
from evenhand.metrics.pooling import Pooled, p_one_sided, pooled_influence
from evenhand.metrics.regimes import REGIMES
from evenhand.metrics.score_gap import GapColumn, smallest_p_values

__all__ = ["PooledDraws", "pooled_evidence", "pooled_outcome", "pooled_pairs"]

Floats = NDArray[np.float64]
PooledDraws = Mapping[DrawKey, Pooled]

_LEVEL = 0.05


def pooled_evidence(
    draws: Sequence[Evidence], estimates: Sequence[Estimates], pooled: PooledDraws, random_state: int
) -> Evidence:
    """The evidence of the first draw with pooled excesses and score gaps.

    Parameters
    ----------
    draws, estimates
        The evidence of each draw, and the estimates from it.
    pooled
        The same, pooled.
    random_state
        Seed of the adjustment for the number of inputs.
    """
    first = draws[0]
    influences = {key: pooled_influence([draw[key] for draw in estimates]) for key in estimates[0]}
    excesses: dict[str, Any] = {
        place: _excess([getattr(draw, place) for draw in draws], pooled[DrawKey(name)])
        for name, (place, _) in EXCESSES.items()
    }
    gaps = [
        _score_gap([draw.score_gaps[k] for draw in draws], pooled, influences, random_state)
        for k in range(len(first.score_gaps))
    ]
    adjusted = holm([gap.total.p_value for gap in gaps])
    means: dict[str, Any] = {
        name: float(np.mean([getattr(draw, name) for draw in draws]))
        for name in ("compared_mean", "placebo_mean", "common_support")
    }
    return replace(
        first,
        **excesses,
        **means,
        score_gaps=tuple(replace(gap, p_adjusted=float(p)) for gap, p in zip(gaps, adjusted, strict=True)),
        influences=_kept(influences),
    )


def _kept(influences: Mapping[DrawKey, Floats | None]) -> Influences:
    """Influences on pooled estimates, by the names that comparisons of audits use."""
    named: dict[str, Floats] = {}
    for key, values in influences.items():
        if values is None:
            continue
        if key.metric in EXCESSES:
            named[EXCESSES[key.metric][1]] = values
        elif key.metric in SCORE_GAPS:
            named[gap_key(key.group, key.reference, SCORE_GAPS[key.metric][1])] = values
        elif key.metric == "input":
            named[input_key(key.feature, key.group, key.reference)] = values
    return Influences.of(named)


def _excess(draws: Sequence[ExcessEstimate], pooled: Pooled) -> ExcessEstimate:
    return ExcessEstimate(
        value=pooled.value,
        ci_low=pooled.low,
        ci_high=pooled.high,
        p_value=p_one_sided(pooled),
        standard_error=pooled.standard_error,
        n=round(float(np.mean([draw.n for draw in draws]))),
        n_effective=float(np.mean([draw.n_effective for draw in draws])),
        df=pooled.df,
        note=pooled.note or draws[0].note,
    )


def _score_gap(
    draws: Sequence[ScoreGap], pooled: PooledDraws, influences: Mapping[DrawKey, Floats | None], random_state: int
) -> ScoreGap:
    first = draws[0]
    sides = (first.group, first.reference)
    parts: dict[str, Any] = {
        place: _gap_column([getattr(draw, place) for draw in draws], pooled[DrawKey(name, *sides)])
        for name, (place, _) in SCORE_GAPS.items()
    }
    keys = [DrawKey("input", *sides, row.feature) for row in first.features]
    columns = [_gap_column([draw.features[j].estimate for draw in draws], pooled[key]) for j, key in enumerate(keys)]
    adjusted, smallest = smallest_p_values(
        [column.p_value for column in columns], _correlation([influences[key] for key in keys]), random_state
    )
    counts: dict[str, Any] = {
        name: round(float(np.mean([getattr(draw, name) for draw in draws])))
        for name in ("n_people", "n_pairs", "n_favor_group", "n_favor_reference")
    }
    return replace(
        first,
        **parts,
        **counts,
        features=tuple(
            FeatureGap(key.feature, column, float(p)) for key, column, p in zip(keys, columns, adjusted, strict=True)
        ),
        smallest_p=smallest,
    )


def _gap_column(draws: Sequence[GapColumn], pooled: Pooled) -> GapColumn:
    """A pooled gap; tested if most draws have enough people to test it."""
    error, is_tested = pooled.standard_error, not math.isnan(pooled.p_value)
    untested = [draw.note for draw in draws if math.isnan(draw.p_value)]
    usual = (
        Counter(untested).most_common(1)[0][0] if not is_tested and untested else draws[0].note if error == 0 else ""
    )
    return GapColumn(
        pooled.value,
        pooled.low,
        pooled.high,
        pooled.p_value,
        error,
        pooled.df,
        (size_found(error, pooled.df, _LEVEL, sides=2) if error > 0 else 0.0) if is_tested else math.nan,
        pooled.note or usual,
    )


def _correlation(influences: Sequence[Floats | None]) -> Floats:
    """Correlation of pooled estimates; those without influences count as uncorrelated."""
    n = next((len(values) for values in influences if values is not None), 1)
    columns = np.column_stack([np.zeros(n) if values is None else values for values in influences])
    sizes = np.linalg.norm(columns, axis=0)
    scaled = columns / np.where(sizes > 0, sizes, 1.0)
    correlation: Floats = scaled.T @ scaled
    np.fill_diagonal(correlation, 1.0)
    return correlation


def pooled_pairs(pairs: PairMetrics, draws: Sequence[PairMetrics], pooled: PooledDraws) -> PairMetrics:
    """Metrics of pairs with pooled regimes and means; counts, quantiles and histograms stay those of `pairs`."""
    means: dict[str, Any] = {
        name: float(np.mean([getattr(draw, name) for draw in draws])) for name in ("cec", "input_gap", "reasoning_gap")
    }
    return replace(pairs, **means, regimes={name: pooled[DrawKey(f"regime {name}")].value for name in REGIMES})


def pooled_outcome(outcome: Outcome, pooled: PooledDraws, expected: Mapping[str, float]) -> Outcome:
    """Outcomes with pooled approvals and gaps; `expected` is the number of people in each group."""
    gaps = {name: _widest(gap, pooled[DrawKey(name)]) for name, gap in outcome.gaps.items()}
    wanted = {name: Metric(gaps[name].value, gaps[name].note) for name in ("eo_gap", "sp_gap")}
    return replace(
        outcome,
        metrics={**outcome.metrics, **wanted},
        gaps=gaps,
        approvals=_approvals(outcome.approvals, pooled, expected),
    )


def _widest(gap: GapEstimate, pooled: Pooled) -> GapEstimate:
    low, high = (min(max(end, 0.0), 1.0) if not math.isnan(end) else end for end in (pooled.low, pooled.high))
    return replace(gap, value=pooled.value, low=low, high=high, note=pooled.note or gap.note)


def _approvals(table: ApprovalTable, pooled: PooledDraws, expected: Mapping[str, float]) -> ApprovalTable:
    others = [row for row in table.groups if not row.is_reference]
    p_values = [pooled[DrawKey("approval_test", row.group, table.reference)].p_value for row in others]
    adjusted = {row.group: float(p) for row, p in zip(others, holm(p_values), strict=True)}
    reference_rate = pooled[DrawKey("approval_rate", table.reference)].value
    rows = tuple(
        _approval(row, table, pooled, expected[row.group], reference_rate, adjusted.get(row.group, math.nan))
        for row in table.groups
    )
    return replace(table, is_probabilistic=True, groups=rows, note=SOFT_NOTE)


def _approval(
    row: GroupApproval,
    table: ApprovalTable,
    pooled: PooledDraws,
    n_people: float,
    reference_rate: float,
    p_holm: float,
) -> GroupApproval:
    rate = pooled[DrawKey("approval_rate", row.group)]
    alone = replace(
        row,
        n_people=n_people,
        n_approved=n_people * rate.value,
        approval_rate=_estimate(rate),
        shortfall=max(0.0, n_people * (reference_rate - rate.value)),
    )
    if row.is_reference:
        return alone
    difference, ratio, odds, test = (
        pooled[DrawKey(f"approval_{name}", row.group, table.reference)]
        for name in ("difference", "ratio", "odds_ratio", "test")
    )
    return replace(
        alone,
        rate_difference_group_minus_reference_pp=_estimate(difference, lambda share: 100 * share),
        approval_ratio_group_over_reference=_estimate(ratio, math.exp),
        odds_ratio_group_over_reference=_estimate(odds, math.exp),
        p_value=test.p_value,
        p_value_holm=p_holm,
        test="z of drawn groups",
        n_standard_deviations=test.value / test.standard_error if test.standard_error > 0 else math.nan,
        is_statistically_significant=None if math.isnan(p_holm) else p_holm < table.significance_level,
        is_below_practical_threshold=(
            None if math.isnan(ratio.value) else math.exp(ratio.value) < table.four_fifths_threshold
        ),
        note=difference.note,
    )


def _estimate(pooled: Pooled, scale: Callable[[float], float] = float) -> Estimate:
    return Estimate(scale(pooled.value), scale(pooled.low), scale(pooled.high), pooled.note)
