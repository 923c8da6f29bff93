"""The command line as its user meets it, in this process, with real files throughout."""

import hashlib
import json
import shlex
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer

import evenhand as eh
from evenhand import cli

pytestmark = pytest.mark.integration


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
    """The commands of the example in a command's help, as they are pasted; the last is the command itself."""
    lines = command.help.replace("\\\n", " ").splitlines()
    return [shlex.split(line)[1:] for line in lines if line.strip().startswith("evenhand ")]


def expanded(words):
    """Words as the shell gives them to a command in the working folder."""
    for word in words:
        yield from sorted(map(str, Path().glob(word))) if "*" in word else [word]


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_help_is_there_for_every_command(path, evenhand):
    code, out, _ = evenhand(*path, "--help")
    assert code == 0
    assert "Usage" in out
    if path not in (("version",), ("versions",)):
        *_, example = example_of(commands()[path])
        assert tuple(example[: len(path)]) == path
        commands()[path].make_context(path[-1], example[len(path) :])  # raises where it cannot be parsed


NETWORK, MINUTES = {("data", "fetch")}, {("reproduce",), ("search",)}


@pytest.mark.slow
@pytest.mark.usefixtures("real_pages")
def test_the_examples_of_the_help_run_one_after_the_other(evenhand, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = {path: example_of(c) for path, c in commands().items() if path not in {("version",)} | NETWORK | MINUTES}
    order = [("data", "save"), ("data", "list"), ("demo",), ("audit",), ("train",)]
    for path in [*order, *(p for p in examples if p not in order)]:
        for example in examples[path]:
            code, _, err = evenhand(*expanded(example))
            assert code == 0, (example, err)


@pytest.mark.slow
@pytest.mark.usefixtures("real_pages")
@pytest.mark.parametrize("path", sorted(MINUTES), ids=" ".join)
def test_the_long_examples_of_the_help_run(path, evenhand, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for example in (*example_of(commands()[("data", "save")]), *example_of(commands()[path])):
        code, _, err = evenhand(*example)
        assert code == 0, err


@pytest.mark.usefixtures("real_pages")
def test_an_audit_of_a_messy_csv_without_a_model(evenhand, loans, tmp_path):
    code, out, err = evenhand("audit", loans, *BASICS, "--out", tmp_path / "report")
    assert code == 0, err
    assert "CEC score, mean" in out
    data = json.loads((tmp_path / "report" / "audit.json").read_text())
    assert data["data"]["exclusions"] == {"no value in 'outcome'": 7, "no value in 'sex'": 8}
    assert len(pd.read_parquet(tmp_path / "report" / "pairs.parquet")) == data["data"]["n_people"]
    written = sorted(p.name for p in (tmp_path / "report").iterdir())
    assert written == ["audit.json", "audit.xlsx", "pairs.parquet", "report.html", "report.md", "review.csv"]
    assert data["data"]["hashes"]["data file"] == hashlib.sha256(loans.read_bytes()).hexdigest()


def test_train_then_audit(evenhand, loans, tmp_path):
    code, out, err = evenhand("train", loans, *BASICS, "--out", tmp_path / "model", "--epochs", 8)
    assert code == 0, err
    assert "Left out 8 rows: no value in 'sex'." in out
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


def test_the_papers_mode_is_one_option_that_others_override(evenhand, loans, tmp_path):
    arguments = ["--paper", "--epochs", 8, "--out", tmp_path / "model"]
    code, _, err = evenhand("train", loans, *BASICS, *arguments)
    assert code == 0, err
    model = eh.CECClassifier.load(tmp_path / "model").get_params()
    assert {name: model[name] for name in eh.PAPER.training} == {**eh.PAPER.training, "hidden": [128, 64], "epochs": 8}

    code, _, err = evenhand("audit", loans, *BASICS, "--paper", "--consistency-threshold", 0.4, "--out", tmp_path)
    assert code == 0, err
    settings = json.loads((tmp_path / "audit.json").read_text())["settings"]
    expected = {"decision_threshold": 0.5, "max_distance": None, "ties": "row", "evidence": False, "n_steps": 32}
    assert {name: settings[name] for name in expected} == expected
    assert (settings["method"], settings["consistency_threshold"]) == ("midpoint", 0.4)


def test_a_fault_is_told_apart_from_a_crossed_gate(evenhand, monkeypatch):
    def broken(*arguments, **options):
        raise ZeroDivisionError("nobody foresaw this")

    monkeypatch.setattr(sys.modules[cli.main.__module__], "app", broken)
    code, _, error = evenhand("version")
    assert code == 70
    assert "ZeroDivisionError: nobody foresaw this\nThis is a bug in evenhand" in error


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
        (
            ["--label", "outcme"],
            "(--label) names columns absent from the data: ['outcme']. Did you mean 'outcome'?",
        ),
        (["--financial", "incme"], "`financial_features` (--financial) names columns absent from the data: ['incme']"),
        (["--positive-label", "yes"], "'yes' is not a value of the label, which has ['Approved', 'denied']"),
        (["--model", "nowhere"], "There is no model file 'nowhere'"),
        (["--reference", "x.csv"], "--reference needs --model"),
        (["--fail-on", "nonsense"], "A gate must look like"),
        (
            ["--decision-threshold", "3"],
            "(--decision-threshold) must be a number in [0, 1], got 3.0",
        ),
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
    assert "--group is required" in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label = ", "is not valid TOML"),
        ('lable = "x"', "unknown key 'lable'. Did you mean 'label'?"),
        ("label = 3", "label must be a string, got 3"),
        ("group = [1]", "group must be a string or a list of strings"),
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


@pytest.fixture(scope="module")
def risky(tmp_path_factory):
    """Loans with a default, 1 for yes, and a model of it."""
    import joblib
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(1)
    table = pd.DataFrame(rng.normal(size=(2_400, 3)), columns=["income", "debt", "tenure"])
    risk = table["debt"] - table["income"] + rng.logistic(size=len(table))
    folder = tmp_path_factory.mktemp("risky")
    joblib.dump(LogisticRegression().fit(table, risk > 0), folder / "model.joblib")
    table.assign(
        sex=rng.choice(["f", "m"], len(table)),
        default=(risk > 0).astype(int),
        good=(risk <= 0).astype(int),
    ).to_csv(folder / "loans.csv", index=False)
    return folder


RISKY = ["--group", "sex", "--financial", "income,debt", "--trust-pickle", "--no-evidence"]


def test_a_default_model_is_refused_until_low_is_called_favorable(evenhand, risky, tmp_path):
    arguments = ["audit", risky / "loans.csv", "--model", risky / "model.joblib", *RISKY, "--drop", "default"]
    code, _, err = evenhand(*arguments, "--label", "good", "--out", tmp_path / "inverted")
    assert code == 2
    assert "ranks people against `y` (--label), with an AUC of 0." in err
    assert "--favorable low" in err
    assert not (tmp_path / "inverted" / "audit.json").exists()
    turned = ["--label", "good", "--favorable", "low", "--positive-label", "1", "--out", tmp_path / "turned"]
    code, _, err = evenhand(*arguments, *turned)
    assert code == 0, err
    straight = ["audit", risky / "loans.csv", "--model", risky / "model.joblib", *RISKY, "--drop", "good"]
    code, _, err = evenhand(*straight, "--label", "default", "--favorable", "low", "--out", tmp_path / "straight")
    assert code == 0, err
    found = [json.loads((tmp_path / name / "audit.json").read_text()) for name in ("turned", "straight")]
    assert found[0]["outcome"]["auc"] > 0.7
    for name in ("auc", "positive_rate", "f1", "eo_gap"):
        assert found[0]["outcome"][name] == found[1]["outcome"][name]


def test_decisions_and_ids_are_columns_and_no_inputs(evenhand, risky, tmp_path):
    table = pd.read_csv(risky / "loans.csv").drop(columns="good")
    table["decided"] = np.arange(len(table)) % 2
    table["number"] = [f"N{k}" for k in range(len(table))]
    table.to_csv(tmp_path / "loans.csv", index=False)
    arguments = ["audit", tmp_path / "loans.csv", *RISKY, "--label", "default", "--favorable", "low"]
    given = ["--decision", "decided", "--id", "number", "--out", tmp_path / "out"]
    code, _, err = evenhand(*arguments, "--model", risky / "model.joblib", *given)
    assert code == 0, err
    pairs = pd.read_parquet(tmp_path / "out" / "pairs.parquet")
    assert (pairs["person_id"] == "N" + pairs["person"].astype(str)).all()
    assert (pairs["match_decision"] == pairs["match"] % 2).all()
    assert json.loads((tmp_path / "out" / "audit.json").read_text())["data"]["n_features"] == 3
    code, _, err = evenhand(*arguments, *given)
    assert code == 2
    assert "--no-evidence needs --model" in err
    code, _, err = evenhand(*arguments, "--id", "nmber", "--out", tmp_path / "out")
    assert code == 2
    assert "Did you mean 'number'?" in err


def test_sampling_weights_are_a_column_and_no_input(evenhand, risky, tmp_path):
    table = pd.read_csv(risky / "loans.csv").drop(columns="good")
    table["weight"] = 1 + np.arange(len(table)) % 4
    table.to_csv(tmp_path / "loans.csv", index=False)
    (tmp_path / "audit.toml").write_text('sample_weight = "weight"\n', encoding="utf-8")
    arguments = ["audit", tmp_path / "loans.csv", *RISKY, "--label", "default", "--favorable", "low", "--no-evidence"]
    found = {}
    for name, given in {
        "toml": ["--model", risky / "model.joblib", "--config", tmp_path / "audit.toml"],
        "fitted": ["--sample-weight", "weight"],
    }.items():
        code, _, err = evenhand(*arguments, *given, "--out", tmp_path / name)
        assert code == 0, err
        found[name] = json.loads((tmp_path / name / "audit.json").read_text())
    assert found["toml"]["data"]["n_features"] == 3
    assert found["toml"]["weighting"]["n_effective"] == pytest.approx(len(table) * 6.25 / 7.5)
    assert found["fitted"]["weighting"]["n_people"] == found["fitted"]["data"]["n_people"]
    code, _, err = evenhand(*arguments, "--sample-weight", "region", "--out", tmp_path / "wrong")
    assert code == 2
    assert "names columns absent from the data: ['region']" in err


def test_a_quick_look_is_at_2000_people_and_says_so(evenhand, risky, tmp_path):
    arguments = ["audit", risky / "loans.csv", "--model", risky / "model.joblib", *RISKY, "--drop", "good"]
    arguments += ["--label", "default", "--favorable", "low", "--quick", "--out", tmp_path]
    code, out, err = evenhand(*arguments)
    assert code == 0, err
    assert "This is a quick look at 2,000 of 2,400 people" in out
    data = json.loads((tmp_path / "audit.json").read_text())
    assert data["data"]["n_people"] == 2_000
    assert data["data"]["exclusions"] == {"not drawn for a quick look": 400}
    assert data["warnings"][0].startswith("This is a quick look")
    code, _, err = evenhand(*arguments, "--stream")
    assert code == 2
    assert "--quick draws people from a table in memory" in err


def test_an_audit_without_evidence(evenhand, loans, tmp_path):
    code, out, err = evenhand("audit", loans, *BASICS, "--out", tmp_path, "--no-evidence")
    assert code == 0, err
    assert "Not compared with noise" in out
    assert "placebo pairs, CEC mean" not in out


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
    assert all(name in out for name in ("taiwan", "german", "adult", "hmda", "synthetic"))
    code, out, _ = evenhand("data", "fetch", "german")
    assert code == 0
    assert "needs no download" in out
    code, _, err = evenhand("data", "fetch", "germany")
    assert code == 2
    assert "no dataset 'germany'" in err


@pytest.mark.usefixtures("real_pages")
def test_the_demo_runs(evenhand, tmp_path):
    code, out, err = evenhand("demo", "--out", tmp_path)
    assert code == 0, err
    assert "trained on 8,400 people and audited on 3,600 others" in out
    data = json.loads((tmp_path / "audit.json").read_text())["data"]
    assert (data["n_people"], data["n_reference"]) == (3_600, 8_400)
    assert (tmp_path / "audit.json").exists()


def test_version(evenhand):
    from evenhand import __version__

    assert evenhand("version")[1].strip() == __version__


def test_an_interrupt_is_quiet(evenhand, monkeypatch, tmp_path):
    def interrupt(seed):
        raise KeyboardInterrupt

    monkeypatch.setattr("evenhand.cli.jobs.audit_demo", interrupt)
    code, _, err = evenhand("demo", "--out", tmp_path)
    assert code == 130
    assert err.strip() == "Interrupted."


def test_an_interrupt_says_what_is_kept_where_something_is(evenhand, monkeypatch, tmp_path):
    def interrupt(*arguments, **settings):
        raise stopped

    monkeypatch.setattr("evenhand.cli.jobs.search_table", interrupt)
    (tmp_path / "store").mkdir()
    (tmp_path / "people.csv").write_text("y,sex,f0\n1,f,2\n")
    words = ("search", tmp_path / "people.csv", "--label", "y", "--group", "sex", "--financial", "f0")
    stopped = KeyboardInterrupt()
    assert evenhand(*words, "--out", tmp_path)[2].strip() == "Interrupted."
    (tmp_path / "store" / "block").write_text("")
    stopped = KeyboardInterrupt()
    stopped.add_note("3 of 9 batches are finished.")
    code, _, err = evenhand(*words, "--out", tmp_path)
    assert code == 130
    assert err.strip() == (
        f"Interrupted. 3 of 9 batches are finished. Finished work is kept in {str(tmp_path / 'store')!r}: run the "
        "same command again to continue."
    )


@pytest.fixture(scope="module")
def fitted(loans, tmp_path_factory):
    """A saved classifier, and a scikit-learn pipeline pickled."""
    import joblib
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    from evenhand.cli.jobs import train_table
    from evenhand.cli.options import TrainPlan

    folder = tmp_path_factory.mktemp("models")
    roles = {"label": "outcome", "group": ("sex",), "positive_label": "Approved", "drop": ("id",)}
    network = {"cec_weight": 0, "equalized_odds_weight": 0, "epochs": 5}
    plan = TrainPlan(**roles, **network, financial_features=("income", "debt"), drop_missing=True)
    model, _ = train_table(loans, plan)
    model.save(folder / "network")
    table = pd.read_csv(loans).dropna(subset=["sex", "outcome", "debt"])
    encoder = make_column_transformer(
        (StandardScaler(), ["income", "debt"]), (OneHotEncoder(), ["job"]), verbose_feature_names_out=False
    )
    pipeline = make_pipeline(encoder, LogisticRegression())
    pipeline.fit(table[["income", "debt", "job"]], table["outcome"].str.strip() == "Approved")
    joblib.dump(pipeline, folder / "pipeline.joblib")
    return folder


def test_batches_give_the_figures_of_one_audit_and_go_on(evenhand, loans, fitted, tmp_path):
    common = ("audit", loans, *BASICS, "--model", fitted / "network")
    assert evenhand(*common, "--out", tmp_path / "whole")[0] == 0
    batches = (*common, "--stream", "--batch-rows", "100", "--out", tmp_path / "parts")
    code, _, err = evenhand(*batches)
    assert code == 0, err
    whole, parts = (json.loads((tmp_path / name / "audit.json").read_text()) for name in ("whole", "parts"))
    assert parts["stream"]["n_batches"] == 4
    assert parts["cec"]["excess"] == pytest.approx(whole["cec"]["excess"], rel=1e-6, abs=1e-8)  # a float32 network
    assert (tmp_path / "parts" / "report.html").is_file()
    code, _, err = evenhand(*batches)
    assert (code, err.count("\n")) == (2, 1)
    assert "resume" in err
    assert evenhand(*batches, "--resume")[0] == 0


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_batches_are_matched_in_the_people_of_a_reference_file(evenhand, loans, fitted, tmp_path, ending):
    table = pd.read_csv(loans).dropna(subset=["sex", "outcome"])
    people, reference = tmp_path / "big.parquet", tmp_path / f"reference.{ending}"
    table[:150].to_parquet(people)
    table[150:].to_parquet(reference) if ending == "parquet" else table[150:].to_csv(reference, index=False)
    common = ("audit", people, *BASICS, "--model", fitted / "network", "--reference", reference)
    found = {}
    for name, options in {"whole": (), "parts": ("--stream", "--batch-rows", "60")}.items():
        code, _, err = evenhand(*common, *options, "--out", tmp_path / name)
        assert code == 0, err
        found[name] = json.loads((tmp_path / name / "audit.json").read_text())
    assert found["parts"]["data"]["n_reference"] == found["whole"]["data"]["n_reference"] == len(table) - 150
    assert found["parts"]["stream"]["n_batches"] == 3
    for metric in ("mean", "reasoning_gap", "excess"):
        assert found["parts"]["cec"][metric] == pytest.approx(found["whole"]["cec"][metric], rel=1e-6, abs=1e-7), metric


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--resume"], "--resume only applies to an audit in batches: add --stream"),
        (["--stream"], "An audit in batches needs --model"),
        (
            ["--stream", "--engine", "cloud"],
            "`engine` (--engine) must be one of local, threads, processes, dask, spark, or in Python a",
        ),
    ],
)
def test_options_of_batches_need_batches_and_a_model(evenhand, loans, tmp_path, change, message):
    code, _, err = evenhand("audit", loans, *BASICS, "--out", tmp_path / "report", *change)
    assert code == 2
    assert message in err


