"""The documentation site: complete, and at home without a network. `make docs` builds it."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import evenhand

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
DIRECTIVE = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)


def module_of(name):
    pytest.importorskip("mkdocs", reason="the documentation's tools are not installed")
    spec = importlib.util.spec_from_file_location(name, DOCS / "building" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def documented():
    return [name for page in sorted((DOCS / "reference").glob("*.md")) for name in DIRECTIVE.findall(page.read_text())]


def test_every_public_name_is_there():
    assert sorted(evenhand.__all__) == sorted({*evenhand._HOME, "__version__"})
    assert all(hasattr(evenhand, name) for name in evenhand.__all__)
    assert dir(evenhand) == sorted(evenhand.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        evenhand.nothing  # noqa: B018


def test_every_public_name_is_in_the_reference():
    public = {f"evenhand.{name}" for name in evenhand.__all__ if name != "__version__"}
    assert public - set(documented()) == set(), "add a line `::: evenhand.NAME` to the page of docs/reference it fits"


@pytest.mark.parametrize("name", documented())
def test_a_name_in_the_reference_can_be_imported(name):
    path, _, last = name.rpartition(".")
    found = getattr(importlib.import_module(path), last)
    assert found.__doc__ or not callable(found)  # the text below a constant is not kept with it


def test_no_name_is_in_the_reference_twice():
    assert len(set(documented())) == len(documented())


def test_every_page_is_in_the_navigation():
    navigation = set(re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    written = {
        page.relative_to(DOCS).with_suffix(".md").as_posix() for page in (*DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb"))
    }
    expected = {page for page in written if not page.startswith("results/")}
    assert navigation == expected, "give each page a line under `nav` in mkdocs.yml"


def test_every_public_command_is_in_the_command_line_reference():
    sections = list(module_of("hooks").command_sections())
    headings = [section.splitlines()[0] for section in sections]
    assert headings[0] == "## `evenhand`"
    assert {"## `evenhand audit`", "## `evenhand train`", "## `evenhand data fetch`"} <= set(headings)
    (audit,) = (section for section in sections if section.startswith("## `evenhand audit`"))
    assert "--fail-on" in audit


def test_help_is_put_only_where_a_page_asks_for_it():
    hook = module_of("hooks").on_page_markdown
    assert hook("# A page", page=None) == "# A page"
    assert "--consistency-threshold" in hook("# A page\n\n<!-- commands -->\n", page=None)


@pytest.mark.parametrize(
    "fetched",
    [
        '<script src="https://example.org/a.js"></script>',
        '<link rel="stylesheet" href="//example.org/a.css">',
        '<link rel="preconnect" href="https://example.org">',
        '<img src="local.png" srcset="local.png 1x, https://example.org/b.png 2x">',
        '<p style="background: url(https://example.org/c.png)"></p>',
        "<style>@import 'https://example.org/d.css';</style>",
        '<svg><image href="https://example.org/e.png"/></svg>',
    ],
)
def test_what_a_page_would_fetch_from_elsewhere_is_found(fetched, tmp_path):
    (tmp_path / "page.html").write_text(f"<html><body>{fetched}</body></html>")
    (found,) = module_of("hooks").foreign_assets(tmp_path)
    assert found.startswith("page.html: ")
    assert "example.org" in found


def test_links_and_own_files_are_not_taken_for_foreign(tmp_path):
    (tmp_path / "page.html").write_text(
        '<a href="https://example.org">x</a><img src="a.svg"><link rel="canonical" href="https://example.org/page.html">'
    )
    (tmp_path / "a.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    (tmp_path / "a.css").write_text("p { background: url(data:image/png;base64,AAAA) }")
    assert module_of("hooks").foreign_assets(tmp_path) == []


def test_a_build_that_would_fetch_from_elsewhere_stops(tmp_path):
    hooks = module_of("hooks")
    from mkdocs.exceptions import PluginError

    (tmp_path / "a.css").write_text("@font-face { src: url('https://example.org/font.woff2') }")
    with pytest.raises(PluginError, match=r"must not fetch from other hosts:\na\.css: https://example\.org/font"):
        hooks.on_post_build({"site_dir": str(tmp_path)})


def test_drawings_of_our_own_say_what_they_show():
    for name in ("two_applicants.svg", "regimes.svg", "leaf.svg"):
        drawing = (DOCS / "images" / name).read_text("utf-8")
        assert "<title" in drawing
        assert "<desc" in drawing
        assert re.search(r'<rect width="760" height="\d+" rx="10" fill="#f4f6f8"/>', drawing), (
            "legible on any background"
        )


def test_formulas_become_mathml_and_keep_the_text_around_them():
    docstring = "Head.\n\n.. math:: i^* = \\arg\\min_i\n    x_i\n\nwith :math:`x_i` known.\n"
    shown = module_of("docstrings").with_mathml(docstring)
    assert shown.startswith('Head.\n\n<div class="formula"><math')
    assert shown.endswith("</math> known.\n")
    assert "math::" not in shown
    assert "*" not in shown, "Markdown would read it as emphasis"


def test_returned_values_in_prose_are_a_description():
    rewrite = module_of("docstrings").with_returned_prose
    assert rewrite("Head.\n\nReturns\n-------\nScores in [0, 1],\none per pair.\n\nExamples\n") == (
        "Head.\n\nReturns\n-------\n:\n    Scores in [0, 1],\n    one per pair.\n\nExamples\n"
    )
    typed = "Returns\n-------\nloss\n    A tensor.\n"
    assert rewrite(typed) == typed


def test_names_that_share_a_description_get_a_row_each():
    rewrite = module_of("docstrings").with_names_apart
    assert rewrite("n_steps, method\n    How.\n\n    More.\nc\n    Other.\n") == (
        "n_steps\n    How.\n\n    More.\nmethod\n    How.\n\n    More.\nc\n    Other.\n"
    )


@pytest.mark.slow
def test_the_shell_of_the_how_to_pages_runs(tmp_path):
    """A CSV file, a model, an audit, and gates: pasted one after the other."""
    pages = [(DOCS / "how-to" / name).read_text("utf-8") for name in ("audit-a-csv.md", "gate-in-ci.md")]
    script = "\n".join(re.findall(r"^```sh\n(.*?)^```$", "\n".join(pages), re.MULTILINE | re.DOTALL))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", script], cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report-again" / "audit.json").is_file()

    limit = ["audit", "cards.csv", "--config", "audit.toml", "--out", "report", "--fail-on", "cec.mean > 0.01"]
    crossed = subprocess.run([sys.executable, "-m", "evenhand", *limit], cwd=tmp_path, capture_output=True, text=True)
    assert crossed.returncode == 1, crossed.stderr
    assert (tmp_path / "report" / "audit.json").is_file()


def test_a_notebook_becomes_a_page_with_its_outputs():
    text = module_of("hooks").notebook_page(DOCS / "notebooks" / "scikit-learn.ipynb")
    assert text.startswith("# A scikit-learn pipeline\n\n")
    assert "```python\nresult = eh.audit(" in text
    assert "<th>question</th>" in text
    assert 'src="data:image/svg+xml;base64,' in text
