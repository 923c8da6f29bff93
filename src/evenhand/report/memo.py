"""The memo of an audit as a Word document, from the sections, tables and charts of its page."""

from __future__ import annotations

import copy
import io
import itertools
import math
import os
import re
import struct
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from evenhand.exceptions import ArchiveError, EvenhandError, InvalidInputError
from evenhand.report import frame
from evenhand.report.drawing import LIGHT, png_of, theme
from evenhand.report.formatting import count, listed, shortened
from evenhand.report.frame import Finding, Panel
from evenhand.report.page import about_audit, audit_sections, title_of
from evenhand.report.section import Section, Summary, lacking
from evenhand.report.tables import INTERVAL, ShownTable, Table, shown
from evenhand.system import __version__
from evenhand.system.files import Archive, open_archive, time_of_writing, write_archive, write_atomically

TEXT, TITLE, SUBTITLE, BULLET, CAPTION, TABLE = "Normal", "Title", "Subtitle", "List Bullet", "Caption", "Table Grid"
CELL = "Table Text"  # the only style that Word does not have: none of its styles is for cells
_HEADINGS = ("Heading 1", "Heading 2", "Heading 3")
_STYLES = (TEXT, TITLE, SUBTITLE, *_HEADINGS, BULLET, CELL, CAPTION, TABLE)

_TEMPLATES = (".docx", ".dotx")
_DOCUMENT, _TEMPLATE_KIND = (
    f"application/vnd.openxmlformats-officedocument.wordprocessingml.{kind}.main+xml".encode()
    for kind in ("document", "template")
)
_POINTS, _POINTS_HERE = 72, 96  # per inch
_EMU = 914_400  # Word's units per inch
_TALLEST = 3.6  # inches
_CENTERED, _RIGHT, _PARAGRAPH = 1, 2, 1
_BOOKMARK = "_Ref_Table_{}"
_FIRST_BOOKMARK = 10_000  # beyond those that a template may have
_MOST_TOGETHER = 12  # rows of a table that a page break does not separate
_LONGEST_PROPERTY = 255
_PADDING, _ON_A_LINE = 5, 115  # characters next to a cell, and in a row of cells
_LONGEST_WORD, _LONGEST_LINE = 22, 70  # characters that a column makes room for; longer words are broken
_BROKEN_HEAD = 8  # characters of a heading's word that fit if there are many columns
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def plain_text(text: object) -> str:
    r"""Escape the characters of a text that XML cannot hold.

    Examples
    --------
    >>> plain_text("debt\x01\ud800")
    'debt\\x01\\ud800'
    """
    return _NOT_IN_XML.sub(lambda found: ascii(found[0])[1:-1], str(text))


def open_word(template: str | os.PathLike[str] | None = None) -> WordDocument:
    """An empty document, or a template with its body, headers, footers and styles.

    Raises
    ------
    InvalidInputError
        If the template is not a Word file, has macros, or loads something from elsewhere.
    FileNotFoundError
        If there is no such file.
    """
    import docx

    if template is None:
        return WordDocument(_with_house_look(docx.Document()))
    path = Path(template)
    if path.suffix.lower() not in _TEMPLATES:
        raise _not_a_template(path)
    try:
        with open_archive(path) as archive:
            content = _as_document(path, archive)
    except ArchiveError:
        raise _not_a_template(path) from None
    try:
        document = docx.Document(io.BytesIO(content))
        _add_missing_styles(document, _with_house_look(docx.Document()))
        _end_body(document)
        active = _active_content(document)
    except Exception:  # python-docx and lxml raise many kinds of errors on missing or invalid parts
        raise _not_a_template(path) from None
    if active:
        raise InvalidInputError(
            f"The template {str(path)!r} {active[0]}, and so would the memo: remove it in Word, or insert the content."
        )
    return WordDocument(document)


# Fields and parts of a document that load, start or run something else.
_ACTIVE_FIELD = re.compile(
    r"\s*(DDE|DDEAUTO|INCLUDE|INCLUDEPICTURE|INCLUDETEXT|IMPORT|LINK|DATABASE|RD)\b", re.IGNORECASE
)
_ACTIVE_PARTS = ("oleObject", "control", "aFChunk")


