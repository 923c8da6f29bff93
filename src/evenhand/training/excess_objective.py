r"""Placebo triples of the training people, and the weight of each.

The objectives ``excess`` and ``reasoning_excess`` lower the excess of pairs across groups over placebo pairs. For
squared distances between vectors :math:`\phi` the difference has a closed form. With X, X' of group g and Y, Y' of
group h, independent, of means :math:`\mu` and total variances V,

.. math::
    E|\phi(X) - \phi(Y)|^2 - E|\phi(X) - \phi(X')|^2 &= V_h - V_g + |\mu_g - \mu_h|^2, \\
    E|\phi(Y) - \phi(X)|^2 - E|\phi(Y) - \phi(Y')|^2 &= V_g - V_h + |\mu_g - \mu_h|^2.

Reasoning that varies more within g lowers one of them. It cannot lower their sum: a gain on one side is a loss on the
other, and the sum is :math:`2 |\mu_g - \mu_h|^2`, which is never negative. So both directions between two groups must
have the same weight within each label; `balanced_weights` sees to that.

For attributions :math:`\phi(x)` is the unit vector of IG(x; b). For weights on the same inputs z it is the unit vector
of :math:`(z - b) \circ \gamma(x)`, and the sum is free of the variances only if z is the same for pair and placebo
pair: the person's inputs, and the match's. With the placebo's inputs in the placebo pair, the rest can become negative,
through weights that vary on the inputs of one group and not on those of the other.

This is true in expectation. In a finite table, a network can make the excess negative by memorizing placebo pairs, and
baselines that differ by group leave a remainder of either sign. So the trainer minimizes not the excess e itself but

.. math:: h(e) = 0 \text{ for } e \le 0, \qquad e^2 / 2\tau \text{ up to } \tau, \qquad e - \tau / 2 \text{ beyond},

whose slope `excess_gain` computes at the whole table's excess at the start of each epoch. A hinge for every pair or
every batch would not work: their excess is mostly noise, and the mean of a noisy value's positive part is positive even
if there is nothing to remove.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from evenhand.matching.placebos import PlaceboPairs, placebo_pairs

N_TRIPLES = 4
"""Triples kept for each person and other group; epochs use them in turn."""

FULL_GAIN_EXCESS = 0.01
"""Excess, in squared scores, at and above which the objective has its full weight."""


def training_triples(
    points: ArrayLike,
    labels: ArrayLike,
    groups: ArrayLike,
    n_groups: int,
    reference: tuple[ArrayLike, ArrayLike, ArrayLike] | None = None,
    *,
    n_triples: int = N_TRIPLES,
    max_distance: float | None = None,
    random_state: int = 0,
) -> NDArray[np.int64]:
    """Placebo triples of each person as rows of the reference.

    Parameters
    ----------
    points, labels, groups, reference
        As in `evenhand.matching.placebos.placebo_pairs`.
    n_groups
        Number of groups G.
    n_triples
        The most triples of a person with a group.
    max_distance
        Largest distance of a person who is compared; None for no limit.
    random_state
        Seed.

    Returns
    -------
    Of shape (n, G - 1, n_triples, 2): the row of someone in a different group and of someone in the person's group at
    the same distance; groups in order, nearest triple first, -1 for none.

    Examples
    --------
    >>> training_triples([[0.0], [1.0], [1.0], [5.0]], [1, 1, 1, 1], [0, 0, 1, 1], 2, n_triples=1).tolist()
    [[[[2, 1]]], [[[-1, -1]]], [[[-1, -1]]], [[[1, 2]]]]
    """
    pairs = placebo_pairs(
        points,
        labels,
        groups,
        reference,
        n_pairs=n_triples,
        max_distance=max_distance,
        random_state=random_state,
    )
    return triple_rows(pairs, np.asarray(groups, dtype=np.int64), n_groups, n_triples)


def triple_rows(pairs: PlaceboPairs, groups: NDArray[np.int64], n_groups: int, n_triples: int) -> NDArray[np.int64]:
    """Triples by person; see `training_triples`."""
    rows = np.full((len(groups), n_groups - 1, n_triples, 2), -1, dtype=np.int64)
    own = groups[pairs.person]
    column = pairs.other_group - (pairs.other_group > own)
    rows[pairs.person, column, pairs.rank - 1] = np.column_stack([pairs.other, pairs.own])
    return rows


def balanced_weights(y: Tensor, group: Tensor, weight: Tensor, is_compared: Tensor) -> Tensor:
    """Weights of triples that give both directions between two groups the same total weight; (D, n, M).

    If no one is compared in one direction, the opposite direction is left out. Over a table, the weights times the
    people's weights add up to the sum of the people's weights, unless no one is compared.

    Parameters
    ----------
    y, group, weight
        Labels, group codes and the people's weights, of shape (D, n).
    is_compared
        Whether a person has a triple with each other group, of shape (D, n, M).

    Examples
    --------
    >>> group = torch.tensor([[0, 0, 0, 1]])
    >>> balanced_weights(torch.ones(1, 4).long(), group, torch.ones(1, 4), torch.ones(1, 4, 1).bool()).flatten()
    tensor([0.6667, 0.6667, 0.6667, 2.0000])
    """
    n_tables, _, n_others = is_compared.shape
    n_groups = n_others + 1
    column = torch.arange(n_others).expand(is_compared.shape)
    own = group.unsqueeze(-1)
    other = column + (column >= own).long()
    label, table = y.unsqueeze(-1), torch.arange(n_tables).view(-1, 1, 1)
    cell = ((table * 2 + label) * n_groups + own) * n_groups + other
    opposite = ((table * 2 + label) * n_groups + other) * n_groups + own
    used = weight.double().unsqueeze(-1) * is_compared
    total = torch.zeros(n_tables * 2 * n_groups * n_groups, dtype=torch.float64)
    total.index_add_(0, cell.flatten(), used.flatten())
    forth, back = total[cell], total[opposite]
    factor = torch.where((forth > 0) & (back > 0), (forth + back) / (2 * forth).clamp_min(1e-300), 0.0) * is_compared
    sums = (factor * weight.unsqueeze(-1)).sum((1, 2), keepdim=True)
    people = weight.double().sum(1).view(-1, 1, 1)
    return torch.where(sums > 0, factor * people / sums.clamp_min(1e-300), 0.0).float()


def triples_in_turn(triples: Tensor, n_triples: Tensor, row: Tensor, epoch: int) -> Tensor:
    """The triple that each person uses in an epoch, of shape (..., M, 2), from all of theirs, (..., M, C, 2).

    Parameters
    ----------
    triples, n_triples
        Rows of the triples, and how many of the C there are, of shape (..., M).
    row
        Number of each person, (...,): people use their triples in turn, and do not all start with the first.
    epoch
        Its number.
    """
    turn = (epoch + row.unsqueeze(-1)) % n_triples.clamp_min(1)
    return triples.gather(-2, turn[..., None, None].expand(*turn.shape, 1, 2)).squeeze(-2)


def excess_gain(excess: Tensor) -> Tensor:
    """Share of its weight with which an excess is lowered: 0 up to 0, 1 from `FULL_GAIN_EXCESS` on, of its shape.

    Examples
    --------
    >>> excess_gain(torch.tensor([-0.1, 0.005, 0.1]))
    tensor([0.0000, 0.5000, 1.0000])
    """
    return (excess / FULL_GAIN_EXCESS).clamp(0, 1)


def hinged_excess(excess: Tensor) -> Tensor:
    """The objective's value for an excess: the integral of `excess_gain`, of its shape."""
    inside = excess.clamp(0, FULL_GAIN_EXCESS)
    return inside.square() / (2 * FULL_GAIN_EXCESS) + (excess - FULL_GAIN_EXCESS).clamp_min(0)
