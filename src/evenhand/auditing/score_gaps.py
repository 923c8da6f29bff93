"""The score gap at equal finances of every two groups: in total, by input, in probability and in decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.auditing.between_groups import ByGroups
from evenhand.auditing.influences import gap_key, input_key
from evenhand.auditing.questions import Present
from evenhand.auditing.reference import AuditReference
from evenhand.auditing.triples import Triples
from evenhand.metrics.adjustment import holm
from evenhand.metrics.clustering import Parts
from evenhand.metrics.gap_sums import FinanceControls
from evenhand.metrics.score_gap import GapColumn, GroupGap, group_gap, smallest_p_values
from evenhand.system.parallel import ONE_THREAD, Crew

__all__ = ["FeatureGap", "ScoreGap", "estimate_score_gaps"]


_UNITS = ("log-odds", "probability")


@dataclass(frozen=True)
class FeatureGap:
    """The part of a gap that runs through one input; over all inputs, the parts sum to the gap.

    Attributes
    ----------
    p_adjusted
        Adjusted for the number of inputs and their correlation; NaN if too few people have the input.
    """

    feature: str
    estimate: GapColumn
    p_adjusted: float


@dataclass(frozen=True)
class ScoreGap:
    """Difference in score between comparable people of two groups at equal finances, group minus reference.

    Attributes
    ----------
    unit
        Unit of `total` and of the features: ``"log-odds"`` or ``"probability"``, the scale of the explanations, or the
        unit of a value.
    total, probability, decision
        The gap in that unit, in probability, and in the share of favorable decisions.
    features
        The part of each input, in the order of the table's columns.
    smallest_p
        The smallest adjusted p-value of an input.
    p_adjusted
        The p-value of `total`, adjusted for the number of pairs of groups (Holm).
    n_people, n_pairs
        People compared, and their pairs.
    n_favor_group, n_favor_reference
        Pairs with different decisions, by the group they favor; None without decisions.
    """

    group: str
    reference: str
    unit: str
    total: GapColumn
    probability: GapColumn
    decision: GapColumn
    features: tuple[FeatureGap, ...]
    smallest_p: float
    p_adjusted: float
    n_people: int
    n_pairs: int
    n_favor_group: int | None
    n_favor_reference: int | None

    @property
    def metrics(self) -> dict[str, Any]:
        """The gap in log-odds, in probability and in decisions, or in the unit of a value, as plain data."""
        total = asdict(self.total)
        words = f"explained in {self.unit}"
        in_log_odds = total if self.unit == "log-odds" else {**dict.fromkeys(total), "note": words}
        return {
            "group": self.group,
            "reference": self.reference,
            "logit": in_log_odds,
            "probability": asdict(self.probability),
            "decision": asdict(self.decision),
            **({} if self.unit in _UNITS else {"value": total}),
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; the largest features first."""
        features = sorted(self.features, key=lambda f: -abs(np.nan_to_num(f.estimate.value)))
        plain = {name: value for name, value in asdict(self).items() if name != "features"}
        shown = [{"feature": f.feature, **asdict(f.estimate), "p_adjusted": f.p_adjusted} for f in features]
        return {**plain, "features": shown}


def estimate_score_gaps(
    reference: AuditReference,
    triples: Parts[Triples],
    features: Sequence[str],
    reference_group: str,
    buckets: NDArray[np.int64],
    present: Present,
    crew: Crew = ONE_THREAD,
) -> tuple[tuple[ScoreGap, ...], dict[str, NDArray[np.float64]]]:
    """Score gaps of every two groups, and people's influences on them by name.

    If the reference group is one of the two, it is the second.

    Parameters
    ----------
    reference
        What was fitted once.
    triples
        Pairs, with the score of the person with the match's finances minus that of the match.
    features
        Names of the inputs.
    reference_group
        The group that the others are compared with first.
    buckets
        Of the people of the reference.
    present
        What occurs among the triples.
    crew
        Who works on parts at the same time.
    """
    names = reference.pool.groups.names
    first = names.index(reference_group)
    order = [first, *(code for code in range(len(names)) if code != first)]
    controls = FinanceControls.of(reference.matcher.points, reference.pool.x.device)
    found: list[ScoreGap] = []
    influences: dict[str, NDArray[np.float64]] = {}
    by_groups = ByGroups.of(triples, len(names))
    for place, held_against in enumerate(order):
        for group in order[place + 1 :]:
            some = by_groups.between(group, held_against)
            estimated = group_gap(
                some.parts,
                controls,
                group,
                held_against,
                buckets,
                decisions=[len(features) + 2],
                crew=crew,
            )
            found.append(_between(reference, present, estimated, features, group, held_against))
            keys = _keys(features, names[group], names[held_against])
            if len(estimated.influence):
                influences |= dict(zip(keys, estimated.influence.T, strict=True))
    adjusted = holm([gap.total.p_value for gap in found])
    return tuple(replace(gap, p_adjusted=float(p)) for gap, p in zip(found, adjusted, strict=True)), influences


def _keys(features: Sequence[str], group: str, reference: str) -> list[str]:
    """Names of the columns of a gap, in order."""
    return [
        *(input_key(feature, group, reference) for feature in features),
        *(gap_key(group, reference, unit) for unit in ("", "probability", "decision")),
    ]


def _between(
    reference: AuditReference,
    present: Present,
    found: GroupGap,
    features: Sequence[str],
    group: int,
    reference_group: int,
) -> ScoreGap:
    names, n = reference.pool.groups.names, len(features)
    columns = found.columns or tuple(_not_compared() for _ in range(n + 3))
    adjusted, smallest = smallest_p_values(
        [column.p_value for column in columns[:n]], found.correlation[:n, :n], reference.settings.random_state
    )
    favored = _favored(present.differing, group, reference_group)
    return ScoreGap(
        group=names[group],
        reference=names[reference_group],
        unit=reference.settings.unit or reference.model.output,
        total=columns[n],
        probability=columns[n + 1],
        decision=columns[n + 2],
        features=tuple(
            FeatureGap(name, column, float(p)) for name, column, p in zip(features, columns[:n], adjusted, strict=True)
        ),
        smallest_p=smallest,
        p_adjusted=float("nan"),
        n_people=found.n_people,
        n_pairs=found.n_pairs,
        n_favor_group=favored[group],
        n_favor_reference=favored[reference_group],
    )


def _favored(differing: NDArray[np.int64], group: int, reference_group: int) -> dict[int, int]:
    """Pairs with different decisions, by the group of the one with the favorable decision."""
    sides = ((group, reference_group), (reference_group, group))
    return {own: int(differing[own, other, 1] + differing[other, own, 0]) for own, other in sides}


def _not_compared() -> GapColumn:
    nan = float("nan")
    return GapColumn(nan, nan, nan, nan, nan, nan, nan, "no one is compared")
