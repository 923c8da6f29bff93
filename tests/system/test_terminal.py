"""Signs of life: none of what is quick, lines of what is not."""

import time

import pytest

from evenhand.system.terminal import progress


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test moves."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_quick_work_is_silent_and_long_work_is_not(clock, capsys):
    with progress("steps", 4, after=2.0) as advance:
        advance("read")
        clock[0] += 1.9
        advance("matched")
        assert capsys.readouterr().err == ""
        clock[0] += 0.2
        advance("explained")
        assert capsys.readouterr().err == "steps 3/4 explained\n"
        advance("compared")
    assert capsys.readouterr().err == "steps 4/4 compared\n"


def test_without_patience_the_first_piece_is_told(clock, capsys):
    with progress("steps", 2) as advance:
        advance("read")
    assert capsys.readouterr().err == "steps 1/2 read\n"


@pytest.mark.parametrize(("after", "is_shown"), [(0.0, True), (60.0, False)])
def test_a_bar_appears_on_a_terminal_unless_the_work_is_over_before(monkeypatch, capsys, after, is_shown):
    monkeypatch.setenv("FORCE_COLOR", "1")  # for rich: a terminal
    monkeypatch.setenv("TERM", "xterm")
    with progress("steps", 2, after=after) as advance:
        advance("read")
        if is_shown:
            time.sleep(0.3)
    assert ("steps" in capsys.readouterr().err) == is_shown
