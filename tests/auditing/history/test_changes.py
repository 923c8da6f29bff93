"""Comparing audits: what moved, by how much more than noise, and when that cannot be said."""

import copy
import json
import math
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

import evenhand as eh
from evenhand.auditing.evidence import Influences
from evenhand.auditing.history.compare import (
    _paired_log_variance,
    _paired_variance,
    compare_audits,
    errors_within_people,
)
from evenhand.auditing.history.records import audit_metrics, people_of, sorted_pairs
from evenhand.auditing.identity import is_same_people
from evenhand.exceptions import DataFileError, EvenhandWarning, InvalidInputError, InvalidTypeError
from evenhand.metrics.outcomes import auc, auc_influence

COLUMNS = list("abcdef")
# One is the other with features exchanged among the financial and among the others: people are drawn so that every
# metric has the same expectation under both.
WEIGHTS = np.array([1, 0.6, 0.3, 0.9, 0.4, 0.2]) * 1.2
EXCHANGED = np.array([0.3, 1, 0.6, 0.2, 0.9, 0.4]) * 1.2


def linear(weights, bias=0.0):
    model = torch.nn.Linear(len(weights), 1)
    with torch.no_grad():
        model.weight[:] = torch.tensor(weights, dtype=torch.float32)
        model.bias[:] = bias
    return model


def draw_people(rng, n=200):
    X = rng.normal(size=(n, 6))
    y = (rng.random(n) < 1 / (1 + np.exp(-0.8 * X.sum(axis=1)))).astype(int)
    return pd.DataFrame(X, columns=COLUMNS), y, np.where(rng.random(n) < 0.4, "b", "a")


def audited(people, weights=WEIGHTS, bias=0.0, financial=COLUMNS[:3], **settings):
    X, y, group = people
    return eh.audit(
        linear(weights, bias), X, y, sensitive_features=group, financial_features=list(financial), **settings
    )


@pytest.fixture(scope="module")
def people():
    return draw_people(np.random.default_rng(1))


@pytest.fixture(scope="module")
def old(people):
    return audited(people)


@pytest.fixture(scope="module")
def new(people):
    return audited(people, EXCHANGED)


@pytest.fixture(scope="module")
def others():
    return audited(draw_people(np.random.default_rng(2)))


def change(comparison, key):
    (found,) = [c for c in comparison.changes if c.key == key]
    return found


@pytest.mark.parametrize(("answers", "error", "word"), [(("yes", "yes"), 0.05, "reversed"),
                                                        (("yes", "no"), 0.05, "moved"),
                                                        (("yes", "yes"), 0.5, "moved")])  # fmt: skip
def test_a_gap_is_reversed_only_if_both_audits_find_one(old, answers, error, word):
    def with_gap(value, answer, error):
        summary = old.to_dict()
        summary["score_gaps"][0]["total"] |= {"value": value, "standard_error": error, "df": 500.0}
        summary["findings"] = [{**f, "answer": answer} if f["key"] == "score_gap" else f for f in summary["findings"]]
        return summary

    audits = {"old": with_gap(-1.5, answers[0], 0.05), "new": with_gap(0.6, answers[1], error)}
    comparison = compare_audits(audits, same_people=False)
    (finding,) = [f for f in comparison.findings if f.key == "score_gap"]
    assert finding.answer == "yes"
    assert f"{word}, by" in finding.headline
    assert f"{word}, from" in finding.sentence


# --- independent people ---


def test_the_variance_of_a_difference_of_independent_audits_is_the_sum_of_both(old, others):
    found = change(compare_audits({"old": old, "others": others}), "excess")
    one, two = old.evidence.cec, others.evidence.cec
    assert found.change == pytest.approx(two.value - one.value)
    assert found.standard_error == pytest.approx(math.hypot(one.standard_error, two.standard_error))
    assert not found.is_paired
    # Welch's test of two samples with these means, standard errors and degrees of freedom.
    n = np.array([one.df + 1, two.df + 1])
    spread = np.array([one.standard_error, two.standard_error]) * np.sqrt(n)
    welch = stats.ttest_ind_from_stats(two.value, spread[1], n[1], one.value, spread[0], n[0], equal_var=False)
    assert found.p_value == pytest.approx(welch.pvalue)
    assert found.df == pytest.approx(welch.df if hasattr(welch, "df") else found.df)


