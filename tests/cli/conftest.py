"""What tests of the command line share."""

import sys
from pathlib import Path

import pytest

import evenhand as eh
from evenhand import cli


@pytest.fixture
def real_pages():
    """For tests of what stands on the page or in the workbook of a command."""


@pytest.fixture(autouse=True)
def _pages_take_no_time(request, monkeypatch):
    """Page and workbook, which tests/report is about, would be most of the time of every command."""
    if "real_pages" not in request.fixturenames:
        monkeypatch.setattr(eh.AuditResult, "to_html", lambda _, path, **_options: Path(path).write_text("<html>"))
        monkeypatch.setattr(eh.AuditResult, "to_excel", lambda _, path: Path(path).write_text("sheets"))


@pytest.fixture
def evenhand(monkeypatch, capsys):
    """Runs a command; returns exit code, output and errors."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["evenhand", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    return run
