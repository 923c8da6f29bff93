"""The memo: parts in order, numbers of the JSON and the workbook cell by cell, and templates of one's own."""

import json
import re
import shutil
import subprocess
import zipfile
from dataclasses import replace
from itertools import pairwise

import docx
import openpyxl
import pytest
from docx.oxml.ns import qn

from evenhand.auditing.sections import SECTIONS
from evenhand.exceptions import EvenhandError, InvalidInputError
from evenhand.report import memo as module
from evenhand.report.drawing import png_of
from evenhand.report.page import audit_sections, front_of
from evenhand.report.tables import INTERVAL, shown

PARTS = ["Purpose", "Data", "Method", "Findings", "Limits", "Reproducibility", "Glossary",
         "Appendix: tables behind the charts"]  # fmt: skip
NUMBER = r"[−-]?[\d,]*\.?\d+"
HALF = 0.5000001


@pytest.fixture(scope="module")
def memo(result, tmp_path_factory):
    path = tmp_path_factory.mktemp("memo") / "memo.docx"
    result.to_word(path)
    return docx.Document(path)


@pytest.fixture
def one_chart(monkeypatch):
    """Draws one small chart in place of all, where charts are not what is tested."""
    png = png_of({"mark": "point", "data": {"values": []}})
    monkeypatch.setattr(module, "png_of", lambda *_: png)


@pytest.fixture(scope="module")
def hostile_memo(hostile, tmp_path_factory):
    path = tmp_path_factory.mktemp("memo") / "memo.docx"
    spoiled = replace(hostile, warnings=("\x00\x0b\x1f broken \ud800\ufffe", *hostile.warnings))
    with pytest.MonkeyPatch.context() as patch:
        png = png_of({"mark": "point", "data": {"values": []}})
        patch.setattr(module, "png_of", lambda *_: png)
        spoiled.to_word(path)
    return docx.Document(path)


def unfolded(summary):
    return [part for section in audit_sections(summary, SECTIONS) for part in section.unfolded]


def headings(document, level=1):
    return [p.text for p in document.paragraphs if p.style.name == f"Heading {level}"]


def tables_by_caption(document):
    """Rows of texts of each table, those that were cut joined again, by the words of the caption before it."""
    found, caption = {}, ""
    for block in document.iter_inner_content():
        if not hasattr(block, "rows"):
            caption = block.text if block.style.name == "Caption" else caption
            continue
        words = re.fullmatch(r"Table \d+\. (.*)\.", caption)[1]
        found.setdefault(words, []).append([[cell.text for cell in row.cells] for row in block.rows])
    return found


def records_of(parts, columns):
    """Values and intervals of each record of a memo's table by heading; where columns are many, records are columns."""
    heads = parts[0][0]
    if heads[1].partition("\n")[0] in columns:
        return [estimates_of(heads, row) for row in parts[0][1:]]
    return [
        estimates_of([row[0] for row in part], [row[place] for row in part])
        for part in parts
        for place in range(1, len(part[0]))
    ]


def estimates_of(heads, cells):
    """Values with their intervals, which stand beside them or below them."""
    found, last = {}, ""
    for head, cell in zip(heads, cells, strict=True):
        if head == INTERVAL:
            found[last] = (found[last][0], cell)
            continue
        last = head.partition("\n")[0]
        value, _, ends = cell.replace("\xa0", " ").partition("\n")
        found[last] = (value, ends.strip("()"))
    return found


def numbers_in(text):
    return [float(number.replace("−", "-").replace(",", "")) for number in re.findall(NUMBER, text)]


def is_same(text, value, *, is_share=False):
    """Whether a text shows a number of the workbook, to the digits that it has."""
    if value is None or value == "":
        return text in ("", "not estimated")
    if isinstance(value, bool):
        return text == {True: "yes", False: "no"}[value]
    if isinstance(value, str):
        return text == value
    if text.startswith(("< ", "> ")):
        (limit,) = numbers_in(text)
        return value < limit if text[0] == "<" else value > limit
    found = re.fullmatch(rf"({NUMBER})(%)?", text)
    assert found, (text, value)
    digits = len(found[1].partition(".")[2])
    scale = 100 if found[2] or is_share else 1
    return abs(numbers_in(found[1])[0] - scale * value) <= HALF * 10**-digits


def test_the_memo_has_the_parts_of_a_validation_memo_in_order(memo):
    assert headings(memo) == PARTS
    assert memo.paragraphs[0].style.name == "Title"
    titles = headings(memo, 2)
    assert titles[0] == "Matching and sensitivity"
    assert {"Outcomes", "Score gap, by input", "Feature drivers"} <= set(titles)


