"""Evidence that CEC scores are more than match noise: the excess over placebo pairs, its sources, and for whom.

Triples between every two groups, located once.

With G groups there are G (G - 1) / 2 questions about two of them. If each question went through all triples, the time
would grow with the cube of G. If each goes through the triples between its two groups, all take as long as one does.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from evenhand.arrays import Floats, Ints, gpu_of, quantiles_of_parts
from evenhand.auditing.batches import FinishedBatches, Merged
from evenhand.auditing.fitted import Fitted
from evenhand.auditing.identity import person_buckets
from evenhand.auditing.reasons import fewer_in_common
from evenhand.auditing.scope import DECISION_UNIT, Scope
from evenhand.auditing.triples import EvidenceSums
from evenhand.exceptions import DataFileError
from evenhand.inputs.validation import Groups
from evenhand.matching.neighbors import TIE_TOLERANCE
from evenhand.matching.placebos import N_NEAR
from evenhand.metrics import score_gap as gaps
from evenhand.metrics.adjustment import NullScores, correlation_of, holm, stepwise_p_values
from evenhand.metrics.estimate import Estimate, not_estimable, p_two_sided
from evenhand.metrics.excess import estimate_excesses, excess_influence
from evenhand.metrics.triples import (
    Design,
    KeptTriples,
    Nearest,
    Parts,
    Present,
    Question,
    RegimeB,
    Weights,
    WithinDistance,
    folded,
    main_questions,
    split_questions,
    values_present,
)
from evenhand.system.threads import ONE_THREAD, Crew, sum_in_order


@dataclass(frozen=True, eq=False)
class ByGroups:
    """Triples in memory, sorted by the two groups they are between; triples not in memory are passed on unchanged.

    Attributes
    ----------
    triples
        All triples.
    n_groups
        Number of groups.
    order, code
        The triples in the order of their two groups, and a code of the groups; None if all triples are passed on.
    """

    triples: Parts
    n_groups: int
    order: Ints | None = None
    code: Ints | None = None

    @classmethod
    def of(cls, triples: Parts, n_groups: int) -> ByGroups:
        """Locate the triples; with two groups, all triples are between them."""
        if n_groups <= 2 or not isinstance(triples, KeptTriples):
            return cls(triples, n_groups)
        group, other = triples.part.group, triples.part.other_group
        code = np.minimum(group, other) * n_groups + np.maximum(group, other)
        order = np.argsort(code, kind="stable")
        return cls(triples, n_groups, order, code[order])

    def between(self, first: int, second: int) -> Parts:
        """Triples that include all those between two groups; if they are in memory, only those."""
        if self.order is None or self.code is None or not isinstance(self.triples, KeptTriples):
            return self.triples
        code = min(first, second) * self.n_groups + max(first, second)
        start, stop = np.searchsorted(self.code, [code, code + 1])
        return replace(self.triples, part=self.triples.part.rows(self.order[start:stop]))


def excesses_by_groups(
    questions: Sequence[Question],
    triples: Parts,
    n_groups: int,
    crew: Crew,
    device: str | None,
) -> list[tuple[Estimate, ...]]:
    """As `estimate_excesses`, but a question with `sides` only uses the triples between these two groups."""
    by_groups = ByGroups.of(triples, n_groups)
    if by_groups.order is None:
        return estimate_excesses(questions, triples, crew, device)
    places: dict[tuple[int, int] | None, list[int]] = {}
    for place, question in enumerate(questions):
        places.setdefault(getattr(question, "sides", None), []).append(place)
    found: dict[int, tuple[Estimate, ...]] = {}
    for sides, asked in places.items():
        some = triples if sides is None else by_groups.between(*sides)
        answers = estimate_excesses([questions[place] for place in asked], some, crew, device)
        found |= dict(zip(asked, answers, strict=True))
    return [found[place] for place in range(len(questions))]


_MOST_VALUES = 1 << 16  # for all columns together: 175 KB of text
_FEWEST_BUCKETS = 64
_EDITED = "The influences on {} were cut or edited: write the audit again with to_json."


def gap_key(group: str, reference: str, unit: str = "") -> str:
    """Name of a score gap between two groups; `unit` is empty for the unit of the explanations.

    Examples
    --------
    >>> gap_key("b", "a"), gap_key("b", "a", "decision")
    ('score_gap: b minus a', 'score_gap_decision: b minus a')
    """
    return f"score_gap{'_' if unit else ''}{unit}: {group} minus {reference}"


def input_key(feature: str, group: str, reference: str) -> str:
    """Name of an input's part of the score gap between two groups."""
    return f"input: {feature}: {group} minus {reference}"


