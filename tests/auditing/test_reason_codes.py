"""Reasons of declined people: from attributions and from given codes."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.auditing.options import AuditOptions
from evenhand.auditing.reasons import reasons_of_codes
from evenhand.exceptions import InvalidInputError
from evenhand.matching.pairs import match_pairs
from evenhand.matching.placebos import placebo_pairs
from evenhand.metrics.reason_codes import rank_overlap, shared_share

FINANCIAL = ["income", "debt"]
MAP = {"Ability to pay": ["income", "debt"], "History": ["late", "years"], "*": "Other"}


def people(n=400, seed=0, n_groups=2):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 6)), columns=["income", "debt", "late", "years", "shoe", "street"])
    eta = X["income"] - X["debt"] - 0.8 * X["late"] + 0.5 * X["years"] + 0.3 * X["street"]
    y = (rng.logistic(size=n) < eta).astype(int)
    return X, y.to_numpy(), np.array(list("abcd"))[rng.integers(0, n_groups, n)]


@pytest.fixture(scope="module")
def linear():
    X, y, group = people()
    model = LogisticRegression().fit(X, y)
    result = eh.audit(model, X, y, sensitive_features=group, financial_features=FINANCIAL, reason_map=MAP)
    return model, X, y, group, result


def by_hand(model, X, reasons, k=4):
    """Principal reasons of a linear model, person by person: weight times distance from the mean of approved people."""
    approved = model.predict_proba(X)[:, 1] >= 0.5
    parts = model.coef_[0] * (X - X[approved].mean())
    found = {}
    for person in np.flatnonzero(~approved):
        pulls = {reason: parts.iloc[person][list(features)].sum() for reason, features in reasons.items()}
        down = sorted((pull, place, name) for place, (name, pull) in enumerate(pulls.items()) if pull < 0)
        total = sum(pull for pull, _, _ in down)
        found[person] = [(name, pull / total) for pull, _, name in down[:k]]
    return found


def test_reasons_of_a_linear_model_are_its_weights_times_distances_from_the_approved(linear):
    model, X, _, group, result = linear
    reasons = {"Ability to pay": FINANCIAL, "History": ["late", "years"], "Other": ["shoe", "street"]}
    expected, table = by_hand(model, X, reasons), result.reasons()
    assert table["person"].tolist() == list(expected)
    assert (table["group"] == group[table["person"]]).all()
    assert (table["decision"] == 0).all()
    for row in table.itertuples():
        names = [name for name in (row.reason_1, row.reason_2, row.reason_3, row.reason_4) if isinstance(name, str)]
        assert names == [name for name, _ in expected[row.person]]
        shares = [share for share in (row.share_1, row.share_2, row.share_3, row.share_4) if share == share]
        np.testing.assert_allclose(shares, [share for _, share in expected[row.person]], atol=1e-5)


def test_without_a_map_each_feature_is_a_reason(linear):
    model, X, y, group, _ = linear
    result = eh.audit(
        model, X, y, sensitive_features=group, financial_features=FINANCIAL, options=AuditOptions(n_reasons=2)
    )
    expected = by_hand(model, X, {name: [name] for name in X}, k=2)
    found = result.reasons()[["reason_1", "reason_2"]].to_numpy()
    assert [[r for r in row if isinstance(r, str)] for row in found] == [[n for n, _ in e] for e in expected.values()]
    assert result.settings["reason_map"] is None
    assert result.to_dict()["reasons"]["n_reasons"] == 2


def test_shared_reasons_are_counted_pair_by_pair(linear):
    result = linear[-1]
    table = result.reasons().set_index("person")[[f"reason_{k}" for k in range(1, 5)]]
    sets = {
        person: {r for r in row if isinstance(r, str)}
        for person, row in zip(table.index, table.to_numpy(), strict=True)
    }
    both = result.pairs[(result.pairs["decision"] == 0) & (result.pairs["match_decision"] == 0)]
    expected = [
        len(sets[p] & sets[m]) / max(len(sets[p]), len(sets[m]))
        for p, m in zip(both["person"], both["match"], strict=True)
    ]
    np.testing.assert_allclose(both["shared_reasons"], expected)
    assert result.pairs.drop(both.index)["shared_reasons"].isna().all()
    found = result.to_dict()["reasons"]
    assert found["shared"] == pytest.approx(np.mean(expected))
    assert found["n_pairs"] == len(both) > 20


def test_the_baseline_is_the_same_for_every_group(linear):
    model, X, y, group, result = linear
    swapped = eh.audit(
        model,
        X,
        y,
        sensitive_features=np.random.default_rng(1).permutation(group),
        financial_features=FINANCIAL,
        reason_map=MAP,
        evidence=False,
    )
    columns = [name for name in result.reasons() if name != "group"]
    pd.testing.assert_frame_equal(swapped.reasons()[columns], result.reasons()[columns])


def test_given_decisions_say_who_is_declined_and_who_the_baseline(linear):
    model, X, y, group, _ = linear
    decisions = (X["income"] > 0.3).astype(int).to_numpy()
    result = eh.audit(
        model, X, y, sensitive_features=group, financial_features=FINANCIAL, decisions=decisions, evidence=False
    )
    table = result.reasons()
    assert table["person"].tolist() == np.flatnonzero(decisions == 0).tolist()
    parts = model.coef_[0] * (X - X[decisions == 1].mean())
    assert (table["reason_1"] == parts.idxmin(axis=1).to_numpy()[table["person"]]).all()


def test_a_risk_has_the_reasons_of_the_favorable_outcome(linear):
    _, X, y, group, result = linear
    risk = LogisticRegression().fit(X, 1 - y)
    found = eh.audit(
        risk,
        X,
        1 - y,
        sensitive_features=group,
        financial_features=FINANCIAL,
        favorable="low",
        reason_map=MAP,
        evidence=False,
    )
    columns = [name for name in result.reasons() if not name.startswith("share")]
    pd.testing.assert_frame_equal(found.reasons()[columns], result.reasons()[columns])


def test_ids_stand_in_the_table(linear):
    model, X, y, group, _ = linear
    ids = [f"file {k}" for k in range(len(X))]
    result = eh.audit(model, X, y, sensitive_features=group, financial_features=FINANCIAL, ids=ids, evidence=False)
    table = result.reasons()
    assert table["person_id"].tolist() == [ids[k] for k in table["person"]]


def test_a_reference_of_its_own_gives_the_baseline(linear):
    model = linear[0]
    X, y, group = people(300, seed=1)
    pool = people(500, seed=2)
    result = eh.audit(
        model, X, y, sensitive_features=group, financial_features=FINANCIAL, reference=pool, evidence=False
    )
    approved = pool[0][model.predict_proba(pool[0])[:, 1] >= 0.5].mean()
    parts = model.coef_[0] * (X - approved)
    table = result.reasons()
    assert (table["reason_1"] == parts.idxmin(axis=1).to_numpy()[table["person"]]).all()


@pytest.mark.filterwarnings("ignore::evenhand.EvenhandWarning")
@pytest.mark.parametrize(("threshold", "note"), [(0.0, "no one is declined"), (1.0, "no one in the reference has a")])
def test_one_decision_for_all_leaves_no_reasons_and_says_why(linear, threshold, note):
    model, X, y, group, _ = linear
    result = eh.audit(model, X, y, sensitive_features=group, financial_features=FINANCIAL, decision_threshold=threshold)
    found = result.to_dict()["reasons"]
    assert found["note"].startswith(note)
    assert found["rates"] == []
    assert np.isnan(found["shared_excess"]["value"])


def test_a_bad_map_is_refused(linear):
    model, X, y, group, _ = linear
    with pytest.raises(InvalidInputError, match="no reason for 5 of 6 features: 'debt', 'late'"):
        eh.audit(model, X, y, sensitive_features=group, financial_features=FINANCIAL, reason_map={"income": "Income"})
    with pytest.raises(InvalidInputError, match=r"`n_reasons`.*whole number of at least 1, got 0"):
        AuditOptions(n_reasons=0)


def test_reasons_that_reveal_the_group_are_warned_of(linear):
    _, X, y, group, result = linear
    assert not any("Reasons of declined" in text for text in result.warnings)
    told = X.assign(sex=(group == "a").astype(float), marital_status=X["shoe"])
    model = LogisticRegression().fit(told, y)
    found = eh.audit(model, told, y, sensitive_features=group, financial_features=FINANCIAL, reason_map=MAP)
    (sentence,) = (text for text in found.warnings if "Reasons of declined" in text)
    assert "'sex' (Other), 'marital_status' (Other)" in sentence


@pytest.fixture(scope="module")
def biased():
    planted = eh.make_planted_bias(1000, strength=1.0, random_state=2)
    data = planted.dataset
    return eh.audit(
        planted.model, data.X, data.y, sensitive_features=data.group, financial_features=data.financial_features
    )


def test_different_standards_leave_less_in_common_than_placebo_pairs(biased):
    found = biased.to_dict()["reasons"]
    for name in ("shared", "rank_overlap"):
        excess = found[f"{name}_excess"]
        assert excess["high"] < 0
        assert excess["p_value"] < 0.001
        # The control moves the estimate little: the means differ by about the excess.
        assert found[f"compared_{name}"] - found[f"placebo_{name}"] == pytest.approx(excess["value"], abs=0.03)


def test_the_summary_has_one_excess_of_shared_reasons(biased):
    data = biased.to_dict()
    assert data["evidence"]["reason_overlap"] == data["reasons"]["shared_excess"]
    assert data["evidence"]["rank_overlap"] == data["reasons"]["rank_overlap_excess"]


@pytest.fixture(scope="module")
def coded():
    """Codes as a lender gives them, with pairs and triples of the same people."""
    X, y, group = people(600, seed=3, n_groups=3)
    rng = np.random.default_rng(4)
    codes = np.argsort(rng.random((600, 5)), axis=1)[:, :4]
    codes[rng.random(codes.shape) < 0.2] = -1
    decisions, groups = (X["income"] > 0).astype(int).to_numpy(), np.searchsorted(["a", "b", "c"], group)
    F = X[FINANCIAL].to_numpy()
    return codes, groups, decisions, match_pairs(F, y, groups), placebo_pairs(F, y, groups)


NAMES = ("AA01", "AA02", "AA03", "AA04", "AA05")


def tidy(row):
    return [code for code in dict.fromkeys(row.tolist()) if code >= 0]


def padded(rows):
    return np.array([[*row, *[-1] * (4 - len(row))] for row in rows])


def test_given_codes_are_counted_among_the_declined(coded):
    codes, groups, decisions, pairs, triples = coded
    found = reasons_of_codes(codes, NAMES, groups, ["a", "b", "c"], decisions, pairs=pairs, triples=triples)
    assert sum(found.declined.values()) == (decisions == 0).sum()
    for row in found.rates:
        code, group = NAMES.index(row.reason), "abc".index(row.group)
        lists = [tidy(c) for c in codes[(decisions == 0) & (groups == group)]]
        assert row.n == sum(code in (c[:1] if row.place == "first" else c) for c in lists)


def test_given_codes_agree_as_pairs_of_declined_people_do(coded):
    codes, groups, decisions, pairs, triples = coded
    found = reasons_of_codes(codes, NAMES, groups, ["a", "b", "c"], decisions, pairs=pairs, triples=triples)
    both = (pairs.match >= 0) & (decisions[pairs.person] == 0) & (decisions[pairs.match] == 0)
    first, second = (padded([tidy(codes[k]) for k in side[both]]) for side in (pairs.person, pairs.match))
    assert found.shared == pytest.approx(np.nanmean(shared_share(first, second)))
    assert found.rank_overlap == pytest.approx(np.nanmean(rank_overlap(first, second)))


def test_the_excess_of_given_codes_is_over_triples_of_three_declined_people(coded):
    codes, groups, decisions, pairs, triples = coded
    found = reasons_of_codes(codes, NAMES, groups, ["a", "b", "c"], decisions, pairs=pairs, triples=triples)
    sides = (triples.person, triples.other, triples.own)
    rows = np.flatnonzero(np.logical_and.reduce([decisions[side] == 0 for side in sides]))
    lists = [padded([tidy(codes[k]) for k in side[rows]]) for side in sides]
    pair, placebo = shared_share(lists[0], lists[1]), shared_share(lists[0], lists[2])
    table = pd.DataFrame({"person": triples.person[rows], "pair": pair, "placebo": placebo}).dropna()
    means = table.groupby("person").mean().mean()
    assert found.compared_shared == pytest.approx(means["pair"])
    assert found.placebo_shared == pytest.approx(means["placebo"])
    assert found.shared_excess.value == pytest.approx(means["pair"] - means["placebo"])
    assert found.shared_excess.n == table["person"].nunique()


def test_codes_from_attributions_give_the_tables_of_the_audit(linear):
    _, X, y, group, result = linear
    names = ("Ability to pay", "History", "Other")
    codes, decisions = np.full((len(X), 4), -1), np.ones(len(X), dtype=int)
    for row in result.reasons().itertuples():
        decisions[row.person] = 0
        given = [name for name in (row.reason_1, row.reason_2, row.reason_3) if isinstance(name, str)]
        codes[row.person, : len(given)] = [names.index(name) for name in given]
    groups = (group == "b").astype(int)
    F = result.table[FINANCIAL]
    found = reasons_of_codes(codes, names, groups, ["a", "b"], decisions, pairs=match_pairs(F, y, groups))
    expected = result.reason_codes
    assert [str(row) for row in found.rates] == [str(row) for row in expected.rates]  # NaN is NaN
    assert found.shared == pytest.approx(expected.shared)
    assert found.rank_overlap == pytest.approx(expected.rank_overlap)


def test_codes_that_do_not_fit_are_refused():
    with pytest.raises(InvalidInputError, match="codes up to 7 for 1 groups, 1 decisions and 2 names"):
        reasons_of_codes([[7]], ["a", "b"], [0], ["g"], [0])


def null_alarms(n_audits, seed, n=500):
    """Audits in which the group depends on finances alone, so that no one is given other reasons because of it."""
    found = []
    for k in range(n_audits):
        X, y, _ = people(n, seed=seed + k)
        rng = np.random.default_rng([seed, k])
        group = np.where(rng.random(n) < 1 / (1 + np.exp(0.5 - 0.8 * X["income"] + 0.4 * X["debt"] ** 2)), "a", "b")
        model = LogisticRegression().fit(*people(800, seed=10_000 + seed + k)[:2])
        reasons = eh.audit(model, X, y, sensitive_features=group, financial_features=FINANCIAL).reason_codes
        excesses = (reasons.shared_excess, reasons.rank_overlap_excess)
        found.append([[e.p_value <= 0.05, e.low > 0 or e.high < 0] for e in excesses])
    return np.array(found).sum(axis=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::evenhand.EvenhandWarning")
def test_false_alarms_are_about_five_in_a_hundred():
    # Of 200 with 5% each, fewer than 2 or more than 19 have a chance of 0.3%.
    alarms = null_alarms(200, seed=1000)
    assert (alarms >= 2).all()
    assert (alarms <= 19).all()
