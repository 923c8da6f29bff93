"""Processes work through items in order, with functions that carry arrays; what goes wrong there is raised here."""

import os
import pickle
import signal
from concurrent.futures import BrokenExecutor

import numpy as np
import pytest
import torch

from evenhand.exceptions import StreamError
from evenhand.system.processes import Processes, Workers
from evenhand.system.threads import Later, Threads, n_cores, sum_in_order

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def pool():
    with Workers(2) as workers:
        yield workers


@pytest.fixture
def crew(pool, tmp_path):
    return Processes(pool, tmp_path)


def test_results_are_those_of_threads_in_order_and_nothing_is_left(crew, tmp_path):
    table = np.random.default_rng(0).normal(size=(100, 1000))  # large enough to be shared by the processes

    def summed(row):
        return torch.from_numpy(table[row]).cumsum(0), os.getpid(), n_cores()

    found, here = (list(who.in_order(summed, range(100))) for who in (crew, Threads(2)))
    assert all(torch.equal(mine[0], theirs[0]) for mine, theirs in zip(found, here, strict=True))
    assert 1 <= len({process for _, process, _ in found} - {os.getpid()}) <= 2
    assert {cores for _, _, cores in found} == {1}
    assert list(tmp_path.iterdir()) == []


def test_items_are_loaded_in_the_process_that_needs_them(crew):
    loaded = Later(lambda key: (key, os.getpid()), range(6))
    found = list(crew.in_order(lambda item: (*item, os.getpid()), loaded))
    assert [key for key, _, _ in found] == list(range(6))
    assert all(loader == worker != os.getpid() for _, loader, worker in found)


def test_sums_are_those_of_threads_to_the_last_bit(crew):
    values = np.random.default_rng(1).normal(size=37)
    mine, theirs = (sum_in_order(lambda k: float(values[k]), range(37), who) for who in (crew, Threads(3)))
    assert mine == theirs


def test_an_error_is_raised_in_its_turn_with_the_place_it_comes_from(crew, tmp_path):
    def inverse(number):
        return 1 / number

    found = crew.in_order(inverse, [1, 0, 2])
    assert next(found) == 1
    with pytest.raises(ZeroDivisionError) as raised:
        next(found)
    assert "in inverse" in raised.value.__notes__[0]

    def refused(number):
        raise StreamError(f"no {number}")

    with pytest.raises(StreamError, match="no 7") as told:
        list(crew.in_order(refused, [7]))
    assert not hasattr(told.value, "__notes__")
    assert list(tmp_path.iterdir()) == []


def test_a_lost_process_is_told_of(tmp_path):
    def end(number):
        os.kill(os.getpid(), signal.SIGKILL)

    with Workers(1) as pool, pytest.raises(BrokenExecutor, match=r"process \d+ ended with code -9"):
        list(Processes(pool, tmp_path).in_order(end, [0]))
    assert list(tmp_path.iterdir()) == []


def test_sent_to_a_process_it_is_one_thread(crew):
    assert pickle.loads(pickle.dumps(crew)) == Threads(1)
