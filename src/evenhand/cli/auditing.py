"""`evenhand audit` and `evenhand demo`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenhand.auditing.options import StreamOptions
from evenhand.cli.messages import say
from evenhand.cli.options import FILES, AuditPlan, check_given, options_of, settings_in
from evenhand.cli.sources import TableArgument, is_streamed, named_table, read_in
from evenhand.exceptions import InvalidInputError
from evenhand.system.memory import quick_imports

if TYPE_CHECKING:
    from evenhand.auditing.result import AuditResult

__all__ = ["audit", "check_roles", "demo", "show_and_write", "show_left_out"]


@options_of(AuditPlan)
def audit(
    plan: AuditPlan,
    data: TableArgument = None,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("audit"),
    config: Annotated[
        Path | None,
        typer.Option(help="TOML file with the options below; an option on the command line overrides the file."),
    ] = None,
) -> None:
    """Audit a model on a table of applicants.

    \b
    Example, after `evenhand data save taiwan --people 3000 --out cards.csv`:
      evenhand audit cards.csv --label outcome --group sex \\
          --financial LIMIT_BAL,BILL_AMT1,PAY_AMT1,PAY_0 --out report
    """
    begun = time.perf_counter()
    with quick_imports():
        from evenhand.cli.gates import crossed_gates, parse_gate
        from evenhand.cli.jobs import audit_table, stream_table
    in_batches = is_streamed(data, plan)
    check_roles(plan, is_streamed=in_batches)
    gates = [parse_gate(text) for text in plan.fail_on]
    _check_outputs(plan)
    plan = replace(plan, stream=in_batches)
    if in_batches:
        people = named_table(data, plan, out)
        result = stream_table(people, plan, out)
    else:
        _check_in_memory(plan)
        people = named_table(data, plan)
        result = audit_table(people, plan)
    crossed = crossed_gates(gates, result.to_dict())
    show_and_write(result, out, _further_outputs(result, read_in(people, out), plan))
    say(f"Run time: {time.perf_counter() - begun:.1f} s")
    for sentence in crossed:
        say(f"Gate: {sentence}", err=True)
    if crossed:
        raise typer.Exit(1)


def check_roles(plan: AuditPlan, *, is_streamed: bool) -> None:
    """Reject a plan without label, group or financial features, or with groups given in two ways."""
    from evenhand.cli.jobs import is_without_model

    label = ("label",) if not is_without_model(plan) and plan.unit is None else ()
    check_given(plan, *label, *(() if plan.group_probabilities else ("group",)), "financial_features")
    if plan.group_probabilities and is_without_model(plan):
        raise InvalidInputError("--group-probabilities needs a model, which is run again for each draw: add --model.")
    if plan.group_probabilities and plan.group:
        raise InvalidInputError(
            "--group and --group-probabilities both say who is in which group: use only one of them."
        )
    if plan.group_probabilities and is_streamed:
        raise InvalidInputError(
            "--group-probabilities needs everyone in memory, because the audit is repeated for each draw of the "
            "groups, but an audit in batches reads the people once: drop --stream, or audit a smaller sample."
        )


def _check_outputs(plan: AuditPlan) -> None:
    """Reject a memo that cannot be written before anything is computed."""
    if plan.template is not None and not (plan.memo or plan.pack):
        raise InvalidInputError("--template only applies to the memo: add --memo or --pack.")
    if plan.memo or plan.template is not None:
        from evenhand.report.word import open_word

        open_word(plan.template)


def _further_outputs(
    result: AuditResult,
    data: Any,  # noqa: ANN401 - a path or an open table
    plan: AuditPlan,
) -> dict[str, Callable[[Path], None]]:
    """Writers of the optional files, by file name."""
    found: dict[str, Callable[[Path], None]] = {}
    if plan.memo:
        found["memo.docx"] = lambda path: result.to_word(path, template=plan.template)
    if plan.pack:
        files = {"data": data, **{name: getattr(plan, name) for name in FILES}}
        inputs = {role: file for role, file in files.items() if file is not None}
        settings = settings_in(plan)
        found["pack.zip"] = lambda path: result.to_pack(path, plan=settings, inputs=inputs, template=plan.template)
    return found


def _check_in_memory(plan: AuditPlan) -> None:
    """Reject options that only a streamed audit has."""
    names = [option.name for option in fields(StreamOptions)]
    only_streamed = [name for name in names if getattr(plan, name) != getattr(StreamOptions(), name)]
    if only_streamed:
        shown = ", ".join(f"--{name.replace('_', '-')}" for name in only_streamed)
        raise InvalidInputError(f"{shown} only applies to an audit in batches: add --stream.")


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("demo"),
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the report in a browser.")] = False,
    random_state: Annotated[int, typer.Option(help="Seed.")] = 0,
) -> None:
    """Train a plain network on Taiwan's credit card data, audit it on held-out people, and open the report.

    \b
    Example:
      evenhand demo --out demo
    """
    with quick_imports():
        from evenhand.cli.jobs import audit_demo

    say(
        "Credit cards in Taiwan: a plain network that does not see sex, trained on 8,400 people and audited on "
        "3,600 others."
    )
    report = show_and_write(audit_demo(random_state), out)
    if not no_open and _has_desktop():
        typer.launch(str(report.resolve()))


def show_and_write(result: AuditResult, out: Path, further: Mapping[str, Callable[[Path], None]] | None = None) -> Path:
    """Write every form of the result, then print it, and return the path of the report.

    `further` maps the names of optional files to the functions that write them.
    """
    from rich.console import Console

    try:
        written, missing = _write_files(result, out, further or {})
    except OSError as error:
        raise OSError(
            f"The audit's files could not be written to {str(out)!r}: {_why(error)}. None was written; free "
            "some space, or choose a different folder with --out."
        ) from error
    report = out / "report.html"
    Console().print(result)
    show_left_out(result.provenance.exclusions)
    if missing:
        say(missing, err=True)
    say(f"\nWritten: {', '.join(map(str, written))}")
    say(f"Report: {report}")
    return report


def _why(error: BaseException) -> str:
    """The operating system's message beneath ours."""
    below = error.__cause__ or error.__context__
    return _why(below) if isinstance(below, OSError) else getattr(error, "strerror", None) or str(error).rstrip(".")


