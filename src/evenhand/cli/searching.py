"""`evenhand search`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from evenhand.cli.messages import say
from evenhand.cli.options import TablePlan, check_given, options_of
from evenhand.cli.sources import TableArgument, named_table

if TYPE_CHECKING:
    from evenhand.searching.space import Family

__all__ = ["search"]


@options_of(TablePlan)
def search(
    plan: TablePlan,
    data: TableArgument = None,
    out: Annotated[Path, typer.Option(help="Folder for the page, the workbook, the model and its audit.")] = Path(
        "search"
    ),
    keep: Annotated[
        list[str] | None,
        typer.Option(
            help="What a model must keep, e.g. 'auc >= best - 0.01', 'profit >= unconstrained - 1%' or 'income "
            "increasing'; repeatable."
        ),
    ] = None,
    minimize: Annotated[
        str | None,
        typer.Option(help="Metric to improve, e.g. score_gap, weighing, excess, eo_gap, air or 'score_gap[income]'."),
    ] = None,
    candidates: Annotated[
        int | None, typer.Option(help="Number of combinations to draw at random; all of them by default.")
    ] = None,
    folds: Annotated[int, typer.Option(help="Folds of the cross-validation.")] = 5,
    seeds: Annotated[int, typer.Option(help="Models per candidate and fold.")] = 1,
    family: Annotated[
        str, typer.Option(help="network, or trees for gradient-boosted trees of scikit-learn.")
    ] = "network",
    confirmation: Annotated[
        float, typer.Option(help="Share of the people kept out of training and choosing, to confirm the choice.")
    ] = 0.2,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    random_state: Annotated[int, typer.Option(help="Seed.")] = 0,
    stop_gain: Annotated[
        float | None,
        typer.Option(help="Stop once one more candidate is expected to improve --minimize by at most this much."),
    ] = None,
    payoff: Annotated[
        str | None,
        typer.Option(
            help="What decisions are worth, for profit: 'approve_good=1,approve_bad=-5'; decline_good, decline_bad."
        ),
    ] = None,
    alternatives: Annotated[
        int, typer.Option(help="Candidates to confirm, best first; intervals allow for their number.")
    ] = 1,
    seed_search: Annotated[
        int | None, typer.Option(help="Search over this many seeds, too: each candidate and seed is a draw.")
    ] = None,
) -> None:
    """Search for a model as accurate as today's whose reasoning is more alike between groups.

    Finished candidates are kept in the folder: run the same command again to go on. The chosen model is saved there
    too, a network as model/model.safetensors and trees as model/model.skops, for `evenhand audit --model`.

    \b
    Example, after `evenhand data save taiwan --people 3000 --out cards.csv`:
      evenhand search cards.csv --label outcome --group sex \\
          --financial LIMIT_BAL,BILL_AMT1,PAY_AMT1,PAY_0 \\
          --keep "auc >= best - 0.01" --minimize reasoning_gap \\
          --candidates 8 --folds 3 --out search
    """
    from evenhand.cli.auditing import show_and_write
    from evenhand.cli.jobs import search_table
    from evenhand.exceptions import MissingExtraError
    from evenhand.searching.page import left_to_gain
    from evenhand.system.files import written_together

    check_given(plan, "label", "group", "financial_features")
    options = {"keep": keep, "minimize": minimize, "payoff": payoff, "space": _with_seeds(family, seed_search)}
    found, notes = search_table(
        named_table(data, plan),
        plan,
        n_candidates=candidates,
        folds=folds,
        seeds=seeds,
        family=family,
        confirmation=confirmation,
        checkpoint=out / "store",
        device=device,
        random_state=random_state,
        stop_gain=stop_gain,
        alternatives=alternatives,
        **{name: value for name, value in options.items() if value is not None},
    )
    for note in notes:
        say(note)
    say(repr(found))
    for sentence in (*found.sentences, *found.warnings):
        say(sentence)
    if found.stopping.bounds:
        say(left_to_gain(found.to_dict()))
    with written_together(out) as stage:
        found.to_json(stage / "search.json")
        found.to_excel(stage / "search.xlsx")
        found.to_html(stage / "search.html")
    if found.chosen is None:
        say(f"No candidate meets every constraint.\nWritten: {out / 'search.html'}")
        raise typer.Exit(1)
    try:
        say(f"Chosen model: {found.save_model(out / 'model')}")
    except MissingExtraError as error:
        say(f"Chosen model: not saved. {error}", err=True)
    show_and_write(found.audit(), out / "audit")
    say(f"Search: {out / 'search.html'}")


def _with_seeds(family: str, n_seeds: int | None) -> dict[str, Any] | None:
    """The family's own space with seeds to search over; None for the space as it is."""
    from evenhand.exceptions import InvalidInputError
    from evenhand.searching import default_space

    if n_seeds is None:
        return None
    if n_seeds < 2:
        raise InvalidInputError(f"--seed-search must be at least 2, got {n_seeds}.")
    return {**default_space(cast("Family", family)), "seed": list(range(n_seeds))}
