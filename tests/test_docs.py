"""The documentation does what it says: code runs, printed output is right, links lead somewhere, commands parse."""

import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import pytest
import sklearn
from sklearn.utils.fixes import parse_version

ROOT = Path(__file__).parents[1]
WRITTEN = [page for page in sorted((ROOT / "docs").rglob("*.md")) if "results" not in page.parts]  # those are outputs
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *WRITTEN]
TUTORIALS = ROOT / "docs" / "tutorials"
SLOW_PAGES = {  # more than two seconds, but for those that a newcomer reads first
    "docs/comparing.md",
    "docs/evidence-pack.md",
    "docs/group-probabilities.md",
    "docs/how-to/intersectional-groups.md",
    "docs/memo.md",
    "docs/regressions.md",
    "docs/scale.md",
    "docs/searching.md",
    "docs/training.md",
    "docs/tutorials/many-groups.md",
    "docs/without-the-model.md",
}

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# Files of this repository by their address, as a package index needs them.
ON_GITHUB = re.compile(r"https://(?:github|raw\.githubusercontent)\.com/evenhand/evenhand/(?:blob/|tree/)?main/(.+)")
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
# A metric of a trained network may differ in its last digits between machines.
TOLERANCE = 0.011
# Trees that an older scikit-learn fits differ more; code still has to run with it, and to print the same words.
FITS_AS_SHOWN = parse_version(sklearn.__version__) >= parse_version("1.9")


def page_id(page):
    return str(page.relative_to(ROOT))


def blocks(page, language):
    return [code for kind, code in FENCE.findall(page.read_text("utf-8")) if kind == language]


def code_and_output(page, language="python"):
    """Each block of a language with the plain text right behind it, if any."""
    text = page.read_text("utf-8")
    found = list(FENCE.finditer(text))
    for block, following in zip(found, [*found[1:], None], strict=True):
        if block[1] == language:
            is_output = (
                following is not None and following[1] == "text" and not text[block.end() : following.start()].strip()
            )
            yield block[2], following[2] if is_output else None


def words_and_numbers(text):
    return NUMBER.sub("#", text).split(), [float(number) for number in NUMBER.findall(text)]


def pages_with_code():
    for page in PAGES:
        if page.name != "README.md" and "```python" in page.read_text("utf-8"):
            marks = [pytest.mark.slow] if page_id(page) in SLOW_PAGES else []
            yield pytest.param(page, id=page_id(page), marks=marks)


@pytest.mark.integration
@pytest.mark.parametrize("page", list(pages_with_code()))
def test_code_of_a_page_runs_and_prints_what_the_page_says(page, tmp_path, monkeypatch, capsys):
    check_code_of_page(page, tmp_path, monkeypatch, capsys)


@pytest.mark.integration
@pytest.mark.skipif("EVENHAND_DATA" not in os.environ, reason="EVENHAND_DATA is not set: the raw files are not at hand")
def test_the_mortgage_file_is_made_as_the_tutorial_says(tmp_path, monkeypatch, capsys):
    check_code_of_page(TUTORIALS / "a-mortgage-file.md", tmp_path, monkeypatch, capsys, language="py")
    assert {path.name for path in tmp_path.iterdir()} == {"decisions.docx", "prices.docx", "decisions.zip"}


