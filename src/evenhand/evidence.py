"""Whether the CEC scores of an audit are more than match noise: excess over placebo pairs, why, and who."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.attribution import Explanation
from evenhand.explaining import Explainer, People, Seen
from evenhand.inference import (
    ExcessEstimate,
    benjamini_hochberg,
    empirical_p_values,
    excess,
    excess_by,
    excess_columns,
    holm,
    practical_significance,
    statistical_significance,
)
from evenhand.placebo import PlaceboPairs, placebo_pairs
from evenhand.scoring import cec_scores, reason_overlap, score_contributions

__all__ = ["Evidence", "FeatureEvidence", "SplitExcess", "WeightDifference", "gather_evidence"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LEVEL = 0.05
_THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5)
_BLOCK = 16_384  # comparisons scored at once


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
    estimate: ExcessEstimate
    p_adjusted: float


@dataclass(frozen=True)
class FeatureEvidence:
    """A feature's contribution to the excess; over all features they sum to the excess."""

    feature: str
    estimate: ExcessEstimate


@dataclass(frozen=True)
class WeightDifference:
    """How differently the model weighs a feature in comparable people of two groups.

    Attributes
    ----------
    estimate
        Weight in `group` minus weight in `other_group`, over the same difference among placebo pairs. A weight is the
        change of the logit for one standard deviation of the feature, along the person's path; for a feature of
        several encoded columns it has no sign and is their root mean square.
    """

    feature: str
    group: str
    other_group: str
    estimate: ExcessEstimate


