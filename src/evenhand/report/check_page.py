"""The check of a table as one HTML file, and as text for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from evenhand.inputs.checking import few_sentences
from evenhand.report.formatting import count, listed
from evenhand.report.frame import Finding, KeyMetric, Section, render
from evenhand.report.tables import Column, Table, shown, text
from evenhand.report.terminal import plain

Data = Mapping[str, Any]

_SEVERITIES = {"refuse": "left out or rejected", "warn": "with a warning", "note": "worth knowing"}
_STYLES = {"refuse": "bold red", "warn": "yellow", "note": "dim"}
_WRAPPED = ("holds", "suspicious")
_PARTS = {"label": "Label", "group": "Group", "financial": "Financial features", "clusters": "Clusters"}


def check_page(data: Data) -> str:
    """The page as text; every text is escaped, and nothing is fetched to show it.

    Parameters
    ----------
    data
        Output of `CheckResult.to_dict`.
    """
    sections = [
        Section("found", "What was found", finding=_finding(data)),
        Section("parts", "Proposed roles", (_PARTS_WORDS,), points=_parts(data)),
        Section("columns", "Columns", tables=[_column_table(data)]),
        Section("problems", "What to check", tables=[Table("Problems", _PROBLEMS, _PROBLEM_COLUMNS, data["problems"])]),
    ]
    if data["groups"] is not None:
        records = [{"group": name, "people": n} for name, n in data["groups"]["counts"].items()]
        caption = f"People of each group, by {data['groups']['name']}"
        table = Table("Groups", caption, (text("group"), Column("people", "whole")), records)
        sections.append(Section("groups", "Groups", tables=[table]))
    sections.append(Section("config", "Configuration", (_CONFIG_WORDS,), code=data["config"]))
    return render("check", f"Before an audit of {data['source']}", sections)


def terminal_check(data: Data) -> RenderableType:
    """The check for a terminal: columns, problems and proposals."""
    found = shown(_column_table(data))
    table = RichTable(*found.columns, box=None, pad_edge=False)
    for column, is_number in zip(table.columns, found.is_number, strict=True):
        column.justify = "right" if is_number else "left"
        column.no_wrap = column.header not in _WRAPPED
    for row in found.rows:
        table.add_row(*map(plain, row))
    parts: list[RenderableType] = [plain(_headline(data), style="bold"), Text(), table]
    told = [plain(f"! {line}", style=_STYLES[key]) for key in ("refuse", "warn") for line in _lines(data, key)]
    parts += [Text(), *told] if told else []
    parts += [Text(), *(plain(f"{name}: {words}") for name, words in _parts(data))]
    return Group(*parts)


_PARTS_WORDS = (
    "Proposals are based on names and values alone. The choice of financial features decides who is comparable: make "
    "it with someone who knows the portfolio."
)
_PROBLEMS = "Everything suspicious, the most serious first"
_PROBLEM_COLUMNS = (
    text("column"),
    text("what", "kind"),
    Column("in an audit", "text", lambda problem: _SEVERITIES[problem["severity"]]),
    Column("in words", "long text", "sentence"),
)
_CONFIG_WORDS = "Save it as audit.toml, correct it, and run: evenhand audit FILE --config audit.toml."


def _headline(data: Data) -> str:
    counts = Counter(problem["severity"] for problem in data["problems"])
    size = f"{count(data['n_rows'])} rows, {count(len(data['columns']))} columns"
    told = [f"{count(counts[key])} {words}" for key, words in _SEVERITIES.items() if counts[key]]
    return f"{size}: {', '.join(told)}." if told else f"{size}: nothing suspicious."


def _lines(data: Data, severity: str) -> list[str]:
    """Problems of one severity in words."""
    return few_sentences((p["column"], p["kind"], p["sentence"]) for p in data["problems"] if p["severity"] == severity)


def _finding(data: Data) -> Finding:
    n, groups = sum(row["part"] == "left out" for row in data["columns"]), data["groups"]
    grave = [("", line) for line in _lines(data, "refuse")]
    metrics = [
        KeyMetric("Rows", count(data["n_rows"]), "one per applicant"),
        KeyMetric(
            "Columns", count(len(data["columns"])), f"{f'{count(n)} are' if n else 'none is'} proposed to be left out"
        ),
        KeyMetric("Groups", "none", "no column looks suitable")
        if groups is None
        else KeyMetric("Groups", count(len(groups["counts"])), groups["name"]),
    ]
    return Finding(_headline(data), grave, metrics, _lines(data, "warn"))


def _parts(data: Data) -> list[tuple[str, str]]:
    rows = []
    for part, name in _PARTS.items():
        found = data["proposals"][part]
        if found is None:
            if part != "clusters":  # most tables have one row for each applicant
                rows.append((name, "no column looks suitable; name one yourself."))
            continue
        favorable = ""
        if part == "label" and (data["positive_label"] is not None or data["question"]):
            favorable = f" (favorable: {data['positive_label'] or 'to be asked'})"
        others = f" Also possible: {listed(list(found['others']), 6)}." if found["others"] else ""
        rows.append((name, f"{', '.join(found['columns'])}{favorable}: {found['reason']}.{others}"))
    return rows


def _column_table(data: Data) -> Table:
    whole = Column("missing", "whole"), Column("distinct", "whole")
    columns = (*map(text, ("column", "part", "type")), *whole, text("holds"), text("suspicious"))
    return Table("Columns", "All columns as they were read", columns, data["columns"])