def check_code_of_page(page, tmp_path, monkeypatch, capsys, language="python"):
    """Run the blocks of a page one after the other, and compare what they print with what the page shows."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for code, expected in code_and_output(page, language):
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            exec(compile(code, page_id(page), "exec"), names)
        printed = capsys.readouterr().out
        if expected is not None:
            words, numbers = words_and_numbers(printed)
            expected_words, expected_numbers = words_and_numbers(expected)
            assert words == expected_words
            assert numbers == pytest.approx(expected_numbers, abs=TOLERANCE) or not FITS_AS_SHOWN


@pytest.mark.integration
def test_the_python_of_the_readme_runs_as_pasted(tmp_path, monkeypatch, capsys):
    (code,) = blocks(ROOT / "README.md", "python")
    assert len([line for line in code.splitlines() if line]) <= 12
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})
    (shown,) = blocks(ROOT / "README.md", "console")
    words, numbers = words_and_numbers(capsys.readouterr().out)
    expected_words, expected_numbers = words_and_numbers(shown)
    assert words == expected_words
    assert numbers == pytest.approx(expected_numbers, abs=TOLERANCE)
    assert (tmp_path / "report.html").is_file()


def evenhand_commands():
    for page in PAGES:
        for block in blocks(page, "sh"):
            for line in block.splitlines():
                if line.startswith("evenhand "):
                    yield pytest.param(line, id=f"{page.name}: {line[:50]}")


@pytest.mark.parametrize("line", list(evenhand_commands()))
def test_commands_in_the_documentation_parse(line):
    import typer

    from evenhand.cli import app

    words = shlex.split(line, comments=True)[1:]
    command = typer.main.get_command(app)
    context = command.make_context("evenhand", words[:1])
    while hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
        context = command.make_context(command.name, list(words[:1] if hasattr(command, "commands") else words))
    assert context.params is not None


@pytest.mark.slow
def test_the_shell_of_the_readme_runs(tmp_path):
    (code,) = [block for block in blocks(ROOT / "README.md", "sh") if "evenhand demo" in block]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", code], cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    written = (
        "demo/report.html",
        "plain/model.safetensors",
        "comparison.html",
        "audit/pack.zip",
        "streamed/report.html",
    )
    assert all((tmp_path / name).is_file() for name in written)
    audits = {name: json.loads((tmp_path / name / "audit.json").read_text()) for name in ("plain-audit", "audit")}
    yes = {name: [f["key"] for f in found["findings"] if f["answer"] == "yes"] for name, found in audits.items()}
    assert yes == {"plain-audit": ["inputs", "excess"], "audit": []}
    text = (ROOT / "README.md").read_text("utf-8")
    assert all(f"{found['outcome']['auc']:.3f}" in text for found in audits.values())


@pytest.mark.slow
def test_the_first_audit_runs_as_written(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "118")
    page = ROOT / "docs" / "first-audit.md"
    save, check, clean, audit = blocks(page, "sh")
    (config,) = blocks(page, "toml")
    printed = runs_with(save + check, ["bash", "-e", "-c"], tmp_path)
    assert (tmp_path / "check" / "audit.toml").read_text() == config
    printed += runs_with(clean + audit, ["bash", "-e", "-c"], tmp_path)
    lines = {line.rstrip() for line in printed.splitlines()}
    shown = {line for block in blocks(page, "console") for line in block.splitlines()}
    assert shown - lines == {"..."}
    assert (tmp_path / "report" / "report.html").is_file()


@pytest.mark.slow
def test_the_tutorial_of_an_alternative_runs(tmp_path, monkeypatch, capsys):
    page = TUTORIALS / "an-alternative-to-my-xgboost-model.md"
    check_code_of_page(page, tmp_path, monkeypatch, capsys)
    commands = "\n".join(blocks(page, "sh")).replace("--candidates 40", "--candidates 3")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", commands], cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (
        "the learning rate of 0.08 and the L2 penalty of 1 from its trees. PAY_0 and LIMIT_BAL stay monotone"
        in done.stdout
    )
    assert "numbers are the same within 1e-06" in done.stdout
    written = (
        "search/search.html",
        "search/comparison.html",
        "mine/report.html",
        "alternative/memo.docx",
        "change.html",
    )
    assert all((tmp_path / name).is_file() for name in written)


def runs_with(script, command, tmp_path):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [*command, script], cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_lenders_file_is_made_as_the_tutorial_says(tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    page = TUTORIALS / "a-lenders-file.md"
    printed = runs_with("\n".join(blocks(page, "sh")), ["bash", "-e", "-c"], tmp_path)
    for shown in "".join(blocks(page, "console")).splitlines():
        assert shown in printed
    (config,) = blocks(page, "text")
    assert (tmp_path / "lender" / "audit.toml").read_text() == config
    written = ("q1/memo.docx", "q1/pack.zip", "q2/report.html", "change.html", "check/audit.toml")
    assert all((tmp_path / "lender" / name).is_file() for name in written)


@pytest.mark.integration
@pytest.mark.skipif(shutil.which("Rscript") is None, reason="R is not installed")
def test_the_r_of_the_tutorial_runs(tmp_path):
    (code,) = blocks(TUTORIALS / "from-r.md", "r")
    (shown,) = blocks(TUTORIALS / "from-r.md", "text")
    if "jsonlite" not in runs_with("cat(rownames(installed.packages()))", ["Rscript", "-e"], tmp_path).split():
        pytest.skip("jsonlite is not installed in R")
    printed = runs_with(code, ["Rscript", "-e"], tmp_path)
    words, numbers = words_and_numbers(printed[printed.rindex(shown.split()[0] + " moves") :])
    expected_words, expected_numbers = words_and_numbers(shown)
    assert words == expected_words
    assert numbers == pytest.approx(expected_numbers, abs=TOLERANCE)


def test_the_make_targets_of_the_readme_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {word for page in PAGES for word in re.findall(r"`make ([a-z]+)`", page.read_text("utf-8"))}
    named |= set(re.findall(r"^make ([a-z]+)", "\n".join(blocks(ROOT / "README.md", "sh")), re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_to_files_that_exist(page):
    text = FENCE.sub("", page.read_text("utf-8"))
    links = [link.partition("#")[0] for link in LINK.findall(text)]
    here = [page.parent / link for link in links if "://" not in link]
    on_github = [ROOT / found[1] for link in links if (found := ON_GITHUB.match(link))]
    assert [str(target) for target in (*here, *on_github) if not target.exists()] == []


def test_the_readme_has_no_link_that_fails_on_a_package_index():
    text = FENCE.sub("", (ROOT / "README.md").read_text("utf-8"))
    assert [link for link in LINK.findall(text) if not re.match(r"https://|#", link)] == []


IMPORT = re.compile(r"^from (evenhand[\w.]*) import (.+)$", re.MULTILINE)
LONG_NAME = re.compile(r"`(evenhand(?:\.[a-z_]+)+\.\w+)`")


def test_pages_and_examples_teach_only_names_of_the_reference():
    reference = [page.read_text("utf-8") for page in (ROOT / "docs" / "reference").glob("*.md")]
    public = {name for page in reference for name in re.findall(r"^::: ([\w.]+)$", page, re.MULTILINE)}
    taught = {
        name for page in WRITTEN if page.name != "architecture.md" for name in LONG_NAME.findall(page.read_text())
    }
    code = [block for page in PAGES for block in blocks(page, "python")]
    code += [example.read_text("utf-8") for example in (ROOT / "examples").glob("*.py")]
    for module, names in (found for text in code for found in IMPORT.findall(text)):
        taught |= {f"{module}.{name.strip()}" for name in names.split(",")}
    assert len(taught) > 5
    assert taught - public == set()


def test_the_index_links_every_page():
    linked = set(LINK.findall((ROOT / "docs" / "index.md").read_text("utf-8")))
    written_here = {"calibration.md", "reproduction.md", "benchmarks.md", "index.md"}  # have owners of their own
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - written_here <= linked


def test_the_toml_of_the_documentation_has_every_key_and_no_other(tmp_path):
    from dataclasses import fields

    from evenhand.cli.options import _COMMAND_LINE_ONLY, AuditPlan, plan_from_toml

    (text,) = blocks(ROOT / "docs" / "auditing.md", "toml")
    file = tmp_path / "audit.toml"
    file.write_text(text, encoding="utf-8")
    assert plan_from_toml(file, AuditPlan).label == "approved"
    stated = tomllib.loads(text)
    keys = {*stated.pop("clean"), *stated, *_COMMAND_LINE_ONLY}
    assert keys == {field.name for field in fields(AuditPlan) if field.metadata}


def test_every_field_of_the_json_is_documented():
    import evenhand as eh

    planted = eh.make_planted_bias(300, random_state=0)
    people = planted.dataset
    found = eh.audit(
        planted.model, people.X, people.y, sensitive_features=people.group, financial_features=people.financial_features
    ).to_dict()
    page = (ROOT / "docs" / "auditing.md").read_text("utf-8")
    documented = set(re.findall(r"[\w.]+", page))
    for section in ("settings", "data", "cec", "outcome", "matching", "evidence", "score_gap", "verdict"):
        unknown = {name for name in found[section] if not {name, f".{name}", f"{section}.{name}"} & documented}
        assert not unknown, f"{section}: {unknown}"
    (inputs,) = (finding for finding in found["findings"] if finding["key"] == "inputs")
    for record in (inputs, inputs["features"][0], found["score_gaps"][0], found["score_gaps"][0]["total"]):
        assert {name for name in record if not {name, f".{name}"} & documented} == set()
    assert set(found) <= {token.partition(".")[0] for token in documented}


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
DOTTED = re.compile(r"`([a-z_]+(?:\.\w+)+)`")


def rooms_by_layer():
    """Each room with the number of its layer, from the contract that import-linter holds."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    return {room.strip(): number for number, layer in enumerate(layers) for room in layer.split("|")}


def exists(name):
    """Whether there is a `room.module.name`, of any depth."""
    parts = f"evenhand.{name}".split(".")
    for k in range(len(parts), 1, -1):
        try:
            found = importlib.import_module(".".join(parts[:k]))
        except ModuleNotFoundError:
            continue
        for part in parts[k:]:
            found = getattr(found, part, None)
        return found is not None
    return False


def named_in(text):
    return [name for name in DOTTED.findall(text) if name.partition(".")[0] in rooms_by_layer()]


def test_the_layers_of_the_architecture_are_those_of_the_contract():
    (text,) = re.findall(r"^## The layers\n(.*?)^## ", ARCHITECTURE, re.MULTILINE | re.DOTALL)
    layers = [re.split(r" \| ", line.strip()) for line in text.splitlines() if line.startswith("    ")]
    assert {room: number for number, layer in enumerate(layers) for room in layer} == rooms_by_layer()


def test_what_the_architecture_names_exists():
    named = set(named_in(ARCHITECTURE))
    assert named
    assert [name for name in sorted(named) if not exists(name)] == []
