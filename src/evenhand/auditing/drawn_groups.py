"""Groups known as probabilities: metrics pooled over draws, next to alternative uses of the probabilities."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.arrays import Floats, Ints
from evenhand.auditing.batch import BatchFindings
from evenhand.auditing.evidence import Evidence, FeatureGap, Influences, ScoreGap, gap_key, input_key
from evenhand.auditing.fitted import Fitted
from evenhand.auditing.summary import Outcome, PairMetrics
from evenhand.inputs.group_probabilities import PersonProbabilities
from evenhand.inputs.validation import Groups
from evenhand.metrics.adjustment import holm
from evenhand.metrics.cec import REGIMES
from evenhand.metrics.disparity import ApprovalTable, GapEstimate, GroupApproval, approval_disparity, outcome_gaps
from evenhand.metrics.disparity.intervals import SOFT_NOTE, weighted_mean
from evenhand.metrics.estimate import Estimate, normal_quantile, not_estimable, p_above, p_two_sided
from evenhand.metrics.excess import excess_columns
from evenhand.metrics.pooling import DrawnEstimate, Pooled, group_contrasts, pooled_influence
from evenhand.metrics.score_gap import smallest_p_values
from evenhand.report.formatting import count, decimal, is_number, percent

_Z = normal_quantile(0.95)

EXCESSES = {
    "excess": ("cec", "excess"),
    "excess_balanced": ("balanced", "excess_balanced"),
    "weighing": ("reasoning_gap", "weighing"),
    "excess: input gap": ("input_gap", "excess: input gap"),
    "excess: regime B": ("regime_b", ""),
}
"""For each excess, its place in the evidence, and the name of its influences, if they are kept."""


@dataclass(frozen=True)
class DrawKey:
    """Key of a number in an audit: the metric, the group or groups, and the input."""

    metric: str
    group: str = ""
    reference: str = ""
    feature: str = ""


SCORE_GAPS = {
    "score_gap": ("total", ""),
    "score_gap_probability": ("probability", "probability"),
    "score_gap_decision": ("decision", "decision"),
}
"""For each score gap, its place in a `ScoreGap`, and the unit in the name of its influences."""

Estimates = dict[DrawKey, DrawnEstimate]


def draw_estimates(
    reference: Fitted, found: BatchFindings, evidence: Evidence | None, reference_group: str
) -> Estimates:
    """Estimates from a draw: excesses, score gaps, regimes, approvals, and gaps in outcomes.

    Parameters
    ----------
    reference, found, evidence
        What was fitted on the draw, the results for its people, and the evidence, if any.
    reference_group
        The group that the others are compared with.
    """
    of_evidence = {} if evidence is None else {**_excesses(evidence), **_score_gaps(evidence)}
    return {**of_evidence, **_regimes(reference, found), **_outcomes(found, reference_group), **_widest_gaps(found)}


def _excesses(evidence: Evidence) -> Estimates:
    columns = {} if evidence.influences is None else evidence.influences.columns
    return {
        DrawKey(name): DrawnEstimate(getattr(evidence, place), columns.get(influence))
        for name, (place, influence) in EXCESSES.items()
    }


def _score_gaps(evidence: Evidence) -> Estimates:
    columns = {} if evidence.influences is None else evidence.influences.columns
    estimates: Estimates = {}
    for gap in evidence.score_gaps:
        sides = (gap.group, gap.reference)
        for name, (place, unit) in SCORE_GAPS.items():
            estimates[DrawKey(name, *sides)] = DrawnEstimate(getattr(gap, place), columns.get(gap_key(*sides, unit)))
        for row in gap.features:
            key = DrawKey("input", *sides, row.feature)
            estimates[key] = DrawnEstimate(row.estimate, columns.get(input_key(row.feature, *sides)))
    return estimates


def _regimes(reference: Fitted, found: BatchFindings) -> Estimates:
    """Shares of pairs in each regime; someone counts as a person and as a match of other people."""
    done = found.scored.is_scored
    # Without a reference, people and matches are rows of one table.
    first = 0 if reference.pool is found.people else len(found.people)
    nodes = np.column_stack([found.pairs.person[done], found.pairs.match[done] + first])
    if not len(nodes):
        return {DrawKey(f"regime {name}"): DrawnEstimate(not_estimable("no pairs")) for name in REGIMES}
    is_in = np.column_stack([found.regime[done] == name for name in REGIMES]).astype(np.float64)
    shares = is_in.mean(axis=0)
    estimates: Estimates = {}
    errors = excess_columns(is_in, np.zeros_like(is_in), nodes)
    for name, share, column, error in zip(REGIMES, shares.tolist(), is_in.T, errors, strict=True):
        moved = np.repeat((column - share) / len(nodes), 2)
        influence = np.bincount(nodes.ravel(), moved, minlength=first + len(reference.pool)).astype(np.float64)
        estimates[DrawKey(f"regime {name}")] = DrawnEstimate(
            Estimate.from_error(share, error.standard_error), influence
        )
    return estimates


def _outcomes(found: BatchFindings, reference_group: str) -> Estimates:
    """Approvals of each group and compared with the reference group; differences in error rates and mean scores."""
    groups, decision, labels = found.people.groups, found.decision, found.people.labels
    table = approval_disparity(decision, groups.codes, names=groups.names, reference=reference_group)
    everyone = np.ones(len(labels), dtype=np.bool_)
    estimates: Estimates = {}
    approved = _Means.of(decision, groups, everyone)
    held_against = groups.names.index(reference_group)
    for code, row in enumerate(table.groups):
        estimates[DrawKey("approval_rate", row.group)] = _of_interval(row.approval_rate, approved.influences[code])
        if code != held_against:
            estimates |= _approval_means(row, reference_group, approved, code, held_against)
            sides = (row.group, reference_group)
            for name, values, subset in (
                ("true_positive_rate_difference", decision, labels == 1),
                ("false_positive_rate_difference", decision, labels == 0),
                ("mean_score_difference", found.score, everyone),
            ):
                estimates[DrawKey(name, *sides)] = _Means.of(values, groups, subset).difference(code, held_against)
    return estimates


def _approval_means(row: GroupApproval, reference: str, approved: _Means, code: int, held_against: int) -> Estimates:
    sides = (row.group, reference)
    own, other = approved.influences[code], approved.influences[held_against]
    rate, reference_rate = approved.means[code], approved.means[held_against]
    n, n_reference = approved.sizes[code], approved.sizes[held_against]
    difference = row.rate_difference_group_minus_reference_pp.scaled(0.01)
    overall = (rate * n + reference_rate * n_reference) / (n + n_reference) if n and n_reference else math.nan
    null_error = math.sqrt(overall * (1 - overall) * (1 / n + 1 / n_reference)) if n and n_reference else math.nan
    with np.errstate(divide="ignore", invalid="ignore"):
        of_ratio = own / rate - other / reference_rate
        of_odds = own / (rate * (1 - rate)) - other / (reference_rate * (1 - reference_rate))
    return {
        DrawKey("approval_difference", *sides): _of_interval(difference, own - other),
        DrawKey("approval_test", *sides): DrawnEstimate(_with_error(difference, null_error), own - other),
        DrawKey("approval_ratio", *sides): _of_interval(_logarithms(row.approval_ratio_group_over_reference), of_ratio),
        DrawKey("approval_odds_ratio", *sides): _of_interval(_logarithms(row.odds_ratio_group_over_reference), of_odds),
    }


def _widest_gaps(found: BatchFindings) -> Estimates:
    groups = found.people.groups
    gaps = outcome_gaps(found.people.labels, found.decision, groups.codes, names=groups.names)
    return {DrawKey(name): _of_interval(gap, None) for name, gap in gaps.items()}


@dataclass(frozen=True, eq=False)
class _Means:
    """Means of a value in each group, and the influences of people on them."""

    sizes: list[float]
    means: list[float]
    influences: list[Floats]

    @classmethod
    def of(cls, values: Floats | Ints, groups: Groups, subset: NDArray[np.bool_]) -> _Means:
        found = cls([], [], [])
        for code in range(len(groups.names)):
            weights = (subset & (groups.codes == code)).astype(np.float64)
            found.sizes.append(float(weights.sum()))
            mean, influence = (
                weighted_mean(values, weights, np.ones(len(weights)))
                if weights.any()
                else (math.nan, np.full(len(weights), math.nan))
            )
            found.means.append(mean)
            found.influences.append(influence)
        return found

    def difference(self, code: int, reference: int) -> DrawnEstimate:
        influence = self.influences[code] - self.influences[reference]
        value, error = self.means[code] - self.means[reference], float(np.linalg.norm(influence))
        return DrawnEstimate(Estimate.from_error(value, error), influence)


def _of_interval(found: Estimate, influence: Floats | None) -> DrawnEstimate:
    """An estimate whose standard error is recovered from its interval."""
    return DrawnEstimate(_with_error(found, (found.high - found.low) / (2 * _Z)), influence)


def _with_error(found: Estimate, error: float) -> Estimate:
    return Estimate(found.value, found.low, found.high, error, p_two_sided(found.value, error), df=math.inf)


def _logarithms(found: Estimate) -> Estimate:
    value, low, high = (math.log(x) if x > 0 else math.nan for x in (found.value, found.low, found.high))
    return Estimate(value, low, high)


_RATIOS = ("approval_ratio", "approval_odds_ratio")
_NOT_SHOWN = ("approval_test", "approval_odds_ratio")
_ESTIMATORS = ("thresholding", "weighting", "group_alone")


@dataclass(frozen=True)
class DrawnMetric:
    """A metric pooled over draws, next to the results of alternative uses of the probabilities.

    Attributes
    ----------
    key
        Key of the metric.
    pooled
        Estimate pooled over draws; for ratios, the logarithm.
    p_value
        For no difference, two-sided, or for no excess, one-sided; NaN for other metrics.
    thresholding, weighting, group_alone
        See `metrics.group_contrasts`; the last two are NaN for metrics that are not differences of means.
    """

    key: DrawKey
    pooled: Pooled
    p_value: float
    thresholding: float = math.nan
    weighting: float = math.nan
    group_alone: float = math.nan

    def to_dict(self) -> dict[str, Any]:
        """Plain data; ratios are converted back, but their spread remains that of the logarithm."""
        found = self.pooled.to_dict()
        is_ratio = self.key.metric in _RATIOS
        if is_ratio:
            found |= {name: math.exp(found[name]) for name in ("value", "low", "high", "rubin_low", "rubin_high")}
        others = {name: getattr(self, name) for name in ("p_value", *_ESTIMATORS)}
        return {**asdict(self.key), **found, **others, "is_ratio": is_ratio}


@dataclass(frozen=True)
class DrawnGroups:
    """Groups that were drawn from probabilities.

    Attributes
    ----------
    n_draws
        Number of draws.
    threshold
        Probability from which thresholding assigns people to their most likely group.
    expected, thresholded
        Number of people of each group: expected from the probabilities, and assigned by thresholding.
    n_left_out
        People whom thresholding leaves out.
    certainty
        Mean probability of people's most likely group.
    metrics
        Pooled over the draws.
    """

    n_draws: int
    threshold: float
    expected: Mapping[str, float]
    thresholded: Mapping[str, int]
    n_left_out: int
    certainty: float
    metrics: tuple[DrawnMetric, ...]

    @classmethod
    def of(
        cls, found: BatchFindings, pooled: Mapping[DrawKey, Pooled], by_threshold: Estimates, reference_group: str
    ) -> DrawnGroups:
        """Metrics of people pooled over draws, next to thresholding and weighting.

        Parameters
        ----------
        found
            Results for the people, in any draw.
        pooled
            Estimates pooled over draws.
        by_threshold
            Estimates from those who are likely enough to belong to a group; empty if they are too few.
        reference_group
            The group that the others are compared with.
        """
        probable = found.people.probabilities
        assert probable is not None
        others = _other_uses(found, probable, reference_group)
        put = probable.thresholded
        numbers = np.bincount(put[put >= 0], minlength=len(probable.names))
        return cls(
            n_draws=probable.n_draws,
            threshold=probable.threshold,
            expected=dict(zip(probable.names, probable.values.sum(axis=0).tolist(), strict=True)),
            thresholded=dict(zip(probable.names, numbers.tolist(), strict=True)),
            n_left_out=int((put < 0).sum()),
            certainty=float(probable.values.max(axis=1).mean()),
            metrics=tuple(
                DrawnMetric(key, metric, _p_value(key, pooled), **(others.get(key) or _thresholded(by_threshold, key)))
                for key, metric in pooled.items()
                if key.metric not in _NOT_SHOWN
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the summary."""
        plain = {name: value for name, value in vars(self).items() if name != "metrics"}
        return {**plain, "metrics": [metric.to_dict() for metric in self.metrics], "sentences": list(self.sentences())}

    @property
    def warnings(self) -> tuple[str, ...]:
        """What every reader of the audit must know."""
        return (
            f"Groups are known as probabilities and were drawn {self.n_draws} times. Findings, score gaps, excesses, "
            "regimes, approvals and gaps in outcomes are pooled over the draws. Everything else, including single "
            "pairs and their charts, comes from the first draw.",
            "The draws know only what the probabilities know about the group. If people with the same probabilities "
            "fare differently by group, in the same direction as the groups overall, every difference is understated.",
        )

    def sentences(self) -> Iterator[str]:
        """How the estimators of a difference compare, and what the data cannot show."""
        yield (
            f"The most likely group has a probability of {percent(self.certainty)} on average. Thresholding at "
            f"{self.threshold:g} leaves out {count(self.n_left_out)} people."
        )
        for metric in self.metrics:
            if metric.key.metric == "approval_difference":
                yield from _on_bias(metric)
        yield (
            "Pooling and weighting are right if outcomes depend on the group only through what the probabilities "
            "were made from, such as surname and address. The data cannot show this: no one's group is known. If, "
            "among people with the same probabilities, the group that fares worse overall also fares worse, both "
            "understate the difference; if it fares better, they overstate it. The column for the group alone is right "
            "in the opposite case, in which outcomes depend on the group but not on surname or address beyond it."
        )


