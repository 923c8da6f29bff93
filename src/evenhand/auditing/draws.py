"""Groups known as probabilities: audit each draw of the groups, and pool every estimate by its name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from operator import mul
from statistics import mode
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenhand.arrays import Floats, Ints
from evenhand.auditing.batch import BatchFindings, audit_batch
from evenhand.auditing.batches import AuditSums, BatchOutput, Merged, OneBatch
from evenhand.auditing.evidence import Evidence, FeatureGap, Influences, adjusted_for_pairs, gather_evidence
from evenhand.auditing.fitted import Fitted
from evenhand.auditing.result import AuditResult
from evenhand.auditing.sections import SECTIONS
from evenhand.auditing.sections.outcome import Outcomes, with_one_interval
from evenhand.auditing.sections.pairs import PairMetrics
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.group_probabilities import FEWEST_EXPECTED
from evenhand.inputs.people import People
from evenhand.inputs.validation import Groups
from evenhand.metrics.adjustment import correlation_of, holm, smallest_p_values
from evenhand.metrics.cec import REGIMES
from evenhand.metrics.disparity import GroupApproval, approval_disparity, outcome_gaps
from evenhand.metrics.estimate import (
    Estimate,
    normal_quantile,
    not_estimable,
    p_above,
    p_two_sided,
    size_found,
    student_quantile,
)
from evenhand.metrics.excess import excess_columns
from evenhand.metrics.pooling import DrawnEstimate, Pooled, group_means, pool, pooled_influence
from evenhand.report.formatting import count, decimal, is_number, percent
from evenhand.system.threads import MOST_THREADS, Threads, n_cores


class DrawKey(NamedTuple):
    """Name of an estimate in an audit: the metric, the group or groups, and the input."""

    metric: str
    group: str = ""
    reference: str = ""
    feature: str = ""

    @property
    def influences(self) -> str:
        """Name of its column in `Influences`."""
        feature = f": {self.feature}" if self.feature else ""
        return f"{self.metric}{feature}: {self.group} minus {self.reference}" if self.reference else self.metric


def _log(ratio: float) -> float:
    return math.log(ratio) if ratio > 0 else math.nan


Estimates = dict[DrawKey, DrawnEstimate]
Scale = Callable[[float], float]

_EXCESSES = {
    "excess": "cec",
    "excess_balanced": "balanced",
    "weighing": "reasoning_gap",
    "excess: input gap": "input_gap",
    "excess: regime B": "regime_b",
}
_SCORE_GAPS = {"score_gap": "total", "score_gap_probability": "probability", "score_gap_decision": "decision"}
_APPROVALS: dict[str, tuple[str, Scale, Scale]] = {
    "approval_difference": ("rate_difference_group_minus_reference_pp", partial(mul, 0.01), partial(mul, 100.0)),
    "approval_ratio": ("approval_ratio_group_over_reference", _log, math.exp),
    "approval_odds_ratio": ("odds_ratio_group_over_reference", _log, math.exp),
}
"""For each comparison of approvals, its place in the table, the scale on which it is pooled, and the way back."""
_NOT_SHOWN = ("approval_test", "approval_odds_ratio")
_DRAWN_NOTE = (
    "group membership is given as probabilities: counts are sums of probabilities, intervals are normal "
    "approximations, and differences are understated or overstated if decisions depend on membership beyond them"
)


def with_first_draw(people: People, pool: People, random_state: int) -> tuple[People, People]:
    """The audited people and their pool in the groups of the first draw, if groups are known as probabilities.

    Raises
    ------
    InvalidInputError
        If only one of the two has probabilities, or their groups differ.
    """
    own, other = people.probabilities, pool.probabilities
    if own is None and other is None:
        return people, pool
    if own is None or other is None or own.names != other.names:
        known, known_of_pool = (
            f"{'groups' if some.probabilities is None else 'probabilities of'} {list(some.groups.names)}"
            for some in (people, pool)
        )
        raise InvalidInputError(
            "The audited people and the reference must both have `GroupProbabilities` with the same columns, or both "
            f"have groups, got {known} and {known_of_pool}; give probabilities for both."
        )
    if people.sample_weight is not None:
        raise InvalidInputError(
            "Groups known as probabilities cannot be audited with sampling weights yet: drop `sample_weight` "
            "(--sample-weight), or give groups."
        )
    return of_draw(people, pool, 0, random_state)


def of_draw(people: People, pool: People, number: int, random_state: int) -> tuple[People, People]:
    """The audited people and their pool, who may be the same, in the groups of a draw."""

    def drawn(some: People) -> People:
        assert some.probabilities is not None
        return replace(some, groups=some.probabilities.drawn(number, random_state))

    own = drawn(people)
    return own, own if pool is people else drawn(pool)


def _of_threshold(people: People, pool: People) -> tuple[People, People] | None:
    """People who are likely enough to belong to a group, as members of it; None if too few are left in a group."""

    def likely(some: People) -> People:
        assert some.probabilities is not None
        groups = Groups(some.probabilities.thresholded, some.probabilities.names)
        members = replace(some, groups=groups, probabilities=None, given_probabilities=None)
        return members.rows(np.flatnonzero(groups.codes >= 0))

    own = likely(people)
    other = own if pool is people else likely(pool)
    return None if min(*own.groups.counts.values(), *other.groups.counts.values()) < FEWEST_EXPECTED else (own, other)


def pooled_over_draws(
    first: AuditResult, reference: Fitted, batch: BatchFindings, advance: Callable[[str], None]
) -> AuditResult:
    """The audit of the first draw, pooled with all other draws; the audit itself if groups are known.

    People are encoded once for all draws. Baselines, matches and explanations depend on the groups and are computed for
    each draw. What only the tables and charts of one draw need is computed for the first.

    Parameters
    ----------
    first, reference, batch
        The audit of the first draw, what was fitted on it, and the results for its people.
    advance
        Called with a short text after each additional draw.
    """
    probable = batch.people.probabilities
    if probable is None:
        return first
    against, seed = first.outcome.approvals.reference, reference.settings.random_state
    draws = [(first.evidence, first.pair_metrics, _estimates(reference, batch, first.evidence, against))]
    for number in range(1, probable.n_draws):
        drawn = of_draw(batch.people, reference.pool, number, seed)
        draws.append(_audited(reference, *drawn, against))
        advance(f"draw {number + 1} of {probable.n_draws}")
    evidence, pairs, estimates = zip(*draws, strict=True)
    by_name = {key: [one[key] for one in estimates] for key in estimates[0]}
    pooled = {key: _pooled(key, of_key) for key, of_key in by_name.items()}
    likely = _of_threshold(batch.people, reference.pool)
    thresholded = {} if likely is None else _audited(reference, *likely, against)[-1]
    drawn_groups = _drawn_groups(batch, pooled, thresholded, against)
    expected = drawn_groups["expected"]
    gathered = [one for one in evidence if one is not None]
    return replace(
        first,
        sections={
            **first.sections,
            "outcome": _pooled_outcome(first.outcome, pooled, expected),
            "excess": _pooled_evidence(gathered, by_name, pooled, seed) if gathered else None,
            "regimes": replace(
                first.pair_metrics,
                **_means(pairs, "cec", "input_gap", "reasoning_gap"),
                regimes={name: pooled[DrawKey(f"regime {name}")].value for name in REGIMES},
            ),
            "drawn-groups": drawn_groups,
        },
        provenance=replace(first.provenance, groups={name: round(n) for name, n in expected.items()}),
        warnings=(
            f"Groups are known as probabilities and were drawn {probable.n_draws} times. Findings, score gaps, "
            "excesses, regimes, approvals and gaps in outcomes are pooled over the draws. Everything else, including "
            "single pairs and their charts, comes from the first draw.",
            "The draws know only what the probabilities know about the group. If people with the same probabilities "
            "fare differently by group, in the same direction as the groups overall, every difference is understated.",
            *first.warnings,
        ),
    )


def _audited(
    reference: Fitted, people: People, pool_of_people: People, against: str
) -> tuple[Evidence | None, PairMetrics, Estimates]:
    """Audit the people in the groups of another draw, with score gaps relative to a given group."""
    is_pool = pool_of_people is people
    people = replace(people, by={})
    fitted = Fitted.of(reference.model, reference.settings, people if is_pool else pool_of_people, len(people))
    batch = audit_batch(fitted, people)
    evidence, merged, names = None, Merged.of(AuditSums.of(batch, SECTIONS)), people.groups.names
    if batch.evidence is not None:
        output = BatchOutput(0, merged, triples=batch.evidence.triples, leaf_people=batch.evidence.leaf_people)
        batches = OneBatch(output, Threads(min(n_cores(), MOST_THREADS)))
        evidence = gather_evidence(fitted, batches, merged, against, is_whole=False)
    pairs = PairMetrics.of(merged.sums, names, (math.nan, math.nan), fitted.scope, is_weighted=False)
    return evidence, pairs, _estimates(fitted, batch, evidence, against)


def _estimates(reference: Fitted, batch: BatchFindings, evidence: Evidence | None, against: str) -> Estimates:
    """Estimates from a draw by name: excesses, score gaps, regimes, approvals, and gaps in outcomes."""
    of_evidence = {} if evidence is None else dict(_evidence_estimates(evidence))
    columns = {} if evidence is None or evidence.influences is None else evidence.influences.columns
    groups = batch.people.groups
    gaps = outcome_gaps(batch.people.labels, batch.decision, groups.codes, names=groups.names)
    return {
        **{key: DrawnEstimate(estimate, columns.get(key.influences)) for key, estimate in of_evidence.items()},
        **_regimes(reference, batch),
        **_outcomes(batch, against),
        **{DrawKey(name): _of_interval(gap, None) for name, gap in gaps.items()},
    }


def _evidence_estimates(evidence: Evidence) -> Iterator[tuple[DrawKey, Estimate]]:
    for name, place in _EXCESSES.items():
        yield DrawKey(name), getattr(evidence, place)
    for gap in evidence.score_gaps:
        for name, place in _SCORE_GAPS.items():
            yield DrawKey(name, gap.group, gap.reference), getattr(gap, place)
        for row in gap.features:
            yield DrawKey("input", gap.group, gap.reference, row.feature), row.estimate


def _regimes(reference: Fitted, batch: BatchFindings) -> Estimates:
    """Shares of pairs in each regime; someone counts as a person and as a match of other people."""
    done = batch.scored.is_scored
    # Without a reference, people and matches are rows of one table.
    first = 0 if reference.pool is batch.people else len(batch.people)
    nodes = np.column_stack([batch.pairs.person[done], batch.pairs.match[done] + first])
    if not len(nodes):
        return {DrawKey(f"regime {name}"): DrawnEstimate(not_estimable("no pairs")) for name in REGIMES}
    is_in = np.column_stack([batch.regime[done] == name for name in REGIMES]).astype(np.float64)
    estimates: Estimates = {}
    for name, column, of in zip(REGIMES, is_in.T, excess_columns(is_in, np.zeros_like(is_in), nodes), strict=True):
        share = float(column.mean())
        moved = np.repeat((column - share) / len(nodes), 2)
        influence = np.bincount(nodes.ravel(), moved, minlength=first + len(reference.pool)).astype(np.float64)
        estimates[DrawKey(f"regime {name}")] = DrawnEstimate(Estimate.from_error(share, of.standard_error), influence)
    return estimates


def _compared_means(batch: BatchFindings) -> dict[str, tuple[Floats | Ints, NDArray[np.bool_]]]:
    """For each difference in means between groups, the values and whom they are averaged over."""
    labels, everyone = batch.people.labels, np.ones(len(batch.people), dtype=np.bool_)
    return {
        "approval_difference": (batch.decision, everyone),
        "true_positive_rate_difference": (batch.decision, labels == 1),
        "false_positive_rate_difference": (batch.decision, labels == 0),
        "mean_score_difference": (batch.score, everyone),
    }


def _outcomes(batch: BatchFindings, against: str) -> Estimates:
    """Approvals of each group and compared with the reference group; differences in error rates and mean scores."""
    groups = batch.people.groups
    table = approval_disparity(batch.decision, groups.codes, names=groups.names, reference=against)
    base = groups.names.index(against)
    is_in = groups.codes[:, None] == np.arange(len(groups.names))
    sizes = is_in.sum(axis=0)
    means: dict[str, Floats] = {}
    influences: dict[str, Floats] = {}
    with np.errstate(divide="ignore", invalid="ignore"):
        for name, (values, subset) in _compared_means(batch).items():
            counted = is_in & subset[:, None]
            means[name] = values @ counted / counted.sum(axis=0)
            influences[name] = counted * (values[:, None] - means[name]) / counted.sum(axis=0)
        rates, of_rates = means.pop("approval_difference"), influences["approval_difference"]
        influences["approval_ratio"] = of_rates / rates
        influences["approval_odds_ratio"] = of_rates / (rates * (1 - rates))
        overall = (rates * sizes + rates[base] * sizes[base]) / (sizes + sizes[base])
        null_errors = np.sqrt(overall * (1 - overall) * (1 / sizes + 1 / sizes[base])).tolist()
    estimates: Estimates = {}
    for code, row in enumerate(table.groups):
        estimates[DrawKey("approval_rate", row.group)] = _of_interval(row.approval_rate, of_rates[:, code])
        if row.is_reference:
            continue
        apart = {name: influence[:, code] - influence[:, base] for name, influence in influences.items()}
        compared = {
            name: _of_interval(_scaled(getattr(row, place), scale), apart[name])
            for name, (place, scale, _) in _APPROVALS.items()
        }
        difference = compared["approval_difference"]
        compared["approval_test"] = _of_interval(difference.estimate, difference.influence, null_errors[code])
        for name, mean in means.items():
            estimate = Estimate.from_error(float(mean[code] - mean[base]), float(np.linalg.norm(apart[name])))
            compared[name] = DrawnEstimate(estimate, apart[name])
        estimates |= {DrawKey(name, row.group, against): estimate for name, estimate in compared.items()}
    return estimates


def _of_interval(
    estimate: Estimate, influence: NDArray[np.floating] | None, error: float | None = None
) -> DrawnEstimate:
    """An estimate with a standard error, by default that of its interval."""
    value, low, high = estimate.value, estimate.low, estimate.high
    error = (high - low) / (2 * normal_quantile(0.95)) if error is None else error
    return DrawnEstimate(Estimate(value, low, high, error, p_two_sided(value, error), df=math.inf), influence)


def _scaled(estimate: Estimate, scale: Scale) -> Estimate:
    return Estimate(scale(estimate.value), scale(estimate.low), scale(estimate.high), note=estimate.note)


def _pooled(key: DrawKey, draws: Sequence[DrawnEstimate]) -> Pooled:
    """A pooled estimate; the p-value of an excess is one-sided, and there is none for what is not a difference."""
    pooled = pool(draws)
    if key.metric in _EXCESSES:
        return replace(pooled, p_value=p_above(pooled.value, pooled.standard_error, pooled.df))
    return pooled if key.reference else replace(pooled, p_value=math.nan)


def _means(draws: Sequence[Any], *names: str) -> dict[str, Any]:
    """Means of numbers over draws; whole numbers stay whole."""
    means = {name: float(np.mean([getattr(draw, name) for draw in draws])) for name in names}
    return {name: round(mean) if isinstance(getattr(draws[0], name), int) else mean for name, mean in means.items()}


def _pooled_evidence(
    draws: Sequence[Evidence],
    by_name: Mapping[DrawKey, Sequence[DrawnEstimate]],
    pooled: Mapping[DrawKey, Pooled],
    random_state: int,
) -> Evidence:
    """The evidence of the first draw with pooled excesses and score gaps."""
    first = draws[0]
    names = [key for key, _ in _evidence_estimates(first)]
    estimates = {key: _with_note(key, by_name[key], pooled[key]) for key in names}
    influences = {key: pooled_influence(by_name[key]) for key in names}
    gaps = []
    for k, gap in enumerate(first.score_gaps):
        of_draws = [draw.score_gaps[k] for draw in draws]
        if len({of.total.value for of in of_draws}) == 1:  # groups are known: shuffles hold for all draws
            gaps.append(gap)
            continue
        sides = (gap.group, gap.reference)
        inputs = [DrawKey("input", *sides, row.feature) for row in gap.features]
        p_values = np.array([estimates[key].p_value for key in inputs])
        correlation = correlation_of([influences[key] for key in inputs])
        rng = np.random.default_rng(random_state)
        is_tested = np.isfinite(p_values) & np.isfinite([row.p_adjusted for row in gap.features])  # not of finances
        adjusted, level = smallest_p_values(p_values, correlation, np.flatnonzero(is_tested), rng)
        parts: dict[str, Any] = {place: estimates[DrawKey(name, *sides)] for name, place in _SCORE_GAPS.items()}
        parts |= _means(of_draws, "n_people", "n_alone")
        features = tuple(_pooled_input(estimates[key], key, p, level) for key, p in zip(inputs, adjusted, strict=True))
        smallest = float(np.nanmin(adjusted, initial=1.0)) if inputs else math.nan
        sizes = {name: parts[name].detectable for name in gap.detectable}
        gaps.append(replace(gap, **parts, features=features, smallest_p=smallest, shuffles=(), detectable=sizes))
    excesses: dict[str, Any] = {place: estimates[DrawKey(name)] for name, place in _EXCESSES.items()}
    by_key = {key.influences: of for key, of in influences.items()}
    return replace(
        first,
        **excesses,
        **_means(draws, "compared_mean", "placebo_mean", "common_support"),
        score_gaps=adjusted_for_pairs(gaps, by_key, random_state),
        influences=Influences.of({key: of for key, of in by_key.items() if of is not None}),
    )


def _pooled_input(pooled: Estimate, key: DrawKey, p_adjusted: float, level: float) -> FeatureGap:
    """The part of an input, with an interval that holds for all inputs at once."""
    half = student_quantile(1 - level, pooled.df) * pooled.standard_error if pooled.standard_error > 0 else 0.0
    estimate = replace(pooled, low=pooled.value - half, high=pooled.value + half)
    found = size_found(pooled.standard_error, pooled.df, level, sides=2) if half else 0.0
    return FeatureGap(key.feature, estimate, float(p_adjusted), found)


def _with_note(key: DrawKey, draws: Sequence[DrawnEstimate], pooled: Pooled) -> Estimate:
    """The pooled estimate as one of an audit, with the note of the draws: why it is not tested in most of them."""
    note = pooled.note
    if not note and math.isnan(pooled.p_value):
        note = mode(draw.estimate.note for draw in draws if math.isnan(draw.estimate.p_value))
    elif not note and (key.metric in _EXCESSES or pooled.standard_error == 0):
        note = draws[0].estimate.note
    return Estimate(**{field.name: getattr(pooled, field.name) for field in fields(Estimate)} | {"note": note})


def _pooled_outcome(outcome: Outcomes, pooled: Mapping[DrawKey, Pooled], expected: Mapping[str, float]) -> Outcomes:
    """Outcomes with pooled approvals and gaps; `expected` is the number of people in each group."""
    gaps = {}
    for name, gap in outcome.gaps.items():
        of = pooled[DrawKey(name)]
        low, high = np.clip([of.low, of.high], 0.0, 1.0).tolist()
        gaps[name] = replace(gap, value=of.value, low=low, high=high, note=of.note or gap.note)
    table = outcome.approvals
    reference_rate = pooled[DrawKey("approval_rate", table.reference)].value
    others = [row.group for row in table.groups if not row.is_reference]
    p_values = holm([pooled[DrawKey("approval_test", group, table.reference)].p_value for group in others])
    adjusted = dict(zip(others, p_values.tolist(), strict=True))

    def approval(row: GroupApproval) -> GroupApproval:
        rate, n_people = pooled[DrawKey("approval_rate", row.group)], expected[row.group]
        row = replace(
            row,
            n_people=n_people,
            n_approved=n_people * rate.value,
            approval_rate=_scaled(rate, float),
            shortfall=max(0.0, n_people * (reference_rate - rate.value)),
        )
        if row.is_reference:
            return row
        sides, p_holm = (row.group, table.reference), adjusted[row.group]
        test = pooled[DrawKey("approval_test", *sides)]
        compared: dict[str, Any] = {
            place: _scaled(pooled[DrawKey(name, *sides)], back) for name, (place, _, back) in _APPROVALS.items()
        }
        ratio = compared["approval_ratio_group_over_reference"]
        return replace(
            row,
            **compared,
            p_value=test.p_value,
            p_value_holm=p_holm,
            test="z of drawn groups",
            n_standard_deviations=test.value / test.standard_error if test.standard_error > 0 else math.nan,
            is_statistically_significant=None if math.isnan(p_holm) else p_holm < table.significance_level,
            is_below_practical_threshold=ratio.value < table.four_fifths_threshold if ratio.is_estimated else None,
            note=test.note,
        )

    approvals = replace(
        table, is_probabilistic=True, groups=tuple(approval(row) for row in table.groups), note=_DRAWN_NOTE
    )
    return replace(
        outcome,
        metrics={
            **outcome.metrics,
            **{name: Estimate(gaps[name].value, note=gaps[name].note) for name in ("eo_gap", "sp_gap")},
        },
        gaps=with_one_interval(gaps, approvals),
        approvals=approvals,
    )


def _drawn_groups(
    batch: BatchFindings, pooled: Mapping[DrawKey, Pooled], thresholded: Estimates, against: str
) -> dict[str, Any]:
    """Pooled metrics next to thresholding and weighting, as plain data.

    Parameters
    ----------
    batch
        Results for the people, in any draw.
    pooled
        Estimates pooled over draws.
    thresholded
        Estimates from those who are likely enough to belong to a group; empty if they are too few.
    against
        The group that the others are compared with.
    """
    probable = batch.people.probabilities
    assert probable is not None
    put = probable.thresholded
    others = _other_uses(batch, against)
    records = []
    for key, estimate in pooled.items():
        if key.metric in _NOT_SHOWN:
            continue
        record = {**key._asdict(), **estimate.to_dict()}
        is_ratio = key.metric == "approval_ratio"
        if is_ratio:  # their spread remains that of the logarithm
            record |= {name: math.exp(record[name]) for name in ("value", "low", "high", "rubin_low", "rubin_high")}
        if key.metric in ("approval_difference", "approval_ratio"):
            record["p_value"] = pooled[key._replace(metric="approval_test")].p_value
        record |= dict.fromkeys(("thresholding", "weighting", "group_alone"), math.nan)
        if key in others:
            record |= others[key]
        elif key in thresholded:
            record["thresholding"] = thresholded[key].estimate.value
        records.append({**record, "is_ratio": is_ratio})
    certainty, n_left_out = float(probable.values.max(axis=1).mean()), int((put < 0).sum())
    assigned = np.bincount(put[put >= 0], minlength=len(probable.names))
    return {
        "n_draws": probable.n_draws,
        "threshold": probable.threshold,
        "expected": dict(zip(probable.names, probable.values.sum(axis=0).tolist(), strict=True)),
        "thresholded": dict(zip(probable.names, assigned.tolist(), strict=True)),
        "n_left_out": n_left_out,
        "certainty": certainty,
        "metrics": records,
        "sentences": [
            f"The most likely group has a probability of {percent(certainty)} on average. Thresholding at "
            f"{probable.threshold:g} leaves out {count(n_left_out)} people.",
            *(words for record in records if record["metric"] == "approval_difference" for words in _on_bias(record)),
            "Pooling and weighting are right if outcomes depend on the group only through what the probabilities "
            "were made from, such as surname and address. The data cannot show this: no one's group is known. If, "
            "among people with the same probabilities, the group that fares worse overall also fares worse, both "
            "understate the difference; if it fares better, they overstate it. The column for the group alone is right "
            "in the opposite case, in which outcomes depend on the group but not on surname or address beyond it.",
        ],
    }


def _other_uses(batch: BatchFindings, against: str) -> dict[DrawKey, dict[str, float]]:
    """Thresholding, weighting and the group alone, for every difference and ratio of means."""
    probable = batch.people.probabilities
    assert probable is not None
    base = probable.names.index(against)
    uses: dict[DrawKey, dict[str, float]] = {}
    for name, (values, subset) in _compared_means(batch).items():
        means = group_means(values[subset], probable.values[subset], probable.thresholded[subset])
        for code, group in enumerate(probable.names):
            sides = (group, against)
            uses[DrawKey(name, *sides)] = {use: float(mean[code] - mean[base]) for use, mean in means.items()}
            if name == "approval_difference":
                uses[DrawKey("approval_ratio", *sides)] = {
                    use: float(mean[code] / mean[base]) if mean[base] > 0 else math.nan for use, mean in means.items()
                }
    return uses


def _on_bias(record: Mapping[str, Any]) -> Iterator[str]:
    """Sentences on the possible error of each estimator of a difference in approvals."""
    value, thresholding, alone = record["value"], record["thresholding"], record["group_alone"]
    sides = f"{record['group']} minus {record['reference']}"
    if is_number(thresholding) and is_number(value):
        verb = "overstates" if abs(thresholding) > abs(value) else "understates"
        if thresholding * value < 0:
            verb = "reverses"
        yield (
            f"Favorable decisions, {sides}: pooled {_points(value)}, by thresholding {_points(thresholding)}, "
            f"by weighting {_points(record['weighting'])} points. If pooling is right, thresholding {verb} the "
            "difference."
        )
    if is_number(alone) and is_number(value):
        yield (
            f"If decisions depended on the group alone, the difference of {sides} would be {_points(alone)} points: "
            f"pooling would be off by {_points(value - alone)}."
        )


def _points(share: float) -> str:
    return decimal(100 * share, 1)