def _active_content(document: Any) -> list[str]:
    """What Word would load or start as it opens a document; the link to its own template is removed.

    Hyperlinks are not among them: they lead somewhere only if someone follows them.
    """
    found = []
    for part in (document.part.package, *document.part.package.iter_parts()):
        for key, link in list(part.rels.items()):
            kind = link.reltype.rpartition("/")[2]
            if kind == "attachedTemplate":
                del part.rels[key]
                for element in part.element.findall(_element("w:attachedTemplate").tag):
                    part.element.remove(element)
            elif link.is_external and kind != "hyperlink":
                found.append(f"loads {str(link.target_ref)!r} whenever it is opened")
            elif kind in _ACTIVE_PARTS:
                found.append(f"holds an embedded object ({kind})")
        fields = _fields(part.blob) if str(getattr(part, "partname", "")).endswith(".xml") else ()
        found += [
            f"runs the field {code.strip()!r} whenever it is opened" for code in fields if _ACTIVE_FIELD.match(code)
        ]
    return found


def _fields(content: bytes) -> Iterator[str]:
    """The codes of fields, such as PAGE, which Word may store in several pieces."""
    from docx.oxml import parse_xml

    held = [""]
    for element in parse_xml(content).iter():
        kind = str(element.tag).rpartition("}")[2]
        values = {str(name).rpartition("}")[2]: value for name, value in element.attrib.items()}
        if kind == "fldSimple":
            yield values.get("instr", "")
        elif kind in ("instrText", "delInstrText"):
            held[-1] += element.text or ""
        elif kind == "fldChar" and values.get("fldCharType") == "begin":
            held.append("")
        elif kind == "fldChar" and values.get("fldCharType") == "end" and len(held) > 1:
            yield held.pop()
    yield from held


def _as_document(path: Path, archive: Archive) -> bytes:
    kinds = "[Content_Types].xml"
    entries: dict[str, bytes | Path] = {name: archive.read(name) for name in archive.names if not name.endswith("/")}
    types = archive.read(kinds)
    if b"macroEnabled" in types or any(Path(name).name.lower() == "vbaproject.bin" for name in entries):
        raise InvalidInputError(f"The template {str(path)!r} has macros: save it as .docx or .dotx without them.")
    content = io.BytesIO()
    write_archive(content, {**entries, kinds: types.replace(_TEMPLATE_KIND, _DOCUMENT)})
    return content.getvalue()


def _not_a_template(path: Path) -> EvenhandError:
    return InvalidInputError(
        f"The template must be a Word file, .docx or .dotx without macros, but {str(path)!r} cannot be "
        "read as one; save it again in Word."
    )