def _thresholded(by_threshold: Estimates, key: DrawKey) -> dict[str, float]:
    return {"thresholding": by_threshold[key].estimate.value} if key in by_threshold else {}


def _p_value(key: DrawKey, pooled: Mapping[DrawKey, Pooled]) -> float:
    """The p-value of a metric; for approvals, that of equal rates, as in the approval table."""
    if key.metric in EXCESSES:
        return p_above(pooled[key].value, pooled[key].standard_error, pooled[key].df)
    if key.metric in ("approval_difference", "approval_ratio"):
        return pooled[replace(key, metric="approval_test")].p_value
    return pooled[key].p_value if key.reference else math.nan


def _on_bias(metric: DrawnMetric) -> Iterator[str]:
    """Sentences on the possible error of each estimator of a difference in approvals."""
    key, value = metric.key, metric.pooled.value
    sides = f"{key.group} minus {key.reference}"
    if is_number(metric.thresholding) and is_number(value):
        apart = abs(metric.thresholding) - abs(value)
        verb = "overstates" if apart > 0 else "understates"
        if metric.thresholding * value < 0:
            verb = "reverses"
        yield (
            f"Favorable decisions, {sides}: pooled {_points(value)}, by thresholding {_points(metric.thresholding)}, "
            f"by weighting {_points(metric.weighting)} points. If pooling is right, thresholding {verb} the difference."
        )
    if is_number(metric.group_alone) and is_number(value):
        yield (
            f"If decisions depended on the group alone, the difference of {sides} would be "
            f"{_points(metric.group_alone)} points: pooling would be off by {_points(value - metric.group_alone)}."
        )


