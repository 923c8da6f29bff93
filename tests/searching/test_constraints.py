from __future__ import annotations

import math

import numpy as np
import pytest

from evenhand.exceptions import InvalidInputError
from evenhand.searching import parse_constraint

MEANS = {
    "best": {"auc": 0.8, "eo_gap": 0.01},
    "unconstrained": {"auc": 0.79, "eo_gap": 0.1, "positive_rate": 0.7, "reasoning_gap": 0.2},
}
REFERENCES = {
    who: {name: np.array([mean - 0.01, mean + 0.01]) for name, mean in metrics.items()}
    for who, metrics in MEANS.items()
}


def judged(text, value, spread=0.0):
    """What a constraint makes of one candidate over two folds, whose distance from the references has this spread."""
    constraint = parse_constraint(text)
    around = np.array([-0.01, 0.01]) if constraint.reference else np.zeros(2)
    values = value + around * constraint.factor + np.array([-spread, spread])
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
        ("acu >= 0.7", r"names no metric: 'acu'. Did you mean 'auc'\?"),
        ("auc >= bset - 0.01", r"compares with 'bset', .* Did you mean 'best'\?"),
        ("auc is good", "A constraint reads like 'auc >= best - 0.01'"),
        ("auc >= best - 0.01; drop", "A constraint reads like"),
        ("positive_rate >= best", "asks for the best positive_rate, of which neither more nor less is better"),
        ("positive_rate within -1 of 0.5", "must allow a distance of 0 or more, got -1"),
        ("eo_gapp within 0.1 of 0.5", "names no metric: 'eo_gapp'"),
        (3, "A constraint must be a text such as"),
    ],
)
def test_a_constraint_that_cannot_be_read_is_refused_with_a_hint(text, message):
    with pytest.raises(InvalidInputError, match=message):
        parse_constraint(text)
