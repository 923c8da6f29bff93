"""What a report says."""

import copy
import json
import math
import re

import numpy as np
import pytest
from scipy import stats

from evenhand.auditing.findings import findings_of, verdict
from evenhand.auditing.sections import CHARTS, SECTIONS
from evenhand.auditing.sections.evidence import excess_table, feature_table, split_table, weight_table
from evenhand.auditing.sections.outcome import gap_table, utility_table
from evenhand.auditing.sections.pairs import regime_table
from evenhand.auditing.sections.reasons import agreement_table
from evenhand.auditing.sections.score_gap import ScoreGap, score_gap_table
from evenhand.report.explorer import explorer_data, pairs_to_show
from evenhand.report.page import audit_page, audit_sections, finding_table, front_of
from evenhand.report.tables import shown
from evenhand.report.workbook import sheet_of


@pytest.fixture(scope="module")
def sections(result):
    return unfolded(audit_sections(result.to_dict(), SECTIONS, "All.", "pairs.parquet"))


def unfolded(sections):
    return {part.id: part for section in sections for part in section.unfolded}


def panels_of(sections):
    return {panel.name: panel for section in sections.values() for panel in section.panels}


def cells(table):
    return [cell for row in shown(table).rows for cell in row]


def test_it_is_made_from_plain_data_and_a_sample_alone(result):
    sample = result.pair_sample().to_dict()
    read_back = json.loads(json.dumps(_none_for_nan(result.to_dict())))
    pages = [audit_page(summary, SECTIONS, sample) for summary in (read_back, result.to_dict())]
    assert _without_names(pages[0]) == _without_names(pages[1])


def _without_names(page):
    return re.sub(r"data-[0-9a-f]{32}", "", page)


def _none_for_nan(value):
    if isinstance(value, dict):
        return {str(k): _none_for_nan(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_none_for_nan(v) for v in value]
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def test_the_title_names_the_model_unless_one_is_given(result):
    summary, sample = result.to_dict(), result.pair_sample(5).to_dict()
    assert f"<h1>Audit of {result.provenance.model}</h1>" in audit_page(summary, SECTIONS, sample)
    assert "<h1>Q3 review</h1>" in audit_page(summary, SECTIONS, sample, title="Q3 review")


def test_everything_audited_and_every_setting_is_listed(result, sections):
    summary, audited = result.to_dict(), sections["audited"]
    named = ["Favorable label", "By", "Financial features", "Cutoff"]
    hidden = {"fingerprint", "column_prints", "hashes", "columns", "files"}
    assert [name for name, _ in audited.facts[: len(named)]] == named
    assert len(audited.facts) == len(named) + len(set(summary["data"]) - hidden)
    assert dict(sections["hashes"].facts) == {
        "Audited people": summary["data"]["fingerprint"],
        "Scores": summary["data"]["hashes"]["scores"],
        **({"Reference": summary["data"]["hashes"]["reference"]} if "reference" in summary["data"]["hashes"] else {}),
    }
    assert len(sections["settings"].facts) == len(summary["settings"])
    assert dict(sections["versions"].facts) == summary["versions"]


def test_each_chart_has_a_caption_and_a_table_behind_it(sections):
    panels = panels_of(sections)
    assert set(panels) == set(CHARTS)
    for panel in panels.values():
        assert panel.specification, panel.note
        assert "config" not in panel.specification
        assert panel.caption.endswith(".")
        assert "nan" not in panel.caption.replace("finances", "")
        table = shown(panel.table)
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.columns)} == {len(table.is_number)}


def test_tables_have_the_numbers_of_the_audit(result, sections):
    summary = result.to_dict()
    assert shown(excess_table(summary)).rows[0][1] == f"{summary['cec']['excess']:.3f}".replace("-", "−")
    rows = shown(regime_table(summary)).rows[:4]
    assert [(row[0], row[1], row[3]) for row in rows] == [
        ("all pairs", r, f"{100 * summary['regimes'][r]:.1f}%") for r in "ABCD"
    ]
    assert len(feature_table(summary).records) == len(result.features)
    (segments,) = [table for table in sections["outcome-more"].tables if table.name == "Segments"]
    assert "values of branch" in segments.caption


SIDES = {  # of every statistic with a p-value: its table, what the summary has, its heading, its sides
    "excess": (excess_table, lambda s: [s["evidence"][n] for n in _EXCESSES], "p-value, one-sided", 1),
    "splits": (split_table, lambda s: [r["estimate"] for r in s["evidence"]["splits"]], "p-value, one-sided", 1),
    "features": (feature_table, lambda s: _in_order(s), "p-value, one-sided", 1),
    "weights": (weight_table, lambda s: [r["estimate"] for r in s["evidence"]["weights"]], "p-value, two-sided", 2),
    "score gap": (score_gap_table, lambda s: _gaps(s), "p-value, two-sided", 2),
    "agreement": (agreement_table, lambda s: _fewer(s), "p-value, one-sided", 1),
}
_EXCESSES = ("cec", "input_gap", "reasoning_gap", "regime_b", "reason_overlap", "rank_overlap")


