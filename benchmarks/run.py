"""Every benchmark, as ratios measured in one run: ``make bench`` or ``python benchmarks/run.py [name ...]``."""

import importlib
import platform
import sys
from pathlib import Path

NAMES = ("attribution", "matching", "audit", "evidence", "training", "trees", "black_box", "combined", "cores")


def show(rows: list[dict]) -> None:
    for row in rows:
        print(markdown(row), flush=True)


def markdown(row: dict) -> str:
    def number(key, form):
        value = row.get(key)
        return "" if value is None else value if isinstance(value, str) else format(value, form)

    cells = [
        row["what"],
        number("ours_s", ".3f"),
        number("theirs_s", ".3f"),
        number("ratio", ".1f"),
        str(row.get("target") or ""),
    ]
    return f"| {' | '.join(cells)} |"


def main(names: list[str]) -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    import torch

    print(
        f"Python {platform.python_version()}, torch {torch.__version__}, {platform.processor() or platform.machine()}\n"
    )
    print("| what | ours (s) | other (s) | ratio (times faster unless said) | target (at least) |")
    print("| --- | --- | --- | --- | --- |", flush=True)
    for name in names or NAMES:
        show(importlib.import_module(f"bench_{name}").run())


if __name__ == "__main__":
    main(sys.argv[1:])