@dataclass(frozen=True, eq=False)
class Influences:
    """Influences on the estimates of an audit, by name; each is a sum over the people of a bucket, up to a factor."""

    columns: Mapping[str, NDArray[np.float16]]

    @classmethod
    def of(cls, columns: Mapping[str, NDArray[np.floating]]) -> Influences:
        """Influences in half precision, in fewer buckets where there are many estimates.

        Examples
        --------
        >>> Influences.of({"excess": np.array([0.5, -2.0, 1.5])}).columns["excess"]
        array([ 0.25, -1.  ,  0.75], dtype=float16)
        """
        n_buckets = max((len(values) for values in columns.values()), default=0)
        while n_buckets * len(columns) > _MOST_VALUES and n_buckets > _FEWEST_BUCKETS:
            n_buckets //= 2
        return cls({name: _scaled(folded(values, n_buckets)) for name, values in columns.items()})

    def on(self, name: str | None, sign: float = 1.0) -> NDArray[np.float64] | None:
        """Influences on an estimate, or on its negative; None if they are not kept."""
        column = None if name is None else self.columns.get(name)
        return None if column is None else sign * column.astype(np.float64)

    def to_dict(self) -> dict[str, str]:
        """Each column as text: base64 of little-endian half-precision numbers."""
        return {name: base64.b64encode(v.astype("<f2").tobytes()).decode() for name, v in self.columns.items()}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Influences:
        """Read what `to_dict` returned.

        Examples
        --------
        >>> found = Influences.of({"excess": np.array([0.5, -2.0, 1.5])})
        >>> Influences.from_dict(found.to_dict()).columns["excess"].tolist()
        [0.25, -1.0, 0.75]

        Raises
        ------
        DataFileError
            If a text is not what `to_dict` writes.
        """
        columns = {name: _decoded(name, text) for name, text in plain.items()}
        shapes = [values.shape for values in columns.values()]
        for name, values in columns.items():
            if values.shape != max(shapes, key=shapes.count) or not np.isfinite(values).all():
                raise DataFileError(_EDITED.format(name))
        return cls(columns)


def _decoded(name: str, text: str) -> NDArray[np.float16]:
    try:
        return np.frombuffer(base64.b64decode(text, validate=True), dtype="<f2")
    except ValueError as error:
        raise DataFileError(_EDITED.format(name)) from error


def _scaled(values: NDArray[np.float64]) -> NDArray[np.float16]:
    largest = np.abs(values).max(initial=0.0)
    return (values / largest if largest > 0 else values).astype(np.float16)


# Placebo scores among which a person's score is ranked: all of them, until they no longer fit.
_MOST_NULL, _LEAST_NULL = 2_000_000, 10_000


