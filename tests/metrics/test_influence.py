"""Influences by bucket: the noise of a difference between two estimates of the same people."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from evenhand.metrics.excess import estimate_excesses, excess_influence
from evenhand.metrics.score_gap import FinanceControls, LeafPeople, group_gaps
from evenhand.metrics.triples import (
    N_BUCKETS,
    KeptTriples,
    Selection,
    bucket_sums,
    folded,
    standard_error_of_difference,
)

N = 200


@dataclass(frozen=True)
class Part:
    """Triples of people who are all in the reference, and the pairs among them."""

    person: np.ndarray
    other: np.ndarray
    own: np.ndarray
    bucket: np.ndarray
    group: np.ndarray
    other_group: np.ndarray
    label: np.ndarray
    scores: np.ndarray

    @property
    def person_row(self):
        return self.person

    @property
    def unit(self):
        return self.person

    def __len__(self):
        return len(self.person)


@dataclass(frozen=True)
class Difference:
    """What is averaged: the scores, people weighing equally."""

    n_columns: int = 2

    def of(self, part):
        count = np.bincount(part.person)[part.person]
        return Selection(None, 1 / count, np.zeros((len(part), 0)), part.scores)


def drawn(rng, of_other=-1.0, shift=0.0):
    """Two models' scores of the same triples: what people add to them is correlated, and so is what triples add.

    A gap has what the person adds less what the match adds; a distance has both.
    """
    group = (np.arange(N) % 2).astype(np.int64)
    person = np.repeat(np.arange(N), 3)
    other = (person + 1 + 2 * rng.integers(0, 15, len(person))) % N
    own = (person + 2 + 2 * rng.integers(0, 15, len(person))) % N
    effect = rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1.2]], N)
    noise = rng.multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]], len(person))
    scores = effect[person] + of_other * effect[other] + 0.5 * noise + shift * np.array([0, 1])
    buckets = rng.permutation(N_BUCKETS)[:N]
    part = Part(
        person, other, own, buckets[person], group[person], group[other], np.zeros(len(person), dtype=np.int64),
        scores,
    )  # fmt: skip
    return part, buckets


def paired(estimates, influence):
    (first, second), errors = estimates, [e.standard_error for e in estimates]
    return second.value - first.value, standard_error_of_difference(*errors, *influence.T), np.hypot(*errors)


def excess_pair(rng):
    part, buckets = drawn(rng, of_other=1.0, shift=0.3)
    parts = KeptTriples(part, N)
    (estimates,) = estimate_excesses([Difference()], parts)
    return paired(estimates, excess_influence([Difference()], parts, buckets)[0])


def gap_pair(rng):
    values = rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1.2]], N)
    part = LeafPeople(
        leaf=rng.integers(0, 8, N),
        group=rng.integers(0, 2, N),
        label=np.zeros(N, dtype=np.int64),
        person=np.arange(N, dtype=np.uint64),
        weight=np.ones(N),
        bucket=rng.permutation(N_BUCKETS)[:N],
        finances=np.zeros((N, 0), dtype=np.float32),
        values=values.astype(np.float32),
        by={},
    )
    controls = FinanceControls(np.zeros((0, 0)))
    (found,) = group_gaps(lambda: [part], controls, [(1, 0)], 2, np.zeros(0, dtype=bool))
    return paired(found.columns, found.influence)


@pytest.mark.parametrize(("estimate", "truth"), [(excess_pair, 0.3), (gap_pair, 0.0)], ids=["excess", "score gap"])
@pytest.mark.slow
def test_a_paired_interval_covers_and_is_narrower_than_the_independent_one(estimate, truth):
    rng = np.random.default_rng(7)
    found = np.array([estimate(rng) for _ in range(300)])
    change, error, independent = found.T
    assert (error < independent).all()
    assert error.mean() < 0.8 * independent.mean()
    covered = np.abs(change - truth) <= 1.96 * error
    assert covered.mean() == pytest.approx(0.95, abs=0.04)
    assert error.mean() == pytest.approx(change.std(), rel=0.15)
    # Independence would claim far more noise than there is.
    assert (np.abs(change - truth) <= 1.96 * independent).mean() > covered.mean()


def test_the_same_estimate_twice_has_a_difference_of_exactly_no_noise():
    part, buckets = drawn(np.random.default_rng(0))
    (influence,) = excess_influence([Difference()], KeptTriples(part, N), buckets)
    assert standard_error_of_difference(0.1, 0.1, influence[:, 0], influence[:, 0]) == 0.0


def test_influences_are_those_of_leaving_rows_out():
    part, buckets = drawn(np.random.default_rng(1))
    (influence,) = excess_influence([Difference()], KeptTriples(part, N), buckets)
    residual = (part.scores - part.scores.mean(axis=0)) / len(part)
    whose = np.column_stack([part.person, part.other, part.own])
    expected = [residual[(whose == v).any(axis=1)].sum(axis=0) for v in range(N)]
    assert influence[buckets] == pytest.approx(np.array(expected))
    assert not influence[np.setdiff1d(np.arange(N_BUCKETS), buckets)].any()


def test_two_that_have_nothing_in_common_have_the_sum_of_their_variances():
    rng = np.random.default_rng(2)
    errors = [standard_error_of_difference(0.3, 0.4, *rng.normal(size=(2, N_BUCKETS))) for _ in range(200)]
    assert np.mean(np.square(errors)) == pytest.approx(0.25, rel=0.01)
    assert stats.normaltest(errors).pvalue > 0.001
    assert standard_error_of_difference(0.3, 0.4, np.zeros(N_BUCKETS), rng.normal(size=N_BUCKETS)) == pytest.approx(0.5)


def test_opposite_influences_add_up():
    influence = np.random.default_rng(3).normal(size=N_BUCKETS)
    assert standard_error_of_difference(0.3, 0.4, influence, -influence) == pytest.approx(0.7)


def test_people_who_share_a_bucket_by_chance_do_not_bias_the_noise():
    """A hundred times as many people as buckets."""
    rng = np.random.default_rng(4)
    n = 100 * N_BUCKETS
    values = rng.multivariate_normal([0, 0], [[1, 0.7], [0.7, 1]], n)
    sums = bucket_sums(values, rng.integers(0, N_BUCKETS, n))
    found = standard_error_of_difference(1.0, 1.0, *sums.T)
    assert found == pytest.approx(np.sqrt(2 * 0.3), rel=0.1)
    coarse = standard_error_of_difference(1.0, 1.0, folded(sums[:, 0], N_BUCKETS // 4), sums[:, 1])
    assert coarse == pytest.approx(found, rel=0.2)
