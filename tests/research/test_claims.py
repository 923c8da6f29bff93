"""The paper's claims next to our results: the yardstick, and claims that results uphold or refute."""

import csv
import io
import math
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest
from scipy.stats import ttest_ind_from_stats

from evenhand.research.methods import method_names
from evenhand.research.reproduction.protocol import ProtocolSettings, ResultRow, ablation_weights, grid_weights
from evenhand.research.reproduction.tables import METRIC_NAMES, Difference, table_claims, table_differences

SETTINGS = ProtocolSettings()
LINES = list(
    csv.DictReader(io.StringIO((files("evenhand.research.reproduction") / "paper_claims.csv").read_text("utf-8")))
)


def rows(dataset="german", **metrics):
    """All methods, variants and lambdas on five folds; `metrics` are functions of method and lambda."""
    usual = {"unconstrained": (0.0, 0.0), "cec": (1.0, 1.0)}
    kinds = [(name, usual.get(name, (None, None))) for name in method_names()[:7]]
    kinds += [("cec", weights) for weights in (*ablation_weights(SETTINGS).values(), *grid_weights()) if any(weights)]
    return [
        ResultRow(
            dataset,
            method,
            fold,
            "r",
            dict.fromkeys(METRIC_NAMES, 0.5 + 0.001 * fold)
            | {name: value(method, weights[0]) + 0.001 * fold for name, value in metrics.items()},
            cec_weight=weights[0],
            equalized_odds_weight=weights[1],
        )
        for method, weights in dict.fromkeys(kinds)
        for fold in range(5)
    ]


def verdicts(table):
    return {(r["claim"], r["dataset"]): r["verdict"] for r in table.records}


@pytest.mark.parametrize("n_paper", [5, 8])
def test_a_difference_is_the_t_statistic_of_welch(n_paper):
    values = np.array([0.61, 0.57, 0.6, 0.64, 0.55])
    found = Difference.of(values, 0.5, 0.09, n_paper)
    expected = ttest_ind_from_stats(values.mean(), values.std(ddof=1), 5, 0.5, 0.09, n_paper, equal_var=False)
    assert found.errors == pytest.approx(expected.statistic)


def test_our_spread_stands_in_for_one_that_the_paper_does_not_print():
    values = np.array([0.61, 0.57, 0.6, 0.64, 0.55])
    assert Difference.of(values, 0.5).error == pytest.approx(values.std(ddof=1) * math.sqrt(2 / 5))
    assert Difference.of(values, 0.5, n_paper=1).error == pytest.approx(values.std(ddof=1) * math.sqrt(1 / 5 + 1))


@pytest.mark.parametrize(
    ("difference", "verdict"),
    [
        (Difference(0.55, 0.5, 0.03), "agrees"),
        (Difference(0.55, 0.5, 0.02), "differs"),
        (Difference(0.05, 0.04, 0.02), "cannot be decided"),  # a fifth of it, and three times as much, would pass
        (Difference(0.55, 0.5, math.nan), "cannot be decided"),
        (Difference(0.55, 0.5, 0.02, ">"), "agrees"),
        (Difference(0.55, 0.5, 0.02, "<"), "differs"),
        (Difference(0.51, 0.5, 0.02, "<"), "cannot be decided"),
    ],
)
def test_a_verdict_needs_two_standard_errors(difference, verdict):
    assert difference.verdict == verdict


def test_claims_name_what_there_is():
    known = {*method_names()[:7], *ablation_weights(SETTINGS), *(f"lambda {w:g}" for w, _ in grid_weights())}
    assert len(LINES) > 70
    for line in LINES:
        assert {*line["method"].split("|"), *filter(None, line["other"].split("|"))} <= known
        assert line["metric"] in METRIC_NAMES
        assert line["relation"] in ("=", "<", ">")
        assert line["where"]
        assert line["claim"]
        assert not line["paper"] or math.isfinite(float(line["paper"]))


def test_every_claim_on_a_dataset_is_judged():
    german = [line for line in LINES if line["dataset"] == "german"]
    assert len(table_claims(rows(), SETTINGS).records) == len(german)
    assert len(table_claims(rows("adult"), SETTINGS).records) == sum(line["dataset"] == "adult" for line in LINES)


def test_the_method_that_speaks_most_against_a_claim_counts():
    lowest = "CEC training has the lowest CEC of the seven (margin)", "german"
    level = {"unconstrained": 0.6, "cec": 0.2}
    found = table_claims(rows(cec=lambda method, weight: level.get(method, 0.5) + 1e-5 * (weight or 0)), SETTINGS)
    assert verdicts(found)[lowest] == "agrees"
    (record,) = [r for r in found.records if (r["claim"], r["dataset"]) == lowest]
    assert record["ours"] == pytest.approx(-0.3, abs=1e-3)  # against the lowest of the others
    noisy = [
        replace(r, metrics={**r.metrics, "cec": 0.1 + 0.02 * r.fold}) if r.method == "hardt" else r
        for r in rows(cec=lambda method, weight: level.get(method, 0.5))
    ]
    assert verdicts(table_claims(noisy, SETTINGS))[lowest] == "differs"


def test_numbers_on_other_data_cannot_be_decided():
    found = table_claims(rows("hmda", cec=lambda method, weight: 0.9 if method == "cec" else 0.159), SETTINGS)
    assert {r["verdict"] for r in found.records if r["relation"] == "="} == {"cannot be decided"}
    assert verdicts(found)["CEC training lowers CEC", "hmda"] == "differs"


def test_every_cell_of_the_papers_tables_is_compared():
    found = table_differences([*rows(), *rows("adult")], SETTINGS)
    assert len(found.records) == 7 * 6 * 2 + 4 * 4
    (cell,) = [r for r in found.records if (r["dataset"], r["method"], r["metric"]) == ("adult", "hardt", "cec")]
    values = 0.5 + 0.001 * np.arange(5)
    assert cell["errors"] == pytest.approx(Difference.of(values, 0.602, 0.005).errors)
    assert "**-" in found.to_markdown()


def test_a_few_folds_of_two_methods_give_the_claims_about_them():
    some = [r for r in rows() if r.method == "unconstrained" or (r.cec_weight, r.equalized_odds_weight) == (1.0, 1.0)]
    found = table_claims([r for r in some if r.fold < 2 + (r.method == "cec")], SETTINGS)
    assert {r["method"] for r in found.records} <= {"cec", "unconstrained", "pred", "pred+eo+cec"}
    assert table_claims([r for r in some if r.fold == 0], SETTINGS).records
