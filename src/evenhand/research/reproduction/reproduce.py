"""The paper's tables, charts and a page of both, from one call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from markupsafe import Markup

from evenhand.datasets import load_dataset
from evenhand.exceptions import InvalidInputError
from evenhand.report.frame import Finding, Panel, Section, render
from evenhand.report.tables import Column, Table
from evenhand.research.methods import method_names
from evenhand.research.reproduction.charts import (
    chart_ablation_regimes,
    chart_lambda_heatmaps,
    chart_pfr_cec,
    chart_regimes,
    save_chart,
    to_svg,
)
from evenhand.research.reproduction.protocol import (
    ProtocolSettings,
    ResultRow,
    ResultStore,
    results_of,
    run_protocol,
    versions,
)
from evenhand.research.reproduction.tables import (
    PaperTable,
    table_ablation,
    table_claims,
    table_differences,
    table_main,
    table_pareto,
)
from evenhand.system.files import write_text


def reproduction_page(
    title: str,
    tables: Sequence[PaperTable],
    charts: Sequence[tuple[str, str]],
    facts: Sequence[tuple[str, str]],
    warnings: Sequence[str] = (),
) -> str:
    """HTML text that needs no other file and no network; every text in it is escaped.

    Parameters
    ----------
    title
        Title of the page.
    tables
        In order.
    charts
        Title and SVG text of each.
    facts
        Name and value: settings, data, versions.
    warnings
        Sentences that a reader must see first.

    Examples
    --------
    >>> "&lt;b&gt;" in reproduction_page("<b>", [], [], [])
    True
    """
    finding = Finding("Our metrics next to the paper's", warnings=warnings)
    panels = [
        # Drawn by us, and escaped by the converter.
        Panel(f"chart-{k}", name, description=name, svg=Markup(svg), is_wide=True)
        for k, (name, svg) in enumerate(charts)
    ]
    sections = [
        Section("about", "About this page", finding=finding),
        *(Section(table.name, table.title, tables=[_shown(table)], notes=table.notes) for table in tables),
        Section("charts", "Charts", panels=panels),
        Section("made", "How these metrics were computed", facts=facts),
    ]
    return render("reproduction", title, sections)


def _shown(table: PaperTable) -> Table:
    columns = tuple(Column(head, "text", itemgetter(head)) for head in table.header)
    return Table(
        table.name, table.title, columns, tuple(dict(zip(table.header, row, strict=True)) for row in table.body)
    )


DATASETS = ("german", "adult", "synthetic", "hmda")
THE_SEVEN = method_names()[:7]


@dataclass(frozen=True)
class Reproduction:
    """What `reproduce` found and wrote.

    Attributes
    ----------
    rows
        Results of this call's settings, old and new.
    tables
        In the order of the page.
    folder
        Where everything is.
    page
        The HTML page.
    notes
        What a reader must know first, such as that the run was a quick one.
    """

    rows: tuple[ResultRow, ...]
    tables: tuple[PaperTable, ...]
    folder: Path
    page: Path
    notes: tuple[str, ...]


def reproduce(
    dataset: str | Sequence[str] = "german",
    methods: str | Sequence[str] | None = None,
    *,
    settings: ProtocolSettings | None = None,
    has_ablation: bool | None = None,
    has_grid: bool = False,
    device: str = "cpu",
    out: str | os.PathLike[str] = "reproduction",
    states: Sequence[str] | None = None,
    year: int | None = None,
    include_post_decision: bool = False,
    positive_share: float = 0.5,
    n_jobs: int | None = None,
    progress: bool = False,
) -> Reproduction:
    """Run the comparison, and write tables, charts and a page into `out`.

    Results are written to ``results.jsonl`` immediately. A second call continues where the first stopped; results of
    different settings may be in the same file and are left alone.

    Parameters
    ----------
    dataset
        A name, several, or ``"all"`` for the paper's four.
    methods
        Names of methods, as a sequence or ``"a,b"``, or ``"all"``; None for the paper's seven.
    settings
        Folds, encoding, network and the like; None for the paper's. `ProtocolSettings.quick()` checks that everything
        runs.
    has_ablation
        Also train the parts of the objective; None for yes on German Credit when ``cec`` is among the methods and
        the run is not a quick one.
    has_grid
        Also train the 6 x 6 lambda settings of the heatmaps, on German Credit.
    device
        ``"cpu"``, ``"cuda"`` or ``"auto"``.
    out
        Folder.
    states, year, include_post_decision
        For HMDA: which applications, and whether to keep what is known only after the decision.
    positive_share
        For synthetic data: share of favorable labels, which the paper does not state.
    n_jobs
        CPU threads; None for torch's own number.
    progress
        Whether to show progress.

    Raises
    ------
    InvalidInputError
        If a name of a dataset or a method is unknown.
    """
    names = names_among(dataset, DATASETS, "dataset")
    chosen = names_among(THE_SEVEN if methods is None else methods, method_names(), "methods")
    settings = ProtocolSettings() if settings is None else settings
    folder = Path(out)
    store = ResultStore(folder / "results.jsonl")
    threads = torch.get_num_threads()
    if n_jobs is not None:
        torch.set_num_threads(n_jobs)
    options: dict[str, dict[str, Any]] = {
        "hmda": {"states": states, "year": year, "include_post_decision": include_post_decision},
        "synthetic": {"positive_share": positive_share},
    }
    runs, rows = [], []
    try:
        for name in names:
            data = load_dataset(name, **options.get(name, {}))
            is_german = name == "german"
            run = run_protocol(
                data,
                chosen,
                settings,
                store,
                device=device,
                has_ablation=is_german
                and ("cec" in chosen and not settings.is_quick if has_ablation is None else has_ablation),
                has_grid=is_german and has_grid,
                progress=progress,
            )
            runs.append(run)
            rows += results_of(store, run, chosen, settings, data.financial_features)
    finally:
        torch.set_num_threads(threads)
    return write_outputs(rows, settings, folder, [store.runs[run] for run in runs])


def write_outputs(
    rows: Sequence[ResultRow], settings: ProtocolSettings, folder: Path, runs: Sequence[dict[str, Any]] = ()
) -> Reproduction:
    """Write the page and every table and chart for which there are rows.

    Parameters
    ----------
    rows
        Results of one setting, of any number of datasets.
    settings
        That setting.
    folder
        Tables and charts go into separate folders below it.
    runs
        Descriptions of the runs, as the store keeps them, for the page.

    Raises
    ------
    InvalidInputError
        If there are no rows, or those of one dataset come from several runs.
    """
    if not rows:
        raise InvalidInputError("There are no results for the tables.")
    run_of = dict.fromkeys((row.dataset, row.run) for row in rows)
    mixed = sorted({dataset for dataset, _ in run_of if sum(name == dataset for name, _ in run_of) > 1})
    if mixed:
        raise InvalidInputError(f"Results of {mixed} come from several runs; make tables of one run at a time.")
    german = [row for row in rows if row.dataset == "german"]
    # The main comparison lacks this variant of the ablation.
    odds_alone = (0.0, settings.equalized_odds_weight)
    has_ablation = any(row.weights == odds_alone for row in german)
    grid = [row for row in rows if row.method == "cec" and row.cec_weight == 0.1]
    makers = (table_claims, table_differences, table_main, table_pareto)
    tables = [make(rows, settings) for make in makers]
    charts = {
        "pfr_cec": ("Flip rate and CEC score of each method", chart_pfr_cec(rows, settings)),
        "regimes": ("Regimes of each method", chart_regimes(rows, settings)),
    }
    if has_ablation:
        tables.append(table_ablation(german, settings))
        chart = chart_ablation_regimes(german, settings)
        charts["ablation_regimes"] = ("Regimes of each part of the objective", chart)
    if grid:
        chart = chart_lambda_heatmaps(rows)
        charts["lambda_heatmaps"] = ("Lambda settings on German Credit", chart)
    for table in tables:
        table.write(folder / "tables")
    for name, (_, chart) in charts.items():
        save_chart(chart, folder / "charts", name)
    quick = (
        f"This was a quick run: {settings.epochs} epochs instead of {ProtocolSettings().epochs}, coarse integration. "
        "It shows that everything works; do not quote its metrics."
    )
    notes = [quick] if settings.is_quick else []
    page = folder / "index.html"
    text = reproduction_page(
        "Counterfactual explanation consistency: the comparison, repeated",
        tables,
        [(title, to_svg(chart)) for title, chart in charts.values()],
        _facts(settings, runs),
        notes,
    )
    write_text(page, text)
    return Reproduction(tuple(rows), tuple(tables), folder, page, tuple(notes))


def names_among(given: str | Sequence[str], known: Sequence[str], what: str) -> list[str]:
    """Names given as a sequence, as ``"a,b"`` or as ``"all"``, each once; unknown names are refused."""
    wanted = [name.strip() for name in given.split(",")] if isinstance(given, str) else list(given)
    if wanted == ["all"]:
        return list(known)
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        raise InvalidInputError(f"`{what}` must be 'all' or among {list(known)}, got {unknown or wanted}.")
    return list(dict.fromkeys(wanted))


def _facts(settings: ProtocolSettings, runs: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    facts = []
    for run in runs:
        size = f"{run['n_people']:,} people, {run['n_columns']} columns"
        facts.append((run["dataset"], " ".join([f"{size}; {run['source']}.", *run["notes"]])))
    facts.append(("Settings", ", ".join(f"{name} {value}" for name, value in settings.to_dict().items())))
    facts.append(("Versions", ", ".join(f"{name} {value}" for name, value in versions().items())))
    return facts
