"""What the top of the package holds, and what starts quickly.

Who imports whom is import-linter's to check.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "evenhand"


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
