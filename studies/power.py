"""How often the audit finds planted biases: biased models on real features, next to alternative tests."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from evenhand.arrays import Ints
from evenhand.auditing.audit import audit
from evenhand.auditing.result import AuditResult
from evenhand.inputs.identity import Identity
from evenhand.matching.pairs import MatchReference
from evenhand.matching.placebos import placebo_pairs
from evenhand.metrics.estimate import Estimate
from evenhand.metrics.excess import excess
from evenhand.models.dispatch import as_audited_model
from evenhand.models.explaining import Explainer, HalvedExplainer
from evenhand.models.scoring import joined, score_triples
from studies.related import related_metrics
from studies.study import Line, read_audit
from studies.worlds import (
    BIASES,
    DATA_SETS_PER_MODEL,
    Bias,
    Groups,
    audited_people,
    biased_inputs,
    biased_model,
    draw_groups,
    generator,
    why_absent,
    why_not_explained,
)

_SOURCES = ("german", "adult", "hmda", "taiwan")
_SHARES = (0.5, 0.2, 0.05, 0.02)
_COMPARED = 0.2  # share at which alternative tests are run, too, on the datasets of the first model


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
    half = Identity.of(x, y, group, None).halves(cells)
    halved = HalvedExplainer.of(explainer, x, y, group, half)
    points = MatchReference.of(X[list(finances)], y, group).points
    triples = placebo_pairs(points, y, group, n_neighbors=_NEIGHBORS, n_pairs=_TRIPLES)
    triples = triples.where(halved.has_baseline(cells[triples.person], triples.own))
    seen = halved.see(x, cells, x, triples.person, triples.other, triples.own)
    is_financial = audited.is_financial(list(X.columns), list(finances))
    parts = score_triples(halved, seen, x, x, triples, is_financial)
    scores = joined((part.pair.cec, part.placebo.cec, part.gap, part.placebo_gap) for _, part in parts)
    cec, placebo, gap, placebo_gap = scores
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
    related = related_metrics(model, X, y, group).set_index("name")["p_value"]
    p_values = {
        "former_excess": former_excess(model, X, y, group, finances).p_value,
        "regime_b": result.to_dict()["evidence"]["regime_b"]["p_value"],
        **{name: related[name] for name in ("gpf_fae", "explanation_disparity_auc")},
    }
    return {name: None if pd.isna(p) else float(p) for name, p in p_values.items()}


@dataclass(frozen=True)
class PowerCell:
    """One setting of the study of power.

    Attributes
    ----------
    source, bias, share, n
        Where features come from, what the model does to the second group, that group's share, and the number of people.
        Groups are drawn at random.
    """

    source: str
    bias: Bias
    share: float
    n: int = 1000

    @property
    def sizes(self) -> str:
        """Shares of the groups in percent."""
        return Groups(share=self.share).sizes

    @property
    def name(self) -> str:
        """Such as ``german/half-swap/80-20/1000``."""
        return "/".join([self.source, self.bias.replace(" ", "-"), self.sizes.replace("/", "-"), str(self.n)])

    @property
    def left_out(self) -> str:
        """Why the cell cannot be run here; empty if it can."""
        return why_absent(self.source) or why_not_explained(self.bias)

    def audit(self, replicate: int) -> Line:
        """The results of the audit of dataset number `replicate`, and of the alternative tests."""
        rng = generator(self.name, number=replicate)
        number = replicate // DATA_SETS_PER_MODEL
        model = biased_model(self.source, self.bias, number)
        people = audited_people(self.source, number, self.n, rng)
        group = draw_groups(Groups(share=self.share), people, rng)
        X, finances = biased_inputs(self.bias, people.X, group, rng), list(people.finances)
        start = time.process_time()
        result = audit(
            model,
            X,
            people.y,
            sensitive_features=group,
            financial_features=finances,
            random_state=int(rng.integers(2**31)),
        )
        line = {**read_audit(result), "seconds": time.process_time() - start}
        nothing = dict.fromkeys(ALTERNATIVES)
        is_compared = self.share == _COMPARED and replicate < DATA_SETS_PER_MODEL
        others = alternative_p_values(result, model, X, people.y, group, finances) if is_compared else nothing
        return {**line, "alternatives": others}


CELLS = tuple(PowerCell(source, bias, share) for source in _SOURCES for bias in BIASES for share in _SHARES)
"""Every cell of the study; those without bias show how often each test is wrong."""

QUICK_CELLS = (PowerCell("german", "none", 0.2, 400), PowerCell("german", "half swap", 0.2, 400))
"""Cells of a few seconds, for continuous integration."""