def write_q_values(batches: FinishedBatches, numbers: Sequence[int], n_groups: int) -> None:
    """Rank every pair's excess among the placebo pairs of all batches, and add q-values to the pair tables."""
    most = max(_LEAST_NULL, _MOST_NULL // (2 * n_groups * (n_groups - 1)))

    def nulls_of(number: int) -> NullScores:
        part = batches.nulls(number)
        return NullScores.of(part.placebo_over_gap, part.stratum, part.person, 2 * n_groups * n_groups, most)

    pooled = sum_in_order(nulls_of, numbers, batches.crew)
    assert pooled is not None

    def n_at_least(number: int) -> tuple[Ints, Ints]:
        part = batches.nulls(number)
        return pooled.n_at_least(part.over_gap, part.stratum), part.stratum

    counts = sum_in_order(lambda number: np.concatenate(pooled.counts(*n_at_least(number))), numbers, batches.crew)
    assert counts is not None
    table = pooled.q_values(tuple(np.split(counts, np.cumsum(pooled.sizes + 1)[:-1])))

    def write(number: int) -> None:
        batches.write_q_values(number, _looked_up(table, *n_at_least(number)))

    for _ in batches.crew.in_order(write, numbers):
        pass


def _looked_up(table: Sequence[Floats], n_at_least: Ints, stratum: Ints) -> Floats:
    """Look up the q-values of scores in the table of `NullScores.q_values`; NaN if the number is -1."""
    found = np.full(len(n_at_least), np.nan)
    for code, values in enumerate(table):
        asked = (stratum == code) & (n_at_least >= 0)
        found[asked] = values[n_at_least[asked]]
    return found


_UNITS = ("log-odds", "probability")


@dataclass(frozen=True)
class FeatureGap:
    """The part of a gap that runs through one input; over all inputs, the parts sum to the gap.

    Attributes
    ----------
    estimate
        Its interval holds for all inputs at once.
    p_adjusted
        Adjusted for the number of inputs and their correlation; NaN for finances.
    detectable
        The smallest part that the test finds in 80% of cases.

    Finances are equal here: their part comes from how they interact with other inputs, and is not tested.
    """

    feature: str
    estimate: Estimate
    p_adjusted: float
    detectable: float


@dataclass(frozen=True)
class ScoreGap:
    """Difference in score between comparable people of two groups at equal finances, group minus reference.

    Attributes
    ----------
    unit
        Unit of `total` and of the features: ``"log-odds"`` or ``"probability"``, the scale of the explanations, or the
        unit of a value.
    total, probability, decision
        The gap in that unit, in probability, and in the share of favorable decisions. Scores and probabilities are
        those of the favorable outcome; a value is in its unit as given, whichever end is good.
    features
        The part of each input, in the order of the table's columns.
    smallest_p
        The smallest adjusted p-value of an input.
    p_adjusted
        The p-value of `total`, adjusted for the number of pairs of groups and what they have in common.
    n_people, n_alone
        People in leaves with both groups, and in leaves with one of the two, who say nothing about a gap.
    shuffles
        How the gap, and the part of the clearest input, are distributed if group labels are reshuffled.
    detectable
        The smallest gap of each of the three that its test finds in 80% of cases.
    """

    group: str
    reference: str
    unit: str
    total: Estimate
    probability: Estimate
    decision: Estimate
    features: tuple[FeatureGap, ...]
    smallest_p: float
    p_adjusted: float
    n_people: int
    n_alone: int
    shuffles: tuple[Mapping[str, Any], ...]
    detectable: Mapping[str, float]

    @property
    def metrics(self) -> dict[str, Any]:
        """The gap in log-odds, in probability and in decisions, or in the unit of a value, as plain data."""
        gaps = self._gaps()
        total = gaps["total"]
        words = f"explained in {self.unit}"
        in_log_odds = total if self.unit == "log-odds" else {**dict.fromkeys(total), "note": words}
        return {
            "group": self.group,
            "reference": self.reference,
            "logit": in_log_odds,
            "probability": gaps["probability"],
            "decision": gaps["decision"],
            **({} if self.unit in _UNITS else {"value": total}),
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; the largest features first."""
        features = sorted(self.features, key=lambda f: -abs(np.nan_to_num(f.estimate.value)))
        shown = [
            {"feature": f.feature, **f.estimate.to_dict(), "detectable": f.detectable, "p_adjusted": f.p_adjusted}
            for f in features
        ]
        plain = {name: value for name, value in vars(self).items() if name != "detectable"}
        return {**plain, **self._gaps(), "features": shown, "shuffles": [dict(one) for one in self.shuffles]}

    def _gaps(self) -> dict[str, dict[str, Any]]:
        return {name: {**getattr(self, name).to_dict(), "detectable": size} for name, size in self.detectable.items()}


@dataclass(frozen=True)
class SegmentGap:
    """A score gap among people with one value of a column; `p_adjusted` is Holm's over all rows of the column."""

    column: str
    value: str
    gap: ScoreGap
    p_adjusted: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"column": self.column, "value": self.value, **self.gap.to_dict(), "p_adjusted": self.p_adjusted}


def estimate_score_gaps(
    reference: Fitted,
    parts: gaps.Parts,
    features: Sequence[str],
    reference_group: str,
    crew: Crew = ONE_THREAD,
) -> tuple[tuple[ScoreGap, ...], dict[str, NDArray[np.float64]]]:
    """Score gaps of every two groups, and people's influences on them by name.

    If the reference group is one of the two, it is the second. If the user chose it, it always is. If groups cross
    several attributes, there are also the gaps between the values of each attribute, and p-values are adjusted for all.

    Parameters
    ----------
    reference
        What was fitted once.
    parts
        The people in their leaves.
    features
        Names of the inputs.
    reference_group
        The group that the others are compared with first.
    crew
        Who works on parts at the same time.
    """
    assert reference.evidence is not None
    is_turned = reference.settings.unit is not None and reference.settings.favorable == "low"
    crossed = reference.pool.groups
    found: list[ScoreGap] = []
    influences: dict[str, NDArray[np.float64]] = {}
    for values in (Groups(np.arange(len(crossed.names)), crossed.names), *reference.pool.attributes.values()):
        names, first = values.names, int(values.codes[crossed.names.index(reference_group)])
        order = [first, *(code for code in range(len(names)) if code != first)]
        others = order if reference.settings.reference_group is None else order[:1]
        sides = [(group, other) for place, other in enumerate(others) for group in order[place + 1 :]]
        estimated = gaps.group_gaps(
            partial(_with_groups, parts, values.codes, len(features) + 1 if is_turned else 0),
            reference.evidence.controls,
            sides,
            len(names),
            ~np.isin(features, reference.settings.financial_features),
            is_given=reference.pool.identity.is_given,
            random_state=reference.settings.random_state,
            crew=crew,
        )
        for gap, two in zip(estimated, sides, strict=True):
            group, other = (names[code] for code in two)
            found.append(_between(reference, gap, features, group, other))
            if len(gap.influence):
                influences |= dict(zip(_keys(features, group, other), gap.influence.T, strict=True))
    return adjusted_for_pairs(found, influences, reference.settings.random_state), influences


def adjusted_for_pairs(
    found: Sequence[ScoreGap], influences: Mapping[str, Floats | None], random_state: int
) -> tuple[ScoreGap, ...]:
    """The gaps with p-values adjusted for the number of pairs of groups, which have people in common."""
    p_values = np.array([gap.total.p_value for gap in found])
    unit = "decision" if found[0].unit == DECISION_UNIT else ""
    correlation = correlation_of([influences.get(gap_key(gap.group, gap.reference, unit)) for gap in found])
    adjusted = stepwise_p_values(p_values, correlation, np.random.default_rng(random_state))
    return tuple(replace(gap, p_adjusted=float(p)) for gap, p in zip(found, adjusted, strict=True))


def _with_groups(parts: gaps.Parts, codes: Ints, n_turned: int) -> Iterable[gaps.LeafPeople]:
    """The people with codes in place of their groups, and some columns turned.

    Values of which low ones are good are scored with the opposite sign, and turned back to the unit as given.
    """
    for part in parts():
        sign = np.where(np.arange(part.values.shape[1]) < n_turned, -1, 1).astype(np.float32)
        yield replace(part, group=codes[part.group], values=part.values * sign if n_turned else part.values)


def _keys(features: Sequence[str], group: str, reference: str) -> list[str]:
    """Names of the columns of a gap, in order."""
    return [
        *(input_key(feature, group, reference) for feature in features),
        *(gap_key(group, reference, unit) for unit in ("", "probability", "decision")),
    ]


def _between(
    reference: Fitted, estimated: gaps.GroupGap, features: Sequence[str], group: str, reference_group: str
) -> ScoreGap:
    n, scope = len(features), reference.scope
    columns, is_decision = estimated.columns, scope.outcome == "decision"
    rows = zip(features, columns[:n], estimated.p_adjusted.tolist(), estimated.detectable.tolist()[:n], strict=True)
    total, is_tested = n + 2 if is_decision else n, scope.attributions and estimated.n_people > 0
    shown = {k: None if k >= n else features[k] for k in estimated.shuffles if k >= n or scope.attributions}
    sizes = estimated.detectable.tolist()
    return ScoreGap(
        group=group,
        reference=reference_group,
        unit=DECISION_UNIT if is_decision else reference.settings.unit or reference.model.output,
        total=columns[total],
        probability=columns[n + 1] if scope.outcome == "score" else not_estimable("the outcome is not a probability"),
        decision=columns[n + 2] if scope.decisions else not_estimable("there are no decisions"),
        features=tuple(FeatureGap(*row) for row in rows) if scope.attributions else (),
        smallest_p=float(np.nanmin(estimated.p_adjusted, initial=1.0)) if is_tested else math.nan,
        p_adjusted=math.nan,
        n_people=estimated.n_people,
        n_alone=estimated.n_alone,
        shuffles=tuple({"feature": feature, **asdict(estimated.shuffles[k])} for k, feature in shown.items()),
        detectable={
            "total": sizes[total],
            "probability": sizes[n + 1] if scope.outcome == "score" else math.nan,
            "decision": sizes[n + 2] if scope.decisions else math.nan,
        },
    )


def segment_gaps(
    reference: Fitted,
    parts: gaps.Parts,
    features: Sequence[str],
    reference_group: str,
    by: Mapping[str, Sequence[str]],
    crew: Crew = ONE_THREAD,
) -> tuple[SegmentGap, ...]:
    """Score gaps with the reference group within each value of the columns to split by."""
    first = reference.pool.groups.names.index(reference_group)
    against = {reference_group, *(each.names[each.codes[first]] for each in reference.pool.attributes.values())}
    found: list[SegmentGap] = []
    for column, values in by.items():
        rows: list[tuple[str, ScoreGap]] = []
        for code, value in enumerate(values):

            def within(column: str = column, code: int = code) -> Iterable[gaps.LeafPeople]:
                return (part.rows(part.by[column] == code) for part in parts())

            inside, _ = estimate_score_gaps(reference, within, features, reference_group, crew)
            rows += [(value, gap) for gap in inside if gap.reference in against]
        adjusted = holm([gap.total.p_value for _, gap in rows]).tolist()
        found += [SegmentGap(column, value, gap, p) for (value, gap), p in zip(rows, adjusted, strict=True)]
    return tuple(found)


_LEVEL, _QUESTIONS = 0.05, 4
_THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5)