def _write_files(
    result: AuditResult, out: Path, further: Mapping[str, Callable[[Path], None]]
) -> tuple[list[Path], str]:
    """Write all files or none. Return those written besides the report, and why the workbook is missing."""
    from evenhand.exceptions import MissingExtraError
    from evenhand.system.files import written_together
    from evenhand.system.progress import PATIENCE, progress

    pairs, missing = result.pairs_path, ""  # a streamed audit has already written its pairs
    with written_together(out) as stage, progress("files", 4 + len(further), after=PATIENCE) as advance:
        if pairs is None:
            pairs = out / "pairs.parquet"
            result.to_parquet(stage / pairs.name)
        advance("pairs")
        result.to_json(stage / "audit.json")
        advance("numbers")
        written = [out / "audit.json", pairs]
        try:
            result.to_excel(stage / "audit.xlsx")
            written.insert(0, out / "audit.xlsx")
        except MissingExtraError as error:
            missing = str(error)
        advance("workbook")
        result.to_html(stage / "report.html", pairs_file=pairs.name)
        advance("report")
        for name, write in further.items():
            write(stage / name)
            written.append(out / name)
            advance(name)
    return written, missing


def show_left_out(exclusions: Mapping[str, int]) -> None:
    """Print how many rows of the file were left out, by reason."""
    for reason, n in exclusions.items():
        say(f"Left out {n:,} rows: {reason}.")


def _has_desktop() -> bool:
    """Whether there is a screen to open a page on."""
    if not sys.stdout.isatty() or os.environ.get("CI"):
        return False
    if sys.platform.startswith("linux"):
        return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return sys.platform in {"darwin", "win32"}