@dataclass(frozen=True, eq=False)
class Evidence:
    """The evidence of an audit.

    Attributes
    ----------
    cec, input_gap, reasoning_gap, regime_b, reason_overlap
        Excess over placebo pairs of each figure. `regime_b` is of the share in Regime B, `reason_overlap` of the share
        of the four principal reasons that the two of a pair have in common (negative: less in common).
    compared_mean, placebo_mean
        Mean CEC score of compared people's pairs and placebo pairs; people weigh equally. The excess is their
        difference, adjusted for what neighbours' unlike finances explain.
    splits
        The excess overall by group, label, decision, groups compared and user columns.
    features, weights
        Each feature's contribution to the excess; weights that differ by group.
    common_support, without_support
        Share of (person, other group) with a comparison, and why others have none.
    placebo_cec, q_value
        For each (person, other group): mean CEC of the placebo pairs, and the false-discovery rate at which the
        person's own excess would be called; NaN without comparison. Of shape (n_people, n_groups).
    by_distance, by_matches, regime_b_by_threshold
        The excess with comparisons within growing distances, and with the nearest 1, 2, ... comparisons of each person;
        the excess share in Regime B at other consistency thresholds.
    """

    cec: ExcessEstimate
    input_gap: ExcessEstimate
    reasoning_gap: ExcessEstimate
    regime_b: ExcessEstimate
    reason_overlap: ExcessEstimate
    compared_mean: float
    placebo_mean: float
    placebo_overlap: float
    splits: tuple[SplitExcess, ...]
    features: tuple[FeatureEvidence, ...]
    weights: tuple[WeightDifference, ...]
    common_support: float
    without_support: dict[str, int]
    n_comparisons: int
    placebo_cec: Floats
    q_value: Floats
    by_distance: tuple[tuple[float, ExcessEstimate], ...]
    by_matches: tuple[tuple[int, ExcessEstimate], ...]
    regime_b_by_threshold: tuple[tuple[float, ExcessEstimate], ...]

    @property
    def worst_pair(self) -> SplitExcess | None:
        """Of more than two groups, the pair with the largest excess; None if none could be estimated."""
        known = [s for s in self.splits if s.split == "groups compared" and s.estimate.is_estimated]
        return max(known, key=lambda s: s.estimate.value, default=None)

    @property
    def hangs_on(self) -> tuple[str, ...]:
        """Choices of the audit under which the verdict on the excess, at the 5 % level, would be another."""
        if not self.cec.is_estimated:
            return ()
        variants = [
            *((f"comparisons within a distance of {d:.2f}", e) for d, e in self.by_distance),
            *((f"the nearest {k} comparisons of each person", e) for k, e in self.by_matches),
        ]
        verdict = self.cec.p_value <= _LEVEL
        return tuple(name for name, e in variants if e.is_estimated and (e.p_value <= _LEVEL) != verdict)

    @property
    def sentences(self) -> tuple[str, str]:
        """Statistical and practical significance, in words."""
        return statistical_significance(self.cec), practical_significance(self.cec)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, without the values of each person."""
        figures = ("cec", "input_gap", "reasoning_gap", "regime_b", "reason_overlap")
        return {
            **{name: asdict(getattr(self, name)) for name in figures},
            "compared_mean": self.compared_mean,
            "placebo_mean": self.placebo_mean,
            "placebo_reason_overlap": self.placebo_overlap,
            "n_comparisons": self.n_comparisons,
            "common_support": self.common_support,
            "without_support": self.without_support,
            "sentences": list(self.sentences),
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
                "hangs_on": list(self.hangs_on),
            },
        }


@dataclass(frozen=True, eq=False)
class _Comparisons:
    """Figures of every comparison: pair, placebo pair, and what unlike finances alone would give.

    The columns of `pair` and `placebo` are cec, input gap, reasoning gap and shared reasons.
    """

    pair: Floats
    placebo: Floats
    gap: Floats
    placebo_gap: Floats
    is_same_decision: NDArray[np.bool_]
    is_same_placebo_decision: NDArray[np.bool_]
    contributions: NDArray[np.float32]
    weights: NDArray[np.float32]

    @property
    def control(self) -> Floats:
        return self.gap - self.placebo_gap


def gather_evidence(
    explainer: Explainer,
    own: Explanation,
    people: People,
    pool: People,
    points: Floats,
    pool_points: Floats,
    is_financial: NDArray[np.bool_],
    *,
    decision_threshold: float,
    consistency_threshold: float,
    max_distance: float | None,
    random_state: int,
    by: Mapping[str, NDArray[np.str_]] | None = None,
) -> Evidence:
    """Evidence of an audit.

    Parameters
    ----------
    explainer, own
        Where attributions come from, and those of the audited people.
    people, pool
        The audited people and those they are compared with; the same object for the same people.
    points, pool_points
        Their standardised financial features.
    is_financial
        Which encoded inputs belong to financial features, of shape (d,).
    decision_threshold, consistency_threshold, max_distance, random_state
        As in `evenhand.audit`.
    by
        Further columns of the audited people within whose values the excess is wanted.
    """
    is_same = pool is people
    reference = None if is_same else (pool_points, pool.labels, pool.groups.codes)
    pairs = placebo_pairs(
        points, people.labels, people.groups.codes, reference, max_distance=max_distance, random_state=random_state
    )
    pairs = _with_baseline(pairs, explainer, people)
    found = _scored(explainer, own, people, pool, pairs, torch.as_tensor(is_financial), decision_threshold)
    nodes, control = pairs.nodes, found.control
    cec, input_gap, reasoning_gap, overlap = excess_columns(found.pair, found.placebo, nodes, control=control)
    parts = excess_columns(found.contributions, np.zeros_like(found.contributions), nodes, control=control)
    decision = _decisions(explainer.model.probability(own.logit), decision_threshold)
    placebo_cec = pairs.person_mean(found.placebo[:, 0])
    return Evidence(
        cec=cec,
        input_gap=input_gap,
        reasoning_gap=reasoning_gap,
        regime_b=_regime_b(found, nodes, consistency_threshold),
        reason_overlap=overlap,
        compared_mean=_mean(pairs.person_mean(found.pair[:, 0])),
        placebo_mean=_mean(placebo_cec),
        placebo_overlap=_mean(pairs.person_mean(found.placebo[:, 3])),
        splits=_splits(people, pairs, found, decision, by or {}),
        features=tuple(FeatureEvidence(str(n), e) for n, e in zip(people.table.columns, parts, strict=True)),
        weights=_weight_differences(people, pairs, found),
        common_support=pairs.common_support,
        without_support=pairs.without_support,
        n_comparisons=len(pairs),
        placebo_cec=placebo_cec,
        q_value=_q_values(people, pairs, found),
        by_distance=_by_distance(pairs, found),
        by_matches=_by_matches(pairs, found),
        regime_b_by_threshold=tuple((t, _regime_b(found, nodes, t)) for t in _THRESHOLDS),
    )


def _with_baseline(pairs: PlaceboPairs, explainer: Explainer, people: People) -> PlaceboPairs:
    """The comparisons of people whose cell has someone besides the placebo to take a mean of."""
    kept = explainer.cell_sizes[people.cells][pairs.person] > 1
    if kept.all():
        return pairs
    names = ("person", "other", "own", "other_distance", "own_distance", "other_group")
    return replace(pairs, **{name: getattr(pairs, name)[kept] for name in names})


def _scored(
    explainer: Explainer,
    own: Explanation,
    people: People,
    pool: People,
    pairs: PlaceboPairs,
    is_financial: Tensor,
    decision_threshold: float,
) -> _Comparisons:
    """Score every comparison's pair and placebo pair, block by block."""
    n, n_features, device = len(pairs), len(people.table.columns), people.x.device
    cells = people.cells[pairs.person]
    other = explainer.see(pool, pairs.other, cells)
    # Among the same people a placebo is explained from their own cell already.
    placebo = (
        Seen(own, torch.as_tensor(pairs.own, device=device))
        if pool is people
        else explainer.see(pool, pairs.own, cells)
    )
    person, rows = torch.as_tensor(pairs.person, device=device), torch.as_tensor(pairs.other, device=device)
    placebo_rows, cell = torch.as_tensor(pairs.own, device=device), torch.as_tensor(cells, device=device)
    sizes = torch.as_tensor(explainer.cell_sizes[cells], device=device)
    join = explainer.model.join_matrix()
    join = None if join is None else join.double()
    is_financial = is_financial.to(device)
    deviation = _deviation(pool.x)
    probability = explainer.model.probability
    decided = _decisions(probability(own.logit), decision_threshold)[pairs.person]
    result = _Comparisons(
        pair=np.empty((n, 4)),
        placebo=np.empty((n, 4)),
        gap=np.empty(n),
        placebo_gap=np.empty(n),
        is_same_decision=decided == _decisions(probability(other.logit), decision_threshold),
        is_same_placebo_decision=decided == _decisions(probability(placebo.logit), decision_threshold),
        contributions=np.empty((n, n_features), dtype=np.float32),
        weights=np.empty((n, n_features), dtype=np.float32),
    )
    for start in range(0, n, _BLOCK):
        block = slice(start, start + _BLOCK)
        me, them, like_me = own.rows(person[block]), other[block], placebo[block]
        x, baseline = people.x[person[block]], explainer.baselines[cell[block]]
        with_theirs, with_placebos = (
            explainer.model.attribute(
                torch.where(is_financial, counterpart, x), baseline, explainer.n_steps, explainer.method
            ).rows(torch.arange(len(x), device=device))
            for counterpart in (pool.x[rows[block]], pool.x[placebo_rows[block]])
        )
        apart = [each.leaving_out(like_me, sizes[block]) for each in (me, like_me, with_placebos)]
        pair, result.pair[block], result.gap[block] = _compared(me, them, with_theirs, join)
        null, result.placebo[block], result.placebo_gap[block] = _compared(apart[0], apart[1], apart[2], join)
        result.contributions[block] = (pair - null).cpu()
        result.weights[block] = (
            _weights(them.per_deviation(deviation), join) - _weights(like_me.per_deviation(deviation), join)
        ).cpu()
    return result