@dataclass(frozen=True)
class SplitExcess:
    """Excess within one value of a column.

    Attributes
    ----------
    split, value
        The column (group, label, decision, groups compared, or one the user gave) and its value.
    p_adjusted
        Holm's adjustment over the values of the split.
    """

    split: str
    value: str
    estimate: Estimate
    p_adjusted: float


@dataclass(frozen=True)
class FeatureEvidence:
    """A feature's contribution to the excess; over all features they sum to the excess."""

    feature: str
    estimate: Estimate


@dataclass(frozen=True)
class WeightDifference:
    """How differently the model weighs a feature in comparable people of two groups.

    Attributes
    ----------
    estimate
        Weight in `group` minus weight in `other_group`, over the same difference among placebo pairs. A weight is the
        change of the logit for one standard deviation of the feature, along the person's path; for a feature of
        several encoded columns it has no sign and is their root mean square. A feature that the model takes as a
        category has no standard deviation, and no weight. Its p-value is two-sided: a weight may differ either way.
    """

    feature: str
    group: str
    other_group: str
    estimate: Estimate

    @classmethod
    def of(cls, feature: str, group: str, other_group: str, found: Estimate) -> WeightDifference:
        """The difference with a two-sided p-value, from an estimate with a one-sided one."""
        p_value = p_two_sided(found.value, found.standard_error, found.df)
        return cls(feature, group, other_group, replace(found, p_value=p_value))


