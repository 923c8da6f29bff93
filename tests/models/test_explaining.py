"""Explainers, and as many segments of paths and orders of inputs as their error needs."""

import importlib
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import nn

import evenhand as eh
from evenhand.attribution.gradients import attribute
from evenhand.exceptions import InvalidInputError
from evenhand.models.dispatch import as_audited_model
from evenhand.models.explaining import ERROR, MOST_SEGMENTS, Explainer, HalvedExplainer, needed_segments
from evenhand.models.gradient import DifferentiableModel
from evenhand.models.scoring import score_pairs
from evenhand.training.network import StackedNetwork


@pytest.fixture
def pool():
    """People of four cells, a fifth of whose values is missing, and trees that take that."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    X[rng.random(X.shape) < 0.2] = np.nan
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    labels = rng.integers(0, 2, 60)
    groups = rng.integers(0, 2, 60)
    model = as_audited_model(HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=3).fit(table, labels))
    return model, model.encode(table), labels, groups


def test_people_are_counted_by_cell(pool):
    model, x, labels, groups = pool
    baselines = Explainer.of(model, x, labels, groups).baselines
    assert baselines.sizes.tolist() == [int((labels * 2 + groups == cell).sum()) for cell in range(4)]


def test_triples_are_explained_from_the_half_of_the_cell_without_the_placebo(pool):
    """Brute force: the mean of those of the person's cell who are in the other half than the placebo."""
    model, x, labels, groups = pool
    cells = labels * 2 + groups
    half = np.random.default_rng(1).integers(0, 2, len(x))
    halved = HalvedExplainer.of(Explainer.of(model, x, labels, groups), x, labels, groups, half)
    person, match = np.arange(20), np.arange(20, 40)
    placebo = np.array([np.flatnonzero(cells == cells[i])[i % 3] for i in person])
    seen = halved.see(x, cells, x, person, match, placebo)
    for k, i in enumerate(person):
        members = x[(cells == cells[i]) & (half != half[placebo[k]])]
        for who, row in ((seen.person, i), (seen.match, match[k]), (seen.placebo, placebo[k])):
            found = who[slice(k, k + 1)]
            np.testing.assert_allclose(found.baseline[0], np.nanmean(members, axis=0), rtol=1e-6)
            np.testing.assert_allclose(found.x[0], x[row], equal_nan=True)


@pytest.mark.parametrize("is_pool", [True, False])
def test_whoever_is_in_several_triples_is_explained_once_from_each_half(pool, is_pool, monkeypatch):
    model, x, labels, groups = pool
    cells = labels * 2 + groups
    half = np.random.default_rng(1).integers(0, 2, len(x))
    halved = HalvedExplainer.of(Explainer.of(model, x, labels, groups), x, labels, groups, half)
    people = x if is_pool else x.copy()
    rng = np.random.default_rng(2)
    person, match = np.repeat(np.arange(20), 4), rng.integers(0, len(x), 80)
    placebo = np.array([rng.choice(np.flatnonzero(cells == cells[i])) for i in person])
    asked = []
    explain = Explainer.explain
    monkeypatch.setattr(Explainer, "explain", lambda self, z, c: asked.append(len(z)) or explain(self, z, c))
    seen = halved.see(people, cells, x, person, match, placebo)
    halves = halved.cells(cells[person], placebo).tolist()
    own, others = ({*zip(rows, halves, strict=True)} for rows in (person, match))
    others |= {*zip(placebo, halves, strict=True)}
    assert sum(asked) == (len(own | others) if is_pool else len(own) + len(others))
    alone = explain(halved.explainer, x[match], halves)
    assert np.array_equal(seen.match[slice(None)].values, alone.values)


def test_a_half_with_no_one_has_no_baseline(pool):
    model, x, labels, groups = pool
    halved = HalvedExplainer.of(Explainer.of(model, x, labels, groups), x, labels, groups, np.zeros(len(x), dtype=int))
    assert not halved.has_baseline(labels * 2 + groups, np.arange(len(x))).any()


def test_a_row_is_explained_once_from_each_cell(pool):
    model, x, labels, groups = pool
    explainer = Explainer.of(model, x, labels, groups)
    rows = np.array([3, 5, 3, 3])
    cells = labels[rows] * 2 + np.array([0, 0, 1, 0])
    seen = explainer.see(x, rows, cells)
    assert len(seen.attribution.values) == 3
    alone = explainer.explain(x[rows], cells)
    assert np.array_equal(seen[slice(None)].values, alone.values)
    assert np.array_equal(explainer.knowing(x, labels).see(x, rows, cells)[slice(None)].values, alone.values)
    first, second = seen.split([1, 3])
    assert np.array_equal(np.concatenate([first.logit, second.logit]), alone.logit)


def test_an_empty_cell_has_no_baseline(pool):
    model, x, labels, groups = pool
    kept = labels + groups < 2
    explainer = Explainer.of(model, x[kept], labels[kept], groups[kept])
    assert explainer.has_baseline(np.arange(4)).tolist() == [True, True, True, False]
    assert np.isnan(explainer.baselines.rows[3]).all()
    assert np.isfinite(explainer.explain(x, np.full(len(x), 3)).values).all()