def _compared(
    me: Explanation, them: Explanation, with_their_finances: Explanation, join: Tensor | None
) -> tuple[Tensor, Floats, Floats]:
    """Feature contributions, figures and financial gaps of pairs.

    The financial gap is the CEC score that a pair's unlike finances alone would give: that of a person and of the same
    person with the counterpart's financial features. Its difference between a pair and its placebo pair is no
    evidence of anything but unlike neighbours, and is the control that `inference.excess` takes out. For a model that
    sees financial features only, it is the CEC score itself.
    """
    own, other, moved = me.values, them.values, with_their_finances.values
    scores = score_contributions(own, other, me.with_inputs_of(them), them.with_inputs_of(me), join)
    overlap = reason_overlap(own, other, join)
    gap = cec_scores(own, moved) if join is None else cec_scores(own @ join, moved @ join)
    columns = torch.stack((scores.cec, scores.input_gap, scores.reasoning_gap, overlap), dim=1)
    return scores.contributions, columns.cpu().numpy(), gap.cpu().numpy()


def _deviation(x: Tensor) -> Tensor:
    """Standard deviation of each input over its known values, of shape (d,)."""
    known = ~x.isnan()
    n = known.sum(0).clamp_min(1)
    mean = torch.nansum(x, 0, dtype=torch.float64) / n
    squares = torch.stack([torch.nansum((part.double() - mean).square(), 0) for part in x.split(_BLOCK)]).sum(0)
    return (squares / n).sqrt()


