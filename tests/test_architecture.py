"""What the top of the package holds, and what starts quickly; who imports whom is import-linter's to check."""

import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "evenhand"


def test_the_top_of_the_package_has_at_most_fifteen_rooms():
    aside = {"__pycache__", "__main__.py", "_version.py", "py.typed"}
    assert len([path for path in PACKAGE.iterdir() if path.name not in aside]) <= 15


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
