"""Whether the paper's rows of three methods come from barely trained networks: tries every number of epochs.

    python benchmarks/paper_epochs.py --out docs/results/reproduction/epochs

It takes about half an hour on one core, most of it for Agarwal. Results go to ``epochs.jsonl`` immediately, and the
same command continues from there; tables go to ``table_epochs.csv``, ``.md`` and ``.tex``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from evenhand.datasets import load_dataset
from evenhand.research.reproduction.epochs import run_epochs, table_epochs
from evenhand.research.reproduction.settings import ProtocolSettings, ResultStore


def numbers_in(text: str) -> list[int]:
    """Numbers from numbers and ranges: 1-3,7 is 1, 2, 3 and 7."""
    ends = [part.split("-") for part in text.split(",")]
    return [number for part in ends for number in range(int(part[0]), int(part[-1]) + 1)]


def main() -> None:
    """Run what is missing, write the tables, and print the short one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of results and tables")
    parser.add_argument("--dataset", default="german")
    parser.add_argument("--methods", default="disparate_impact_remover,hardt,agarwal")
    parser.add_argument("--epochs", default="1-30", help="numbers and ranges of them, such as 1-20,30")
    given = parser.parse_args()
    store = ResultStore(given.out / "epochs.jsonl")
    found = run_epochs(
        load_dataset(given.dataset),
        given.methods.split(","),
        numbers_in(given.epochs),
        ProtocolSettings(),
        store,
        progress=True,
    )
    table = table_epochs(given.dataset, found)
    table.write(given.out)
    print(table.to_markdown())


if __name__ == "__main__":
    main()