@dataclass(frozen=True, eq=False)
class Evidence:
    """The evidence of an audit.

    Attributes
    ----------
    cec, balanced, input_gap, reasoning_gap, regime_b, reason_overlap, rank_overlap
        Excess over placebo pairs of each metric. `regime_b` is for the share in Regime B, `reason_overlap` for the
        share of principal reasons that two declined people have in common, `rank_overlap` for their rank-biased
        overlap. In these two, negative means less in common, and the p-value is for having as much in common as placebo
        pairs.
    agreement
        Mean overlap of the reasons of declined people; see `EvidenceSums`.
    compared_mean, placebo_mean
        Mean CEC score of compared people's pairs and placebo pairs, with equal weights for people. The excess is their
        difference, adjusted for differences in finances.
    splits
        The excess overall by group, label, decision, groups compared and user columns.
    features, weights
        Each feature's contribution to the excess; weights that differ by group.
    common_support, without_support
        Share of (person, other group) with a triple, and why the rest have none.
    by_distance, by_matches, regime_b_by_threshold
        The excess with triples within growing distances, and with the nearest 1, 2, ... triples of each person;
        the excess share in Regime B at different consistency thresholds.
    score_gaps
        Differences in score between comparable people of two groups at equal finances, for every two groups.
    segment_gaps
        The same among people with one value of a column to split by.
    influences
        Of people on the answers to the four questions, for comparison with a different audit of the same people.
    """

    cec: Estimate
    balanced: Estimate
    input_gap: Estimate
    reasoning_gap: Estimate
    regime_b: Estimate
    reason_overlap: Estimate
    rank_overlap: Estimate
    compared_mean: float
    placebo_mean: float
    agreement: Floats
    splits: tuple[SplitExcess, ...]
    features: tuple[FeatureEvidence, ...]
    weights: tuple[WeightDifference, ...]
    common_support: float
    without_support: dict[str, int]
    n_triples: int
    by_distance: tuple[tuple[float, Estimate], ...]
    by_matches: tuple[tuple[int, Estimate], ...]
    regime_b_by_threshold: tuple[tuple[float, Estimate], ...]
    score_gaps: tuple[ScoreGap, ...] = ()
    segment_gaps: tuple[SegmentGap, ...] = ()
    influences: Influences | None = None

    @property
    def largest_score_gap(self) -> ScoreGap:
        """The largest score gap that is clear after any adjustment; without one, that with the smallest p-value."""
        clear = [gap for gap in self.score_gaps if gap.p_adjusted <= _LEVEL / _QUESTIONS]
        if clear:
            return max(clear, key=lambda gap: (abs(gap.total.value), gap.group, gap.reference))
        return min(self.score_gaps, key=lambda gap: (np.nan_to_num(gap.p_adjusted, nan=2.0), gap.group, gap.reference))

    @property
    def worst_pair(self) -> SplitExcess | None:
        """With more than two groups, the pair with the smallest adjusted p-value; None if there is no estimate.

        Its interval allows for the number of pairs that it was chosen from (Bonferroni).
        """
        known = [s for s in self.splits if s.split == "groups compared" and s.estimate.is_estimated]
        if not known:
            return None
        worst = min(known, key=lambda s: (s.p_adjusted, s.estimate.p_value))
        found = worst.estimate
        half = float(stats.t.ppf(1 - 0.025 / len(known), found.df)) * found.standard_error
        return replace(worst, estimate=replace(found, low=found.value - half, high=found.value + half))

    @property
    def depends_on(self) -> tuple[str, ...]:
        """Choices of the audit under which the excess differs by more than chance allows (5%, Holm).

        Each variant uses a part of the triples, so its difference from the whole varies less than the variant itself;
        we use the standard error of the variant, which errs on the side of no warning.
        """
        if not self.cec.is_estimated:
            return ()
        variants = [
            *((f"triples within a distance of {d:.2f}", e) for d, e in self.by_distance),
            *((f"the nearest {k} triples of each person", e) for k, e in self.by_matches),
        ]
        known = [(name, e) for name, e in variants if e.is_estimated and e.standard_error > 0]
        p = [2 * float(stats.t.sf(abs(e.value - self.cec.value) / e.standard_error, e.df)) for _, e in known]
        return tuple(name for (name, _), adjusted in zip(known, holm(p), strict=True) if adjusted <= _LEVEL)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        metrics = ("cec", "balanced", "input_gap", "reasoning_gap", "regime_b", "reason_overlap", "rank_overlap")
        return {
            **{name: asdict(getattr(self, name)) for name in metrics},
            "compared_mean": self.compared_mean,
            "placebo_mean": self.placebo_mean,
            "n_triples": self.n_triples,
            "common_support": self.common_support,
            "without_support": self.without_support,
            "splits": [asdict(split) for split in self.splits],
            "worst_pair": None if self.worst_pair is None else asdict(self.worst_pair),
            "features": [asdict(feature) for feature in self.features],
            "weights": [asdict(weight) for weight in self.weights],
            "sensitivity": {
                "max_distance": [{"max_distance": d, **asdict(e)} for d, e in self.by_distance],
                "n_matches": [{"n_matches": k, **asdict(e)} for k, e in self.by_matches],
                "consistency_threshold": [
                    {"consistency_threshold": t, **asdict(e)} for t, e in self.regime_b_by_threshold
                ],
                "depends_on": list(self.depends_on),
            },
        }