@dataclass(frozen=True, eq=False)
class WordDocument:
    """A document that is written from start to end.

    Attributes
    ----------
    word
        The python-docx document.
    numbers
        Numbers of the tables, by their names and captions.
    behind
        The table behind each chart, with the chart's caption, which refers to it once it has a number.
    """

    word: Any
    numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    behind: list[tuple[Table, Any]] = field(default_factory=list)

    def heading(self, text: str, level: int, *, is_on_new_page: bool = False) -> None:
        """A heading of level 1 to 3."""
        self.paragraph(text, _HEADINGS[level - 1]).paragraph_format.page_break_before = is_on_new_page or None

    def paragraph(self, text: str, style: str = TEXT, *, lead: str = "") -> Any:
        """A paragraph; `lead` precedes the text in bold."""
        added = self.word.add_paragraph(style=style)
        if lead:
            added.add_run(f"{plain_text(lead)} ").bold = True
        added.add_run(plain_text(text))
        return added

    def caption(self, kind: str, number: int, text: str) -> Any:
        """A caption that Word numbers; that of a table has a bookmark."""
        added = self.word.add_paragraph(style=CAPTION)
        bookmark = str(_FIRST_BOOKMARK + number)
        if kind == "Table":
            added._p.append(_element("w:bookmarkStart", id=bookmark, name=_BOOKMARK.format(number)))
        added.add_run(f"{kind} ")
        _add_field(added, f"SEQ {kind} \\* ARABIC", str(number))
        if kind == "Table":
            added._p.append(_element("w:bookmarkEnd", id=bookmark))
        added.add_run(plain_text(f". {text}"))
        return added

    def picture(self, png: bytes, ppi: int, description: str) -> None:
        """A chart with the given pixels per inch, and a description for people who cannot see it."""
        pixels, tall = struct.unpack(">II", png[16:24])  # from the header that every PNG has
        # The converter draws 72 points per inch; at 96, a chart's letters have the size of a caption's.
        natural = pixels * _POINTS / ppi / _POINTS_HERE * _EMU
        width = int(min(self.width, natural, _TALLEST * _EMU * pixels / tall))
        added = self.word.add_paragraph(style=TEXT)
        added.paragraph_format.keep_with_next = True
        run = added.add_run()
        run.add_picture(io.BytesIO(png), width=width)
        (properties,) = run._r.xpath(".//wp:docPr")
        properties.set("descr", plain_text(description))

    def chart(self, panel: Panel, figures: Iterator[int]) -> None:
        """A chart with its caption, or why there is nothing to draw."""
        caption = None
        if panel.specification is None:
            self.paragraph(panel.note, lead=f"{panel.title}.")
        else:
            self.picture(png_of({**panel.specification, "config": theme(LIGHT)}, _PPI), _PPI, panel.description)
            caption = self.caption("Figure", next(figures), f"{panel.title}. {panel.caption}")
        if panel.table is not None and panel.table.records:
            self.behind.append((panel.table, caption))

    def table(self, table: Table) -> None:
        """A table of a page, in the form for printed pages."""
        found, caption = shown(table), table.caption.rstrip(".")
        if not found.rows:
            self.paragraph(f"{caption}: {table.if_empty or 'nothing to show.'}")
            return
        note = ""
        if len(found.rows) > MOST_ROWS:
            note = f"The first {MOST_ROWS} of {count(len(found.rows))} rows; the workbook has all."
            found = replace(found, rows=found.rows[:MOST_ROWS])
        self.grids(_key(table), caption, _grids(found))
        if note:
            self.paragraph(note)

    def facts(self, caption: str, rows: Sequence[tuple[str, str]], heads: tuple[str, str] = ("item", "value")) -> None:
        """A table of names and values."""
        self.grids((caption, caption), caption, [ShownTable(heads, rows, (False, False))])

    def grids(self, key: tuple[str, str], caption: str, grids: Sequence[ShownTable]) -> None:
        """One or several tables below one caption, whose number is kept."""
        self.numbers[key] = number = len(self.numbers) + 1
        self.caption("Table", number, f"{caption}.").paragraph_format.keep_with_next = True
        for grid in grids:
            self._grid(grid, caption)

    def _grid(self, grid: ShownTable, description: str) -> None:
        """A table whose headings are repeated on every page."""
        texts = [list(map(plain_text, row)) for row in (grid.columns, *grid.rows)]
        widths = _widths(texts, grid.is_number, self.width)
        table = self.word.add_table(rows=0, cols=len(grid.columns), style=TABLE)
        table.autofit = False
        style = self.word.styles[CELL].style_id  # looked up once: python-docx searches all styles each time
        properties = table._tbl.tblPr
        properties.append(_element("w:tblDescription", val=plain_text(shortened(description, _LONGEST_PROPERTY))))
        for column, width in zip(table.columns, widths, strict=True):
            column.width = width
        for place, row in enumerate(texts):
            cells = table.add_row()
            marks = cells._tr.get_or_add_trPr()
            marks.append(_element("w:cantSplit"))
            if place == 0:
                marks.append(_element("w:tblHeader"))
            for cell, text, width, is_number in zip(cells.cells, row, widths, grid.is_number, strict=True):
                cell.width = width
                (paragraph,) = cell.paragraphs
                paragraph._p.style = style
                paragraph.add_run(text).bold = place == 0 or None
                paragraph.paragraph_format.keep_with_next = place < len(grid.rows) <= _MOST_TOGETHER or None
                paragraph.alignment = _RIGHT if is_number else None
        self.paragraph("", CELL)

    def appendix(self) -> None:
        """The tables behind charts that are not in the document yet, and references to all tables behind charts."""
        if any(_key(table) not in self.numbers for table, _ in self.behind):
            self.heading("Appendix: tables behind the charts", 1)
        for table, caption in self.behind:
            if _key(table) not in self.numbers:
                self.table(table)
            if caption is not None:
                number = self.numbers[_key(table)]
                caption.add_run(" Numbers: ")
                _add_field(caption, f"REF {_BOOKMARK.format(number)} \\h", f"Table {number}")
                caption.add_run(".")

    @property
    def width(self) -> int:
        """Width of the text on a page, in the units of python-docx."""
        last = self.word.sections[-1]
        return int(last.page_width - last.left_margin - last.right_margin)

    def save(self, path: str | os.PathLike[str], *, title: str, subject: str, author: str, created: datetime) -> None:
        """Write the file, completely or not at all; the same content and time give the same bytes."""
        properties = self.word.core_properties
        properties.title, properties.subject = (
            shortened(plain_text(text), _LONGEST_PROPERTY) for text in (title, subject)
        )
        properties.author = properties.author if properties.author not in ("", "python-docx") else author
        properties.comments = "" if properties.comments == "generated by python-docx" else properties.comments
        properties.last_modified_by = author
        properties.created = properties.modified = created.replace(tzinfo=None)
        written = io.BytesIO()
        self.word.save(written)
        with zipfile.ZipFile(written) as archive, write_atomically(path) as temporary:  # packed again, with fixed times
            write_archive(temporary, {name: archive.read(name) for name in archive.namelist()})


