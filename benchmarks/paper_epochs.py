"""Whether the paper's rows of three methods are those of barely trained networks: every number of epochs is tried.

    python benchmarks/paper_epochs.py --out docs/results/reproduction/epochs

About half an hour on one core. Results go to ``epochs.jsonl`` as they are found, and the same command goes on from
there; tables to ``table_epochs.csv``, ``.md`` and ``.tex``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from evenhand.datasets import load_dataset
from evenhand.research.reproduction.epochs import run_epochs, table_epochs
from evenhand.research.reproduction.settings import ProtocolSettings
from evenhand.research.reproduction.store import ResultStore


def main() -> None:
    """Run what is missing, write the tables, and print the short one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of results and tables")
    parser.add_argument("--dataset", default="german")
    parser.add_argument("--methods", default="disparate_impact_remover,hardt,agarwal")
    parser.add_argument("--most", type=int, default=30, help="epochs at most")
    given = parser.parse_args()
    store = ResultStore(given.out / "epochs.jsonl")
    found = run_epochs(
        load_dataset(given.dataset),
        given.methods.split(","),
        range(1, given.most + 1),
        ProtocolSettings(),
        store,
        progress=True,
    )
    table = table_epochs(given.dataset, found)
    table.write(given.out)
    print(table.to_markdown())


if __name__ == "__main__":
    main()
