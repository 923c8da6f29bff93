"""Building blocks of charts: points with intervals, guides, labels, and files to save them in."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import altair as alt
import vl_convert

from evenhand.exceptions import InvalidInputError
from evenhand.report.formatting import is_number, shortened
from evenhand.system.files import write_atomically

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'


@dataclass(frozen=True)
class Palette:
    """Colors by purpose.

    Attributes
    ----------
    paper, surface, line
        Background of the page, of cards, and hairlines.
    ink, muted
        Text, and less important text.
    accent, floor
        The audit's pairs, and the placebo pairs they are compared with.
    band
        The range of earlier values in a history.
    regimes, groups
        Colors of the regimes A to D, and of groups in order.
    """

    paper: str
    surface: str
    line: str
    ink: str
    muted: str
    accent: str
    floor: str
    band: str
    regimes: tuple[str, str, str, str]
    groups: tuple[str, ...]


LIGHT = Palette(
    paper="#f7f8fa",
    surface="#ffffff",
    line="#dfe3ea",
    ink="#1b2230",
    muted="#586174",
    accent="#1f5fae",
    floor="#9a5b00",
    band="#e9edf3",
    regimes=("#2a8f74", "#c8500a", "#3f8fd0", "#9c4a91"),
    groups=("#1f5fae", "#d06a12", "#12806a", "#c2749f", "#2b2350", "#b02a4c", "#8a7500", "#5f6b7d"),
)
DARK = Palette(
    paper="#12151b",
    surface="#1a1f28",
    line="#333b49",
    ink="#e8ecf3",
    muted="#a3adbd",
    accent="#7fb4ff",
    floor="#f0b35a",
    band="#28303d",
    regimes=("#4cc3a2", "#f28f4f", "#86c3f5", "#d996cf"),
    groups=("#7fb4ff", "#f59a4a", "#43b595", "#f2b8dc", "#fff3d6", "#9d7bf2", "#b8a02e", "#8d98a8"),
)


def _variable(name: str) -> str:
    return f"var(--{name})"


# In the page, charts are SVG whose colors are CSS variables: they follow the toggle, and print in light colors.
VARIABLES = replace(
    LIGHT,
    **{f.name: _variable(f.name) for f in fields(Palette) if f.name not in ("regimes", "groups")},
    regimes=(_variable("regime-A"), _variable("regime-B"), _variable("regime-C"), _variable("regime-D")),
    groups=tuple(_variable(f"group-{place}") for place in range(len(LIGHT.groups))),
)


def css_variables(palette: Palette) -> str:
    """Declarations of the palette's colors for a style sheet.

    Examples
    --------
    >>> css_variables(LIGHT).split(";")[0]
    '--paper:#f7f8fa'
    """
    plain = asdict(palette)
    regimes, groups = plain.pop("regimes"), plain.pop("groups")
    plain |= {f"regime-{letter}": color for letter, color in zip("ABCD", regimes, strict=True)}
    plain |= {f"group-{place}": color for place, color in enumerate(groups)}
    return "".join(f"--{name}:{color};" for name, color in plain.items())


def theme(palette: Palette = LIGHT) -> dict[str, Any]:
    """Vega-Lite configuration in the palette's colors."""
    text = {"labelColor": palette.muted, "titleColor": palette.ink}
    return {
        "background": "transparent" if palette is VARIABLES else palette.surface,
        "font": FONT,
        "padding": 4,
        "axis": {
            **text,
            "domainColor": palette.line,
            "tickColor": palette.line,
            "gridColor": palette.line,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "titlePadding": 8,
            "labelLimit": 230,
            "labelOverlap": True,
            "labelSeparation": 8,
        },
        "axisY": {"domain": False, "ticks": False, "labelPadding": 8},
        "axisXQuantitative": {"tickCount": 6},
        "legend": {
            **text,
            "orient": "top",
            "title": None,
            "labelFontSize": 12,
            "symbolSize": 90,
            "symbolStrokeWidth": 2,
            "labelLimit": 220,
            "columns": 3,
        },
        "title": {"color": palette.ink},
        "view": {"stroke": None},
        "range": {"category": list(palette.groups), "ordinal": list(palette.regimes)},
        "bar": {"color": palette.accent},
        "point": {"color": palette.accent, "filled": True, "size": 75, "opacity": 1},
        "line": {"color": palette.accent, "strokeWidth": 2.25},
        "style": {
            "interval": {"color": palette.accent, "strokeWidth": 2},
            "zero": {"color": palette.ink, "strokeWidth": 1},
            "guide": {"color": palette.muted, "strokeWidth": 1, "strokeDash": [4, 3]},
            "floor": {"color": palette.floor, "strokeWidth": 2, "strokeDash": [6, 3]},
            "compared": {"color": palette.accent, "strokeWidth": 2},
            "compared-text": {"color": palette.accent, "fontSize": 11},
            "band": {"color": palette.band, "opacity": 1},
            "pairs": {"color": palette.accent, "fillOpacity": 0.25},
            "heat": {"color": palette.accent},
            "guide-text": {"color": palette.muted, "fontSize": 11},
            "floor-text": {"color": palette.floor, "fontSize": 11},
            "corner": {"color": palette.line, "fontSize": 30, "fontWeight": "bold"},
        },
    }


