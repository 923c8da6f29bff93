"""Figures of a stack on held-out people."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.attribution.feed_forward import RELU, FeedForward
from evenhand.attribution.gradients import path_gradients
from evenhand.training.data import TrainingData
from evenhand.training.losses import bce_loss, cec_term, equalized_odds_loss
from evenhand.training.network import Layout
from evenhand.training.settings import TrainingSettings

__all__ = ["VALIDATION_FIGURES", "evaluate", "weighted_auc"]

VALIDATION_FIGURES = ("bce", "equalized_odds", "cec", "objective", "auc", "positive_rate")

# Largest number of hidden values held at once.
_CHUNK_VALUES = 8_000_000


@torch.no_grad()
def evaluate(
    parameters: Tensor, layout: Layout, data: TrainingData, settings: TrainingSettings
) -> dict[str, NDArray[np.float64]]:
    """Each of `VALIDATION_FIGURES` on each member's validation table, with dropout off; arrays of shape (K,).

    Attributions are made as in training. ``objective`` is the member's own weighted sum. The CEC term is computed if
    any member has a weight on it, else NaN.
    """
    assert data.validation is not None
    n_members = len(parameters)
    figures = {name: np.full(n_members, np.nan) for name in VALIDATION_FIGURES}
    people = data.validation.X.shape[1]
    rows = people * (data.match.shape[2] + 1) * settings.n_steps
    per_chunk = max(1, _CHUNK_VALUES // (rows * max(layout.widths)))
    table_of = np.asarray(settings.table)
    for table in np.unique(table_of):
        members = np.flatnonzero(table_of == table)
        for chunk in np.split(members, range(per_chunk, len(members), per_chunk)):
            found = _evaluate_table(parameters[torch.from_numpy(chunk)], layout, data, settings, int(table))
            for name, values in found.items():
                figures[name][chunk] = values
    terms = (("equalized_odds_weight", "equalized_odds"), ("cec_weight", "cec"))
    figures["objective"] = figures["bce"].copy()
    for weight_name, term in terms:
        weight = np.asarray(settings.of_member(weight_name))
        figures["objective"] += np.where(weight > 0, weight * figures[term], 0.0)
    return figures


def _evaluate_table(
    parameters: Tensor, layout: Layout, data: TrainingData, settings: TrainingSettings, table: int
) -> dict[str, NDArray[np.float64]]:
    held_out = data.validation
    assert held_out is not None
    device, n_members = parameters.device, len(parameters)
    weights, biases = layout.views(parameters)
    net = FeedForward(weights, biases, (RELU,) * (len(weights) - 1))
    weight = torch.ones(held_out.X.shape[1]) if held_out.weight is None else held_out.weight[table]
    x, y, group, weight = (
        t.to(device).expand(n_members, *t.shape)
        for t in (held_out.X[table], held_out.y[table], held_out.group[table], weight)
    )
    logits = net(x)
    score = torch.sigmoid(logits)
    found = {
        "bce": bce_loss(logits, y, weight),
        "equalized_odds": equalized_odds_loss(logits, y, group, data.n_groups, weight)[0],
        "positive_rate": ((score >= 0.5) * weight).sum(1) / weight.sum(1),
    }
    if any(settings.of_member("cec_weight")):
        found["cec"] = _cec(net, x, data, settings, table)
    arrays = {name: value.double().cpu().numpy() for name, value in found.items()}
    y_one, weight_one = y[0].cpu().numpy(), weight[0].cpu().numpy()
    arrays["auc"] = np.array([weighted_auc(y_one, row, weight_one) for row in logits.double().cpu().numpy()])
    return arrays


def _cec(net: FeedForward, x: Tensor, data: TrainingData, settings: TrainingSettings, table: int) -> Tensor:
    held_out = data.validation
    assert held_out is not None
    match = held_out.match[table].t()  # (M, n)
    weight = torch.ones(match.shape[1]) if held_out.weight is None else held_out.weight[table]
    pair_weight = ((match >= 0) * weight).to(x.device)
    baseline = data.baselines[table][held_out.y[table], held_out.group[table]]
    # A cell that training never saw has no reference point: such people are left out.
    pair_weight = pair_weight * baseline.isfinite().all(-1).to(x.device)
    baseline = baseline.nan_to_num(0.0, 0.0, 0.0).to(x.device)
    matches = data.X[table][match.clamp_min(0)].to(x.device)
    ends = torch.cat((x[0].unsqueeze(0), matches)).flatten(0, 1).expand(len(x), -1, -1)
    start = baseline.repeat(1 + len(match), 1).expand_as(ends)
    ig = (ends - start) * path_gradients(net, ends, start, settings.n_steps, settings.method)
    if data.join is not None:
        ig = ig @ data.join.to(x.device)
    by_person = ig.view(len(x), 1 + len(match), -1, ig.shape[-1])
    people = by_person[:, :1].expand_as(by_person[:, 1:]).flatten(1, 2)
    return cec_term(people, by_person[:, 1:].flatten(1, 2), pair_weight.flatten().expand(len(x), -1))[0]


def weighted_auc(y: NDArray[np.int64], score: NDArray[np.float64], weight: NDArray[np.float64]) -> float:
    """Area under the ROC curve, ties counted half; NaN with one label only.

    Examples
    --------
    >>> import numpy as np
    >>> weighted_auc(np.array([0, 1, 0, 1]), np.array([0.1, 0.4, 0.4, 0.8]), np.ones(4))
    0.875
    """
    values, place = np.unique(score, return_inverse=True)
    negative = np.bincount(place, weight * (y == 0), minlength=len(values))
    positive = np.bincount(place, weight * (y == 1), minlength=len(values))
    below = np.cumsum(negative) - negative / 2
    total = negative.sum() * positive.sum()
    return float((positive * below).sum() / total) if total > 0 else float("nan")
