"""One definition of each option: the command line, TOML files and Python read the same names and defaults."""

import inspect
from dataclasses import fields

import pytest
from typer.testing import CliRunner

import evenhand as eh
from evenhand.auditing.options import AuditOptions, AuditSettings, RoleOptions, StreamOptions
from evenhand.cli import app
from evenhand.cli.options import AuditPlan, plan_from_toml

KINDS = (AuditOptions, RoleOptions, StreamOptions)


@pytest.mark.parametrize("function", [eh.audit, eh.audit_stream])
def test_parameters_have_the_defaults_of_the_options(function):
    defaults = {option.name: option.default for kind in KINDS for option in fields(kind)}
    shared = {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if name in defaults and parameter.default is not inspect.Parameter.empty
    }
    shared.pop("by", None)  # a column in memory, names of columns in a file
    assert shared == {name: defaults[name] for name in shared}
    assert {"decision_threshold", "evidence", "random_state"} <= set(shared)


def test_every_choice_is_a_parameter_or_a_setting():
    direct = set(inspect.signature(eh.audit).parameters)
    for option in fields(AuditOptions):
        assert option.name in direct or option.name in {setting.name for setting in fields(AuditSettings)}


def test_every_option_is_on_the_command_line_and_in_toml(tmp_path):
    shown = CliRunner().invoke(app, ["audit", "--help"], env={"COLUMNS": "200"}).output
    for option in fields(AuditPlan):
        assert f"--{option.name.replace('_', '-')}" in shown
        value = {bool: "true", int: "3", float: "0.25", str: '"a"', tuple: '["a", "b"]'}[_kind(option)]
        if option.name in ("engine", "scheduler", "encoding", "decimal", "thousands"):
            continue  # only some words are taken
        (tmp_path / "a.toml").write_text(f"{option.name} = {value}")
        assert getattr(plan_from_toml(tmp_path / "a.toml", AuditPlan), option.name) in (True, 3, 0.25, "a", ("a", "b"))


def _kind(option):
    words = {"bool": bool, "int": int, "float": float, "tuple[str, ...]": tuple}
    return words.get(option.type.removesuffix(" | None"), str)
