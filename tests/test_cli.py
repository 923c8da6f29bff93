"""The command line as its user meets it: real processes where exit codes matter, real files throughout."""

import json
import shlex
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import typer

from evenhand import cli


@pytest.fixture(scope="module")
def loans(tmp_path_factory):
    """A messy export: text labels with blanks, gaps, an id, a category, a column of numbers as text."""
    rng = np.random.default_rng(0)
    n = 400
    income, debt = rng.lognormal(10, 0.5, n).round(-2), rng.normal(30, 8, n).round(1)
    table = pd.DataFrame(
        {
            "id": np.arange(n),
            "income": income,
            "debt": debt,
            "job": rng.choice(["cook", "=1+1", "clerk"], n),
            "sex": rng.choice(["f", "m"], n),
            "outcome": np.where(np.log(income) - debt / 20 + rng.normal(0, 0.4, n) > 8.5, "Approved", " denied"),
        }
    )
    table.loc[::50, "sex"] = None
    table.loc[1::60, "outcome"] = None
    table.loc[2::40, "debt"] = np.nan
    path = tmp_path_factory.mktemp("loans") / "loans.csv"
    table.to_csv(path, index=False)
    return path


BASICS = ["--label", "outcome", "--group", "sex", "--financial", "income,debt", "--drop", "id",
          "--positive-label", "Approved", "--drop-missing"]  # fmt: skip


def run(*arguments, monkeypatch, capsys):
    """Exit code, output and errors of one command, in this process."""
    monkeypatch.setattr(sys, "argv", ["evenhand", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


@pytest.fixture
def evenhand(monkeypatch, capsys):
    return lambda *arguments: run(*arguments, monkeypatch=monkeypatch, capsys=capsys)


def commands(command=None, path=()):
    """Every command with its path, groups excluded."""
    command = typer.main.get_command(cli.app) if command is None else command
    if not hasattr(command, "commands"):
        return {path: command}
    found = {}
    for name, part in command.commands.items():
        found |= commands(part, (*path, name))
    return found


def example_of(command):
    """The example in a command's help, as it is pasted."""
    lines = command.help.replace("\\\n", " ").splitlines()
    (found,) = [line.strip() for line in lines if line.strip().startswith("evenhand ")]
    return shlex.split(found)[1:]


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_help_is_there_for_every_command(path, evenhand):
    code, out, _ = evenhand(*path, "--help")
    assert code == 0
    assert "Usage" in out
    if path != ("version",):
        assert tuple(example_of(commands()[path])[: len(path)]) == path


NETWORK, MINUTES = {("data", "fetch")}, {("calibrate",), ("reproduce",), ("search",)}


def test_the_examples_of_the_help_run_one_after_the_other(evenhand, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = {path: example_of(c) for path, c in commands().items() if path not in {("version",)} | NETWORK | MINUTES}
    order = [("data", "save"), ("data", "list"), ("demo",), ("audit",), ("train",)]
    for path in [*order, *(p for p in examples if p not in order)]:
        code, _, err = evenhand(*examples[path])
        assert code == 0, (path, err)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(MINUTES), ids=" ".join)
def test_the_long_examples_of_the_help_run(path, evenhand, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert evenhand(*example_of(commands()[("data", "save")]))[0] == 0
    code, _, err = evenhand(*example_of(commands()[path]))
    assert code == 0, err


def test_an_audit_of_a_messy_csv_without_a_model(evenhand, loans, tmp_path):
    code, out, err = evenhand("audit", loans, *BASICS, "--out", tmp_path / "report")
    assert code == 0, err
    assert "CEC score, mean" in out
    data = json.loads((tmp_path / "report" / "audit.json").read_text())
    assert data["data"]["exclusions"] == {"no value in 'outcome'": 7, "no value in 'sex'": 8}
    assert len(pd.read_parquet(tmp_path / "report" / "pairs.parquet")) == data["data"]["n_people"]
    assert sorted(p.name for p in (tmp_path / "report").iterdir()) == ["audit.json", "pairs.parquet"]


def test_train_then_audit(evenhand, loans, tmp_path):
    code, out, err = evenhand("train", loans, *BASICS, "--out", tmp_path / "model", "--epochs", 8)
    assert code == 0, err
    assert "Left out: 8 rows, no value in 'sex'." in out
    assert "epoch 8/8" in err
    arguments = ["audit", loans, *BASICS, "--model", tmp_path / "model", "--out", tmp_path / "a"]
    code, out, err = evenhand(*arguments)
    assert code == 0, err
    assert "CECClassifier" in out
    code, out, err = evenhand(*arguments, "--reference", loans)
    assert code == 0, err


def test_a_toml_file_holds_the_options_and_options_win(evenhand, loans, tmp_path):
    config = tmp_path / "audit.toml"
    config.write_text(
        'label = "outcome"\ngroup = "sex"\nfinancial = ["income", "debt"]\ndrop = ["id"]\ndrop_missing = true\n'
        'positive_label = "Approved"\nconsistency_threshold = 0.9\nmax_distance = 3\nrandom_state = 1\n'
    )
    code, _, err = evenhand("audit", loans, "--config", config, "--out", tmp_path, "--consistency-threshold", 0.4)
    assert code == 0, err
    settings = json.loads((tmp_path / "audit.json").read_text())["settings"]
    assert settings["consistency_threshold"] == 0.4
    assert settings["max_distance"] == 3.0
    assert settings["random_state"] == 1


def test_a_crossed_gate_exits_with_one_and_writes_the_result(evenhand, loans, tmp_path):
    code, _, err = evenhand("audit", loans, *BASICS, "--out", tmp_path, "--fail-on", "auc > 0.1")
    assert code == 1
    assert "Gate: auc > 0.1 is crossed: auc is" in err
    assert (tmp_path / "audit.json").exists()
    code, _, _ = evenhand("audit", loans, *BASICS, "--out", tmp_path, "--fail-on", "auc < 0.1")
    assert code == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--label", "outcme"], "--label names columns absent from the data: ['outcme']. Did you mean 'outcome'?"),
        (["--financial", "incme"], "financial_features names columns absent from the data: ['incme']"),
        (["--positive-label", "yes"], "'yes' does not occur in the label, which has ['Approved', 'denied']"),
        (["--model", "nowhere"], "There is no model file 'nowhere'"),
        (["--reference", "x.csv"], "--reference goes with --model"),
        (["--fail-on", "nonsense"], "A gate reads like"),
        (["--decision-threshold", "3"], "`decision_threshold` must be a number in [0, 1], got 3.0"),
        (["--config", "nowhere.toml"], "There is no file 'nowhere.toml'"),
        (["--max-distance", "far"], "Invalid value for '--max-distance'"),
        (["--unknown", "1"], "No such option"),
    ],
)
def test_bad_input_exits_with_two_and_one_sentence_and_writes_nothing(evenhand, loans, tmp_path, change, message):
    code, _, err = evenhand("audit", loans, *BASICS, "--out", tmp_path / "report", *change)
    assert code == 2
    assert message in err
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert not (tmp_path / "report").exists()


def test_missing_options_are_asked_for(evenhand, loans):
    code, _, err = evenhand("audit", loans, "--label", "outcome")
    assert code == 2
    assert "--group is needed" in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label = ", "is not valid TOML"),
        ('lable = "x"', "unknown key 'lable'. Did you mean 'label'?"),
        ("label = 3", "label must be a text, got 3"),
        ("group = [1]", "group must be a text or a list of texts"),
        ("drop_missing = 1", "drop_missing must be true or false"),
        ("random_state = 0.5", "random_state must be a whole number"),
        ('max_distance = "far"', "max_distance must be a number"),
    ],
)
def test_a_wrong_toml_file_is_refused(evenhand, loans, tmp_path, text, message):
    config = tmp_path / "audit.toml"
    config.write_text(text)
    code, _, err = evenhand("audit", loans, "--config", config)
    assert code == 2
    assert message in err


