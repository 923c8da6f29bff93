"""Draw the charts of docs/calibration.md from calibration.csv: `python docs/results/calibration_figures.py`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import vl_convert

RESULTS = Path(__file__).parent
IMAGES = RESULTS.parent / "images"

FAMILIES = {
    ("linear", True): "Linear, with unrelated inputs",
    ("network", True): "Network, with unrelated inputs",
    ("network", False): "Network, financial features only",
}
FINANCIAL_ONLY = FAMILIES["network", False]
SETTINGS = ["model", "n_irrelevant", "n", "group_share", "shift", "merit_shift", "strength", "ties", "n_onehot"]
CONTROLS = {"weights": "Keeps the person's weights (before)", "reevaluated": "Asks the model again (now)"}
AUDIT, NAIVE, PAPER = "This audit: alarms", "Nearest-neighbor placebo: alarms", "Paper's rule: people in Regime B"
BLUE, ORANGE, GREEN, GRAY = "#0072B2", "#D55E00", "#009E73", "#666666"


def wilson(share: pd.Series, n: pd.Series) -> tuple[pd.Series, pd.Series]:
    """95 % Wilson interval of a share of n data sets."""
    z = 1.96
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * ((share * (1 - share) + z**2 / (4 * n)) / n) ** 0.5 / (1 + z**2 / n)
    return (centre - half).clip(0, 1), (centre + half).clip(0, 1)


def cells() -> pd.DataFrame:
    """Read the rows, with a family and a name each."""
    table = pd.read_csv(RESULTS / "calibration.csv")
    table = table.drop_duplicates([*SETTINGS, "control"]).copy()  # second looks are told in the text
    table["family"] = [FAMILIES.get((m, k > 0)) for m, k in zip(table["model"], table["n_irrelevant"], strict=True)]
    table["group_sizes"] = [f"{100 - round(100 * s)}/{round(100 * s)}" for s in table["group_share"]]
    extra = [
        " ties" if ties else " one-hot" if onehot else " merit" if merit else ""
        for ties, onehot, merit in zip(table["ties"], table["n_onehot"], table["merit_shift"], strict=True)
    ]
    table["cell"] = [
        f"{n:,} people, {sizes}, shift {shift:g}{more}"
        for n, sizes, shift, more in zip(table["n"], table["group_sizes"], table["shift"], extra, strict=True)
    ]
    table["kind"] = table["is_hard"].map({True: "named hard", False: "ordinary"})
    return table


def intervals(table: pd.DataFrame, column: str, title: str, domain: list[float], limits: list[float]) -> alt.FacetChart:
    """Draw a rate with its Monte-Carlo interval for each cell, a panel for each family."""
    table = table.assign(share=table[column])
    table["low"], table["high"] = wilson(table["share"], table["n_simulations"])
    order = list(dict.fromkeys(table.sort_values(["n", "group_share", "shift"], ascending=[True, False, True])["cell"]))
    table = table.assign(**dict(zip(limit_names(limits), limits, strict=True)))
    base = alt.Chart(table[["family", "cell", "share", "low", "high", "kind", *limit_names(limits)]])
    scale = alt.Scale(domain=domain, clamp=True, zero=False)
    x = alt.X("share:Q", title=title, scale=scale, axis=alt.Axis(format="%"))
    y = alt.Y("cell:N", sort=order, title=None, axis=alt.Axis(labelLimit=260))
    color = alt.Color("kind:N", title="Cell", scale=alt.Scale(domain=["ordinary", "named hard"], range=[BLUE, ORANGE]))
    shape = alt.Shape("kind:N", title="Cell", scale=alt.Scale(domain=["ordinary", "named hard"]))
    limit = base.mark_rule(strokeDash=[4, 3], color=GRAY)
    layers = [limit.encode(x=alt.X(f"{name}:Q", scale=scale, title=title)) for name in limit_names(limits)]
    layers += [
        base.mark_rule().encode(x=alt.X("low:Q", scale=scale, title=title), x2="high:Q", y=y, color=color),
        base.mark_point(filled=True, size=45, opacity=1).encode(x=x, y=y, color=color, shape=shape),
    ]
    return faceted(alt.layer(*layers).properties(width=215, height=alt.Step(14)))


def limit_names(limits: list[float]) -> list[str]:
    """Name the columns that hold the limits."""
    return [f"limit_{place}" for place in range(len(limits))]


def rules(table: pd.DataFrame) -> alt.FacetChart:
    """Draw the audit beside the rules it replaces, for people of models that are even-handed by construction."""
    order = list(dict.fromkeys(table.sort_values(["n", "group_share", "shift"], ascending=[True, False, True])["cell"]))
    columns = {"alarms": AUDIT, "alarms_naive": NAIVE, "regime_b": PAPER}
    long = table.melt(["family", "cell"], list(columns), "rule", "share").replace({"rule": columns})
    domain = [AUDIT, NAIVE, PAPER]
    chart = (
        alt.Chart(long)
        .mark_point(filled=True, size=45, opacity=0.9)
        .encode(
            x=alt.X("share:Q", title="Share of data sets, or of people", axis=alt.Axis(format="%")),
            y=alt.Y("cell:N", sort=order, title=None, axis=alt.Axis(labelLimit=260)),
            color=alt.Color("rule:N", title=None, scale=alt.Scale(domain=domain, range=[BLUE, ORANGE, GREEN])),
            shape=alt.Shape("rule:N", title=None, scale=alt.Scale(domain=domain)),
        )
        .properties(width=215, height=alt.Step(14))
    )
    return faceted(chart)


def controls(table: pd.DataFrame) -> alt.FacetChart:
    """Draw the false alarms of networks under the audit's control and under the one it had before."""
    order = list(dict.fromkeys(table.sort_values(["n", "group_share", "shift"], ascending=[True, False, True])["cell"]))
    table = table[["family", "cell", "alarms", "control"]].replace({"control": CONTROLS})
    table["limit_0"], table["limit_1"] = 0.07, 0.12
    domain = list(CONTROLS.values())
    base = alt.Chart(table)
    title = "False alarms at a nominal 5 %"
    points = base.mark_point(filled=True, size=45, opacity=0.9).encode(
        x=alt.X("alarms:Q", title=title, axis=alt.Axis(format="%")),
        y=alt.Y("cell:N", sort=order, title=None, axis=alt.Axis(labelLimit=260)),
        color=alt.Color("control:N", title="Control", scale=alt.Scale(domain=domain, range=[ORANGE, BLUE])),
        shape=alt.Shape("control:N", title="Control", scale=alt.Scale(domain=domain)),
    )
    limit = base.mark_rule(strokeDash=[4, 3], color=GRAY)
    limits = [limit.encode(x=alt.X(f"{name}:Q", title=title)) for name in limit_names([0.07, 0.12])]
    return faceted(alt.layer(*limits, points).properties(width=215, height=alt.Step(14)))


