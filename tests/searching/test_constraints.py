from __future__ import annotations

import math

import numpy as np
import pytest

from evenhand.exceptions import InvalidInputError
from evenhand.searching import parse_constraint
from evenhand.searching.choice import check_asked
from evenhand.searching.people import SearchPeople

MEANS = {
    "best": {"auc": 0.8, "eo_gap": 0.01},
    "unconstrained": {
        "auc": 0.79,
        "eo_gap": 0.1,
        "positive_rate": 0.7,
        "reasoning_gap": 0.2,
        "profit": -0.5,
        "reasoning_excess": 0.03,
        "approval_rate[women, single]": 0.4,
    },
}
REFERENCES = {
    who: {name: np.array([mean - 0.01, mean + 0.01]) for name, mean in metrics.items()}
    for who, metrics in MEANS.items()
}


def judged(text, value, spread=0.0):
    """What a constraint makes of one candidate over two folds, whose distance from the references has this spread."""
    constraint = parse_constraint(text)
    limits = constraint.limits(
        REFERENCES[constraint.reference][constraint.metric] if constraint.reference else np.zeros(2)
    )
    values = value + limits - limits.mean() + np.array([-spread, spread])
    return constraint.judge(values[None, :], REFERENCES, test_share=1.0)


@pytest.mark.parametrize(
    ("text", "value", "holds"),
    [
        ("auc >= best - 0.01", 0.79, True),
        ("auc >= best - 0.01", 0.7899, False),
        ("auc>=best-.01", 0.795, True),
        ("eo_gap <= unconstrained", 0.1, True),
        ("eo_gap < unconstrained", 0.1, False),
        ("eo_gap <= unconstrained + 1e-2", 0.105, True),
        ("reasoning_gap <= unconstrained * 0.5", 0.1, True),
        ("reasoning_gap <= unconstrained * 0.5", 0.11, False),
        ("air >= 0.8", 0.8, True),
        ("excess <= -0.1", -0.2, True),
        ("positive_rate within 0.05 of unconstrained", 0.66, True),
        ("positive_rate within 0.05 of unconstrained", 0.76, False),
        ("positive_rate within 0.1 of 0.5", 0.6, True),
        ("auc >= 0.5", math.nan, False),
        ("auc >= unconstrained - 1%", 0.7822, True),
        ("auc >= unconstrained - 1%", 0.7820, False),
        ("eo_gap <= unconstrained + 10 %", 0.11, True),
        ("eo_gap <= unconstrained + 10 %", 0.1101, False),
        ("profit >= unconstrained - 10%", -0.54, True),
        ("profit >= unconstrained - 10%", -0.56, False),
        ("positive_rate within 10% of unconstrained", 0.77, True),
        ("positive_rate within 10% of unconstrained", 0.78, False),
        ("positive_rate within 10% of 0.5", 0.6, True),
        ("weighing <= unconstrained", 0.03, True),
        ("approval_rate >= 0.5", 0.5, True),
        ("approval_rate[women, single] >= unconstrained", 0.4, True),
        ("score_gap[income] <= 0.1", 0.1, True),
        ("income increasing", 0.0, True),
        ("income increasing", 0.01, False),
        ("net income decreasing within 0.05", 0.05, True),
        ("income positive", -0.1, False),
        ("income negative", -0.1, True),
    ],
)
def test_a_constraint_holds_where_its_words_say(text, value, holds):
    assert judged(text, value).is_met.tolist() == [holds]


@pytest.mark.parametrize(("value", "holds"), [(0.1005, True), (0.1008, True), (0.14, False), (0.05, True)])
def test_a_limit_is_judged_with_the_noise_of_the_distance_from_it(value, holds):
    """Two folds at -0.02 and +0.02 of the mean, test people as many as training people: a standard error of 0.0346."""
    found = judged("eo_gap <= unconstrained", value, spread=0.02)
    assert found.error[0] == pytest.approx(np.sqrt((1 / 2 + 1) * 2 * 0.02**2))
    assert found.is_met.tolist() == [holds]
    assert found.is_near.tolist() == [holds and value > 0.1]


def test_what_a_column_does_to_the_score_is_judged_without_noise():
    assert not judged("income increasing", 0.01, spread=0.01).is_met
    assert judged("income increasing within 0.02", 0.01, spread=0.01).is_met


def test_complaints_name_the_figure_the_value_and_the_limit():
    told = judged("auc >= best - 0.01", 0.7).complaint(0)
    assert told == "auc is 0.7000, below the limit of 0.7900 (`auc >= best - 0.01`)"
    near = judged("positive_rate within 0.05 of unconstrained", 0.9).complaint(0)
    assert near == "positive_rate is 0.9000, more than 0.05 from 0.7000 (`positive_rate within 0.05 of unconstrained`)"
    noisy = judged("eo_gap <= unconstrained", 0.2, spread=0.02).complaint(0)
    assert "above the limit of 0.1000, by more than a standard error of 0.0346" in noisy
    assert "could not be estimated" in judged("air >= 0.8", math.nan).complaint(0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("acu >= 0.7", r"names an unknown metric: 'acu'. Did you mean 'auc'\?"),
        ("auc >= bset - 0.01", r"compares with 'bset', .* Did you mean 'best'\?"),
        ("auc is good", "A constraint reads like 'auc >= best - 0.01'"),
        ("auc >= best - 0.01; drop", "A constraint reads like"),
        ("positive_rate >= best", "asks for the best positive_rate, but neither more nor less of it is better"),
        ("positive_rate within -1 of 0.5", "must allow a distance of 0 or more, got -1"),
        ("eo_gapp within 0.1 of 0.5", "names an unknown metric: 'eo_gapp'"),
        (3, "A constraint must be a text such as"),
        ("profitt >= unconstrained - 1%", r"names an unknown metric: 'profitt'. Did you mean 'profit'\?"),
        ("weighting <= 0.1", r"names an unknown metric: 'weighting'. Did you mean 'weighing'\?"),
        ("aproval_rate[b] >= 0.1", r"names an unknown metric: 'aproval_rate\[b\]'. Did you mean 'approval_rate'\?"),
        ("income increasing within 1.5", "may allow a share of at least 0 and below 1 of the steps"),
        ("income positive within 0.1", "may allow a share of at least 0 and below 1 of the steps"),
        ("approval_rate[b] >= best", "but neither more nor less of it is better"),
    ],
)
def test_a_constraint_that_cannot_be_read_is_refused_with_a_hint(text, message):
    with pytest.raises(InvalidInputError, match=message):
        parse_constraint(text)


@pytest.fixture(scope="module")
def people(planted):
    data, decided = planted
    return SearchPeople.of(data.X, decided, data.group, data.financial_features, 0.0, 0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("score_gap[incme]", r"'score_gap\[incme\]' names an unknown column: 'incme'. Did you mean 'income'\?"),
        ("approval_rate[group 9]", r"names an unknown group: 'group 9'. Did you mean 'group [01]'\?"),
        ("falls[incme]", r"'falls\[incme\]' names an unknown column: 'incme'. Did you mean 'income'\?"),
        ("profit", "'profit' needs `payoff`"),
    ],
)
def test_metrics_of_what_is_not_there_are_refused(people, name, message):
    check_asked(["auc", "score_gap[income]", "approval_rate[group 1]", "effect[income]"], people, has_payoff=False)
    with pytest.raises(InvalidInputError, match=message):
        check_asked([name], people, has_payoff=False)
