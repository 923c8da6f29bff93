"""The paper's tables with our metrics next to the printed ones, as CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.research.reproduction.protocol import ProtocolSettings, ResultRow, ablation_weights
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
        text = io.StringIO()
        columns = list(self.records[0]) if self.records else list(self.header)
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        for record in self.records:
            texts = {k: f"{v:.6g}" if math.isfinite(v) else "" for k, v in record.items() if isinstance(v, float)}
            writer.writerow({**record, **texts})
        return text.getvalue()

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


def by_method(rows: Iterable[ResultRow], settings: ProtocolSettings) -> dict[tuple[str, str], list[ResultRow]]:
    """Rows of the main comparison by dataset and method, folds ascending; other lambda settings are left out."""
    full = (settings.cec_weight, settings.equalized_odds_weight)
    kept = (row for row in rows if row.method != "cec" or (row.cec_weight, row.equalized_odds_weight) == full)
    return _in_order((row.dataset, row.method, row) for row in kept)


def by_variant(rows: Iterable[ResultRow], settings: ProtocolSettings) -> dict[tuple[str, str], list[ResultRow]]:
    """Rows of the ablation by dataset and variant, folds ascending."""
    names = {weights: name for name, weights in ablation_weights(settings).items()}
    named = ((names.get((row.cec_weight, row.equalized_odds_weight)), row) for row in rows)  # type: ignore[arg-type]
    return _in_order((row.dataset, name, row) for name, row in named if name is not None)


def table_main(rows: Iterable[ResultRow], settings: ProtocolSettings) -> PaperTable:
    """Every method on every dataset (the paper's main table)."""
    cells = by_method(rows, settings)
    return _metrics_table("table_main", "Each method on each dataset", "main", cells, _MAIN_METRICS, settings)


def table_ablation(rows: Iterable[ResultRow], settings: ProtocolSettings) -> PaperTable:
    """Parts of the objective (the paper's ablation)."""
    cells = by_variant(rows, settings)
    return _metrics_table("table_ablation", "Parts of the objective", "ablation", cells, _ABLATION_METRICS, settings)


def table_pareto(rows: Iterable[ResultRow], settings: ProtocolSettings) -> PaperTable:
    """The number of folds on which no other method is strictly better in F1, EO gap and CEC at once."""
    cells = by_method(rows, settings)
    datasets, methods = _datasets(cells), _methods(cells)
    counts: dict[tuple[str, str], tuple[int, int]] = {}
    for dataset in datasets:
        present = {
            method: {r.fold: r for r in cells[dataset, method]} for method in methods if (dataset, method) in cells
        }
        shared = sorted(set.intersection(*(set(found) for found in present.values())))
        winners = [non_dominated({method: found[fold].metrics for method, found in present.items()}) for fold in shared]
        for method in present:
            counts[dataset, method] = (sum(method in names for names in winners), len(shared))
    records = [
        {
            "dataset": dataset,
            "method": method,
            "non_dominated": count,
            "n_folds": n_folds,
            "paper": paper_value("pareto", dataset, method, "non_dominated")[0],
        }
        for (dataset, method), (count, n_folds) in counts.items()
    ]
    body = []
    for method in methods:
        cells_of = [counts.get((dataset, method)) for dataset in datasets]
        texts = [_pareto_cell(dataset, method, cell) for dataset, cell in zip(datasets, cells_of, strict=True)]
        total = [cell for cell in cells_of if cell is not None]
        body.append((method_name(method), *texts, f"{sum(c for c, _ in total)}/{sum(n for _, n in total)}"))
    return PaperTable(
        "table_pareto",
        "Folds on which a method is not dominated in (F1, EO gap, CEC)",
        ("Method", *map(dataset_name, datasets), "Total"),
        tuple(body),
        tuple(records),
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
    text = (files("evenhand.research.reproduction") / "paper_values.csv").read_text(encoding="utf-8")
    return {
        (row["table"], row["dataset"], row["method"], row["metric"]): (
            float(row["mean"]),
            float(row["std"]) if row["std"] else math.nan,
        )
        for row in csv.DictReader(io.StringIO(text))
    }


def _metrics_table(
    name: str,
    title: str,
    printed: str,
    cells: dict[tuple[str, str], list[ResultRow]],
    metrics: Sequence[str],
    settings: ProtocolSettings,
) -> PaperTable:
    datasets, methods = _datasets(cells), _methods(cells)
    records = []
    text: dict[tuple[str, str, str], str] = {}
    constant = []
    for (dataset, method), found in cells.items():
        for metric in metrics:
            values = np.asarray([row.metrics[metric] for row in found])
            mean = float(values.mean())
            std = float(values.std(ddof=1)) if len(values) > 1 else math.nan
            paper, paper_std = paper_value(printed, dataset, method, metric)
            difference = mean - paper
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
                    "difference": difference,
                }
            )
            beside = f" ({_number(paper)}, {_number(difference, '+')})" if math.isfinite(paper) else ""
            text[dataset, method, metric] = f"{_number(mean)} ± {_number(std)}{beside}"
        rate = float(np.mean([row.metrics["positive_rate"] for row in found]))
        if min(rate, 1 - rate) < _ALMOST_CONSTANT:
            constant.append(f"{method_name(method)} on {dataset_name(dataset)} ({rate:.1%} favorable)")
    body = tuple(
        (dataset_name(dataset), METRIC_NAMES[metric], *(text.get((dataset, method, metric), "") for method in methods))
        for dataset in datasets
        for metric in metrics
    )
    notes = ["Mean ± standard deviation over folds; in parentheses the paper's mean, and ours minus the paper's."]
    if constant:
        notes.append(f"Decisions are (almost) constant, so small gaps follow from that alone: {'; '.join(constant)}.")
    header = ("Dataset", "Metric", *(method_name(method) for method in methods))
    return PaperTable(name, title, header, body, tuple(records), (*notes, *settings_notes(settings)))