def without_control(fair: pd.DataFrame, kept: pd.DataFrame) -> pd.DataFrame:
    """Take what no control touches from the rows with more data sets, where the audit's excess is exactly 0."""
    untouched = ["alarms_naive", "regime_b"]
    more = fair[SETTINGS].merge(kept[[*SETTINGS, *untouched]], on=SETTINGS, how="left").set_index(fair.index)
    is_few = fair["family"] == FINANCIAL_ONLY
    return fair.assign(**{name: fair[name].where(~is_few, more[name]) for name in untouched})


def power(table: pd.DataFrame) -> alt.LayerChart:
    """Draw the share of data sets in which a planted bias is found, by its strength."""
    table = table.assign(
        groups=[f"{s}, shift {h:g}" for s, h in zip(table["group_sizes"], table["shift"], strict=True)]
    )
    table["low"], table["high"] = wilson(table["alarms"], table["n_simulations"])
    table["target"] = 0.95
    order = list(dict.fromkeys(table["groups"]))
    color = alt.Color(
        "groups:N",
        title="Groups",
        sort=order,
        scale=alt.Scale(domain=order, range=["#000000", BLUE, GREEN, "#CC79A7", ORANGE]),
    )
    shape = alt.Shape("groups:N", title="Groups", sort=order, scale=alt.Scale(domain=order))
    base = alt.Chart(table[["strength", "alarms", "low", "high", "groups", "target"]])
    x = alt.X("strength:Q", title="Planted strength")
    y = alt.Y("alarms:Q", title="Power at 5 %, 2,000 people", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    return styled(
        alt.layer(
            base.mark_rule(strokeDash=[4, 3], color=GRAY).encode(y="target:Q"),
            base.mark_line().encode(x=x, y=y, color=color),
            base.mark_rule().encode(x=x, y=alt.Y("low:Q", title=""), y2="high:Q", color=color),
            base.mark_point(filled=True, size=60, opacity=1).encode(x=x, y=y, color=color, shape=shape),
        ).properties(width=420, height=280)
    )


def faceted(chart: Any) -> alt.FacetChart:  # noqa: ANN401 - any kind of chart
    """Give each family of models a panel."""
    header = alt.Header(title=None, labelFontSize=12, labelFontWeight="bold")
    return styled(chart.facet(alt.Facet("family:N", header=header, sort=list(FAMILIES.values())), columns=3))


def styled(chart: Any) -> Any:  # noqa: ANN401 - any kind of chart
    """Set fonts and colours."""
    return (
        chart.configure(font="Helvetica, Arial, sans-serif", background="white")
        .configure_axis(labelFontSize=10, titleFontSize=11, titleFontWeight="normal", gridColor="#e6e6e6")
        .configure_legend(orient="bottom", labelFontSize=11, titleFontSize=11, labelLimit=300)
        .configure_view(stroke="#bbbbbb")
    )


def main() -> None:
    """Write the five charts."""
    table = cells()
    now = table[table["control"] == "reevaluated"]
    kept = table[table["control"] == "weights"]
    fair = now[(now["strength"] == 0) & now["family"].notna()]
    noisy = fair[fair["family"] != FINANCIAL_ONLY]  # the others are exactly 0
    networks = table[table["model"] == "network"]
    charts = {
        "calibration_false_alarms": intervals(
            noisy, "alarms", "False alarms at a nominal 5 %", [0, 0.2], [0.05, 0.07, 0.12]
        ),
        "calibration_control": controls(networks),
        "calibration_rules": rules(without_control(fair, kept)),
        "calibration_power": power(now[now["strength"] > 0]),
        "calibration_coverage": intervals(
            noisy, "coverage", "Coverage of 95 % intervals", [0.8, 1], [0.92, 0.95, 0.98]
        ),
    }
    for name, chart in charts.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Altair's own
            svg = vl_convert.vegalite_to_svg(chart.to_json())
        (IMAGES / f"{name}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
