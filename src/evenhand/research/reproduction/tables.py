"""The paper's tables with our metrics next to the printed ones, as CSV, Markdown and LaTeX; and what it claims.

Each claim stands next to our results, judged by one yardstick: standard errors over folds.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd

from evenhand.arrays import Floats
from evenhand.research.reproduction.protocol import GRID_WEIGHTS, ProtocolSettings, ResultRow, ablation_weights
from evenhand.system.files import write_text

METHOD_NAMES = {
    "unconstrained": "Unconstrained",
    "disparate_impact_remover": "Disparate impact remover",
    "hardt": "Hardt",
    "agarwal": "Agarwal",
    "lagrangian": "Lagrangian",
    "adversarial": "Adversarial",
    "cec": "CEC",
    "fairshap": "FairSHAP",
    "pred": "Pred",
    "pred+eo": "Pred + EO",
    "pred+cec": "Pred + CEC",
    "pred+eo+cec": "Full (Pred + EO + CEC)",
}

DATASET_NAMES = {"german": "German Credit", "adult": "Adult", "synthetic": "Synthetic", "hmda": "HMDA"}

METRIC_NAMES = {
    "auc": "AUC",
    "f1": "F1",
    "eo": "EO gap",
    "sp": "SP gap",
    "cec": "CEC",
    "regime_a": "Regime A",
    "regime_b": "Regime B",
    "regime_c": "Regime C",
    "regime_d": "Regime D",
    "pfr": "Flip rate",
    "positive_rate": "Positive rate",
    "reasoning_gap": "Reasoning gap",
    "input_gap": "Input gap",
}

_MAIN_METRICS = ("auc", "f1", "eo", "sp", "cec", "regime_b", "pfr", "positive_rate", "reasoning_gap", "input_gap")
_ABLATION_METRICS = ("f1", "eo", "cec", "regime_b", "positive_rate")
_ALMOST_CONSTANT = 0.01


@dataclass(frozen=True)
class PaperTable:
    """A table for readers, and its numbers.

    Attributes
    ----------
    name
        Stem of its files.
    title, notes
        What it shows, and reservations.
    header, body
        Cells as text.
    records
        The numbers, one mapping per CSV row.
    """

    name: str
    title: str
    header: tuple[str, ...]
    body: tuple[tuple[str, ...], ...]
    records: tuple[dict[str, Any], ...]
    notes: tuple[str, ...] = ()

    def to_csv(self) -> str:
        """The numbers, in long form; empty if there are none."""
        table = pd.DataFrame(self.records, columns=None if self.records else self.header)
        return table.replace([np.inf, -np.inf], np.nan).to_csv(index=False, float_format="%.6g", lineterminator="\n")

    def to_markdown(self) -> str:
        """A pipe table with its title and notes."""
        lines = [f"**{self.title}**", "", _pipes(self.header), _pipes(["---"] * len(self.header))]
        lines += [_pipes(row) for row in self.body]
        return "\n".join([*lines, "", *(f"{note}  " for note in self.notes)]).rstrip() + "\n"

    def to_latex(self) -> str:
        """A booktabs table."""
        lines = [
            r"\begin{table*}[t]",
            r"\centering",
            rf"\caption{{{_latex(' '.join([self.title + '.', *self.notes]))}}}",
            rf"\begin{{tabular}}{{{'l' * len(self.header)}}}",
            r"\toprule",
            " & ".join(map(_latex, self.header)) + r" \\",
            r"\midrule",
            *(" & ".join(map(_latex, row)) + r" \\" for row in self.body),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table*}",
        ]
        return "\n".join(lines) + "\n"

    def write(self, folder: Path) -> None:
        """Write ``name.csv``, ``name.md`` and ``name.tex``."""
        for suffix, text in (("csv", self.to_csv()), ("md", self.to_markdown()), ("tex", self.to_latex())):
            write_text(folder / f"{self.name}.{suffix}", text)


Cells: TypeAlias = dict[tuple[str, str], list[ResultRow]]  # results by dataset, and by method or the like


def grouped(rows: Iterable[ResultRow], name_of: Callable[[ResultRow], str | None]) -> Cells:
    """Rows by dataset and name, without those that have none: datasets as they appear, methods in the paper's order."""
    cells: Cells = {}
    for row in rows:
        if (name := name_of(row)) is not None:
            cells.setdefault((row.dataset, name), []).append(row)
    datasets, names = (dict.fromkeys(key[k] for key in cells) for k in (0, 1))
    order = [(dataset, name) for dataset in datasets for name in in_paper_order(names)]
    return {key: sorted(cells[key], key=lambda row: row.fold) for key in order if key in cells}


