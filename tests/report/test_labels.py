"""The user's words: an audit with labels says what an audit of renamed people says, in every output."""

import json
import re

import docx
import jsonschema
import numpy as np
import openpyxl
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.auditing.sections import SECTIONS, load_schema
from evenhand.exceptions import DataFileError, InvalidInputError
from evenhand.report.labels import Labels, read_labels
from evenhand.report.page import audit_page

# Names that are also words of the summary, in the alphabetical order of their labels.
COLUMNS = {"group": "x1 monthly income", "value": "x2 debt", "A": "x3 street", "reference": "x4 tenure"}
GROUPS = {"feature": "y1 women", "low": "y2 men", "mean": "y3 others"}
VALUES = {"counts": "z1 credit card", "share": "z2 loan"}
LABELS = {**COLUMNS, **GROUPS, "product": {"counts": "z1 credit card", "share": "z2 loan"}}
REPORT = {
    "title": "Yearly <review>",
    "model_name": "Cards & loans",
    "model_version": "3.2",
    "owner": "Retail credit",
    "period": "April to June 2026",
}
ABOUT_NAMES = ("column_prints", "fingerprint", "hashes")


def audited(*, is_renamed, **options):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(240, 4)), columns=list(COLUMNS))
    group = np.array(list(GROUPS))[np.arange(240) % 3]
    product = pd.Series(np.array(list(VALUES))[rng.integers(0, 2, 240)], name="product")
    X["A"] += 1.5 * (group == "low")
    y = (X.sum(axis=1) + rng.normal(size=240) > 0).astype(int)
    if is_renamed:
        X, group, product = X.rename(columns=COLUMNS), pd.Series(group).map(GROUPS).to_numpy(), product.map(VALUES)
    model = LogisticRegression().fit(X, y)
    financial = list(X.columns[:2])
    return eh.audit(
        model, X, y, sensitive_features=group, financial_features=financial, by=product, regressions=True, **options
    )


@pytest.fixture(scope="module")
def labeled():
    return audited(is_renamed=False, labels=LABELS, **REPORT)


@pytest.fixture(scope="module")
def renamed():
    return audited(is_renamed=True)


def without_names(page):
    return re.sub(r"data-[0-9a-f]{32}", "", page)


def test_every_name_in_the_summary_is_labeled_and_nothing_else(labeled, renamed):
    summary, expected = labeled.to_dict(), renamed.to_dict()
    shown = Labels.of(summary["report"]["labels"], summary).summary(summary)
    for one in (shown, expected):
        one["data"] = {name: value for name, value in one["data"].items() if name not in ABOUT_NAMES}
    features = [[row["feature"] for row in one["proxies"]["features"]] for one in (shown, expected)]
    assert sorted(features[0]) == sorted(features[1])
    for key in expected:
        # Influences are for programs. Whom the proxy screen holds out depends on names.
        if key not in ("influences", "proxies"):
            np.testing.assert_equal(shown[key], expected[key], key)


def test_sentences_on_how_the_file_was_read_are_labeled(labeled):
    summary = labeled.to_dict()
    read = {
        "data": {**summary["data"], "exclusions": {"no value in 'group'": 3}},
        "warnings": ["group: 240 values like '$1' were read as numbers, this one as 1.", "A is: not a name"],
        "matching": {"balance": [{"feature": "value is missing"}]},
    }
    shown = Labels.of(summary["report"]["labels"], summary).summary({**summary, **read})
    assert shown["data"]["exclusions"] == {"no value in 'x1 monthly income'": 3}
    assert shown["warnings"][0].startswith("x1 monthly income: 240 values like '$1'")
    assert shown["warnings"][1] == "A is: not a name"
    assert shown["matching"]["balance"][0]["feature"] == "x2 debt is missing"


def test_names_in_the_json_stay_and_sentences_are_labeled(labeled, renamed, tmp_path):
    plain = audited(is_renamed=False).to_dict()
    summary, expected = labeled.to_dict(), renamed.to_dict()
    for key in plain:
        if key not in ("findings", "verdict", "versions"):
            np.testing.assert_equal(summary[key], plain[key], key)
    assert summary["verdict"] == expected["verdict"]
    assert [one["sentence"] for one in summary["findings"]] == [one["sentence"] for one in expected["findings"]]
    (own, raw) = (next(one for one in s["findings"] if one["key"] == "inputs") for s in (summary, plain))
    np.testing.assert_equal([own["feature"], own["features"]], [raw["feature"], raw["features"]])
    assert summary["report"] == {**REPORT, "labels": read_labels(LABELS)}
    labeled.to_json(tmp_path / "audit.json")
    jsonschema.validate(json.loads((tmp_path / "audit.json").read_text("utf-8")), load_schema())


