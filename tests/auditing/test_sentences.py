"""What audits say, word by word: `pytest tests/auditing/test_sentences.py --renew` writes it down anew."""

import pytest

import evenhand as eh

FORBIDDEN = ("fair", "discriminat", "biased")
NAMES = (
    "linear", "trees", "planted bias", "blind", "five groups", "weights", "limits", "no evidence",
    "no match", "few people", "scores", "decisions", "price",
)  # fmt: skip


def sentences_of(summary):
    """Every sentence of a summary: the verdict, its reasons and limits, the findings and the warnings."""
    verdict = summary["verdict"]
    yield verdict["headline"]
    yield from (f"{name}: {sentence}" for name, sentence in verdict["sentences"])
    yield verdict["limits"]
    for one in summary["findings"]:
        yield f"{one['question']} {one['answer']}. {one['headline']}."
    yield from summary["warnings"]


def test_the_sentences_of_audits_are_those_written_down(audits, snapshot):
    snapshot("sentences.json", {name: list(sentences_of(audits(name).to_dict())) for name in NAMES})


@pytest.mark.parametrize("name", NAMES)
def test_the_numbers_of_the_json_give_the_same_sentences(audits, name, tmp_path):
    """With new labels, `read_result` writes the sentences anew, from a file that has null for NaN and infinity."""
    audits(name).to_json(tmp_path / "audit.json")
    read = eh.read_result(tmp_path / "audit.json", labels={"no such column": "anything"})
    assert list(sentences_of(read.to_dict())) == list(sentences_of(audits(name).to_dict()))


@pytest.mark.filterwarnings("ignore::evenhand.EvenhandWarning")
def test_the_sentences_of_comparisons_are_those_written_down(audits, snapshot):
    pairs = {
        "linear to trees": ("linear", "trees"),
        "blind to planted bias": ("blind", "planted bias"),
        "linear to weights": ("linear", "weights"),
        "linear to five groups": ("linear", "five groups"),
    }
    said = {}
    for name, (first, second) in pairs.items():
        found = eh.compare_audits({"old": audits(first), "new": audits(second)}, allow_different_settings=True)
        said[name] = [*(one.sentence for one in found.findings), *(one.sentence for one in found.differences)]
    snapshot("comparisons.json", said)


@pytest.mark.parametrize("name", NAMES)
def test_no_sentence_says_what_only_a_court_can(audits, name):
    summary = audits(name).to_dict()
    verdict = " ".join([summary["verdict"]["headline"], summary["verdict"]["limits"]]).lower()
    text = verdict + " ".join(sentence for _, sentence in summary["verdict"]["sentences"]).lower()
    assert not any(word in text for word in FORBIDDEN)