def by_method(rows: Iterable[ResultRow], settings: ProtocolSettings) -> Cells:
    """Rows of the main comparison by dataset and method, folds ascending; other lambda settings are left out."""
    full = (settings.cec_weight, settings.equalized_odds_weight)
    return grouped(rows, lambda row: row.method if row.method != "cec" or row.weights == full else None)


def by_variant(rows: Iterable[ResultRow], settings: ProtocolSettings) -> Cells:
    """Rows of the ablation by dataset and variant, folds ascending."""
    names: dict[Any, str] = {weights: name for name, weights in ablation_weights(settings).items()}
    return grouped(rows, lambda row: names.get(row.weights))


def table_main(rows: Iterable[ResultRow], settings: ProtocolSettings) -> PaperTable:
    """Every method on every dataset (the paper's main table)."""
    cells = by_method(rows, settings)
    return _metrics_table("main", "Each method on each dataset", cells, _MAIN_METRICS, settings)


def table_ablation(rows: Iterable[ResultRow], settings: ProtocolSettings) -> PaperTable:
    """Parts of the objective (the paper's ablation)."""
    cells = by_variant(rows, settings)
    return _metrics_table("ablation", "Parts of the objective", cells, _ABLATION_METRICS, settings)


def table_pareto(rows: Iterable[ResultRow], settings: ProtocolSettings) -> PaperTable:
    """The number of folds on which no other method is strictly better in F1, EO gap and CEC at once."""
    cells = by_method(rows, settings)
    datasets = list(dict.fromkeys(dataset for dataset, _ in cells))
    records: dict[tuple[str, str], dict[str, Any]] = {}
    for dataset in datasets:
        present = {m: {r.fold: r.metrics for r in found} for (of, m), found in cells.items() if of == dataset}
        shared = set.intersection(*map(set, present.values()))
        winners = [non_dominated({method: of_fold[fold] for method, of_fold in present.items()}) for fold in shared]
        for method in present:
            records[dataset, method] = {
                "dataset": dataset,
                "method": method,
                "non_dominated": sum(method in names for names in winners),
                "n_folds": len(shared),
                "paper": paper_value("pareto", dataset, method, "non_dominated")[0],
            }
    body = []
    for method in in_paper_order(method for _, method in cells):
        own = [records.get((dataset, method)) for dataset in datasets]
        total, n_folds = (sum(record[key] for record in own if record) for key in ("non_dominated", "n_folds"))
        body.append((method_name(method), *map(_pareto_cell, own), f"{total}/{n_folds}"))
    return PaperTable(
        "table_pareto",
        "Folds on which a method is not dominated in (F1, EO gap, CEC)",
        ("Method", *map(dataset_name, datasets), "Total"),
        tuple(body),
        tuple(records.values()),
        (
            "Dominated: another method is strictly better in all three. In parentheses the paper's count of 5.",
            *settings_notes(settings),
        ),
    )


def non_dominated(metrics: dict[str, dict[str, float]]) -> set[str]:
    """Methods to which no other is strictly better in F1 (higher), EO gap and CEC (lower) at once.

    Examples
    --------
    >>> a, b = {"f1": 0.8, "eo": 0.1, "cec": 0.5}, {"f1": 0.9, "eo": 0.05, "cec": 0.4}
    >>> sorted(non_dominated({"a": a, "b": b, "c": {**b, "f1": 0.7}}))
    ['b', 'c']
    """

    def dominates(one: dict[str, float], other: dict[str, float]) -> bool:
        return one["f1"] > other["f1"] and one["eo"] < other["eo"] and one["cec"] < other["cec"]

    return {name for name, own in metrics.items() if not any(dominates(other, own) for other in metrics.values())}


def paper_value(table: str, dataset: str, method: str, metric: str) -> tuple[float, float]:
    """Mean and standard deviation that the paper prints; NaN if it prints none.

    Examples
    --------
    >>> paper_value("main", "german", "cec", "cec")
    (0.208, 0.02)
    """
    return _paper_values().get((table, dataset, method, metric), (math.nan, math.nan))


@lru_cache(maxsize=1)
def _paper_values() -> dict[tuple[str, str, str, str], tuple[float, float]]:
    with (files("evenhand.research.reproduction") / "paper_values.csv").open(encoding="utf-8") as file:
        table = pd.read_csv(file).set_index(["table", "dataset", "method", "metric"])
    return dict(zip(table.index, table.itertuples(index=False, name=None), strict=True))