def test_a_pickle_is_opened_only_when_trusted(evenhand, loans, fitted, tmp_path):
    table = pd.read_csv(loans).dropna(subset=["debt"])
    table.to_csv(tmp_path / "whole.csv", index=False)
    common = (
        "audit",
        tmp_path / "whole.csv",
        *BASICS,
        "--model",
        fitted / "pipeline.joblib",
        "--out",
        tmp_path / "out",
    )
    code, _, err = evenhand(*common)
    assert code == 2
    assert "--trust-pickle" in err or "trust_pickle" in err
    code, _, err = evenhand(*common, "--trust-pickle")
    assert code == 0, err
    data = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert "LogisticRegression" in data["data"]["model"]
    assert data["cec"]["reasoning_gap"] == pytest.approx(0, abs=1e-9)  # linear in its encoded inputs


def test_a_search_ends_with_a_page_a_workbook_and_an_audited_model(evenhand, loans, tmp_path):
    code, out, err = evenhand(
        "search", loans, *BASICS, "--candidates", "2", "--folds", "2", "--keep", "auc >= 0.1", "--seed-search", "2",
        "--keep", "profit >= unconstrained - 90%", "--payoff", "approve_good=1,approve_bad=-1", "--alternatives", "2",
        "--minimize", "cec", "--confirmation", "0.4", "--out", tmp_path / "search",
    )  # fmt: skip
    assert code == 0, err
    found = json.loads((tmp_path / "search" / "search.json").read_text())
    assert found["minimize"] == "cec"
    assert found["settings"]["payoff"]["approve_bad"] == -1
    assert {c["parameters"]["seed"] for c in found["candidates"]} == {0, 1}
    assert found["confirmation"]["candidates"]
    words = " ".join(out.split())
    assert all(" ".join(sentence.split()) in words for sentence in (*found["sentences"], *found["warnings"]))
    for name in ("search.html", "search.xlsx", "search.json", "model/model.safetensors", "audit/report.html"):
        assert (tmp_path / "search" / name).is_file(), name
    assert "Search:" in out


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*too short to have a direction")
def test_trees_that_a_search_chose_are_saved_and_audited_with_the_same_figures(evenhand, loans, tmp_path, monkeypatch):
    out_folder = tmp_path / "search"
    words = (
        "search", loans, *BASICS, "--family", "trees", "--candidates", "2", "--folds", "2", "--keep", "auc >= 0.1",
        "--confirmation", "0", "--out", out_folder,
    )  # fmt: skip
    code, out, err = evenhand(*words)
    assert code == 0, err
    model = out_folder / "model" / "model.skops"
    assert f"Chosen model: {model}" in out
    code, _, err = evenhand("audit", loans, *BASICS, "--model", model, "--out", tmp_path / "audit")
    assert code == 0, err
    folders = (out_folder / "audit", tmp_path / "audit")
    searched, audited = (json.loads((folder / "audit.json").read_text()) for folder in folders)
    assert searched.pop("created") <= audited.pop("created")
    for part in (searched, audited):  # the command knows of files, and of people who were left out
        part["data"] = {key: value for key, value in part["data"].items() if key not in ("hashes", "exclusions")}
    assert audited == searched

    monkeypatch.setitem(sys.modules, "skops.io", None)
    model.unlink()
    code, out, err = evenhand(*words)  # its candidates are kept
    assert code == 0, err
    assert "Chosen model: not saved. Saving a model of scikit-learn needs skops, which is not installed: " in err
    assert not model.exists()
    assert "Search:" in out


