"""The evidence inside an audit, on models whose truth is known."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import nn

import evenhand as eh
from evenhand.exceptions import InvalidInputError
from evenhand.metrics import triples


def audited(strength, n=1500, seed=0, **options):
    planted = eh.make_planted_bias(n, strength, random_state=seed, **options)
    data = planted.dataset
    result = eh.audit(
        planted.model, data.X, data.y, sensitive_features=data.group, financial_features=data.financial_features
    )
    return planted, result


@pytest.fixture(scope="module")
def biased():
    return audited(1.0)


def test_planted_bias_is_found_and_its_size_is_said(biased):
    data = biased[1].to_dict()
    assert data["cec"]["p_value"] < 1e-4
    low, high = data["cec"]["excess_ci"]
    assert 0.05 < low < data["cec"]["excess"] < high
    assert {one["key"] for one in data["findings"] if one["answer"] == "yes"} >= {"excess", "weighing"}
    assert data["evidence"]["regime_b"]["p_value"] < 0.01
    assert data["evidence"]["reasoning_gap"]["p_value"] < 1e-4


def test_an_even_handed_model_shows_no_excess_though_its_cec_is_large():
    data = audited(0.0)[1].to_dict()
    assert data["cec"]["mean"] > 0.2
    assert data["regimes"]["B"] > 0.1
    assert abs(data["cec"]["excess"]) < 1e-6
    assert data["cec"]["reasoning_gap"] < 1e-6
    assert data["cec"]["p_value"] > 0.05


def test_a_network_of_financial_features_only_has_no_excess_however_it_bends(rng):
    X = rng.normal(size=(400, 3))
    group = np.where(rng.random(400) < 0.3, "b", "a")
    X[group == "b"] += 1.0
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1))
    with torch.no_grad():
        model[-1].bias -= model(torch.tensor(X, dtype=torch.float32)).median()
    data = eh.audit(
        model, X, rng.integers(0, 2, 400), sensitive_features=group, financial_features=["x0", "x1", "x2"]
    ).to_dict()
    assert data["cec"]["reasoning_gap"] > 0.02
    assert abs(data["cec"]["excess"]) < 1e-6
    assert data["cec"]["p_value"] > 0.05


def test_triples_taken_a_few_at_a_time_give_the_same_evidence(biased, monkeypatch):
    monkeypatch.setattr(triples, "_ROWS_AT_ONCE", 1000)
    again = audited(1.0)[1].to_dict()["evidence"]
    whole = biased[1].to_dict()["evidence"]
    names = ["value", "standard_error", "df"]
    for one, other in ((again["cec"], whole["cec"]), (again["regime_b"], whole["regime_b"])):
        assert [one[name] for name in names] == pytest.approx([other[name] for name in names], rel=1e-9)
    found, expected = ({f["feature"]: f["estimate"]["standard_error"] for f in e["features"]} for e in (again, whole))
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_contributions_of_the_features_sum_to_the_excess(biased):
    evidence = biased[1].evidence
    assert sum(f.estimate.value for f in evidence.features) == pytest.approx(evidence.cec.value, abs=1e-6)
    assert biased[1].features["excess"].sum() == pytest.approx(evidence.cec.value, abs=1e-6)


def test_weights_that_differ_are_found_with_their_direction(biased):
    planted, result = biased
    names = list(planted.feature_names)
    first, second = planted.weights
    rows = {w.feature: w for w in result.evidence.weights}
    pair = next(iter(rows.values()))
    assert (pair.group, pair.other_group) == ("group 0", "group 1")
    for name in ("credit_score", "income", "employment_history", "collateral"):
        truth = first[names.index(name)] - second[names.index(name)]
        estimate = rows[name].estimate
        assert np.sign(estimate.value) == np.sign(truth)
        assert estimate.low > 0 or estimate.high < 0


def test_the_placebo_of_each_person_and_the_list_of_people(biased):
    result = biased[1]
    with_placebo = result.pairs["placebo_cec"].notna()
    assert with_placebo.mean() == pytest.approx(result.evidence.common_support)
    flagged = result.pairs["q_value"] <= 0.05
    assert flagged.any()
    assert result.pairs.loc[flagged, "cec"].mean() > result.pairs["cec"].mean()


@pytest.mark.slow
def test_the_list_of_people_is_empty_when_there_is_nothing_to_find():
    n_with_discoveries = 0
    for seed in range(12):
        pairs = audited(0.0, n=400, seed=seed, n_onehot=2)[1].pairs
        n_with_discoveries += bool((pairs["q_value"] <= 0.05).any())
    assert n_with_discoveries <= 3  # 5 % of 12 at most, with room for chance


def test_cases_show_the_two_side_by_side(biased):
    planted, result = biased
    cases = result.cases(3)
    assert len(cases) == 3 * planted.dataset.X.shape[1]
    assert cases["q_value"].is_monotonic_increasing
    first = cases.iloc[0]
    column = planted.dataset.X[first["feature"]]
    assert first["value"] == column.iloc[first["person"]]
    assert first["match_value"] == column.iloc[first["match"]]
    table = result.reasons().set_index("person").filter(like="reason_")
    reasons = {person: row.dropna().tolist() for person, row in table.iterrows()}
    for person, case in result.cases(20).groupby("person"):
        for who, column in ((person, "reason"), (case["match"].iloc[0], "match_reason")):
            places = case.dropna(subset=column).sort_values(column)["feature"].tolist()
            assert places == reasons.get(who, [])
        signed = eh.cec_scores([case["attribution"].to_numpy()], [case["match_attribution"].to_numpy()])[0]
        assert signed == pytest.approx(case["cec"].iloc[0], abs=1e-5)


def test_splits_cover_group_label_decision_and_user_columns():
    planted = eh.make_planted_bias(900, 0.8, random_state=1)
    data = planted.dataset
    by = {"state": np.tile(["NY", "CA", None], 300)}
    result = eh.audit(
        planted.model, data.X, data.y, sensitive_features=data.group, financial_features=data.financial_features, by=by
    )
    values = {(s.split, s.value) for s in result.evidence.splits}
    assert {("group", "group 0"), ("label", "favorable"), ("decision", "favorable"), ("state", "(missing)")} <= values
    for split in result.evidence.splits:
        assert split.p_adjusted >= split.estimate.p_value
    assert set(result.to_dict()["outcome"]["segments"]) == {"state"}


def test_one_column_to_split_by_keeps_its_name():
    planted = eh.make_planted_bias(300, 0.5, random_state=2)
    data = planted.dataset
    kwargs = {"sensitive_features": data.group, "financial_features": data.financial_features}
    half = pd.Series(np.tile(["x", "y"], 150), name="half")
    result = eh.audit(planted.model, data.X, data.y, by=half, **kwargs)
    assert {s.value for s in result.evidence.splits if s.split == "half"} == {"x", "y"}
    with pytest.raises(InvalidInputError, match="`by` has 2 values for 300 rows"):
        eh.audit(planted.model, data.X, data.y, by=["x", "y"], **kwargs)


def test_more_than_two_groups_are_compared_pair_by_pair(rng):
    X = pd.DataFrame(rng.normal(size=(600, 4)), columns=list("abcd"))
    group = np.repeat(["p", "q", "r"], 200)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    nn.init.normal_(model[-1].weight, std=3.0)
    with torch.no_grad():
        model[-1].bias -= model(torch.tensor(X.to_numpy(), dtype=torch.float32)).median()
    result = eh.audit(model, X, rng.integers(0, 2, 600), sensitive_features=group, financial_features=["a", "b"])
    compared = {s.value for s in result.evidence.splits if s.split == "groups compared"}
    assert compared == {"p - q", "p - r", "q - r"}
    assert len(result.evidence.weights) == 3 * 4
    largest = max(s.estimate.value for s in result.evidence.splits if s.split == "groups compared")
    assert result.evidence.worst_pair.estimate.value == largest


def test_groups_without_a_triple_are_shown_as_such(rng):
    X = pd.DataFrame(rng.normal(size=(202, 3)), columns=list("abc"))
    y = np.r_[np.tile([0, 1], 100), 0, 1]
    group = np.concatenate([np.repeat(["p", "q"], 100), ["tiny", "tiny"]])
    model = nn.Linear(3, 1)
    nn.init.zeros_(model.bias)
    nn.init.constant_(model.weight, -1.0)
    result = eh.audit(model, X, y, sensitive_features=group, financial_features=["a"])
    tiny = next(s for s in result.evidence.splits if (s.split, s.value) == ("group", "tiny"))
    assert np.isnan(tiny.estimate.value)
    assert "not estimated" in tiny.estimate.note


def test_a_separate_reference_gives_evidence_too():
    planted = eh.make_planted_bias(2000, 1.0, random_state=3)
    data = planted.dataset
    train, test = np.arange(1000), np.arange(1000, 2000)
    result = eh.audit(
        planted.model, data.X.iloc[test], data.y[test], sensitive_features=data.group[test],
        financial_features=data.financial_features,
        reference=(data.X.iloc[train], data.y[train], data.group[train]),
    )  # fmt: skip
    assert result.evidence.cec.p_value < 1e-3


def test_sensitivity_to_distance_and_number_of_matches(biased):
    evidence = biased[1].evidence
    assert [k for k, _ in evidence.by_matches] == [1, 2, 3, 4]
    # The main estimate has farther triples, too, and is the more precise for it.
    assert evidence.by_matches[-1][1].standard_error > evidence.cec.standard_error
    assert evidence.by_distance[-1][1].value == pytest.approx(evidence.cec.value)
    assert all(e.p_value < 0.05 for _, e in evidence.by_matches)


def test_an_audit_without_evidence_says_so():
    planted = eh.make_planted_bias(300, 1.0, random_state=0)
    data = planted.dataset
    result = eh.audit(
        planted.model, data.X, data.y, sensitive_features=data.group, financial_features=data.financial_features,
        evidence=False,
    )  # fmt: skip
    assert result.evidence is None
    assert result.to_dict()["evidence"] is None
    assert "excess" not in result.to_dict()["cec"]
    assert result.pairs["placebo_cec"].isna().all()
    assert len(result.cases(2)) == 2 * data.X.shape[1]


def test_too_few_people_are_nan_with_the_reason(rng):
    X = rng.normal(size=(12, 3))
    model = nn.Linear(3, 1)
    nn.init.zeros_(model.bias)
    result = eh.audit(
        model, X, np.tile([0, 1], 6), sensitive_features=np.repeat(["a", "b"], 6), financial_features=["x0"]
    )
    assert np.isnan(result.evidence.cec.value)
    assert "not estimated" in result.evidence.cec.note
    assert any("not estimated" in w for w in result.warnings)


def test_leaving_a_financial_feature_out(biased):
    planted = eh.make_planted_bias(500, 1.0, random_state=0)
    data = planted.dataset
    table = eh.sensitivity(
        planted.model, data.X, data.y, sensitive_features=data.group, financial_features=["income", "credit_score"]
    )
    assert table["left_out"].tolist() == ["none", "income", "credit_score"]
    assert (table["median_distance"].iloc[1:] < table["median_distance"].iloc[0]).all()
    assert (table["low"] <= table["excess"]).all()
    roles = {"sensitive_features": data.group, "financial_features": ["income", "credit_score"]}
    gap = eh.audit(planted.model, data.X, data.y, **roles).evidence.largest_score_gap
    first = table.iloc[0]
    assert (first["group"], first["reference"]) == (gap.group, gap.reference)
    assert first["score_gap":"score_gap_p_value"].tolist() == [
        *(gap.total.value, gap.total.low, gap.total.high, gap.total.p_value)
    ]
    assert table["score_gap"].nunique() == 3
    with pytest.raises(InvalidInputError, match="At least two financial features"):
        eh.sensitivity(planted.model, data.X, data.y, sensitive_features=data.group, financial_features=["income"])


def test_an_excess_that_depends_on_one_choice_is_named(biased):
    from dataclasses import replace

    evidence = replace(biased[1].evidence, by_distance=(), by_matches=((1, biased[1].evidence.cec),))
    assert evidence.depends_on == ()
    far = replace(evidence.cec, value=evidence.cec.value + 5 * evidence.cec.standard_error)
    changed = replace(evidence, by_matches=((1, far),))
    assert changed.depends_on == ("the nearest 1 triples of each person",)
    assert replace(evidence, cec=replace(evidence.cec, value=float("nan"))).depends_on == ()


def test_weights_that_do_not_differ_at_all_have_a_p_value_of_1():
    """A linear model has the same weights for everyone: exactly 0, without an error."""
    data = eh.load_dataset("synthetic", n=200)
    torch.manual_seed(0)
    result = eh.audit(torch.nn.Linear(data.X.shape[1], 1), data.X, data.y, sensitive_features=data.group,
                      financial_features=data.financial_features)  # fmt: skip
    weights = result.to_dict()["evidence"]["weights"]
    assert weights
    assert {(w["estimate"]["value"], w["estimate"]["standard_error"], w["estimate"]["p_value"]) for w in weights} == {
        (0.0, 0.0, 1.0)
    }


def test_trees_that_split_at_the_mean_of_a_cell_raise_no_alarm():
    """Left out of the mean alone, each placebo pushes its own baseline over the split: ten standard errors."""
    rng = np.random.default_rng(9)
    columns = ["income", "debt", "owner", "tenure"]

    def drawn(n):
        X = pd.DataFrame(rng.normal(size=(n, 4)), columns=columns)
        return X.assign(owner=(X["owner"] > 0).astype(float))

    X = drawn(2000)
    score = X["income"] - X["debt"] + 2 * X["owner"] + X["tenure"] - 1
    trees = HistGradientBoostingClassifier(max_iter=30, max_leaf_nodes=6).fit(X, score + rng.logistic(size=2000) > 0)
    y, group = np.tile([0, 0, 1, 1], 100), np.tile([0, 1], 200)
    for _ in range(3):
        people = drawn(400)
        for cell in range(4):
            rows = rng.permutation(np.flatnonzero(2 * y + group == cell))
            people.loc[rows, "owner"] = np.arange(100) % 2.0  # a mean of one half, where the trees split
        found = eh.audit(
            trees,
            people,
            y,
            sensitive_features=group,
            financial_features=["income", "debt"],
            favorable="high",
        ).evidence.cec
        assert abs(found.value) < 4 * found.standard_error


@pytest.mark.filterwarnings("ignore::evenhand.EvenhandWarning")  # few people
def test_what_would_have_been_found_follows_the_shuffles_also_for_two_people():
    data = eh.make_planted_bias(400, 0.0, random_state=0)
    X, y, group = data.dataset.X, data.dataset.y, np.asarray(data.dataset.group)
    few = np.r_[np.flatnonzero(group == group[0])[:60], np.flatnonzero(group != group[0])[:2]]
    rng = np.random.default_rng(0)
    X = X.assign(other=rng.normal(size=400).astype(np.float32))
    result = eh.audit(
        data.model, X.iloc[few], y[few], sensitive_features=group[few], financial_features=["credit_score"]
    )
    total = result.to_dict()["score_gaps"][0]["total"]
    # Reshuffling knows the variance: two people are no reason for Student's t with one degree of freedom.
    assert 2 < total["detectable"] / total["standard_error"] < 3.5
