"""The report as one HTML file that needs no other file and no network."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from evenhand._version import __version__
from evenhand.report.contents import key_figures
from evenhand.report.theme import DARK, LIGHT, VARIABLES, css_variables, theme
from evenhand.report.verdict import verdict

if TYPE_CHECKING:
    import jinja2

    from evenhand.report.contents import ReportContents

__all__ = ["render_card", "render_page", "script_json"]


def render_page(contents: ReportContents) -> str:
    """The page as text.

    Every text of the audit is escaped, data sit in script tags that are not run, and a content policy lets the
    browser run nothing but the two scripts of the page and fetch nothing at all.
    """
    from markupsafe import Markup

    library, script = _vega(), _template_text("page.js")
    drawn = {name: figure.specification for name, figure in contents.figures.items() if figure.specification}
    policy = (
        f"default-src 'none'; script-src {_hash(library)} {_hash(script)}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    style = (
        f":root{{{css_variables(LIGHT)}color-scheme:light}}"
        "@media screen{"
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{css_variables(DARK)}color-scheme:dark}}}}"
        f":root[data-theme=dark]{{{css_variables(DARK)}color-scheme:dark}}"
        "}"
    )
    return (
        _environment()
        .get_template("page.html.jinja")
        .render(
            contents=contents,
            policy=Markup(policy),
            style=Markup(style + _template_text("page.css")),
            charts=script_json({"config": theme(VARIABLES), "charts": drawn}),
            pairs=script_json(contents.explorer),
            library=Markup(library),
            script=Markup(script),
            version=__version__,
        )
    )


def render_card(data: Mapping[str, Any]) -> str:
    """A small card for notebooks, from the plain data of an audit: sentences and key figures, without scripts."""
    text: str = (
        _environment()
        .get_template("card.html.jinja")
        .render(verdict=verdict(data), figures=key_figures(data), warnings=data["warnings"])
    )
    return text


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


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


@cache
def _vega() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script; it comes with the converter, so nothing is fetched."""
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    # Inside a page these two would end or comment out the script; within JavaScript strings the escape is the same.
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FunctionLoader(_template_text),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _template_text(name: str) -> str:
    return (files("evenhand.report") / "templates" / name).read_text(encoding="utf-8")
