"""Zip files: the same bytes for the same content, and one sentence for a hostile one."""

import io
import stat
import zipfile

import pytest

from evenhand.exceptions import ArchiveError
from evenhand.system import files as archives
from evenhand.system.files import open_archive, write_archive


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
