"""`evenhand reproduce`, `evenhand calibrate` and `evenhand power`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from evenhand.cli.messages import say
from evenhand.cli.options import names_in

__all__ = ["calibrate", "power", "reproduce"]


def reproduce(
    dataset: Annotated[str, typer.Option(help="german, adult, synthetic or hmda; several as a,b; or all.")] = "german",
    methods: Annotated[str | None, typer.Option(help="Methods to compare: a,b; all by default.")] = None,
    folds: Annotated[int, typer.Option(help="Folds of the cross-validation.")] = 5,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer epochs, to check that everything runs.")] = False,
    fast_training: Annotated[
        bool, typer.Option("--fast-training", help="Train CEC with this library's attributions instead of the paper's.")
    ] = False,
    grid: Annotated[bool, typer.Option("--grid", help="Also run the 6 x 6 lambda settings on German Credit.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "cpu",
    out: Annotated[Path, typer.Option(help="Folder for results, tables, charts and the page.")] = Path("reproduction"),
    state: Annotated[str | None, typer.Option(help="States of the HMDA data: NY or NY,NJ.")] = None,
    year: Annotated[int | None, typer.Option(help="Year of the HMDA data.")] = None,
    post_decision: Annotated[
        bool, typer.Option("--post-decision", help="Keep the HMDA fields that are known only after the decision.")
    ] = False,
    random_state: Annotated[int, typer.Option(help="Seed.")] = 0,
    gaps: Annotated[
        bool, typer.Option("--gaps", help="Audit each method instead: score gap and weighing, which the paper lacks.")
    ] = False,
    repeats: Annotated[int, typer.Option(help="With --gaps: cross-validations, each with the next seed.")] = 1,
) -> None:
    """Compare the paper's seven methods, and FairSHAP, on its datasets: tables, charts and a page.

    \b
    Example:
      evenhand reproduce --dataset german --methods cec,unconstrained \\
          --folds 2 --quick --out reproduction
    """
    names = dataset if dataset == "all" else list(names_in(dataset))
    of_hmda: dict[str, Any] = {
        "states": None if state is None else names_in(state),
        "year": year,
        "include_post_decision": post_decision,
    }
    if gaps:
        from evenhand.research.reproduction.gaps import compare_gaps
        from evenhand.research.reproduction.settings import ProtocolSettings

        kind = ProtocolSettings.quick if quick else ProtocolSettings
        settings = kind(n_folds=folds, random_state=random_state)
        say(compare_gaps(names, methods, settings, repeats=repeats, out=out, progress=True, **of_hmda).to_markdown())
        say(f"\nWritten: {out / 'table_gaps.csv'}")
        return
    from evenhand.research.reproduction.reproduce import reproduce as run

    found = run(
        names,
        methods,
        folds=folds,
        quick=quick,
        fast_training=fast_training,
        has_grid=grid,
        device=device,
        out=out,
        random_state=random_state,
        progress=True,
        **of_hmda,
    )
    for note in found.notes:
        say(note)
    for table in found.tables:
        say(f"\n{table.to_markdown()}")
    say(f"\nWritten: {found.page}")


def _study_command(name: str, study: str, purpose: str) -> Callable[..., None]:
    """The command of a study: `evenhand NAME`."""

    def command(
        quick: Annotated[bool, typer.Option("--quick", help="Run a few small cells, in seconds.")] = False,
        cells: Annotated[
            str | None,
            typer.Option(help="Run only cells whose names contain one of these: german,adult; all by default."),
        ] = None,
        replicates: Annotated[int | None, typer.Option(help="Datasets in each cell.")] = None,
        minutes: Annotated[
            float | None, typer.Option(help="Start no new audit after this many minutes; a second run continues.")
        ] = None,
        n_jobs: Annotated[int, typer.Option(help="Number of processes, each on one core.")] = 1,
        out: Annotated[Path, typer.Option(help="Folder for audits and tables.")] = Path(study),
        page: Annotated[Path | None, typer.Option(help="Markdown page whose tables to replace.")] = None,
    ) -> None:
        from evenhand.research.studies.publish import STUDIES, run_study

        run_study(
            STUDIES[study],
            out,
            quick=quick,
            cells=() if cells is None else names_in(cells),
            replicates=replicates,
            n_jobs=n_jobs,
            minutes=minutes,
            page=page,
            progress=True,
            say=say,
        )
        say(f"Written: {out / f'{study}.md'}")

    command.__name__ = name
    command.__doc__ = f"""{purpose}

    This takes hours on one core, unless you set --quick or --minutes. A second run adds the missing audits.

    \b
    Example:
      evenhand {name} --quick --out {study}
    """
    return command


calibrate = _study_command(
    "calibrate",
    "calibration",
    "Measure false alarms and coverage of every test of the audit on data with nothing to find.",
)
power = _study_command(
    "power", "power", "Measure how often the audit and other tests find biases that were planted in the data."
)
