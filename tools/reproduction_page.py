"""Everything in docs/results/reproduction that follows from results.jsonl, and docs/reproduction.md.

Run: .venv/bin/python tools/reproduction_page.py

Every number on the page comes from a file: our results, the paper's values and claims, the benchmarks. The text is in
tools/reproduction.md.jinja.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from evenhand.research.reproduction.protocol import ProtocolSettings, ResultRow, ResultStore
from evenhand.research.reproduction.reproduce import DATASETS, write_outputs
from evenhand.research.reproduction.tables import (
    NOISE,
    Difference,
    Results,
    dataset_name,
    method_name,
    paper_value,
    table_claims,
    table_differences,
    table_pareto,
)

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results" / "reproduction"
PAGE = ROOT / "docs" / "reproduction.md"
SETTINGS = ProtocolSettings()

# Settings that the paper does not state, as options of `evenhand reproduce`.
CHOICES = {
    ("encoding", "onehot"): "`--encoding onehot`",
    ("encoding", "unscaled"): "`--encoding unscaled`",
    ("integration", "segments"): "`--rule segments`",
    ("match_pool", "test"): "`--match-pool test`",
    ("ties", "random"): "`--ties random`",
    ("consistency_threshold", 0.2): "`--consistency-threshold 0.2`",
    ("consistency_threshold", 0.4): "`--consistency-threshold 0.4`",
    ("n_folds", 10): "`--folds 10`",
    ("random_state", 1): "`--random-state 1`",
}


# Number of columns and share of favorable labels, which tell the data of runs apart.
DATA = {"german": (20, 0.7), "adult": (14, 0.2393), "synthetic": (20, 0.5), "hmda": (34, 0.8807)}

EXPORTS = {
    "NY_Bank_Data_2020.csv.gz": "one lender in New York, 2020",
    "dutchess_home_purchase.csv.gz": "Dutchess County, New York, 2023, home purchases",
    "onondaga_home_purchase.csv.gz": "Onondaga County, New York, 2023, home purchases",
    "richmond_home_purchase.csv.gz": "Richmond County, New York, 2023, home purchases",
    "tompkins_home_purchase.csv.gz": "Tompkins County, New York, 2023, home purchases",
    "travis_cu_2024_hmda.csv.gz": "one lender in California, 2024",
}


class Page:
    """What the template asks for."""

    def __init__(self) -> None:
        self.store = ResultStore(RESULTS / "results.jsonl")
        self.runs = [{"run": run, **about} for run, about in self.store.runs.items()]
        self.base = [self.run_of(dataset) for dataset in DATASETS]
        self.rows = [row for about in self.base for row in self.store.of_run(about["run"])]
        self.results = Results(self.rows, SETTINGS)
        self.tables = {table.name: table for table in (t(self.rows, SETTINGS) for t in _TABLES)}

    def run_of(self, dataset: str, **changes: Any) -> dict[str, Any]:
        """The only run of a dataset whose data and settings are those of the comparison, but for the changes."""
        usual = {**SETTINGS.to_dict(), "n_columns": DATA[dataset][0], "positive_share": DATA[dataset][1]}
        rule = {"integration": "segments", "training_integration": "segments", "training_steps": 1, "n_steps": 8}
        wanted = {**usual, **changes, **(rule if changes.get("integration") == "segments" else {})}
        (found,) = [
            run
            for run in self.runs
            if run["dataset"] == dataset and wanted.items() <= {**run, **run["settings"]}.items()
        ]
        return found

    def of(self, dataset: str, method: str, metric: str, **changes: Any) -> np.ndarray:
        """Values of a metric, one for each fold."""
        if not changes:
            return self.results.of(dataset, method, metric)
        return Results(self.store.of_run(self.run_of(dataset, **changes)["run"]), SETTINGS).of(dataset, method, metric)

    def mean(self, *cell: str, digits: int = 3, **changes: Any) -> str:
        """Mean over folds."""
        return f"{self.of(*cell, **changes).mean():.{digits}f}"

    def percent(self, *cell: str, digits: int = 0, **changes: Any) -> str:
        """Mean over folds in percent."""
        return f"{self.of(*cell, **changes).mean():.{digits}%}"

    def lowest(self, *cell: str) -> str:
        """The lowest of the folds in percent."""
        return f"{self.of(*cell).min():.1%}"

    def highest(self, *cell: str) -> str:
        """The highest of the folds in percent."""
        return f"{self.of(*cell).max():.1%}"

    def spread(self, *cell: str, **changes: Any) -> str:
        """Mean and standard deviation over folds."""
        values = self.of(*cell, **changes)
        return f"{values.mean():.3f} ± {values.std(ddof=1):.3f}"

    def paper(self, dataset: str, method: str, metric: str, table: str = "main") -> str:
        """The number that the paper prints."""
        mean, std = paper_value(table, dataset, method, metric)
        return f"{mean:.3f}" if np.isnan(std) else f"{mean:.3f} ± {std:.3f}"

    def pipes(self, name: str, notes: bool = False) -> str:
        """The lines of a table."""
        lines = self.tables[name].to_markdown().splitlines()[2:]
        return "\n".join(line.rstrip() for line in lines if notes or line.startswith("|"))

    def verdicts(self, name: str, *datasets: str) -> Counter[str]:
        """How many lines or cells agree, differ and cannot be decided."""
        return Counter(r["verdict"] for r in self.tables[name].records if not datasets or r["dataset"] in datasets)

    def claim(self, words: str, dataset: str) -> float:
        """Our number of a claim that begins with these words."""
        (found,) = [
            record["ours"]
            for record in self.tables["table_claims"].records
            if record["claim"].startswith(words) and record["dataset"] == dataset
        ]
        return float(found)

    def ablation(self) -> str:
        """How many cells of the ablation do not differ."""
        own = [r for r in self.tables["table_differences"].records if r["method"].startswith("pred")]
        return f"{sum(r['verdict'] != 'differs' for r in own)} of its {len(own)}"

    def grid(self, metric: str, cec_weight: float, equalized_odds_weight: float) -> str:
        """Mean over folds at one square of the heatmaps."""
        weights = (cec_weight, equalized_odds_weight)
        rows = [r for r in self.rows if r.dataset == "german" and (r.cec_weight, r.equalized_odds_weight) == weights]
        return f"{np.mean([row.metrics[metric] for row in rows]):.3f}"

    def pareto(self, method: str) -> str:
        """Folds on which a method is not dominated, of all."""
        own = [record for record in self.tables["table_pareto"].records if record["method"] == method]
        return f"{sum(r['non_dominated'] for r in own)} of {sum(r['n_folds'] for r in own)}"

    def older(self, dataset: str) -> str:
        """The methods whose rows do not name the device, as those of the first runs do not."""
        rows = [row for row in self.rows if row.dataset == dataset and "device" not in row.versions]
        names = (method_name(row.method) for row in rows if row.method != "unconstrained")
        return ", ".join(dict.fromkeys(names))

    def choices(self) -> str:
        """How much each choice moves CEC, Regime B and AUC: ours with it, and the change."""
        metrics = ("cec", "regime_b", "auc")
        lines = ["| Dataset | Choice | " + " | ".join(_CHANGED) + " |", "| --- | --- |" + " ---: |" * len(_CHANGED)]
        for dataset, methods in (("german", ("unconstrained", "cec")), ("adult", ("unconstrained",))):
            plain = {(m, q): self.of(dataset, m, q) for m in methods for q in metrics}
            cells = [f"{plain[m, q].mean():.3f} ± {plain[m, q].std(ddof=1):.3f}" for m in methods for q in metrics]
            lines.append(_line(dataset_name(dataset), "as on this page", cells))
            for (name, value), words in CHOICES.items():
                try:
                    changed = {key: self.of(dataset, *key, **{name: value}) for key in plain}
                except ValueError:
                    continue  # not run on this dataset
                cells = [f"{changed[key].mean() - values.mean():+.3f}" for key, values in plain.items()]
                lines.append(_line("", words, cells))
            if dataset == "german":
                cells = [f"{self._gpu(dataset, *key).mean() - values.mean():+.3f}" for key, values in plain.items()]
                lines.append(_line("", "`--device cuda` (H200, torch 2.11)", cells))
        return "\n".join(lines)

    def _gpu(self, dataset: str, method: str, metric: str) -> np.ndarray:
        rows: Sequence[ResultRow] = ResultStore(RESULTS / "gpu.jsonl").rows
        return Results([row for row in rows if row.dataset == dataset], SETTINGS).of(dataset, method, metric)

    def seeds(self) -> str:
        """How many of our numbers differ between two seeds, and the largest difference in standard errors."""
        found = []
        for method in ("unconstrained", "cec"):
            for metric in ("auc", "f1", "eo", "sp", "cec", "regime_b"):
                other = self.of("german", method, metric, random_state=1)
                values = self.of("german", method, metric)
                found.append(abs(Difference.of(values, other.mean(), other.std(ddof=1)).errors))
        return f"{sum(errors > NOISE for errors in found)} of {len(found)} numbers (the largest is {max(found):.1f})"

    def epoch(self, what: str) -> dict[str, float]:
        """Times of a benchmark of training, by its name."""
        rows = json.loads((ROOT / "docs/results/benchmarks/training.json").read_text("utf-8"))["rows"]
        epochs = [row for row in rows if row["what"].startswith("epoch with EO + CEC, 20 inputs, batch 64")]
        return next(row for row in epochs if row["what"].endswith(what))

    def exports(self) -> list[tuple[str, str, str]]:
        """Name, hash and content of the HMDA files."""
        source = next(about for about in self.base if about["dataset"] == "hmda")["source"]
        return [(name, digest, EXPORTS[name]) for name, digest in re.findall(r"(\S+) \(SHA-256 (\w+)\)", source)]


_TABLES = (table_claims, table_differences, table_pareto)
_CHANGED = [f"{name}: {metric}" for name in ("Unconstrained", "CEC training") for metric in ("CEC", "Regime B", "AUC")]


def _line(dataset: str, choice: str, cells: Sequence[str]) -> str:
    return f"| {dataset} | {choice} | " + " | ".join([*cells, *[""] * (len(_CHANGED) - len(cells))]) + " |"


def page_text() -> str:
    """The page, as it should be."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, keep_trailing_newline=True
    )
    page = Page()
    text = templates.get_template("reproduction.md.jinja").render(page=page, mean=page.mean, paper=page.paper)
    blocks = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(block if block.startswith("```") else _wrapped(block) for block in blocks)


def _wrapped(text: str) -> str:
    """Paragraphs and items of lists in lines of equal length."""
    lines: list[str] = []
    for line in text.split("\n"):
        continues = bool(lines and lines[-1]) and not re.match(r"[|#!]|- |$", line)
        if continues and not re.match(r"[|#!]", lines[-1]):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
    plain = {"break_on_hyphens": False, "break_long_words": False, "width": 120}
    return "\n".join(
        line
        if re.match(r"[|#!]|$", line)
        else textwrap.fill(line, subsequent_indent="  " * line.startswith("- "), **plain)
        for line in lines
    )


def main() -> None:
    page = Page()
    write_outputs(page.rows, SETTINGS, RESULTS, page.base)
    for path in (RESULTS / "charts").iterdir():
        if path.suffix != ".svg":
            path.unlink()  # the page needs none of them
    PAGE.write_text(page_text(), encoding="utf-8")


if __name__ == "__main__":
    main()