def test_a_difference_of_rates_is_that_of_two_proportions(old, others):
    found = change(compare_audits({"old": old, "others": others}), "positive rate: a")
    rates = [r.to_dict()["outcome"]["groups"][0] for r in (old, others)]
    assert found.change == pytest.approx(rates[1]["positive_rate"] - rates[0]["positive_rate"])
    plain = math.sqrt(sum(r["positive_rate"] * (1 - r["positive_rate"]) / r["n"] for r in rates))
    assert found.standard_error == pytest.approx(plain, rel=0.02)


def test_a_ratio_is_compared_by_dividing(old, others):
    found = change(compare_audits({"old": old, "others": others}), "ratio: approval ratio, b over a")
    rows = [r.outcome.approvals.groups[1].approval_ratio_group_over_reference.value for r in (old, others)]
    assert (found.base_value, found.value) == pytest.approx(rows)
    assert found.scale == "ratio"
    assert found.change == pytest.approx(rows[1] / rows[0])
    assert found.low < found.change < found.high
    counts = [[(g.n_approved, g.n_people) for g in r.outcome.approvals.groups] for r in (old, others)]
    plain = math.sqrt(sum(1 / x - 1 / n for two in counts for x, n in two))
    assert found.standard_error == pytest.approx(plain, rel=0.05)


def test_files_and_plain_data_give_the_same_as_results_but_for_what_needs_people(old, others, tmp_path):
    old.to_json(tmp_path / "old.json")
    others.to_json(tmp_path / "others.json")
    from_files = compare_audits({"old": tmp_path / "old.json", "others": str(tmp_path / "others.json")})
    from_data = compare_audits({"old": old.to_dict(), "others": others.to_dict()})
    from_results = compare_audits({"old": old, "others": others})
    assert [c.key for c in from_files.metrics] == [c.key for c in from_data.metrics]
    for found in from_files.metrics:
        assert found.p_value == pytest.approx(change(from_data, found.key).p_value)
        if found.key != "auc":
            assert found.standard_error == pytest.approx(change(from_results, found.key).standard_error)
    # Hanley and McNeil's approximation against DeLong's estimate.
    ratio = change(from_files, "auc").standard_error / change(from_results, "auc").standard_error
    assert 0.8 < ratio < 1.25
    assert "cec" not in {c.key for c in from_files.metrics}
    assert "are of different people" in from_files.pairings[0].sentence
    nameless = [copy.deepcopy(audit.to_dict()) for audit in (old, others)]
    for data in nameless:
        del data["data"]["column_prints"]
    assert "not known" in compare_audits(dict(zip(("old", "others"), nameless, strict=True))).pairings[0].sentence


def test_a_gap_is_signed_and_uses_the_reference_group_of_the_base(old, others):
    flipped = copy.deepcopy(others.to_dict())
    flipped["outcome"]["approvals"]["reference"] = "b"
    keys = [c.key for c in compare_audits({"old": old.to_dict(), "others": flipped}).metrics]
    assert "gap: positive rate, b minus a" in keys
    assert not [key for key in keys if "a minus b" in key]


# --- the same people ---


def within_people(first, second):
    tables = (sorted_pairs(audit.pairs) for audit in (first, second))
    return errors_within_people(*tables, "a", first.to_dict(), second.to_dict())


def test_the_same_people_are_recognized_and_every_answer_is_compared_within_people(old, new):
    comparison = compare_audits({"old": old, "new": new})
    assert comparison.pairings[0].is_paired
    assert comparison.pairings[0].sentence == "new and old are of the same people: changes are computed within people."
    assert all(c.is_paired for c in comparison.metrics if c.finding or c.part == "outcome")
    assert all(c.is_paired for c in comparison.inputs)
    assert {f.is_paired for f in comparison.findings} == {True}


