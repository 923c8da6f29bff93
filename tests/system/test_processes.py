"""Pools of processes, and objects that they share."""

import mmap
import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor, wait

import numpy as np
import psutil
import pytest
import torch

from evenhand.exceptions import StreamError
from evenhand.system.processes import Processes, Workers, parcel
from evenhand.system.threads import Later, Threads, n_cores, sum_in_order

pytestmark = pytest.mark.integration


def test_results_errors_and_prints_arrive():
    with Workers(2) as pool:
        assert sorted(pool.map(abs, [-3, 2, -1])) == [1, 2, 3]
        assert pool.submit(print, "not on the pipe").result() is None
        with pytest.raises(ZeroDivisionError):
            pool.submit(divmod, 1, 0).result()
        processes = {pool.submit(os.getpid).result() for _ in range(5)}
    assert len(processes) <= 2
    assert os.getpid() not in processes
    assert not any(psutil.pid_exists(pid) for pid in processes)


def test_a_killed_process_is_told_of_and_an_error_ends_the_others_at_once():
    def work():
        with Workers(2) as pool:
            victim = pool.submit(os.getpid).result()
            slow = [pool.submit(time.sleep, 60) for _ in range(4)]
            os.kill(victim, signal.SIGKILL)
            for future in wait(slow, return_when="FIRST_EXCEPTION").done:
                future.result()

    start = time.monotonic()
    with pytest.raises(BrokenExecutor, match=r"process \d+ ended with code -9"):
        work()
    assert time.monotonic() - start < 30


def test_processes_end_with_a_parent_that_was_killed(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, time\nfrom evenhand.system.processes import Workers\n"
        "print(Workers(1).submit(os.getpid).result(), flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as parent:
        worker = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    worker.wait(timeout=30)


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


def _mapped(array):
    """Where the file that an array lies in begins and ends in memory."""
    while not isinstance(array, memoryview):
        array = array.base
    assert isinstance(array.obj, mmap.mmap)
    whole = np.frombuffer(array.obj, dtype=np.uint8)
    return range(whole.ctypes.data, whole.ctypes.data + len(whole))


def test_arrays_and_tensors_come_back_as_they_were_and_stay_in_the_file(tmp_path):
    tensor = torch.arange(6000.0).reshape(60, 100)
    value = {
        "array": np.arange(5000.0),
        "fortran": np.asfortranarray(np.arange(6000).reshape(60, 100)),
        "small": np.arange(3),
        "tensor": tensor,
        "transposed": tensor.T[3:],
        "half": torch.ones(4000, dtype=torch.bfloat16),
        "network": torch.nn.Linear(50, 60),
        "nothing": torch.zeros(0, 4),
    }
    with parcel(value, tmp_path) as sent:
        found = pickle.loads(pickle.dumps(sent)).open()
        assert sent.path.stat().st_mode & 0o077 == 0
        size = sent.path.stat().st_size
        for name in ("array", "fortran", "small"):
            np.testing.assert_array_equal(found[name], value[name])
            assert found[name].flags.f_contiguous == value[name].flags.f_contiguous
        assert found["tensor"].data_ptr() in _mapped(found["array"])
        for name in ("tensor", "transposed", "half", "nothing"):
            assert torch.equal(found[name], value[name])
            assert found[name].stride() == value[name].stride()
        for mine, theirs in zip(found["network"].parameters(), value["network"].parameters(), strict=True):
            assert torch.equal(mine, theirs)
            assert mine.requires_grad
        # Memory that was shared is written once, and is shared again; what is changed is changed for one reader only.
        assert found["transposed"].untyped_storage().data_ptr() == found["tensor"].untyped_storage().data_ptr()
        assert size < 8 * 5000 + 8 * 6000 + 4 * 6000 + 2 * 4000 + 4 * 50 * 60 + 10_000
        found["tensor"][0] = -1
        assert torch.equal(sent.open()["tensor"], tensor)
    assert list(tmp_path.iterdir()) == []


def test_what_was_changed_is_not_unpickled(tmp_path):
    with parcel(["a"], tmp_path) as sent:
        content = bytearray(sent.path.read_bytes())
        content[-3] ^= 1
        sent.path.write_bytes(content)
        with pytest.raises(ValueError, match="was changed after it was written"):
            sent.open()
