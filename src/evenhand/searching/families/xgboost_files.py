r"""The learning rate and the penalty that XGBoost trained with, worked out from the JSON file of a model.

The file does not contain them. It does contain the sum of hessians :math:`H` of every node and, for a node that splits,
the weight :math:`w = -G / (H + \lambda)` that it would have as a leaf; a leaf has the value
:math:`v = -\eta G / (H + \lambda)`. The gradients :math:`G` of two leaves add up to those of the node above them, so

.. math:: v_l (H_l + \lambda) + v_r (H_r + \lambda) = \eta w (H_l + H_r + \lambda)

holds at every node above two leaves, except those that a monotone constraint has moved.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["learning_of"]

Floats = NDArray[np.float64]

_FEWEST_NODES = 8
_EXACT = 1e-6  # of the largest term: values are written in float32
_LEAST_SHARE = 0.2  # of nodes that agree to six digits; by chance alone, three of them agree
_ROUNDS = 50


def learning_of(text: str) -> tuple[float, float] | None:
    """Learning rate and L2 penalty of a model, from its JSON; None if too few nodes agree on them.

    Parameters
    ----------
    text
        The file.
    """
    try:
        booster = json.loads(text)["learner"]["gradient_booster"]
        terms = np.concatenate([_terms(tree) for tree in booster["model"]["trees"]])
    except (ValueError, KeyError, TypeError, IndexError):
        return None
    scale = np.abs(terms).max(initial=0.0)
    if len(terms) < _FEWEST_NODES or scale == 0:
        return None
    off = np.ones(len(terms))
    for _ in range(_ROUNDS):  # least absolute deviations, which nodes that disagree do not sway
        root = np.sqrt(1 / np.maximum(off, _EXACT * scale))[:, None]
        known, *_ = np.linalg.lstsq(root * terms[:, :3], root[:, 0] * terms[:, 3], rcond=None)
        off = np.abs(terms[:, :3] @ known - terms[:, 3])
    agree = off <= _EXACT * scale
    if agree.sum() < max(_FEWEST_NODES, _LEAST_SHARE * len(terms)):
        return None
    penalty, rate, _ = np.linalg.lstsq(terms[agree, :3], terms[agree, 3], rcond=None)[0].tolist()
    return (_rounded(rate), _rounded(max(penalty, 0.0))) if 0 < rate <= 1 else None


def _terms(tree: dict[str, Any]) -> Floats:
    """Coefficients of the penalty, the rate and their product at each node above two leaves, and their sum."""
    left, right = np.asarray(tree["left_children"]), np.asarray(tree["right_children"])
    value, hessian, weight = (np.asarray(tree[name]) for name in ("split_conditions", "sum_hessian", "base_weights"))
    above = np.flatnonzero(left >= 0)
    above = above[(left[left[above]] < 0) & (left[right[above]] < 0)]
    a, b = left[above], right[above]
    together = value[a] * hessian[a] + value[b] * hessian[b]
    return np.stack([-(value[a] + value[b]), weight[above] * hessian[above], weight[above], together], axis=1)


def _rounded(value: float) -> float:
    """The number that someone wrote; of a small one, four digits after the decimal point are known."""
    return float(f"{round(value, 4):.4g}")
