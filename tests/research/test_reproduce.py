"""Tables, charts, the page, and the whole from one call."""

import csv
import importlib.util
import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import evenhand.datasets
from evenhand.exceptions import InvalidInputError
from evenhand.research.methods import method_names
from evenhand.research.reproduction import reproduce as reproduction
from evenhand.research.reproduction.charts import (
    HEATMAP_METRICS,
    chart_ablation_regimes,
    chart_lambda_heatmaps,
    chart_pfr_cec,
    chart_regimes,
    save_chart,
    to_svg,
)
from evenhand.research.reproduction.protocol import ProtocolSettings, ResultRow, ablation_weights, grid_weights
from evenhand.research.reproduction.reproduce import reproduce, reproduction_page, write_outputs
from evenhand.research.reproduction.tables import (
    METRIC_NAMES,
    PaperTable,
    by_method,
    non_dominated,
    paper_value,
    table_ablation,
    table_main,
    table_pareto,
)

pytestmark = pytest.mark.integration

DOCS = Path(__file__).parents[2] / "docs"
SETTINGS = ProtocolSettings()
SEVEN = method_names()[:7]


def row(method, fold, dataset="german", weights=(None, None), run="r", **given):
    metrics = {**dict.fromkeys(METRIC_NAMES, 0.25), "n_train": 80.0, "n_test": 20.0, **given}
    return ResultRow(dataset, method, fold, run, metrics, cec_weight=weights[0], equalized_odds_weight=weights[1])


@pytest.fixture
def rows():
    """Every method on two datasets, three folds; CEC has the lowest CEC score."""
    weights = {"unconstrained": (0.0, 0.0), "cec": (1.0, 1.0)}
    return [
        row(
            name,
            fold,
            dataset,
            weights.get(name, (None, None)),
            cec=0.2 + 0.01 * fold if name == "cec" else 0.55 + 0.01 * fold + 0.001 * place,
            f1=0.8 - 0.01 * place,
            eo=0.1 + 0.01 * place,
        )
        for dataset in ("german", "adult")
        for place, name in enumerate(SEVEN)
        for fold in range(3)
    ]


@pytest.fixture
def all_rows(rows):
    names = {weights: name for name, weights in ablation_weights(SETTINGS).items()}
    extra = [weights for weights in [*names, *grid_weights()] if weights not in ((0.0, 0.0), (1.0, 1.0))]
    rng = np.random.default_rng(0)
    return rows + [row("cec", fold, weights=w, cec=float(rng.random())) for w in extra for fold in range(2)]


def records_of(table):
    return list(csv.DictReader(io.StringIO(table.to_csv())))


# Tables ---------------------------------------------------------------------------------------------------------------


def test_the_papers_values_are_all_there():
    for dataset in ("german", "adult", "synthetic", "hmda"):
        for name in SEVEN:
            for metric in ("auc", "f1", "eo", "sp", "cec", "regime_b"):
                assert all(math.isfinite(v) for v in paper_value("main", dataset, name, metric))
            assert paper_value("pareto", dataset, name, "non_dominated")[0] in range(6)
    for variant in ablation_weights(SETTINGS):
        assert 0 < paper_value("ablation", "german", variant, "regime_b")[0] < 1
    assert math.isnan(paper_value("main", "german", "magic", "auc")[0])


def test_the_main_table_puts_our_figure_beside_the_papers(rows):
    table = table_main(rows, SETTINGS)
    found = next(r for r in records_of(table) if (r["dataset"], r["method"], r["metric"]) == ("german", "cec", "cec"))
    assert (found["n_folds"], found["mean"], found["std"]) == ("3", "0.21", "0.01")
    assert (found["paper"], found["difference"]) == ("0.208", "0.002")
    assert "0.210 ± 0.010 (0.208, +0.002)" in table.to_markdown()
    assert r"0.210 $\pm$ 0.010" in table.to_latex()


def test_methods_are_in_the_papers_order_and_new_ones_last(rows):
    table = table_main([row("mine", 0), row("fairshap", 0), *rows[::-1]], SETTINGS)
    assert table.header[2:4] == ("Unconstrained", "Disparate impact remover")
    assert table.header[-3:] == ("CEC", "FairSHAP", "mine")