def test_the_first_page_has_the_answer(memo, result):
    """What the front page of the report says comes before the first heading, which starts a page."""
    said, table = [], None
    for block in memo.iter_inner_content():
        if hasattr(block, "rows"):
            table = table or [[cell.text for cell in row.cells] for row in block.rows]
        elif block.style.name == "Heading 1":
            assert block.paragraph_format.page_break_before
            break
        else:
            said.append(block.text)
    front = front_of(result.to_dict())
    assert f"{front.headline}." in said
    assert [row[:2] for row in table[1:]] == [[card.name, card.answer] for card in front.metrics]
    assert [row[2] for row in table[1:]] == ["\n".join(card.texts) for card in front.metrics]
    assert f"What this does not show. {front.limits}" in said
    assert {*result.warnings, *(f"{name}. {sentence}" for name, sentence in front.sentences)} <= set(said)


def test_its_sentences_are_those_of_the_page(memo, result):
    said = [p.text for p in memo.paragraphs]
    found = result.to_dict()["verdict"]
    assert {sentence for _, sentence in found["sentences"]} <= set(said)


@pytest.mark.usefixtures("one_chart")
def test_a_section_that_is_new_on_the_page_is_a_finding_of_the_memo(result, tmp_path, monkeypatch):
    sections = audit_sections(result.to_dict(), SECTIONS)
    fresh = replace(sections[1], id="shoes", title="Shoes", folded=())
    monkeypatch.setattr(module, "audit_sections", lambda *_: [*sections, fresh])
    result.to_word(tmp_path / "memo.docx")
    document = docx.Document(tmp_path / "memo.docx")
    assert headings(document, 2)[-1] == "Shoes"
    assert headings(document) == PARTS


def test_every_table_of_the_memo_is_one_of_the_json(memo, result, tmp_path):
    result.to_json(tmp_path / "audit.json")
    summary = json.loads((tmp_path / "audit.json").read_text("utf-8"))
    sections = unfolded(summary)
    tables = [t for s in sections for t in (*s.tables, *(p.table for p in s.panels))]
    expected = {table.caption.rstrip("."): shown(table) for table in tables if table.records}
    written = tables_by_caption(memo)
    assert set(expected) <= set(written)
    for caption, page in expected.items():
        rows = records_of(written[caption], page.columns)
        assert len(rows) == len(page.rows)
        for row, cells in zip(rows, page.rows, strict=True):
            expected_row = estimates_of(page.columns, cells)
            assert row == {name: expected_row[name] for name in row}
            assert all(found == ("", "") for name, found in expected_row.items() if name not in row)


def test_every_number_of_the_memo_is_that_of_the_workbook(memo, result, tmp_path):
    result.to_excel(tmp_path / "audit.xlsx")
    book = openpyxl.load_workbook(tmp_path / "audit.xlsx")
    written, n_compared = tables_by_caption(memo), 0
    about = {row[1]: row[2].rstrip(".") for row in book["Glossary"].iter_rows(values_only=True, min_row=2)}
    for sheet in book:
        if about.get(sheet.title) not in written:
            continue
        head, *cells = sheet.iter_rows(values_only=True)
        estimates = [heading for heading, after in pairwise(head) if after.endswith("lower")]
        rows = records_of(written[about[sheet.title]], head)
        for row, values in zip(rows, cells, strict=False):
            by_heading = dict(zip(head, values, strict=True))
            for name, (value, ends) in row.items():
                assert is_same(value, by_heading[name]), (sheet.title, name, value, by_heading[name])
                n_compared += 1
                if name in estimates:
                    before = f"{name}, " if f"{name}, lower" in head else ""
                    limits = [by_heading[f"{before}{end}"] for end in ("lower", "upper")]
                    assert bool(ends) == any(isinstance(end, (int, float)) for end in limits)
                    for end, limit in zip(ends.split(" to ") if ends else (), limits, strict=False):
                        assert is_same(end, limit, is_share=value.endswith("%")), (sheet.title, name, ends, limit)
                        n_compared += 1
    assert n_compared > 500


def test_headings_of_tables_are_repeated_and_rows_are_not_split(memo):
    assert memo.tables
    for table in memo.tables:
        first, *rest = table.rows
        assert first._tr.trPr.find(qn("w:tblHeader")) is not None
        assert all(row._tr.trPr.find(qn("w:cantSplit")) is not None for row in rest)
        assert not any(row._tr.trPr.find(qn("w:tblHeader")) is not None for row in rest)
        assert table.style.name == "Table Grid"
        assert sum(column.width for column in table.columns) <= memo.sections[-1].page_width


