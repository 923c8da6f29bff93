"""Threads, and the memory of this process."""

import gc
import os
import sys
import threading

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from evenhand.system import threads
from evenhand.system.threads import available_memory, quick_imports


def _blas():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture
def three_threads():
    """What libraries have when they are told to take three; one that is built for one thread keeps it."""
    with threadpool_limits(limits=3, user_api="blas"):
        yield _blas()


def test_products_stay_on_one_thread_inside(three_threads):
    assert _blas() == three_threads
    with threads.one_blas_thread():
        assert _blas() == {1}
        with threads.one_blas_thread():
            assert _blas() == {1}
        assert _blas() == {1}
    assert _blas() == three_threads


def test_blocks_of_several_threads_inside_one_may_overlap(three_threads):
    """Each leaves while the other is inside, in either order: neither lifts the limit, nor keeps it for ever."""
    both_are_in, seen = threading.Barrier(2), []

    def work():
        with threads.one_blas_thread():
            both_are_in.wait(10)
        seen.append(_blas())

    workers = [threading.Thread(target=work) for _ in range(2)]
    with threads.one_blas_thread():
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert _blas() == {1}
    assert seen == [{1}, {1}]
    assert _blas() == three_threads


def test_an_error_gives_the_threads_back(three_threads):
    with pytest.raises(ZeroDivisionError), threads.one_blas_thread():
        raise ZeroDivisionError
    assert _blas() == three_threads


def test_torch_gets_its_threads_back():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with threads.one_torch_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_cores_are_those_of_this_process(monkeypatch):
    assert 1 <= threads.n_cores() <= os.cpu_count()
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert threads.n_cores() == 1


def test_inside_one_of_several_blocks_there_is_one_core(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: set(range(8)), raising=False)
    elsewhere = []
    with threads.on_this_core():
        assert threads.n_cores() == 1
        other = threading.Thread(target=lambda: elsewhere.append(threads.n_cores()))
        other.start()
        other.join()
    assert elsewhere == [8]
    assert threads.n_cores() == 8


def test_nothing_is_collected_while_modules_are_imported():
    assert gc.isenabled()
    n_before = gc.get_freeze_count()
    with quick_imports():
        assert not gc.isenabled()
        kept = [object() for _ in range(10)]
    assert gc.isenabled()
    assert gc.get_freeze_count() > n_before
    gc.unfreeze()
    del kept


def test_who_turned_collection_off_finds_it_off():
    gc.disable()
    try:
        with quick_imports():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()


def test_available_memory_is_that_of_linux():
    if sys.platform == "linux":
        assert 2**20 < available_memory() < 2**50
    else:
        assert available_memory() is None
