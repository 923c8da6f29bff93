"""The frame of every page: one HTML file with its style, scripts and charts, which downloads nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import vl_convert
from markupsafe import Markup
from platformdirs import user_cache_dir

from evenhand.report.drawing import DARK, LIGHT, VARIABLES, css_variables, specification, theme
from evenhand.report.tables import INTERVAL, Table, shown
from evenhand.system import __version__
from evenhand.system.files import write_text

_ENTRY = "window.vegaEmbed = vegaEmbed;"


@cache
def chart_library() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script; the converter includes it, so nothing is downloaded.

    Building it takes a second, half the time of a small audit, so the script is cached. If the cached file was changed,
    it is built again; if nothing can be cached, the script is built each time.
    """
    kept = Path(user_cache_dir("evenhand", appauthor=False)) / f"charts-{version('vl-convert-python')}.js"
    with suppress(OSError, UnicodeDecodeError):
        digest, _, script = kept.read_text(encoding="utf-8").partition("\n")
        if digest == _digest(script):
            return script
    # Inside a page these two would end or comment out the script; in JavaScript strings the escape is equivalent.
    script = vl_convert.javascript_bundle(_ENTRY).replace("</script", "<\\/script").replace("<!--", "<\\!--")
    with suppress(OSError):
        write_text(kept, f"{_digest(script)}\n{script}")
    return script


def _digest(script: str) -> str:
    return hashlib.sha256((_ENTRY + script).encode()).hexdigest()


@dataclass(frozen=True)
class KeyMetric:
    """A key metric: its name, value and remark; of a question, also the answer, and further lines in small print."""

    name: str
    value: str
    beside: str
    answer: str = ""
    lines: Sequence[str] = ()

    @property
    def texts(self) -> list[str]:
        """Value with remark, and the lines."""
        is_name = self.value and not re.search(r"\d|as many", self.value)
        return [f"{self.value}{':' if is_name else ''} {self.beside}".strip(), *self.lines]


@dataclass(frozen=True, eq=False)
class Panel:
    """A chart on a page.

    Attributes
    ----------
    name
        Target of links; unique on a page.
    title, caption
        Its title, and what to see in it.
    description
        The chart in words, for screen readers.
    specification
        Vega-Lite, without configuration; None if there is nothing to draw.
    note
        Why there is nothing to draw; else empty.
    table
        The numbers behind it.
    is_wide
        Whether it takes the whole width.
    svg
        The drawing itself, instead of a specification, from a converter that escapes names.
    """

    name: str
    title: str
    caption: str = ""
    description: str = ""
    specification: Mapping[str, Any] | None = None
    note: str = ""
    table: Table | None = None
    is_wide: bool = False
    svg: Markup | None = None


def panel_of(name: str, title: str, caption: str, chart: Any, table: Table, *, is_wide: bool = False) -> Panel:
    """A chart with its caption and the table behind it; a text instead of a chart says why there is none."""
    if isinstance(chart, str):
        return Panel(name, title, note=chart, table=table, is_wide=is_wide)
    drawn = specification(chart)
    drawn.pop("config", None)
    return Panel(name, title, caption, drawn["description"], drawn, "", table, is_wide)


@dataclass(frozen=True)
class Finding:
    """The verdict of a page: headline, metrics, sentences with or without names, reservations, what is not shown."""

    headline: str
    sentences: Sequence[tuple[str, str]] = ()
    metrics: Sequence[KeyMetric] = ()
    warnings: Sequence[str] = ()
    limits: str = ""


@dataclass(frozen=True)
class Section:
    """A part of a page; its contents are shown in the order of the attributes.

    Attributes
    ----------
    id, title
        Target of links, and the heading.
    paragraphs, finding
        Prose, and the verdict.
    facts
        Names and values.
    panels, tables, notes
        Charts, tables shown in full, and reservations below them.
    points, words
        Names and sentences of a list, and of a glossary.
    code
        The text of a file, shown verbatim.
    is_wide
        Whether each of several charts takes the whole width.
    is_explorer
        Whether the pair explorer follows.
    folded
        Sections that a reader opens, after everything else.
    """

    id: str
    title: str
    paragraphs: Sequence[str] = ()
    finding: Finding | None = None
    facts: Sequence[tuple[str, str]] = ()
    panels: Sequence[Panel] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    points: Sequence[tuple[str, str]] = ()
    words: Sequence[tuple[str, str]] = ()
    code: str = ""
    is_wide: bool = False
    is_explorer: bool = False
    folded: Sequence[Section] = ()

    @property
    def unfolded(self) -> list[Section]:
        """The section and all that is folded in it."""
        return [self, *(inner for part in self.folded for inner in part.unfolded)]


def render(
    kind: str,
    title: str,
    sections: Sequence[Section],
    *,
    about: Sequence[str] = (),
    pairs: Mapping[str, Any] | None = None,
) -> str:
    """Render a page as text, including style, charts and scripts.

    Every text is escaped, data are in script tags that are not run, and a content policy lets the browser run only the
    charts' library and our scripts, and fetch nothing.

    Parameters
    ----------
    kind, title
        The kind of page, shown next to the name of the library, and its heading.
    sections
        The sections, in order.
    about
        What the page is about, in a few words each, below the heading.
    pairs
        Data of the pair explorer.

    Examples
    --------
    >>> text = render("example", "A & B", [Section("limits", "Limits", ("There are some.",))])
    >>> "A &amp; B" in text, '<section id="limits"' in text
    (True, True)
    """
    panels = [panel for section in sections for part in section.unfolded for panel in part.panels]
    drawn = {panel.name: panel.specification for panel in panels if panel.specification}
    library = chart_library() if drawn else ""
    script = _template_text("page.js") + ("" if pairs is None else "\n" + _template_text("explorer.js"))
    allowed = " ".join(policy_hash(code) for code in (library, script) if code)
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    return (
        environment()
        .get_template("page.html.jinja")
        .render(
            kind=kind,
            title=title,
            about=about,
            sections=sections,
            pairs=None if pairs is None else script_json(pairs),
            policy=Markup(policy),
            style=Markup(style()),
            charts=script_json({"config": theme(VARIABLES), "charts": drawn}),
            library=Markup(library),
            script=Markup(script),
            version=__version__,
        )
    )


def script_json(data: Mapping[str, Any]) -> Markup:
    r"""JSON that is safe inside a script tag: it holds no character that HTML or old JavaScript could misread.

    Examples
    --------
    >>> print(script_json({"name": "</script>"}))
    {"name":"\u003c/script\u003e"}
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def policy_hash(script: str) -> str:
    """The source expression with which a content policy allows one script.

    Examples
    --------
    >>> policy_hash("")
    "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
    """
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


@cache
def environment(*packages: str) -> jinja2.Environment:
    """Templates of this package, or those of others, with every value escaped and unknown names as errors."""
    found = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(name) for name in packages or ("evenhand.report",)]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["shown"] = shown
    found.globals["INTERVAL"] = INTERVAL
    return found


def style() -> str:
    """Colors and style sheet of all pages; the reader's choice overrides the system's, and print is light."""
    light, dark = f"{css_variables(LIGHT)}color-scheme:light", f"{css_variables(DARK)}color-scheme:dark"
    return (
        f":root{{{light}}}"
        "@media screen{"
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}"
        f":root[data-theme=dark]{{{dark}}}"
        "}"
        f"{_template_text('page.css')}"
    )


def _template_text(name: str) -> str:
    return (files("evenhand.report") / "templates" / name).read_text(encoding="utf-8")