def settings_notes(settings: ProtocolSettings) -> list[str]:
    """What a reader must know about the settings."""
    if settings.is_quick:
        return [f"Quick run ({settings.epochs} epochs, coarse integration), for trying things out: do not quote it."]
    return []


def _in_order(named: Iterable[tuple[str, str, ResultRow]]) -> dict[tuple[str, str], list[ResultRow]]:
    """Rows by dataset and method, folds ascending: datasets as they appear, methods in the paper's order."""
    cells: dict[tuple[str, str], list[ResultRow]] = {}
    for dataset, method, row in named:
        cells.setdefault((dataset, method), []).append(row)
    order = [(dataset, method) for dataset in _datasets(cells) for method in _methods(cells)]
    return {key: sorted(cells[key], key=lambda row: row.fold) for key in order if key in cells}


def _datasets(cells: Iterable[tuple[str, str]]) -> list[str]:
    return list(dict.fromkeys(dataset for dataset, _ in cells))


def _methods(cells: Iterable[tuple[str, str]]) -> list[str]:
    known = list(METHOD_NAMES)
    names = dict.fromkeys(method for _, method in cells)
    return sorted(names, key=lambda name: known.index(name) if name in known else len(known))


def dataset_name(dataset: str) -> str:
    """The readable name of a dataset."""
    return DATASET_NAMES.get(dataset, dataset)


def method_name(method: str) -> str:
    """The readable name of a method, or of a part of the objective."""
    return METHOD_NAMES.get(method, method)


def _pareto_cell(dataset: str, method: str, cell: tuple[int, int] | None) -> str:
    if cell is None:
        return ""
    paper = paper_value("pareto", dataset, method, "non_dominated")[0]
    return f"{cell[0]}/{cell[1]}" + (f" ({paper:.0f})" if math.isfinite(paper) else "")


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
