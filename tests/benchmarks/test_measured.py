"""Rows of benchmarks: targets in words are read, and no rounding makes a missed target look met."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def measured():
    spec = importlib.util.spec_from_file_location("evenhand_measured", BENCHMARKS / "measured.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.mark.parametrize(
    ("given", "value", "unit", "target", "is_met"),
    [
        ({"ratio": 39.4, "target": 10, "ours_s": 3.2}, 39.4, "x", 10, True),
        ({"ratio": 3.9, "target": 4.0}, 3.9, "x", 4.0, False),
        ({"ratio": "2.35x the time", "target": "at most 2x the time", "ours_s": 0.06}, 2.35, "x", 2, False),
        ({"ratio": "1.9x the time", "target": 2}, 1.9, "x", 2, True),
        ({"ratio": "2.26x faster", "target": "at least 1.5x faster"}, 2.26, "x", 1.5, True),
        ({"ours_s": 1.67, "target": "under 2 s"}, 1.67, "s", 2, True),
        ({"ours_s": 61.0, "target": "60 s on two cores"}, 61.0, "s", 60, False),
        (
            {"ours_s": 23.5, "theirs_s": 3.5, "ratio": "6.7x the time", "target": "at most 27 s (...)"},
            23.5,
            "s",
            27,
            True,
        ),
        ({"ours_s": 9.0, "target": "under 2,000 MB"}, None, "MB", 2000, None),
        ({"value": 480.0, "unit": "MB", "target": 500, "better": "lower"}, 480.0, "MB", 500, True),
        ({"ours_s": 11.0, "target": 10, "better": "lower"}, 11.0, "s", 10, False),
        ({"ours_s": 11.0}, 11.0, "s", None, None),
    ],
)
def test_a_row_says_what_is_held_against_its_target(measured, given, value, unit, target, is_met):
    row = measured.row_of({"what": "it", **given})
    assert (row.value, row.unit, row.target, row.is_met) == (value, unit, target, is_met)


def test_a_value_is_read_from_the_words_where_only_they_have_it(measured):
    row = measured.row_of({"what": "peak memory above the data: 1,480 MB", "target": "under 500 MB"})
    assert (row.value, row.is_met, row.verdict) == (1480.0, False, "missed by 196%")


def test_a_target_that_cannot_be_read_is_neither_met_nor_missed(measured):
    row = measured.row_of({"what": "it", "ratio": 2.0, "target": "as fast as can be"})
    assert row.is_met is None
    assert "as fast as can be" in measured.markdown(row)


def test_rounding_does_not_hide_a_miss(measured):
    line = measured.markdown(measured.row_of({"what": "it", "ratio": 3.9996, "target": 4.0}))
    assert "| 3.9996 x | ≥ 4.0000 x | missed by 1% |" in line


def test_tables_of_a_page_are_renewed_between_their_marks_only(measured, tmp_path):
    rows = [measured.row_of({"what": "one thing", "ratio": 3.0, "target": 2})]
    path = measured.write_results("one", rows, tmp_path)
    kept = json.loads(path.read_text())
    assert kept["rows"][0]["value"] == 3.0
    assert {"processor", "cores", "load", "python", "libraries", "commit", "date"} <= kept["machine"].keys()
    page = tmp_path / "page.md"
    marks = "<!-- results: one two -->\nold table\n<!-- end of results -->"
    page.write_text(f"Before.\n\n{marks}\n\nAfter.\n")
    measured.renew(page, tmp_path)
    text = page.read_text()
    assert text.startswith("Before.")
    assert text.endswith("After.\n")
    assert "old table" not in text
    assert "| one thing |  |  | 3.00 x | ≥ 2.00 x | met |" in text
    assert "Not measured yet: `two`." in text
    measured.renew(page, tmp_path)
    assert page.read_text() == text


def test_a_question_shows_the_earlier_figure_of_a_different_commit_only(measured, tmp_path):
    question = measured.Question("How long?", "one", "an audit")
    rows = [measured.row_of({"what": "an audit of two people", "ours_s": 3.0, "target": 2})]
    assert question.line(tmp_path) == "| How long? | | not measured yet | | |"
    for folder in (tmp_path, tmp_path / "before"):
        path = measured.write_results("one", rows, folder)
    assert question.line(tmp_path) == "| How long? |  | 3.00 s | ≤ 2.00 s | missed by 50% |"
    earlier = json.loads(path.read_text())
    earlier["machine"]["commit"] = "another"
    earlier["rows"][0]["ours_s"] = 9.0
    path.write_text(json.dumps(earlier))
    assert question.line(tmp_path) == "| How long? | 9.00 s | 3.00 s | ≤ 2.00 s | missed by 50% |"
