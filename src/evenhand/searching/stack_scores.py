"""Metrics of a stack of networks on a fold's test people."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import torch
from torch import Tensor

from evenhand.attribution import Attribution
from evenhand.attribution.feed_forward import RELU, FeedForward
from evenhand.attribution.gradients import path_gradients
from evenhand.searching.figures import Explains, Sight, outcome_of, procedure_of
from evenhand.training.folds import ComparedFold
from evenhand.training.network import Layout

__all__ = ["score_stack"]

# Hidden values held at once while people are explained: bounds memory whatever the number of members.
_CHUNK_VALUES = {"cpu": 30_000_000, "cuda": 500_000_000}


def score_stack(
    parameters: Tensor,
    layout: Layout,
    compared: ComparedFold,
    sight: Sight,
    *,
    n_steps: int,
    decision_threshold: float,
    consistency_threshold: float,
) -> list[dict[str, float]]:
    """Figures of networks on one fold's test people, one for each row of `parameters`, (K, P).

    Parameters
    ----------
    parameters, layout
        The networks, on the device where they are to be asked.
    compared, sight
        The fold, and its people as the networks see them, on the same device.
    n_steps
        Segments of a path.
    decision_threshold, consistency_threshold
        Probability from which a decision is favorable; CEC score above which reasoning counts as different.
    """
    n_rows = len(sight.x_test) + 4 * len(compared.test_pairs) + compared.fold.match_test.size
    per_member = n_rows * (n_steps + 1) * max(layout.widths)
    size = max(1, _CHUNK_VALUES[parameters.device.type] // per_member)
    found: list[dict[str, float]] = []
    for part in parameters.split(size):
        weights, biases = layout.views(part)
        net = FeedForward(weights, biases, (RELU,) * (len(weights) - 1))
        with torch.no_grad():
            found += _scored(net, compared, sight, n_steps, decision_threshold, consistency_threshold)
    return found


def _scored(
    net: FeedForward,
    compared: ComparedFold,
    sight: Sight,
    n_steps: int,
    decision_threshold: float,
    consistency_threshold: float,
) -> list[dict[str, float]]:
    cut = math.log(decision_threshold / (1 - decision_threshold))
    logits = net(sight.x_test.expand(len(net.weights[0]), -1, -1)).double().cpu().numpy()
    model = Explains(partial(_explain, net, n_steps), _take, lambda logit: logit >= cut)
    procedure = procedure_of(compared, sight, model, consistency_threshold)
    by_figure = {name: values.double().cpu().tolist() for name, values in procedure.items()}
    return [
        {
            **outcome_of(compared.fold, logit, (logit >= cut).astype(np.int64)),
            **{name: values[k] for name, values in by_figure.items()},
        }
        for k, logit in enumerate(logits)
    ]


def _explain(net: FeedForward, n_steps: int, x: Tensor, baseline: Tensor) -> Attribution:
    """Attributions of a stack: gradients of shape (K, n, d), and the offsets that all share, (n, d)."""
    n_members = len(net.weights[0])
    ends, starts = (rows.expand(n_members, -1, -1) for rows in (x, baseline))
    gradients = path_gradients(net, ends, starts, n_steps, "segments")
    return Attribution(gradients, x - baseline, net(ends), net.weights[0].new_zeros(n_members, len(x)), "segments")


def _take(found: Attribution, index: Tensor) -> Attribution:
    gradients, logit, start = found.gradients[:, index], found.logit[:, index], found.baseline_logit[:, index]
    return Attribution(gradients, found.offset[index], logit, start, found.method)
