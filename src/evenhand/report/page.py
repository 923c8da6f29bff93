"""The report of an audit as one HTML file, and its card for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from evenhand.report.contents import key_figures
from evenhand.report.frame import environment, render_frame, script_json
from evenhand.report.verdict import verdict

if TYPE_CHECKING:
    from evenhand.report.contents import ReportContents

__all__ = ["render_card", "render_page"]

_SECTIONS = (
    ("audited", "What was audited"),
    ("verdict", "Verdict"),
    ("regimes", "Decisions and reasoning"),
    ("excess", "Excess over the placebo floor"),
    ("drivers", "Feature drivers"),
    ("matching", "Match quality"),
    ("outcome", "Outcomes"),
    ("sensitivity", "Sensitivity"),
    ("explorer", "Pair explorer"),
    ("limitations", "Limitations"),
    ("glossary", "Glossary"),
)


def render_page(contents: ReportContents) -> str:
    """The page as text; see `evenhand.report.frame.render_frame` for what keeps it safe."""
    return render_frame(
        "page.html.jinja",
        figures=list(contents.figures.values()),
        scripts=("frame.js", "explorer.js"),
        kind="audit report",
        title=contents.title,
        entries=_SECTIONS,
        contents=contents,
        pairs=script_json(contents.explorer),
    )


def render_card(data: Mapping[str, Any]) -> str:
    """A small card for notebooks, from the plain data of an audit: sentences and key figures, without scripts."""
    text: str = (
        environment()
        .get_template("card.html.jinja")
        .render(verdict=verdict(data), figures=key_figures(data), warnings=data["warnings"])
    )
    return text
