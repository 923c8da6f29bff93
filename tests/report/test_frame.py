"""The frame that every page shares."""

import base64
import hashlib
import re

import jinja2
import pytest

from evenhand.report.contents import KeyFigure
from evenhand.report.figures import Figure
from evenhand.report.frame import Section, environment, policy_hash, render_frame, render_sections
from evenhand.report.tables import Table

HOSTILE = '"><script>alert(1)</script>'
TABLE = Table(("name", "value"), ((HOSTILE, "1"),), (False, True), HOSTILE)


def page_of(*sections, **options):
    given = {"kind": "test", "title": "t", "headline": "h", "sentences": [], "key_figures": []}
    return render_sections(**{**given, **options}, sections=sections)


def test_every_text_is_escaped():
    figure = Figure("f", HOSTILE, HOSTILE, HOSTILE, {"mark": "point"}, "", TABLE)
    section = Section("one", HOSTILE, (HOSTILE,), (figure,), (TABLE,), ((HOSTILE, HOSTILE),))
    page = page_of(
        section,
        kind=HOSTILE,
        title=HOSTILE,
        headline=HOSTILE,
        sentences=[HOSTILE],
        key_figures=[KeyFigure(HOSTILE, HOSTILE, HOSTILE)],
        warnings=[HOSTILE],
    )
    assert HOSTILE not in page
    assert "<script>alert" not in page


def test_the_policy_lets_exactly_the_scripts_of_the_page_run():
    page = page_of(Section("one", "One"))
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', page)[1]
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    wanted = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert re.findall(r"'sha256-(.*?)'", policy) == wanted
    assert policy_hash(scripts[0]) == f"'sha256-{wanted[0]}'"


def test_a_verdict_comes_before_the_sections_and_all_are_in_the_contents():
    page = page_of(Section("one", "One"), Section("two", "Two"))
    assert re.findall(r'<section id="(\w+)"', page) == ["verdict", "one", "two"]
    assert re.findall(r'<li><a href="#(\w+)">', page) == ["verdict", "one", "two"]


def test_several_figures_stand_side_by_side_unless_the_section_is_wide():
    figures = tuple(Figure(name, name, "", "", None, "nothing", TABLE) for name in "ab")
    assert '<div class="two">' in page_of(Section("one", "One", figures=figures))
    assert '<div class="two">' not in page_of(Section("one", "One", figures=figures, is_wide=True))


def test_a_value_that_a_template_asks_for_and_does_not_get_is_an_error():
    with pytest.raises(jinja2.UndefinedError, match="is undefined"):
        render_frame("sections.html.jinja", figures=[])
    assert environment() is environment()
