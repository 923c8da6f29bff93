"""Sampling weights: the audit of a biased sample is that of the population, and its errors are those of the sample."""

import json

import jsonschema
import numpy as np
import openpyxl
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.arrays import quantiles_of_parts, weighted_quantiles_of_parts
from evenhand.auditing.history.records import audit_metrics
from evenhand.auditing.sections import SECTIONS, load_schema
from evenhand.auditing.triples import _deviation
from evenhand.exceptions import InvalidInputError
from evenhand.report.page import audit_sections

pytestmark = pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")

FINANCIAL = ["income", "debt"]


def population(n, seed=0):
    """People of whom a group has fewer savings at equal finances, and a model that knows their weights."""
    rng = np.random.default_rng(seed)
    group = (rng.random(n) < 0.3).astype(int)
    income, debt = rng.normal(size=n) - 0.3 * group, rng.normal(size=n) + 0.2 * group
    savings = 0.4 * income - 0.5 * group + rng.normal(size=n)
    tenure = rng.normal(size=n) + 0.3 * group
    y = (income - 0.7 * debt + 0.8 * savings + 0.4 * tenure + rng.logistic(size=n) > 0).astype(int)
    X = pd.DataFrame({"income": income, "debt": debt, "savings": savings, "tenure": tenure})
    return X, y, np.where(group == 1, "b", "a"), LogisticRegression().fit(X, y)


def audited(people, rows=slice(None), **settings):
    X, y, group, model = people
    return eh.audit(
        model, X.iloc[rows], y[rows], sensitive_features=group[rows], financial_features=FINANCIAL, **settings
    )


@pytest.fixture(scope="module")
def small():
    return population(400)


@pytest.fixture(scope="module")
def unequal():
    return np.random.default_rng(1).uniform(0.2, 3.0, 400)


@pytest.fixture(scope="module")
def weighted(small, unequal):
    return audited(small, sample_weight=unequal, by={"part": np.arange(400) % 2})


def without_weighting(result):
    summary = result.to_dict()
    summary.pop("weighting", None)
    return summary


def flat(value, path=""):
    """Plain data as paths and values."""
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in flat(item, f"{path}/{key}")]
    if isinstance(value, (list, tuple)):
        return [leaf for k, item in enumerate(value) for leaf in flat(item, f"{path}/{k}")]
    return [(path, value)]


def assert_same(first, second, rel=1e-12):
    for (path, one), (other_path, other) in zip(flat(first), flat(second), strict=True):
        assert path == other_path
        if isinstance(one, float):
            assert one == pytest.approx(other, rel=rel, abs=1e-14, nan_ok=True), path
        else:
            assert one == other, path


def test_an_audit_without_weights_is_what_it_was():
    planted = eh.make_planted_bias(700, strength=0.6, random_state=3)
    data = planted.dataset
    found = eh.audit(
        planted.model,
        data.X,
        data.y,
        sensitive_features=data.group,
        financial_features=data.financial_features,
        by={"k": np.arange(700) % 3},
    ).to_dict()
    assert "weighting" not in found
    outcome = found["outcome"]
    before = {
        0.36923471792504503: found["cec"]["mean"],
        0.3609464569553034: found["cec"]["median"],
        0.06353244601384808: found["cec"]["excess"],
        0.05670140074434771: found["cec"]["excess_ci"][0],
        0.0634743295506985: found["cec"]["excess_balanced"],
        0.1724366756325601: found["cec"]["weighing_excess"],
        0.49142857142857144: found["regimes"]["B"],
        0.8667445126731121: outcome["auc"],
        0.1755916159567275: outcome["eo_gap"],
        -0.006013470936731933: found["score_gap"]["logit"]["value"],
        0.06566517294891339: found["score_gap"]["logit"]["standard_error"],
        0.42737442188100383: outcome["approvals"]["groups"][0]["approval_rate"]["low"],
        0.4464934041346539: outcome["approvals"]["groups"][0]["p_value"],
        0.6578658604619866: outcome["segments"]["k"][0]["common_odds_ratio_group_over_reference"]["low"],
        0.9246352796844179: outcome["error_rates"][0]["auc"]["low"],
        0.8751000656367522: found["matching"]["distance_quantiles"]["0.5"],
        0.07950297523607881: found["matching"]["worst_balance"],
    }
    for expected, value in before.items():
        assert value == pytest.approx(expected, rel=1e-6)  # single precision differs between machines


