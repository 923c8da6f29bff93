"""`evenhand report`: what an audit wrote, again, with the user's words."""

import json

import numpy as np
import pandas as pd
import pytest

pytestmark = pytest.mark.integration

WORDS = """
title = "Loans, first half"
owner = "Retail credit"
[labels]
debt = "monthly debt"
"sex=f" = "women"
m = "men"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A file of loans with scores, and an audit of it with words from its TOML file."""
    from evenhand import cli

    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(300, 2)), columns=["income", "debt"])
    table["sex"] = rng.choice(["f", "m"], 300)
    table["pd"] = 1 / (1 + np.exp(table["debt"] - table["income"] + 0.5 * (table["sex"] == "f")))
    table["repaid"] = (rng.uniform(size=300) < table["pd"]).astype(int)
    path = tmp_path_factory.mktemp("report")
    table.to_csv(path / "loans.csv", index=False)
    (path / "audit.toml").write_text(
        f'label = "repaid"\ngroup = "sex"\nfinancial_features = ["income", "debt"]\nscores = "pd"\n{WORDS}'
    )
    cli.app(["audit", str(path / "loans.csv"), "--config", str(path / "audit.toml"), "--out", str(path / "audit")],
            standalone_mode=False)  # fmt: skip
    return path


def test_the_words_of_a_toml_file_are_in_what_the_audit_writes(folder):
    text = (folder / "audit" / "report.md").read_text("utf-8")
    assert text.startswith("# Loans, first half\n")
    assert "owner: Retail credit" in text
    assert "women, about" in text
    assert "monthly debt" in (folder / "audit" / "report.html").read_text("utf-8")
    document = json.loads((folder / "audit" / "audit.json").read_text("utf-8"))
    assert document["data"]["groups"].keys() == {"f", "m"}
    assert document["report"]["labels"] == {"debt": "monthly debt", "sex=f": "women", "m": "men"}


def test_a_report_is_written_again_with_other_words(folder, evenhand, tmp_path):
    (tmp_path / "labels.csv").write_text("name,label\nf,ladies\nm,gentlemen\n")
    code, out, err = evenhand(
        *("report", folder / "audit" / "audit.json", "--title", "Second reading", "--labels", tmp_path / "labels.csv"),
        *("--memo", "--out", tmp_path / "again"),
    )
    assert code == 0, err
    names = {"report.html", "audit.xlsx", "report.md", "memo.docx"}
    assert {path.name for path in (tmp_path / "again").iterdir()} == names
    assert all(name in out for name in names)
    text = (tmp_path / "again" / "report.md").read_text("utf-8")
    assert text.startswith("# Second reading\n")
    assert "owner: Retail credit" in text  # of the file, where nothing else is said
    assert "gentlemen" in text
    assert "women" not in text


def test_the_report_of_the_audit_is_not_overwritten(folder, evenhand):
    code, _, err = evenhand("report", folder / "audit" / "audit.json", "--out", folder / "audit")
    assert code == 2
    assert "--out must be another folder" in err
    assert 'id="review"' in (folder / "audit" / "report.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--template", "house.docx"), "--template only applies to the memo"),
        (("--labels", "none.csv"), "none.csv"),
    ],
)
def test_what_cannot_be_written_is_refused(folder, evenhand, tmp_path, words, message):
    code, _, err = evenhand("report", folder / "audit" / "audit.json", *words, "--out", tmp_path / "again")
    assert code == 2
    assert message in err
    assert not (tmp_path / "again").exists()


def test_a_file_that_came_with_the_data_cannot_name_a_file_of_labels(folder, evenhand, tmp_path):
    (tmp_path / "audit.toml").write_text('labels = "/etc/passwd"\n')
    code, _, err = evenhand(
        "audit", folder / "loans.csv", "--config", tmp_path / "audit.toml", "--out", tmp_path / "out"
    )
    assert code == 2
    assert "sets labels, which names another file: set it only on the command line, with --labels" in err