def _element(tag: str, /, **attributes: str) -> Any:
    """An element of Word's XML."""
    from docx.oxml import OxmlElement

    return _set(OxmlElement(tag), **attributes)


def _set(element: Any, /, **attributes: str) -> Any:
    """An element with attributes of Word's namespace."""
    from docx.oxml.ns import qn

    for attribute, value in attributes.items():
        element.set(qn(f"w:{attribute}"), value)
    return element


def _add_field(paragraph: Any, instruction: str, shown: str) -> None:
    """A field that Word can recompute, with what it shows until then."""
    text = _element("w:instrText")
    text.text = f" {instruction} "
    begin, middle, end = (_element("w:fldChar", fldCharType=kind) for kind in ("begin", "separate", "end"))
    for part in (begin, text, middle):
        paragraph.add_run()._r.append(part)
    paragraph.add_run(shown)
    paragraph.add_run()._r.append(end)


def _widths(rows: Sequence[Sequence[str]], is_number: Sequence[bool], whole: int) -> list[int]:
    """Widths of columns on a page by their content: room for words and numbers first, then for whole lines.

    Examples
    --------
    >>> _widths([["group", "what to mind"], ["a", "a long note on several lines"]], (False, False), 900)
    [209, 690]
    """
    columns = [[cell.split("\n") for cell in column] for column in zip(*rows, strict=True)]
    lines = [_PADDING + min(max(len(line) for cell in column for line in cell), _LONGEST_LINE) for column in columns]
    for longest_head in (_LONGEST_WORD, _BROKEN_HEAD):
        words = [
            _PADDING + min(_unbroken(column, is_number=number, longest_head=longest_head), _LONGEST_WORD)
            for column, number in zip(columns, is_number, strict=True)
        ]
        if sum(words) <= _ON_A_LINE:
            break
    more = [max(line - word, 0) for line, word in zip(lines, words, strict=True)]
    share = min(1.0, max(0.0, (_ON_A_LINE - sum(words)) / max(sum(more), 1)))
    shares = [word + share * rest for word, rest in zip(words, more, strict=True)]
    return [int(whole * part / sum(shares)) for part in shares]


