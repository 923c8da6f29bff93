"""Candidates of libraries: the same scores as the libraries give, files that come back, and what is refused."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from evenhand.exceptions import InvalidInputError
from evenhand.models.dispatch import as_audited_model
from evenhand.models.files.load import load_model
from evenhand.searching.families import (
    ESTIMATORS,
    FAMILIES,
    QUICK_REPAIRS,
    Training,
    held_to_one_thread,
    kept_columns,
    repaired,
)
from evenhand.searching.people import SearchPeople
from evenhand.searching.run import repaired_people
from evenhand.searching.space import candidates_of, proxy_drops

from .conftest import search

pytestmark = pytest.mark.integration  # models are trained, files are opened in processes

FEW = {
    "trees": {"max_iter": 8},
    "xgboost": {"n_estimators": 8},
    "lightgbm": {"n_estimators": 8},
    "logistic": {},
    "scorecard": {"n_bins": 3},
}
FILES = {
    "trees": "model.skops",
    "xgboost": "model.json",
    "lightgbm": "model.txt",
    "logistic": "model.skops",
    "scorecard": "model.skops",
}
BOOSTED = ("trees", "xgboost", "lightgbm")


def fit(family, people, **parameters):
    full = {**FAMILIES[family].defaults, **FEW[family], **parameters}
    columns = kept_columns(full, list(people.X.columns))
    with held_to_one_thread():
        return ESTIMATORS[family].fit(full, repaired(full["repair"], people, columns), random_state=0)


def margin(model, table):
    audited = as_audited_model(model, table=table)
    return audited.margin(audited.encode(table))


@pytest.fixture(scope="module")
def people():
    """Numbers with some missing, text with some missing, a category and a yes or no."""
    rng = np.random.default_rng(0)
    n = 400
    X = pd.DataFrame(
        {
            "income": rng.normal(size=n),
            "job": rng.choice(["a", "b", None], n),
            "age": rng.random(n),
            "home": pd.Categorical(rng.choice(["own", "rent"], n), categories=["own", "rent", "free"]),
            "is_new": rng.random(n) > 0.5,
        }
    )
    X.loc[rng.random(n) < 0.1, "age"] = np.nan
    group = rng.integers(0, 2, n)
    y = (X["income"] + (X["job"] == "a") + 0.5 * group + 0.3 * rng.normal(size=n) > 0.5).to_numpy().astype(int)
    return Training(X, y, group, ("income",))


@pytest.fixture(scope="module")
def numbers(people):
    return Training(people.X[["income", "age"]].fillna(0.5), people.y, people.group, ("income",))


@pytest.mark.slow
def test_fairshap_takes_values_of_matches_and_leaves_finances_labels_and_kinds(people):
    tells = people.X.assign(job=np.where(people.group == 1, "a", "b"))  # names the group
    noise = np.random.default_rng(0).normal(size=len(tells))
    y = (tells["income"] + 0.2 * (tells["job"] == "a") + 0.7 * noise > 0.3).to_numpy().astype(int)
    before = Training(tells, y, people.group, ("income",))
    after = repaired("fairshap", before, ["income", "job", "age", "home", "is_new"])
    changed = [name for name in tells if not after.X[name].astype(object).equals(tells[name].astype(object))]
    assert changed
    assert "income" not in changed
    np.testing.assert_array_equal(after.y, y)
    assert set(after.X["job"]) == {"a", "b"}
    assert after.X["home"].dtype == tells["home"].dtype
    assert after.X["is_new"].dtype == bool
    assert set(after.X["age"].dropna()) <= set(tells["age"].dropna())
    unseen = repaired("fairshap", before, ["income", "age"])
    pd.testing.assert_series_equal(unseen.X["job"], tells["job"])


@pytest.mark.slow
def test_a_repair_that_takes_long_is_made_once_for_a_fold(given, monkeypatch):
    from evenhand.searching import run as estimators

    made = []

    def counted(candidate, people, rows):
        made.append(candidate.parameters["drop"])
        return repaired_people(candidate, people, rows)

    monkeypatch.setattr(estimators, "repaired_people", counted)
    space = {"C": [0.1, 1.0], "repair": ["fairshap"]}
    result = search(**{**given, "folds": 2}, family="logistic", space=space, keep=[])
    assert [c.parameters["repair"] for c in result.tried].count("fairshap") == 2
    assert len(made) == 2 * 2 + 2  # two unconstrained on two folds, and a repair of each fold


@pytest.mark.parametrize("repair", QUICK_REPAIRS)
def test_xgboost_gives_the_scores_of_xgboost(numbers, repair):
    xgboost = pytest.importorskip("xgboost")
    model = fit("xgboost", numbers, max_depth=3, gamma=0.5, monotone={"income": 1}, repair=repair)
    alone = xgboost.XGBClassifier(
        n_estimators=8, learning_rate=0.1, max_depth=3, gamma=0.5, monotone_constraints=(1, 0), random_state=0
    ).fit(numbers.X, numbers.y, sample_weight=repaired(repair, numbers, list(numbers.X)).weight)
    np.testing.assert_allclose(model.predict_proba(numbers.X), alone.predict_proba(numbers.X), rtol=1e-6)


@pytest.mark.parametrize("repair", QUICK_REPAIRS)
def test_lightgbm_gives_the_scores_of_lightgbm(numbers, repair):
    lightgbm = pytest.importorskip("lightgbm")
    model = fit("lightgbm", numbers, num_leaves=5, monotone={"age": -1}, repair=repair)
    alone = lightgbm.LGBMClassifier(
        n_estimators=8, num_leaves=5, monotone_constraints=[0, -1], random_state=0, verbose=-1
    ).fit(numbers.X, numbers.y, sample_weight=repaired(repair, numbers, list(numbers.X)).weight)
    np.testing.assert_allclose(model.predict_proba(numbers.X), alone.predict_proba(numbers.X), rtol=1e-6)


@pytest.mark.parametrize("repair", QUICK_REPAIRS)
def test_trees_give_the_scores_of_scikit_learn(numbers, repair):
    model = fit("trees", numbers, max_leaf_nodes=5, repair=repair)
    alone = HistGradientBoostingClassifier(max_iter=8, max_leaf_nodes=5, random_state=0).fit(
        numbers.X, numbers.y, sample_weight=repaired(repair, numbers, list(numbers.X)).weight
    )
    np.testing.assert_allclose(model.predict_proba(numbers.X), alone.predict_proba(numbers.X), rtol=1e-9)


@pytest.mark.parametrize("repair", QUICK_REPAIRS)
def test_logistic_regressions_give_the_scores_of_scikit_learn(numbers, repair):
    model = fit("logistic", numbers, C=0.1, repair=repair)
    scaled = StandardScaler().fit_transform(numbers.X)
    alone = LogisticRegression(C=0.1, tol=1e-10).fit(
        scaled, numbers.y, repaired(repair, numbers, list(numbers.X)).weight
    )
    np.testing.assert_allclose(model.predict_proba(numbers.X), alone.predict_proba(scaled), atol=1e-5)


def test_a_scorecard_is_a_regression_on_quantile_bins(numbers):
    model = fit("scorecard", numbers, n_bins=3, C=0.5)
    values = numbers.X.to_numpy()
    edges = np.quantile(values, [1 / 3, 2 / 3], axis=0, method="averaged_inverted_cdf")
    bins = np.concatenate([np.eye(3)[np.digitize(values[:, j], edges[:, j])] for j in range(2)], axis=1)
    alone = LogisticRegression(C=0.5, tol=1e-10).fit(bins, numbers.y)
    np.testing.assert_allclose(model.predict_proba(numbers.X), alone.predict_proba(bins), atol=1e-5)
    assert len(np.unique(model.predict_proba(numbers.X)[:, 1])) <= 9


@pytest.mark.usefixtures("opened_here")
@pytest.mark.parametrize("family", FEW)
def test_a_saved_model_comes_back_without_pickle_and_scores_alike(people, tmp_path, family):
    model = fit(family, people, drop=("is_new",))
    path = ESTIMATORS[family].save(model, tmp_path / "folder")
    assert path == tmp_path / "folder" / FILES[family]
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    as_text = people.X.assign(home=people.X["home"].astype(object))  # as a CSV file has it
    np.testing.assert_allclose(margin(load_model(path), as_text), margin(model, people.X), atol=1e-6)
    named = tmp_path / f"mine{path.suffix}"
    assert ESTIMATORS[family].save(model, named) == named


@pytest.mark.usefixtures("opened_here")
def test_xgboost_writes_its_binary_file_too(numbers, tmp_path):
    pytest.importorskip("xgboost")
    model = fit("xgboost", numbers)
    path = ESTIMATORS["xgboost"].save(model, tmp_path / "mine.ubj")
    np.testing.assert_allclose(margin(load_model(path), numbers.X), margin(model, numbers.X), atol=1e-6)


@pytest.mark.parametrize("family", FEW)
def test_columns_that_are_dropped_play_no_part(people, family):
    model = fit(family, people, drop=("age", "job"))
    changed = people.X.assign(age=0.0, job="a")
    np.testing.assert_array_equal(margin(model, people.X), margin(model, changed))


@pytest.mark.parametrize("family", BOOSTED)
def test_monotone_constraints_hold(people, family):
    model = fit(family, people, monotone={"income": -1})
    rising = people.X.iloc[[1] * 50].assign(income=np.linspace(-2, 2, 50)).reset_index(drop=True)
    assert (np.diff(margin(model, rising)) <= 1e-6).all()


@pytest.mark.parametrize("family", FEW)
def test_a_model_learns_the_same_bits_twice(people, family):
    first, second = (margin(fit(family, people, repair="reweighing"), people.X) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("family", "parameters", "message"),
    [
        ("trees", {"drop": ("agee",)}, r"`drop` names columns absent from the data: \['agee'\]. Did you mean 'age'\?"),
        ("logistic", {"drop": ("income", "job", "age", "home", "is_new")}, "`drop` leaves no column"),
        ("lightgbm", {"monotone": {"income": 2}}, "`monotone` must map columns to 1, -1 or 0"),
        ("xgboost", {"monotone": {"job": 1}}, r"`monotone` names \['job'\], which contain categories"),
        ("trees", {"repair": "reweigh"}, r"`repair` must be one of .*, got 'reweigh'. Did you mean 'reweighing'\?"),
        ("xgboost", {"max_depth": "deep"}, "XGBClassifier cannot be fitted: "),
        ("logistic", {"C": -1.0}, "LogisticRegression cannot be fitted: "),
    ],
)
def test_models_that_cannot_be_made_are_refused(people, family, parameters, message):
    with pytest.raises(InvalidInputError, match=message):
        fit(family, people, **parameters)


@pytest.mark.parametrize("family", ["xgboost", "lightgbm"])
def test_a_library_that_is_not_installed_is_named(people, monkeypatch, family):
    monkeypatch.setitem(sys.modules, family, None)
    with pytest.raises(InvalidInputError, match=f"needs the package '{family}': pip install {family}"):
        fit(family, people)


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
    assert audit.provenance.n_people == len(given["y"])


SEVERAL = {
    "xgboost": {"n_estimators": [5], "max_depth": [2], "drop": [(), ("group",)]},
    "logistic": {"C": [0.1], "repair": QUICK_REPAIRS},
}


@pytest.mark.filterwarnings("ignore:.*too short to have a direction:evenhand.exceptions.EvenhandWarning")
def test_several_families_are_judged_side_by_side(given, tmp_path):
    pytest.importorskip("xgboost")
    found = [
        search(**given, family=("xgboost", "logistic"), space=SEVERAL, keep=[], minimize="eo_gap", n_jobs=n)
        for n in (1, 3)
    ]
    result = found[0]
    assert [c.family for c in result.tried].count("logistic") == len(QUICK_REPAIRS)
    assert result.candidates["family"].tolist() == [c.family for c in result.tried]
    assert result.to_dict()["families"] == ["xgboost", "logistic"]
    alone = search(**given, family="logistic", space=SEVERAL["logistic"], keep=[])
    own = [k for k, c in enumerate(result.tried) if c.family == "logistic"]
    for name, values in result.metrics.items():
        np.testing.assert_array_equal(values, found[1].metrics[name])  # whatever the number of threads
        np.testing.assert_array_equal(np.sort(values[own], axis=0), np.sort(alone.metrics[name], axis=0))
    family = result.tried[result.chosen].family
    assert result.save_model(tmp_path).name == FILES[family]
    assert result.audit(evidence=False).provenance.n_people == len(given["y"])
    page = result.to_html(tmp_path / "search.html").read_text(encoding="utf-8")
    assert "gradient-boosted trees of XGBoost; logistic regressions of scikit-learn" in page


@pytest.mark.filterwarnings("ignore:.*too short to have a direction:evenhand.exceptions.EvenhandWarning")
def test_a_chosen_native_model_without_some_columns_is_audited(given):
    pytest.importorskip("lightgbm")
    space = {"n_estimators": [5], "drop": [("group",)]}
    held_out = {**given, "confirmation": 0.25}
    result = search(**held_out, family="lightgbm", space=space, keep=["auc >= 0"], minimize="excess")
    assert result.tried[result.chosen].parameters["drop"] == ["group"] or result.chosen == 0
    model = result.fit(result.tried[-1])
    assert model.n_features_in_ == given["X"].shape[1] - 1
    assert result.audit(evidence=False).provenance.n_people == len(result.people.confirming)


def test_columns_that_people_are_matched_on_are_not_dropped_from_a_native_file(given):
    with pytest.raises(InvalidInputError, match=r"`drop` names \['income'\], on which people are matched"):
        search(**given, family="xgboost", space={"drop": [("income",)]})


def test_without_a_space_the_columns_that_predict_the_group_best_are_left_out(given):
    people = SearchPeople.of(
        given["X"],
        given["y"],
        given["sensitive_features"],
        given["financial_features"],
        confirmation=0.0,
        random_state=0,
    )
    drops = proxy_drops(people)
    assert drops[0] == ("group",)  # it is the group
    assert not {name for names in drops for name in names} & set(given["financial_features"])
    assert proxy_drops(replace(people, financial_features=tuple(given["X"].columns))) == ()


def test_every_family_has_a_space_of_names_that_it_knows():
    for family in FEW:
        found = candidates_of(family, None, 5, 0, drops=[("age",)])
        assert {c.family for c in found} == {family}
        assert all(set(FAMILIES[family].defaults) <= set(c.parameters) for c in found)
