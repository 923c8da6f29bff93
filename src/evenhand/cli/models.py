"""`evenhand search`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenhand.cli.options import TableArgument, TablePlan, check_given, named_table, options_of
from evenhand.cli.terminal import say

if TYPE_CHECKING:
    from evenhand.auditing.result import AuditResult
    from evenhand.searching import SearchResult


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
        list[str] | None,
        typer.Option(
            help="network, trees (of scikit-learn), xgboost, lightgbm, logistic or scorecard; repeatable. [default: "
            "that of --start, or network]"
        ),
    ] = None,
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
    n_jobs: Annotated[
        int | None, typer.Option(help="Candidates trained at once; by default one on each core. Networks use all.")
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(
            help="Your model, to search around and to compare with: .json or .ubj (XGBoost), .txt (LightGBM), .skops."
        ),
    ] = None,
) -> None:
    """Search for a model as accurate as today's whose reasoning is more alike between groups.

    Finished candidates are kept in the folder: run the same command again to continue. The chosen model is saved there
    too, for `evenhand audit --model`: a network as model/model.safetensors, XGBoost as model/model.json, LightGBM as
    model/model.txt, all others as model/model.skops. With --start, your model is audited on the same people, in
    your-model, and comparison.html shows what changes.

    \b
    Example, after `evenhand data save taiwan --people 3000 --out cards.csv`:
      evenhand search cards.csv --label outcome --group sex \\
          --financial LIMIT_BAL,BILL_AMT1,PAY_AMT1,PAY_0 \\
          --keep "auc >= best - 0.01" --minimize reasoning_gap \\
          --candidates 8 --folds 3 --out search
    """
    from evenhand.cli.audits import show_and_write
    from evenhand.cli.jobs import search_table
    from evenhand.exceptions import MissingExtraError
    from evenhand.searching.page import left_to_gain

    check_given(plan, "label", "group", "financial_features")
    space = None if seed_search is None else _with_seeds(family, seed_search, has_start=start is not None)
    options = {"keep": keep, "minimize": minimize, "payoff": payoff, "space": space, "family": family}
    found, notes = search_table(
        named_table(data, plan),
        plan,
        n_candidates=candidates,
        folds=folds,
        seeds=seeds,
        confirmation=confirmation,
        checkpoint=out / "store",
        device=device,
        random_state=random_state,
        stop_gain=stop_gain,
        alternatives=alternatives,
        n_jobs=n_jobs,
        start=start,
        **{name: value for name, value in options.items() if value is not None},
    )
    for note in notes:
        say(note)
    for note in () if found.start is None else found.start.notes:
        say(note)
    say(repr(found))
    for sentence in (*found.sentences, *found.warnings):
        say(sentence)
    if found.stopping.bounds:
        say(left_to_gain(found.to_dict()))
    page = out / "search.html"
    files = _written(found, out)
    if found.chosen is None:
        say(f"No candidate meets every constraint.\nWritten: {page}")
        raise typer.Exit(1)
    try:
        saved = found.save_model(out / "model")
        files["The chosen model"] = saved.relative_to(out).as_posix()
        say(f"Chosen model: {saved}")
    except MissingExtraError as error:
        say(f"Chosen model: not saved. {error}", err=True)
    chosen = found.audit()
    show_and_write(chosen, out / "audit")
    files["Its audit"] = "audit/report.html"
    if found.start is not None:
        files |= _compared(found, chosen, out)
    found.to_html(page, files)  # once more, with links to what is there now
    say(f"Search: {page}")


def _written(found: SearchResult, out: Path) -> dict[str, str]:
    """Write page, numbers and, where its library is installed, the workbook; the files besides the page, by title."""
    from evenhand.exceptions import MissingExtraError
    from evenhand.system.files import written_together

    files = {"The search as a workbook": "search.xlsx", "Its numbers": "search.json"}
    missing = ""
    with written_together(out) as stage:
        found.to_json(stage / "search.json")
        try:
            found.to_excel(stage / "search.xlsx")
        except MissingExtraError as error:
            missing = str(error)
            del files["The search as a workbook"]
        found.to_html(stage / "search.html")
    if missing:
        say(missing, err=True)
    return files


def _with_seeds(family: list[str] | None, n_seeds: int, *, has_start: bool) -> dict[str, Any]:
    """The families' default spaces with seeds to search over; with a starting model, seeds alone."""
    from evenhand.exceptions import InvalidInputError
    from evenhand.searching.space import default_space, family_names

    if n_seeds < 2:
        raise InvalidInputError(f"--seed-search must be at least 2, got {n_seeds}.")
    seeds = list(range(n_seeds))
    if has_start and not family:
        return {"seed": seeds}
    names = family_names(family or "network")  # type: ignore[arg-type]
    return {name: {**default_space(name), "seed": seeds} for name in names}


def _compared(found: SearchResult, chosen: AuditResult, out: Path) -> dict[str, str]:
    """Audit the model that the search started from, and compare; the files that are written."""
    from evenhand.cli.audits import show_and_write
    from evenhand.searching.start import compare_models

    yours = found.audit_start()
    show_and_write(yours, out / "your-model")
    comparison = compare_models(yours, chosen, ("your model", "alternative"))
    for sentence in comparison.sentences:
        say(sentence)
    comparison.to_html(out / "comparison.html")
    say(f"Comparison: {out / 'comparison.html'}")
    return {"The audit of your model": "your-model/report.html", "What changes": "comparison.html"}


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
