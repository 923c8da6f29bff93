"""Colors and fonts of page and charts, defined once; people with any color vision can distinguish the colors."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

__all__ = ["DARK", "FONT", "LIGHT", "VARIABLES", "Palette", "css_variables", "theme"]

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
