"""Disks, descriptors, memory, folders and signals fail: a sentence, a documented exit code, the old result or the new.

The table in docs/reliability.md says what is tried here, and in tests/auditing/streaming, where workers are killed.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import evenhand as eh
from evenhand import cli
from evenhand.exceptions import InvalidInputError, MissingExtraError
from evenhand.system import files
from evenhand.system.files import only_one, written_together

resource = pytest.importorskip("resource", reason="processes cannot be limited here")

ROLES = ["--label", "paid", "--group", "sex", "--financial", "income,debt", "--no-evidence"]
BATCHES = ["--stream", "--batch-rows", "100", "--n-jobs", "1"]
MANY = 4000


def people(n, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"income": rng.normal(size=n), "debt": rng.normal(size=n), "sex": rng.choice(["f", "m"], n)})
    return table.assign(paid=(table["income"] - table["debt"] + rng.normal(size=n) > 0).astype(int))


@pytest.fixture(scope="module")
def folder():
    """Tables and a model that every user can read."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    table = people(400)
    table.to_csv(place / "people.csv", index=False)
    people(MANY).to_csv(place / "many.csv", index=False)
    model = eh.CECClassifier(financial_features=["income", "debt"], epochs=1, hidden=(4,), random_state=0)
    model.fit(table[["income", "debt"]], table["paid"], sensitive_features=table["sex"]).save(place / "model")
    for path in (place / "model", place / "model" / "model.safetensors"):
        path.chmod(0o755)
    yield place
    shutil.rmtree(place)


@pytest.fixture
def out(folder, monkeypatch):
    """A folder for results; equal results are equal files."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.chdir(folder)
    yield folder / "out"
    shutil.rmtree(folder / "out", ignore_errors=True)


def words(out, way=(), table="people.csv", options=()):
    return ["audit", table, "--model", "model/model.safetensors", *ROLES, *way, *options, "--out", str(out)]


def content(out):
    """Every file below a folder, by its hash, but for the one that says which processes audited."""
    found = [path for path in out.rglob("*") if path.is_file() and path.name != "engine.json"] if out.exists() else []
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


@pytest.fixture
def expected(folder, out, evenhand):
    """What audits of a table leave where nothing fails, by the way in which it is read."""

    def found(way=(), table="people.csv", options=()):
        place = folder / "expected"
        assert evenhand(*words(place, way, table, options))[0] == 0
        try:
            return content(place)
        finally:
            shutil.rmtree(place)

    return found


def assert_said(code, said, codes=(2,)):
    """A code of the table, and a sentence."""
    assert code in codes, said
    assert "Traceback" not in said
    last = said.strip().splitlines()[-1]
    assert last.startswith(("Error: ", "Interrupted.")), said
    assert last.endswith("."), said


# -- what can be done to a run in this process


@contextlib.contextmanager
def full_disk(n_bytes):
    """No file grows beyond some bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.contextmanager
def few_descriptors(n):
    """No more files than these can be open at a time."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    taken = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, hard))
    with contextlib.suppress(OSError):
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    try:
        for _ in range(n):
            os.close(taken.pop())
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


FAULTS = {
    **{f"a disk with room for files of {n:,} bytes": (full_disk, n) for n in (0, 300, 3_000)},
    **{f"{n} descriptors": (few_descriptors, n) for n in (0, 1, 2, 3, 4)},
}


QUICK = (FAULTS["0 descriptors"], FAULTS["2 descriptors"], (full_disk, 0), (full_disk, 3_000))


@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=() if fault in QUICK else pytest.mark.slow) for name, fault in FAULTS.items()]
)
@pytest.mark.parametrize("way", [(), BATCHES], ids=["memory", "batches"])
def test_a_fault_leaves_the_old_result_or_the_new(folder, out, evenhand, expected, way, fault):
    limit, n = FAULTS[fault]
    if limit is few_descriptors and not Path("/proc/self/fd").exists():
        pytest.skip("descriptors are counted as Linux tells them")
    wanted, old = expected(way), {}
    if not way:
        assert evenhand(*words(out, options=["--max-distance", "9"]))[0] == 0
        old = content(out)
        assert old != wanted
    with limit(n):
        code, _, said = evenhand(*words(out, way))
    assert code or (limit is few_descriptors and n)
    if code:
        assert_said(code, said)
    if way:
        assert (code == 0) == (content(out) == wanted)
        assert evenhand(*words(out, way, options=["--resume"]))[0] == 0
        assert content(out) == wanted
    else:
        assert content(out) == (old if code else wanted)


@pytest.mark.usefixtures("real_pages")
def test_pairs_and_numbers_fit_on_the_disk_and_the_page_does_not(out, evenhand):
    with full_disk(300_000):
        code, _, said = evenhand(*words(out))
    assert code == 2, said
    assert f"The audit's files could not be written to '{out}': File too large. None was written; free some" in said
    assert list(out.iterdir()) == []


@contextlib.contextmanager
def another_user():
    """Files of root are not ours anymore."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("way", [(), BATCHES], ids=["memory", "batches"])
