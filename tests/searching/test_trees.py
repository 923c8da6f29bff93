from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest

from evenhand.exceptions import InvalidInputError, MissingExtraError
from evenhand.models.files import load_model
from evenhand.searching import search
from evenhand.searching.space import candidates_of
from evenhand.searching.trees import make_tree_model, save_tree_model

pytestmark = pytest.mark.integration  # whole searches are trained


def candidate(**parameters):
    return candidates_of("trees", {name: [value] for name, value in parameters.items()}, None, 0)[-1]


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"income": rng.normal(size=200), "job": rng.choice(["a", "b", None], 200), "age": rng.random(200)}
    )
    return frame, (frame["income"] + (frame["job"] == "a") + 0.3 * rng.normal(size=200) > 0).astype(int)


@pytest.mark.filterwarnings("ignore:.*too short to have a direction:evenhand.exceptions.EvenhandWarning")
def test_a_search_over_trees_finds_fits_and_audits_one(given):
    result = search(
        **given,
        family="trees",
        space={"max_leaf_nodes": [4], "max_iter": [15], "drop": [(), ("group",)], "monotone": [(), {"income": 1}]},
        keep=["auc >= best - 0.2"],
        minimize="excess",
    )
    assert len(result.tried) == 4
    assert sum(c.is_unconstrained for c in result.tried) == 1
    assert all(np.isfinite(values).all() for values in result.metrics.values())
    dropped = [k for k, c in enumerate(result.tried) if c.parameters["drop"] == ["group"]]
    # Trees that never see the group, matched on all they do see, have no excess.
    assert np.abs(result.metrics["excess"][dropped].mean(1)).max() < result.metrics["excess"][0].mean()
    audit = result.audit(evidence=False)
    assert audit.provenance.n_people == 400


def test_columns_that_are_dropped_play_no_part(table):
    X, y = table
    model = make_tree_model(candidate(drop=("age",), max_iter=5), X, 0).fit(X, y)
    changed = X.assign(age=0.0)
    np.testing.assert_array_equal(model.predict_proba(X), model.predict_proba(changed))


def test_monotone_constraints_hold(table):
    X, y = table
    model = make_tree_model(candidate(monotone={"income": -1}, max_iter=20), X, 0).fit(X, y)
    rising = pd.DataFrame({"income": np.linspace(-2, 2, 50), "job": "a", "age": 0.5})
    assert (np.diff(model.predict_proba(rising)[:, 1]) <= 1e-12).all()


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_other_libraries_are_taken_where_they_are_installed(table, library):
    pytest.importorskip(library)
    X, y = table
    model = make_tree_model(candidate(library=library, max_iter=5, monotone={"income": 1}), X, 0).fit(X, y)
    assert model.predict_proba(X).shape == (200, 2)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"drop": ("agee",)}, r"`drop` names columns absent from the data: \['agee'\]. Did you mean 'age'\?"),
        ({"drop": ("income", "job", "age")}, "`drop` leaves no column"),
        ({"monotone": {"incme": 1}}, r"`monotone` names columns absent from the data: \['incme'\]"),
        ({"monotone": {"income": 2}}, "`monotone` must map columns to 1, -1 or 0"),
        ({"library": "catboost"}, r"`library` must be one of \['sklearn', 'xgboost', 'lightgbm'\], got 'catboost'"),
    ],
)
def test_trees_that_cannot_be_made_are_refused(table, parameters, message):
    with pytest.raises(InvalidInputError, match=message):
        make_tree_model(candidate(**parameters), table[0], 0)


def test_a_library_that_is_not_installed_is_named(table, monkeypatch):
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(InvalidInputError, match="library='xgboost' needs the package 'xgboost': pip install xgboost"):
        make_tree_model(candidate(library="xgboost"), table[0], 0)


@pytest.mark.parametrize("name", ["folder", "trees.skops"])
def test_trees_are_saved_and_come_back_with_their_codes(table, tmp_path, name):
    X, y = table
    model = make_tree_model(candidate(drop=("age",), monotone={"income": 1}, max_iter=5), X, 0).fit(X, y)
    path = save_tree_model(model, tmp_path / name)
    assert path == (tmp_path / "folder" / "model.skops" if name == "folder" else tmp_path / name)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    unseen = X.assign(job="unseen")
    for people in (X, unseen):
        np.testing.assert_array_equal(load_model(path).predict_proba(people), model.predict_proba(people))


def test_trees_of_other_libraries_are_left_to_the_user(table, tmp_path):
    pytest.importorskip("lightgbm")
    X, y = table
    model = make_tree_model(candidate(library="lightgbm", max_iter=2), X, 0).fit(X, y)
    with pytest.raises(InvalidInputError, match="The chosen trees are of lightgbm, and only those of scikit-learn"):
        save_tree_model(model, tmp_path)


def test_trees_are_not_saved_without_skops(table, tmp_path, monkeypatch):
    X, y = table
    model = make_tree_model(candidate(max_iter=2), X, 0).fit(X, y)
    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(MissingExtraError, match=r"Saving trees needs skops.*pip install 'evenhand\[skops\]'"):
        save_tree_model(model, tmp_path)