def test_other_features_labels_or_groups_are_other_people(people, old):
    X, y, group = people
    others = [
        (X.assign(f=X["f"] + 1), y, group),
        (X, y[::-1], group),
        (X, y, np.where(group == "a", "b", "a")),
        (X.iloc[:150], y[:150], group[:150]),
        (X.assign(f=X["f"].to_numpy()[::-1]), y, group),  # the same values, of other people
    ]
    for other in others:
        found = compare_audits({"old": old, "other": audited(other, favorable="high")})
        assert "different people" in found.pairings[0].sentence
        assert not any(c.is_paired for c in found.changes)


def test_the_caller_can_say_that_people_differ(old, new):
    comparison = compare_audits({"old": old, "new": new}, same_people=False)
    assert not any(c.is_paired for c in comparison.metrics)


def test_claiming_the_same_people_of_different_ones_is_refused(old, others):
    with pytest.raises(InvalidInputError, match="`same_people=True`, but old and others differ"):
        compare_audits({"old": old, "others": others}, same_people=True)


def test_files_of_the_same_people_are_compared_as_results_are(old, new, tmp_path):
    for name, audit in (("old", old), ("new", new)):
        audit.to_json(tmp_path / f"{name}.json")
    from_files = compare_audits({name: tmp_path / f"{name}.json" for name in ("old", "new")})
    from_results = compare_audits({"old": old, "new": new})
    assert "Rates and the AUC are treated as independent" in from_files.pairings[0].sentence
    for found, expected in zip(from_files.findings, from_results.findings, strict=True):
        assert found.is_paired
        assert (found.key, found.estimate) == (expected.key, pytest.approx(expected.estimate))
        assert found.p_value == pytest.approx(expected.p_value)
    assert not change(from_files, "auc").is_paired


def test_files_with_their_pairs_beside_them_are_compared_within_people_throughout(old, new, tmp_path):
    for name, audit in (("old", old), ("new", new)):
        (tmp_path / name).mkdir()
        audit.to_json(tmp_path / name / "audit.json")
        audit.to_parquet(tmp_path / name / "pairs.parquet")
    from_files = compare_audits({name: tmp_path / name / "audit.json" for name in ("old", "new")})
    from_results = compare_audits({"old": old, "new": new})
    assert from_files.pairings == from_results.pairings
    for found in from_files.metrics:
        assert found.standard_error == pytest.approx(change(from_results, found.key).standard_error, nan_ok=True)


def test_pairs_of_another_audit_are_not_taken_for_those_of_this_one(old, new, others, tmp_path):
    for name, audit in (("old", old), ("new", new)):
        (tmp_path / name).mkdir()
        audit.to_json(tmp_path / name / "audit.json")
    others.to_parquet(tmp_path / "old" / "pairs.parquet")
    (tmp_path / "new" / "pairs.parquet").write_bytes(b"cut")
    found = compare_audits({name: tmp_path / name / "audit.json" for name in ("old", "new")})
    assert "cec" not in {c.key for c in found.metrics}
    assert not change(found, "auc").is_paired


def test_audits_that_do_not_keep_what_people_add_are_said_to_be_treated_as_independent(old, new):
    first, second = ({k: v for k, v in audit.to_dict().items() if k != "influences"} for audit in (old, new))
    found = compare_audits({"old": first, "new": second})
    assert "each person's contribution was not kept" in found.pairings[0].sentence
    assert not any(c.is_paired for c in found.metrics if c.standard_error > 0)
    for data in (first, second):
        data["data"] = {k: v for k, v in data["data"].items() if k != "column_prints"}
    assert compare_audits({"old": first, "new": second}, same_people=True).pairings == found.pairings


def test_an_audit_against_itself_has_moved_nowhere(old):
    comparison = compare_audits({"old": old, "again": old})
    assert all(c.p_value == 1 for c in comparison.metrics)
    assert not comparison.moved
    assert "stayed at" in change(comparison, "auc").sentence
    answers = [c for c in comparison.changes if c.finding]
    assert {(c.change, c.standard_error, c.low, c.high) for c in answers} == {(0.0, 0.0, 0.0, 0.0)}
    assert {(f.answer, f.p_value, f.p_adjusted) for f in comparison.findings} == {("no", 1.0, 1.0)}
    assert comparison.headline == "None of the four answers changed by more than noise"
    assert not any("p < 0.001" in sentence for sentence in comparison.sentences)


