"""Any model that can be audited, scored on one fold as candidates are."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from evenhand.attribution import Explanation, label_group_baselines
from evenhand.attribution.baselines import categories_without_one
from evenhand.models.dispatch import as_audited_model
from evenhand.searching.figures import Explains, Sight, outcome_of, procedure_of
from evenhand.searching.people import Judging, SearchPeople
from evenhand.training.folds import ComparedFold

__all__ = ["score_model"]


def score_model(model: Any, people: SearchPeople, compared: ComparedFold, judging: Judging) -> dict[str, float]:  # noqa: ANN401
    """Figures of a fitted model on a fold's test people.

    Parameters
    ----------
    model
        Anything that `evenhand.audit` takes.
    people, compared
        Everyone, and the fold.
    judging
        Thresholds and the number of segments.
    """
    fold = compared.fold
    train = people.table.iloc[fold.train].reset_index(drop=True)
    test = people.table.iloc[fold.test].reset_index(drop=True)
    audited = as_audited_model(model, table=train)
    x_train, x_test = audited.encode(train), audited.encode(test)
    n_cells = 2 * fold.n_groups
    trained, categorical = (x_train.cpu().numpy(), fold.y_train, fold.group_train), audited.categorical_inputs
    means = label_group_baselines(*trained, skip_missing=audited.accepts_missing, categorical=categorical)
    without_one = categories_without_one(*trained, categorical).reshape(n_cells, -1) if categorical else None
    sizes = np.bincount(fold.y_train * fold.n_groups + fold.group_train, minlength=n_cells)
    baselines = torch.as_tensor(means.reshape(n_cells, -1), dtype=x_train.dtype, device=x_train.device)
    columns = [str(column) for column in people.table.columns]
    sight = Sight(
        x_train=x_train,
        x_test=x_test,
        baselines=baselines.masked_fill(torch.as_tensor(sizes == 0, device=x_train.device).unsqueeze(-1), 0.0),
        cell_sizes=torch.as_tensor(sizes, device=x_train.device),
        is_financial=torch.as_tensor(
            audited.is_financial(columns, list(people.financial_features)), device=x_train.device
        ),
        join=audited.join_matrix(),
        without_one=None if without_one is None else torch.as_tensor(without_one, dtype=x_train.dtype),
    )

    def explain(x: Tensor, baseline: Tensor) -> Explanation:
        return audited.attribute(x, baseline, judging.n_steps, "segments")

    def decide(logit: Tensor) -> Tensor:
        return audited.probability(logit) >= judging.decision_threshold

    asked = Explains(explain, lambda found, index: found.rows(index), decide)
    procedure = procedure_of(compared, sight, asked, judging.consistency_threshold)
    cells = torch.as_tensor(fold.y_test * fold.n_groups + fold.group_test, device=x_train.device)
    score = audited.probability(explain(x_test, sight.baselines[cells]).logit).cpu().numpy()
    decision = (score >= judging.decision_threshold).astype(np.int64)
    return {**outcome_of(fold, score, decision), **{name: float(value) for name, value in procedure.items()}}