def _fewer(summary):
    """Excesses of what two people have in common, whose p-value is of no less than placebo pairs have."""
    return [summary["evidence"][name] for name in ("reason_overlap", "rank_overlap")]


def _in_order(summary):
    found = {row["feature"]: row["estimate"] for row in summary["evidence"]["features"]}
    return [found[row["feature"]] for row in summary["features"]]


def _gaps(summary):
    return [one for g in summary["score_gaps"] for one in (g["total"], g["probability"], g["decision"], *g["features"])]


def written(p):
    return "not estimated" if math.isnan(p) else "< 0.001" if p < 0.001 else "> 0.999" if p > 0.999 else f"{p:.3f}"


@pytest.mark.parametrize("name", SIDES)
def test_a_statistic_has_one_p_value_in_json_page_and_workbook(result, name):
    table_of, of_summary, heading, sides = SIDES[name]
    summary = result.to_dict()
    table, expected = table_of(summary), of_summary(summary)
    sheet, page = sheet_of(table), shown(table)
    in_workbook = [row[[head for head, _ in sheet.columns].index(heading)] for row in sheet.rows]
    on_page = [row[page.columns.index(heading)] for row in page.rows] if heading in page.columns else []
    assert len(in_workbook) == len(expected) > 0
    for k, one in enumerate(expected):
        p = one["p_value"]
        assert in_workbook[k] == p or (math.isnan(p) and in_workbook[k] is None)
        assert not on_page or on_page[k] == written(p)
        if not math.isnan(p) and one["standard_error"] > 0 and name != "score gap":  # these are of shuffles
            ratio = one["value"] / one["standard_error"]
            if one in _fewer(summary):
                ratio = -ratio
            size = 2 * stats.t.sf(abs(ratio), one["df"]) if sides == 2 else stats.t.sf(ratio, one["df"])
            assert p == pytest.approx(size, rel=1e-9)
        elif one["standard_error"] == 0 and one["value"] == 0:
            assert p == 1


def test_the_findings_have_the_p_values_of_their_statistics_everywhere(result):
    summary = result.to_dict()
    found = {one["key"]: one for one in summary["findings"]}
    assert found["weighing"]["p_value"] == summary["cec"]["weighing_p_value"]
    assert found["excess"]["p_value"] == summary["cec"]["p_value"]
    assert found["score_gap"]["p_value"] == summary["score_gap"]["logit"]["p_value"]  # of two groups
    table = finding_table(summary)
    page, sheet = shown(table), sheet_of(table)
    headings = [heading for heading, _ in sheet.columns]
    for one, text, row in zip(summary["findings"], page.rows, sheet.rows, strict=True):
        assert text[page.columns.index("p-value")] == written(one["p_value"])
        assert row[headings.index("p-value, adjusted")] == one["p_adjusted"]
        sides = "one-sided" if one["key"] in ("weighing", "excess") else "two-sided"
        assert text[page.columns.index("test")] == row[headings.index("test")] == sides
    assert f"one-sided p {'< 0.001' if found['excess']['p_value'] < 0.001 else '='}" in str(result)


def test_the_section_of_the_score_gap_says_what_shuffles_showed(result):
    data = copy.deepcopy(result.to_dict())
    (gap,) = data["score_gaps"]
    gap["shuffles"][0] |= {"counts": [1000, 2000, 1000], "is_drawn": True}
    gap["total"]["p_value"], gap["n_alone"] = 13 / 4001, 1207
    said = " ".join(ScoreGap().paragraphs(data))
    assert "the same label and alike finances were put into leaves of about 20 to 40, and everyone in a leaf" in said
    assert "came up in 12 of 4,000 shuffles (0.3%). 1,207 people are in leaves with only one of these groups" in said
    gap["total"]["p_value"] = 1 / 4001
    assert "came up in none of 4,000 shuffles." in ScoreGap().paragraphs(data)[0]
    gap["shuffles"][0]["is_drawn"], gap["n_alone"] = False, 0
    said = ScoreGap().paragraphs(data)[0]
    assert "would come up in less than 0.1% of shuffles" in said
    assert said.endswith("a normal distribution stands for the shuffles.")
    gap["shuffles"] = []
    assert ScoreGap().paragraphs(data)[0].endswith("gaps and errors of all draws were pooled.")
    gap["total"] |= {"p_value": math.nan, "note": "no leaf has people of both groups"}
    assert ScoreGap().paragraphs(data)[0].endswith(" No leaf has people of both groups.")
    data["data"] |= {"n_people": 100_000, "n_reference": 5_000}
    assert "were put into leaves, and" in ScoreGap().paragraphs(data)[0]


def test_the_gap_of_each_segment_is_on_the_page(result, sections):
    (table,) = sections["score-gap-more"].tables
    known = result.to_dict()["segment_gaps"]
    page = shown(table)
    wholes = [row for row in page.rows if row[page.columns.index("part")] == "all inputs together"]
    assert [(row[0], row[1]) for row in wholes] == [(one["column"], one["value"]) for one in known]
    assert [row[page.columns.index("p-value, adjusted")] for row in wholes] == [written(o["p_adjusted"]) for o in known]