def test_the_paired_variance_of_rates_tends_to_that_of_the_differences(rng):
    first = rng.integers(0, 2, 5000)
    second = np.where(rng.random(5000) < 0.2, 1 - first, first)
    assert _paired_variance(first, second) == pytest.approx(np.var(second - first) / 5000, rel=0.01)
    # McNemar's statistic without continuity correction uses the variance under no change.
    b, c = int(((first == 0) & (second == 1)).sum()), int(((first == 1) & (second == 0)).sum())
    z = (second.mean() - first.mean()) / math.sqrt(_paired_variance(first, second))
    assert z**2 == pytest.approx((b - c) ** 2 / (b + c), rel=0.02)


def test_decisions_that_all_agree_still_vary():
    ones = np.ones(20, dtype=np.int64)
    assert 0 < _paired_variance(ones, ones) < 0.01
    assert math.isnan(_paired_variance(ones[:0], ones[:0]))
    assert math.isnan(_paired_log_variance(ones[:0], ones[:0]))


def test_the_paired_variance_of_a_log_ratio_is_that_of_a_bootstrap(rng):
    first = (rng.random(800) < 0.5).astype(int)
    second = np.where(rng.random(800) < 0.15, 1 - first, first)
    rows = rng.integers(0, 800, size=(4000, 800))
    draws = np.log(second[rows].mean(axis=1) / first[rows].mean(axis=1))
    assert math.sqrt(_paired_log_variance(first, second)) == pytest.approx(draws.std(), rel=0.05)


def test_the_error_of_the_mean_score_is_that_of_differences_within_people(old, new):
    error = within_people(old, new)["cec"]
    difference = new.pairs["cec"] - old.pairs["cec"]
    # Not below the error that ignores shared matches, nor far above.
    plain = difference.std() / math.sqrt(len(difference))
    assert plain * 0.99 <= error < 3 * plain


def test_other_matches_are_not_subtracted(people, old):
    X, y, group = people
    elsewhere = audited((X, y, group), financial=COLUMNS[3:], evidence=False)
    assert "cec" not in within_people(old, elsewhere)


# --- error rates by simulation ---


def test_paired_rates_that_did_not_change_are_called_in_about_five_percent():
    rng = np.random.default_rng(11)
    p_values = []
    for _ in range(1500):
        X = rng.normal(size=(150, 6))
        first, second = ((X @ w >= 0).astype(int) for w in (WEIGHTS, EXCHANGED))
        z = (second.mean() - first.mean()) / math.sqrt(_paired_variance(first, second))
        p_values.append(2 * stats.norm.sf(abs(z)))
    rejected = np.mean(np.array(p_values) <= 0.05)
    assert 0.035 < rejected < 0.067


def test_paired_areas_that_did_not_change_are_called_in_about_five_percent():
    rng = np.random.default_rng(12)
    z = []
    for _ in range(800):
        X, y, _ = draw_people(rng, 150)
        scores = [X.to_numpy() @ w for w in (WEIGHTS, EXCHANGED)]
        (a, own), (b, other) = ((auc(y, score), auc_influence(y, score)) for score in scores)
        z.append((b - a) / math.sqrt(((other - own) ** 2).sum()))
    assert 0.03 < np.mean(np.abs(z) > 1.96) < 0.075
    assert stats.kstest(z, "norm").pvalue > 0.001


