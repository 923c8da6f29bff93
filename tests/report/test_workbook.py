"""The workbook: numbers are numbers, text stays text, and what is left out is said."""

import json
import math
import sys
import zipfile
from dataclasses import replace

import numpy as np
import openpyxl
import pandas as pd
import pytest
import torch

import evenhand as eh
from evenhand.auditing import result as audit_result
from evenhand.auditing.sample import strongest_pairs
from evenhand.auditing.sections import SECTIONS
from evenhand.exceptions import InvalidInputError
from evenhand.report import workbook as module

HOSTILE = ["=cmd|' /C calc'!A0", "+1+1", "-2-2", "@SUM(A1)", "\t=1", "\r=1", "https://example.org", "<b>&\x01"]
SHEETS = [
    "Verdict and warnings", "Findings", "Summary", "Audited", "Score gap by segment", "Score gap", "Shuffled gap",
    "Shuffled input", "Proxies", "Groups", "Gaps", "Approvals", "Scores", "Error rates", "Cutoffs", "Segments",
    "Calibration", "Reliability", "ROC", "ROC curves", "Regressions", "Excess", "Splits", "Regimes", "Features",
    "Weights", "Reason rates", "Reason agreement", "Declined", "Matching", "Coverage", "Distances", "Balance",
    "Review", "Reasons", "Cases", "Pairs", "Glossary",
]  # fmt: skip


def audited(*, evidence=True, n=160, max_distance=None):
    rng = np.random.default_rng(3)
    names = ["=income", "+debt", "@street", "https://example.org/x"]
    X = pd.DataFrame(rng.normal(size=(n, 4)), columns=names)
    y = (rng.normal(size=n) > X["=income"]).astype(int)  # so that the network, as it is drawn, ranks people rightly
    group = np.array(["=HYPERLINK(1)", "-b"])[rng.permutation(np.arange(n) % 2)]
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))
    return eh.audit(
        model,
        X,
        y,
        sensitive_features=group,
        financial_features=names[:2],
        evidence=evidence,
        max_distance=max_distance,
        by=pd.Series(np.resize(HOSTILE[:5], n), name="=by") if evidence else None,
        regressions=evidence,
        outcomes={"=price": rng.normal(size=n)} if evidence else None,
    )


@pytest.fixture(scope="module")
def result(with_people):
    found = audited()
    table = found.table.astype(object)
    table.iloc[:, 2] = np.resize(HOSTILE, len(table))
    found = replace(found, warnings=(*found.warnings, *HOSTILE))
    return with_people(found, table=table, reference_table=table)


@pytest.fixture(scope="module")
def workbook(result, tmp_path_factory):
    path = tmp_path_factory.mktemp("workbook") / "audit.xlsx"
    result.to_excel(path)
    return openpyxl.load_workbook(path)


def table_of(sheet):
    heading, *rows = sheet.iter_rows(values_only=True)
    return pd.DataFrame(rows, columns=heading)


def test_there_is_a_sheet_for_every_table(workbook):
    assert workbook.sheetnames == SHEETS


@pytest.mark.parametrize("name", SHEETS)
def test_headings_are_frozen_and_every_column_can_be_filtered(workbook, name):
    sheet = workbook[name]
    assert sheet.freeze_panes == "A2"
    assert sheet.auto_filter.ref == sheet.dimensions
    headings = [cell.value for cell in sheet[1]]
    assert all(headings)
    assert len(set(headings)) == len(headings)
    assert all(sheet.column_dimensions[cell.column_letter].width >= 8 for cell in sheet[1])


def test_no_cell_is_a_formula_and_none_is_a_link(workbook):
    for sheet in workbook:
        cells = [cell for row in sheet.iter_rows() for cell in row if cell.value is not None]
        assert {cell.data_type for cell in cells} <= {"s", "n", "b", "inlineStr"}
        assert not [cell for cell in cells if cell.hyperlink]


