"""`evenhand reproduce` and `evenhand calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evenhand.cli.options import names_in

__all__ = ["calibrate", "reproduce"]


def reproduce(
    dataset: Annotated[str, typer.Option(help="german, adult, synthetic, hmda, several as a,b, or all.")] = "german",
    methods: Annotated[str | None, typer.Option(help="Methods to compare: a,b; all by default.")] = None,
    folds: Annotated[int, typer.Option(help="Folds of the cross-validation.")] = 5,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer epochs: to see that everything runs.")] = False,
    fast_training: Annotated[
        bool, typer.Option("--fast-training", help="Train CEC with this library's attributions, not the paper's.")
    ] = False,
    grid: Annotated[bool, typer.Option("--grid", help="Also the 6 x 6 lambda settings, on German Credit.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "cpu",
    out: Annotated[Path, typer.Option(help="Folder for results, tables, charts and the page.")] = Path("reproduction"),
    state: Annotated[str | None, typer.Option(help="States of the HMDA data: NY or NY,NJ.")] = None,
    year: Annotated[int | None, typer.Option(help="Year of the HMDA data.")] = None,
    post_decision: Annotated[
        bool, typer.Option("--post-decision", help="Put back the HMDA fields known only after the decision.")
    ] = False,
    random_state: Annotated[int, typer.Option(help="Seed.")] = 0,
) -> None:
    """Compare the seven methods on the paper's datasets: tables, charts and a page.

    \b
    Example:
      evenhand reproduce --dataset german --methods cec,unconstrained \\
          --folds 2 --quick --out reproduction
    """
    from evenhand.research.reproduction.reproduce import reproduce as run

    found = run(
        dataset if dataset == "all" else list(names_in(dataset)),
        methods,
        folds=folds,
        quick=quick,
        fast_training=fast_training,
        has_grid=grid,
        device=device,
        out=out,
        states=None if state is None else names_in(state),
        year=year,
        include_post_decision=post_decision,
        random_state=random_state,
        progress=True,
    )
    for note in found.notes:
        typer.echo(note)
    for table in found.tables:
        typer.echo(f"\n{table.to_markdown()}")
    typer.echo(f"\nWritten: {found.page}")


def calibrate(
    full: Annotated[bool, typer.Option("--full", help="The whole study: hours of one core.")] = False,
    n_jobs: Annotated[int, typer.Option(help="Processes.")] = 1,
    out: Annotated[Path, typer.Option(help="File for the table, as JSON.")] = Path("calibration.json"),
) -> None:
    """Measure false alarms, power and coverage of the excess on models whose truth is known.

    \b
    Example:
      evenhand calibrate --out calibration.json
    """
    import json

    from evenhand.research.calibration import run_study
    from evenhand.system.files import write_atomically

    rows = run_study(quick=not full, n_jobs=n_jobs, progress=True)
    with write_atomically(out) as temporary:
        temporary.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    typer.echo(f"Written: {out}")