def test_an_output_that_cannot_be_written_is_one_sentence(evenhand, loans, tmp_path):
    (tmp_path / "file").write_text("in the way")
    code, _, err = evenhand("audit", loans, *BASICS, "--out", tmp_path / "file")
    assert code == 2
    assert err.splitlines()[-1].startswith("Error: ")


def test_the_excess_by_a_column_and_a_gate_on_it(evenhand, loans, tmp_path):
    code, _, err = evenhand("audit", loans, *BASICS, "--out", tmp_path, "--by", "job", "--fail-on", "excess > -1")
    assert code == 1, err
    splits = json.loads((tmp_path / "audit.json").read_text())["evidence"]["splits"]
    assert {s["value"] for s in splits if s["split"] == "job"} == {"cook", "=1+1", "clerk"}


def test_an_audit_without_evidence(evenhand, loans, tmp_path):
    code, out, err = evenhand("audit", loans, *BASICS, "--out", tmp_path, "--no-evidence")
    assert code == 0, err
    assert "placebo" not in out


def test_a_quick_reproduction(evenhand, tmp_path):
    code, out, err = evenhand(
        "reproduce", "--dataset", "german", "--methods", "cec,unconstrained", "--folds", 2, "--quick", "--out", tmp_path
    )
    assert code == 0, err
    assert "unconstrained" in out
    assert list(tmp_path.glob("*.html"))


def test_datasets_are_listed_and_embedded_ones_need_no_download(evenhand):
    code, out, _ = evenhand("data", "list")
    assert code == 0
    assert all(name in out for name in ("german", "adult", "hmda", "synthetic"))
    code, out, _ = evenhand("data", "fetch", "german")
    assert code == 0
    assert "needs no download" in out
    code, _, err = evenhand("data", "fetch", "germany")
    assert code == 2
    assert "no dataset 'germany'" in err


def test_the_demo_runs(evenhand, tmp_path):
    code, out, err = evenhand("demo", "--out", tmp_path)
    assert code == 0, err
    assert "700 people" in out
    assert (tmp_path / "audit.json").exists()


def test_version(evenhand):
    from evenhand import __version__

    assert evenhand("version")[1].strip() == __version__


def test_an_interrupt_is_quiet(evenhand, monkeypatch, tmp_path):
    def interrupt(seed):
        raise KeyboardInterrupt

    monkeypatch.setattr("evenhand.running.audit_demo", interrupt)
    code, _, err = evenhand("demo", "--out", tmp_path)
    assert code == 130
    assert "Interrupted" in err