def test_the_file_itself_has_no_formula_and_no_link(result, tmp_path):
    result.to_excel(tmp_path / "audit.xlsx")
    with zipfile.ZipFile(tmp_path / "audit.xlsx") as parts:
        for name in parts.namelist():
            text = parts.read(name).decode("utf-8")
            assert "<f>" not in text
            assert "<hyperlink" not in text
            assert "external" not in name.lower()


def test_hostile_text_comes_back_as_it_was(workbook):
    sentences = table_of(workbook["Verdict and warnings"])["sentence"].tolist()
    assert set(HOSTILE[:5]) <= set(sentences)
    assert set(table_of(workbook["Features"])["feature"]) == {"=income", "+debt", "@street", "https://example.org/x"}


def test_text_that_looks_like_a_formula_is_marked_as_text_for_editing(workbook):
    cells = [row[2] for row in workbook["Verdict and warnings"].iter_rows(min_row=2)]
    marked = {cell.value for cell in cells if cell.quotePrefix}
    assert {v for v in marked if v in HOSTILE} >= set(HOSTILE[:5])
    assert "https://example.org" not in marked


def test_the_pairs_come_back_number_for_number(result, workbook):
    table = table_of(workbook["Pairs"])
    assert len(table) == len(result.pairs)
    for name in ("person", "match", "label", "decision", "distance", "score", "cec", "placebo_cec", "q_value"):
        shown = pd.to_numeric(table[name.replace("_", " ")])
        np.testing.assert_allclose(shown, result.pairs[name].astype(float), rtol=1e-12)
    assert table["regime"].tolist() == result.pairs["regime"].tolist()
    assert all(isinstance(cell.value, int) for cell in workbook["Pairs"]["A"][1:])
    assert all(isinstance(cell.value, bool) for cell in workbook["Pairs"]["R"][1:])


def test_the_summary_is_that_of_the_result(result, workbook):
    table, expected = table_of(workbook["Summary"]), result.summary()
    assert table["metric"].tolist() == expected["metric"].tolist()
    np.testing.assert_allclose(pd.to_numeric(table["value"]), expected["value"], rtol=1e-12)
    np.testing.assert_allclose(pd.to_numeric(table["lower"]), expected["ci_low"], rtol=1e-12)


def test_every_estimate_of_the_evidence_is_there(result, workbook):
    excess = table_of(workbook["Excess"])
    first = excess.iloc[0]
    assert first["excess"] == pytest.approx(result.evidence.cec.value, rel=1e-12)
    assert first["people"] == result.evidence.cec.n
    assert len(table_of(workbook["Splits"])) == len(result.evidence.splits)
    assert len(table_of(workbook["Weights"])) == len(result.evidence.weights)
    assert len(table_of(workbook["Proxies"])) == len(result.proxies.features) + 1
    assert len(table_of(workbook["Segments"])) == 6  # five, and all of them held fixed
    assert len(table_of(workbook["Cutoffs"])) == 18


def test_shares_have_a_percentage_format_and_p_values_keep_their_number(workbook):
    sheet = workbook["Regimes"]
    assert {cell.number_format for cell in sheet["D"][1:]} == {"0.0%"}
    # Too few people are declined here for an excess of their reasons.
    known = [cell for cell in workbook["Excess"]["H"][1:] if cell.value is not None]
    formats = {cell.number_format for cell in known}
    assert formats == {'[<0.0001]"< 0.0001";0.0000'}
    assert len(known) >= len(workbook["Excess"]["H"]) - 3
    assert all(isinstance(cell.value, (int, float)) for cell in known)


def test_features_of_a_case_are_numbers_where_they_are_numbers(workbook):
    table = table_of(workbook["Cases"])
    values = table.loc[table["feature"] == "=income", "value"]
    assert values.map(lambda value: isinstance(value, float)).all()