def test_a_folder_that_cannot_be_written(out, evenhand, way, is_there):
    out.mkdir()
    (out / "old").write_text("old")
    out.chmod(0o555)
    place = out if is_there else out / "new"
    with another_user():
        code, _, said = evenhand(*words(place, way))
    assert_said(code, said)
    assert "Permission denied" in said
    assert "free some space" not in said
    assert set(content(out)) == {"old"}


def test_a_folder_in_the_place_of_a_file_leaves_the_old_result(out, evenhand):
    assert evenhand(*words(out, options=["--max-distance", "9"]))[0] == 0
    (out / "report.html").unlink()
    (out / "report.html").mkdir()
    old = content(out)
    code, _, said = evenhand(*words(out))
    assert_said(code, said)
    assert "Is a directory. None was written" in said
    assert content(out) == old


# -- one folder, two runs


def test_a_folder_in_use_is_refused_until_it_is_free(tmp_path):
    with only_one(tmp_path), pytest.raises(InvalidInputError, match="Another audit is writing to"), only_one(tmp_path):
        pass
    with only_one(tmp_path):
        assert not list(tmp_path.iterdir())


def test_an_audit_is_not_written_into_one_that_runs(out, evenhand, monkeypatch):
    monkeypatch.setattr(files, "_MOVING_SECONDS", 0.1)
    out.mkdir()
    with only_one(out):
        code, _, said = evenhand(*words(out))
    assert_said(code, said)
    assert "Another audit is writing to" in said
    assert content(out) == {}


def test_the_files_of_two_runs_do_not_mix(tmp_path, monkeypatch):
    """While the files of one are moved, those of the other wait."""
    first_moved, may_go_on, replace = threading.Event(), threading.Event(), Path.replace

    def slowly(path, target):
        moved = replace(path, target)
        if threading.current_thread().name == "slow" and not first_moved.is_set():
            first_moved.set()
            assert may_go_on.wait(10)
        return moved

    def write(text):
        with written_together(tmp_path) as stage:
            for name in "abc":
                (stage / name).write_text(text)
        written.append(text)

    written = []
    monkeypatch.setattr(Path, "replace", slowly)
    slow, quick = (threading.Thread(target=write, args=[name], name=name) for name in ("slow", "quick"))
    slow.start()
    assert first_moved.wait(10)
    quick.start()
    time.sleep(0.1)
    assert written == []
    may_go_on.set()
    slow.join()
    quick.join()
    assert written == ["slow", "quick"]
    assert {path.read_text() for path in tmp_path.iterdir()} == {"quick"}


def test_an_interrupt_between_files_moves_all_of_them(tmp_path, monkeypatch):
    replace, moved = Path.replace, []

    def interrupted(path, target):
        replace(path, target)
        moved.append(target.name)
        if len(moved) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with contextlib.suppress(KeyboardInterrupt), written_together(tmp_path) as stage:
        for name in "abcd":
            (stage / name).write_text("new")
    assert moved == list("abcd")
    assert sorted(path.name for path in tmp_path.iterdir()) == moved


# -- processes of their own


def started(out, way=(), table="people.csv", options=(), **how):
    command = [sys.executable, "-m", "evenhand", *words(out, way, table, options)]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, **pipes, **how)


@pytest.mark.slow
@pytest.mark.parametrize("n_bytes", [10_000, 60_000, 150_000])
@pytest.mark.parametrize("way", [(), BATCHES], ids=["memory", "batches"])
def test_a_disk_that_is_full(folder, out, evenhand, expected, way, n_bytes):
    disk = folder / "disk"
    disk.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={n_bytes}", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        code, _, said = evenhand(*words(disk / "out", way))
        if not way or n_bytes < 100_000:
            assert_said(code, said)
            assert "No space left on device" in said
        if not way:
            assert content(disk) == {}
            return
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        assert evenhand(*words(disk / "out", way, options=["--resume"]))[0] == 0
        assert content(disk / "out") == expected(way)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.slow
