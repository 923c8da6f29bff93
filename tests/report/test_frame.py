"""The frame that every page shares."""

import base64
import hashlib
import re

import jinja2
import pytest
from markupsafe import Markup

from evenhand.report.frame import Finding, KeyMetric, Panel, Section, environment, policy_hash, render
from evenhand.report.tables import Column, Table

HOSTILE = '"><script>alert(1)</script>'
TABLE = Table(
    "T", HOSTILE, (Column(HOSTILE, "text", "name"), Column("value", "whole")), ({"name": HOSTILE, "value": 1},)
)


def page_of(*sections, kind="test", title="t"):
    return render(kind, title, sections)


def test_every_text_is_escaped():
    named = ((HOSTILE, HOSTILE),)
    section = Section(
        "one",
        HOSTILE,
        (HOSTILE,),
        Finding(HOSTILE, named, (KeyMetric(HOSTILE, HOSTILE, HOSTILE, HOSTILE, (HOSTILE,)),), (HOSTILE,), HOSTILE),
        facts=named,
        folded=(Section("two", HOSTILE, facts=named),),
        panels=(
            Panel("f", HOSTILE, HOSTILE, HOSTILE, {"mark": "point"}, "", TABLE),
            Panel("g", HOSTILE, note=HOSTILE),
        ),
        tables=(TABLE,),
        points=named,
        words=named,
    )
    page = page_of(section, kind=HOSTILE, title=HOSTILE)
    assert HOSTILE not in page
    assert "<script>alert" not in page


def test_the_policy_lets_exactly_the_scripts_of_the_page_run():
    page = page_of(Section("one", "One", panels=(Panel("f", "F", specification={"mark": "point"}),)))
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', page)[1]
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    wanted = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert re.findall(r"'sha256-(.*?)'", policy) == wanted
    assert policy_hash(scripts[0]) == f"'sha256-{wanted[0]}'"
    assert len(scripts) == 2


def test_a_page_without_charts_does_not_carry_their_library():
    page = page_of(Section("one", "One"))
    assert len(re.findall(r"<script>(.*?)</script>", page, re.DOTALL)) == 1
    assert len(page) < 40_000


def test_sections_come_in_order_and_all_are_in_the_contents():
    page = page_of(Section("verdict", "Verdict", finding=Finding("h")), Section("one", "One"), Section("two", "Two"))
    assert re.findall(r'<section id="(\w+)"', page) == ["verdict", "one", "two"]
    assert re.findall(r'<li><a href="#(\w+)">', page) == ["verdict", "one", "two"]


def test_several_charts_stand_side_by_side_unless_they_are_wide():
    def panels(**options):
        return tuple(Panel(name, name, note="nothing", **options) for name in "ab")

    assert 'class="full"' not in page_of(Section("one", "One", panels=panels()))
    assert page_of(Section("one", "One", panels=panels(), is_wide=True)).count('class="full"') == len(panels())
    assert page_of(Section("one", "One", panels=panels(is_wide=True))).count('class="full"') == len(panels())


def test_a_drawing_stands_in_the_page_as_it_is():
    page = page_of(Section("one", "One", panels=(Panel("f", "F", description="bars", svg=Markup("<svg></svg>")),)))
    assert '<div class="drawing" role="img" aria-label="bars"><svg></svg></div>' in page


def test_a_value_that_a_template_asks_for_and_does_not_get_is_an_error():
    with pytest.raises(jinja2.UndefinedError, match="is undefined"):
        environment().get_template("page.html.jinja").render()
    assert environment() is environment()