def _weights(steps: Tensor, join: Tensor | None) -> Tensor:
    """Change of the logit for one standard deviation of each feature; a feature of several columns has no sign."""
    if join is None:
        return steps
    is_single = join.sum(0) == 1
    return torch.where(is_single, steps @ join, (steps.square() @ join).sqrt())


def _decisions(probability: Tensor, threshold: float) -> NDArray[np.bool_]:
    decided: NDArray[np.bool_] = (probability >= threshold).cpu().numpy()
    return decided


def _regime_b(found: _Comparisons, nodes: Ints, threshold: float) -> ExcessEstimate:
    def share(is_same: NDArray[np.bool_], score: Floats) -> Floats:
        return (is_same & (score > threshold)).astype(np.float64)

    return excess(
        share(found.is_same_decision, found.pair[:, 0]),
        share(found.is_same_placebo_decision, found.placebo[:, 0]),
        nodes,
        control=share(found.is_same_decision, found.gap) - share(found.is_same_placebo_decision, found.placebo_gap),
    )


def _splits(
    people: People,
    pairs: PlaceboPairs,
    found: _Comparisons,
    decision: NDArray[np.bool_],
    by: Mapping[str, NDArray[np.str_]],
) -> tuple[SplitExcess, ...]:
    names = np.asarray(people.groups.names)
    group = names[people.groups.codes[pairs.person]]
    columns: dict[str, NDArray[Any]] = {
        "group": group,
        "label": people.labels[pairs.person].astype(str),
        "decision": np.where(decision[pairs.person], "favourable", "unfavourable"),
    }
    if len(names) > 2:
        columns["groups compared"] = _unordered(people.groups.codes[pairs.person], pairs.other_group, names)
    columns |= {name: np.asarray(values, dtype=str)[pairs.person] for name, values in by.items()}
    # Everyone asked for is shown, those without a single comparison too.
    expected = {
        "group": [str(name) for name in names],
        "groups compared": [f"{a} - {b}" for k, a in enumerate(names) for b in names[k + 1 :]],
    }
    splits: list[SplitExcess] = []
    for split, values in columns.items():
        estimates = excess_by(values, found.pair[:, 0], found.placebo[:, 0], pairs.nodes, control=found.control)
        for value in expected.get(split, []):
            estimates.setdefault(value, excess([], [], np.zeros((0, 3), dtype=np.int64)))
        adjusted = holm([estimate.p_value for estimate in estimates.values()])
        splits += [
            SplitExcess(split, str(value), estimate, float(p))
            for (value, estimate), p in zip(estimates.items(), adjusted, strict=True)
        ]
    return tuple(splits)