def _unbroken(column: Sequence[Sequence[str]], *, is_number: bool, longest_head: int) -> int:
    """Characters that a column must have room for: its longest word, and numbers with their units."""
    head, *cells = column
    heads = [min(len(word), longest_head) for line in head for word in line.split(" ")]
    words = [len(word) for cell in cells for line in cell for word in line.split(" ")]
    numbers = [len(line) for cell in cells for line in cell if is_number and line[-1:] in "0123456789%)"]
    return max(*heads, *words, *numbers, 0)


# --- styles ---


def _with_house_look(document: Any) -> Any:
    """The style without a template, and of styles that a template does not have."""
    from docx import shared

    document.styles.add_style(CELL, _PARAGRAPH).base_style = document.styles[TEXT]
    sizes = {TEXT: 10, TITLE: 20, SUBTITLE: 10.5, CELL: 8, CAPTION: 8.5, "Footer": 8.5}
    sizes |= dict(zip(_HEADINGS, (14, 12, 10.5), strict=True))
    for name, size in sizes.items():
        style = document.styles[name]
        style.font.size = shared.Pt(size)
        if name != TEXT:
            style.font.color.rgb = shared.RGBColor.from_string(LIGHT.ink[1:].upper())
        for fonts in style.element.xpath(".//w:rFonts"):
            fonts.getparent().remove(fonts)  # those of a theme would take precedence
        if name != CELL:  # which has the font of the text, also in a template
            style.font.name = "Arial"  # on every desktop, or a font of the same widths
    for name, space in ((CELL, 0), (TEXT, 6), (CAPTION, 6)):
        document.styles[name].paragraph_format.space_after = shared.Pt(space)
    document.styles[CELL].paragraph_format.line_spacing = 1.0
    document.styles[CAPTION].font.bold = False
    document.styles[SUBTITLE].font.italic = False
    _shade_first_row(document.styles[TABLE].element)
    (section,) = document.sections
    section.left_margin = section.right_margin = section.top_margin = section.bottom_margin = shared.Inches(1)
    footer = section.footer.paragraphs[0]
    footer.alignment = _CENTERED
    footer.add_run("Page ")
    _add_field(footer, "PAGE", "1")
    footer.add_run(" of ")
    _add_field(footer, "NUMPAGES", "1")
    return document


def _shade_first_row(style: Any) -> None:
    """Thin gray lines, some padding, and headings on a light background."""
    for side in style.xpath(".//w:tblCellMar/w:top | .//w:tblCellMar/w:bottom"):
        _set(side, w="30")
    for side in style.xpath(".//w:tblBorders/*"):
        _set(side, color=LIGHT.line[1:].upper())
    first, cells = _element("w:tblStylePr", type="firstRow"), _element("w:tcPr")
    cells.append(_element("w:shd", val="clear", color="auto", fill=LIGHT.band[1:].upper()))
    first.append(cells)
    style.append(first)


def _add_missing_styles(document: Any, source: Any) -> None:
    """Add to a template the styles that the memo needs and the template lacks."""
    ids = {style.name: style.style_id for style in document.styles}
    for name in _STYLES:
        if name in document.styles:
            continue
        element = copy.deepcopy(source.styles[name].element)
        # Lists, links and followers belong to the document that the style comes from.
        for foreign in element.xpath(".//w:numPr | ./w:link | ./w:next"):
            foreign.getparent().remove(foreign)
        for base in element.xpath("./w:basedOn"):
            named = next(s.name for s in source.styles if s.style_id == base.val)
            if named in ids:
                base.val = ids[named]
            else:
                element.remove(base)
        document.styles.element.append(element)


def _end_body(document: Any) -> None:
    """Keep the text of a template before the memo, which then starts on a new page."""
    body = document.element.body
    is_blank = not body.xpath(".//w:t | .//w:drawing | .//w:pict | ./w:tbl | ./w:sdt")
    if not is_blank:
        document.add_page_break()
        return
    for paragraph in body.xpath("./w:p[not(.//w:sectPr)]"):
        body.remove(paragraph)


