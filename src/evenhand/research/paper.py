"""The settings of Popoola and Sheppard's paper, for training and for audits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evenhand.auditing.options import AuditOptions
from evenhand.inputs.encoding import Encoding
from evenhand.training.settings import PAPER_TRAINING


@dataclass(frozen=True)
class Paper:
    """Settings with which this library computes what the paper defines, and nothing else.

    Where the paper is silent, they are the choices of the reproduction: integer codes, midpoints, the lowest row of
    equally near people, and a regime cutoff of 0.3; see docs/decisions.md. The paper's distance threshold tau is 0
    for "no limit" (Algorithm 1), which is None here: `max_distance=0` would match financial twins only.

    Attributes
    ----------
    training
        Arguments of `CECClassifier`: its objective (Algorithm 2), network, optimizer and encoding.
    audit
        Options of `audit`: decisions at 0.5, 32 steps, no placebo pairs or other evidence.
    encoding
        How categories become numbers, for `TableEncoder` and networks of your own.

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.load_dataset("synthetic", n=400)
    >>> model = eh.CECClassifier(financial_features=data.financial_features, **{**eh.PAPER.training, "epochs": 1})
    >>> _ = model.fit(data.X, data.y, sensitive_features=data.group)
    >>> result = eh.audit(model, data.X, data.y, sensitive_features=data.group,
    ...                   financial_features=data.financial_features, options=eh.PAPER.audit)
    >>> sorted(result.to_dict()["regimes"])
    ['A', 'B', 'C', 'D']
    """

    training: Mapping[str, Any]
    audit: AuditOptions
    encoding: Encoding


PAPER = Paper(
    training=PAPER_TRAINING,
    audit=AuditOptions(
        decision_threshold=0.5,
        consistency_threshold=0.3,
        max_distance=None,
        ties="row",
        evidence=False,
        method="midpoint",
        n_steps=32,
    ),
    encoding=PAPER_TRAINING["encoding"],
)
"""The paper's settings: `CECClassifier(**PAPER.training)`, `audit(..., options=PAPER.audit)`."""
