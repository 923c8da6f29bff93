"""Excesses from triples in parts equal those of `excess_columns` from all at once."""

from dataclasses import asdict, dataclass

import numpy as np
import pytest
import torch

from evenhand.metrics import excess as clustering
from evenhand.metrics.excess import estimate_excesses, excess_columns
from evenhand.metrics.triples import KeptTriples, Selection
from evenhand.system.threads import Threads


@dataclass(frozen=True)
class Some:
    person: np.ndarray
    person_row: np.ndarray
    other: np.ndarray
    own: np.ndarray
    share: np.ndarray
    difference: np.ndarray
    control: np.ndarray

    def __len__(self):
        return len(self.person)

    @property
    def unit(self):
        return self.person

    def take(self, rows):
        return Some(*(values[rows] for values in vars(self).values()))


@dataclass(frozen=True)
class All:
    n_columns: int

    def of(self, part):
        return Selection(None, part.share, part.control, part.difference)


@dataclass(frozen=True)
class InParts:
    """Parts cut between people, and ranges cut through the reference."""

    whole: Some
    n_reference: int
    n_left_out: int = 0

    def parts(self):
        people = np.unique(self.whole.person)
        for chosen in np.array_split(people, 4):
            yield self.whole.take(np.flatnonzero(np.isin(self.whole.person, chosen)))

    def ranges(self):
        for low in range(0, self.n_reference, 7):
            yield self.whole, low, min(low + 7, self.n_reference)


def triples(rng, n_people, n_inside, n_reference=30, n_columns=10):
    """Up to four triples of each person; the first people are of the reference."""
    person = np.repeat(np.arange(n_people), rng.integers(1, 5, n_people))
    row = np.where(person < n_inside, person, -1)
    other, own = np.empty(len(person), dtype=np.int64), np.empty(len(person), dtype=np.int64)
    for i, inside in enumerate(row):
        free = [k for k in range(n_reference) if k != inside]
        other[i], own[i] = rng.choice(free, 2, replace=False)
    count = np.bincount(person)[person]
    difference = rng.normal(size=(len(person), n_columns)) + rng.normal(size=n_reference)[other][:, None]
    return Some(person, row, other, own, 1 / count, difference, rng.normal(size=len(person)))


@pytest.mark.parametrize("n_inside", [0, 12, 30])
@pytest.mark.parametrize("budget", [1 << 25, 40])
def test_parts_and_ranges_give_the_errors_of_all_at_once(rng, monkeypatch, n_inside, budget):
    monkeypatch.setattr(clustering, "_MOST_SUMS", budget)
    monkeypatch.setattr(clustering, "_ESTIMATES_AT_ONCE", 1)
    whole = triples(rng, 30 if n_inside == 30 else 60, n_inside)
    nodes = np.column_stack(
        [np.where(whole.person_row >= 0, whole.person_row, 30 + whole.person), whole.other, whole.own]
    )
    expected = excess_columns(whole.difference, np.zeros_like(whole.difference), nodes, control=whole.control)
    for parts in (KeptTriples(whole, 30), InParts(whole, 30)):
        (found,) = estimate_excesses([All(10)], parts)
        for mine, theirs in zip(found, expected, strict=True):
            first, second = asdict(mine), asdict(theirs)
            assert first.pop("note") == second.pop("note")
            assert first == pytest.approx(second, rel=1e-10)


def test_any_number_of_threads_gives_the_same_bits(rng):
    whole = triples(rng, 60, 12)
    one, three = (estimate_excesses([All(10), All(10)], InParts(whole, 30), Threads(n)) for n in (1, 3))
    assert repr(one) == repr(three)


def test_what_a_part_raises_in_a_thread_is_raised(rng):
    @dataclass(frozen=True)
    class Torn(InParts):
        def parts(self):
            yield self.whole
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        estimate_excesses([All(10)], Torn(triples(rng, 60, 12), 30), Threads(2))


def test_few_people_and_no_questions(rng):
    whole = triples(rng, 8, 0, n_columns=2)
    (found,) = estimate_excesses([All(2)], KeptTriples(whole, 30, n_left_out=3))
    assert [np.isnan(estimate.value) for estimate in found] == [True, True]
    assert found[0].note == "not estimated: 8 people with a triple, at least 10 needed; " + (
        "3 triples without a score left out"
    )
    assert estimate_excesses([], KeptTriples(whole, 30)) == []


def test_sums_of_tensors_are_those_of_arrays(rng):
    parts = InParts(triples(rng, 400, 12), 30)
    arrays, tensors = (estimate_excesses([All(10)], parts, Threads(2), device)[0] for device in (None, "cpu"))
    for expected, found in zip(arrays, tensors, strict=True):
        for name in ("value", "standard_error", "p_value", "df"):
            assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-9), name


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_sums_on_a_gpu_are_those_of_the_cpu_and_the_same_each_time(rng):
    parts = InParts(triples(rng, 400, 12), 30)
    here, *there = (estimate_excesses([All(10)], parts, Threads(2), device)[0] for device in (None, "cuda", "cuda"))
    assert [asdict(estimate) for estimate in there[0]] == [asdict(estimate) for estimate in there[1]]
    for expected, found in zip(here, there[0], strict=True):
        for name in ("value", "standard_error", "p_value", "df"):
            assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-9), name
