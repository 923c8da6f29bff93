"""What the pages show of tables, checks and results."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping
from typing import Any

from evenhand.app.runs import Run
from evenhand.app.settings import Repair
from evenhand.exceptions import EvenhandError
from evenhand.inputs.read_options import ReadOptions
from evenhand.inputs.tables import open_table
from evenhand.report.formatting import count, listed, percent

Data = Mapping[str, Any]
_PREVIEWED = 10


def preview(run: Run) -> dict[str, Any]:
    """The first rows of the table of an audit as they are stored, or why they cannot be read."""
    try:
        raw = open_table(run.folder.root / run.table, ReadOptions(**run.reading, rows=_PREVIEWED))
        rows = [row for piece in raw.pieces(raw.schema.names) for row in piece.to_pylist()]
    except (EvenhandError, OSError) as error:
        return {"problem": str(error)}
    texts = [["" if cell is None else cell for cell in row.values()] for row in rows]
    return {"header": raw.schema.names, "rows": texts, "problem": ""}


def reasons(check: Data) -> dict[str, list[str]]:
    """What `evenhand check` says about each column: why it was proposed for its role, and what is suspicious."""
    said: dict[str, list[str]] = {row["column"]: [] for row in check["columns"]}
    for role, proposal in check["proposals"].items():
        for name in proposal["columns"] if proposal else ():
            said.setdefault(name, []).append(f"Proposed: {proposal['reason']}.")
        for name in proposal["others"] if proposal else ():
            said.setdefault(name, []).append(f"Also possible: {role}.")
    for problem in check["problems"]:
        said.setdefault(problem["column"], []).append(problem["sentence"])
    return said


def in_words(settings: Data, check: Data | None, trial: Data | None) -> list[tuple[str, str]]:
    """The settings, told back.

    Parameters
    ----------
    settings
        The content of audit.toml.
    check, trial
        What `evenhand check` found, and the result of a first look; None if there is none.
    """
    label, good = settings.get("label"), settings.get("positive_label") or "1"
    groups, finances = settings.get("group", []), settings.get("financial_features", [])
    words = [("Label", f"{good} in {label} is good for the applicant." if label else "There is none.")]
    counts = (check or {}).get("groups") or {}
    clean, sizes_of = settings.get("clean", {}), Counter[str]()
    for name, n in counts.get("counts", {}).items():
        sizes_of[clean.get("groups", {}).get(name, name)] += n
    sizes = [f"{name} ({count(n)})" for name, n in sizes_of.items()]
    is_same = counts.get("name") == " & ".join(groups) and not clean.get("bands")
    words.append(("Groups", f"Those of {' & '.join(groups)}{': ' + listed(sizes, 12) if is_same else ''}."))
    words.append(("Comparable", f"People who are alike in {listed(list(finances), 12)}."))
    words.append(("Model", _model(settings)))
    words += [("Repair", f"{repair}.") for repair in Repair.all_in(clean)]
    if trial is not None and label:
        words.append(("Direction", direction(settings, trial)))
    return words


def _model(settings: Data) -> str:
    if "model" in settings:
        return f"{settings['model']}."
    given = [f"{name} ({what})" for what in ("scores", "decisions") if (name := settings.get(what))]
    if given:
        return f"None: its answers are in {listed(given, 2)}."
    return "None: a plain network is fitted on 70% of the people and audited on the others."


def direction(settings: Data, result: Data) -> str:
    """What a high score means, by the labels of those whom it approves.

    Examples
    --------
    >>> groups = [{"n": 100, "n_positive_label": 60, "true_positive_rate": 0.9, "false_positive_rate": 0.25}]
    >>> result = {"outcome": {"groups": groups}, "settings": {"favorable": "high", "decision_threshold": 0.5}}
    >>> direction({"label": "paid", "positive_label": "yes"}, result)
    'High scores are good: paid is yes for 84% of those approved at the cutoff of 0.5, and for 17% of those declined.'
    """
    own, rows = result["settings"], result["outcome"]["groups"]
    try:
        good = sum(row["n_positive_label"] * row["true_positive_rate"] for row in rows)
        bad = sum((row["n"] - row["n_positive_label"]) * row["false_positive_rate"] for row in rows)
        n_good, n = sum(row["n_positive_label"] for row in rows), sum(row["n"] for row in rows)
        shares = [percent(good / (good + bad), 0), percent((n_good - good) / (n - good - bad), 0)]
    except (TypeError, ZeroDivisionError):
        return "Everyone is approved, or everyone is declined, so the labels do not say which scores are good."
    side, value = "Low" if own["favorable"] == "low" else "High", settings.get("positive_label") or "1"
    threshold = own["decision_threshold"]
    at = f" at the cutoff of {threshold:g}" if isinstance(threshold, float) and "decisions" not in settings else ""
    return (
        f"{side} scores are good: {settings['label']} is {value} for {shares[0]} of those approved{at}, and for "
        f"{shares[1]} of those declined."
    )


def review(run: Run) -> list[dict[str, Any]]:
    """The pairs to look at first, with the inputs of both."""
    path = run.path / "review.csv"
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [_pair(row) for row in csv.DictReader(file)]


def _pair(row: Mapping[str, str]) -> dict[str, Any]:
    inputs = [
        (name, value, row.get(f"match: {name}", ""))
        for key, value in row.items()
        if (name := key.removeprefix("person: ")) != key
    ]
    numbers = {key: f"{float(row[key]):.3f}" for key in ("score", "match_score", "distance") if row.get(key)}
    return {**{key: value for key, value in row.items() if ": " not in key}, **numbers, "inputs": inputs}
