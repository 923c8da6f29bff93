"""Alternative tests to the four questions, on the same people and the same model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import torch

from evenhand.arrays import Ints
from evenhand.auditing.result import AuditResult
from evenhand.inputs.identity import Identity
from evenhand.matching import MatchReference
from evenhand.matching.placebos import placebo_pairs
from evenhand.metrics.estimate import Estimate
from evenhand.metrics.excess import excess
from evenhand.models.dispatch import as_audited_model
from evenhand.models.explaining import Explainer, HalvedExplainer
from evenhand.models.scoring import joined, score_triples

ALTERNATIVES = {
    "former_excess": "excess as it was",
    "regime_b": "Regime B over placebo",
    "gpf_fae": "GPF_FAE",
    "explanation_disparity_auc": "explanation-disparity AUC",
}
"""Alternative tests, and their names in the tables."""

_NEIGHBORS, _TRIPLES = 16, 4


def former_excess(
    model: Any,
    X: pd.DataFrame,
    y: Ints,
    group: Ints,
    finances: Sequence[str],
) -> Estimate:
    """The excess with equally weighted people and four triples from sixteen neighbors: the audit's first headline.

    Examples
    --------
    >>> import evenhand as eh, numpy as np
    >>> planted = eh.make_planted_bias(400, strength=1.0)
    >>> X = planted.dataset.X
    >>> group = X["group"].to_numpy(dtype=np.int64)
    >>> former_excess(planted.model, X, planted.dataset.y, group, planted.dataset.financial_features).p_value < 0.001
    True
    """
    audited = as_audited_model(model, table=X)
    x, cells = audited.encode(X), y * (group.max() + 1) + group
    explainer = Explainer.of(audited, x, y, group)
    half = Identity.of(x.numpy(), y, group, None).halves(cells)
    halved = HalvedExplainer.of(explainer, x, y, group, half)
    points = MatchReference.of(X[list(finances)], y, group).points
    triples = placebo_pairs(points, y, group, n_neighbors=_NEIGHBORS, n_pairs=_TRIPLES)
    triples = triples.where(halved.has_baseline(cells[triples.person], triples.own))
    seen = halved.see(x, cells, x, triples.person, triples.other, triples.own)
    is_financial = torch.as_tensor(audited.is_financial(list(X.columns), list(finances)))
    parts = score_triples(halved, seen, x, x, triples, is_financial)
    scores = joined((part.pair.cec, part.placebo.cec, part.gap, part.placebo_gap) for _, part in parts)
    cec, placebo, gap, placebo_gap = (column.numpy() for column in scores)
    return excess(cec, placebo, triples.nodes, control=gap - placebo_gap)


def alternative_p_values(
    result: AuditResult,
    model: Any,
    X: pd.DataFrame,
    y: Ints,
    group: Ints,
    finances: Sequence[str],
) -> dict[str, float | None]:
    """The p-value of each alternative; None if it could not be computed."""
    related = result.related_metrics().set_index("name")["p_value"]
    found = {
        "former_excess": former_excess(model, X, y, group, finances).p_value,
        "regime_b": result.to_dict()["evidence"]["regime_b"]["p_value"],
        **{name: related[name] for name in ("gpf_fae", "explanation_disparity_auc")},
    }
    return {name: None if pd.isna(p) else float(p) for name, p in found.items()}
