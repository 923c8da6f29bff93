"""`evenhand search` and `evenhand train`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evenhand.cli.options import SearchPlan, TableArgument, TrainPlan, check_given, named_table, options_of
from evenhand.cli.terminal import say

if TYPE_CHECKING:
    from evenhand.auditing.result import AuditResult
    from evenhand.searching import SearchResult


@options_of(SearchPlan)
def search(
    plan: SearchPlan,
    data: TableArgument = None,
    out: Annotated[
        Path,
        typer.Option(help="Folder for the page, the workbook, the model and its audit.", rich_help_panel="Output"),
    ] = Path("search"),
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
    from evenhand.searching.page import left_to_gain

    check_given(plan, "label", "group", "financial_features")
    result, notes = search_table(named_table(data, plan), plan, out / "store")
    for note in notes:
        say(note)
    start_notes = () if result.start is None else result.start.notes
    for text in (*start_notes, repr(result), *result.sentences, *result.warnings):
        say(text)
    if result.stopping.bounds:
        say(left_to_gain(result.to_dict()))
    page = out / "search.html"
    files = _write(result, out)
    if result.chosen is None:
        say(f"No candidate meets every constraint.\nWritten: {page}")
        raise typer.Exit(1)
    saved = result.save_model(out / "model")
    files["The chosen model"] = saved.relative_to(out).as_posix()
    say(f"Chosen model: {saved}")
    chosen = result.audit()
    show_and_write(chosen, out / "audit")
    files["Its audit"] = "audit/report.html"
    if result.start is not None:
        files |= _compare(result, chosen, out)
    result.to_html(page, files)  # once more, with links to what is there now
    say(f"Search: {page}")


def _write(result: SearchResult, out: Path) -> dict[str, str]:
    """Write page, numbers and workbook; the files besides the page, by title."""
    from evenhand.cli.audits import write_files

    writers = {"search.json": result.to_json, "search.xlsx": result.to_excel, "search.html": result.to_html}
    write_files(writers, out)
    return {"The search as a workbook": "search.xlsx", "Its numbers": "search.json"}


def _compare(result: SearchResult, chosen: AuditResult, out: Path) -> dict[str, str]:
    """Audit the model that the search started from, and compare; the files that are written."""
    from evenhand.cli.audits import show_and_write
    from evenhand.searching.result import compare_models

    yours = result.audit_start()
    show_and_write(yours, out / "your-model")
    comparison = compare_models({"your model": yours, "alternative": chosen})
    for sentence in comparison.sentences:
        say(sentence)
    comparison.to_html(out / "comparison.html")
    say(f"Comparison: {out / 'comparison.html'}")
    return {"The audit of your model": "your-model/report.html", "What changes": "comparison.html"}


@options_of(TrainPlan)
def train(
    plan: TrainPlan,
    data: TableArgument = None,
    out: Annotated[Path, typer.Option(help="Folder for the model.", rich_help_panel="Output")] = Path("model"),
) -> None:
    """Train a classifier on a table of applicants and save it.

    \b
    Example, after `evenhand data save taiwan --people 3000 --out cards.csv`:
      evenhand train cards.csv --label outcome --group sex \\
          --financial LIMIT_BAL,BILL_AMT1,PAY_AMT1,PAY_0 --out model
    """
    from evenhand.cli.jobs import train_table

    check_given(plan, "label", "group", "financial_features")
    model, notes = train_table(named_table(data, plan), plan)
    for note in notes:
        say(note)
    last = {name: values[-1] for name, values in model.history_.items() if len(values)}
    say(", ".join(f"{name} {value:.4f}" for name, value in last.items() if value == value))
    say(f"Written: {model.save(out)}")