@pytest.mark.slow
@pytest.mark.parametrize("is_same", [False, True], ids=["other people", "same people"])
def test_audits_between_which_nothing_changed_differ_in_about_five_percent(is_same):
    """A few hundred audits: p-values of the metrics are uniform."""
    rng = np.random.default_rng(21)
    rows = []
    for repetition in range(200):
        first = draw_people(rng)
        second = audited(first, EXCHANGED) if is_same else audited(draw_people(rng))
        comparison = compare_audits({"first": audited(first), "second": second})
        rows += [(repetition, c.key, c.p_value, c.p_adjusted) for c in comparison.metrics]
    table = pd.DataFrame(rows, columns=["repetition", "key", "p", "adjusted"])
    rejected = table.groupby("key")["p"].apply(lambda p: (p <= 0.05).mean())
    assert rejected["excess"] <= 0.09
    assert rejected["auc"] == pytest.approx(0.05, abs=0.045)
    assert rejected["positive rate"] == pytest.approx(0.05, abs=0.05)
    assert (table.groupby("repetition")["adjusted"].min() <= 0.05).mean() <= 0.09


def test_a_planted_change_of_reasoning_is_found():
    def planted(seed, strength):
        made = eh.make_planted_bias(400, strength=strength, random_state=seed)
        data = made.dataset
        return eh.audit(
            made.model, data.X, data.y, sensitive_features=data.group, financial_features=data.financial_features
        )

    comparison = compare_audits({"before": planted(0, 0.0), "after": planted(1, 0.6)})
    excess = change(comparison, "excess")
    assert excess.verdict == "more than noise"
    assert excess.low > 0
    assert excess in comparison.moved
    assert {"weighing", "excess"} <= {f.key for f in comparison.findings if f.answer == "yes"}
    assert comparison.sentences[0] == f"after compared with before: {comparison.headline}."
    assert any(c.verdict == "more than noise" for c in comparison.features)


def test_a_moved_cut_off_is_found_in_rates_and_not_in_the_area(people, old):
    comparison = compare_audits({"old": old, "stricter": audited(people, bias=-0.8)})
    assert change(comparison, "positive rate").verdict == "more than noise"
    assert change(comparison, "positive rate").change < 0
    assert change(comparison, "auc").p_value == 1


# --- settings ---


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"financial": COLUMNS[:2]}, "financial_features: a and b in new, a, b and c in the base"),
        ({"consistency_threshold": 0.4}, "consistency_threshold: 0.4 in new, 0.3 in the base; Regimes B and D"),
        ({"max_distance": 2.0}, "max_distance: 2.0 in new, none in the base"),
    ],
)
def test_settings_that_define_metrics_must_agree(people, old, settings, named):
    new = audited(people, evidence=False, **settings)
    with pytest.raises(InvalidInputError, match=named):
        compare_audits({"old": old, "new": new})
    with pytest.warns(EvenhandWarning, match=named):
        comparison = compare_audits({"old": old, "new": new}, allow_different_settings=True)
    assert comparison.differences[0].is_defining
    assert comparison.differences[0].sentence in comparison.warnings


def test_other_groups_are_refused_by_name(people, old):
    X, y, group = people
    new = audited((X, y, np.where(group == "b", "c", group)), evidence=False)
    with pytest.raises(InvalidInputError, match="groups: a and c in new, a and b in the base"):
        compare_audits({"old": old, "new": new})
    with pytest.warns(EvenhandWarning, match="different groups were compared"):
        comparison = compare_audits({"old": old, "new": new}, allow_different_settings=True)
    assert {"positive rate: a"} == {c.key for c in comparison.metrics if c.key.startswith("positive rate:")}


def test_another_cut_off_is_said_and_compared(people, old):
    with pytest.warns(EvenhandWarning, match="decision_threshold: 0.6 in new, 0.5 in the base"):
        comparison = compare_audits({"old": old, "new": audited(people, evidence=False, decision_threshold=0.6)})
    assert not comparison.differences[0].is_defining
    assert "new was audited without evidence, so the four questions cannot be compared." in comparison.warnings


@pytest.mark.parametrize(("error", "is_named"), [(0.0009, False), (0.03, True), (None, True)])
def test_other_steps_are_named_unless_both_audits_are_close_to_the_integral(old, error, is_named):
    def made(n_steps, of_integration):
        data = copy.deepcopy(old.to_dict())
        data["settings"]["n_steps"], data["data"]["integration_error"] = n_steps, of_integration
        return data

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvenhandWarning)
        found = compare_audits({"old": made(6, 0.0008), "new": made(4, error)}).differences
    assert [difference.setting for difference in found] == (["n_steps"] if is_named else [])


