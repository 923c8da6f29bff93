"""Charts: they draw what was found, for everyone's eyes, in every format."""

import copy
import itertools
import json
import math

import numpy as np
import pytest

from evenhand.auditing.sections import CHARTS, evidence, matching, outcome, pairs, score_gap
from evenhand.exceptions import InvalidInputError
from evenhand.report import drawing
from evenhand.report.drawing import DARK, LIGHT, VARIABLES, css_variables, theme

NEED_EVIDENCE = {
    "score_gap",
    "shuffled_gap",
    "shuffled_input",
    "excess",
    "excess_by",
    "drivers",
    "weights",
    "proxies",
    "sensitivity",
    "thresholds",
}


@pytest.fixture(scope="module")
def data(result):
    return result.to_dict()


def rows_of(chart, field):
    """All different data of a chart that have the field."""
    plain = drawing.specification(chart)
    return [row for rows in plain["datasets"].values() for row in rows if field in row]


@pytest.mark.parametrize("name", CHARTS)
def test_each_chart_is_one_view_with_a_description(data, name):
    plain = drawing.specification(CHARTS[name].draw(data)[0])
    assert len(plain["description"]) > 30
    assert not {"facet", "hconcat", "vconcat", "concat", "repeat"} & set(plain)
    assert isinstance(plain["height"], int)
    json.dumps(plain, allow_nan=False)


@pytest.mark.parametrize("name", CHARTS)
def test_each_chart_takes_hostile_names_and_many_features(hostile, name, tmp_path):
    chart = getattr(hostile.plot, name)()
    assert drawing.specification(chart)["height"] <= 40 * 24
    drawing.save(chart, tmp_path / "chart.svg")
    text = (tmp_path / "chart.svg").read_text()
    assert "<script" not in text
    assert "<img" not in text


@pytest.mark.parametrize("name", CHARTS)
def test_without_evidence_a_chart_is_drawn_or_says_what_it_needs(without_evidence, name):
    plot = getattr(without_evidence.plot, name)
    if name in NEED_EVIDENCE:
        with pytest.raises(drawing.NothingToDrawError, match="without evidence"):
            plot()
    else:
        assert drawing.specification(plot())["description"]


def test_the_charts_of_a_result_are_those_of_its_sections(result, data):
    assert set(CHARTS) <= set(dir(result.plot))
    for name, chart in CHARTS.items():
        method = getattr(result.plot, name)
        assert method.__name__ == name
        assert method.__doc__ == chart.draw.__doc__
        assert method.__doc__
    assert result.plot.regimes().to_dict() == pairs.regimes.drawn(data).to_dict()


def test_a_chart_of_nothing_says_so(data):
    empty = copy.deepcopy(data)
    empty["matching"]["balance"] = []
    with pytest.raises(drawing.NothingToDrawError, match="no difference between groups could be estimated"):
        matching.balance.drawn(empty)
    empty["distributions"]["distance"]["counts"] = {"0": [0] * 121}
    with pytest.raises(drawing.NothingToDrawError, match="no distance to draw: no pair was scored"):
        matching.distances.drawn(empty)


def test_regime_shares_are_those_of_the_pairs(result, data):
    shown = {(r["group"], r["regime"][0]): r["share"] for r in rows_of(pairs.regimes.drawn(data), "share")}
    for (group, regime), n in result.pairs.groupby(["group", "regime"]).size().items():
        assert shown[group, regime] == pytest.approx(n / (result.pairs["group"] == group).sum())
    assert [shown["all pairs", r] for r in "ABCD"] == pytest.approx(list(data["regimes"].values()))


def test_the_plane_shows_flip_rate_and_mean_score_of_each_group(result, data):
    shown = {r["group"]: r for r in rows_of(pairs.plane.drawn(data), "group")}
    for name, part in result.pairs.groupby("group"):
        assert shown[name]["cec"] == pytest.approx(part["cec"].mean())
        assert shown[name]["pfr"] == pytest.approx((part["decision"] != part["match_decision"]).mean())


def test_distances_are_the_cumulative_shares(result, data):
    for row in rows_of(matching.distances.drawn(data), "distance"):
        own = result.pairs.loc[result.pairs["group"] == row["group"], "distance"]
        assert row["share"] == pytest.approx((own < row["distance"]).mean(), abs=1e-9)


def test_drivers_are_the_largest_contributions(result, data):
    shown = rows_of(evidence.drivers.drawn(data), "value")
    found = sorted(result.evidence.features, key=lambda f: -abs(f.estimate.value))[: drawing.MOST_FEATURES]
    assert [r["label"] for r in shown] == [f.feature for f in found]
    assert [r["low"] for r in shown] == pytest.approx([f.estimate.low for f in found])


@pytest.mark.parametrize(("chart", "is_input"), [(score_gap.shuffled_gap, False), (score_gap.shuffled_input, True)])
def test_shuffled_gaps_are_drawn_with_the_actual_one(data, chart, is_input):
    (known,) = [one for one in data["score_gaps"][0]["shuffles"] if (one["feature"] is not None) == is_input]
    shown = rows_of(chart.drawn(data), "share")
    assert [row["from"] for row in shown] == list(known["edges"][:-1])
    assert [row["share"] for row in shown] == pytest.approx(np.array(known["counts"]) / sum(known["counts"]))
    (line,) = {(row["at"], row["words"]) for row in rows_of(chart.drawn(data), "at")}
    assert line[0] == known["observed"]
    assert line[1].endswith(f"{abs(known['observed']):.3f}")