def texts_of(result, folder):
    """What each output says, without numbers."""
    result.to_html(folder / "report.html")
    result.to_excel(folder / "audit.xlsx")
    result.to_word(folder / "memo.docx")
    book = openpyxl.load_workbook(folder / "audit.xlsx")
    memo = docx.Document(folder / "memo.docx")
    cells = [cell.text for table in memo.tables for row in table.rows for cell in row.cells]
    return {
        "page": without_names((folder / "report.html").read_text("utf-8")),
        "workbook": [[str(cell) for row in sheet.iter_rows(values_only=True) for cell in row] for sheet in book],
        "memo": [paragraph.text for paragraph in memo.paragraphs] + cells,
        "Markdown": result.to_markdown(),
        "terminal": str(result),
        "card": result._repr_html_(),
    }


def test_outputs_have_labels_where_they_would_have_names(labeled, renamed, tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    own, expected = texts_of(labeled, tmp_path / "one"), texts_of(renamed, tmp_path / "two")
    assert own["card"] == expected["card"]
    sheets = {"Audited", "Verdict and warnings", "Proxies"}
    names = openpyxl.load_workbook(tmp_path / "two" / "audit.xlsx").sheetnames
    for name, mine, theirs in zip(names, own["workbook"], expected["workbook"], strict=True):
        assert name in sheets or mine == theirs, name
    pairs = [re.search(r'id="pair-data">(.*?)</script>', one["page"])[1] for one in (own, expected)]
    assert pairs[0] == pairs[1]
    for name in ("title", "model_name", "model_version", "owner", "period"):
        said = REPORT[name].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        assert said in own["page"]
        assert any(REPORT[name] in text for text in own["memo"])
        assert any(REPORT[name] in text for text in own["workbook"][3])
        assert REPORT[name].replace("<", "\\<").replace(">", "\\>").replace("&", "\\&") in own["Markdown"]
        assert REPORT[name] in own["terminal"]


@pytest.fixture(scope="module")
def file(labeled, tmp_path_factory):
    path = tmp_path_factory.mktemp("audit") / "audit.json"
    labeled.to_json(path)
    return path


def test_what_is_read_writes_what_the_audit_wrote(labeled, file, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    read = eh.read_result(file)
    run = audit_page(labeled._shown, SECTIONS)  # as if the people were not known
    read.to_html(tmp_path / "report.html")
    assert without_names((tmp_path / "report.html").read_text("utf-8")) == without_names(run)
    assert read.to_markdown() == labeled.to_markdown()
    assert str(read) == str(labeled)
    for result, name in ((read, "read"), (labeled, "run")):
        result.to_word(tmp_path / f"{name}.docx")
        result.to_excel(tmp_path / f"{name}.xlsx")
    assert (tmp_path / "read.docx").read_bytes() == (tmp_path / "run.docx").read_bytes()
    books = [openpyxl.load_workbook(tmp_path / f"{name}.xlsx") for name in ("read", "run")]
    left_out = {"Review", "Reasons", "Cases", "Pairs", "Glossary", "Verdict and warnings"}
    for name in set(books[1].sheetnames) - left_out:
        own, other = (list(book[name].iter_rows(values_only=True)) for book in books)
        assert own == other, name
    pd.testing.assert_frame_equal(read.summary(), labeled.summary())
    pd.testing.assert_frame_equal(read.findings, labeled.findings, check_dtype=False)
    assert set(read.tables) == set(labeled.tables)
    assert read.plot.score_gap().to_dict() == labeled.plot.score_gap().to_dict()


def test_what_is_read_says_what_it_lacks(file, tmp_path):
    read = eh.read_result(file)
    read.to_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "which hold no people" in page
    assert 'id="explorer"' not in page
    read.to_excel(tmp_path / "audit.xlsx")
    book = openpyxl.load_workbook(tmp_path / "audit.xlsx")
    assert "Pairs" not in book.sheetnames
    assert "which hold no people" in str([cell.value for cell in book["Verdict and warnings"]["C"]])
    with pytest.raises(InvalidInputError, match="read from a file has no people"):
        read.plot.pair(3)
    with pytest.raises(DataFileError, match="cannot be read"):
        eh.read_result(tmp_path / "none.json")


def test_new_words_give_what_an_audit_with_them_would(labeled, renamed, tmp_path):
    audited(is_renamed=False).to_json(tmp_path / "plain.json")
    read = eh.read_result(tmp_path / "plain.json", labels=LABELS, title=REPORT["title"])
    assert read.to_dict()["verdict"] == renamed.to_dict()["verdict"]
    own, expected = (result.to_markdown().splitlines()[4:] for result in (read, labeled))
    assert own == expected
    read.to_json(tmp_path / "labeled.json")
    assert eh.read_result(tmp_path / "labeled.json").to_markdown() == read.to_markdown()
    jsonschema.validate(json.loads((tmp_path / "labeled.json").read_text("utf-8")), load_schema())


def test_the_report_is_shown_in_a_frame_that_holds_it(labeled):
    shown = labeled.show(height=500)._repr_html_()
    assert shown.startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    assert 'sandbox="allow-scripts"' in shown
    assert 'height="500"' in shown
    assert "<script" not in shown


def test_labels_are_read_from_files(tmp_path):
    (tmp_path / "labels.toml").write_text(
        '[labels]\nPAY_6 = "April"\n"SEX=1" = "men"\n[labels.EDUCATION]\n1 = "school"\n'
    )
    found = {"PAY_6": "April", "SEX=1": "men", "EDUCATION=1": "school"}
    assert read_labels(tmp_path / "labels.toml") == found
    pd.DataFrame({"name": list(found), "label": list(found.values())}).to_csv(tmp_path / "labels.csv", index=False)
    assert read_labels(str(tmp_path / "labels.csv")) == found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["PAY_6"], "must map names to labels"),
        ({"PAY_6": ""}, "the label of 'PAY_6' must be a text"),
        ({"SEX": {1: 2}}, "the label of 'SEX=1' must be a text, got 2"),
        ("none.toml", "there is no file 'none.toml'"),
    ],
)
def test_what_are_no_labels_is_refused(given, message):
    with pytest.raises(InvalidInputError, match=message):
        eh.AuditOptions(labels=given)


