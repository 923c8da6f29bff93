"""What a release consists of besides the package agrees with it: citation, recipe, image and action."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import evenhand

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
RELEASE = evenhand.__version__.partition(".dev")[0]


def read_yaml(name):
    return yaml.safe_load((ROOT / name).read_text("utf-8"))


def test_the_citation_names_this_version():
    assert read_yaml("CITATION.cff")["version"] == evenhand.__version__


def test_a_release_has_its_date_in_the_changelog_and_the_citation():
    if evenhand.__version__ != RELEASE:
        pytest.skip(f"{evenhand.__version__} is not a release")
    (date,) = re.findall(rf"^## \[{re.escape(RELEASE)}\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert str(read_yaml("CITATION.cff")["date-released"]) == date


def test_the_recipe_has_the_version_and_the_requirements_of_the_package():
    recipe = read_yaml("recipe/recipe.yaml")
    assert recipe["context"]["version"] == RELEASE
    assert PROJECT["requires-python"] == f">={recipe['context']['python_min']}"
    wanted = [re.sub("(>=.+)", r" \1", requirement) for requirement in PROJECT["dependencies"]]
    assert sorted(recipe["requirements"]["run"][1:]) == sorted(wanted)


def test_optional_packages_of_the_recipe_have_the_bounds_of_the_extras():
    bounds = {requirement for extra in PROJECT["optional-dependencies"].values() for requirement in extra}
    optional = read_yaml("recipe/recipe.yaml")["requirements"]["run_constraints"]
    assert {line.replace(" ", "").replace("pytorch", "torch") for line in optional} <= bounds


def test_the_action_and_the_image_install_extras_that_exist():
    of_action = read_yaml("action.yml")["inputs"]["extras"]["default"].split(",")
    of_image = re.search(r"\.whl\)\[([\w,]+)\]", (ROOT / "Dockerfile").read_text("utf-8"))[1].split(",")
    assert {*of_action, *of_image} <= set(PROJECT["optional-dependencies"])
