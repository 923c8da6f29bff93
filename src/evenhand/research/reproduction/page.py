"""One self-contained page with every table and figure."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.resources import files

from evenhand.exceptions import MissingExtraError
from evenhand.research.reproduction.tables import Table

__all__ = ["render_page"]


def render_page(
    title: str,
    tables: Sequence[Table],
    figures: Sequence[tuple[str, str]],
    facts: Sequence[tuple[str, str]],
    warnings: Sequence[str] = (),
) -> str:
    """HTML text that needs no other file and no network; every text in it is escaped.

    Parameters
    ----------
    title
        Of the page.
    tables
        In order.
    figures
        Title and SVG text of each.
    facts
        Name and value: settings, data, versions.
    warnings
        Sentences that a reader must see first.

    Examples
    --------
    >>> "&lt;b&gt;" in render_page("<b>", [], [], [])
    True
    """
    try:
        jinja2 = import_module("jinja2")
    except ImportError as error:
        raise MissingExtraError(
            "The page needs jinja2, which is not installed: pip install 'evenhand[experiments]'."
        ) from error
    markup = import_module("markupsafe").Markup
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    source = (files("evenhand.research.reproduction") / "templates" / "page.html.jinja").read_text(encoding="utf-8")
    text: str = environment.from_string(source).render(
        title=title,
        tables=tables,
        figures=[{"title": name, "svg": markup(svg)} for name, svg in figures],  # drawn by us, escaped by the converter
        facts=facts,
        warnings=warnings,
    )
    return text
