"""`evenhand data`, `evenhand app` and `evenhand reproduce`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from evenhand.cli.options import names_in
from evenhand.cli.terminal import say
from evenhand.exceptions import InvalidInputError

data_app = typer.Typer(help="List the datasets, save one as a table, or download one.", rich_markup_mode="rich")


@data_app.command("list")
def data_list() -> None:
    """List the datasets with their sizes and sources.

    \b
    Example:
      evenhand data list
    """
    from rich.console import Console
    from rich.table import Table

    from evenhand.datasets import dataset_descriptions

    table = Table("name", "what", box=None, pad_edge=False)
    for name, what in dataset_descriptions().items():
        table.add_row(name, what)
    table.add_row(
        "messy", "A messy spreadsheet of loan applications and its lender's model; only for `evenhand data save`"
    )
    Console().print(table)


@data_app.command("save")
def data_save(
    name: Annotated[str, typer.Argument(help="Dataset to save; or messy, a spreadsheet with its model.")],
    out: Annotated[Path, typer.Option(help="CSV or Parquet file; for messy, a folder.")],
    people: Annotated[
        int | None,
        typer.Option(
            min=1, help="Save only this many people, drawn at random with the same shares of label and group."
        ),
    ] = None,
    held_out: Annotated[
        Path | None, typer.Option(help="With --people: also save as many other people, to audit a model on.")
    ] = None,
) -> None:
    """Save a dataset as a table with its label, `outcome`, and its group.

    \b
    Examples:
      evenhand data save messy --out messy
      evenhand data save taiwan --people 3000 --out cards.csv
    """
    import numpy as np

    from evenhand.datasets import load_dataset
    from evenhand.inputs.splitting import sample_people
    from evenhand.inputs.validation import as_groups
    from evenhand.system.files import write_atomically

    if name == "messy":
        from evenhand.datasets.messy import save_messy

        applications, model = save_messy(out, people or 1_200)
        say(f"Written: {applications}, {model}\nNext: evenhand check {shlex.quote(str(applications))}")
        return
    for option, file in (("--out", out), ("--held-out", held_out)):
        if file is not None and file.suffix not in {".csv", ".parquet"}:
            raise InvalidInputError(f"{option} must end in .csv or .parquet, got {str(file)!r}.")
    data = load_dataset(name)
    rows, codes = np.arange(len(data)), as_groups(data.group, len(data)).codes
    if held_out is not None and (people is None or 2 * people > len(data)):
        raise InvalidInputError(f"--held-out needs --people, at most half of the {len(data):,} people of {name}.")
    files = {out: rows}
    if people is not None:
        files = {out: sample_people(data.y, codes, people, random_state=0)}
    if held_out is not None and people is not None:
        rest = np.setdiff1d(rows, files[out])
        files[held_out] = rest[sample_people(data.y[rest], codes[rest], people, random_state=0)]
    table = data.X.assign(**{"outcome": data.y, data.group_name: data.group})
    for file, chosen in files.items():
        with write_atomically(file) as temporary:
            write = table.iloc[chosen].to_csv if file.suffix == ".csv" else table.iloc[chosen].to_parquet
            write(temporary, index=False)
    say(
        f"Written: {', '.join(f'{file}, {len(chosen):,} people' for file, chosen in files.items())}; label outcome "
        f"(1 = {data.positive_label}), group {data.group_name}, "
        f"financial features {','.join(data.financial_features)}"
    )
    for note in (*data.notes, *data.reservations):
        say(f"Note: {note}")


@data_app.command("fetch")
def data_fetch(
    name: Annotated[str, typer.Argument(help="Dataset to download; only hmda needs the network.")],
    state: Annotated[str, typer.Option(help="States of the HMDA export: NY or NY,NJ.")] = "DC",
    year: Annotated[int, typer.Option(help="Year of the HMDA export.")] = 2024,
) -> None:
    """Download a dataset into the user's cache.

    \b
    Example, which uses the network:
      evenhand data fetch hmda --state DC --year 2024
    """
    from evenhand.datasets import dataset_descriptions, load_dataset
    from evenhand.datasets.hmda import fetch_hmda

    if name == "hmda":
        for path in fetch_hmda(names_in(state), year, progress=True):
            say(str(path))
        return
    if name in dataset_descriptions():
        say(f"{name} needs no download: {load_dataset(name)!r}")
        return
    raise InvalidInputError(f"There is no dataset {name!r}; see `evenhand data list`.")


def reproduce(
    dataset: Annotated[str, typer.Option(help="german, adult, synthetic or hmda; several as a,b; or all.")] = "german",
    methods: Annotated[
        str | None, typer.Option(help="Methods to compare: a,b; or all, with FairSHAP. [default: the paper's seven]")
    ] = None,
    folds: Annotated[int, typer.Option(help="Folds of the cross-validation.")] = 5,
    encoding: Annotated[
        str, typer.Option(help="Categories as ordinal (standardized) or unscaled codes, or onehot.")
    ] = "ordinal",
    rule: Annotated[
        str,
        typer.Option(help="Integration: midpoint, 32 steps everywhere; or segments, 1 in training and 8 in audits."),
    ] = "midpoint",
    match_pool: Annotated[
        str, typer.Option(help="Match test people with the train fold, or within the test fold.")
    ] = "train",
    ties: Annotated[str, typer.Option(help="Of equally near people, match the lowest row, or one at random.")] = "row",
    consistency_threshold: Annotated[float, typer.Option(help="CEC score above which reasoning differs.")] = 0.3,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer epochs, to check that everything runs.")] = False,
    grid: Annotated[bool, typer.Option("--grid", help="Also run the 6 x 6 lambda settings on German Credit.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "cpu",
    out: Annotated[Path, typer.Option(help="Folder for results, tables, charts and the page.")] = Path("reproduction"),
    state: Annotated[str | None, typer.Option(help="States of the HMDA data: NY or NY,NJ.")] = None,
    year: Annotated[int | None, typer.Option(help="Year of the HMDA data.")] = None,
    post_decision: Annotated[
        bool, typer.Option("--post-decision", help="Keep the HMDA fields that are known only after the decision.")
    ] = False,
    positive_share: Annotated[float, typer.Option(help="Share of favorable labels in the synthetic data.")] = 0.5,
    random_state: Annotated[int, typer.Option(help="Seed.")] = 0,
) -> None:
    """Compare the paper's seven methods on its datasets, with the choices it leaves open: tables, charts and a page.

    \b
    Example:
      evenhand reproduce --dataset german --methods cec,unconstrained \\
          --folds 2 --quick --out reproduction
    """
    from evenhand.research.reproduction.protocol import ProtocolSettings
    from evenhand.research.reproduction.reproduce import reproduce as run

    if rule not in ("midpoint", "segments"):
        raise InvalidInputError(f"--rule must be midpoint or segments, got {rule!r}.")
    changes: dict[str, Any] = {
        "n_folds": folds,
        "random_state": random_state,
        "encoding": encoding,
        "match_pool": match_pool,
        "ties": ties,
        "consistency_threshold": consistency_threshold,
    }
    settings = ProtocolSettings.quick(**changes) if quick else ProtocolSettings(**changes)
    settings = settings.with_segments() if rule == "segments" else settings
    result = run(
        dataset if dataset == "all" else list(names_in(dataset)),
        methods,
        settings=settings,
        has_grid=grid,
        device=device,
        out=out,
        progress=True,
        states=None if state is None else names_in(state),
        year=year,
        include_post_decision=post_decision,
        positive_share=positive_share,
    )
    for note in result.notes:
        say(note)
    for table in result.tables:
        say(f"\n{table.to_markdown()}")
    say(f"\nWritten: {result.page}")


def app(
    folder: Annotated[Path, typer.Option(help="Folder whose tables and audits are shown.")] = Path(),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any that is free.")] = 0,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
    demo: Annotated[
        bool, typer.Option("--demo", help="Start with credit cards of Taiwan, saved as cards.csv.")
    ] = False,
) -> None:
    """Audit in the browser, on this machine only: the pages write the same files and run the same commands.

    \b
    Example:
      evenhand app --demo --folder credit-cards
    """
    from evenhand.cli.audits import has_desktop
    from evenhand.system.libraries import optional_module

    for name, package in (("starlette", "starlette"), ("uvicorn", "uvicorn"), ("python_multipart", "python-multipart")):
        optional_module(name, "`evenhand app`", package, "app")
    from evenhand.app import serve

    cards = folder / "cards.csv"
    if demo and not cards.exists():
        data_save("taiwan", cards, 3000)

    def ready(address: str) -> None:
        say(f"Open {address}\nWhoever has this address can see the folder. Ctrl-C ends the app.")
        if not no_open and has_desktop():
            typer.launch(address)

    serve(folder, port=port, ready=ready, start="new?table=cards.csv" if demo else "")