def test_a_disk_that_cannot_be_written(folder, evenhand, out):
    disk = folder / "disk"
    disk.mkdir(exist_ok=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(disk)], check=False).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        for way in ((), BATCHES):
            code, _, said = evenhand(*words(disk / "out", way))
            assert_said(code, said)
            assert os.strerror(errno.EROFS) in said
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")]
)
def test_too_little_memory_is_said(monkeypatch, capsys, error):
    def fail(*_arguments, **_options):
        raise error

    monkeypatch.setattr(sys.modules["evenhand.cli.app"], "app", fail)
    monkeypatch.setattr(sys, "argv", ["evenhand", "version"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "Error: There is not enough memory" in capsys.readouterr().err


SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), SIGNALS)
@pytest.mark.parametrize("way", [(), BATCHES], ids=["memory", "batches"])
@pytest.mark.parametrize("seconds", [0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0])
def test_a_signal_at_any_moment(folder, out, evenhand, way, seconds, number, code):
    """Python itself ends one that comes before it has found the program: with -2, -15 or 1 in place of the codes."""
    if not way:
        assert evenhand(*words(out, options=["--max-distance", "9"]))[0] == 0
    old = content(out)
    process = started(out, way, "many.csv")
    time.sleep(seconds)
    process.send_signal(number)
    said = process.communicate()[1]
    if process.returncode in (-number, 1) and seconds < 0.4 and "cli" not in said:
        assert content(out) == old
        return
    assert process.returncode in (code, 0), said
    if process.returncode:
        assert_said(process.returncode, said, [code])
    assert not list(out.glob(".*"))
    if way:
        assert evenhand(*words(out, way, "many.csv", ["--resume"]))[0] == 0
        again = content(out)
        shutil.rmtree(out)
        assert evenhand(*words(out, way, "many.csv"))[0] == 0
        assert again == content(out)
    elif process.returncode:
        assert content(out) == old
    else:
        assert content(out) != old


@pytest.mark.parametrize("error", [ImportError, SystemError])
def test_libraries_without_memory_are_not_missing(monkeypatch, evenhand, error):
    def fail(*_arguments, **_options):
        try:
            raise error("x.so: failed to map segment from shared object, or error return without exception set")
        except error as cause:
            if error is ImportError:
                raise MissingExtraError("x is not installed.") from cause
            raise

    monkeypatch.setattr(sys.modules["evenhand.cli.app"], "app", fail)
    assert evenhand("version")[2].startswith("Error: There is not enough memory")


@pytest.mark.slow
@pytest.mark.parametrize("megabytes", [100, 1100, 3900, 4000])
@pytest.mark.parametrize("way", [(), BATCHES], ids=["memory", "batches"])
def test_too_little_memory(out, way, megabytes):

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    process = started(out, way, "many.csv", preexec_fn=limit)
    said = process.communicate(timeout=120)[1]
    if process.returncode:
        assert_said(process.returncode, said)
        assert not {"audit.json", "report.html"} & set(content(out))
    else:
        assert {"audit.json", "report.html"} <= set(content(out))


@pytest.mark.slow
def test_a_killed_driver_goes_on_to_the_same_json(folder, out, evenhand):
    for n_kept in (0, 3, 20):
        process = started(out, BATCHES, "many.csv", ["--resume"] if n_kept else [])
        while len(list((out / "batches").glob("??????.npz"))) < n_kept or not out.exists():
            time.sleep(0.01)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert not (out / "report.html").exists()
    assert evenhand(*words(out, BATCHES, "many.csv", ["--resume"]))[0] == 0
    again = content(out)
    shutil.rmtree(out)
    assert evenhand(*words(out, BATCHES, "many.csv"))[0] == 0
    assert again == content(out)


@pytest.mark.slow
def test_two_runs_in_one_folder(out):
    """The second is refused; the first ends as if it had been alone."""
    first = started(out, BATCHES, "many.csv")
    while not (out / "batches").exists():
        time.sleep(0.01)
    second = started(out, BATCHES, "many.csv", ["--resume"])
    said = second.communicate()[1]
    first.communicate()
    assert first.returncode == 0
    if second.returncode == 0:  # it began when the first was done
        return
    assert_said(second.returncode, said)
    assert "Another audit is writing to" in said
    assert json.loads((out / "audit.json").read_text())["data"]["n_people"] == MANY
