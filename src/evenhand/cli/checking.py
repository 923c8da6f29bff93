"""`evenhand check`."""

from __future__ import annotations

import shlex
from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer

from evenhand.cli.messages import say
from evenhand.cli.options import CheckPlan, options_of
from evenhand.cli.sources import TableArgument, named_table

__all__ = ["check"]


@options_of(CheckPlan)
def check(
    plan: CheckPlan,
    data: TableArgument = None,
    out: Annotated[Path, typer.Option(help="Folder for the page and for audit.toml.")] = Path("check"),
) -> None:
    """Check a table before you audit it: its columns, its groups, and a configuration to edit.

    Whatever you do not set with an option is proposed: `audit.toml` in the folder holds the proposals, with comments.

    \b
    Example, after `evenhand data save taiwan --people 3000 --out cards.csv`:
      evenhand check cards.csv --out check
    """
    from rich.console import Console

    from evenhand.auditing.checking import check as look
    from evenhand.inputs.read_options import ReadOptions
    from evenhand.inputs.tables import read_table
    from evenhand.inputs.tables.addresses import shown
    from evenhand.inputs.tables.read_inputs import name_of_input
    from evenhand.system.progress import PATIENCE, progress

    with progress("check", 2, after=PATIENCE) as advance:
        people = named_table(data, plan)
        table = read_table(people, ReadOptions(**{f.name: getattr(plan, f.name) for f in fields(ReadOptions)}))
        advance("read")
        found = look(
            table,
            plan.label or None,
            list(plan.group) or None,
            financial_features=plan.financial_features or None,
            drop=plan.drop,
            positive_label=plan.positive_label,
            source=name_of_input(people),
        )
        advance("looked at")
    Console().print(found)
    page = found.to_html(out / "check.html")
    config = found.write_config(out / "audit.toml")
    source = f"--sql {shlex.quote(plan.sql)}" if plan.sql is not None else shown(data or "")
    say(f"\nWritten: {page}\nEdit {config}, then run: evenhand audit {source} --config {config}")