def test_every_chart_has_a_caption_and_a_description(memo, result):
    pictures = memo.element.body.xpath(".//wp:docPr")
    captions = [p.text for p in memo.paragraphs if p.text.startswith("Figure ")]
    sections = unfolded(result.to_dict())
    method = ("matching", "matching-more", "sensitivity")
    sections.sort(key=lambda section: section.id not in method)
    panels = [panel for section in sections for panel in section.panels]
    drawn = [panel for panel in panels if panel.specification is not None]
    assert len(pictures) == len(captions) == len(drawn)
    assert [picture.get("descr") for picture in pictures] == [panel.description for panel in drawn]
    numbered = {p.text.partition(".")[0] for p in memo.paragraphs if p.text.startswith("Table ")}
    for number, (caption, panel) in enumerate(zip(captions, drawn, strict=True), 1):
        assert caption.startswith(f"Figure {number}. {panel.title}. {panel.caption} Numbers: Table ")
        assert caption.rpartition(": ")[2].rstrip(".") in numbered


def test_numbers_of_tables_and_pages_are_fields_that_word_computes(memo):
    fields = [node.text.strip() for node in memo.element.body.iter(qn("w:instrText"))]
    assert fields.count("SEQ Table \\* ARABIC") == len([p for p in memo.paragraphs if p.text.startswith("Table ")])
    marks = {node.get(qn("w:name")) for node in memo.element.body.iter(qn("w:bookmarkStart"))}
    assert {field.split()[1] for field in fields if field.startswith("REF")} <= marks
    footer = [node.text.strip() for node in memo.sections[0].footer._element.iter(qn("w:instrText"))]
    assert footer == ["PAGE", "NUMPAGES"]


