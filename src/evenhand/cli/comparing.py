"""`evenhand compare` and `evenhand monitor`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["compare", "monitor"]


def compare(
    audits: Annotated[list[Path], typer.Argument(help="Two or more audit.json files, the one to compare with first.")],
    out: Annotated[Path, typer.Option(help="Page to write.")] = Path("comparison.html"),
    allow_different_settings: Annotated[
        bool, typer.Option("--allow-different-settings", help="Compare audits made with other thresholds or features.")
    ] = False,
) -> None:
    """Compare audits: what moved, and is it more than noise.

    \b
    Example, of two networks that differ in their seed alone:
      evenhand demo --no-open --out history/first
      evenhand demo --no-open --random-state 1 --out history/second
      evenhand compare history/*/audit.json --out comparison.html
    """
    from evenhand.auditing.history import compare_audits

    names = _distinct_names(audits)
    found = compare_audits(dict(zip(names, audits, strict=True)), allow_different_settings=allow_different_settings)
    for sentence in (*found.sentences, *(f"! {warning}" for warning in found.warnings)):
        typer.echo(sentence)
    found.to_html(out)
    typer.echo(f"\nWritten: {out}")


def monitor(
    folder: Annotated[Path, typer.Argument(help="Folder of audit files (JSON), also in folders of their own.")],
    out: Annotated[Path, typer.Option(help="Page to write.")] = Path("monitoring.html"),
    false_alarm_rate: Annotated[
        float, typer.Option(help="Chance that a history in which nothing changed gives any alarm.")
    ] = 0.05,
) -> None:
    """Watch a history of audits: trends with limits, and the first audit that departed from the past.

    \b
    Example, after that of `evenhand compare`:
      evenhand monitor history --out monitoring.html
    """
    from evenhand.auditing.history import monitor as watch
    from evenhand.auditing.history import read_history

    found = watch(read_history(folder), false_alarm_rate=false_alarm_rate)
    for sentence in found.sentences:
        typer.echo(sentence)
    found.to_html(out)
    typer.echo(f"\nWritten: {out}")


def _distinct_names(paths: Sequence[Path]) -> list[str]:
    """Short names that tell the files apart: their own, else their folder's, else both, else the whole path."""
    for name in (lambda p: p.stem, lambda p: p.parent.name, lambda p: "/".join(p.with_suffix("").parts[-2:]), str):
        names = [name(path) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{path} ({k})" for k, path in enumerate(paths, 1)]
