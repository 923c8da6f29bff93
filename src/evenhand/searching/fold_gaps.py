"""The score gap at equal finances on the test people of a fold, for many models at once: total and through each input.

The regression is the audit's (`metrics.score_gap`). Its result is linear in what is compared, with coefficients that
depend on the people alone, so each model's gaps are one product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.metrics.gap_sums import FinanceControls, gap_coefficients
from evenhand.models.scoring import TripleScores
from evenhand.training.folds import ComparedFold

__all__ = ["GAPS", "FoldGaps", "gap_name", "is_signed_gap", "named_gaps", "oriented_gaps"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

GAPS = ("score_gap", "probability_gap", "decision_gap")
"""Gaps in the unit in which the model is explained, in probability and in the share of approvals."""


def gap_name(kind: str, group: int, feature: str = "") -> str:
    """Name of a signed gap of a group: the total, or the part through a feature.

    Examples
    --------
    >>> gap_name("score_gap", 1), gap_name("score_gap", 1, "income")
    ('score_gap|1', 'score_gap|1|income')
    """
    return f"{kind}|{group}|{feature}" if feature else f"{kind}|{group}"


def is_signed_gap(name: str) -> bool:
    """Whether `gap_name` made a name.

    Examples
    --------
    >>> is_signed_gap("score_gap|1|income"), is_signed_gap("score_gap[income]")
    (True, False)
    """
    kind, bar, _ = name.partition("|")
    return bool(bar) and kind in GAPS


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Pairs of a fold, as `metrics.gap_sums` takes them; it does not need the gaps themselves."""

    person: Ints
    match: Ints
    other: Ints
    group: Ints
    other_group: Ints
    label: Ints
    finances: Floats
    pair_weight: Floats

    @property
    def person_row(self) -> Ints:
        """No test person is in the training fold."""
        return np.full(len(self.person), -1)

    @property
    def unit(self) -> Ints:
        """Every row is a different person."""
        return self.person

    @property
    def bucket(self) -> Ints:
        """No influences are needed."""
        return np.zeros(len(self.person), dtype=np.int64)

    @property
    def score_gaps(self) -> Floats:
        """Nothing: coefficients do not depend on it."""
        return np.zeros((len(self.person), 0))


@dataclass(frozen=True, eq=False)
class FoldGaps:
    """The coefficient of each triple's difference in the gap between each group and the reference group.

    Attributes
    ----------
    coefficients
        By code of the group, of shape (n_weightings, n_triples).
    """

    coefficients: Mapping[int, Tensor]

    @classmethod
    def of(
        cls,
        compared: ComparedFold,
        is_used: NDArray[np.bool_],
        reference_group: int,
        weights: Floats,
        device: torch.device,
    ) -> FoldGaps:
        """For the usable triples of a fold and each weighting of its test people, (n_weightings, n_test)."""
        fold, triples = compared.fold, compared.test_pairs.where(is_used)
        person = triples.person
        pairs = _Pairs(
            person=person,
            match=triples.other,
            other=triples.other,
            group=fold.group_test[person],
            other_group=triples.other_group,
            label=fold.y_test[person],
            finances=compared.points_test[person],
            pair_weight=np.ones(len(person)),
        )
        controls = FinanceControls.of(compared.points_train, device)
        return cls(
            {
                group: gap_coefficients(pairs, controls, group, reference_group, weights[:, person])
                for group in range(fold.n_groups)
                if group != reference_group
            }
        )

    def none(self, models: Sequence[int], n_features: int) -> dict[int, Tensor]:
        """NaN gaps of as many models as the shape says."""
        return {
            group: coefficients.new_full((*models, len(coefficients), n_features + 2), float("nan"))
            for group, coefficients in self.coefficients.items()
        }

    def add(self, sums: dict[int, Tensor], block: slice, part: TripleScores, moved: Tensor, match: Tensor) -> None:
        """Add a block of triples to the gaps of each group, of shape (..., n_weightings, n_features + 2).

        Parameters
        ----------
        sums
            Gaps so far, by code of the group: by feature, in probability and in decisions.
        block, part
            Which triples, and their scores.
        moved, match
            Probability, and whether approved, of the person with the match's finances and of the match: of shape
            (2, ..., n).
        """
        differences = torch.cat([part.score_gaps.double(), (moved - match).movedim(0, -1)], dim=-1)
        for group, coefficients in self.coefficients.items():
            more = coefficients[:, block] @ differences
            sums[group] = sums[group] + more if group in sums else more


