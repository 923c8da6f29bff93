import pytest

from evenhand.system.files import write_atomically


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