def estimate_evidence(
    parts: Parts,
    sums: EvidenceSums,
    design: Design,
    present: Present,
    distance_limits: Sequence[float],
    scope: Scope,
    *,
    crew: Crew = ONE_THREAD,
    device: str | None = None,
    is_whole: bool = True,
    reference_group: str | None = None,
) -> Evidence:
    """The evidence, from triples in one part or many.

    Parameters
    ----------
    parts
        The triples, with the numbers within `distance_limits`.
    sums
        Over all people.
    design, present
        Columns to split by, and the values that occur.
    distance_limits
        Quarters of the distances: see `DISTANCE_SHARES`.
    scope
        What can be found; nothing else is asked.
    crew
        Workers that process parts at the same time.
    device
        Where sums are computed; None for the CPU.
    is_whole
        Whether to include features, splits, weights and sensitivity.
    reference_group
        The group that splits and weights compare the others with; None for every two groups.
    """
    n_groups = len(design.groups)
    between = [(a, b) for a in range(n_groups) for b in range(a + 1, n_groups)] if is_whole else []
    if reference_group is not None:
        between = [two for two in between if reference_group in (design.groups[code] for code in two)]
    lost = scope.not_possible
    weighed = tuple(j for j, feature in enumerate(design.features) if feature not in design.without_weight)
    weighed = () if "weighing" in lost else weighed
    thresholds = _THRESHOLDS if is_whole and "regimes" not in lost else ()
    absent = [*([] if scope.labels else ["label"]), *(["decision"] if "regimes" in lost else [])]
    splits = split_questions(design, between, present) if is_whole else []
    splits = [split for split in splits if split[0] not in absent]
    nearest = range(1, min(max(present.ranks, default=0), N_NEAR) + 1 if is_whole else 1)
    scores, of_features, *others = main_questions(design, present)
    questions: list[Question] = [
        *(scores, *others),
        *([of_features] if is_whole else []),
        *(RegimeB(threshold) for threshold in thresholds),
        *(Weights(a, b, weighed) for a, b in between if weighed),
        *(WithinDistance(k, limit) for k, limit in enumerate(distance_limits)),
        *(Nearest(k) for k in nearest),
        *(question for _, _, question in splits),
    ]
    answers = iter(excesses_by_groups(questions, parts, n_groups, crew, device))
    cec, input_gap, reasoning_gap = next(answers)
    balanced = next(answers)[0]
    reason_overlap, rank_overlap = map(fewer_in_common, next(answers))
    regime_b = next(answers)[0]
    features = next(answers) if is_whole else ()
    if "weighing" in lost:
        input_gap = reasoning_gap = not_estimable(scope.note("weighing"), n=0)
    if "regimes" in lost:
        regime_b = not_estimable(scope.note("regimes"), n=0)
    by_threshold = tuple((t, next(answers)[0]) for t in thresholds)
    weights = tuple(
        WeightDifference.of(design.features[j], design.groups[a], design.groups[b], estimate)
        for a, b in between
        if weighed
        for j, estimate in zip(weighed, next(answers), strict=True)
    )
    by_distance = tuple((float(limit), next(answers)[0]) for limit in distance_limits)
    by_matches = tuple((k, next(answers)[0]) for k in nearest)
    return Evidence(
        cec=cec,
        balanced=balanced,
        input_gap=input_gap,
        reasoning_gap=reasoning_gap,
        regime_b=regime_b,
        reason_overlap=reason_overlap,
        rank_overlap=rank_overlap,
        compared_mean=_ratio(sums.compared_cec, sums.compared),
        placebo_mean=_ratio(sums.placebo_cec, sums.compared),
        agreement=sums.agreement / sums.n_agreement if sums.n_agreement else np.full((2, 2), np.nan),
        splits=_adjusted([(split, value, next(answers)[0]) for split, value, _ in splits]),
        features=tuple(FeatureEvidence(n, e) for n, e in zip(design.features, features, strict=is_whole)),
        weights=weights,
        common_support=_ratio(sums.n_supported, sums.n_asked),
        without_support=dict(sums.without_support),
        n_triples=sums.n_triples,
        by_distance=by_distance,
        by_matches=by_matches,
        regime_b_by_threshold=by_threshold,
    )


