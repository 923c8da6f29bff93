"""Sums of batches: counts of scores, and what is found about a person whatever the batch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.arrays import text_codes
from evenhand.auditing import batches as sums
from evenhand.auditing.batches import ScoreCounts, _by_score
from evenhand.auditing.sections.proxies import screened_people
from evenhand.metrics.outcomes import auc


def _scores(rng, n=3000):
    score = np.round(rng.random(n), 3)
    group, label = rng.integers(0, 3, n), rng.integers(0, 2, n)
    return score, group, label, (score >= 0.5).astype(int), rng.integers(1, 4, n).astype(float)


def test_counts_of_parts_are_those_of_the_whole(rng):
    columns = _scores(rng)
    whole = ScoreCounts.of_people(*columns)
    parts = ScoreCounts.of_people(*(c[:700] for c in columns)) + ScoreCounts.of_people(*(c[700:] for c in columns))
    for name in ("score", "group", "label", "decision", "count", "weight", "square"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(parts, name))
    assert whole.count.sum() == 3000
    assert whole.weight.sum() == columns[4].sum()
    assert whole.square.sum() == (columns[4] ** 2).sum()
    assert (np.diff(whole.score) >= 0).all()
    assert auc(whole.label, whole.score, whole.count) == pytest.approx(auc(columns[2], columns[0]), rel=1e-12)


def test_very_many_scores_are_rounded_and_decisions_are_not(rng, monkeypatch):
    logit = rng.normal(size=20_000) * 3
    score = 1 / (1 + np.exp(-logit))
    score[:2] = [0.0, 1.0]
    label, group = (rng.random(20_000) < score).astype(int), rng.integers(0, 2, 20_000)
    decision = (score >= 0.5).astype(int)
    columns = (score, group, label, decision, np.ones(20_000))
    exact = ScoreCounts.of_people(*columns)
    monkeypatch.setattr(sums, "_MOST_SCORES", 5000)
    monkeypatch.setattr(sums, "_STEPS_PER_LOGIT", 256)
    rounded = ScoreCounts.of_people(*columns)
    parts = ScoreCounts.of_people(*(c[:9000] for c in columns)) + ScoreCounts.of_people(*(c[9000:] for c in columns))
    np.testing.assert_array_equal(rounded.score, parts.score)
    np.testing.assert_array_equal(rounded.count, parts.count)
    assert len(rounded.score) < len(exact.score)
    assert rounded.count.sum() == 20_000
    assert rounded.count @ rounded.decision == decision.sum()
    tied = sum(
        np.bincount(np.unique(rounded.score, return_inverse=True)[1], rounded.count * (rounded.label == y)) / total
        for y, total in ((1, label.sum()),)
    ) @ (
        np.bincount(np.unique(rounded.score, return_inverse=True)[1], rounded.count * (rounded.label == 0))
        / (1 - label).sum()
    )
    error = abs(auc(rounded.label, rounded.score, rounded.count) - auc(label, score))
    assert error <= tied / 2
    assert error < 1e-4


def test_people_who_are_screened_do_not_depend_on_how_they_are_read(monkeypatch):
    monkeypatch.setattr("evenhand.auditing.sections.proxies.PROXY_PEOPLE", 50)
    person = np.arange(1000)
    chosen = screened_people(person, 3)
    assert len(chosen) == 50
    assert (np.diff(chosen) > 0).all()
    shuffled = np.random.default_rng(0).permutation(person)
    np.testing.assert_array_equal(shuffled[screened_people(shuffled, 3)], chosen)
    assert set(screened_people(person, 4).tolist()) != set(chosen.tolist())


def test_texts_have_codes_in_their_order():
    names, codes = text_codes(np.array(["x", "(missing)", "x"]))
    assert names == ("(missing)", "x")
    assert codes.tolist() == [1, 0, 1]


@given(st.lists(st.tuples(st.sampled_from([0.1, 0.2, 0.5]), st.integers(0, 3)), max_size=40))
def test_scores_are_ordered_as_a_full_sort_orders_them(rows):
    score, code = np.array([r[0] for r in rows], dtype=float), np.array([r[1] for r in rows], dtype=np.int64)
    np.testing.assert_array_equal(_by_score(score, code), np.lexsort((code, score)))
