"""The verdict in three sentences, and the excess in two."""

import copy
import math

import numpy as np
import pytest

from evenhand.auditing.verdict import practical_significance, statistical_significance, verdict
from evenhand.metrics.excess import ExcessEstimate

FORBIDDEN = ("fair", "discriminat", "biased")


@pytest.fixture
def data(result):
    return copy.deepcopy(result.to_dict())


def with_excess(data, value, low, high, p, **more):
    data["evidence"]["cec"] |= {"value": value, "ci_low": low, "ci_high": high, "p_value": p, **more}
    return verdict(data)


@pytest.mark.parametrize(
    ("estimate", "kind", "words"),
    [
        ((0.05, 0.03, 0.07, 1e-6), "sizeable", "the whole interval lies above 0.02"),
        ((0.01, 0.005, 0.015, 1e-4), "tiny", "the whole interval lies below 0.02"),
        ((0.03, 0.01, 0.05, 0.002), "unsettled", "whether it exceeds 0.02, the smallest excess of interest, is open"),
        ((0.001, -0.01, 0.012, 0.4), "none found", "an excess above 0.012 is implausible"),
        ((0.01, -0.05, 0.07, 0.4), "none found", "an excess of up to 0.070 remains plausible"),
        ((-0.03, -0.05, -0.01, 0.999), "none found", "no more than chance alone would give"),
    ],
)
def test_the_finding_follows_from_interval_and_p_value(data, estimate, kind, words):
    found = with_excess(data, *estimate)
    assert found.kind == kind
    assert words in found.certainty
    assert "95 % interval" in found.certainty


def test_the_direction_and_size_are_in_the_first_sentence(data):
    assert "differ by 0.050 more between" in with_excess(data, 0.05, 0.03, 0.07, 1e-6).measured
    assert "differ by 0.030 less between" in with_excess(data, -0.03, -0.05, -0.01, 1.0).measured
    assert "differ as much between" in with_excess(data, 0.0002, -0.01, 0.01, 0.5).measured


def test_without_evidence_nothing_is_concluded(without_evidence):
    found = verdict(without_evidence.to_dict())
    assert found.kind == "no evidence"
    assert "not known" in found.certainty
    assert "supports no conclusion" in found.limits


def test_an_excess_that_was_not_estimated_says_why(data):
    found = with_excess(data, math.nan, math.nan, math.nan, math.nan, note="only 4 people could be compared")
    assert found.kind == "not estimated"
    assert "only 4 people could be compared" in found.certainty
    assert found.headline == "Excess not estimated"


def test_a_missing_number_may_also_be_none(data):
    assert with_excess(data, None, None, None, None).kind == "not estimated"


def test_few_independent_people_are_named(data):
    assert "worth only 12 independent ones" in with_excess(data, 0.05, 0.03, 0.07, 1e-6, n_effective=12.0).certainty


def test_constant_decisions_come_before_praise(data):
    data["outcome"]["notes"]["positive_rate"] = "decisions are (almost) constant"
    found = with_excess(data, 0.0, -0.001, 0.001, 0.5)
    assert found.is_constant
    assert found.headline.endswith("decisions hardly vary")
    assert "says nothing good about the model" in found.limits


def test_one_financial_feature_is_singular(data):
    data["settings"]["financial_features"] = ["income"]
    assert "1 financial feature and" in verdict(data).limits


@pytest.mark.parametrize("p", [1e-9, 0.03, 0.2, 0.9])
def test_three_sentences_without_words_that_judge(data, p):
    found = with_excess(data, 0.03, 0.01, 0.05, p)
    for sentence in (found.measured, found.certainty, found.limits):
        assert sentence.endswith(".")
        assert not any(word in sentence.lower() for word in FORBIDDEN)


def test_the_summary_carries_the_verdict(result):
    found = result.to_dict()
    assert found["verdict"] == verdict(found).to_dict()


def _estimate(value, low, high, p, n_effective=500.0, note=""):
    return ExcessEstimate(value, low, high, p, 0.01, 600, n_effective, n_effective - 1, note)


@pytest.mark.parametrize(
    ("estimate", "words"),
    [
        (_estimate(0.05, 0.03, 0.07, 1e-5), "0.050 more than placebo pairs (p < 0.001): more than chance"),
        (_estimate(-0.01, -0.03, 0.01, 0.84), "0.010 less than placebo pairs (p = 0.840): no evidence of an excess"),
        (_estimate(0.05, 0.0, 0.1, 0.04, 12.0), "Few independent people (worth 12)"),
        (_estimate(np.nan, np.nan, np.nan, np.nan, note="no one there"), "cannot be said: no one there."),
    ],
)
def test_statistical_significance_in_words(estimate, words):
    assert words in statistical_significance(estimate)


@pytest.mark.parametrize(
    ("estimate", "words"),
    [
        (_estimate(0.05, 0.03, 0.07, 0.0), "is of practical size"),
        (_estimate(0.005, 0.003, 0.007, 0.0), "too small to matter"),
        (_estimate(0.02, 0.01, 0.03, 0.0), "do not settle"),
        (_estimate(np.nan, np.nan, np.nan, np.nan, note="no one there"), "cannot be judged: no one there."),
    ],
)
def test_practical_significance_in_words(estimate, words):
    assert words in practical_significance(estimate)
