import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evenhand.system.files import remove_stale, write_atomically, written_together


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "sub" / "a.txt"
    with write_atomically(target) as temporary:
        temporary.write_text("old")

    def fail():
        with write_atomically(target) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [p.name for p in target.parent.iterdir()] == ["a.txt"]
    assert target.read_text() == "old"


@pytest.mark.integration
def test_what_killed_writers_left_is_removed_and_what_others_write_is_not(tmp_path):
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom evenhand.system.files import write_atomically\n"
        "with write_atomically(Path(sys.argv[1]) / 'a.b.npz') as temporary:\n"
        "    temporary.write_text('half')\n    print(temporary.name, flush=True)\n    time.sleep(60)\n"
    )
    (tmp_path / ".hidden.txt").write_text("a user's")
    with subprocess.Popen([sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE, text=True) as writer:
        left = tmp_path / writer.stdout.readline().strip()
        remove_stale([tmp_path])
        assert left.read_text() == "half"
        writer.kill()
    remove_stale([tmp_path])
    assert [path.name for path in tmp_path.iterdir()] == [".hidden.txt"]


def test_temporary_files_of_other_machines_go_when_they_are_old(tmp_path):
    young, old = tmp_path / ".a.00000000-1-0a0b0c0d.npz", tmp_path / ".b.00000000-1-0a0b0c0d"
    for path in (young, old):
        path.write_text("")
    two_days_ago = time.time() - 2 * 24 * 3600
    os.utime(old, (two_days_ago, two_days_ago))
    remove_stale([tmp_path, tmp_path / "absent"])
    assert list(tmp_path.iterdir()) == [young]


@pytest.mark.integration
@pytest.mark.parametrize("write", [write_atomically, written_together])
def test_the_next_writer_removes_what_a_killed_one_left_of_files_written_together(write, tmp_path):
    script = (
        "import os, signal, sys\nfrom evenhand.system.files import written_together\n"
        "with written_together(sys.argv[1]) as stage:\n"
        "    (stage / 'audit.json').write_text('half')\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path], check=False)
    assert [path.name for path in tmp_path.glob(".*/*")] == ["audit.json"]
    with write(tmp_path if write is written_together else tmp_path / "report.html"):
        assert not list(tmp_path.glob(".*/*"))


@pytest.mark.integration
def test_a_full_disk_names_the_file(tmp_path):
    """A limit on the size of a file stands in for the disk."""
    script = (
        "import resource\nfrom evenhand.system.files import write_text\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n    write_text('sub/page.html', 'x' * 9999)\n"
        "except OSError as error:\n    print(error.strerror, error.filename)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"File too large {Path('sub', 'page.html')}"
    assert not list((tmp_path / "sub").iterdir())
