"""What is fitted once, on the people that all are matched in and explained from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from evenhand.auditing.options import AuditOptions
from evenhand.auditing.people import People
from evenhand.auditing.triples import EvidenceReference
from evenhand.matching import MatchReference
from evenhand.matching.space import Missing
from evenhand.models.dispatch import as_audited_model
from evenhand.models.explaining import Explainer
from evenhand.models.protocol import AuditedModel
from evenhand.models.risk import RiskModel

__all__ = ["AuditReference", "audited_model", "input_columns"]

_FEW_PEOPLE = 5_000  # with more, what further triples add to the precision is not worth three times the explanations


@dataclass(frozen=True, eq=False)
class AuditReference:
    """Everything that is fitted once, on the people that all are matched in and explained from.

    Attributes
    ----------
    pool
        Those people.
    explainer
        Their baselines.
    matcher
        Their standardized financial features, indexed for matching.
    evidence
        The same, indexed for placebo triples; None where no evidence is wanted.
    """

    model: AuditedModel
    settings: AuditOptions
    pool: People
    explainer: Explainer
    matcher: MatchReference
    evidence: EvidenceReference | None

    @classmethod
    def of(cls, model: AuditedModel, settings: AuditOptions, pool: People, n_people: int) -> AuditReference:
        """Fit standardization, neighbors and baselines on a pool; `n_people` are audited."""
        financial = list(settings.financial_features)
        # A bare network refuses missing values anyway; a model with an encoder of its own has a place for them.
        missing: Missing = "indicator" if model.accepts_missing else "error"
        names = np.asarray(pool.groups.names)[pool.groups.codes]
        device = None if pool.x.device.type == "cpu" else str(pool.x.device)
        F = model.financial_table(pool.table, financial)
        matcher = MatchReference.of(F, pool.labels, names, missing=missing, device=device)
        is_financial = model.is_financial(list(pool.table.columns), financial)
        return cls(
            model=model,
            settings=settings,
            pool=pool,
            explainer=Explainer.of(model, pool.x, pool.labels, pool.groups.codes, settings.n_steps, settings.method),
            matcher=matcher,
            evidence=EvidenceReference.of(
                pool,
                matcher.points,
                is_financial,
                settings.random_state,
                is_wide=model.attribution != "sampled_shapley" and max(n_people, len(pool)) <= _FEW_PEOPLE,
            )
            if settings.evidence
            else None,
        )


def audited_model(model: Any, options: AuditOptions, table: pd.DataFrame) -> AuditedModel:  # noqa: ANN401 - any model
    """The model as the audit sees it, explained as the options say; `table` holds people it is to be asked about."""
    audited = as_audited_model(
        model,
        attribution=options.attribution,
        output=options.output,
        n_permutations=options.n_permutations,
        random_state=options.random_state,
        table=table,
    )
    return RiskModel(audited) if options.favorable == "low" else audited


def input_columns(model: Any) -> list[str] | None:  # noqa: ANN401 - any model
    """Columns that a model names as its inputs; None where it names none."""
    encoder = getattr(model, "encoder_", None) or (model.encoder if isinstance(model, AuditedModel) else None)
    # Of our own models; of scikit-learn; of trees; of ONNX.
    names = None if encoder is None else encoder.names
    for attribute in ("feature_names_in_", "feature_names", "column_names"):
        names = getattr(model, attribute, None) if names is None else names
    return None if names is None else [str(name) for name in names]
