"""The paper's mode computes what the paper defines: compared with an implementation written from its text alone."""

import ast
import inspect
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import evenhand as eh
from evenhand.research.reproduction.protocol import ProtocolSettings, evaluate_network, prepare_folds
from evenhand.training import bce_loss, equalized_odds_loss

EXAMPLE = Path(__file__).parents[2] / "examples" / "paper_in_60_lines.py"


@pytest.fixture(scope="module")
def paper():
    return runpy.run_path(str(EXAMPLE))


def people_of(name):
    """Encoded people, labels, group codes, and rows of the audited people and of the training people."""
    data = eh.load_dataset(name, **({"n": 1200} if name == "synthetic" else {}))
    test, train = np.split(np.random.default_rng(0).permutation(len(data)), [300])
    encoder = eh.TableEncoder.fit(data.X.iloc[train], eh.PAPER.encoding)
    X = pd.DataFrame(encoder.transform(data.X).astype(np.float64), columns=encoder.encoded_names)
    a = np.unique(data.group.astype(str), return_inverse=True)[1]
    return X, data.y, a, list(data.financial_features), test, train


def network(width, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1)).double()


def audited(f, X, y, a, financial, test, train, **changes):
    return eh.audit(
        f,
        X.iloc[test],
        y[test],
        sensitive_features=a[test],
        financial_features=financial,
        reference=(X.iloc[train], y[train], a[train]),
        options=replace(eh.PAPER.audit, **changes),
    )


def test_the_example_has_sixty_lines():
    text = EXAMPLE.read_text("utf-8")
    about = ast.parse(text).body[0]
    code = [k for k, line in enumerate(text.splitlines(), 1) if line.strip() and k > about.end_lineno]
    assert len(code) == 60


@pytest.mark.parametrize(("name", "tau"), [("german", 0.0), ("german", 2.5), ("synthetic", 0.0)])
def test_an_audit_in_the_papers_mode_is_the_papers_formula_for_every_person(paper, name, tau):
    X, y, a, F, test, train = people_of(name)
    f = network(X.shape[1])
    x, x_F = torch.tensor(X.to_numpy()), X[F].to_numpy()
    C = paper["counterfactuals"](x_F[test], y[test], a[test], x_F[train], y[train], a[train], tau)
    is_matched = C >= 0
    assert is_matched.all() == (tau == 0)
    factual, x_cf = x[test][is_matched], x[train][C[is_matched]]
    b = paper["baselines"](x[train], y[train], a[train])[y[test], a[test]][is_matched]
    delta = paper["delta_CEC"](f, factual, x_cf, b).detach()
    regime = paper["regimes"](f, factual, x_cf, delta)

    result = audited(f, X, y, a, F, test, train, max_distance=tau or None)
    pairs, summary = result.pairs.query("match >= 0"), result.to_dict()
    np.testing.assert_array_equal(pairs["match"], C[is_matched])
    np.testing.assert_allclose(pairs["cec"], delta, atol=1e-12, rtol=0)
    np.testing.assert_array_equal(pairs["regime"], regime)
    assert summary["cec"]["mean"] == pytest.approx(float(delta.mean()), abs=1e-12)
    assert summary["regimes"] == pytest.approx({r: np.mean(regime == r) for r in "ABCD"}, abs=1e-12)
    assert summary["outcome"]["pfr"] == pytest.approx(np.isin(regime, ["C", "D"]).mean(), abs=1e-12)


def test_the_terms_of_the_loss_are_the_papers(paper):
    X, y, a, F, _, train = people_of("german")
    f, batch = network(X.shape[1]), train[:64]
    x, x_F = torch.tensor(X.to_numpy()), X[F].to_numpy()
    x_cf = x[train][paper["counterfactuals"](x_F[batch], y[batch], a[batch], x_F[train], y[train], a[train])]
    b = paper["baselines"](x[train], y[train], a[train])[y[batch], a[batch]]
    y_batch, a_batch = torch.tensor(y[batch]), torch.tensor(a[batch])
    theirs = paper["loss"](f, x[batch], y_batch, a_batch, x_cf, b, lambda_EO=0.7, lambda_CEC=1.3)
    logit = f(x[batch]).flatten()[None]
    own = bce_loss(logit, y_batch[None]) + 0.7 * equalized_odds_loss(logit, y_batch[None], a_batch[None], 2)[0]
    own = own + 1.3 * eh.cec_loss(f, x[batch], x_cf, b, method="midpoint", n_steps=32)
    torch.testing.assert_close(own[0], theirs, atol=1e-12, rtol=0)
    for one, other in zip(*(torch.autograd.grad(total.sum(), f.parameters()) for total in (own, theirs)), strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)