@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_equal_weights_are_no_weights(small, weight):
    by = {"part": np.arange(400) % 2}
    with_weights = audited(small, sample_weight=np.full(400, weight), by=by)
    assert_same(without_weighting(with_weights), without_weighting(audited(small, by=by)))
    assert with_weights.weighting.n_effective == 400


def test_doubled_weights_change_nothing(small, unequal, weighted):
    doubled = audited(small, sample_weight=pd.Series(unequal * 2), by={"part": np.arange(400) % 2})
    assert_same(doubled.to_dict(), weighted.to_dict())
    assert without_weighting(weighted)["cec"] != without_weighting(audited(small))["cec"]


def test_whole_weights_give_the_means_of_rows_written_out():
    """With a single financial feature, whose scale decides nothing, copies of people have copies of their matches."""
    X, y, group, model = population(150, seed=2)
    times = np.random.default_rng(3).integers(1, 4, 150)
    rows = np.repeat(np.arange(150), times)
    settings = {"evidence": False, "financial_features": ["income"]}
    first = eh.audit(model, X, y, sensitive_features=group, sample_weight=times, **settings)
    second = eh.audit(model, X.iloc[rows], y[rows], sensitive_features=group[rows], **settings)
    one, two = first.to_dict(), second.to_dict()
    for part in ("mean", "input_gap", "reasoning_gap", "by_group"):
        assert_same(one["cec"][part], two["cec"][part], rel=1e-6)
    assert_same(one["regimes"], two["regimes"], rel=1e-9)
    assert one["reasons"] is None  # not weighted
    assert_same(
        one["distributions"]["regimes"]["a"]["B"] * times.sum() / 150, two["distributions"]["regimes"]["a"]["B"]
    )
    for metric in ("auc", "f1", "accuracy", "positive_rate", "eo_gap", "sp_gap", "pfr"):
        assert one["outcome"][metric] == pytest.approx(two["outcome"][metric], rel=1e-9)
    for balance, other in zip(one["matching"]["balance"], two["matching"]["balance"], strict=True):
        assert_same(balance, other, rel=1e-6)
    pd.testing.assert_frame_equal(first.features, second.features, rtol=1e-5)


def test_people_of_weight_zero_are_not_counted(small, unequal):
    weights = np.where(np.arange(400) < 40, 0.0, unequal)
    found = audited(small, sample_weight=weights)
    assert (found.weighting.n_people, found.weighting.n_counted) == (400, 360)
    assert "40 of 400 people have a sampling weight of 0 and are not counted." in found.warnings
    kept = audited(small, np.arange(40, 400), sample_weight=weights[40:])
    for name in ("approvals", "error_rates", "scores", "gaps", "groups", "cutoffs"):
        assert_same(found.to_dict()["outcome"][name], kept.to_dict()["outcome"][name], rel=1e-9)
    assert found.evidence.cec.n <= 360
    counted = found.pairs["sample_weight"] > 0
    assert found.to_dict()["cec"]["n_pairs"] == counted.sum()
    assert found.to_dict()["cec"]["mean"] == pytest.approx(
        np.average(found.pairs["cec"], weights=found.pairs["sample_weight"]), rel=1e-12
    )


