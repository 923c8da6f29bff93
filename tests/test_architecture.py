"""What the top of the package holds, and what starts quickly; who imports whom is import-linter's to check."""

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


def test_the_top_of_the_package_has_at_most_fifteen_rooms():
    aside = {"__pycache__", "__main__.py", "_version.py", "py.typed"}
    assert len([path for path in PACKAGE.iterdir() if path.name not in aside]) <= 15


@pytest.mark.parametrize("layer", LAYERS)
def test_no_two_modules_of_a_layer_share_a_file_name(layer):
    modules = [path for room in layer.split(" | ") for path in (PACKAGE / room).rglob("*.py")]
    assert modules
    named = Counter(path.name for path in modules if path.name != "__init__.py")
    assert [name for name, times in named.items() if times > 1] == []


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