def test_other_lambda_settings_stay_out_of_the_main_table(all_rows, rows):
    assert by_method(all_rows, SETTINGS) == by_method(rows, SETTINGS)


def test_constant_decisions_are_pointed_out(rows):
    constant = [replace(r, metrics={**r.metrics, "positive_rate": 0.999}) if r.method == "cec" else r for r in rows]
    notes = " ".join(table_main(constant, SETTINGS).notes)
    assert "CEC on German Credit (99.9% favorable)" in notes
    assert "Hardt on" not in notes


def test_a_figure_from_one_fold_has_no_spread():
    table = table_main([row("unconstrained", 0, weights=(0.0, 0.0), auc=math.nan)], SETTINGS)
    assert "n/a ± n/a" in table.to_markdown()
    assert records_of(table)[0]["mean"] == ""


def test_dominated_means_strictly_worse_in_all_three():
    best = {"f1": 0.8, "eo": 0.1, "cec": 0.2}
    figures = {
        "best": best,
        "worse": {"f1": 0.7, "eo": 0.2, "cec": 0.3},
        "equal in one": {**best, "f1": 0.7},
        "unknown": {"f1": 0.1, "eo": math.nan, "cec": 0.9},
    }
    assert non_dominated(figures) == {"best", "equal in one", "unknown"}


def test_the_pareto_table_counts_folds(rows):
    table = table_pareto(rows, SETTINGS)
    counts = {(r["dataset"], r["method"]): r["non_dominated"] for r in records_of(table)}
    assert counts["german", "cec"] == counts["adult", "unconstrained"] == "3"
    assert counts["german", "hardt"] == "0"
    assert table.body[-1][-1] == "6/6"
    assert "3/3 (5)" in table.to_markdown()


def test_a_method_missing_on_one_dataset_leaves_an_empty_cell(rows):
    some = [r for r in rows if (r.dataset, r.method) != ("adult", "hardt")]
    assert next(line for line in table_pareto(some, SETTINGS).body if line[0] == "Hardt")[2] == ""
    assert "" in table_main(some, SETTINGS).body[-1]


def test_the_ablation_names_its_variants(all_rows):
    table = table_ablation(all_rows, SETTINGS)
    assert table.header[2:] == ("Pred", "Pred + EO", "Pred + CEC", "Full (Pred + EO + CEC)")
    assert records_of(table)[0]["paper"] == "0.8205"


