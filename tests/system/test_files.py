"""Files that are complete or absent, archives, times and TOML."""

import io
import os
import stat
import subprocess
import sys
import time
import tomllib
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.exceptions import ArchiveError, InvalidInputError, InvalidTypeError
from evenhand.system import files as archives
from evenhand.system.files import (
    open_archive,
    remove_stale,
    time_of_writing,
    toml_text,
    write_archive,
    write_atomically,
    written_together,
)


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


def written(path, entries, **options):
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return path


def refused(path, words):
    with pytest.raises(ArchiveError, match=words) as error, open_archive(path):
        pass
    assert "\n" not in str(error.value)


def test_bytes_and_files_come_back_and_order_and_times_play_no_part(tmp_path):
    (tmp_path / "large").write_bytes(b"x" * 3_000_000)
    entries = {"b.bin": tmp_path / "large", "a.txt": b"text"}
    first, second = io.BytesIO(), io.BytesIO()
    write_archive(first, entries)
    (tmp_path / "large").touch()
    write_archive(second, dict(reversed(entries.items())))
    assert first.getvalue() == second.getvalue()
    (tmp_path / "a.zip").write_bytes(first.getvalue())
    with open_archive(tmp_path / "a.zip") as archive:
        assert archive.names == ("a.txt", "b.bin")
        assert archive.read("a.txt") == b"text"
        assert len(archive.read("b.bin")) == 3_000_000
    assert zipfile.ZipFile(tmp_path / "a.zip").testzip() is None


@pytest.mark.parametrize("name", ["../up.txt", "a/../../up.txt", "/etc/passwd", "C:/x", "..\\up.txt"])
def test_a_name_that_leads_out_is_refused(name, tmp_path):
    refused(written(tmp_path / "a.zip", [(name, "x")]), "leads out of the archive")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_twice_is_refused(tmp_path):
    refused(written(tmp_path / "a.zip", [("a", "1"), ("a", "2")]), "more than one entry named 'a'")


def test_what_would_unpack_to_too_much_is_refused_before_it_is_read(tmp_path, monkeypatch):
    bomb = written(tmp_path / "a.zip", [("a", b"\0" * 5_000_000)], compression=zipfile.ZIP_DEFLATED)
    assert bomb.stat().st_size < 10_000
    monkeypatch.setattr(archives, "MOST_BYTES", 1_000_000)
    refused(bomb, "would unpack to 5,000,000 bytes, more than the 1,000,000 expected")
    monkeypatch.setattr(archives, "MOST_ENTRIES", 1)
    refused(written(tmp_path / "b.zip", [("a", ""), ("b", "")]), "has 2 entries, more than the 1 expected")


def test_an_entry_that_lies_about_its_size_gives_no_more_than_it_says(tmp_path):
    path = written(tmp_path / "a.zip", [("a", b"\0" * 100_000)], compression=zipfile.ZIP_DEFLATED)
    lie = path.read_bytes().replace((100_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    path.write_bytes(lie)
    with open_archive(path) as archive, pytest.raises(ArchiveError, match="is damaged"):
        archive.read("a")


def test_an_entry_too_large_for_memory_is_hashed_and_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MOST_IN_MEMORY", 10)
    with open_archive(written(tmp_path / "a.zip", [("a", b"\0" * 100)])) as archive:
        assert len(archive.sha256("a")) == 64
        with pytest.raises(ArchiveError, match="100 bytes, more than the 10 expected"):
            archive.read("a")
        with pytest.raises(ArchiveError, match="has no 'b'"):
            archive.read("b")


def test_links_and_unusual_packing_are_refused(tmp_path):
    link = zipfile.ZipInfo("a")
    link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    refused(written(tmp_path / "a.zip", [(link, "/etc/passwd")]), "encrypted, a link, or compressed in an unusual way")
    refused(written(tmp_path / "b.zip", [("a", "x")], compression=zipfile.ZIP_LZMA), "compressed in an unusual way")


def test_what_is_not_a_zip_file_is_refused(tmp_path):
    (tmp_path / "a.zip").write_bytes(b"no zip file at all")
    refused(tmp_path / "a.zip", "'a.zip' is not a readable zip file")


def test_the_time_is_now_or_the_one_that_is_given(monkeypatch):
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert abs((datetime.now(UTC) - time_of_writing()).total_seconds()) < 5
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert time_of_writing() == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("given", ["soon", "1e400", "9" * 30])
def test_what_is_no_time_is_refused(given, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", given)
    with pytest.raises(InvalidInputError, match="SOURCE_DATE_EPOCH must be a whole number of seconds"):
        time_of_writing()


texts = st.text(st.characters(exclude_categories=["Cs"]))
plain = st.one_of(st.booleans(), st.integers(-(2**62), 2**62), st.floats(allow_nan=False), texts)


@given(st.dictionaries(st.from_regex(r"[a-z_]+", fullmatch=True), st.one_of(
    plain, st.lists(texts), st.dictionaries(texts, st.floats(allow_nan=False))
)))  # fmt: skip
def test_every_value_comes_back(values):
    assert tomllib.loads(toml_text(values)) == values


def test_nothing_is_left_out_and_what_toml_cannot_hold_is_refused():
    assert toml_text({"a": None, "b": ()}) == "b = []\n"
    with pytest.raises(InvalidTypeError, match="got object"):
        toml_text({"a": object()})