DISTANCE_SHARES = (0.25, 0.5, 0.75, 1.0)
"""Shares of the triples, nearest first, for which the excess is reported."""


def gather_evidence(
    reference: Fitted, batches: FinishedBatches, merged: Merged, reference_group: str, *, is_whole: bool = True
) -> Evidence:
    """The evidence of everyone who was compared; score gaps are relative to a reference group.

    Without `is_whole`, there are no features, splits, weights and sensitivity.
    """
    sums, numbers, crew = merged.sums, merged.numbers, batches.crew
    assert sums.evidence is not None
    features = tuple(str(column) for column in reference.pool.table.columns)
    limits: list[float] = []
    if is_whole:
        quarters = quantiles_of_parts(lambda: crew.in_order(batches.distances, numbers), DISTANCE_SHARES)
        limits = [limit * (1 + TIE_TOLERANCE) for limit in quarters if np.isfinite(limit)]
    design = Design(
        features=features,
        groups=reference.pool.groups.names,
        by=sums.by,
        consistency_threshold=reference.settings.consistency_threshold,
        without_weight=tuple(reference.model.category_columns(list(features))),
    )
    triples = batches.triples(merged, limits, len(reference.pool))
    scope, device = reference.scope, gpu_of(reference.pool.x)
    present = values_present(triples, len(design.groups), crew)
    buckets = person_buckets(reference.pool, reference.settings.financial_features)
    in_leaves = partial(batches.leaf_people, merged)
    score_gaps, influences = estimate_score_gaps(reference, in_leaves, features, reference_group, crew)
    by_segment = segment_gaps(reference, in_leaves, features, reference_group, design.by, crew) if is_whole else ()
    if scope.attributions:
        evidence = estimate_evidence(
            triples,
            sums.evidence,
            design,
            present,
            limits,
            scope,
            crew=crew,
            device=device,
            is_whole=is_whole,
            reference_group=reference.settings.reference_group,
        )
        influences = {**excess_influences(triples, design, present, buckets, crew, device), **influences}
    else:
        evidence = _unexplained(sums.evidence, scope)
    unknown = (
        *(() if "weighing" not in scope.not_possible else ("weighing", "excess: input gap")),
        *(() if scope.attributions else ("input: ",)),
        *(() if scope.outcome == "score" else ("score_gap_probability",)),
        *(() if scope.decisions else ("score_gap_decision",)),
    )
    known = {name: values for name, values in influences.items() if not name.startswith(unknown)}
    return replace(evidence, score_gaps=score_gaps, segment_gaps=by_segment, influences=Influences.of(known))