Row = dict[str, Any]
C = TypeVar("C", alt.X, alt.Y)

STEP = 24
"""Height of one row of a chart."""
WIDTH = 560
"""Width of a saved chart; a page sets a different one."""
MOST_FEATURES = 15
"""Number of features that a chart shows."""
_LONGEST_LABEL = 80


class NothingToDrawError(InvalidInputError):
    """The audit has no metrics for this chart."""


def specification(chart: Any, palette: Palette | None = None) -> dict[str, Any]:
    """The Vega-Lite specification of a chart; with a palette, in its colors."""
    with warnings.catch_warnings():
        # Altair inspects its classes with functions that Python is about to remove.
        warnings.simplefilter("ignore", DeprecationWarning)
        plain: dict[str, Any] = chart.to_dict(validate=False)  # validating takes ten times as long
    if palette is not None:
        plain["config"] = theme(palette)
    return plain


def svg_of(plain: dict[str, Any]) -> str:
    """The drawing of a specification; names in it are escaped."""
    return str(vl_convert.vegalite_to_svg(plain))


def png_of(plain: dict[str, Any], ppi: int = 200) -> bytes:
    """A specification as a PNG file with the given pixels per inch."""
    return bytes(vl_convert.vegalite_to_png(plain, ppi=ppi, scale=1))


def save(chart: Any, path: str | os.PathLike[str], palette: Palette | None = LIGHT, *, ppi: int = 200) -> None:
    """Write a chart as SVG, PNG or PDF, depending on the file extension, without a browser or the network.

    Parameters
    ----------
    chart
        Any chart.
    path
        Path of the file.
    palette
        Colors of the theme; None to keep the chart's colors.
    ppi
        Pixels per inch of a PNG.

    Raises
    ------
    InvalidInputError
        If the extension is unknown.
    """
    target = Path(path)
    write: dict[str, Callable[[dict[str, Any]], bytes]] = {
        ".svg": lambda spec: svg_of(spec).encode(),
        ".png": lambda spec: png_of(spec, ppi),
        ".pdf": lambda spec: bytes(vl_convert.vegalite_to_pdf(spec)),
    }
    suffix = target.suffix.lower()
    if suffix not in write:
        raise InvalidInputError(f"A chart is saved as .svg, .png or .pdf, got {target.name!r}; change the extension.")
    content = write[suffix](specification(chart, palette))
    with write_atomically(target) as temporary:
        temporary.write_bytes(content)