def test_a_title_must_be_a_text():
    with pytest.raises(InvalidInputError, match=r"`owner` \(--owner\) must be a text, got 3"):
        eh.AuditOptions(owner=3)


def test_two_groups_or_inputs_cannot_have_one_name(labeled):
    summary = labeled.to_dict()
    with pytest.raises(InvalidInputError, match="the groups 'feature' and 'low' are both called 'women'"):
        Labels.of({"feature": "women", "low": "women"}, summary)
    with pytest.raises(InvalidInputError, match=r"the inputs .* are both called 'money'"):
        Labels.of({"group": "money", "value": "money"}, summary)


def test_crossed_groups_are_named_by_their_parts():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 3)), columns=["income", "debt", "street"])
    groups = pd.DataFrame({"SEX": rng.choice(["1", "2"], 300), "AGE": rng.choice(["old", "young"], 300)})
    y = (X.sum(axis=1) + rng.normal(size=300) > 0).astype(int)
    labels = {"SEX": {1: "men", 2: "women"}, "old": "over 62", "young": "up to 62"}
    given = {"sensitive_features": groups, "financial_features": ["income", "debt"], "evidence": False}
    found = eh.audit(LogisticRegression().fit(X, y), X, y, labels=labels, **given)
    assert list(found._shown["data"]["groups"]) == [
        "men & over 62",
        "men & up to 62",
        "women & over 62",
        "women & up to 62",
    ]
    alone = found._shown["outcome"]["attributes"]
    assert {name: [row["group"] for row in table["groups"]] for name, table in alone.items()} == {
        "SEX": ["men", "women"],
        "AGE": ["over 62", "up to 62"],
    }
    assert alone["SEX"]["reference"] in ("men", "women")


def test_charts_show_in_notebooks_without_a_network(labeled):
    for chart in (labeled.plot.score_gap(), labeled.plot.regimes()):
        (kind, drawing), *rest = chart._repr_mimebundle_().items()
        assert (kind, rest) == ("image/svg+xml", [])
        assert drawing.startswith("<svg")
        assert "<script" not in drawing
        assert chart.to_dict()["$schema"]  # still Altair's: it can be changed and saved


def test_pages_on_several_audits_have_labels_where_they_would_have_names(labeled, renamed, tmp_path):
    plain = audited(is_renamed=False)
    turned = audited(is_renamed=False, labels={**LABELS, "feature": "y9 women"})  # another order of the groups
    own = eh.compare_audits({"spring": plain, "summer": labeled})
    expected = eh.compare_audits({"spring": renamed, "summer": renamed})
    assert own.sentences == expected.sentences
    assert [c.words for c in own.changes] == [c.words for c in expected.changes]
    assert [c.key for c in own.changes] == [c.key for c in eh.compare_audits({"a": plain, "b": plain}).changes]
    other = eh.compare_audits({"spring": plain, "summer": turned})
    assert [c.value for c in other.changes] == [c.value for c in own.changes]
    assert [c.words.replace("y9", "y1") for c in other.changes] == [c.words for c in own.changes]
    past, expected_past = (eh.monitor({"1": one, "2": one, "3": labeled}) for one in (plain, labeled))
    assert past.sentences == expected_past.sentences
    for name, one in (("compare", own), ("history", past)):
        one.to_html(tmp_path / f"{name}.html")
        page = (tmp_path / f"{name}.html").read_text("utf-8")
        assert all(label in page for label in GROUPS.values())
        assert "Cards &amp; loans 3.2" in page
    assert list(own.to_dict()["audits"][1]["groups"]) == list(GROUPS)
