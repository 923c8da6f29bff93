"""`evenhand train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evenhand.cli.messages import say
from evenhand.cli.options import TablePlan, check_given, options_of
from evenhand.cli.sources import TableArgument, named_table

__all__ = ["train"]


@options_of(TablePlan)
def train(
    plan: TablePlan,
    data: TableArgument = None,
    out: Annotated[Path, typer.Option(help="Folder for the model.")] = Path("model"),
    cec_weight: Annotated[float, typer.Option(help="Weight of the objective; 0 for none.")] = 2.0,
    equalized_odds_weight: Annotated[float, typer.Option(help="Weight of equalized odds; 0 for none.")] = 0.0,
    epochs: Annotated[int, typer.Option(help="Passes over the people.")] = 30,
    categories: Annotated[str, typer.Option(help="Categories as onehot columns or ordinal codes.")] = "onehot",
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder that keeps an unfinished fit; run the command again to continue.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    random_state: Annotated[int, typer.Option(help="Seed.")] = 0,
    objective: Annotated[
        str, typer.Option(help="What is lowered: reasoning_gap, reasoning_excess, excess, or cec, the paper's.")
    ] = "reasoning_gap",
    least_explained: Annotated[
        float, typer.Option(help="Share of the labels' entropy at which both weights count in full; 0 for always.")
    ] = 0.1,
) -> None:
    """Train a classifier on a table of applicants and save it.

    \b
    Example, after `evenhand data save taiwan --people 3000 --out cards.csv`:
      evenhand train cards.csv --label outcome --group sex \\
          --financial LIMIT_BAL,BILL_AMT1,PAY_AMT1,PAY_0 --out model
    """
    from evenhand.cli.jobs import train_table

    check_given(plan, "label", "group", "financial_features")
    model, notes = train_table(
        named_table(data, plan),
        plan,
        cec_weight=cec_weight,
        equalized_odds_weight=equalized_odds_weight,
        epochs=epochs,
        encoding=categories,
        checkpoint=checkpoint,
        device=device,
        random_state=random_state,
        objective=objective,
        least_explained=least_explained,
    )
    for note in notes:
        say(note)
    last = {name: values[-1] for name, values in model.history_.items() if len(values)}
    say(", ".join(f"{name} {value:.4f}" for name, value in last.items() if value == value))
    say(f"Written: {model.save(out)}")
