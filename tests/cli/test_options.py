"""One definition of each option: the command line, TOML files and Python read the same names and defaults."""

import inspect
import re
from dataclasses import fields

import pytest
from typer.testing import CliRunner

import evenhand as eh
from evenhand.auditing.options import AuditOptions
from evenhand.cli import app
from evenhand.cli.options import _COMMAND_LINE_ONLY, AuditPlan, SearchPlan, TrainPlan, plan_from_toml
from evenhand.exceptions import InvalidInputError


def test_every_option_of_an_audit_can_be_given_directly():
    direct = set(inspect.signature(eh.audit).parameters)
    assert not direct & {option.name for option in fields(AuditOptions)} - {"financial_features"}
    assert "options" in direct


def test_every_option_is_on_the_command_line_and_in_toml(tmp_path):
    shown = CliRunner().invoke(app, ["audit", "--help"], env={"COLUMNS": "200"}).output
    for option in (option for option in fields(AuditPlan) if "help" in option.metadata):
        assert f"--{option.name.replace('_', '-')}" in shown
        values = {bool: "true", int: "3", float: "0.25", str: '"a"', tuple: '["a", "b"]', dict: "{weighing = 0.25}"}
        value = values[_kind(option)]
        if option.name in ("engine", "encoding", "decimal", "thousands", "favorable", "ties", *_COMMAND_LINE_ONLY):
            continue  # only some words are taken, or none in a file
        (tmp_path / "a.toml").write_text(f"{option.name} = {value}")
        found = getattr(plan_from_toml(tmp_path / "a.toml", AuditPlan), option.name)
        assert found in (True, 3, 0.25, "a", ("a", "b"), {"weighing": 0.25})


def _kind(option):
    words = {"bool": bool, "int": int, "float": float, "tuple[str, ...]": tuple, "Mapping[str, float]": dict}
    return words.get(option.type.removesuffix(" | None").removesuffix(" | SegmentThresholds"), str)


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"gap": 0.1}, "must name score_gap, inputs, weighing or excess, got 'gap'"),
        ({"score_gap": 0}, "the limit of score_gap must be a number above 0, got 0"),
        ({"excess": -0.1}, "the limit of excess must be a number above 0, got -0.1"),
        ({"weighing": float("nan")}, "the limit of weighing must be a number above 0, got nan"),
        ({"inputs": True}, "the limit of inputs must be a number above 0, got True"),
        (0.1, "must map findings to numbers, such as {'score_gap': 0.1}, got 0.1"),
    ],
)
def test_limits_that_say_nothing_are_refused_in_a_sentence(limits, says):
    with pytest.raises(InvalidInputError) as refused:
        AuditOptions(limits=limits)
    assert says in str(refused.value)
    assert str(refused.value).startswith("`limits` (--limit)")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["score_gap"], "--limit must look like 'score_gap=0.1', got 'score_gap'"),
        (["score_gap=much"], "--limit must look like 'score_gap=0.1', got 'score_gap=much'"),
        (["gap=0.1"], "got 'gap'"),
        (["excess=-1"], "the limit of excess must be a number above 0, got -1.0"),
        (["excess=0.1", "excess = 0.2"], "--limit names excess twice"),
    ],
)
def test_the_command_line_refuses_the_same_limits(given, says, tmp_path):
    words = [word for text in given for word in ("--limit", text)]
    found = CliRunner().invoke(app, ["audit", str(tmp_path / "absent.csv"), *words])
    assert isinstance(found.exception, InvalidInputError)
    assert says in str(found.exception)


def test_limits_are_the_same_from_the_command_line_from_toml_and_from_python(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("evenhand.cli.jobs.audit_table", lambda path, plan: seen.append(plan) or _stop())
    given = [
        *("--label", "y", "--group", "g", "--financial", "f"),
        "--limit",
        "score_gap=0.1",
        "--limit",
        "weighing = 5e-2",
    ]
    (tmp_path / "people.csv").write_text("y,g,f\n1,a,2\n")
    CliRunner().invoke(app, ["audit", str(tmp_path / "people.csv"), *given])
    (tmp_path / "audit.toml").write_text("[limits]\nscore_gap = 0.1\nweighing = 0.05\n")
    from_file = plan_from_toml(tmp_path / "audit.toml", AuditPlan)
    assert seen[0].limits == from_file.limits == AuditOptions(limits={"score_gap": 0.1, "weighing": 0.05}).limits


def _stop():
    raise InvalidInputError("far enough")


def test_training_has_the_defaults_of_the_classifier():
    defaults = {name: p.default for name, p in inspect.signature(eh.CECClassifier).parameters.items()}
    options = {option.name: option.default for option in fields(TrainPlan) if option.name in defaults}
    options["encoding"] = TrainPlan().categories  # the option is about the file's text
    options.pop("financial_features")
    assert {"cec_weight", "equalized_odds_weight", "objective", "least_explained", "epochs"} <= set(options)
    assert options == {name: defaults[name] for name in options}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("drop = " + "[" * 100_000 + "]" * 100_000, "is not valid TOML: maximum recursion depth exceeded"),
        ("n_steps = " + "9" * 5_000, "is not valid TOML: Exceeds the limit"),
        ("n_reasons = 9223372036854775807", r"`n_reasons` .*must be at most 1,000, got 9,223,372,036,854,775,807"),
        ("n_steps = 1000000000", r"`n_steps` .*must be at most 100,000, got 1,000,000,000"),
    ],
)
def test_a_file_that_asks_for_too_much_is_refused(text, message, tmp_path):
    config = tmp_path / "audit.toml"
    config.write_text(text)
    with pytest.raises(InvalidInputError, match=message):
        plan_from_toml(config, AuditPlan)


def test_a_search_and_a_training_take_their_options_from_toml(tmp_path):
    file = tmp_path / "search.toml"
    file.write_text('label = "y"\nfolds = 3\ncandidates = 4\nkeep = []\nfamily = "trees"\n[payoff]\napprove_good = 1\n')
    plan = plan_from_toml(file, SearchPlan)
    assert (plan.label, plan.folds, plan.n_candidates, plan.keep, plan.family) == ("y", 3, 4, (), ("trees",))
    assert plan.payoff.approve_good == 1
    assert plan_from_toml(None, SearchPlan).minimize == inspect.signature(eh.search).parameters["minimize"].default
    file.write_text("folds = 1")
    with pytest.raises(InvalidInputError, match="`folds` must be a whole number of at least 2, got 1"):
        plan_from_toml(file, SearchPlan)
    file.write_text('epochs = 3\ncategories = "ordinal"')
    assert plan_from_toml(file, TrainPlan).categories == "ordinal"


@pytest.mark.parametrize(("command", "plan"), [("search", SearchPlan), ("train", TrainPlan)])
def test_the_help_shows_options_in_panels(command, plan):
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
    panels = re.split(r"╭─ (\w+) ─", shown)
    by_name = dict(zip(panels[1::2], panels[2::2], strict=True))
    assert {"Columns", "Reading", "Goal", "Output"} <= set(by_name)
    assert "--label" in by_name["Columns"]
    assert "--out" in by_name["Output"]
    for option in fields(plan):
        assert "help" not in option.metadata or f"--{option.name.replace('_', '-')}" in shown
