"""`evenhand check`."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer

from evenhand.cli.options import CheckPlan, options_of

__all__ = ["check"]


@options_of(CheckPlan)
def check(
    data: Annotated[Path, typer.Argument(help="CSV, Parquet, Arrow, Excel, SAS, Stata or SPSS file; a row each.")],
    plan: CheckPlan,
    out: Annotated[Path, typer.Option(help="Folder for the page and for audit.toml.")] = Path("check"),
) -> None:
    """Look at a table before it is audited: columns, groups, and a configuration to edit.

    What is not named by an option is proposed. `audit.toml` in the folder holds the proposals with a comment on each.

    \b
    Example, after `evenhand data save taiwan --people 3000 --out cards.csv`:
      evenhand check cards.csv --out check
    """
    from rich.console import Console

    from evenhand.auditing.checking import check as look
    from evenhand.inputs.read_options import ReadOptions
    from evenhand.inputs.tables import read_table
    from evenhand.system.progress import PATIENCE, progress

    with progress("check", 2, after=PATIENCE) as advance:
        table = read_table(data, ReadOptions(**{f.name: getattr(plan, f.name) for f in fields(ReadOptions)}))
        advance("read")
        found = look(
            table,
            plan.label or None,
            list(plan.group) or None,
            financial_features=plan.financial_features or None,
            drop=plan.drop,
            positive_label=plan.positive_label,
            source=data.name,
        )
        advance("looked at")
    Console().print(found)
    page = found.to_html(out / "check.html")
    config = found.write_config(out / "audit.toml")
    typer.echo(f"\nWritten: {page}\nEdit {config}, then run: evenhand audit {data} --config {config}")