def test_letters_that_mean_something_to_latex_and_markdown_are_escaped(tmp_path):
    table = PaperTable("t", "50% of a_b", ("a|b",), (("x & {y} ~ ^ # $ \\",),), ({"a": 1},))
    assert r"a\|b" in table.to_markdown()
    for escaped in (r"50\%", r"a\_b", r"\&", r"\{y\}", r"\textasciitilde{}", r"\#", r"\$", r"\textbackslash{}"):
        assert escaped in table.to_latex()
    table.write(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.csv", "t.md", "t.tex"]


def test_a_table_without_rows_still_has_a_head():
    assert table_pareto([], SETTINGS).to_csv() == "Method,Total\n"


# Charts ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chart", [chart_pfr_cec, chart_regimes, chart_ablation_regimes])
def test_a_chart_names_its_parts(chart, all_rows):
    svg = to_svg(chart(all_rows, SETTINGS))
    assert svg.startswith("<svg")
    assert "German Credit" in svg
    assert "Full (Pred + EO + CEC)" in svg or "Lagrangian" in svg


def test_six_heatmaps_have_36_squares_each(all_rows):
    chart = chart_lambda_heatmaps(all_rows).to_dict()
    assert len(chart["concat"]) == len(HEATMAP_METRICS) == 6
    assert {len(values) for values in chart["datasets"].values()} == {36} if "datasets" in chart else True
    svg = to_svg(chart_lambda_heatmaps(all_rows))
    for title in ("CEC", "Regime B", "F1", "EO gap", "Flip rate"):
        assert title in svg


def test_heatmaps_are_of_one_dataset(all_rows):
    others = [replace(r, dataset="adult", metrics={**r.metrics, "cec": 9.0}) for r in all_rows]
    alone, among = (chart_lambda_heatmaps(rows).to_dict() for rows in (all_rows, all_rows + others))
    assert json.dumps(alone["concat"]) == json.dumps(among["concat"])
    assert json.dumps(alone.get("datasets")) == json.dumps(among.get("datasets"))


def test_a_method_has_the_same_color_whoever_is_beside_it(rows):
    def color_of_cec(some):
        scale = chart_pfr_cec(some, SETTINGS).to_dict()["spec"]["layer"][-1]["encoding"]["color"]["scale"]
        return dict(zip(scale["domain"], scale["range"], strict=True))["CEC"]

    assert color_of_cec(rows) == color_of_cec([r for r in rows if r.method in ("cec", "hardt")])


def test_charts_are_saved_in_each_format(rows, tmp_path):
    paths = save_chart(chart_regimes(rows, SETTINGS), tmp_path, "regimes")
    starts = [path.read_bytes()[:5] for path in paths]
    assert [start[:4] for start in starts] == [b"<svg", b"\x89PNG", b"%PDF"]


# The page and the whole -----------------------------------------------------------------------------------------------


def test_the_page_escapes_and_needs_no_network():
    table = PaperTable("t", "<script>x", ("<i>x",), (("<b>x",),), ())
    html = reproduction_page("title & more", [table], [("chart", "<svg></svg>")], [("<u>x", "v")], ["<s>x"])
    for hostile in ("<script>x", "<i>x", "<b>x", "<u>x", "<s>x"):
        assert hostile not in html
        assert hostile.replace("<", "&lt;").replace(">", "&gt;") in html
    assert "<svg></svg>" in html
    assert "default-src 'none'" in html
    assert not re.findall(r'(?:src|href)="http', html)


def test_outputs_hold_every_table_and_chart(all_rows, tmp_path):
    done = write_outputs(all_rows, SETTINGS, tmp_path)
    stems = {p.stem for p in (tmp_path / "charts").iterdir()}
    assert stems == {"pfr_cec", "regimes", "ablation_regimes", "lambda_heatmaps"}
    assert len(list((tmp_path / "tables").iterdir())) == 15
    html = done.page.read_text()
    assert html.count("<svg") == 4
    assert html.count("<table>") == 5


def test_no_results_make_no_tables(tmp_path):
    with pytest.raises(InvalidInputError, match="no results"):
        write_outputs([], SETTINGS, tmp_path)


def test_runs_are_never_mixed_in_a_table(rows, tmp_path):
    with pytest.raises(InvalidInputError, match=r"Results of \['german'\] come from several runs"):
        write_outputs([*rows, replace(rows[0], run="another")], SETTINGS, tmp_path)


def test_two_methods_on_german(tmp_path):
    quick = ProtocolSettings.quick(n_folds=2)
    done = reproduce("german", "cec,unconstrained", settings=quick, out=tmp_path, n_jobs=1)
    assert {(r.method, r.fold) for r in done.rows} == {(m, f) for m in ("cec", "unconstrained") for f in (0, 1)}
    cec = {m: np.mean([r.metrics["cec"] for r in done.rows if r.method == m]) for m in ("cec", "unconstrained")}
    assert cec["cec"] < cec["unconstrained"]
    assert "quick run: 10 epochs instead of 30" in done.notes[0]
    html = done.page.read_text()
    assert "do not quote" in html
    assert "1,000 people" in html
    before = (tmp_path / "results.jsonl").read_text()
    reproduce("german", ["unconstrained"], settings=quick, out=tmp_path)
    assert (tmp_path / "results.jsonl").read_text() == before  # nothing was run again


def test_options_reach_the_loader_and_the_settings(tmp_path, monkeypatch):
    asked = []

    def load(name, **options):
        asked.append((name, options))
        return evenhand.datasets.make_synthetic(n=100)

    def run(data, methods, settings, store, **options):
        asked.append((methods, settings, options))
        store.describe_run(
            f"r{len(asked)}", {"dataset": data.name, "n_people": 1, "n_columns": 1, "source": "", "notes": []}
        )
        store.append(row("unconstrained", 0, dataset=f"d{len(asked)}", weights=(0.0, 0.0), run=f"r{len(asked)}"))
        return f"r{len(asked)}"

    monkeypatch.setattr(reproduction, "load_dataset", load)
    monkeypatch.setattr(reproduction, "run_protocol", run)
    hmda = {"states": ["NY"], "year": 2024, "include_post_decision": True}
    reproduce("all", out=tmp_path, settings=ProtocolSettings().with_segments(), has_grid=True, **hmda)
    assert [name for name, _ in asked[::2]] == ["german", "adult", "synthetic", "hmda"]
    assert asked[6][1] == hmda
    assert asked[0][1] == {}
    methods, settings, options = asked[1]
    assert methods == list(SEVEN)
    assert settings.training_integration == "segments"
    assert (options["has_ablation"], options["has_grid"]) == (True, True)
    assert asked[3][2]["has_grid"] is False


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dataset": "french"}, r"`dataset` must be 'all' or among \['german'.*got \['french'\]"),
        ({"methods": "cec,magic"}, r"`methods` must be 'all' or among .*got \['magic'\]"),
        ({"methods": []}, r"`methods` must be 'all' or among .*got \[\]"),
    ],
)
def test_unknown_names_are_refused(arguments, message, tmp_path):
    with pytest.raises(InvalidInputError, match=message):
        reproduce(out=tmp_path, **arguments)