def _metrics_table(
    table: str, title: str, cells: Cells, metrics: Sequence[str], settings: ProtocolSettings
) -> PaperTable:
    """A table of metrics next to those that the paper prints in its own table of that name."""
    records, text, constant = [], {}, []
    for (dataset, method), found in cells.items():
        for metric in metrics:
            values = np.asarray([row.metrics[metric] for row in found])
            mean, std = float(values.mean()), spread(values)
            paper, paper_std = paper_value(table, dataset, method, metric)
            records.append(
                {
                    "dataset": dataset,
                    "method": method,
                    "metric": metric,
                    "n_folds": len(values),
                    "mean": mean,
                    "std": std,
                    "paper": paper,
                    "paper_std": paper_std,
                    "difference": mean - paper,
                }
            )
            beside = f" ({_number(paper)}, {_number(mean - paper, '+')})" if math.isfinite(paper) else ""
            text[dataset, metric, method] = f"{_number(mean)} ± {_number(std)}{beside}"
        rate = float(np.mean([row.metrics["positive_rate"] for row in found]))
        if min(rate, 1 - rate) < _ALMOST_CONSTANT:
            constant.append(f"{method_name(method)} on {dataset_name(dataset)} ({rate:.1%} favorable)")
    notes = ["Mean ± standard deviation over folds; in parentheses the paper's mean, and ours minus the paper's."]
    if constant:
        notes.append(f"Decisions are (almost) constant, so small gaps follow from that alone: {'; '.join(constant)}.")
    return wide_table(f"table_{table}", title, metrics, text, records, [*notes, *settings_notes(settings)])


def wide_table(
    name: str,
    title: str,
    metrics: Sequence[str],
    text: Mapping[tuple[str, str, str], str],
    records: Sequence[dict[str, Any]],
    notes: Sequence[str],
) -> PaperTable:
    """A line for each dataset and metric and a column for each method, from cells by all three."""
    methods = in_paper_order(method for _, _, method in text)
    body = (
        (dataset_name(dataset), METRIC_NAMES[metric], *(text.get((dataset, metric, method), "") for method in methods))
        for dataset in dict.fromkeys(dataset for dataset, _, _ in text)
        for metric in metrics
    )
    header = ("Dataset", "Metric", *map(method_name, methods))
    return PaperTable(name, title, header, tuple(body), tuple(records), tuple(notes))


def spread(values: Floats) -> float:
    """Standard deviation over folds; NaN for one fold."""
    return float(values.std(ddof=1)) if len(values) > 1 else math.nan


def settings_notes(settings: ProtocolSettings) -> list[str]:
    """What a reader must know about the settings."""
    if settings.is_quick:
        return [f"Quick run ({settings.epochs} epochs, coarse integration), for trying things out: do not quote it."]
    return []


def in_paper_order(methods: Iterable[str]) -> list[str]:
    """Each method once, those of the paper first."""
    own = dict.fromkeys(methods)
    return [name for name in {**METHOD_NAMES, **own} if name in own]


def dataset_name(dataset: str) -> str:
    """The readable name of a dataset."""
    return DATASET_NAMES.get(dataset, dataset)


def method_name(method: str) -> str:
    """The readable name of a method, or of a part of the objective."""
    return METHOD_NAMES.get(method, method)


def _pareto_cell(record: Mapping[str, Any] | None) -> str:
    if record is None:
        return ""
    paper = f" ({record['paper']:.0f})" if math.isfinite(record["paper"]) else ""
    return f"{record['non_dominated']}/{record['n_folds']}{paper}"


def _number(value: float, sign: str = "") -> str:
    return f"{value:{sign}.3f}" if math.isfinite(value) else "n/a"


def _pipes(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


_LATEX: dict[str, str] = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "²": r"$^2$",
}


def _latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)


NOISE = 2.0
"""Standard errors beyond which two numbers differ."""

Verdict = Literal["agrees", "differs", "cannot be decided"]

_CLAIM_METRICS = ("auc", "f1", "eo", "sp", "cec", "regime_b")
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
        grid = grouped(rows, lambda row: f"lambda {row.cec_weight:g}" if {*row.weights} <= {*GRID_WEIGHTS} else None)
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
    for claim in csv.DictReader(text.splitlines()):
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
                _number(record["ours"], "+" if record["other"] else ""),
                bound if math.isnan(record["printed"]) else _number(record["printed"], "+" if record["other"] else ""),
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
        for metric in _CLAIM_METRICS:
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
    return wide_table("table_differences", title, _CLAIM_METRICS, text, records, [note, *settings_notes(settings)])


def _errors(value: float) -> str:
    return f"{value:+.{2 if abs(value) < 3 else 1}f}" if math.isfinite(value) else ""