def test_without_shuffles_there_is_a_reason(data):
    pooled = copy.deepcopy(data)
    pooled["score_gaps"][0]["shuffles"] = []
    with pytest.raises(drawing.NothingToDrawError, match="a mean over draws of the groups"):
        score_gap.shuffled_gap.drawn(pooled)
    pooled["score_gaps"][0]["shuffles"] = data["score_gaps"][0]["shuffles"][:1]
    with pytest.raises(drawing.NothingToDrawError, match="no input other than finances"):
        score_gap.shuffled_input.drawn(pooled)


def test_metrics_that_were_not_estimated_are_left_out(data):
    part = copy.deepcopy(data)
    part["evidence"]["splits"][0]["estimate"]["value"] = math.nan
    part["outcome"]["approvals"]["groups"][0]["approval_rate"] |= {"low": None, "high": None}
    shown = rows_of(evidence.excess_by.drawn(part), "value")
    assert len(shown) == len(part["evidence"]["splits"])  # and everyone
    first = rows_of(outcome.approvals.drawn(part), "value")[0]
    assert first["low"] == first["value"] == first["high"]


def test_a_pair_shows_both_attributions_as_unit_vectors(result):
    person = int(result.pairs["person"].iloc[7])
    shown = rows_of(result.plot.pair(person), "part")
    own = result.attributions[person] / np.linalg.norm(result.attributions[person])
    found = {r["label"]: r["part"] for r in shown if r["who"].startswith(f"person {person}")}
    for name, value in found.items():
        assert value == pytest.approx(own[list(result.table.columns).index(name)], abs=1e-6)


def test_a_pair_of_many_groups_needs_the_other_group(hostile):
    with pytest.raises(InvalidInputError, match="has 4 pairs; give `other_group`"):
        hostile.plot.pair(0)
    with pytest.raises(InvalidInputError, match="has no scored pair in 'nobody'"):
        hostile.plot.pair(0, "nobody")
    assert "Grouped bars" in drawing.specification(hostile.plot.pair(0, "plain"))["description"]


def test_a_person_without_a_pair_is_refused(result):
    with pytest.raises(InvalidInputError, match="a row with a scored pair; 99999 has none"):
        result.plot.pair(99_999)


SIGNATURES = {"svg": b"<svg", "png": b"\x89PNG\r\n\x1a\n", "pdf": b"%PDF-"}


@pytest.mark.parametrize("kind", SIGNATURES)
def test_a_chart_is_saved_in_each_format(result, kind, tmp_path):
    path = tmp_path / f"regimes.{kind}"
    drawing.save(result.plot.regimes(), path)
    content = path.read_bytes()
    assert content.startswith(SIGNATURES[kind])
    assert len(content) > 2_000


def test_another_format_is_refused(result, tmp_path):
    with pytest.raises(InvalidInputError, match=r"saved as \.svg, \.png or \.pdf, got 'regimes\.bmp'"):
        drawing.save(result.plot.regimes(), tmp_path / "regimes.bmp")


def test_all_that_can_be_drawn_is_saved(without_evidence, tmp_path):
    written = without_evidence.plot.save(tmp_path / "charts")
    assert {path.stem for path in written} == set(CHARTS) - NEED_EVIDENCE
    assert all(path.is_file() for path in written)


def test_a_chart_can_be_saved_in_dark_colors(result, tmp_path):
    drawing.save(result.plot.shares(), tmp_path / "dark.svg", DARK)
    assert DARK.surface in (tmp_path / "dark.svg").read_text()


def test_charts_show_in_notebooks(result):
    content = result.plot.shares()._repr_mimebundle_()
    assert list(content) == ["image/svg+xml"]  # a drawing, which fetches nothing


# Colors: contrast by WCAG 2, differences in CIELAB as seen with each kind of color vision (Machado and others, 2009).

VISION = {
    "usual": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}


def linear(color):
    part = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def contrast(first, second):
    light, dark = sorted((float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (first, second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def lab(rgb):
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ rgb
    f = np.cbrt(np.maximum(xyz / [0.9505, 1.0, 1.089], 0.008856))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_text_and_marks_stand_out(palette):
    for text in (palette.ink, palette.muted, palette.accent, palette.floor):
        for behind in (palette.surface, palette.paper, palette.band):
            assert contrast(text, behind) >= 4.5
    for mark in (*palette.regimes, *palette.groups):
        assert contrast(mark, palette.surface) >= 3


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_colors_differ_with_any_color_vision(palette, vision):
    for colors in (palette.regimes, palette.groups[:5], (palette.accent, palette.floor)):
        seen = [lab(np.clip(np.asarray(VISION[vision]) @ linear(color), 0, 1)) for color in colors]
        assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 10


def test_the_page_has_every_color_that_its_charts_use():
    named = {part.split(":")[0] for part in css_variables(LIGHT).split(";") if part}
    used = set(json.dumps(theme(VARIABLES)).replace(")", "(").split("(")) & {f"--{n[2:]}" for n in named}
    assert used >= {"--ink", "--accent", "--floor", "--regime-A", "--regime-D", "--group-0", "--group-7"}
    assert css_variables(LIGHT).count(":") == css_variables(DARK).count(":")
