"""Applicants who apply twice, households, and the order of rows: what the audit makes of them."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

import evenhand as eh
from evenhand.exceptions import InvalidInputError

FINANCES = ["income", "debt", "history"]
OTHERS = ["purpose", "tenure", "region"]


def applicants(seed, n=300):
    """Rounded finances, so that many people have the same; a group that plays no part."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(np.hstack([rng.normal(size=(n, 3)).round(0), rng.normal(size=(n, 3))]), columns=FINANCES + OTHERS)
    y = (X.sum(axis=1) + rng.logistic(size=n) > 0).astype(int).to_numpy()
    return X, y, rng.integers(0, 2, n)


def network(seed=0):
    """A network that approves about half of the people."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    with torch.no_grad():
        model[0].bias.zero_()
        model[2].bias.zero_()
        model[2].weight.abs_().mul_(4)
        model[0].weight.abs_()  # more of anything is better, as it is for the label
    return model


def audited(model, X, y, group, **settings):
    return eh.audit(model, X, y, sensitive_features=group, financial_features=FINANCES, **settings)


def doubled(seed, nudge=0.0):
    X, y, group = applicants(seed)
    again = X.copy()
    again[OTHERS] += nudge * np.random.default_rng(seed + 1).normal(size=(len(X), 3))
    return pd.concat([X, again], ignore_index=True), np.tile(y, 2), np.tile(group, 2), np.tile(np.arange(len(X)), 2)


def statistics(result):
    found = result.to_dict()
    cec = found["cec"]
    names = ("excess", "p_value", "excess_balanced", "weighing_excess", "regime_b_excess")
    return {**{name: cec[name] for name in names}, "score_gap": found["score_gap"]["logit"]["value"]}


@pytest.mark.parametrize("n_each", [1, 2])
def test_estimates_do_not_depend_on_the_order_of_rows(n_each):
    X, y, group = applicants(0)
    X, y, group = pd.concat([X] * n_each, ignore_index=True), np.tile(y, n_each), np.tile(group, n_each)
    order = np.random.default_rng(1).permutation(len(X))
    model = network()
    first = statistics(audited(model, X, y, group))
    second = statistics(audited(model, X.iloc[order], y[order], group[order]))
    # Attributions are computed in single precision, in which rows of a matrix are multiplied in blocks.
    rounded = {name: first.pop(name) for name in ("p_value", "score_gap")}
    assert rounded == pytest.approx({name: second.pop(name) for name in rounded}, rel=1e-6)
    assert first == pytest.approx(second, abs=1e-9)


def test_a_row_that_repeats_another_counts_as_the_same_applicant():
    X, y, group, _ = doubled(0)
    result = audited(network(), X, y, group)
    said = [text for text in result.to_dict()["warnings"] if "have the same inputs" in text]
    assert said == [
        "600 of 600 rows (100.0%) have the same inputs as a different row. They are not compared with each other, and "
        "count as one applicant in the standard errors of pairs and score gaps, but not in those of approvals and "
        "errors. Pass `clusters` (--clusters) to say which rows are the same applicant."
    ]
    once = audited(network(), *applicants(0))
    # The same people: a second copy of everyone adds no information.
    assert result.evidence.cec.standard_error > 0.8 * once.evidence.cec.standard_error
    assert result.evidence.score_gaps[0].total.standard_error > 0.9 * once.evidence.score_gaps[0].total.standard_error


def test_clusters_say_who_is_who():
    X, y, group, applicant = doubled(0, nudge=0.01)
    result = audited(network(), X, y, group, clusters=applicant)
    assert any(
        "600 of 600 rows (100.0%) belong to an applicant with several rows" in w for w in result.to_dict()["warnings"]
    )
    alone = audited(network(), X, y, group)
    assert not any("rows (" in w for w in alone.to_dict()["warnings"])
    assert alone.evidence.cec.value > result.evidence.cec.value + 2 * result.evidence.cec.standard_error
    # Rows alike that the user says are different people are compared with each other.
    X, y, group, _ = doubled(0)
    apart = audited(network(), X, y, group, clusters=np.arange(600))
    assert apart.evidence.cec.p_value < 0.01


def test_people_outside_the_reference_are_recognized_in_it():
    X, y, group = applicants(0)
    model = network()
    reference = (X, y, group)
    inside = audited(model, X, y, group, reference=reference)
    assert any("300 of 300 rows" in text for text in inside.to_dict()["warnings"])
    same = audited(model, X, y, group)
    assert inside.evidence.cec.value == pytest.approx(same.evidence.cec.value, abs=1e-9)
    assert inside.evidence.cec.standard_error == pytest.approx(same.evidence.cec.standard_error, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("nudge", [0.0, 0.01])
def test_repeated_applicants_raise_no_alarm(nudge):
    """Alarms in 65 to 100% of such data sets where a person's own copy is taken for a placebo."""
    p_values, z_values = [], []
    for seed in range(30):
        X, y, group, applicant = doubled(100 + seed, nudge)
        settings = {"clusters": applicant} if nudge else {}
        found = audited(network(seed), X, y, group, **settings).evidence.cec
        p_values.append(found.p_value)
        z_values.append(found.value / found.standard_error)
    assert sum(p <= 0.05 for p in p_values) <= stats.binom.ppf(0.999, 30, 0.05)
    assert abs(np.mean(z_values)) < 4 / np.sqrt(30)


def test_wrong_clusters_are_refused():
    X, y, group = applicants(0)
    with pytest.raises(InvalidInputError, match="`clusters` has 3 values for 300 rows"):
        audited(network(), X, y, group, clusters=[1, 2, 3])
    with pytest.raises(InvalidInputError, match="`clusters` are needed for both the audited people and the reference"):
        audited(network(), X, y, group, clusters=np.arange(300), reference=(X, y, group))