def test_parts_of_finances_are_not_tested(result):
    page = shown(score_gap_table(result.to_dict()))
    rows = [row for row in page.rows if row[page.columns.index("part")] in result.settings["financial_features"]]
    assert rows
    for row in rows:
        assert row[page.columns.index("p-value, adjusted")] == "" or "does not use" in row[-1]
    assert any(row[-1].endswith("is not tested") for row in rows)


def test_every_heading_of_the_page_is_also_in_the_workbook(sections):
    tables = [panel.table for panel in panels_of(sections).values()]
    tables += [table for section in sections.values() for table in section.tables]
    for table in tables:
        in_workbook = {heading for heading, _ in sheet_of(table).columns}
        assert {heading for heading in shown(table).columns if heading != "95% interval"} <= in_workbook


def test_a_metric_that_was_not_estimated_says_so_with_its_note(result):
    data = copy.deepcopy(result.to_dict())
    nothing = dict.fromkeys(("value", "low", "high", "p_value"), math.nan)
    data["evidence"]["splits"][0]["estimate"] |= {**nothing, "note": "only 3 people"}
    data["outcome"]["auc"], data["outcome"]["notes"]["auc"] = math.nan, "one label only"
    made = unfolded(audit_sections(data, SECTIONS))
    row = shown(panels_of(made)["excess_by"].table).rows[0]
    assert "not estimated" in row
    assert row[-1] == "only 3 people"
    assert shown(utility_table(data)).rows[0] == ("AUC", "not estimated", "one label only")
    assert "nan" not in " ".join(cells(gap_table(data)))


def test_nothing_was_estimated_at_all(result):
    data = copy.deepcopy(result.to_dict())
    _to_nan(data["evidence"])
    _to_nan(data["outcome"])
    _to_nan(data["score_gaps"])
    _to_nan(data["score_gap"])
    findings = findings_of(data)
    data["findings"] = [one.to_dict() for one in findings]
    data["verdict"] = verdict(data, findings).to_dict()
    made = unfolded(audit_sections(data, SECTIONS))
    assert made["verdict"].finding.headline == "The model uses the group directly, through group"  # a fact
    panels = panels_of(made)
    assert panels["excess"].specification is None
    assert "none of its metrics could be estimated" in panels["excess"].note
    text = " ".join(cell for panel in panels.values() for cell in (*cells(panel.table), panel.caption))
    assert "nan" not in text.lower().replace("finance", "")


def _to_nan(value):
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in list(items):
        if isinstance(item, (dict, list, tuple)):
            if isinstance(item, tuple):
                value[key] = item = list(item)
            _to_nan(item)
        elif isinstance(item, float) and key not in ("max_distance", "consistency_threshold"):
            value[key] = math.nan


def test_without_evidence_charts_say_what_they_need(without_evidence):
    summary = without_evidence.to_dict()
    assert "evidence=True" in CHARTS["excess"].panel(summary).note
    assert CHARTS["regimes"].panel(summary).specification
    assert front_of(summary).metrics[0].name == "Mean CEC score"


def test_the_explorer_has_the_pairs_as_they_are(result):
    sample = result.pair_sample()
    found = explorer_data(result.to_dict(), sample.to_dict())
    pairs = sample.pairs
    assert found["person"] == pairs["person"].tolist()
    assert list(found["regime"]) == pairs["regime"].tolist()
    assert [found["groups"][g] for g in found["group"]] == pairs["group"].astype(str).tolist()
    for name in ("cec", "score", "match_score", "distance", "q_value"):
        known = [math.nan if v is None else v for v in found[name]]
        np.testing.assert_allclose(known, pairs[name].to_numpy(dtype=float), atol=5.1e-5)


def test_scores_follow_from_the_attributions_of_the_explorer(result):
    found = explorer_data(result.to_dict(), result.pair_sample().to_dict())
    own, match = np.array(found["own"]) / 1e4, np.array(found["match_attribution"]) / 1e4
    half = np.linalg.norm(own - match, axis=0) / 2
    np.testing.assert_allclose(half, found["cec"], atol=1e-3)


def test_values_of_the_explorer_are_those_of_the_tables(hostile):
    sample = hostile.pair_sample(100)
    found = explorer_data(hostile.to_dict(), sample.to_dict())
    text, gaps, numbers = (found["values"][list(sample.values.columns).index(n)] for n in (
        sample.values.columns[0], "feature_2", "feature_3"))  # fmt: skip
    assert [text["levels"][i] for i in text["own"]] == [
        v[:199] + "…" if len(v) > 200 else v for v in sample.values.iloc[:, 0]
    ]
    assert [v is None for v in gaps["match"]] == sample.match_values["feature_2"].isna().tolist()
    np.testing.assert_allclose(numbers["own"], sample.values["feature_3"].to_numpy(float), rtol=1e-5)


def test_very_many_features_leave_room_for_fewer_pairs():
    assert pairs_to_show(60) == 2000
    assert pairs_to_show(1_000_000) == 1
    assert pairs_to_show(3000) * 3000 <= 150_000
