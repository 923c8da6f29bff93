"""`evenhand compare` and `evenhand monitor`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evenhand.cli.messages import say

if TYPE_CHECKING:
    from evenhand.auditing.history import Change, Comparison

__all__ = ["compare", "monitor"]


def compare(
    audits: Annotated[
        list[Path], typer.Argument(help="Two or more audit.json files; the first is the one to compare with.")
    ],
    out: Annotated[Path, typer.Option(help="Page to write.")] = Path("comparison.html"),
    allow_different_settings: Annotated[
        bool,
        typer.Option("--allow-different-settings", help="Compare audits even if their thresholds or features differ."),
    ] = False,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            help="Exit with code 1 if a change meets this condition, e.g. 'score_gap > 0.05' or 'weighing_p < 0.01'."
        ),
    ] = None,
) -> None:
    """Compare audits, to see if the answers to the four questions changed by more than noise.

    A gate names score_gap or inputs (how much its size grew), weighing, excess, auc or a different metric (how much
    it rose), or the adjusted p-value of the change, such as score_gap_p.

    \b
    Example, with two networks that differ only in their random seed:
      evenhand demo --no-open --out history/first
      evenhand demo --no-open --random-state 1 --out history/second
      evenhand compare history/*/audit.json --out comparison.html
    """
    from evenhand.auditing.history import compare_audits
    from evenhand.cli.gates import crossed_gates, parse_gate

    gates = [parse_gate(text) for text in fail_on or ()]
    names = _distinct_names(audits)
    found = compare_audits(dict(zip(names, audits, strict=True)), allow_different_settings=allow_different_settings)
    crossed = [
        f"{name}: {sentence}"
        for name in names[1:]
        for sentence in (crossed_gates(gates, dict(_changes_by_name(found, name))) if gates else ())
    ]
    people = [pairing.sentence for pairing in found.pairings]
    for sentence in (*found.sentences, *people, *(f"! {warning}" for warning in found.warnings)):
        say(sentence)
    found.to_html(out)
    say(f"\nWritten: {out}")
    _fail_if(crossed)


def monitor(
    folder: Annotated[Path, typer.Argument(help="Folder of audit files (JSON); subfolders are searched too.")],
    out: Annotated[Path, typer.Option(help="Page to write.")] = Path("monitoring.html"),
    false_alarm_rate: Annotated[
        float, typer.Option(help="Chance of a false alarm in a history in which nothing changed.")
    ] = 0.05,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            help="Exit with code 1 if this holds, e.g. 'departures > 0' or, for the last audit, 'score_gap > 0.1'."
        ),
    ] = None,
) -> None:
    """Monitor a series of audits: trends with control limits, and the first audit that departs from the past.

    A gate names either departures, the number of metrics that departed from their past, or a metric of the last audit,
    as in `evenhand audit`.

    \b
    Example, after the one of `evenhand compare`:
      evenhand monitor history --out monitoring.html
    """
    from evenhand.auditing.history import monitor as watch
    from evenhand.auditing.history import read_history
    from evenhand.cli.gates import crossed_gates, parse_gate

    gates = [parse_gate(text) for text in fail_on or ()]
    found = watch(read_history(folder), false_alarm_rate=false_alarm_rate)
    crossed = crossed_gates(gates, {**found.history.audits[-1].data, "departures": len(found.departures)})
    for sentence in (*found.sentences, *(f"! {warning}" for warning in found.warnings)):
        say(sentence)
    found.to_html(out)
    say(f"\nWritten: {out}")
    _fail_if(crossed)


def _fail_if(crossed: Sequence[str]) -> None:
    """Print the gates that were crossed, and exit with code 1 if there are any."""
    for sentence in crossed:
        say(f"Gate: {sentence}", err=True)
    if crossed:
        raise typer.Exit(1)


def _changes_by_name(found: Comparison, audit: str) -> Iterator[tuple[str, float]]:
    """The values that a gate on a comparison can name: changes and their adjusted p-values."""
    for change in (c for c in found.metrics if c.audit == audit and c.finding is None):
        name = change.key.replace(" ", "_")
        if re.fullmatch(r"\w+", name):
            yield name, change.change
            yield f"{name}_p", change.p_adjusted
    for finding in (f for f in found.findings if f.audit == audit):
        changes = [c for c in found.changes if c.audit == audit and c.finding == finding.key]
        grown = [size for size in map(_growth, changes) if not math.isnan(size)]
        yield finding.key, max(grown, default=math.nan)
        yield f"{finding.key}_p", finding.p_adjusted


def _growth(change: Change) -> float:
    """How much a metric grew. For score gaps, which can favor either group, how much their size grew."""
    has_side = change.finding in ("score_gap", "inputs")
    return abs(change.value) - abs(change.base_value) if has_side else change.change


def _distinct_names(paths: Sequence[Path]) -> list[str]:
    """Short names that distinguish the files: the file's name, else its folder's, else both, else the whole path."""
    for name in (lambda p: p.stem, lambda p: p.parent.name, lambda p: "/".join(p.with_suffix("").parts[-2:]), str):
        names = [name(path) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{path} ({k})" for k, path in enumerate(paths, 1)]