MOST_ROWS = 60
"""Largest number of rows of a table in the memo; the workbook has all."""
_MOST_COLUMNS = 7  # for a table shown as on the page
_MOST_ACROSS = 4  # records side by side if there are too many columns for a page
_PPI = 200
_UNBROKEN = "\N{NO-BREAK SPACE}"

_METHOD, _FINDINGS, _REPRODUCIBILITY = "Method", "Findings", "Reproducibility"
_PART_OF = {
    **dict.fromkeys(("matching", "sensitivity", "weights", "settings"), _METHOD),
    **dict.fromkeys(("hashes", "versions"), _REPRODUCIBILITY),
    **{"audited": "Data", "limitations": "Limits", "glossary": "Glossary"},
}
_ONLY_ON_PAGES = ("explorer", "about")
_TO_FILL_IN = ("Model owner", "Intended use", "Prepared by", "Reviewed by")

_PURPOSE = (
    "It describes the model on these people and draws no conclusion about any law, rule or policy: that is for those "
    "who sign it. Tables, charts and sentences are those of the report made at the same time; the text may be edited."
)
_PAIRED = "Each person is paired with the nearest person of every other group{label}, by the financial features below."
_LABEL = " who has the same label"
_EXPLAINED = (
    " Both scores are explained from the same starting point, the mean of the people with the person's label and group."
)
_FLOOR = (
    "Pairs are compared with placebo pairs: a person and someone of the same group and label who is as far away as "
    "the match. Intervals are 95% intervals; p-values of the questions are adjusted for their number (Holm)."
)
_NO_FLOOR = "The audit was run without evidence: nothing is compared with placebo pairs, and nothing is tested."
_REPRODUCING = (
    "The same people, model, settings and versions give the same numbers. The hashes below identify what was audited; "
    "evenhand verify compares an evidence pack of the audit with files and reports what differs."
)


def write_memo(
    summary: Summary,
    sections: Sequence[Section],
    path: str | os.PathLike[str],
    *,
    template: str | os.PathLike[str] | None = None,
) -> None:
    """Write an audit as a Word document, completely or not at all.

    It has the parts of a validation memo: purpose, data, method, findings, limits and reproducibility. A section of
    the page that belongs to no other part becomes a finding. The text of a template comes first, and its styles,
    headers and footers are kept.

    Parameters
    ----------
    summary
        Output of `AuditResult.to_dict`.
    sections
        The sections of the audit, in order.
    path
        The file to write.
    template
        A Word file, .docx or .dotx, without macros.

    Raises
    ------
    InvalidInputError
        If the template is not a Word file or has macros, or the name does not end in .docx.
    """
    if Path(path).suffix.lower() != ".docx":
        raise InvalidInputError(f"A memo is written as .docx, got {Path(path).name!r}; change the extension.")
    document, created = open_word(template), time_of_writing()
    title = title_of(summary)
    document.paragraph(title, TITLE)
    document.paragraph(" · ".join(about_audit(summary)))
    document.paragraph(f"Memo of {created:%Y-%m-%d}, made with evenhand {__version__}")
    _write(document, summary, sections)
    document.save(path, title=title, subject=f"Memo on {about_audit(summary)[0]}", author="evenhand", created=created)


# --- what the memo says, in order ---


def _write(document: WordDocument, summary: Summary, sections: Sequence[Section]) -> None:
    front, *rest = audit_sections(summary, sections)
    assert front.finding is not None
    _write_front(document, front.finding)
    data = summary["data"]
    groups = listed([f"{name} ({count(n)})" for name, n in data["groups"].items()], most=6)
    document.heading("Purpose", 1, is_on_new_page=True)
    document.paragraph(
        f"This memo records an audit of {shortened(data['model'])} on {count(data['n_people'])} people, by group: "
        f"{groups}. {_PURPOSE}"
    )
    document.facts("Who made and who reviewed this memo", [(name, "to be filled in") for name in _TO_FILL_IN])
    # On paper, nothing is folded.
    parts = [part for top in (*front.folded, *rest) for part in top.unfolded if part.id not in _ONLY_ON_PAGES]
    figures = itertools.count(1)
    for title in ("Data", _METHOD, _FINDINGS, "Limits", _REPRODUCIBILITY, "Glossary"):
        document.heading(title, 1)
        if title == _REPRODUCIBILITY:
            document.paragraph(_REPRODUCING)
        elif title == _METHOD:
            paired = _PAIRED.format(label="" if lacking(summary, "labels") else _LABEL)
            document.paragraph(paired + ("" if lacking(summary, "excess") else _EXPLAINED))
            document.paragraph(_NO_FLOOR if summary["evidence"] is None else _FLOOR)
        for part in parts:
            if _PART_OF.get(part.id.removesuffix("-more"), _FINDINGS) == title:
                if title in (_METHOD, _FINDINGS):
                    document.heading(part.title, 2)
                _write_section(document, part, figures)
    document.appendix()


