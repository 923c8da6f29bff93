"""Sections: what one class says is shown everywhere, and the tables of a result are those of its sections."""

import math
from dataclasses import dataclass

import docx
import jsonschema
import numpy as np
import openpyxl
import pandas as pd
import pytest

from evenhand.auditing.sections import CHARTS, SECTIONS, load_schema
from evenhand.report.memo import write_memo
from evenhand.report.page import audit_page, audit_sections, summary_records
from evenhand.report.schema import schema_of
from evenhand.report.section import AuditMetric, Section
from evenhand.report.tables import Column, Table, estimate, frame_of, shown, text
from evenhand.report.workbook import write_workbook


@dataclass
class Rate:
    group: str
    rate: dict[str, float]
    of: int | None
    among: tuple[str, ...] = ()


class Shoes(Section):
    """The smallest section: it reads a key of the summary, and has a table, a row and a metric."""

    key, title, reads, result = "shoes", "Shoe sizes", "shoes", Rate
    prose = "Sizes of shoes by group."
    words = {"shoe": "What a foot is in."}  # noqa: RUF012

    def tables(self, summary):
        columns = (text("group"), estimate("mean size", "rate"), Column("people", "whole", "of"))
        return (Table("Shoes", "Mean size of shoes", columns, [summary["shoes"]]),)

    def summary_rows(self, summary):
        if self.is_present(summary):
            yield "shoe size, mean", summary["shoes"]["rate"], "of the group", "labels"

    def metrics(self, summary, reference):
        yield AuditMetric("size", "outcome", "shoe size", summary["shoes"]["rate"]["value"], 0.1)


SHOES = {"group": "a", "rate": {"value": 41.25, "low": 40.5, "high": 42.0}, "of": 7, "among": ["b"]}


def test_a_new_section_is_on_page_and_in_workbook_memo_and_summary(result, tmp_path):
    summary, sections = {**result.to_dict(), "shoes": SHOES}, (*SECTIONS, Shoes())
    page = audit_page(summary, sections, result.pair_sample(5).to_dict())
    assert '<h2 id="h-shoes">Shoe sizes</h2>' in page
    assert "What a foot is in." in page
    write_workbook(summary, sections, tmp_path / "audit.xlsx", pairs=result.pairs)
    rows = list(openpyxl.load_workbook(tmp_path / "audit.xlsx")["Shoes"].iter_rows(values_only=True))
    assert rows == [("group", "mean size", "lower", "upper", "people"), ("a", 41.25, 40.5, 42.0, 7)]
    (part,) = [part for part in audit_sections(summary, sections) if part.id == "shoes"]
    assert shown(part.tables[0]).rows == (("a", "41.250", "40.500 to 42.000", "7"),)
    assert summary_records(summary, sections)[-1]["metric"] == "shoe size, mean"
    assert list(Shoes().logged(summary)) == [("shoes.size", 41.25)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_new_section_is_in_the_memo(result, tmp_path):
    class Plain(Shoes):
        charts = ()

    write_memo({**result.to_dict(), "shoes": SHOES}, (Plain(),), tmp_path / "memo.docx")
    said = [paragraph.text for paragraph in docx.Document(tmp_path / "memo.docx").paragraphs]
    assert {"Shoe sizes", "Sizes of shoes by group."} <= set(said)


def test_a_section_without_its_input_is_absent(result):
    summary = result.to_dict()
    assert Shoes().on_page(summary) is None
    assert Shoes().sheets(summary) == ()
    assert list(Shoes().logged(summary)) == []
    lacking = {**summary, "shoes": SHOES, "scope": {"outcome": "value", "has_labels": False, "not_possible": {}}}
    assert Shoes().is_present(lacking)
    assert not summary_records(lacking, (Shoes(),))


def test_the_schema_of_a_section_follows_from_its_dataclass():
    schema = Shoes().schema["shoes"]
    jsonschema.Draft202012Validator.check_schema(schema)
    valid = jsonschema.Draft202012Validator(schema).is_valid
    assert valid(SHOES)
    assert valid({**SHOES, "of": None, "rate": {"value": None}})
    assert not valid({**SHOES, "of": 1.5})
    assert not valid({**SHOES, "more": 1})
    assert not valid({"group": "a"})
    assert schema_of(list[bool]) == {"type": "array", "items": {"type": "boolean"}}
    assert set(load_schema()["required"]) >= {"cec", "outcome", "findings"}


def test_keys_of_sections_and_names_of_charts_are_distinct():
    assert len({section.key for section in SECTIONS}) == len(SECTIONS)
    assert len(CHARTS) == sum(len(section.charts) for section in SECTIONS)


def test_tables_have_the_raw_numbers_of_the_summary(result):
    summary, tables = result.to_dict(), result.tables
    assert {"approvals", "errors", "score_gap", "features", "balance", "regimes", "excess"} <= set(tables)
    groups = summary["outcome"]["approvals"]["groups"]
    assert tables["approvals"]["group"].tolist() == [row["group"] for row in groups]
    for end, key in (("", "value"), ("_low", "low"), ("_high", "high")):
        rates = [row["approval_rate"][key] for row in groups]
        np.testing.assert_array_equal(tables["approvals"][f"approval_rate{end}"], rates)
    assert tables["approvals"]["p_value_adjusted"].isna().sum() == 1  # of the reference group
    assert tables["errors"]["auc"].tolist() == [row["auc"]["value"] for row in summary["outcome"]["error_rates"]]
    assert len(tables["features"]) == len(result.features)
    assert all(pd.api.types.is_numeric_dtype(tables["balance"][when]) for when in ("before_matching", "after_matching"))
    assert result.tables is tables


def test_what_was_not_asked_for_has_no_table(without_evidence):
    assert "excess" not in without_evidence.tables
    assert "weights" not in without_evidence.tables
    assert "approvals" in without_evidence.tables


def test_headings_that_differ_only_in_punctuation_stay_apart():
    columns = (Column("AUC: a-b", value="x"), Column("AUC: a b", value="y"))
    table = frame_of(Table("Areas", "", columns, [{"x": 1.0, "y": None}]))
    assert list(table.columns) == ["AUC: a-b", "AUC: a b"]
    assert math.isnan(table["AUC: a b"][0])


def test_findings_are_those_of_the_summary(result, without_evidence):
    findings = result.findings
    expected = result.to_dict()["findings"]
    assert findings["key"].tolist() == [one["key"] for one in expected]
    assert findings["low"].tolist() == [one["ci"][0] for one in expected]
    assert findings["p_adjusted"].tolist() == [one["p_adjusted"] for one in expected]
    assert set(findings["answer"]) <= {"yes", "no", "open"}
    assert without_evidence.findings.empty
    assert "estimate" in without_evidence.findings.columns


def test_the_summary_is_made_once_and_handed_out_as_a_copy(result, monkeypatch):
    summary = result.to_dict()
    summary["outcome"]["auc"] = -1.0
    monkeypatch.setattr("evenhand.auditing.result.findings_of", None)  # would fail if it were called again
    assert result.to_dict()["outcome"]["auc"] > 0
    assert result.tables
    assert result.findings["key"].tolist()
    assert str(result)
