"""The command line of the studies.

    python -m studies calibration --quick --out calibration
    python -m studies power --quick --out power
    python -m studies gaps --dataset german --repeats 2 --out docs/results/reproduction/gaps
    python -m studies epochs --out docs/results/reproduction/epochs

Results are written as they are found, and the same command continues where an earlier one was stopped.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from evenhand.datasets import load_dataset
from evenhand.exceptions import EvenhandError
from evenhand.research.reproduction.protocol import ProtocolSettings, ResultStore
from studies.epochs import run_epochs, table_epochs
from studies.gaps import compare_gaps
from studies.run import STUDIES, run_study


def main() -> None:
    """Run the study that the arguments name."""
    parser = argparse.ArgumentParser(
        prog="python -m studies", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="NAME")
    for name, purpose in (
        ("calibration", "false alarms and coverage of every test of the audit on data with nothing to find"),
        ("power", "how often the audit and other tests find biases that were planted in the data"),
    ):
        command = commands.add_parser(name, help=purpose, description=purpose)
        command.set_defaults(run=audit_cells, study=name)
        command.add_argument("--quick", action="store_true", help="run a few small cells, in seconds")
        command.add_argument("--cells", type=names_in, default=(), help="parts of names of cells: german,adult")
        command.add_argument("--replicates", type=int, help="datasets in each cell")
        command.add_argument("--minutes", type=float, help="start no new audit after this many minutes")
        command.add_argument("--n-jobs", type=int, default=1, help="number of processes, each on one core")
        command.add_argument("--out", type=Path, default=Path(name), help="folder of audits and tables")
        command.add_argument("--page", type=Path, help="Markdown page whose tables to replace")
    gaps = commands.add_parser("gaps", help="score gap and weighing of every method of the paper's comparison")
    gaps.set_defaults(run=audit_methods)
    gaps.add_argument("--dataset", type=names_in, default=["german"])
    gaps.add_argument("--methods", type=names_in, help="all by default")
    gaps.add_argument("--folds", type=int, default=5)
    gaps.add_argument("--repeats", type=int, default=1, help="cross-validations, each with the next seed")
    gaps.add_argument("--quick", action="store_true", help="fewer epochs, to check that everything runs")
    gaps.add_argument("--out", type=Path, required=True, help="folder of results and tables")
    epochs = commands.add_parser("epochs", help="which number of epochs gives the paper's row of a method")
    epochs.set_defaults(run=train_epochs)
    epochs.add_argument("--dataset", default="german")
    epochs.add_argument("--methods", type=names_in, default=["disparate_impact_remover", "hardt", "agarwal"])
    epochs.add_argument("--epochs", type=numbers_in, default="1-30", help="numbers and ranges of them: 1-20,30")
    epochs.add_argument("--out", type=Path, required=True, help="folder of results and tables")
    given = parser.parse_args()
    try:
        given.run(given)
    except EvenhandError as error:
        parser.exit(2, f"{error}\n")


def audit_cells(given: argparse.Namespace) -> None:
    """Calibration or power."""
    run_study(
        STUDIES[given.study],
        given.out,
        quick=given.quick,
        cells=given.cells,
        replicates=given.replicates,
        n_jobs=given.n_jobs,
        minutes=given.minutes,
        page=given.page,
        progress=True,
    )
    print(f"Written: {given.out / f'{given.study}.md'}")


def audit_methods(given: argparse.Namespace) -> None:
    """Score gap and weighing of each method."""
    settings = (ProtocolSettings.quick if given.quick else ProtocolSettings)(n_folds=given.folds)
    table = compare_gaps(given.dataset, given.methods, settings, repeats=given.repeats, out=given.out, progress=True)
    print(table.to_markdown())


def train_epochs(given: argparse.Namespace) -> None:
    """The paper's rows at every number of epochs."""
    store = ResultStore(given.out / "epochs.jsonl")
    results = run_epochs(
        load_dataset(given.dataset), given.methods, given.epochs, ProtocolSettings(), store, progress=True
    )
    table = table_epochs(given.dataset, results)
    table.write(given.out)
    print(table.to_markdown())


def names_in(text: str) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in text.split(",")]


def numbers_in(text: str) -> list[int]:
    """Numbers from numbers and ranges: 1-3,7 is 1, 2, 3 and 7."""
    ends = [part.split("-") for part in text.split(",")]
    return [number for part in ends for number in range(int(part[0]), int(part[-1]) + 1)]


if __name__ == "__main__":
    main()