def _write_front(document: WordDocument, found: Finding) -> None:
    """The first page: headline, the questions, approvals, reservations, and what is not shown."""
    document.paragraph(f"{found.headline}.", SUBTITLE)
    rows = [(card.name, card.answer, "\n".join(card.texts)) for card in found.metrics]
    heads, kept = ("question", "answer", "size, with 95% interval"), [0, 1, 2]
    if not any(row[1] for row in rows):
        heads, kept = ("metric", "", "value"), [0, 2]
    grid = ShownTable([heads[k] for k in kept], [[row[k] for k in kept] for row in rows], [False] * len(kept))
    document.grids(("Answers", "Answers"), "The answers", (grid,))
    for name, sentence in found.sentences:
        document.paragraph(sentence, lead=f"{name}." if name else "")
    if found.warnings:
        document.paragraph("", lead="Read with care")
    for warning in found.warnings:
        document.paragraph(warning, BULLET)
    document.paragraph(found.limits, lead="What this does not show.")


def _write_section(document: WordDocument, section: frame.Section, figures: Iterator[int]) -> None:
    """A section of the page, in the page's order, without those folded in it."""
    for text in section.paragraphs:
        document.paragraph(text)
    if section.facts:
        document.facts(section.title, section.facts)
    for panel in section.panels:
        document.chart(panel, figures)
    for table in section.tables:
        document.table(table)
    for note in section.notes:
        document.paragraph(note)
    for name, sentence in section.points:
        document.paragraph(sentence, BULLET, lead=f"{name}.")
    if section.words:
        document.facts("Glossary", section.words, ("word", "meaning"))
    for line in section.code.splitlines():
        document.paragraph(line)


def _key(table: Table) -> tuple[str, str]:
    return table.name, table.caption


def _grids(found: ShownTable) -> Sequence[ShownTable]:
    """A table in the form for printed pages.

    Up to seven columns are unchanged. With more, intervals go below their estimates; with still more, records are
    placed side by side, a few per table, with a row for each column.
    """
    if len(found.columns) <= _MOST_COLUMNS:
        return (ShownTable(found.columns, found.rows, found.is_number),)
    heads, *rows = (_joined(found.columns, row) for row in (found.columns, *found.rows))
    kept = [place for place, head in enumerate(found.columns) if head != INTERVAL]
    if len(heads) <= _MOST_COLUMNS + 1:
        return (ShownTable(heads, rows, [found.is_number[place] for place in kept]),)
    n_parts, grids = math.ceil(len(rows) / _MOST_ACROSS), []
    for k in range(n_parts):
        part = rows[k * len(rows) // n_parts : (k + 1) * len(rows) // n_parts]
        first, *sideways = ([head, *(row[place] for row in part)] for place, head in enumerate(heads))
        grids.append(ShownTable(first, sideways, [False] * len(first)))
    return grids


def _joined(heads: Sequence[str], cells: Sequence[str]) -> list[str]:
    """Cells of a row, or its headings, with each interval below its estimate."""
    joined: list[str] = []
    for head, cell in zip(heads, cells, strict=True):
        if head != INTERVAL:
            joined.append(cell)
        elif cell:
            joined[-1] += f"\n({cell})".replace(" ", _UNBROKEN)
    return joined
