"""What the paper claims, each claim next to our results, by one yardstick: standard errors over folds."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

import numpy as np

from evenhand.arrays import Floats
from evenhand.research.reproduction.protocol import GRID_WEIGHTS, ProtocolSettings, ResultRow, ablation_weights
from evenhand.research.reproduction.tables import (
    PaperTable,
    by_method,
    by_variant,
    dataset_name,
    paper_value,
    settings_notes,
    spread,
    wide_table,
)

NOISE = 2.0
"""Standard errors beyond which two numbers differ."""

Verdict = Literal["agrees", "differs", "cannot be decided"]

_METRICS = ("auc", "f1", "eo", "sp", "cec", "regime_b")
_OTHER_DATA = "hmda"  # of which the paper does not describe its sample


@dataclass(frozen=True)
class Difference:
    """A number of ours minus what the paper says it is, or is above or below.

    Attributes
    ----------
    ours
        The number.
    paper
        What it is compared with.
    error
        Standard error of the difference.
    relation
        Whether the paper says that it equals the number (``"="``), is above (``">"``) or below (``"<"``).
    """

    ours: float
    paper: float
    error: float
    relation: str = "="

    @classmethod
    def of(cls, values: Floats, paper: float, printed: float = math.nan, n_paper: int | None = None) -> Difference:
        """From our values, one for each fold, and the mean and spread that the paper prints.

        Parameters
        ----------
        values
            Ours.
        paper, printed
            The paper's mean and standard deviation; NaN to take our own spread.
        n_paper
            Number of folds of the paper's mean; None for as many as ours.

        Examples
        --------
        >>> import numpy as np
        >>> found = Difference.of(np.array([0.5, 0.6, 0.7]), 0.5, 0.1)
        >>> round(found.errors, 2), found.verdict
        (1.22, 'agrees')
        """
        own = spread(values)
        theirs = printed if math.isfinite(printed) else own
        error = math.sqrt(own**2 / len(values) + theirs**2 / (n_paper or len(values)))
        return cls(float(values.mean()), paper, error)

    @property
    def errors(self) -> float:
        """The difference in standard errors; NaN if the spread is not known."""
        apart = self.ours - self.paper
        return apart / self.error if self.error else math.copysign(math.inf, apart) if apart else 0.0

    @property
    def verdict(self) -> Verdict:
        """What the difference says.

        Two numbers differ beyond two standard errors. Within two, they agree, unless two standard errors are more than
        half of the paper's number, which would then pass if it were half as large, too.
        """
        if self.relation != "=":
            beyond = self.errors if self.relation == ">" else -self.errors
            return "agrees" if beyond > NOISE else "differs" if beyond < -NOISE else "cannot be decided"
        if abs(self.errors) > NOISE:
            return "differs"
        return "agrees" if NOISE * self.error <= abs(self.paper) / 2 else "cannot be decided"

    def record(self, dataset: str, **more: float) -> dict[str, Any]:
        """What a table says about it; numbers on data that the paper does not describe cannot be decided."""
        verdict = "cannot be decided" if dataset == _OTHER_DATA and self.relation == "=" else self.verdict
        return {"ours": self.ours, "paper": self.paper, "errors": self.errors, **more, "verdict": verdict}


class Results:
    """Metrics of one setting by dataset and method, variant or lambda of CEC: one value for each fold."""

    def __init__(self, rows: Sequence[ResultRow], settings: ProtocolSettings) -> None:
        grid: dict[tuple[str, str], list[ResultRow]] = {}
        for row in rows:
            if row.cec_weight in GRID_WEIGHTS and row.equalized_odds_weight in GRID_WEIGHTS:
                grid.setdefault((row.dataset, f"lambda {row.cec_weight:g}"), []).append(row)
        is_whole = len(grid) >= len(GRID_WEIGHTS)  # with fewer, the only lambdas are those of the comparison
        self.rows = {**by_variant(rows, settings), **by_method(rows, settings), **(grid if is_whole else {})}

    def of(self, dataset: str, method: str, metric: str, folds: Iterable[int] | None = None) -> Floats:
        """Values of a metric, one for each fold; for a lambda of CEC, means over those of equalized odds."""
        rows = self.rows[dataset, method]
        folds = sorted({row.fold for row in rows}) if folds is None else folds
        return np.asarray([np.mean([row.metrics[metric] for row in rows if row.fold == fold]) for fold in folds])

    def difference(self, claim: Mapping[str, str]) -> Difference | None:
        """What the results say about a line of ``paper_claims.csv``; None if they lack a method.

        Of several methods, the one that speaks most against the claim counts.
        """
        dataset, metric, relation = claim["dataset"], claim["metric"], claim["relation"]
        methods, others = claim["method"].split("|"), claim["other"].split("|") if claim["other"] else []
        rows = [self.rows.get((dataset, method), []) for method in (*methods, *others)]
        folds = sorted(set.intersection(*({row.fold for row in found} for found in rows)))
        if not folds:
            return None
        sign = -1 if relation == "<" else 1
        own, theirs = ([self.of(dataset, name, metric, folds) for name in names] for names in (methods, others))
        values = min(own, key=lambda v: float(sign * v.mean()))
        if others:
            values = values - max(theirs, key=lambda v: float(sign * v.mean()))
        if relation != "=":
            error = spread(values) / math.sqrt(len(values))
            return Difference(float(values.mean()), float(claim["paper"] or 0), error, relation)
        if claim["paper"]:
            return Difference.of(values, float(claim["paper"]), n_paper=1 if methods[0] in _VARIANTS else None)
        spreads = [paper_value("main", dataset, method, metric)[1] for method in (*methods, *others)]
        return Difference.of(values, _printed(claim), math.hypot(*spreads))


_VARIANTS = tuple(ablation_weights(ProtocolSettings()))


def _printed(claim: Mapping[str, str]) -> float:
    """The number of a claim in the paper's tables; NaN if they do not have it."""

    def means(names: str) -> list[float]:
        tables = {name: "ablation" if name in _VARIANTS else "main" for name in names.split("|")}
        return [paper_value(table, claim["dataset"], name, claim["metric"])[0] for name, table in tables.items()]

    least, most = (max, min) if claim["relation"] == "<" else (min, max)
    return least(means(claim["method"])) - (most(means(claim["other"])) if claim["other"] else 0.0)


