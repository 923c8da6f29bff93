"""The number of threads changes the time of an audit and not one digit of it."""

from __future__ import annotations

import json

import torch
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

import evenhand as eh


def _summary(n_threads: int) -> str:
    planted = eh.make_planted_bias(12_001, random_state=0)
    people = planted.dataset
    model = LogisticRegression().fit(people.X, people.y)
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        with threadpool_limits(n_threads):
            result = eh.audit(
                model,
                people.X,
                people.y,
                sensitive_features=people.group,
                financial_features=people.financial_features,
                regressions=True,
            )
    finally:
        torch.set_num_threads(before)
    return json.dumps({**result.to_dict(), "created": ""})


def test_the_result_is_the_same_on_any_number_of_threads() -> None:
    assert _summary(7) == _summary(1)
