"""The reasons of declined people on the page and in the workbook."""

import math

import numpy as np
import openpyxl
import pytest

from evenhand.auditing.sections import SECTIONS
from evenhand.auditing.sections.reasons import agreement_table, declined_table, rate_table, reason_rates
from evenhand.report.drawing import specification
from evenhand.report.page import audit_sections
from evenhand.report.tables import shown
from evenhand.report.workbook import sheet_of


def same(cell, value):
    is_missing = value is None or (isinstance(value, float) and math.isnan(value))
    return cell is None if is_missing else cell == (pytest.approx(value) if isinstance(value, float) else value)


@pytest.fixture(scope="module")
def sheets(result, tmp_path_factory):
    file = tmp_path_factory.mktemp("reasons") / "audit.xlsx"
    result.to_excel(file)
    return openpyxl.load_workbook(file, read_only=True)


def test_the_sheet_of_reasons_has_every_declined_person(result, sheets):
    heads, *rows = sheets["Reasons"].iter_rows(values_only=True)
    table = result.reasons()
    assert list(heads) == [name.replace("_", " ") for name in table.columns]
    assert len(rows) == len(table) == sum(result.reason_codes.declined.values()) > 10
    for row, record in zip(rows, table.itertuples(index=False), strict=True):
        assert all(same(cell, value) for cell, value in zip(row, record, strict=True))


def test_rates_are_the_same_on_page_and_in_workbook(result, sheets):
    summary = result.to_dict()
    table = rate_table(summary)
    assert len(table.records) == len(summary["reasons"]["rates"]) > 4
    heads, *rows = sheets["Reason rates"].iter_rows(values_only=True)
    place = {head: k for k, head in enumerate(heads)}
    for row, record in zip(rows, summary["reasons"]["rates"], strict=True):
        assert (row[place["reason"]], row[place["group"]]) == (record["reason"], record["group"])
        assert same(row[place["share of declined"]], record["rate"]["value"])
        assert same(row[place["share of declined, lower"]], record["rate"]["low"])
        adjusted = None if record["is_reference"] else record["p_value_holm"]
        assert same(row[place["p-value, adjusted"]], adjusted)
    page = shown(table)
    assert [row[page.columns.index("reason")] for row in page.rows] == [r["reason"] for r in table.records]


def test_the_section_says_what_reasons_are_measured_from(result):
    sections = {part.id: part for top in audit_sections(result.to_dict(), SECTIONS) for part in top.unfolded}
    section = sections["reasons-given"]
    assert section.title == "Reason codes"
    assert "up to 4 principal reasons" in section.paragraphs[0]
    assert "measured from the mean of the people of the reference with a favorable decision" in section.paragraphs[0]
    assert [table.name for table in sections["reasons-given-more"].tables] == ["Reason agreement", "Declined"]
    assert section.panels[0].specification is not None


def test_an_audit_without_reasons_has_no_section_and_says_so_in_the_workbook(result):
    summary = {**result.to_dict(), "reasons": None}
    assert "reasons-given" not in {part.id for top in audit_sections(summary, SECTIONS) for part in top.unfolded}
    for table in (rate_table(summary), agreement_table(summary), declined_table(summary)):
        assert sheet_of(table).rows[0][0].startswith("Not available")


def test_the_chart_has_each_group_beside_the_others(result):
    summary = result.to_dict()
    values = max(specification(reason_rates.drawn(summary))["datasets"].values(), key=len)
    rates = [row for row in summary["reasons"]["rates"] if row["place"] == "any"]
    assert len(values) == min(len(rates), 12 * len(summary["reasons"]["declined"]))
    np.testing.assert_allclose([row["value"] for row in values], [row["rate"]["value"] for row in rates][: len(values)])
