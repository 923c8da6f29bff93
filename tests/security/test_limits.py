"""Readers of tables that crash, hang or fill the memory: they do so in a process of their own."""

import json
import sys

import deltalake
import pandas as pd
import pyarrow as pa
import pytest

from evenhand.exceptions import DataFileError
from evenhand.inputs.tables import read_table
from evenhand.system import processes

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("tables_apart")]

PEOPLE = pd.DataFrame({"income": [1.5, 2.5, None], "sex": ["f", "m", "f"]})


@pytest.fixture
def workbook(tmp_path):
    PEOPLE.to_excel(tmp_path / "people.xlsx", index=False)
    return tmp_path / "people.xlsx"


@pytest.fixture
def statistics(tmp_path):
    pyreadstat = pytest.importorskip("pyreadstat")
    pyreadstat.write_sav(PEOPLE, tmp_path / "people.sav")
    return tmp_path / "people.sav"


@pytest.fixture
def lake(tmp_path):
    deltalake.write_deltalake(tmp_path / "loans", pa.Table.from_pandas(PEOPLE))
    return f"delta:{tmp_path / 'loans'}"


@pytest.fixture(params=["workbook", "statistics", "lake"])
def table(request):
    return request.getfixturevalue(request.param)


def test_what_another_process_read_is_the_table(table, monkeypatch):
    asked, answered = [], processes._answered
    monkeypatch.setattr(processes, "_answered", lambda *given: (asked.append(given), answered(*given))[1])
    pd.testing.assert_frame_equal(read_table(table), PEOPLE, check_dtype=False)
    assert len(asked) == 1


READERS = {"workbook": "python_calamine", "statistics": "pyreadstat", "lake": "deltalake"}


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import os; os.kill(os.getpid(), 11)", "its reader crashed while reading it (signal 11)."),
        ("raise MemoryError", "its reader asks for more memory than a file of its size needs."),
        ("bytearray(1 << 62)", "its reader asks for more memory than a file of its size needs."),
        ("while True: pass", "its reader was still reading it after "),
    ],
)
def test_a_reader_that_does_not_end_well_is_told_of_in_a_sentence(request, tmp_path, monkeypatch, code, told):
    """Where the reader is one that does this with any file."""
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(blocked))
    monkeypatch.setattr(processes, "_SECONDS", 1.0)
    for kind, module in list(READERS.items())[: 3 if "kill" in code else 1]:
        given = request.getfixturevalue(kind)
        (blocked / f"{module}.py").write_text(code)
        with pytest.raises(DataFileError) as refused:
            read_table(given)
        assert told in str(refused.value)
        assert str(refused.value).endswith(".")


def test_the_errors_of_such_a_process_are_ours(workbook, statistics):
    workbook.write_bytes(workbook.read_bytes()[:300])
    statistics.write_bytes(statistics.read_bytes()[:90])
    for file in (workbook, statistics):
        with pytest.raises(DataFileError, match=r"people\.\w+' cannot be read: .*\.$"):
            read_table(file)


def test_nothing_beside_the_data_is_imported_and_no_secret_is_an_argument(workbook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("json", "python_calamine", "pyarrow", "evenhand"):
        (tmp_path / f"{name}.py").write_text("import pathlib; pathlib.Path('mark').touch()")
    assert len(read_table(workbook)) == len(PEOPLE)
    assert not (tmp_path / "mark").exists()
    assert processes.module_command("m", "limited") == [sys.executable, "-P", "-m", "m", "limited"]


def test_a_process_with_limits_answers_with_plain_data_only():
    with pytest.raises(RuntimeError, match="TypeError"):
        processes.run_limited("builtins:object", size=0)
    assert processes.run_limited("builtins:sorted", [2, 1], size=0) == [1, 2]
    assert json.loads(processes.answer(json.dumps(["operator:truediv", None, None, 1, 0]).encode()))[1]["kind"] == (
        "ZeroDivisionError"
    )
