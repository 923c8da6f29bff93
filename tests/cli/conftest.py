"""What tests of the command line share."""

import sys

import pytest

from evenhand import cli


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
