r"""The three terms of the training objective, as plain functions on logits and attributions.

.. math:: \mathcal L = \mathcal L_\text{pred} + \lambda_\text{EO} \mathcal L_\text{EO}
          + \lambda_\text{CEC} \mathcal L_\text{CEC}

Each takes one model's batch, or a stack's with leading dimensions (K, ...), and returns one number per model. A row's
weight counts it that many times; a row of weight 0 is ignored.
"""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from evenhand.attribution.feed_forward import FeedForward
from evenhand.attribution.gradients import Method, attribute
from evenhand.exceptions import InvalidInputError
from evenhand.metrics.cec import squared_cec
from evenhand.training.settings import Procedure


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
            # A placebo's weights are compared on the inputs of the match: see `evenhand.training.excess_objective`.
            return squared_reasoning_gap(offset[0], gradients[0], offset[1], gradients[partner])
        return squared_cec(offset[0] * gradients[0], offset[partner] * gradients[partner])

    difference = squares(1) if x_placebo is None else squares(1) - squares(2)
    return _weighted_mean(difference, weight)


def _weighted_mean(values: Tensor, weight: Tensor | None) -> Tensor:
    """Mean over the last dimension; 0 if all weights are 0."""
    if weight is None:
        return values.mean(-1)
    total = weight.sum(-1)
    return (values * weight).sum(-1) / total.masked_fill(total == 0, 1)