def test_uneven_weights_are_a_reservation(small):
    weights = np.where(np.arange(400) % 20 == 0, 60.0, 1.0)
    found = audited(small, sample_weight=weights, evidence=False)
    (sentence,) = (text for text in found.warnings if "uneven" in text)
    group = found.weighting.groups[0]
    assert f"{group.group} ({group.n_counted} people, effectively {group.n_effective:.0f})" in sentence
    inside = weights[small[2] == "a"]
    assert group.n_effective == pytest.approx(inside.sum() ** 2 / (inside**2).sum())
    assert group.share == pytest.approx(inside.sum() / weights.sum())


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        ([1.0] * 399, "`sample_weight` has 399 values for 400 rows."),
        (
            [-1.0, *[1.0] * 399],
            "`sample_weight` must be 0 or more people per row, got 1 negative values; drop or correct",
        ),
        ([np.nan, np.inf, *[1.0] * 398], "got 1 missing and 1 infinite values"),
        ([0.0] * 400, "`sample_weight` is 0 for everyone, so no one is counted"),
        (["2"] * 400, "`sample_weight` must hold numbers, one weight per row, got .* such as '2'; name the column"),
    ],
)
def test_wrong_weights_are_refused(small, weights, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        audited(small, sample_weight=weights)


def test_the_reference_has_weights_if_the_people_have(small, unequal):
    X, y, group, _ = small
    with pytest.raises(
        InvalidInputError, match="`sample_weight` is needed for both the audited people and the reference"
    ):
        audited(small, sample_weight=unequal, reference=(X, y, group))
    named = {"X": X, "y": y, "sensitive_features": group}
    with pytest.raises(InvalidInputError, match="`reference sample_weight` is 0 for everyone"):
        audited(small, sample_weight=unequal, reference={**named, "sample_weight": np.zeros(400)})
    apart = audited(small, sample_weight=unequal, reference={**named, "sample_weight": unequal * 9}, evidence=False)
    together = audited(small, sample_weight=unequal, evidence=False)
    # Baselines are the same; people may be matched with themselves only where they are not of another group.
    assert apart.to_dict()["outcome"]["auc"] == together.to_dict()["outcome"]["auc"]
    pd.testing.assert_frame_equal(apart.features, together.features)


def test_quantiles_are_those_of_numpy(rng):
    values, weights = np.round(rng.normal(size=200), 1), rng.integers(0, 5, 200).astype(float)
    shares = [0.0, 0.05, 0.25, 0.5, 0.9, 1.0]
    found = weighted_quantiles_of_parts(
        lambda: iter([(values[:70], weights[:70]), (values[70:], weights[70:])]), shares
    )
    expected = np.quantile(np.repeat(values, weights.astype(int)), shares, method="inverted_cdf")
    np.testing.assert_array_equal(found, expected)
    assert np.isnan(weighted_quantiles_of_parts(lambda: iter([(values, weights * 0)]), [0.5])).all()
    np.testing.assert_array_equal(
        quantiles_of_parts(lambda: iter([values[:70], values[70:]]), shares), np.quantile(values, shares)
    )


def test_standard_deviations_of_inputs_are_weighted(rng):
    x, weights = rng.normal(size=(50, 2)), rng.uniform(0, 2, 50)
    found = _deviation(torch.as_tensor(x), weights)
    np.testing.assert_allclose(found, np.sqrt(np.cov(x.T, aweights=weights, ddof=0).diagonal()))
    x[3, 1] = np.nan
    assert _deviation(torch.as_tensor(x), weights)[0] == pytest.approx(float(found[0]))
    known = np.delete(np.arange(50), 3)
    expected = np.sqrt(np.cov(x[known, 1], aweights=weights[known], ddof=0))
    assert _deviation(torch.as_tensor(x), weights)[1] == pytest.approx(float(expected))


def test_json_page_and_workbook_show_the_weights(weighted, tmp_path):
    weighted.to_json(tmp_path / "audit.json")
    document = json.loads((tmp_path / "audit.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(load_schema()).validate(document)
    sections = {part.id: part for top in audit_sections(weighted.to_dict(), SECTIONS) for part in top.unfolded}
    (table,) = sections["weights"].tables
    shown = [(row["group"], row["n_effective"]) for row in table.records]
    groups = [(group.group, group.n_effective) for group in weighted.weighting.groups]
    assert shown == [*groups, ("everyone", weighted.weighting.n_effective)]
    weighted.to_excel(tmp_path / "audit.xlsx")
    sheet = openpyxl.load_workbook(tmp_path / "audit.xlsx")["Sampling weights"]
    assert [cell.value for cell in sheet["D"]][1:] == pytest.approx([number for _, number in shown])
    without = [part.id for top in audit_sections(without_weighting(weighted), SECTIONS) for part in top.unfolded]
    assert "weights" not in without


def test_compared_audits_have_the_errors_of_effective_numbers(small, weighted, unequal):
    plain = audited(small)
    found, without = (audit_metrics(result.to_dict()) for result in (weighted, plain))
    assert found["positive rate: a"].value == weighted.to_dict()["outcome"]["groups"][0]["positive_rate"]
    inside = unequal[small[2] == "a"]
    deff = np.sqrt(len(inside) * (inside**2).sum()) / inside.sum()
    ratio = found["positive rate: a"].standard_error / without["positive rate: a"].standard_error
    assert ratio == pytest.approx(deff, rel=0.02)
    (difference,) = eh.compare_audits({"plain": plain, "weighted": weighted}).differences
    assert difference.sentence == (
        "sample_weight: given in weighted, none in the base; people have different weights, which alone can change "
        "every metric."
    )


# --- a population, of which samples are drawn with unequal probabilities ---


def drawn_alike(people):
    """Chances to be drawn: higher in the small group, with few savings, and without the favorable outcome."""
    X, y, group, _ = people
    return np.exp(-0.4 * X["savings"].to_numpy()) * np.where(group == "b", 3, 1) * np.where(y == 1, 0.6, 1.2)


def drawn_apart(people):
    """The same, but of the small group those with savings are drawn: without weights it looks better off."""
    X, y, group, _ = people
    slope = np.where(group == "b", 0.5, -0.5)
    return np.exp(slope * X["savings"].to_numpy()) * np.where(group == "b", 3, 1) * np.where(y == 1, 0.8, 1.2)


def inclusion(chance, n):
    """Probabilities of a sample of about n people."""
    chance = np.clip(chance / chance.mean(), 0.2, 4)
    return chance * n / chance.sum()


def estimates(result):
    """What is held against the population: values with the ends of their intervals."""
    found = result.to_dict()
    gap = found["score_gaps"][0]
    parts = {"score gap": gap["total"], "probability": gap["probability"]}
    parts |= {row["feature"]: row for row in gap["features"] if row["feature"] not in FINANCIAL}
    sign = 1 if gap["group"] == "b" else -1  # the larger group is the reference, and that depends on the sample
    found_gaps = {
        name: tuple(sorted(sign * part[end] for end in ("low", "value", "high"))) for name, part in parts.items()
    }
    rates = {row["group"]: row for row in found["outcome"]["error_rates"]}
    shares = {
        f"{name} {group}": tuple(row[name][end] for end in ("low", "value", "high"))
        for group, row in rates.items()
        for name in ("positive_rate", "true_positive_rate", "false_positive_rate", "auc", "brier_score")
    }
    return found_gaps | shares


def coverage(chance_of, n_samples, n_people, n_population=20_000):
    """Of each estimate: the truth, weighted and unweighted means, and how often its interval holds the truth."""
    people = population(n_population)
    truth = {name: value for name, (_, value, _) in estimates(audited(people)).items()}
    chance, rng = inclusion(chance_of(people), n_people), np.random.default_rng(1)
    weighted, plain = [], []
    for _ in range(n_samples):
        rows = np.flatnonzero(rng.random(n_population) < chance)
        weighted.append(estimates(audited(people, rows, sample_weight=1 / chance[rows])))
        plain.append(estimates(audited(people, rows)))
    table = pd.DataFrame({"truth": truth})
    for name in truth:
        low, value, high = np.array([sample[name] for sample in weighted]).T
        table.loc[name, "off"] = abs(value.mean() - truth[name])
        table.loc[name, "error"] = value.std(ddof=1) / np.sqrt(n_samples)
        table.loc[name, "covered"] = np.mean((low <= truth[name]) & (truth[name] <= high))
        table.loc[name, "plain_off"] = abs(np.mean([sample[name][1] for sample in plain]) - truth[name])
    return table


@pytest.mark.slow
def test_a_weighted_sample_says_what_the_population_would():
    table = coverage(drawn_apart, n_samples=4, n_people=700, n_population=6_000)
    assert table["covered"].mean() > 0.8
    for name in ("score gap", "savings", "positive_rate a", "positive_rate b"):
        assert table.loc[name, "off"] < 0.4 * table.loc[name, "plain_off"], table


@pytest.mark.slow
def test_intervals_of_weighted_samples_cover_the_population():
    table = coverage(drawn_alike, n_samples=200, n_people=1_000)
    biased = table["plain_off"] > 6 * table["error"]
    assert {"score gap", "savings", "positive_rate a", "positive_rate b", "brier_score a"} <= set(table.index[biased])
    assert (table["off"] < 0.5 * table["plain_off"])[biased].all(), table
    assert (table["covered"] > 0.91).all(), table
    assert 0.93 < table["covered"].mean() < 0.985, table