@pytest.mark.usefixtures("opened_here")
@pytest.mark.filterwarnings("ignore:.*too short to have a direction")
def test_a_search_starts_from_a_model_and_compares_with_it(evenhand, loans, tmp_path):
    xgboost = pytest.importorskip("xgboost")
    table = pd.read_csv(loans)
    approved = (table["outcome"].astype(str).str.strip() == "Approved").astype(int)
    model = xgboost.XGBClassifier(n_estimators=10, max_depth=2, n_jobs=1).fit(table[["income", "debt"]], approved)
    model.save_model(tmp_path / "mine.json")
    out_folder = tmp_path / "search"
    code, out, err = evenhand(
        "search", loans, *BASICS, "--start", tmp_path / "mine.json", "--candidates", "2", "--folds", "2",
        "--keep", "auc >= start - 0.3", "--out", out_folder,
    )  # fmt: skip
    assert code == 0, err
    assert "An XGBoost file does not say how its model was trained" in out
    assert "alternative compared with your model" in out
    assert "Where the search says your model, it means a copy" in " ".join(out.split())
    page = (out_folder / "search.html").read_text("utf-8")
    for name in ("search.xlsx", "model/model.json", "audit/report.html", "your-model/report.html", "comparison.html"):
        assert (out_folder / name).is_file(), name
        assert f'<a href="{name}">' in page
    code, out, err = evenhand("search", loans, *BASICS, "--start", tmp_path / "none.json", "--out", out_folder)
    assert code == 2
    assert "There is no model file" in err


def test_a_search_without_an_admissible_model_says_so(evenhand, loans, tmp_path):
    code, out, err = evenhand(
        "search", loans, *BASICS, "--candidates", "1", "--folds", "2", "--keep", "auc >= 0.9999",
        "--out", tmp_path / "search",
    )  # fmt: skip
    assert code == 1, err
    assert "No candidate meets every constraint" in out
    assert "Traceback" not in err
    assert {path.name for path in (tmp_path / "search").glob("search.*")} == {
        "search.html",
        "search.json",
        "search.xlsx",
    }
