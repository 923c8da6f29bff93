"""The same people, written in many ways, give the same audit; what cannot be told is refused with a sentence."""

import json
import sys

import numpy as np
import pandas as pd
import pytest

import evenhand as eh
from evenhand import cli

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")]
N = 120


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "income": rng.lognormal(11, 0.4, N).round(-2).astype(int),
            "rate": rng.normal(30, 8, N).round(1),
            "balance": rng.normal(0, 4000, N).round(),
            "job": rng.choice(["cook", "clerk"], N),
            "sex": rng.choice(["f", "m"], N),
        }
    )
    return table.assign(paid=(np.log(table["income"]) + rng.normal(0, 0.4, N) > 11).astype(int))


@pytest.fixture(scope="module")
def model(people, tmp_path_factory):
    fitted = eh.CECClassifier(financial_features=["income", "rate"], epochs=40, random_state=0)
    fitted.fit(people[["income", "rate", "balance", "job"]], people["paid"], sensitive_features=people["sex"])
    return fitted.save(tmp_path_factory.mktemp("reading") / "model")


@pytest.fixture
def audit(model, monkeypatch, capsys, tmp_path):
    """Exit code, output, errors and summary of an audit of a file."""

    def run(path, *words):
        out = tmp_path / f"out{len(list(tmp_path.glob('out*')))}"
        basics = ["--model", model, "--label", "paid", "--group", "sex", "--financial", "income,rate", "--out", out]
        argv = ["evenhand", "audit", path, *basics, "--no-evidence", *words]
        monkeypatch.setattr(sys, "argv", [str(word) for word in argv])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        found = json.loads((out / "audit.json").read_text()) if (out / "audit.json").exists() else None
        return ended.value.code, captured.out, captured.err, found

    return run


def written_as_text(people):
    return people.assign(
        income=people["income"].map("${:,}".format),
        rate=people["rate"].map("{:.1f}%".format),
        balance=people["balance"].map(lambda x: f"({-x:,.0f})" if x < 0 else f"{x:,.0f}"),
    )


@pytest.mark.parametrize("name", ["text.csv", "text.xlsx", "text.parquet", "clean.xlsx", "clean.feather"])
@pytest.mark.parametrize("way", [[], ["--stream", "--batch-rows", "50", "--n-jobs", "1"]])
def test_numbers_written_as_text_change_no_metric_and_are_said(people, audit, tmp_path, name, way):
    people.to_csv(tmp_path / "clean.csv", index=False)
    code, _, _, expected = audit(tmp_path / "clean.csv", *way)
    assert code == 0
    table, path = (written_as_text(people) if name.startswith("text") else people), tmp_path / name
    {
        ".csv": lambda: table.to_csv(path, index=False),
        ".xlsx": lambda: table.to_excel(path, index=False, engine="xlsxwriter"),
        ".parquet": lambda: table.to_parquet(path),
        ".feather": lambda: table.to_feather(path),
    }[path.suffix]()
    code, out, errors, found = audit(path, *way)
    assert code == 0, errors
    for part in ("cec", "regimes", "outcome"):
        assert found[part] == expected[part]
    sentence = (
        f"income: {N} values like '${people['income'][0]:,}' were read as numbers, this one as {people['income'][0]}."
    )
    is_said = name.startswith("text")
    assert (sentence in found["warnings"]) is is_said
    assert (sentence in " ".join(out.split())) is is_said


def test_a_european_file_needs_no_options(people, audit, tmp_path):
    people.to_csv(tmp_path / "clean.csv", index=False)
    _, _, _, expected = audit(tmp_path / "clean.csv")
    path = tmp_path / "europe.csv"
    people.to_csv(path, index=False, sep=";", decimal=",", encoding="cp1252")
    path.write_bytes("Anträge\n\n".encode("cp1252") + path.read_bytes())
    code, _, errors, _ = audit(path)
    assert code == 2
    assert "--encoding cp1252" in errors
    code, _, _, found = audit(path, "--encoding", "cp1252")
    assert (code, found["cec"]) == (0, expected["cec"])
    assert any("the line 'Anträge' above the header was not read" in warning for warning in found["warnings"])


@pytest.mark.parametrize("way", [[], ["--stream"]])
def test_rows_left_out_are_counted_on_the_terminal(people, audit, tmp_path, way):
    table = people.copy()
    table.loc[:4, "sex"] = None
    table.to_csv(tmp_path / "gaps.csv", index=False)
    code, out, _, found = audit(tmp_path / "gaps.csv", "--drop-missing", *way)
    assert code == 0
    assert "Left out 5 rows: no value in 'sex'." in out
    assert found["data"]["exclusions"] == {"no value in 'sex'": 5}


def change(column, values):
    return lambda table: table.assign(**{column: values})


@pytest.mark.parametrize("way", [[], ["--stream"]])
@pytest.mark.parametrize(
    ("spoil", "words", "message"),
    [
        (
            lambda table: (
                table.round(0).astype({"rate": int, "balance": int}).assign(income=[f"1,{k:03d}" for k in range(N)])
            ),
            [],
            "Column 'income' has numbers such as '1,000' that can be read in two ways",
        ),
        (
            change("sex", np.resize(["Black", "BLACK", "White"], N)),
            [],
            "differ only in typing: 'BLACK' (40)",
        ),
        (change("sex", np.linspace(0, 1, N)), [], f"has {N} groups"),
        (lambda table: table, ["--random-state", "-1"], "must be a whole number from 0 to 2147483647, got -1"),
        (lambda table: table, ["--random-state", "5000000000"], "got 5000000000"),
        (lambda table: table, ["--decimal", ";"], "--decimal) must be one of ['.', ','], got ';'"),
        (lambda table: table, ["--encoding", "klingon"], "must be the name of a text encoding"),
        (lambda table: table, ["--label", "\udcff"], "names columns absent"),
    ],
)
def test_what_cannot_be_told_is_one_sentence(people, audit, tmp_path, way, spoil, words, message):
    spoil(people).to_csv(tmp_path / "spoiled.csv", index=False)
    code, _, errors, found = audit(tmp_path / "spoiled.csv", *words, *way)
    assert code == 2
    assert found is None
    assert errors.startswith("Error: ")
    assert errors.count("\n") == 1
    assert message in errors