def test_flags_say_in_words_what_the_colors_show(result, workbook):
    table = table_of(workbook["Pairs"])
    is_b = table["regime"] == "B"
    assert is_b.any()
    assert table.loc[is_b, "flag"].str.contains("Regime B").all()
    assert not table.loc[table["regime"] == "A", "flag"].str.contains("Regime", na=False).any()
    flagged = {str(rules.sqref) for rules in workbook["Pairs"].conditional_formatting}
    assert len(flagged) == 2  # regime and q value
    row = table_of(workbook["Approvals"]).set_index("group")
    for group in result.outcome.approvals.groups:
        is_low = bool(group.is_below_practical_threshold)
        assert ("ratio below 0.8" in (row.loc[group.group, "flag"] or "")) == is_low


def test_an_empty_cell_is_not_colored_as_if_it_were_zero(workbook):
    for sheet in workbook:
        for rules in sheet.conditional_formatting:
            for rule in rules.rules:
                assert "<>" in rule.formula[0] or "LEN(TRIM" in rule.formula[0]


def test_a_metric_that_could_not_be_estimated_is_an_empty_cell_with_a_reason(result, with_people, tmp_path):
    pairs = result.pairs.copy()
    pairs.loc[0, ["cec", "placebo_cec", "input_gap", "reasoning_gap", "q_value"]] = np.nan
    pairs.loc[0, "match"], pairs.loc[0, "distance"], pairs.loc[0, "regime"] = -1, math.inf, None
    pairs["match_decision"] = pairs["match_decision"].astype("Int64")
    pairs.loc[0, "match_decision"] = pd.NA
    with_people(result, pairs=pairs).to_excel(tmp_path / "audit.xlsx")
    row = table_of(openpyxl.load_workbook(tmp_path / "audit.xlsx")["Pairs"]).iloc[0]
    assert row[["cec", "distance", "regime", "match decision"]].isna().all()
    assert row["note"] == "no match"


def test_a_reference_group_has_no_ratio_and_says_why(workbook):
    row = table_of(workbook["Approvals"]).set_index("is reference").loc[True]
    assert row["approval ratio"] is None or math.isnan(row["approval ratio"])
    assert row["note"] == "this is the reference group"


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel limits the size of files")
def test_a_disk_without_room_is_an_error_of_the_system_and_leaves_nothing(tmp_path, full_disk):
    sheet = module.Sheet("People", "All.", (("n", "whole"),), [(1,)])
    with full_disk(2_000), pytest.raises(OSError, match=r"audit\.xlsx' cannot be written: "):
        module.write_sheets([sheet], str(tmp_path / "audit.xlsx"), title="t")
    assert not list(tmp_path.iterdir())


def test_without_evidence_the_sheets_say_that_it_was_not_asked_for(tmp_path):
    audited(evidence=False, n=60).to_excel(tmp_path / "audit.xlsx")
    book = openpyxl.load_workbook(tmp_path / "audit.xlsx")
    assert book.sheetnames == [name for name in SHEETS if name != "Score gap by segment"]
    for name in ("Findings", "Score gap", "Shuffled gap", "Shuffled input", "Excess", "Splits", "Weights", "Proxies"):
        assert "evidence=False" in book[name]["A2"].value
    assert "no column was named" in book["Segments"]["A2"].value


@pytest.mark.filterwarnings("ignore::evenhand.EvenhandWarning")
def test_an_audit_in_which_no_one_has_a_match_can_be_written(tmp_path):
    audited(max_distance=1e-9, n=60).to_excel(tmp_path / "audit.xlsx")
    book = openpyxl.load_workbook(tmp_path / "audit.xlsx")
    assert table_of(book["Pairs"])["note"].eq("no match").all()


def test_the_strongest_pairs_are_kept_and_the_others_counted(result, tmp_path):
    pairs = strongest_pairs(result.source, 10)
    module.write_workbook(result.to_dict(), SECTIONS, tmp_path / "audit.xlsx", pairs=pairs, n_left_out=150)
    book = openpyxl.load_workbook(tmp_path / "audit.xlsx")
    table = table_of(book["Pairs"])
    assert len(table) == 10
    kept = result.pairs["q_value"].nsmallest(10)
    assert sorted(table["q value"]) == pytest.approx(sorted(kept))
    sentence = "The 10 pairs with the strongest evidence are shown; 150 of 160 were left out"
    assert table["note"][0].startswith(sentence)
    assert any(s.startswith(sentence) and "Parquet" in s for s in table_of(book["Verdict and warnings"])["sentence"])


