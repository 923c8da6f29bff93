from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from evenhand.exceptions import InvalidInputError
from evenhand.models.dispatch import as_audited_model
from evenhand.models.gradient import DifferentiableModel
from evenhand.searching.scoring import check_effect_columns, column_effects
from evenhand.training import StackedNetwork


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"income": rng.normal(size=300), "debt": rng.integers(0, 5, 300), "up down": rng.random(300)})
    y = (table["income"] - table["debt"] + 4 * np.sin(6 * table["up down"]) + rng.normal(size=300) > -1).astype(int)
    return table, y


def test_a_linear_model_moves_by_its_coefficient_all_the_way(people):
    table, y = people
    model = LogisticRegression().fit(table, y)
    found = column_effects(as_audited_model(model, table=table), table, table[:50], "income", np.ones((1, 50)))
    low, high = np.quantile(table["income"], [0.02, 0.98], method="nearest")
    assert found["effect[income]"].tolist() == pytest.approx([model.coef_[0, 0] * (high - low)], rel=1e-5)
    assert found["falls[income]"].tolist() == [0.0]
    assert found["rises[income]"].tolist() == pytest.approx([1.0])
    falling = column_effects(as_audited_model(model, table=table), table, table[:50], "debt", np.ones((1, 50)))
    assert falling["falls[debt]"].tolist() == pytest.approx([1.0])
    assert falling["rises[debt]"].tolist() == [0.0]


def test_steps_against_a_sign_are_those_of_brute_force(people):
    table, y = people
    model = DecisionTreeClassifier(max_depth=6, random_state=0).fit(table, y)
    weights = np.random.default_rng(1).random((2, 60))
    test = table[:60]
    found = column_effects(as_audited_model(model, table=table), table, test, "up down", weights)
    values = np.unique(np.quantile(table["up down"], np.linspace(0.02, 0.98, 9), method="nearest"))
    scores = np.array([model.predict_proba(test.assign(**{"up down": value}))[:, 1] for value in values])
    falls = (np.diff(scores, axis=0) < -1e-5).mean(0)
    assert 0 < falls.mean() < 1
    expected = [np.average(falls, weights=weight) for weight in weights]
    assert found["falls[up down]"].tolist() == pytest.approx(expected)


def test_a_stack_has_the_effects_of_its_networks(people):
    table, _ = people
    columns = table.astype(np.float32)
    stack = StackedNetwork(3, hidden=(8,), seeds=(0, 1))
    whole = DifferentiableModel(stack.layout.networks(stack.flat.detach()), "networks")
    found = column_effects(whole, columns, columns[:40], "income", np.ones((1, 40)))
    for k in range(2):
        alone = DifferentiableModel(stack.member(k), "network")
        expected = column_effects(alone, columns, columns[:40], "income", np.ones((1, 40)))
        for name, values in expected.items():
            assert found[name][k].tolist() == pytest.approx(values.tolist(), abs=1e-6)


def test_a_column_of_one_value_does_nothing(people):
    table, y = people
    table = table.assign(debt=1.0)
    model = LogisticRegression().fit(table, y)
    found = column_effects(as_audited_model(model, table=table), table, table[:5], "debt", np.ones((1, 5)))
    assert [values.tolist() for values in found.values()] == [[0.0]] * 3


def test_columns_that_are_absent_or_words_are_refused(people):
    table = people[0].assign(job="clerk")
    check_effect_columns((), table)
    with pytest.raises(
        InvalidInputError, match=r"names columns absent from the data: \['incme'\]. Did you mean 'income'"
    ):
        check_effect_columns(("incme",), table)
    with pytest.raises(
        InvalidInputError, match="asks which way 'job' moves the score, but it does not contain numbers"
    ):
        check_effect_columns(("job",), table)