def _unordered(first: Ints, second: Ints, names: NDArray[np.str_]) -> NDArray[np.str_]:
    low, high = np.minimum(first, second), np.maximum(first, second)
    labels = np.asarray([[f"{a} - {b}" for b in names] for a in names])
    return labels[low, high]


def _weight_differences(people: People, pairs: PlaceboPairs, found: _Comparisons) -> tuple[WeightDifference, ...]:
    names = people.groups.names
    own_group = people.groups.codes[pairs.person]
    rows: list[WeightDifference] = []
    for a in range(len(names)):
        for b in range(a + 1, len(names)):
            between = ((own_group == a) & (pairs.other_group == b)) | ((own_group == b) & (pairs.other_group == a))
            # The difference is of the other's weight over the placebo's, who is of the person's own group.
            sign = np.where(own_group[between] == b, 1.0, -1.0).astype(np.float32)
            weights = sign[:, None] * found.weights[between]
            estimates = excess_columns(
                weights, np.zeros_like(weights), pairs.nodes[between], control=found.control[between]
            )
            rows += [
                WeightDifference(str(feature), names[a], names[b], estimate)
                for feature, estimate in zip(people.table.columns, estimates, strict=True)
            ]
    return tuple(rows)


def _q_values(people: People, pairs: PlaceboPairs, found: _Comparisons) -> Floats:
    """False-discovery rate at which each person's excess over a placebo pair would be called.

    What a pair's score has over its financial gap is compared with the same of placebo pairs of the person's cell.
    """
    score = pairs.person_mean(found.pair[:, 0] - found.gap)
    null = pairs.person_mean(found.placebo[:, 0] - found.placebo_gap)
    stratum = people.cells[:, None] * score.shape[1] + np.arange(score.shape[1])
    p = empirical_p_values(score.ravel(), null.ravel(), stratum.ravel(), stratum.ravel())
    q = np.full(p.shape, np.nan)
    known = np.isfinite(p)
    q[known] = benjamini_hochberg(p[known])
    return q.reshape(score.shape)


def _by_distance(pairs: PlaceboPairs, found: _Comparisons) -> tuple[tuple[float, ExcessEstimate], ...]:
    """The excess among the nearest quarter, half and three quarters of the comparisons, and all."""
    if not len(pairs):
        return ()
    limits = np.quantile(pairs.other_distance, (0.25, 0.5, 0.75, 1.0))
    return tuple((float(d), _of_part(pairs, found, pairs.other_distance <= d)) for d in limits)


def _by_matches(pairs: PlaceboPairs, found: _Comparisons) -> tuple[tuple[int, ExcessEstimate], ...]:
    """The excess with the nearest 1, 2, ... comparisons of each person and group."""
    if not len(pairs):
        return ()
    key = pairs.person * pairs.reason.shape[1] + pairs.other_group  # sorted, nearest first within
    first = np.flatnonzero(np.r_[True, key[1:] != key[:-1]])
    rank = np.arange(len(key)) - np.repeat(first, np.diff(np.r_[first, len(key)])) + 1
    return tuple((k, _of_part(pairs, found, rank <= k)) for k in range(1, int(rank.max()) + 1))


def _of_part(pairs: PlaceboPairs, found: _Comparisons, part: NDArray[np.bool_]) -> ExcessEstimate:
    return excess(found.pair[part, 0], found.placebo[part, 0], pairs.nodes[part], control=found.control[part])


def _mean(values: Floats) -> float:
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")
