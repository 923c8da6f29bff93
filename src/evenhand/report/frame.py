"""The frame of every page: one HTML file with its style, scripts and charts; nothing is fetched to show it."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from evenhand._version import __version__
from evenhand.report.theme import DARK, LIGHT, VARIABLES, css_variables, theme

if TYPE_CHECKING:
    import jinja2

    from evenhand.report.contents import KeyFigure
    from evenhand.report.figures import Figure
    from evenhand.report.tables import Table

__all__ = ["Section", "environment", "policy_hash", "render_frame", "render_sections", "script_json"]


@dataclass(frozen=True)
class Section:
    """A part of a page: paragraphs, then figures, then tables, then points.

    Attributes
    ----------
    id, title
        What links go to, and the heading.
    paragraphs, figures, tables
        What stands below it.
    points
        Names and sentences of a list.
    is_wide
        Whether each of several figures takes the whole width.
    """

    id: str
    title: str
    paragraphs: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    points: tuple[tuple[str, str], ...] = ()
    is_wide: bool = False


def render_frame(
    template: str, *, figures: Sequence[Figure], scripts: Sequence[str] = ("frame.js",), **values: object
) -> str:
    """A page as text: a template that extends ``frame.html.jinja``, with style, charts and scripts in it.

    Every text is escaped, data sit in script tags that are not run, and a content policy lets the browser run nothing
    but the charts' library and `scripts`, and fetch nothing at all.

    Parameters
    ----------
    template, scripts
        Names of files among the templates.
    figures
        Figures whose charts are drawn.
    values
        What the template asks for.
    """
    from markupsafe import Markup

    library, script = _chart_library(), "\n".join(_template_text(name) for name in scripts)
    drawn = {figure.name: figure.specification for figure in figures if figure.specification}
    policy = (
        f"default-src 'none'; script-src {policy_hash(library)} {policy_hash(script)}; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    text: str = (
        environment()
        .get_template(template)
        .render(
            values,
            policy=Markup(policy),
            style=Markup(_colors() + _template_text("page.css")),
            charts=script_json({"config": theme(VARIABLES), "charts": drawn}),
            library=Markup(library),
            script=Markup(script),
            version=__version__,
        )
    )
    return text


def render_sections(
    *,
    kind: str,
    title: str,
    headline: str,
    sentences: Sequence[str],
    key_figures: Sequence[KeyFigure],
    sections: Sequence[Section],
    warnings: Sequence[str] = (),
) -> str:
    """A page of sections below a verdict, in the look of the report.

    Parameters
    ----------
    kind, title
        What the page is, beside the name of the library, and its heading.
    headline, sentences, key_figures, warnings
        The verdict.
    sections
        What comes after the verdict.

    Examples
    --------
    >>> text = render_sections(kind="example", title="A & B", headline="Nothing moved.", sentences=[], key_figures=[],
    ...                        sections=[Section("limits", "Limits", ("There are some.",))])
    >>> "A &amp; B" in text, '<section id="limits"' in text
    (True, True)
    """
    return render_frame(
        "sections.html.jinja",
        figures=[figure for section in sections for figure in section.figures],
        kind=kind,
        title=title,
        headline=headline,
        sentences=sentences,
        key_figures=key_figures,
        warnings=warnings,
        sections=sections,
        entries=[("verdict", "Verdict"), *((section.id, section.title) for section in sections)],
    )


def script_json(data: Mapping[str, Any]) -> Any:  # noqa: ANN401 - markupsafe.Markup
    r"""JSON that is safe inside a script tag: it holds no character that HTML or old JavaScript could read otherwise.

    Examples
    --------
    >>> print(script_json({"name": "</script>"}))
    {"name":"\u003c/script\u003e"}
    """
    from markupsafe import Markup

    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def policy_hash(script: str) -> str:
    """The source expression by which a content policy lets one script run.

    Examples
    --------
    >>> policy_hash("")
    "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
    """
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


@cache
def environment() -> jinja2.Environment:
    """Templates of this package, with every value escaped and unknown names an error."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FunctionLoader(_template_text),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _colors() -> str:
    """Colors of both themes as variables; the reader's choice goes before the system's, and paper is light."""
    light, dark = f"{css_variables(LIGHT)}color-scheme:light", f"{css_variables(DARK)}color-scheme:dark"
    return (
        f":root{{{light}}}"
        "@media screen{"
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}"
        f":root[data-theme=dark]{{{dark}}}"
        "}"
    )


@cache
def _chart_library() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script; it comes with the converter, so nothing is fetched."""
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    # Inside a page these two would end or comment out the script; within JavaScript strings the escape is the same.
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _template_text(name: str) -> str:
    return (files("evenhand.report") / "templates" / name).read_text(encoding="utf-8")
