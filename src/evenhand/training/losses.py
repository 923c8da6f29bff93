r"""The three terms of the training objective, as plain functions on logits and attributions.

.. math:: \mathcal L = \mathcal L_\text{pred} + \lambda_\text{EO} \mathcal L_\text{EO}
          + \lambda_\text{CEC} \mathcal L_\text{CEC}

Each takes one model's batch, or a stack's with leading dimensions (K, ...), and returns one number per model. A row's
weight counts it that many times; a row of weight 0 is not there.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from evenhand.attribution.feed_forward import FeedForward
from evenhand.attribution.gradients import Method, attribute
from evenhand.exceptions import InvalidInputError
from evenhand.scoring import squared_cec

__all__ = ["bce_loss", "cec_loss", "cec_term", "cell_shares", "equalized_odds_form", "equalized_odds_loss"]


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
    Tensor of shape (...,); 0 where all weights are 0.

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

    with rates that average :math:`\sigma(f(x))` over a (label, group) cell. Of more than two groups, each of the two
    terms is the mean over pairs of groups. A cell with no one in it leaves out the differences it would enter.

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
        Tensor of shape (...,), in [0, 1]; 0 where no one is matched.
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


def cec_loss(
    model: nn.Module | FeedForward,
    x: Tensor,
    x_match: Tensor,
    baseline: Tensor,
    *,
    n_steps: int = 4,
    method: Method = "segments",
    weight: Tensor | None = None,
) -> Tensor:
    """CEC term of a torch module, to add to its training loss.

    Attributions are of the logit with dropout off, whatever the module's mode, and differentiable in its parameters.

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
        Weights of shape (n,), 0 for the unmatched; None for 1 each.

    Returns
    -------
    Scalar tensor in [0, 1].

    Raises
    ------
    InvalidInputError
        If `x` and `x_match` differ in shape, or as `evenhand.integrated_gradients`.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    >>> x = torch.randn(8, 2)
    >>> loss = cec_loss(model, x, x.flip(0), torch.zeros(2))
    >>> loss.backward()
    """
    if x.shape != x_match.shape:
        raise InvalidInputError(
            f"`x` and `x_match` must have the same shape, got {tuple(x.shape)} and {tuple(x_match.shape)}."
        )
    # One call for both: half the dispatch of two.
    ends = torch.cat((x, x_match), dim=-2)
    both = attribute(model, ends, torch.cat((baseline.expand_as(x),) * 2, dim=-2), n_steps, method).values
    ig, ig_match = both.tensor_split(2, dim=-2)
    return cec_term(ig, ig_match, weight)[0]


def _weighted_mean(values: Tensor, weight: Tensor | None) -> Tensor:
    """Mean over the last dimension; 0 where all weights are 0."""
    if weight is None:
        return values.mean(-1)
    total = weight.sum(-1)
    return (values * weight).sum(-1) / total.masked_fill(total == 0, 1)