def test_a_setting_that_only_one_of_the_audits_knows_is_passed_over(old, others):
    data = copy.deepcopy(others.to_dict())
    del data["settings"]["max_distance"]
    assert not compare_audits({"old": old, "others": data}).differences


def test_features_and_versions_that_differ_are_named(old, others):
    data = copy.deepcopy(others.to_dict())
    data["features"] = [{**row, "feature": row["feature"].replace("f", "g")} for row in data["features"]]
    data["versions"]["evenhand"] = "0.0.1"
    comparison = compare_audits({"old": old, "others": data})
    assert "Features in old but not in others: f." in comparison.warnings
    assert "Features in others but not in old: g." in comparison.warnings
    assert "The audits were made with different versions of evenhand." in comparison.warnings


# --- several audits, adjustment, output ---


def test_p_values_are_adjusted_within_their_family(old, new, others):
    comparison = compare_audits({"old": old, "new": new, "others": others})
    rest = [c for c in comparison.metrics if c.finding is None]
    for family in (rest, comparison.features):
        p = np.array([c.p_value for c in family])
        smallest = int(np.nanargmin(p))
        assert family[smallest].p_adjusted == pytest.approx(min(1, p[smallest] * np.isfinite(p).sum()))
    assert len(comparison.findings) == 8
    p = np.array([f.p_value for f in comparison.findings])
    known = np.isfinite(p).sum()
    assert comparison.findings[0].p_adjusted == pytest.approx(min(1, np.nanmin(p) * known))
    for finding in comparison.findings:
        inside = [c for c in comparison.changes if c.finding == finding.key and c.audit == finding.audit]
        assert min(c.p_adjusted for c in inside) == pytest.approx(finding.p_adjusted)


def test_a_named_base_turns_the_sign(old, others):
    there = change(compare_audits({"old": old, "others": others}), "excess")
    back = change(compare_audits({"old": old, "others": others}, base="others"), "excess")
    assert back.change == pytest.approx(-there.change)
    assert back.audit == "old"


def test_a_metric_without_a_standard_error_is_shown_and_not_judged(old, others):
    data = copy.deepcopy(others.to_dict())
    estimate = data["evidence"]["cec"]
    estimate["value"], estimate["standard_error"], estimate["note"] = None, None, "not estimated: 3 people"
    found = change(compare_audits({"old": old, "others": data}), "excess")
    assert math.isnan(found.p_value)
    assert found.verdict == "not known"
    assert found.sentence == "Excess: whether it changed is not known (not estimated: 3 people)."
    data["evidence"]["cec"]["note"] = ""
    assert "one of the audits has no standard error" in change(compare_audits({"a": old, "b": data}), "excess").note


def test_a_group_of_which_no_one_is_approved_has_a_ratio_with_a_note(old, others):
    data = copy.deepcopy(others.to_dict())
    data["outcome"]["groups"][1]["positive_rate"] = 0.0
    found = change(compare_audits({"old": old, "others": data}), "ratio: approval ratio, b over a")
    assert "half an approval added" in found.note
    assert found.verdict == "more than noise"


def test_the_json_has_no_nan_and_the_table_a_row_for_every_change(old, others, tmp_path):
    comparison = compare_audits({"old": old, "others": others})
    comparison.to_json(tmp_path / "comparison.json")
    data = json.loads((tmp_path / "comparison.json").read_text("utf-8"))
    assert data["schema"] == "evenhand.comparison/2"
    assert len(data["metrics"]) == len(comparison.metrics)
    assert data["metrics"][0]["verdict"] == comparison.metrics[0].verdict
    table = comparison.table()
    assert len(table) == len(comparison.metrics) + len(comparison.inputs) + len(comparison.features)
    assert table["metric"][0] == "score gap in log-odds, b minus a"
    assert [f["key"] for f in data["findings"]] == [f.key for f in comparison.findings]
    assert data["headline"] == comparison.headline


