"""Building blocks of a Word document: built-in styles, numbered captions, tables, pictures, and templates."""

from __future__ import annotations

import copy
import io
import os
import re
import struct
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from evenhand.exceptions import ArchiveError, EvenhandError, InvalidInputError
from evenhand.report.formatting import shortened
from evenhand.report.theme import LIGHT
from evenhand.system.archives import Archive, open_archive, write_archive
from evenhand.system.files import write_atomically
from evenhand.system.optional import optional_module

__all__ = ["BULLET", "SUBTITLE", "TEXT", "TITLE", "Grid", "WordDocument", "open_word", "plain_text"]

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


@dataclass(frozen=True)
class Grid:
    """A table in the form of a document: headings, rows of cells, and whether each column holds numbers."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    is_number: Sequence[bool]


def open_word(template: str | os.PathLike[str] | None = None) -> WordDocument:
    """An empty document, or a template with its body, headers, footers and styles.

    Raises
    ------
    InvalidInputError
        If the template is not a Word file, or has macros.
    FileNotFoundError
        If there is no such file.
    MissingExtraError
        If python-docx is not installed.
    """
    docx = optional_module("docx", "The memo", "python-docx", "word")
    if template is None:
        return WordDocument(_with_house_look(docx.Document()))
    path = Path(template)
    content = _template_content(path)
    try:
        document = docx.Document(io.BytesIO(content))
        _add_missing_styles(document, _with_house_look(docx.Document()))
        _end_body(document)
    except Exception:  # python-docx and lxml raise many kinds of errors on missing or invalid parts
        raise _not_a_template(path) from None
    return WordDocument(document)


def _template_content(path: Path) -> bytes:
    """Open the bytes of a template as a document."""
    if path.suffix.lower() not in _TEMPLATES:
        raise _not_a_template(path)
    try:
        with open_archive(path) as archive:
            return _as_document(path, archive)
    except ArchiveError:
        raise _not_a_template(path) from None


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
    """A document that is written from start to end; `word` is the python-docx document."""

    word: Any

    def heading(self, text: str, level: int) -> None:
        """A heading of level 1 to 3."""
        self.paragraph(text, _HEADINGS[level - 1])

    def paragraph(self, text: str, style: str = TEXT, *, lead: str = "") -> Any:  # noqa: ANN401 - of python-docx
        """A paragraph; `lead` precedes the text in bold."""
        added = self.word.add_paragraph(style=style)
        if lead:
            added.add_run(f"{plain_text(lead)} ").bold = True
        added.add_run(plain_text(text))
        return added

    def caption(self, kind: str, number: int, text: str, *, bookmark: str = "", refers_to: str = "") -> Any:  # noqa: ANN401
        """A caption that Word numbers; `refers_to` is the bookmark of a table, whose number ends the caption."""
        added = self.word.add_paragraph(style=CAPTION)
        if bookmark:
            added._p.append(_element("w:bookmarkStart", id=str(_FIRST_BOOKMARK + number), name=bookmark))
        added.add_run(f"{kind} ")
        _add_field(added, f"SEQ {kind} \\* ARABIC", str(number))
        if bookmark:
            added._p.append(_element("w:bookmarkEnd", id=str(_FIRST_BOOKMARK + number)))
        added.add_run(plain_text(f". {text}"))
        if refers_to:
            added.add_run(" Numbers: ")
            _add_field(added, f"REF {refers_to} \\h", f"Table {refers_to.rpartition('_')[2]}")
            added.add_run(".")
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

    def table(self, grid: Grid, description: str) -> None:
        """A table whose headings are repeated on every page."""
        texts = [list(map(plain_text, row)) for row in (grid.heads, *grid.rows)]
        widths = _widths(texts, grid.is_number, self.width)
        table = self.word.add_table(rows=0, cols=len(grid.heads), style=TABLE)
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
        with write_atomically(path) as temporary:
            temporary.write_bytes(_with_fixed_times(written))


def _with_fixed_times(written: io.BytesIO) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(written) as archive:
        write_archive(content, {name: archive.read(name) for name in archive.namelist()})
    return content.getvalue()


def _element(tag: str, /, **attributes: str) -> Any:  # noqa: ANN401 - of lxml
    """An element of Word's XML."""
    return _set(optional_module("docx.oxml", "The memo", "python-docx", "word").OxmlElement(tag), **attributes)


def _set(element: Any, /, **attributes: str) -> Any:  # noqa: ANN401 - of lxml
    """An element with attributes of Word's namespace."""
    qualified = optional_module("docx.oxml.ns", "The memo", "python-docx", "word").qn
    for attribute, value in attributes.items():
        element.set(qualified(f"w:{attribute}"), value)
    return element


def _add_field(paragraph: Any, instruction: str, shown: str) -> None:  # noqa: ANN401 - of python-docx
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


def _with_house_look(document: Any) -> Any:  # noqa: ANN401 - of python-docx
    """The style without a template, and of styles that a template does not have."""
    shared = optional_module("docx.shared", "The memo", "python-docx", "word")
    document.styles.add_style(CELL, _PARAGRAPH).base_style = document.styles[TEXT]
    sizes = {TEXT: 10, TITLE: 20, SUBTITLE: 10.5, CELL: 8, CAPTION: 8.5, "Footer": 8.5}
    sizes |= dict(zip(_HEADINGS, (14, 12, 10.5), strict=True))
    for name, size in sizes.items():
        style = document.styles[name]
        style.font.size = shared.Pt(size)
        if name != TEXT:
            style.font.color.rgb = shared.RGBColor.from_string(LIGHT.ink[1:].upper())
    for name in sizes:
        for fonts in document.styles[name].element.xpath(".//w:rFonts"):
            fonts.getparent().remove(fonts)  # those of a theme would take precedence
        if name != CELL:  # which has the font of the text, also in a template
            document.styles[name].font.name = "Arial"  # on every desktop, or a font of the same widths
    document.styles[CAPTION].font.bold = False
    document.styles[CELL].paragraph_format.space_after = shared.Pt(0)
    document.styles[CELL].paragraph_format.line_spacing = 1.0
    document.styles[TEXT].paragraph_format.space_after = shared.Pt(6)
    document.styles[CAPTION].paragraph_format.space_after = shared.Pt(6)
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


def _shade_first_row(style: Any) -> None:  # noqa: ANN401 - of lxml
    """Thin gray lines, some padding, and headings on a light background."""
    for side in style.xpath(".//w:tblCellMar/w:top | .//w:tblCellMar/w:bottom"):
        _set(side, w="30")
    for side in style.xpath(".//w:tblBorders/*"):
        _set(side, color=LIGHT.line[1:].upper())
    first, cells = _element("w:tblStylePr", type="firstRow"), _element("w:tcPr")
    cells.append(_element("w:shd", val="clear", color="auto", fill=LIGHT.band[1:].upper()))
    first.append(cells)
    style.append(first)


def _add_missing_styles(document: Any, source: Any) -> None:  # noqa: ANN401 - of python-docx
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


def _end_body(document: Any) -> None:  # noqa: ANN401 - of python-docx
    """Keep the text of a template before the memo, which then starts on a new page."""
    body = document.element.body
    is_blank = not body.xpath(".//w:t | .//w:drawing | .//w:pict | ./w:tbl | ./w:sdt")
    if not is_blank:
        document.add_page_break()
        return
    for paragraph in body.xpath("./w:p[not(.//w:sectPr)]"):
        body.remove(paragraph)
