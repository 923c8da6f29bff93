"""Print the oldest versions that pyproject.toml declares for users, as pins; `make oldest` runs the tests with them.

torch is left out unless OLDEST_TORCH is set: its old CPU builds are not on the package index.
"""

import os
import re
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FORM = re.compile(r"([\w.-]+)(\[[\w,-]+\])?\s*>=\s*([\w.]+)")


def pins() -> list[str]:
    """One pin for each requirement of the package and of the extras that `all` stands for."""
    extras = PROJECT["optional-dependencies"]
    for_users = re.findall(r"[\w-]+", extras["all"][0])[1:]
    asked = [*PROJECT["dependencies"], *(requirement for extra in for_users for requirement in extras[extra])]
    found = {}
    for requirement in asked:
        form = FORM.match(requirement)
        if form is not None and (form[1] != "torch" or os.environ.get("OLDEST_TORCH")):
            found[form[1]] = f"{form[1]}=={form[3]}"
    return sorted(found.values())


if __name__ == "__main__":
    print("\n".join(pins()))