@pytest.mark.usefixtures("one_chart")
def test_the_file_says_what_it_is_and_holds_nothing_that_runs(result, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    result.to_word(tmp_path / "first.docx")
    result.to_word(tmp_path / "second.docx")
    assert (tmp_path / "first.docx").read_bytes() == (tmp_path / "second.docx").read_bytes()
    properties = docx.Document(tmp_path / "first.docx").core_properties
    assert properties.title == f"Audit of {result.provenance.model}"
    assert (properties.author, properties.comments) == ("evenhand", "")
    assert f"{properties.created:%Y-%m-%d}" == "2023-11-14"
    with zipfile.ZipFile(tmp_path / "first.docx") as parts:
        assert not [name for name in parts.namelist() if "vba" in name.lower()]
        for name in parts.namelist():
            assert b'TargetMode="External"' not in parts.read(name)


def test_it_claims_no_compliance(memo):
    said = " ".join(p.text for p in memo.paragraphs).lower()
    assert "draws no conclusion about any law, rule or policy" in said
    assert not re.search(r"complies|compliant|compliance|in accordance with", said)


@pytest.mark.usefixtures("one_chart")
def test_without_evidence_the_memo_says_so(without_evidence, tmp_path):
    without_evidence.to_word(tmp_path / "memo.docx")
    document = docx.Document(tmp_path / "memo.docx")
    said = [p.text for p in document.paragraphs]
    assert any("run without evidence: nothing is compared with placebo pairs" in text for text in said)
    assert headings(document) == PARTS


def test_hostile_names_and_control_characters_stay_text(hostile_memo):
    said = [p.text for p in hostile_memo.paragraphs]
    assert r"\x00\x0b\x1f broken \ud800\ufffe" in said
    cells = {cell.text for table in hostile_memo.tables for row in table.rows for cell in row.cells}
    assert "<script>alert(1)</script>" in cells
    assert [text for text in said if text.startswith(f"The first {module.MOST_ROWS} of ")]
    assert max(len(table.rows) for table in hostile_memo.tables) <= module.MOST_ROWS + 1


def test_wide_tables_put_a_few_records_side_by_side(hostile, hostile_memo):
    parts = tables_by_caption(hostile_memo)
    (approvals,) = (rows for words, rows in parts.items() if words.startswith("Favorable decisions of each group"))
    assert [len(part[0]) for part in approvals] == [3, 4]  # five groups: two, and three
    groups = [name for part in approvals for name in part[0][1:]]
    assert groups == [row["group"] for row in hostile.to_dict()["outcome"]["approvals"]["groups"]]


# --- templates ---


@pytest.fixture
def template(tmp_path):
    """A house template: a cover, a header, a larger heading, and no style for captions, tables or bullets."""
    document = docx.Document()
    document.add_paragraph("House of Loans, confidential")
    document.sections[0].header.paragraphs[0].text = "House of Loans"
    document.styles["Heading 1"].font.name = "Georgia"
    document.core_properties.author = "Model Risk"
    for name in ("Caption", "List Bullet", "Table Grid"):
        document.styles[name].delete()
    path = tmp_path / "house.docx"
    document.save(path)
    return path


@pytest.mark.usefixtures("one_chart")
def test_a_template_keeps_its_text_header_and_styles(result, template, tmp_path):
    result.to_word(tmp_path / "memo.docx", template=template)
    document = docx.Document(tmp_path / "memo.docx")
    assert document.paragraphs[0].text == "House of Loans, confidential"
    assert document.paragraphs[2].style.name == "Title"  # after a page break
    assert document.sections[0].header.paragraphs[0].text == "House of Loans"
    assert document.styles["Heading 1"].font.name == "Georgia"
    assert document.core_properties.author == "Model Risk"
    assert headings(document) == PARTS
    used = {p.style.name for p in document.paragraphs}
    assert {"Caption", "List Bullet", "Table Text"} <= used
    ids = {style.style_id for style in document.styles}
    for style in document.styles.element.xpath("./w:style/w:basedOn"):
        assert style.val in ids


@pytest.mark.usefixtures("one_chart")
def test_an_empty_template_adds_no_page(result, tmp_path):
    docx.Document().save(tmp_path / "empty.docx")
    result.to_word(tmp_path / "memo.docx", template=tmp_path / "empty.docx")
    assert docx.Document(tmp_path / "memo.docx").paragraphs[0].style.name == "Title"


def as_kind(path, target, kind):
    """A copy of a Word file that calls itself another kind."""
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(target, "w") as copy:
        for name in source.namelist():
            content = source.read(name).replace(b"wordprocessingml.document.main", kind)
            copy.writestr(name, content)


@pytest.mark.usefixtures("one_chart")
def test_a_dotx_is_a_template_too(result, template, tmp_path):
    as_kind(template, tmp_path / "house.dotx", b"wordprocessingml.template.main")
    result.to_word(tmp_path / "memo.docx", template=tmp_path / "house.dotx")
    assert docx.Document(tmp_path / "memo.docx").paragraphs[0].text == "House of Loans, confidential"


def spoiled_templates(template, tmp_path):
    yield tmp_path / "house.docm", template.read_bytes(), "cannot be read as one"
    yield tmp_path / "text.docx", b"not a zip file", "cannot be read as one"
    yield tmp_path / "half.docx", template.read_bytes()[:2000], "cannot be read as one"
    as_kind(template, tmp_path / "macro.docx", b"ms-word.document.macroEnabled.main")
    yield tmp_path / "macro.docx", (tmp_path / "macro.docx").read_bytes(), "has macros"
    with zipfile.ZipFile(tmp_path / "other.docx", "w") as other:
        other.writestr("xl/workbook.xml", "<workbook/>")
    yield tmp_path / "other.docx", (tmp_path / "other.docx").read_bytes(), "cannot be read as one"
    with zipfile.ZipFile(template) as source, zipfile.ZipFile(tmp_path / "broken.docx", "w") as broken:
        for name in source.namelist():
            broken.writestr(name, b"<w:document" if name == "word/document.xml" else source.read(name))
    yield tmp_path / "broken.docx", (tmp_path / "broken.docx").read_bytes(), "cannot be read as one"


def test_what_is_not_a_template_is_refused_in_one_sentence_and_nothing_is_written(result, template, tmp_path):
    seen = 0
    for path, content, sentence in spoiled_templates(template, tmp_path):
        path.write_bytes(content)
        with pytest.raises(InvalidInputError, match=sentence) as refused:
            result.to_word(tmp_path / "out" / "memo.docx", template=path)
        assert str(refused.value).count("\n") == 0
        seen += 1
    assert seen == 6
    assert not (tmp_path / "out").exists()
    with pytest.raises((EvenhandError, OSError), match=r"absent\.docx"):
        result.to_word(tmp_path / "out" / "memo.docx", template=tmp_path / "absent.docx")


@pytest.mark.parametrize("name", ["memo.docm", "memo.doc", "memo"])
def test_a_memo_has_the_ending_of_what_it_is(result, tmp_path, name):
    with pytest.raises(InvalidInputError, match=f"A memo is written as .docx, got '{name}'"):
        result.to_word(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.integration
@pytest.mark.skipif(shutil.which("soffice") is None, reason="needs LibreOffice")
def test_libreoffice_opens_the_memo(result, template, tmp_path):
    result.to_word(tmp_path / "memo.docx", template=template)
    profile = f"-env:UserInstallation={(tmp_path / 'profile').as_uri()}"
    command = ["soffice", profile, "--headless", "--convert-to", "pdf", "--outdir", str(tmp_path), "memo.docx"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=180)
    pdf = (tmp_path / "memo.pdf").read_bytes()
    assert pdf.startswith(b"%PDF-")
    assert 10 <= len(re.findall(rb"/Type\s*/Page[^s]", pdf)) <= 60
    if shutil.which("pdftotext"):
        said = subprocess.run(["pdftotext", "memo.pdf", "-"], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert "House of Loans, confidential" in said.stdout
        assert all(part in said.stdout for part in PARTS)
