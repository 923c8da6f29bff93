"""What anyone expects of a command: help without an error, a version, silence, completion of words."""

import os
import subprocess
import sys

import pytest

import evenhand as eh


@pytest.mark.parametrize("arguments", [(), ("data",), ("-h",), ("audit", "-h"), ("data", "save", "-h")])
def test_help_is_no_error(evenhand, arguments):
    code, out, err = evenhand(*arguments)
    assert code == 0
    assert "Usage: evenhand" in out
    assert err == ""


def test_the_version_is_an_option_too(evenhand):
    assert evenhand("--version") == evenhand("version") == (0, f"{eh.__version__}\n", "")


@pytest.mark.parametrize(
    "arguments", [("--quiet", "data", "save"), ("data", "save", "--quiet"), ("data", "save", "-q")]
)
def test_a_quiet_command_does_its_work_and_prints_nothing(evenhand, tmp_path, arguments):
    assert evenhand(*arguments, "german", "--out", tmp_path / "a.csv") == (0, "", "")
    assert (tmp_path / "a.csv").is_file()
    code, out, err = evenhand(*arguments, "nowhere", "--out", tmp_path / "b.csv")
    assert (code, out) == (2, "")
    assert err.startswith("Error: ")
    assert evenhand("version")[1]  # no longer silent


def test_an_unknown_command_is_one_sentence(evenhand):
    code, out, err = evenhand("adit")
    assert (code, out) == (2, "")
    assert err.startswith("Error: No such command 'adit'.")


@pytest.mark.integration
@pytest.mark.parametrize(("words", "expected"), [("evenhand mon", "monitor"), ("evenhand audit --fina", "--financial")])
def test_the_shell_completes_words(words, expected):
    here = {"_EVENHAND_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    code = "import sys; sys.argv = ['evenhand']; from evenhand.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **here}, capture_output=True, text=True)
    assert expected in done.stdout.split()