def table_claims(rows: Sequence[ResultRow], settings: ProtocolSettings) -> PaperTable:
    """The claims of the paper's text that the results say something about, a line for each dataset."""
    results = Results(rows, settings)
    text = (files("evenhand.research.reproduction") / "paper_claims.csv").read_text(encoding="utf-8")
    records: list[dict[str, Any]] = []
    for claim in csv.DictReader(io.StringIO(text)):
        if (found := results.difference(claim)) is not None:
            shown = math.nan if claim["paper"] else _printed(claim)
            records.append({**claim, **found.record(claim["dataset"], printed=shown)})
    body, before = [], None
    for record in records:
        said = (record["where"], record["claim"])
        bound = {"=": "", ">": "above ", "<": "below "}[record["relation"]] + f"{record['paper']:g}"
        body.append(
            (
                *(said if said != before else ("", "")),
                dataset_name(record["dataset"]),
                _number(record["ours"], record["other"]),
                bound if math.isnan(record["printed"]) else _number(record["printed"], record["other"]),
                _errors(record["errors"]),
                record["verdict"],
            )
        )
        before = said
    counts = Counter(record["verdict"] for record in records)
    return PaperTable(
        "table_claims",
        "The paper's claims",
        ("Where", "Claim", "Dataset", "Ours", "The paper", "Standard errors", "Verdict"),
        tuple(body),
        tuple(records),
        (
            f"Of {len(records)} lines, {counts['agrees']} agree, {counts['differs']} differ and "
            f"{counts['cannot be decided']} cannot be decided.",
            *settings_notes(settings),
        ),
    )


def table_differences(rows: Sequence[ResultRow], settings: ProtocolSettings) -> PaperTable:
    """Ours minus the paper's, in standard errors, of every cell of its main table and its ablation."""
    results = Results(rows, settings)
    records: list[dict[str, Any]] = []
    for dataset, method in results.rows:
        for metric in _METRICS:
            table = "ablation" if method in _VARIANTS else "main"
            paper, printed = paper_value(table, dataset, method, metric)
            if math.isfinite(paper):
                values = results.of(dataset, method, metric)
                found = Difference.of(values, paper, printed, 1 if method in _VARIANTS else None)
                cell = {"dataset": dataset, "method": method, "metric": metric}
                records.append({**cell, **found.record(dataset)})
    marks = {"agrees": "{}", "differs": "**{}**", "cannot be decided": "({})"}
    text = {(r["dataset"], r["metric"], r["method"]): marks[r["verdict"]].format(_errors(r["errors"])) for r in records}
    note = "Bold differs, in parentheses cannot be decided, and the rest agrees."
    title = "Ours minus the paper's, in standard errors"
    return wide_table("table_differences", title, _METRICS, text, records, [note, *settings_notes(settings)])


def _number(value: float, is_change: object) -> str:
    return f"{value:+.3f}" if is_change else f"{value:.3f}"


def _errors(value: float) -> str:
    return f"{value:+.{2 if abs(value) < 3 else 1}f}" if math.isfinite(value) else ""