def forest(
    rows: Iterable[tuple[object, Mapping[str, Any]]],
    title: str | list[str],
    description: str,
    *,
    zero: float | None = 0.0,
    guides: Sequence[tuple[float, str]] = (),
    percent_axis: bool = False,
    series: Sequence[str] = (),
    legend: str | None = None,
) -> alt.Chart:
    """Labels and estimates as points with intervals; what was not estimated is left out.

    With `series`, an estimate also has a "series", whose points are side by side in different colors under a `legend`.
    It may say what its tooltip shows, in "shown", and of how many "people" it is.
    """
    labeled = [(str(label), row) for label, row in rows if is_number(row["value"])]
    check_any(labeled, "none of its metrics could be estimated")
    known, names = [row for _, row in labeled], [label for label, _ in labeled]
    if series:
        short = dict(zip(dict.fromkeys(names), labels_of([*dict.fromkeys(names)]), strict=True))
        names = [short[name] for name in names]
    else:
        names = labels_of(names)
    shown = [
        {
            **{key: row[key] for key in ("value", "series", "shown", "people") if key in row},
            "label": name,
            **{end: row[end] if is_number(row.get(end)) else row["value"] for end in ("low", "high")},
        }
        for name, row in zip(names, known, strict=True)
    ]
    lines = [value for value, _ in guides] + ([] if zero is None else [zero])
    ends = [row[key] for row in shown for key in ("low", "high")] + lines
    margin = 0.05 * (max(ends) - min(ends) or 1.0)
    domain = [min(ends) - margin, max(ends) + margin]
    labels = list(dict.fromkeys(names))
    form = ".1%" if percent_axis else ".3f"
    numbers: list[Any] = (
        ["shown"] if "shown" in shown[0] else [("value", form), ("low", form, "95% from"), ("high", form, "to")]
    )
    shared: dict[str, Any] = {"y": lines_of(labels)}
    shape, height = {}, STEP * len(labels)
    if series:
        shared["yOffset"] = alt.YOffset("series:N", sort=None, scale=alt.Scale(domain=list(series)))
        shared["color"], shape = group_color(series, "series", legend), {"shape": group_shape(series, "series", legend)}
        height = max(STEP, 16 * len(series)) * len(labels)
    shared["tooltip"] = tooltips(
        "label", *(["series"] if series else []), *numbers, *([("people", ",")] if "people" in shown[0] else [])
    )
    layers: list[Any] = []
    if zero is not None:
        layers.append(chart_of([{"at": zero}]).mark_rule(style="zero").encode(x=alt.X("at:Q")))
    for value, words in guides:
        layers += guide_x(value, words)
    base = chart_of(shown)
    x = quantity(alt.X, "low", title, percent=percent_axis, domain=domain, zero=False)
    layers += [
        base.mark_rule(style="interval").encode(x=x, x2=alt.X2("high:Q"), **shared),
        base.mark_point().encode(x=alt.X("value:Q", title=title), **shared, **shape),
    ]
    return finished(alt.layer(*layers), f"Points with 95% intervals: {description}", height)


def finished(chart: Any, description: str, height: float) -> alt.Chart:
    """The chart with its size, its description and the light colors."""
    sized: alt.Chart = chart  # not a copy by `properties`, which copies every layer twice
    sized.width, sized.height, sized.description = WIDTH, height, description
    sized.config = _configuration()
    return sized


@cache
def _configuration() -> alt.Config:
    return alt.Config(**theme(LIGHT))


def chart_of(rows: Sequence[Row]) -> alt.Chart:
    """A chart of plain rows, without marks yet.

    The rows are a tuple because Altair copies lists, cell by cell, whenever it puts layers together.
    """
    return alt.Chart(alt.InlineData(values=tuple(rows)))


def lines_of(names: Sequence[str], field: str = "label") -> alt.Y:
    """One row per name, in order. The order is the scale's domain: a sort would put the names into code."""
    return alt.Y(f"{field}:N", title=None, sort=None, scale=alt.Scale(domain=list(names)))


def size_of(value: Any) -> float:
    """Absolute value; below all others if the number is missing."""
    return abs(value) if is_number(value) else -1.0


def lines_by_group(
    rows: Sequence[Row],
    x: alt.X,
    y: alt.Y,
    numbers: Sequence[tuple[str, ...]],
    description: str,
    *,
    height: float = 240,
    guides: Sequence[alt.Chart] = (),
    names: Iterable[str] = (),
    order: str | None = None,
    **mark: Any,
) -> alt.Chart:
    """A line for each group, with a color and a dash; the tooltip shows the `numbers`.

    `names` are all groups, if some may have no rows, so that a group has the same color in every chart.
    """
    drawn = chart_of(rows).mark_line(**mark)
    drawn = drawn.encode(
        x=x,
        y=y,
        color=group_color(list(dict.fromkeys([*names, *(row["group"] for row in rows)]))),
        strokeDash=alt.StrokeDash("group:N", legend=None),
        tooltip=tooltips("group", *numbers),
        **({"order": alt.Order(f"{order}:Q")} if order else {}),
    )
    return finished(alt.layer(*guides, drawn), description, height)