def test_the_package_carries_its_data_files():
    folder = Path(reproduction.__file__).parent
    assert (folder / "paper_values.csv").is_file()
    assert (folder / "paper_claims.csv").is_file()


@pytest.mark.parametrize("name", ["gaps/table_gaps", "gaps/hmda/table_gaps", "epochs/table_epochs"])
def test_the_page_shows_the_tables_of_its_results(name):
    table = (DOCS / "results" / "reproduction" / f"{name}.md").read_text("utf-8").splitlines()
    lines = [line for line in table if line.startswith("|")]
    assert len(lines) > 5
    assert "\n".join(lines) in (DOCS / "reproduction.md").read_text("utf-8")


@pytest.fixture(scope="module")
def tool():
    """The program that writes the page of the documentation."""
    spec = importlib.util.spec_from_file_location("reproduction_page", DOCS.parent / "tools" / "reproduction_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_number_of_the_page_comes_from_the_results_and_the_papers_values(tool):
    assert (DOCS / "reproduction.md").read_text("utf-8") == tool.page_text()


def test_the_tables_of_the_documentation_are_those_of_the_results(tool):
    page = tool.Page()
    for name, table in page.tables.items():
        assert (DOCS / "results" / "reproduction" / "tables" / f"{name}.md").read_text("utf-8") == table.to_markdown()


def test_another_result_changes_the_page(tool, tmp_path, monkeypatch):
    before = tool.page_text()
    lines = (DOCS / "results" / "reproduction" / "results.jsonl").read_text("utf-8").splitlines()
    place = next(k for k, line in enumerate(lines) if '"method": "cec"' in line)
    changed = json.loads(lines[place])
    changed["metrics"]["cec"] += 0.1
    (tmp_path / "results.jsonl").write_text(
        "\n".join([*lines[:place], json.dumps(changed), *lines[place + 1 :]]) + "\n"
    )
    (tmp_path / "gpu.jsonl").write_bytes((DOCS / "results" / "reproduction" / "gpu.jsonl").read_bytes())
    monkeypatch.setattr(tool, "RESULTS", tmp_path)
    assert tool.page_text() != before


@pytest.mark.slow
def test_german_credit_on_this_machine_gives_the_numbers_of_the_page(tool, tmp_path):
    done = reproduce("german", out=tmp_path)
    page = tool.Page()
    for record in next(table for table in done.tables if table.name == "table_main").records:
        values = page.of("german", record["method"], record["metric"])
        assert record["mean"] == pytest.approx(values.mean(), abs=0.01 if record["metric"] in ("cec", "auc") else 0.03)