def test_a_stack_is_explained_as_its_members_are():
    stack = StackedNetwork(3, hidden=(8, 4), seeds=(0, 1))
    nets = DifferentiableModel(stack.layout.networks(stack.flat.detach()), "stack")
    rng = np.random.default_rng(0)
    x, labels = torch.as_tensor(rng.normal(size=(40, 3)), dtype=torch.float32), rng.integers(0, 2, 40)
    groups, person, rows = rng.integers(0, 2, 40), np.arange(40), rng.permutation(40)
    cells = labels * 2 + groups
    explainer = Explainer.of(nets, x, labels, groups)
    ((_, together),) = score_pairs(explainer, explainer.explain(x, cells), person, explainer.see(x, rows, cells))
    for k in range(2):
        one = replace(explainer, model=DifferentiableModel(stack.member(k), "member"))
        ((_, alone),) = score_pairs(one, one.explain(x, cells), person, one.see(x, rows, cells))
        for name in ("cec", "input_gap", "reasoning_gap", "contributions", "is_negligible"):
            torch.testing.assert_close(getattr(together, name)[k], getattr(alone, name), atol=1e-6, rtol=1e-5)


def explained_people(network, x, labels, groups):
    model = DifferentiableModel(network, "network")
    return Explainer.of(model, x, labels, groups), x, labels * 2 + groups


def mean_error(network, explainer, x, cells, n):
    """Of everyone, against the exact integral."""
    starts = explainer.baselines.rows[torch.as_tensor(cells)]
    with torch.no_grad():
        exact = attribute(network, x, starts, method="exact").values
        found = attribute(network, x, starts, n).values
    return float(((found - exact).norm(dim=1) / exact.norm(dim=1)).mean())


def random_people(network_seed, hidden, scale=1.0, d=8, n=2000):
    rng = np.random.default_rng(network_seed)
    x = torch.as_tensor(rng.normal(size=(n, d)))
    torch.manual_seed(network_seed)
    widths = (d, *hidden, 1)
    layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]
    network = nn.Sequential(*layers[:-1]).double()
    with torch.no_grad():
        for layer in network[::2]:
            layer.weight *= scale
            layer.bias += scale  # most units stay on, so that a few segments do
    return network, x, rng.integers(0, 2, n), rng.integers(0, 2, n)


@pytest.mark.parametrize("hidden", [(16,), (64, 32, 16)])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_the_bound_holds_on_random_networks(hidden, seed, scale):
    network, *people = random_people(seed, hidden, scale)
    explainer, x, cells = explained_people(network, *people)
    chosen = needed_segments(explainer, x, cells)
    true = mean_error(network, explainer, x, cells, chosen.n)
    assert true <= chosen.error
    assert chosen.error <= max(3 * true, 1e-12)  # and is not far above
    assert chosen.error <= ERROR or chosen.n == MOST_SEGMENTS
    given = needed_segments(explainer, x, cells, 3)
    assert given.n == 3
    assert mean_error(network, explainer, x, cells, 3) <= given.error


@pytest.mark.parametrize("name", ["german", pytest.param("taiwan", marks=pytest.mark.slow)])
@pytest.mark.parametrize("encoding", ["ordinal", pytest.param("onehot", marks=pytest.mark.slow)])
def test_the_bound_holds_on_trained_networks(name, encoding):
    data = eh.load_dataset(name)
    rows = np.random.default_rng(0).permutation(len(data.X))[:2000]
    X, y, group = data.X.iloc[rows], np.asarray(data.y)[rows], np.asarray(data.group)[rows]
    model = eh.CECClassifier(
        financial_features=data.financial_features,
        cec_weight=0,
        equalized_odds_weight=0,
        encoding=encoding,
        epochs=15,
    ).fit(X, y, sensitive_features=group)
    network, x = model.network_.double(), torch.as_tensor(model.encoder_.transform(X)).double()
    explainer, x, cells = explained_people(network, x, y.astype(np.int64), np.unique(group, return_inverse=True)[1])
    chosen = needed_segments(explainer, x, cells)
    true = mean_error(network, explainer, x, cells, chosen.n)
    assert true <= chosen.error <= 1.5 * true
    # Never further from the integral than eight segments promised: 0.1%, or what eight give.
    assert true <= max(ERROR, mean_error(network, explainer, x, cells, MOST_SEGMENTS))


def test_a_linear_network_needs_the_fewest_segments():
    explainer, x, cells = explained_people(*random_people(0, ()))
    assert needed_segments(explainer, x, cells).n == 2
    assert needed_segments(explainer, x, cells).error < 1e-12


def test_a_module_that_is_not_a_chain_of_layers_keeps_its_steps():
    class Residual(nn.Module):
        def forward(self, z):
            return (z + z.tanh()).sum(-1)

    _, *people = random_people(0, ())
    found = needed_segments(*explained_people(Residual(), *people))
    assert (found.n, found.error) == (MOST_SEGMENTS, None)


def test_an_audit_reports_the_segments_and_their_error():
    network, x, y, group = random_people(0, (32, 16), 1.0, n=400)
    with torch.no_grad():
        network[-1].bias -= network(x).median()
    arguments = {"sensitive_features": group, "financial_features": ["x0", "x1"], "evidence": False}
    found = eh.audit(network, x.numpy(), y, **arguments).to_dict()
    assert found["settings"]["n_steps"] in range(2, 9)
    assert found["data"]["integration_error"] <= ERROR
    finer = eh.audit(network, x.numpy(), y, **arguments, options=eh.AuditOptions(n_steps=16)).to_dict()
    assert finer["settings"]["n_steps"] == 16
    assert finer["data"]["integration_error"] < found["data"]["integration_error"]


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
        options=eh.AuditOptions(output="probability", **settings),
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