def group_color(names: Sequence[str], field: str = "group", title: str | None = None) -> alt.Color:
    """The color of each name, in their order."""
    return alt.Color(f"{field}:N", sort=None, scale=alt.Scale(domain=list(names)), legend=_legend(title))


def group_shape(names: Sequence[str], field: str = "group", title: str | None = None) -> alt.Shape:
    """The shape of each name, in the legend of its color."""
    return alt.Shape(f"{field}:N", sort=None, scale=alt.Scale(domain=list(names)), legend=_legend(title))


def _legend(title: str | None) -> alt.Legend:
    return alt.Legend(title=title, columns=2) if title else alt.Legend()


def quantity(
    channel: type[C],
    field: str,
    title: str | list[str] | None,
    *,
    percent: bool = False,
    **scale: Any,
) -> C:
    """An axis of numbers, such as `quantity(alt.X, "share", "Share of pairs", percent=True, domain=[0, 1])`."""
    more: dict[str, Any] = {"axis": alt.Axis(format="%")} if percent else {}
    more |= {"scale": alt.Scale(**scale)} if scale else {}
    return channel(f"{field}:Q", title=title, **more)


def tooltips(*fields: str | tuple[str, ...]) -> list[alt.Tooltip]:
    """The tooltip: names of texts; numbers as (name, format) or (name, format, title)."""
    found = []
    for field in fields:
        name, form, *title = (field, "") if isinstance(field, str) else field
        more: dict[str, Any] = {"format": form} if form else {}
        more |= {"title": title[0]} if title else {}
        found.append(alt.Tooltip(f"{name}:{'N' if isinstance(field, str) else 'Q'}", **more))
    return found


def guide_y(
    value: float, words: str, style: str, side: Literal["left", "right"] = "right", is_above: bool = True
) -> list[alt.Chart]:
    """A horizontal line with its name at one end."""
    base = chart_of([{"at": value, "words": words}])
    end = alt.XValue("width" if side == "right" else 0)  # type: ignore[no-untyped-call]
    dx, dy = (4 if side == "left" else 0), (-7 if is_above else 9)
    text = base.mark_text(style=f"{style}-text", align=side, dx=dx, dy=dy).encode(
        y=alt.Y("at:Q"), x=end, text=alt.Text("words:N")
    )
    return [base.mark_rule(style=style).encode(y=alt.Y("at:Q")), text]


def guide_x(
    value: float, words: str, style: str = "guide", align: Literal["left", "right"] = "left"
) -> list[alt.Chart]:
    """A vertical line with its name at the top, to the right of the line if it is aligned left."""
    base = chart_of([{"at": value, "words": words}])
    top = alt.YValue(0)  # type: ignore[no-untyped-call]
    dx = 3 if align == "left" else -3
    text = base.mark_text(style=f"{style}-text", align=align, baseline="bottom", dx=dx, dy=-2).encode(
        x=alt.X("at:Q"), y=top, text=alt.Text("words:N")
    )
    return [base.mark_rule(style=style).encode(x=alt.X("at:Q")), text]


def check_any(rows: object, why: str) -> None:
    """Raise `NothingToDrawError` if there are no rows."""
    if not rows:
        raise NothingToDrawError(f"There is nothing to draw: {why}.")


def label_of(name: object) -> str:
    """Make a text printable and limit its length."""
    printable = "".join(character if character.isprintable() else " " for character in str(name))
    return shortened(printable, _LONGEST_LABEL)


def labels_of(names: Sequence[str]) -> list[str]:
    """Labels of limited length that remain distinct."""
    seen: dict[str, int] = {}
    labels = []
    for name in names:
        label = label_of(name)
        seen[label] = seen.get(label, 0) + 1
        labels.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return labels