def test_an_audit_in_the_papers_mode_is_a_fold_of_the_reproduction():
    data = eh.load_dataset("german")
    settings = ProtocolSettings()
    fold = prepare_folds(data, settings).folds[0]
    f = network(fold.x_train.shape[1]).float()
    found = evaluate_network(fold, f, settings)
    X = pd.DataFrame(np.concatenate([fold.x_test, fold.x_train]), columns=data.X.columns)
    y, a = np.append(fold.y_test, fold.y_train), np.append(fold.group_test, fold.group_train)
    rows = np.split(np.arange(len(X)), [len(fold.y_test)])
    summary = audited(f, X, y, a, list(data.financial_features), *rows).to_dict()
    assert summary["cec"]["mean"] == pytest.approx(found["cec"], abs=1e-6)
    assert summary["regimes"]["B"] == pytest.approx(found["regime_b"], abs=1e-9)
    for key, name in {"auc": "auc", "f1": "f1", "eo_gap": "eo", "sp_gap": "sp", "pfr": "pfr"}.items():
        assert summary["outcome"][key] == pytest.approx(found[name], abs=1e-9)


def test_ties_go_to_the_lowest_row_only_in_the_papers_mode():
    X = pd.DataFrame({"income": [1.0, 1.0, 1.0, 2.0] * 2, "other": [3.0, 2.0, 1.0, 0.0, 7.0, 6.0, 5.0, 4.0]})
    y, a = np.array([0, 0, 0, 0, 1, 1, 1, 1]), np.array([0, 1, 1, 0] * 2)
    f = nn.Linear(2, 1).double()

    def matched(order, ties):
        """The other input of each person's match, in the order of `X`."""
        result = audited(f, X, y, a, ["income"], np.arange(8), order, ties=ties)
        return X["other"].to_numpy()[order][result.pairs["match"]][[0, 4]]

    rows = np.arange(8)
    assert matched(rows, "row").tolist() == [2.0, 6.0]
    assert matched(rows[::-1], "row").tolist() == [1.0, 5.0]
    assert matched(rows, "content").tolist() == matched(rows[::-1], "content").tolist()
    with pytest.raises(eh.EvenhandError, match=r"`ties` \(--ties\) must be 'content' or 'row', got 'first'"):
        eh.AuditOptions(ties="first")


def test_the_papers_mode_states_every_setting_of_the_papers_network():
    given = {"hidden": (128, 64), "dropout": 0.2, "epochs": 30, "learning_rate": 3e-4, "batch_size": 64}
    given |= {"cec_weight": 1.0, "equalized_odds_weight": 1.0, "n_steps": 32}
    assert {**eh.PAPER.training, **given} == eh.PAPER.training
    names = set(inspect.signature(eh.CECClassifier).parameters)
    assert set(eh.PAPER.training) < names
    with pytest.raises(TypeError):
        eh.PAPER.training["epochs"] = 1


def test_the_old_name_of_the_papers_objective_warns():
    import evenhand.training

    with pytest.warns(FutureWarning, match=r"`PAPER_SETTINGS` is now `evenhand\.PAPER\.training`"):
        old = evenhand.training.PAPER_SETTINGS
    assert set(old) == {"objective", "cec_weight", "equalized_odds_weight", "least_explained", "method", "n_steps"}
    assert old.items() <= dict(eh.PAPER.training).items()
    with pytest.raises(AttributeError, match="PAPER_SETTING"):
        _ = evenhand.training.PAPER_SETTING