def _points(share: float) -> str:
    return decimal(100 * share, 1)


def _other_uses(
    found: BatchFindings, probable: PersonProbabilities, reference_group: str
) -> dict[DrawKey, dict[str, float]]:
    """Thresholding, weighting and the group alone, for every difference and ratio of means."""
    labels, everyone = found.people.labels, np.ones(len(found.people), dtype=np.bool_)
    estimates: dict[DrawKey, dict[str, float]] = {}
    for name, values, subset in (
        ("approval_difference", found.decision, everyone),
        ("approval_ratio", found.decision, everyone),
        ("true_positive_rate_difference", found.decision, labels == 1),
        ("false_positive_rate_difference", found.decision, labels == 0),
        ("mean_score_difference", found.score, everyone),
    ):
        held_against = probable.names.index(reference_group)
        contrasts = group_contrasts(values[subset], probable.values[subset], probable.thresholded[subset], held_against)
        for code, contrast in contrasts.items():
            key = DrawKey(name, probable.names[code], reference_group)
            estimates[key] = contrast.ratios if name in _RATIOS else contrast.differences
    return estimates


PooledDraws = Mapping[DrawKey, Pooled]


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


def _excess(draws: Sequence[Estimate], pooled: Pooled) -> Estimate:
    p_value = p_above(pooled.value, pooled.standard_error, pooled.df)
    return _as_estimate(replace(pooled, p_value=p_value, note=pooled.note or draws[0].note))


def _as_estimate(pooled: Pooled) -> Estimate:
    return Estimate(**{field.name: getattr(pooled, field.name) for field in fields(Estimate)})


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


def _gap_column(draws: Sequence[Estimate], pooled: Pooled) -> Estimate:
    """A pooled gap; tested if most draws have enough people to test it."""
    error, is_tested = pooled.standard_error, not math.isnan(pooled.p_value)
    untested = [draw.note for draw in draws if math.isnan(draw.p_value)]
    usual = (
        Counter(untested).most_common(1)[0][0] if not is_tested and untested else draws[0].note if error == 0 else ""
    )
    return _as_estimate(replace(pooled, note=pooled.note or usual))


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
    wanted = {name: Estimate(gaps[name].value, note=gaps[name].note) for name in ("eo_gap", "sp_gap")}
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
    return Estimate(scale(pooled.value), scale(pooled.low), scale(pooled.high), note=pooled.note)