def test_more_pairs_than_excel_has_rows_are_refused(result, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_PAIRS", 100)
    monkeypatch.setattr(audit_result, "MAX_ROWS", 100)
    with pytest.raises(InvalidInputError, match="`pairs` must have at most 100 rows, the limit of a sheet, got 160"):
        module.write_workbook(result.to_dict(), SECTIONS, tmp_path / "audit.xlsx", pairs=result.pairs)
    result.to_excel(tmp_path / "audit.xlsx")  # which keeps the strongest
    assert len(table_of(openpyxl.load_workbook(tmp_path / "audit.xlsx")["Pairs"])) == 100


class Unprintable:
    def __str__(self):
        raise ZeroDivisionError


def test_nothing_is_left_behind_when_writing_fails(result, tmp_path):
    pairs = result.pairs.assign(group=[object()] * (len(result.pairs) - 1) + [Unprintable()])
    with pytest.raises(ZeroDivisionError):
        module.write_workbook(result.to_dict(), SECTIONS, tmp_path / "audit.xlsx", pairs=pairs)
    assert not list(tmp_path.iterdir())


def test_text_longer_than_a_cell_is_cut_and_a_long_number_keeps_its_digits(result, with_people, tmp_path):
    table = result.table.copy()
    table.iloc[:, 0] = 12345678901234567890
    long = with_people(replace(result, warnings=("x" * 40_000,)), table=table)
    long.to_excel(tmp_path / "audit.xlsx")
    book = openpyxl.load_workbook(tmp_path / "audit.xlsx")
    assert len(table_of(book["Verdict and warnings"])["sentence"].iloc[-1]) == 32_767
    cases = table_of(book["Cases"])
    assert cases.loc[cases["feature"] == "=income", "value"].eq("12345678901234567890").all()


def test_the_sheets_hold_the_numbers_of_the_json(result, workbook, tmp_path):
    result.to_json(tmp_path / "audit.json")
    document = json.loads((tmp_path / "audit.json").read_text("utf-8"))
    gaps = table_of(workbook["Gaps"])
    assert gaps["value"].tolist() == pytest.approx([gap["value"] for gap in document["outcome"]["gaps"].values()])
    regressed = table_of(workbook["Regressions"])
    rows = document["regressions"]["rows"]
    for heading, key in (
        ("group minus reference", "value"),
        ("group minus reference, lower", "low"),
        ("p-value, two-sided", "p_value"),
    ):
        theirs = [math.nan if row["effect"][key] is None else row["effect"][key] for row in rows]
        assert regressed[heading].astype(float).tolist() == pytest.approx(theirs, nan_ok=True)
    assert regressed["segment"].fillna("").tolist() == [row["segment"] for row in rows]
    points = [part for group in document["outcome"]["calibration"]["groups"] for part in group["bins"]]
    reliability = table_of(workbook["Reliability"])
    assert reliability["observed rate"].tolist() == pytest.approx([part["observed_rate"]["value"] for part in points])
    assert reliability["upper"].tolist() == pytest.approx([part["observed_rate"]["high"] for part in points])
    calibration = table_of(workbook["Calibration"])
    groups = document["outcome"]["calibration"]["groups"]
    assert calibration["slope"].tolist() == pytest.approx([group["slope"]["value"] for group in groups])
    assert calibration["calibration error by chance"].tolist() == pytest.approx([g["error_by_chance"] for g in groups])
    audited_items = table_of(workbook["Audited"]).set_index("item")["value"]
    assert audited_items["n_people"] == document["data"]["n_people"]
    assert audited_items["consistency_threshold"] == 0.3
