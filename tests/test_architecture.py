"""Who may import whom, and what the core may need."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "evenhand"

# For each part of the package, the parts it may import besides itself, exceptions and _version.
ALLOWED = {
    "exceptions": set(),
    "_version": set(),
    "files": set(),
    "threads": set(),
    "trees": {"threads"},
    "attribution": set(),
    "scoring": set(),
    "regimes": set(),
    "outcome_metrics": set(),
    "inference": set(),
    "validation": set(),
    "splitting": set(),
    "progress": set(),
    "disparity": {"inference"},
    "procedural_metrics": {"outcome_metrics"},
    "proxies": {"outcome_metrics"},
    "encoding": {"validation"},
    "matching": {"threads"},
    "csv_files": set(),
    "tables": {"csv_files", "validation"},
    "gates": {"validation"},
    "fingerprints": {"validation"},
    "data": {"files"},
    "placebo": {"inference", "matching"},
    "clustering": {"inference"},
    "models": {"attribution", "encoding", "trees", "validation"},
    "loading": {"models", "training", "trees"},
    "explaining": {"attribution", "models", "validation"},
    "comparisons": {"attribution", "explaining", "placebo", "scoring"},
    "evidence": {"clustering", "comparisons", "explaining", "inference"},
    "findings": {"attribution", "comparisons", "explaining", "matching", "models", "regimes", "scoring"},
    "cases": {"scoring"},
    "figures": {"disparity", "evidence", "files", "matching", "outcome_metrics", "proxies", "regimes", "report"},
    "result": {"cases", "encoding", "figures", "files", "procedural_metrics", "regimes", "report"},
    "report": {"comparing", "figures", "files", "inference", "regimes", "scoring"},
    "assembling": {
        "disparity", "evidence", "figures", "findings", "inference", "matching", "outcome_metrics", "proxies",
        "validation",
    },
    "auditing": {
        "assembling", "attribution", "evidence", "explaining", "findings", "fingerprints", "matching", "models",
        "result", "validation",
    },
    "comparing": {"figures", "files", "inference", "result"},
    "scale": {
        "assembling", "attribution", "cases", "clustering", "comparisons", "csv_files", "evidence", "explaining",
        "figures", "files", "findings", "fingerprints", "inference", "matching", "models", "progress", "proxies",
        "regimes", "report", "tables", "threads", "validation",
    },
    "training": {
        "attribution", "encoding", "files", "matching", "models", "placebo", "progress", "scoring", "splitting",
        "threads", "validation",
    },
    "searching": {
        "attribution", "auditing", "encoding", "files", "fingerprints", "matching", "models", "outcome_metrics",
        "placebo", "progress", "report", "result", "scoring", "splitting", "training", "validation",
    },
    "methods": {"*"},
    "experiments": {"*"},
    "running": {"*"},
    "cli": {"*"},
    "__init__": {"*"},
    "__main__": {"cli"},
}  # fmt: skip


def part_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_parts(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("evenhand"):
            names = node.module.split(".")[1:2] or [alias.name for alias in node.names]
            yield from names
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("evenhand."))


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    part = part_of(path)
    assert part in ALLOWED, f"add {part!r} to the picture of who imports whom"
    allowed = ALLOWED[part]
    if "*" in allowed:
        assert part == "cli" or "cli" not in set(imported_parts(path))
        return
    assert set(imported_parts(path)) <= allowed | {part, "exceptions", "_version"}


BLOCKED = ["pandas", "narwhals", "pyarrow", "rich", "typer", "platformdirs", "safetensors", "sklearn", "threadpoolctl"]


def test_the_core_works_with_numpy_scipy_and_torch_alone():
    code = f"""
import sys
for name in {BLOCKED!r}:
    sys.modules[name] = None
import evenhand
for name in evenhand.__all__:
    if name != "CECClassifier":
        getattr(evenhand, name)
import numpy, torch
from evenhand.training import StackedNetwork
F = numpy.random.default_rng(0).normal(size=(50, 20))
evenhand.match_pairs(F, numpy.arange(50) % 2, numpy.arange(50) // 25)
evenhand.integrated_gradients(StackedNetwork(3).member(0), numpy.zeros((2, 3)), numpy.zeros(3))
"""
    subprocess.run([sys.executable, "-c", code], check=True)


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
