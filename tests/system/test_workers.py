"""Processes that run functions end when they are told to, when their parent is killed, and never unnoticed."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor, wait

import psutil
import pytest

from evenhand.system.processes import Workers

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
