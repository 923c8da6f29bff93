"""The page: complete in itself, in order, and deaf to what its data would like to run."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
import torch

import evenhand as eh
from evenhand.report.frame import script_json

SECTIONS = [
    "verdict", "score-gap", "outcome", "regressions", "excess", "regimes", "reasons-given", "matching", "review",
    "explorer", "about",
]  # fmt: skip
FOLDED = [
    "tests", "score-gap-more", "proxies", "outcome-more", "roc", "excess-more", "drivers", "regimes-more",
    "reasons-given-more", "matching-more", "sensitivity", "audited", "settings", "hashes", "versions", "limitations",
    "glossary",
]  # fmt: skip
VOID = {"meta", "link", "input", "br", "img"}


class Page(HTMLParser):
    """Tags, scripts and text of a page; complains about tags that do not close in order."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.scripts, self.words, self._open = [], [], [], []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "script":
            self.scripts.append([dict(attributes), ""])

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] == "script":
            self.scripts[-1][1] += data
        elif not self._open or self._open[-1] != "style":
            self.words.append(data)

    def data(self, name):
        (text,) = [text for attributes, text in self.scripts if attributes.get("id") == name]
        return json.loads(text)


def written(result, tmp_path_factory, **options):
    path = tmp_path_factory.mktemp("page") / "report.html"
    result.to_html(path, **options)
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def text(result, tmp_path_factory):
    return written(result, tmp_path_factory, title="A review", pairs_file="pairs.parquet")


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def test_sections_come_in_order(page):
    assert [a["id"] for tag, a in page.tags if tag == "section"] == SECTIONS
    assert [a["href"] for tag, a in page.tags if tag == "a"] == ["#main", *(f"#{name}" for name in SECTIONS)]
    assert [a["id"] for tag, a in page.tags if tag == "details" and "id" in a] == FOLDED


def test_it_has_landmarks_and_one_main_heading(page):
    tags = [tag for tag, _ in page.tags]
    assert all(tags.count(tag) == 1 for tag in ("header", "main", "footer", "h1"))
    labels = {a.get("aria-labelledby") for tag, a in page.tags if tag == "section"}
    assert labels == {f"h-{name}" for name in SECTIONS}
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))


def test_nothing_is_fetched(text, page):
    for tag, attributes in page.tags:
        assert "src" not in attributes
        assert not (tag == "link" and not attributes["href"].startswith("data:"))
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]
    assert "url(" not in style
    assert "@import" not in style


def test_only_the_two_scripts_of_the_page_may_run(page):
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    run = [text for attributes, text in page.scripts if "type" not in attributes]
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in run]
    assert len(run) == 2
    assert all(f"'sha256-{value}'" in policy for value in hashes)
    assert "unsafe-eval" not in policy
    assert len(page.scripts) == 4


def test_each_chart_has_its_caption_and_table(page, result):
    drawn = page.data("chart-data")["charts"]
    assert [a["data-chart"] for _, a in page.tags if "data-chart" in a] != []
    assert {a["data-chart"] for _, a in page.tags if "data-chart" in a} == set(drawn)
    assert all(a["aria-label"] for _, a in page.tags if "data-chart" in a)
    tags = [tag for tag, _ in page.tags]
    assert tags.count("figure") == tags.count("figcaption") == len(drawn)
    assert tags.count("details") == len(drawn) + len(FOLDED)


def test_the_verdict_and_the_warnings_are_there_in_words(page, result):
    words = "".join(page.words)
    found = result.to_dict()["verdict"]
    assert len(found["sentences"]) == 4
    for sentence in (*(sentence for _, sentence in found["sentences"]), found["limits"], *result.warnings):
        assert sentence in words
    assert "A review" in words
    assert "pairs.parquet" in words


def test_no_pairs_file_is_named_where_there_is_none(result, tmp_path_factory):
    assert "next to this page" not in written(result, tmp_path_factory)


def test_it_is_small(text):
    assert len(text.encode()) < 2_500_000


def test_hostile_text_stays_text(hostile, tmp_path_factory):
    text = written(hostile, tmp_path_factory, title="</title><script>alert(4)</script>", pairs_file="<b>.parquet")
    page = Page(text)
    assert len(page.scripts) == 4
    assert "img" not in [tag for tag, _ in page.tags]
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert page.data("pair-data")["features"][:4] == list(hostile.table.columns[:4])
    assert "{{7*7}}" in "".join(page.words)
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert not any(set("<>\u2028\u2029") & set(script) for attributes, script in page.scripts if "type" in attributes)
    assert len(text.encode()) < 6_000_000


def test_without_evidence_the_page_says_what_is_missing(without_evidence, tmp_path_factory):
    page = Page(written(without_evidence, tmp_path_factory))
    words = "".join(page.words)
    assert [a["id"] for tag, a in page.tags if tag == "section"] == SECTIONS
    assert "not compared with noise" in words.lower()
    assert "No noise floor." in words
    assert page.data("pair-data")["placebo_cec"][0] is None


def test_no_pair_at_all(tmp_path_factory):
    people = eh.make_planted_bias(60, random_state=0).dataset
    with pytest.warns(eh.EvenhandWarning, match="have a match"):
        nothing = eh.audit(
            torch.nn.Linear(people.X.shape[1], 1),
            people.X,
            people.y,
            sensitive_features=people.group,
            financial_features=people.financial_features,
            max_distance=1e-9,
        )
    page = Page(written(nothing, tmp_path_factory))
    assert page.data("pair-data")["person"] == []
    assert "no pair was scored" in "".join(page.words)


def test_json_in_scripts_has_no_character_that_ends_them():
    text = str(script_json({"</script>": "<!--&\u2028\u2029"}))
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {"</script>": "<!--&\u2028\u2029"}


def test_the_file_is_whole_or_absent(result, tmp_path, monkeypatch):
    from evenhand.auditing import result as module

    path = tmp_path / "report.html"
    path.write_text("before")
    monkeypatch.setattr(module, "audit_page", lambda *given, **options: "\ud800")  # cannot be written as UTF-8
    with pytest.raises(UnicodeEncodeError):
        result.to_html(path)
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    assert path.read_text() == "before"


def test_the_card_has_the_verdict_and_no_script(hostile):
    card = hostile._repr_html_()
    assert "<script" not in card
    assert "<img" not in card
    assert "&lt;script&gt;" in card
    assert "Are explanations farther apart across groups than within?" in card
    assert len(card) < 16_000
