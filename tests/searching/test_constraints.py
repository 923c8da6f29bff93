from __future__ import annotations

import math

import pytest

from evenhand.exceptions import InvalidInputError
from evenhand.searching import parse_constraint

REFERENCES = {
    "best": {"auc": 0.8, "eo_gap": 0.01},
    "unconstrained": {"auc": 0.79, "eo_gap": 0.1, "positive_rate": 0.7, "reasoning_gap": 0.2},
}


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
    assert parse_constraint(text).holds(value, REFERENCES) is holds


def test_complaints_name_the_figure_the_value_and_the_limit():
    told = parse_constraint("auc >= best - 0.01").complaint(0.7, REFERENCES)
    assert told == "auc is 0.7000, below the limit of 0.7900 (`auc >= best - 0.01`)"
    near = parse_constraint("positive_rate within 0.05 of unconstrained").complaint(0.9, REFERENCES)
    assert near == "positive_rate is 0.9000, more than 0.05 from 0.7000 (`positive_rate within 0.05 of unconstrained`)"
    assert "above" in parse_constraint("eo_gap <= unconstrained").complaint(0.2, REFERENCES)
    assert "could not be estimated" in parse_constraint("air >= 0.8").complaint(math.nan, REFERENCES)


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
