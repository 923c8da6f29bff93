"""Sampled Shapley values take as many orders as their error needs, and say how far they have come."""

import importlib

import numpy as np
import pandas as pd
import pytest

import evenhand as eh
from evenhand.exceptions import InvalidInputError

auditing = importlib.import_module("evenhand.auditing.audit")  # the package has a function of the same name


@pytest.fixture(scope="module")
def wide():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(200, 10)), columns=list("abcdefghij"))
    return X, rng.integers(2, size=200), np.where(rng.random(200) < 0.5, "f", "m")


def rough(x):
    return 0.5 + 0.5 * np.tanh(x[:, :3].prod(axis=1) / 2 + x.sum(axis=1) / 2)


def smooth(x):
    return 1 / (1 + np.exp(-0.1 * x.sum(axis=1)))


def audited(score, wide, *, n_inputs=10, **settings):
    X, y, group = wide
    return eh.audit(
        score,
        X.iloc[:, :n_inputs],
        y,
        sensitive_features=group,
        financial_features=["a"],
        evidence=False,
        options=eh.AuditOptions(**settings),
    )


def test_a_score_that_is_harder_to_explain_gets_more_orders(wide):
    easy, hard = audited(smooth, wide), audited(rough, wide, sampling_error=0.1)
    assert easy.settings["n_permutations"] == 8 < hard.settings["n_permutations"]
    assert easy.provenance.attribution_error < 0.06
    assert hard.provenance.attribution_error < 0.13
    assert hard.settings["n_permutations"] == audited(rough, wide, sampling_error=0.1).settings["n_permutations"]


def test_a_smaller_error_takes_more_orders_up_to_a_limit(wide):
    counts = [audited(rough, wide, sampling_error=error).settings["n_permutations"] for error in (0.3, 0.1, 0.001)]
    assert counts == sorted(counts)
    assert counts[0] < counts[1]
    assert counts[-1] == 64


def test_few_inputs_are_explained_by_all_coalitions(wide):
    found = audited(lambda x: rough(np.column_stack([x, x])), wide, n_inputs=5)
    assert found.provenance.attribution_error is None


def test_a_number_of_orders_that_is_given_is_taken(wide):
    assert audited(smooth, wide, n_permutations=12).settings["n_permutations"] == 12


def test_models_that_are_not_sampled_have_no_orders(wide):
    import torch

    X, y, group = wide
    found = eh.audit(torch.nn.Linear(10, 1), X, y, sensitive_features=group, financial_features=["a"], evidence=False)
    assert found.settings["n_permutations"] is None


def test_an_error_that_is_no_share_is_refused():
    with pytest.raises(
        InvalidInputError, match=r"`sampling_error` \(--sampling-error\) must be a number between 0 and 1"
    ):
        eh.AuditOptions(sampling_error=0)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(auditing, "PATIENCE", 0.0)


def test_progress_is_shown_on_the_way(wide, capsys, impatient):
    X, y, group = wide
    people = {"sensitive_features": group, "financial_features": ["a"]}
    silent = eh.audit(smooth, X, y, **people)
    assert capsys.readouterr().err == ""
    shown = eh.audit(smooth, X, y, **people, progress=True)
    said = capsys.readouterr().err.splitlines()
    assert all(line.startswith("attributions, % ") for line in said)
    assert said[-1] == "attributions, % 100/100"
    pd.testing.assert_frame_equal(silent.pairs, shown.pairs)


def test_about_as_much_is_asked_as_was_expected(wide, monkeypatch):
    X, y, group = wide
    asked, expected = [], []
    count, watch = auditing.n_evaluations, auditing.watched
    monkeypatch.setattr(auditing, "n_evaluations", lambda *given: expected.append(count(*given)) or expected[-1])
    monkeypatch.setattr(auditing, "watched", lambda explainer, _: watch(explainer, asked.append))
    eh.audit(smooth, X, y, sensitive_features=group, financial_features=["a"], progress=True)
    assert 0.8 < sum(asked) / expected[-1] < 1.2


@pytest.mark.parametrize(("free", "is_said"), [(0, True), (2**50, False), (None, False)])
def test_too_little_memory_is_said_with_what_to_do(wide, monkeypatch, capsys, free, is_said):
    import torch

    X, y, group = wide
    monkeypatch.setattr(auditing, "available_memory", lambda: free)
    people = {"sensitive_features": group, "financial_features": ["a"], "evidence": False, "progress": True}
    eh.audit(torch.nn.Linear(10, 1), X, y, **people)
    assert ("use --stream" in capsys.readouterr().err) == is_said


def test_short_work_and_exact_models_say_nothing(wide, capsys):
    import torch

    X, y, group = wide
    people = {"sensitive_features": group, "financial_features": ["a"], "evidence": False, "progress": True}
    eh.audit(smooth, X, y, **people)
    eh.audit(torch.nn.Linear(10, 1), X, y, **people)
    assert capsys.readouterr().err == ""
