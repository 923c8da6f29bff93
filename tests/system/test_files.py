import os
import subprocess
import sys
import time

import pytest

from evenhand.system.files import remove_stale, write_atomically


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
