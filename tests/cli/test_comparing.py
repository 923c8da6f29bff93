"""`evenhand compare` and `evenhand monitor`: sentences, pages, gates and exit codes."""

import pytest
from typer.testing import CliRunner

import evenhand as eh
from evenhand.cli import app
from evenhand.exceptions import InvalidInputError


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """Audits of the same people under models that treat groups more and more unlike."""
    folder = tmp_path_factory.mktemp("history")
    for k, strength in enumerate((0.0, 0.0, 0.8)):
        planted = eh.make_planted_bias(200, strength=strength, random_state=0)
        people = planted.dataset
        result = eh.audit(
            planted.model, people.X, people.y, sensitive_features=people.group,
            financial_features=people.financial_features,
        )  # fmt: skip
        result.to_json(folder / f"m{k}" / "audit.json")
        result.to_parquet(folder / f"m{k}" / "pairs.parquet")
    return folder


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def compared(history, tmp_path, first, second, *gates):
    options = [word for gate in gates for word in ("--fail-on", gate)]
    files = [history / name / "audit.json" for name in (first, second)]
    return run("compare", *files, "--out", tmp_path / "page.html", *options)


def test_a_comparison_leads_with_the_four_questions_and_says_whose_people_they_are(history, tmp_path):
    done = compared(history, tmp_path, "m0", "m2")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "m2 compared with m0: The same inputs are weighed more differently, by " + lines[0].split()[-1]
    assert {line.split(":")[0] for line in lines[1:5]} == {"Score gap", "Inputs", "Weighing", "Excess"}
    assert "m2 and m0 are of the same people: changes are computed within people." in lines
    assert (tmp_path / "page.html").is_file()


@pytest.mark.parametrize(
    ("gate", "is_crossed"),
    [
        ("weighing > 0.05", True),
        ("weighing_p < 0.01", True),
        ("excess > 0.9", False),
        ("score_gap > 5", False),
        ("inputs > 5", False),
        ("score_gap_p < 1e-9", False),
        ("excess_balanced > 0.001", True),
        ("auc < -0.9", False),
        ("positive_rate_p <= 1", True),
    ],
)
def test_gates_of_a_comparison_are_on_changes(history, tmp_path, gate, is_crossed):
    done = compared(history, tmp_path, "m0", "m2", gate)
    assert done.exit_code == int(is_crossed), done.output
    assert ("Gate: m2: " in done.stderr) == is_crossed
    assert (tmp_path / "page.html").is_file()


def test_an_audit_against_itself_crosses_no_gate(history, tmp_path):
    gates = [f"{key}{end}" for key in ("score_gap", "inputs", "weighing", "excess") for end in (" > 0", "_p < 1")]
    assert compared(history, tmp_path, "m0", "m1", *gates).exit_code == 0


def test_a_gate_that_names_nothing_is_refused(history, tmp_path):
    done = compared(history, tmp_path, "m0", "m1", "wieghing > 0")
    assert isinstance(done.exception, InvalidInputError)
    assert str(done.exception) == "The gate names an unknown metric: 'wieghing'. Did you mean 'weighing'?"
    done = run("monitor", history, "--out", tmp_path / "m.html", "--fail-on", "nothing > 0")
    assert isinstance(done.exception, InvalidInputError)


@pytest.mark.parametrize(
    ("gate", "is_crossed"),
    [("departures > 0", True), ("weighing > 0.05", True), ("weighing_p < 0.01", True), ("score_gap > 5", False)],
)
def test_gates_of_a_history_are_on_departures_and_the_last_audit(history, tmp_path, gate, is_crossed):
    done = run("monitor", history, "--out", tmp_path / "monitoring.html", "--fail-on", gate)
    assert done.exit_code == int(is_crossed), done.output
    assert "Weighing departed from its past upwards at m2" in done.stdout
    assert (tmp_path / "monitoring.html").is_file()
