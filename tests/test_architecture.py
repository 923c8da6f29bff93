"""What the top of the package holds, how long its parts are, and what starts quickly.

Who imports whom is import-linter's to check.
"""

import ast
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "evenhand"
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
LAYERS = [
    layer for contract in CONTRACTS for layer in contract.get("layers", ()) if (PACKAGE / layer.split()[0]).is_dir()
]

MODULES = sorted(PACKAGE.rglob("*.py"))
MOST_LINES_OF_A_FILE, MOST_LINES_OF_A_BODY = 500, 60


def n_body_lines(function):
    """Lines from the first statement to the last, without the signature and the docstring."""
    body = function.body[ast.get_docstring(function) is not None :]
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def functions_of(path):
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    return [node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def test_the_top_of_the_package_has_at_most_fifteen_rooms():
    aside = {"__pycache__", "__main__.py", "_version.py", "py.typed"}
    assert len([path for path in PACKAGE.iterdir() if path.name not in aside]) <= 15


@pytest.mark.parametrize("layer", LAYERS)
def test_no_two_modules_of_a_layer_share_a_file_name(layer):
    modules = [path for room in layer.split(" | ") for path in (PACKAGE / room).rglob("*.py")]
    assert modules
    named = Counter(path.name for path in modules if path.name != "__init__.py")
    assert [name for name, times in named.items() if times > 1] == []


def test_no_file_is_long():
    lengths = {str(path.relative_to(PACKAGE)): len(path.read_text("utf-8").splitlines()) for path in MODULES}
    assert {name: n for name, n in lengths.items() if n > MOST_LINES_OF_A_FILE} == {}


def test_no_function_is_long():
    lengths = {
        f"{path.relative_to(PACKAGE)}:{function.name}": n_body_lines(function)
        for path in MODULES
        for function in functions_of(path)
    }
    assert {name: n for name, n in lengths.items() if n > MOST_LINES_OF_A_BODY} == {}


def test_the_length_of_a_function_is_that_of_its_body():
    documented = 'def f(\n    a,\n    b,\n):\n    """Two\n    lines."""\n    c = a\n\n    return c + b'
    bare, empty = "def f(a): return a", 'def f():\n    """Nothing."""'
    functions = [ast.parse(text).body[0] for text in (documented, bare, empty)]
    assert [n_body_lines(function) for function in functions] == [3, 1, 0]


@pytest.mark.integration
def test_help_does_not_wait_for_torch():
    code = "import evenhand.cli, sys; assert 'torch' not in sys.modules and 'pandas' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_is_there():
    import evenhand

    assert sorted(evenhand.__all__) == sorted({*evenhand._HOME, "__version__"})
    assert all(hasattr(evenhand, name) for name in evenhand.__all__)
    assert dir(evenhand) == sorted(evenhand.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        evenhand.nothing  # noqa: B018