def _unexplained(sums: EvidenceSums, scope: Scope) -> Evidence:
    """The evidence without attributions: whether groups overlap; score gaps are added."""
    nothing, nan = not_estimable(scope.note("excess"), n=0), math.nan
    weighing, regimes = (not_estimable(scope.note(key), n=0) for key in ("weighing", "regimes"))
    return Evidence(
        *(nothing, nothing, weighing, weighing, regimes, nothing, nothing),
        compared_mean=nan,
        placebo_mean=nan,
        agreement=np.full((2, 2), nan),
        splits=(),
        features=(),
        weights=(),
        common_support=_ratio(sums.n_supported, sums.n_asked),
        without_support=dict(sums.without_support),
        n_triples=sums.n_triples,
        by_distance=(),
        by_matches=(),
        regime_b_by_threshold=(),
    )


def excess_influences(
    triples: Parts,
    design: Design,
    present: Present,
    buckets: Ints,
    crew: Crew,
    device: str | None = None,
) -> dict[str, Floats]:
    """Influences of people on the excess and on weighing, by name."""
    scores, _, balanced, reasons, _ = main_questions(design, present)
    *found, of_reasons = excess_influence([scores, balanced, reasons], triples, buckets, device, crew)
    names = ("excess", "excess: input gap", "weighing", "excess_balanced")
    both = np.hstack(found).T
    return {
        **(dict(zip(names, both, strict=True)) if len(both) else {}),
        **dict.fromkeys(("excess: shared reasons",) if of_reasons.size else (), of_reasons[:, :1].ravel()),
    }


def _adjusted(found: list[tuple[str, str, Estimate]]) -> tuple[SplitExcess, ...]:
    """Splits with p-values adjusted over the values of each."""
    rows: list[SplitExcess] = []
    for split in dict.fromkeys(name for name, _, _ in found):
        inside = [(value, estimate) for name, value, estimate in found if name == split]
        adjusted = holm([estimate.p_value for _, estimate in inside])
        rows += [
            SplitExcess(split, value, estimate, float(p)) for (value, estimate), p in zip(inside, adjusted, strict=True)
        ]
    return tuple(rows)


def _ratio(total: float, n: float) -> float:
    return total / n if n else float("nan")