def named_gaps(sums: Mapping[int, Tensor], features: Sequence[str]) -> dict[str, Tensor]:
    """Signed gaps by name, each of shape (..., n_weightings)."""
    found: dict[str, Tensor] = {}
    for group, gaps in sums.items():
        by_feature, in_probability, in_decisions = gaps[..., :-2], gaps[..., -2], gaps[..., -1]
        totals = (by_feature.sum(-1), in_probability, in_decisions)
        found |= {gap_name(kind, group): total for kind, total in zip(GAPS, totals, strict=True)}
        found |= {gap_name("score_gap", group, f): by_feature[..., k] for k, f in enumerate(features)}
    return found


def oriented_gaps(
    signed: Mapping[str, Floats], means: Mapping[str, Floats], features: Sequence[str]
) -> dict[str, Floats]:
    """Sizes of gaps, as a search minimizes them, from signed ones of shape (n_models, n).

    The size in each fold would be noise where the gap is small. So a model's gap is that of the group whose mean is
    largest in size, with the sign that makes this mean positive: its mean is the size of the mean. In the sum over
    inputs (``score_gap_parts``) each input has its own sign, so inputs that cancel each other both count.

    Parameters
    ----------
    signed
        By name, as `named_gaps` returns them; the second dimension is folds or weightings.
    means
        By the same names, of shape (n_models,): they decide signs and groups.
    features
        Names of the inputs.

    Examples
    --------
    >>> signed = {"score_gap|1": np.array([[-0.3, -0.1]]), "score_gap|1|age": np.array([[-0.3, -0.1]])}
    >>> means = {name: values.mean(1) for name, values in signed.items()}
    >>> found = oriented_gaps(signed, means, ["age"])
    >>> {name: values.round(2).tolist() for name, values in found.items()}
    {'score_gap': [[0.3, 0.1]], 'score_gap[age]': [[0.3, 0.1]], 'score_gap_parts': [[0.3, 0.1]]}
    """
    groups = sorted({int(name.split("|")[1]) for name in signed})
    found: dict[str, Floats] = {}
    for kind in GAPS:
        names = [name for group in groups if (name := gap_name(kind, group)) in signed]
        if names:
            found[kind] = _largest([_turned(signed[name], means[name]) for name in names], [means[n] for n in names])
    parts: dict[int, list[Floats]] = {group: [] for group in groups}
    for feature in features:
        names = [gap_name("score_gap", group, feature) for group in groups]
        turned = [_turned(signed[name], means[name]) for name in names]
        found[f"score_gap[{feature}]"] = _largest(turned, [means[name] for name in names])
        for group, values in zip(groups, turned, strict=True):
            parts[group].append(values)
    if features and groups:
        sizes = {
            group: sum(np.abs(means[gap_name("score_gap", group, feature)]) for feature in features) for group in groups
        }
        totals = [np.sum(values, axis=0) for values in parts.values()]
        found["score_gap_parts"] = _largest(totals, [np.asarray(sizes[group]) for group in groups])
    return found


def _turned(values: Floats, mean: Floats) -> Floats:
    """Values with the sign that makes the mean of each model positive."""
    return values * np.where(mean < 0, -1.0, 1.0)[:, None]


def _largest(values: Sequence[Floats], means: Sequence[Floats]) -> Floats:
    """For each model, the values of the group whose mean is largest in size."""
    sizes = np.abs(np.stack(means))
    which = np.where(np.isfinite(sizes), sizes, -1.0).argmax(0)
    return np.asarray(np.stack(values)[which, np.arange(sizes.shape[1])])
