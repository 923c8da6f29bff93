"""What compiled training steps read, and the scratch they write to."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["Steps", "Work", "new_work"]

# Arrays of `Work.layers`.
VALUES, ON, SLOPES, CARRIED, SCALED, OF_SCALED, OF_VALUES, N_LAYER_ARRAYS = range(8)


class Steps(NamedTuple):
    """S steps of K members: the contents of `training.engine.step.Batch`, with people by row number.

    Attributes
    ----------
    inputs
        All tables' people and baselines, of shape (N, d).
    person, partner
        Rows of `inputs`, of shapes (S, K, m) and (S, K, M, m).
    baseline
        Row of each member's first baseline, of shape (K,).
    cell
        (label, group) cell of each person, of shape (S, K, m).
    y, weight
        Of shape (S, K, m, 1).
    kept
        Dropout factors of a step's layers, of shape (K, S, m * sum(h)); no columns for no dropout.
    rates
        Of shape (S, 4, K, 1).
    cell_shares, odds_form
        Of shape (S, K, m, C); C = 0 to leave the term out.
    pair_weight
        Of shape (S, K, M, m).
    has_pairs
        Whether the CEC term is part of a step, of shape (S,).
    join
        Of shape (d, n_features); no rows for none.
    """

    inputs: NDArray[Any]
    person: NDArray[Any]
    partner: NDArray[Any]
    baseline: NDArray[Any]
    cell: NDArray[Any]
    y: NDArray[Any]
    weight: NDArray[Any]
    kept: NDArray[Any]
    rates: NDArray[Any]
    cell_shares: NDArray[Any]
    odds_form: NDArray[Any]
    pair_weight: NDArray[Any]
    has_pairs: NDArray[Any]
    join: NDArray[Any]


class Work(NamedTuple):
    """Scratch of one member for R people and partners and C baselines, which are the last rows.

    Attributes
    ----------
    layers
        u, relu(u), S, e, g and the derivatives in g, and then e, and in u, of shape (7, (R + C) * sum(h)).
    people
        relu(u) of the batch with dropout and the derivative in u, of shape (2, m * sum(h)).
    inputs
        Rows, their attributions, and the derivative in path-averaged gradients, of shape (3, R + C, d).
    features
        Unit vectors and the derivative in attributions, of shape (2, R, n_features).
    lengths, cell
        Of the rows, of shape (R,).
    top
        Weights below the top layer, transposed, and their gradient, of shape (2, h, n_in).
    switching, n_switching
        Units of the top layer that switch on each path, of shape (R + C, h + 3), and their number; for baselines, all.
    amounts
        Of each of them: change of S and of g, derivatives in g and in u; of shape (4, R + C, h + 3).
    of_start
        Derivative in the baselines' u of the top layer before the division by its size, of shape (C, h).
    below
        Derivative in the relu(u) below a layer, flat.
    product
        As large as the largest weights.
    gradient
        Of shape (P,).
    """

    layers: NDArray[Any]
    people: NDArray[Any]
    inputs: NDArray[Any]
    features: NDArray[Any]
    lengths: NDArray[Any]
    cell: NDArray[Any]
    top: NDArray[Any]
    switching: NDArray[Any]
    n_switching: NDArray[Any]
    amounts: NDArray[Any]
    of_start: NDArray[Any]
    below: NDArray[Any]
    product: NDArray[Any]
    gradient: NDArray[Any]


def new_work(widths: NDArray[Any], steps: Steps, n_cells: int) -> Work:
    """Scratch for steps of the same shape as `steps`."""
    n_people, n_partners = steps.person.shape[2], steps.partner.shape[2]
    n_ends = (1 + n_partners) * n_people
    n_rows, n_units, n_inputs = n_ends + n_cells, int(widths[1:-1].sum()), int(widths[0])
    n_features = steps.join.shape[1] if len(steps.join) else n_inputs
    n_in, n_top = int(widths[-3]), int(widths[-2])
    kind = torch.from_numpy(steps.inputs).dtype

    def array(*shape: int) -> NDArray[Any]:
        # torch aligns memory to the width of a vector; numpy does not, and every access would touch two lines.
        return torch.zeros(shape, dtype=kind).numpy()

    return Work(
        layers=array(N_LAYER_ARRAYS, n_rows * n_units),
        people=array(2, n_people * n_units),
        inputs=array(3, n_rows, n_inputs),
        features=array(2, n_ends, n_features),
        lengths=array(n_ends),
        cell=np.zeros(n_ends, np.int64),
        top=array(2, n_top, n_in),
        switching=np.zeros((n_rows, n_top + 3), np.int64),
        n_switching=np.zeros(n_rows, np.int64),
        amounts=array(4, n_rows, n_top + 3),
        of_start=array(n_cells, n_top),
        below=array(n_rows * int(widths[:-1].max())),
        product=array(int((widths[:-1] * widths[1:]).max())),
        gradient=array(int(((widths[:-1] + 1) * widths[1:]).sum())),
    )