def test_the_verdict_between_the_two_levels_says_that_many_metrics_were_looked_at(old, others):
    found = replace(change(compare_audits({"a": old, "b": others}), "excess"), p_value=0.03, p_adjusted=0.6)
    assert found.verdict == "not clearly more than noise"
    assert "among so many metrics (p = 0.600, adjusted)" in found.sentence


def test_more_than_two_groups_are_compared_with_the_reference_group_one_by_one(people):
    X, y, _ = people
    groups = np.array(["a", "b", "c"])[np.arange(200) % 3]
    comparison = compare_audits({"old": audited((X, y, groups)), "new": audited((X, y, groups), EXCHANGED)})
    keys = {c.key for c in comparison.metrics}
    reference = comparison.audits["old"]["outcome"]["approvals"]["reference"]
    for group in {"a", "b", "c"} - {reference}:
        assert f"gap: positive rate, {group} minus {reference}" in keys
        assert f"ratio: approval ratio, {group} over {reference}" in keys
    assert "excess: groups compared a - b" in keys
    # Everyone has two pairs here, and the metric is that of people, not of pairs.
    cec = change(comparison, "cec")
    assert cec.base_value == pytest.approx(comparison.audits["old"]["cec"]["mean"])
    assert cec.is_paired


# --- what is refused ---


def test_one_audit_is_nothing_to_compare(old):
    with pytest.raises(InvalidInputError, match="at least two audits to compare, got old"):
        compare_audits({"old": old})


def test_audits_need_names(old):
    with pytest.raises(InvalidTypeError, match="`audits` must map names to audits, got list"):
        compare_audits([old, old])


def test_a_base_that_is_no_audit_is_refused(old, others):
    with pytest.raises(InvalidInputError, match="`base` must be one of the audits, old and others, got 'oldest'"):
        compare_audits({"old": old, "others": others}, base="oldest")


def test_something_that_is_no_audit_is_refused(old):
    with pytest.raises(InvalidTypeError, match="The audit 'new' must be an AuditResult"):
        compare_audits({"old": old, "new": 3})


def test_a_file_that_is_not_there_is_refused(old, tmp_path):
    with pytest.raises(DataFileError, match=r"missing.json cannot be read \(No such file or directory\)"):
        compare_audits({"old": old, "new": tmp_path / "missing.json"})


def test_a_reference_that_is_no_group_is_refused(old):
    with pytest.raises(InvalidInputError, match="`reference` must be a group of the audit, a and b, got 'z'"):
        audit_metrics(old.to_dict(), "z")


def test_people_are_those_of_the_audit_in_order(people, old):
    found = people_of(old.to_dict(), old.pairs.sample(frac=1, random_state=0))
    assert (found.label == people[1]).all()
    assert (found.group == people[2]).all()
    assert len(found.label) == 200


def test_people_are_known_by_their_ids_where_both_audits_have_them(people):
    X, y, group = people
    ids = [f"a{k}" for k in range(len(y))]
    first = audited(people, ids=ids)
    renewed = audited((X.assign(f=X["f"] + 1e-3), y, group), ids=ids)
    assert is_same_people(first.to_dict()["data"], renewed.to_dict()["data"])
    others = audited(people, ids=[f"b{k}" for k in range(len(y))])
    assert not is_same_people(first.to_dict()["data"], others.to_dict()["data"])
    assert first.provenance.fingerprint == others.provenance.fingerprint  # of the same data
    assert is_same_people(first.to_dict()["data"], audited(people).to_dict()["data"])  # by the columns


@pytest.mark.parametrize(
    "edit", [lambda text: text[:-3], lambda text: text[:-4], lambda _: "!!!!", lambda text: "AHwA" + text[4:]]
)
def test_influences_that_were_edited_are_refused(edit):
    plain = Influences.of({"excess": np.ones(6), "weighing": np.arange(6.0), "inputs": np.ones(6)}).to_dict()
    with pytest.raises(DataFileError, match="The influences on weighing were cut or edited"):
        Influences.from_dict(plain | {"weighing": edit(plain["weighing"])})
