r"""The three terms of the training objective, as plain functions on logits and attributions.

.. math:: \mathcal L = \mathcal L_\text{pred} + \lambda_\text{EO} \mathcal L_\text{EO}
          + \lambda_\text{CEC} \mathcal L_\text{CEC}

Each takes one model's batch, or a stack's with leading dimensions (K, ...), and returns one number per model. A row's
weight counts it that many times; a row of weight 0 is ignored.

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

from typing import get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn import functional

from evenhand.attribution.explanation import Method
from evenhand.attribution.feed_forward import FeedForward
from evenhand.attribution.gradients import attribute
from evenhand.exceptions import InvalidInputError
from evenhand.matching.placebos import placebo_pairs
from evenhand.metrics.cec import squared_cec
from evenhand.training.settings import Procedure

N_TRIPLES = 4
"""Triples kept for each person and other group; epochs use them in turn."""

FULL_GAIN_EXCESS = 0.01
"""Excess, in squared scores, at and above which the objective has its full weight."""


def bce_loss(logits: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
    r"""Binary cross-entropy of the logits, averaged over rows.

    .. math:: -\frac1m \sum_i y_i \log \sigma(f(x_i)) + (1 - y_i) \log (1 - \sigma(f(x_i)))

    Parameters
    ----------
    logits, y
        Logits and labels 0 or 1, of shape (..., m).
    weight
        Row weights of shape (..., m); None for 1 each.

    Returns
    -------
    Tensor of shape (...,); 0 if all weights are 0.

    Examples
    --------
    >>> import torch
    >>> bce_loss(torch.tensor([0.0, 0.0]), torch.tensor([0.0, 1.0])).round(decimals=4)
    tensor(0.6931)
    """
    return _weighted_mean(functional.softplus(logits) - y * logits, weight)


def equalized_odds_loss(
    logits: Tensor, y: Tensor, group: Tensor, n_groups: int, weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    r"""Squared differences between groups in soft true and false positive rates.

    .. math:: (\widehat{TPR}_0 - \widehat{TPR}_1)^2 + (\widehat{FPR}_0 - \widehat{FPR}_1)^2

    with rates that average :math:`\sigma(f(x))` over a (label, group) cell. With more than two groups, each of the two
    terms is the mean over pairs of groups. An empty cell leaves out the differences it would be part of.

    Parameters
    ----------
    logits, y, group
        Logits, labels 0 or 1, and group codes 0..n_groups-1, of shape (..., m).
    n_groups
        Number of groups.
    weight
        Row weights of shape (..., m); None for 1 each.

    Returns
    -------
    loss
        Tensor of shape (...,).
    n_left_out
        Number of differences left out, of 2 * n_groups * (n_groups - 1) / 2; int64 of shape (...,).

    Raises
    ------
    InvalidInputError
        If `n_groups` is smaller than 2.

    Examples
    --------
    >>> import torch
    >>> logits = torch.tensor([9.0, -9.0, 9.0])
    >>> loss, left_out = equalized_odds_loss(logits, torch.tensor([1, 1, 0]), torch.tensor([0, 1, 0]), 2)
    >>> round(float(loss), 3), int(left_out)  # no one of group 1 has label 0
    (1.0, 1)
    """
    if n_groups < 2:
        raise InvalidInputError(f"`n_groups` must be at least 2, got {n_groups}.")
    shares, is_present = cell_shares(y, group, n_groups, weight, logits.dtype)
    rates = torch.einsum("...m,...mc->...c", torch.sigmoid(logits), shares)
    form, n_left_out = equalized_odds_form(is_present, logits.dtype)
    return (torch.einsum("...cd,...d->...c", form, rates) * rates).sum(-1), n_left_out


def cell_shares(
    y: Tensor, group: Tensor, n_groups: int, weight: Tensor | None = None, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Each row's share in the mean of its (label, group) cell, of shape (..., m, 2 * n_groups).

    Cell `y * n_groups + group` is the last dimension's index. The second result says which cells have anyone in
    them, of shape (..., 2, n_groups).
    """
    one_hot = functional.one_hot(y.long() * n_groups + group.long(), 2 * n_groups).to(dtype)
    if weight is not None:
        one_hot = one_hot * weight.to(dtype).unsqueeze(-1)
    total = one_hot.sum(-2, keepdim=True)
    is_present = (total > 0).view(*total.shape[:-2], 2, n_groups)
    return one_hot / total.masked_fill(total == 0, 1), is_present


