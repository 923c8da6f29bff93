"""Every benchmark in one table, each row with its target and whether it is met: ``make bench``.

``python benchmarks/run.py attribution audit`` runs some of them. Results go to docs/results/benchmarks, from which the
tables of docs/benchmarks.md are rewritten. On a different machine, ``--at gpu --out FOLDER`` writes them to a folder as
attribution@gpu.json and so on; copy them to the others, and ``--page`` writes the tables.
"""

import argparse
import importlib
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from measured import HEADING, RESULTS, ROOT, markdown, renew, row_of, show, write_results

__all__ = ["show"]  # for benchmarks that are run by themselves

PAGES = (ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "growth.md")
LONG = {"scale", "growth"}  # minutes to hours: `make scale` and `make growth`


def names_here() -> list[str]:
    """The benchmarks of this folder that take minutes at most."""
    found = (path.stem.removeprefix("bench_") for path in sorted(Path(__file__).parent.glob("bench_*.py")))
    return [name for name in found if name not in LONG]


def module_of(name: str):
    is_bench = (Path(__file__).parent / f"bench_{name}.py").is_file()
    return importlib.import_module(f"bench_{name}" if is_bench else name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="benchmarks to run; all short ones by default")
    parser.add_argument("--at", default="", help="a name for this machine, if it is not the usual one")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--page", action="store_true", help="only rewrite the tables of the page")
    given = parser.parse_args()
    failed, missed = [], 0
    if not given.page:
        print(HEADING, flush=True)
    for name in () if given.page else given.names or names_here():
        try:
            rows = [row_of(row) for row in module_of(name).run()]
        except Exception:  # run the others anyway
            traceback.print_exc()
            failed.append(name)
            continue
        print("\n".join(map(markdown, rows)), flush=True)
        missed += sum(row.is_met is False for row in rows)
        write_results(f"{name}@{given.at}" if given.at else name, rows, given.out)
    if given.out == RESULTS:
        for page in PAGES:
            renew(page)
    if not given.page:
        print(f"\n{missed} targets missed." + (f" Failed: {', '.join(failed)}." if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