def equalized_odds_form(is_present: Tensor, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    r"""Matrix Q with :math:`\mathcal L_\text{EO} = r^\top Q r`, r the rates by cell, of shape (..., C, C).

    The mean over pairs of k groups of squared differences is :math:`\frac2{k-1} \sum_g (r_g - \bar r)^2`; here k
    counts the groups present, so Q is a scaled centring matrix for each label. Also returns the number of
    differences left out.
    """
    present = is_present.to(torch.float64)
    n_groups = present.shape[-1]
    k = present.sum(-1, keepdim=True)
    centring = torch.diag_embed(present) - present.unsqueeze(-1) * present.unsqueeze(-2) / k.clamp_min(1).unsqueeze(-1)
    scaled = torch.where(k > 1, 2 / (k - 1).clamp_min(1), 0).unsqueeze(-1) * centring
    form = scaled.new_zeros(*present.shape[:-2], 2, n_groups, 2, n_groups)
    form[..., 0, :, 0, :], form[..., 1, :, 1, :] = scaled[..., 0, :, :], scaled[..., 1, :, :]
    n_used = (k * (k - 1) / 2).sum((-2, -1))
    n_left_out = n_groups * (n_groups - 1) - n_used.long()
    return form.flatten(-4, -3).flatten(-2, -1).to(dtype), n_left_out


def cec_term(ig: Tensor, ig_match: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
    r"""Mean square of the CEC score over matched people.

    .. math:: \frac1m \sum_i \left( \tfrac12 \lVert \mathrm{IG}_\text{norm}(x_i; b_i)
              - \mathrm{IG}_\text{norm}(\tilde x_i; b_i) \rVert_2 \right)^2

    Parameters
    ----------
    ig, ig_match
        Attributions of people and of their matches from the person's baseline, of shape (..., m, d).
    weight
        Weights of shape (..., m), 0 for the unmatched; None for 1 each.

    Returns
    -------
    loss
        Tensor of shape (...,), in [0, 1]; 0 if no one is matched.
    n_left_out
        Number of rows of weight 0; int64 of shape (...,).

    Examples
    --------
    >>> import torch
    >>> ig, ig_match = torch.eye(2), torch.tensor([[1.0, 0.0], [0.0, -1.0]])
    >>> cec_term(ig, ig_match)
    (tensor(0.5000), tensor(0))
    >>> cec_term(ig, ig_match, torch.tensor([1.0, 0.0]))
    (tensor(0.), tensor(1))
    """
    squares = squared_cec(ig, ig_match)
    if weight is None:
        return squares.mean(-1), torch.zeros(squares.shape[:-1], dtype=torch.int64, device=squares.device)
    return _weighted_mean(squares, weight), (weight == 0).sum(-1)


def squared_reasoning_gap(
    offset: Tensor, gradients: Tensor, match_offset: Tensor, match_gradients: Tensor, join: Tensor | None = None
) -> Tensor:
    r"""Square of the reasoning gap of each pair, of shape (...,): the mean of two squares, one for the inputs of each.

    .. math:: \tfrac12 \sum_{z \in \{x, \tilde x\}} \Delta^2\bigl((z - b) \circ g(x), (z - b) \circ g(\tilde x)\bigr)

    It is 0 for a linear model, and for any model at pairs whose gradients are proportional.

    Parameters
    ----------
    offset, match_offset
        x - b and x~ - b, of shape (..., d), with the person's b in both.
    gradients, match_gradients
        Path-averaged gradients g(x) and g(x~), of shape (..., d).
    join
        Matrix of shape (d, n_features) that sums columns into features; None for none.

    Examples
    --------
    >>> import torch
    >>> x, match = torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0])
    >>> squared_reasoning_gap(x, torch.tensor([1.0, 0.0]), match, torch.tensor([0.0, 1.0]))
    tensor(0.5000)
    """

    def square(inputs: Tensor) -> Tensor:
        own, other = inputs * gradients, inputs * match_gradients
        return squared_cec(own, other) if join is None else squared_cec(own @ join, other @ join)

    return (square(offset) + square(match_offset)) / 2


def cec_loss(
    model: nn.Module | FeedForward,
    x: Tensor,
    x_match: Tensor,
    baseline: Tensor,
    *,
    n_steps: int = 4,
    method: Method = "segments",
    weight: Tensor | None = None,
    objective: Procedure = "cec",
    x_placebo: Tensor | None = None,
) -> Tensor:
    """CEC term of a torch module, or a related term over the same pairs, to add to its training loss.

    Attributions explain the logit with dropout off, whatever the module's mode, and are differentiable in its
    parameters.

    Parameters
    ----------
    model
        Module mapping (n, d) to one logit per row, or a `FeedForward`.
    x, x_match
        People and their matches, of shape (n, d).
    baseline
        The people's baselines, of shape (n, d) or (d,); used for the matches too.
    n_steps, method
        How the path is integrated; see `evenhand.integrated_gradients`.
    weight
        Weights of shape (n,), 0 for the unmatched; None for 1 each. With placebos, give both directions between two
        groups the same total weight: see `evenhand.training.balanced_weights`.
    objective
        The mean square of the CEC score (``"cec"``) or of the ``"reasoning_gap"``; or either minus that of placebo
        pairs (``"excess"``, ``"reasoning_excess"``), an unbiased estimate that may be negative.
    x_placebo
        People of the person's group, as far away as the match, of shape (n, d), for the last two.

    Returns
    -------
    Scalar tensor; in [0, 1] without placebos.

    Raises
    ------
    InvalidInputError
        If `x`, `x_match` and `x_placebo` differ in shape, placebos are missing or not needed, or as in
        `evenhand.integrated_gradients`.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    >>> x = torch.randn(8, 2)
    >>> loss = cec_loss(model, x, x.flip(0), torch.zeros(2))
    >>> loss.backward()
    """
    if objective not in get_args(Procedure):
        raise InvalidInputError(f"`objective` must be one of {list(get_args(Procedure))}, got {objective!r}.")
    if objective.endswith("excess") != (x_placebo is not None):
        needs = "needs" if x_placebo is None else "takes no"
        raise InvalidInputError(f"objective={objective!r} {needs} `x_placebo`.")
    partners = [x_match] if x_placebo is None else [x_match, x_placebo]
    for name, partner in zip(("x_match", "x_placebo"), partners, strict=False):
        if x.shape != partner.shape:
            raise InvalidInputError(
                f"`x` and `{name}` must have the same shape, got {tuple(x.shape)} and {tuple(partner.shape)}."
            )
    # One call for all: less dispatch than one each.
    n_ends = 1 + len(partners)
    starts = torch.cat((baseline.expand_as(x),) * n_ends, dim=-2)
    found = attribute(model, torch.cat((x, *partners), dim=-2), starts, n_steps, method)
    offset, gradients = found.offset.tensor_split(n_ends, -2), found.gradients.tensor_split(n_ends, -2)

    def squares(partner: int) -> Tensor:
        if objective.startswith("reasoning"):
            # A placebo's weights are compared on the inputs of the match: see above.
            return squared_reasoning_gap(offset[0], gradients[0], offset[1], gradients[partner])
        squared: Tensor = squared_cec(offset[0] * gradients[0], offset[partner] * gradients[partner])
        return squared

    difference = squares(1) if x_placebo is None else squares(1) - squares(2)
    return _weighted_mean(difference, weight)


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
    own = np.asarray(groups, dtype=np.int64)
    rows = np.full((len(own), n_groups - 1, n_triples, 2), -1, dtype=np.int64)
    column = pairs.other_group - (pairs.other_group > own[pairs.person])
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


def _weighted_mean(values: Tensor, weight: Tensor | None) -> Tensor:
    """Mean over the last dimension; 0 if all weights are 0."""
    if weight is None:
        return values.mean(-1)
    total = weight.sum(-1)
    return (values * weight).sum(-1) / total.masked_fill(total == 0, 1)
