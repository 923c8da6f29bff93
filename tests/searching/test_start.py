"""The lender's own model as a starting point: what is read from it, what it scores like, what is compared with it."""

from __future__ import annotations

import html
import json
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, QuantileTransformer, StandardScaler

from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.models.dispatch import as_audited_model
from evenhand.models.trees import read_trees
from evenhand.searching.families import learning_of, signs_in_trees
from evenhand.searching.people import SearchPeople
from evenhand.searching.run import fit_estimator
from evenhand.searching.space import candidates_of, read_start

from .conftest import search

pytestmark = pytest.mark.integration  # models are trained, files are opened in processes

FINANCIAL = ("income", "debt")


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(1)
    n = 600
    X = pd.DataFrame(
        {
            "income": rng.normal(size=n),
            "debt": rng.normal(size=n),
            "age": rng.random(n),
            "home": rng.choice(["own", "rent"], n),
            "unseen": rng.random(n),
        }
    )
    group = rng.choice(["a", "b"], n)
    y = (X["income"] - X["debt"] * (X["home"] == "own") + 0.5 * rng.normal(size=n) > 0).astype(int)
    return SearchPeople.of(X, y, group, FINANCIAL, confirmation=0.0, random_state=0)


@pytest.fixture(scope="module")
def numbers(people):
    return people.table[["income", "debt", "age"]]


@pytest.fixture(scope="module")
def lenders_model(people):
    """A model of risk, as lenders have it, that does not see every column."""
    xgboost = pytest.importorskip("xgboost")
    seen = people.table[["income", "debt", "age", "home"]].astype({"home": "category"})
    model = xgboost.XGBClassifier(
        n_estimators=60,
        max_depth=3,
        learning_rate=0.07,
        reg_lambda=2.5,
        gamma=0.1,
        subsample=0.9,
        enable_categorical=True,
        monotone_constraints={"debt": 1},
        n_jobs=1,
        random_state=0,
    )
    return model.fit(seen, 1 - people.labels)


def margin(model, table):
    audited = as_audited_model(model, table=table)
    return audited.margin(audited.encode(table))


def refitted(start, people):
    (candidate, *_) = candidates_of(start.family, None, 1, 0, start=start)
    assert candidate.is_start
    assert candidate.is_unconstrained
    return fit_estimator(candidate, people, np.arange(len(people.table)), 0)


def test_an_xgboost_model_trained_anew_gives_its_own_scores_turned_round(people, lenders_model):
    start = read_start(lenders_model, people)
    assert start.favorable == "low"
    assert start.family == "xgboost"
    assert start.parameters["monotone"] == {"debt": -1}
    assert start.parameters["drop"] == ("unseen",)
    np.testing.assert_allclose(
        margin(refitted(start, people), people.table), -margin(lenders_model, people.table), atol=1e-4
    )


def test_a_booster_in_memory_tells_what_its_classifier_does(people, lenders_model):
    own, booster = (read_start(m, people).parameters for m in (lenders_model, lenders_model.get_booster()))
    assert {name: booster[name] for name in own} == own


@pytest.mark.usefixtures("opened_here")
def test_the_file_of_an_xgboost_model_tells_what_its_trees_show(people, lenders_model, tmp_path):
    lenders_model.save_model(tmp_path / "model.json")
    start = read_start(tmp_path / "model.json", people)
    own = read_start(lenders_model, people).parameters
    for name in ("n_estimators", "max_depth", "learning_rate", "reg_lambda", "monotone", "drop"):
        assert start.parameters[name] == own[name], name
    assert "the learning rate of 0.07 and the L2 penalty of 2.5 from its trees" in start.notes[0]
    assert "debt stay monotone" in start.notes[0]
    lenders_model.save_model(tmp_path / "model.ubj")
    assert read_start(str(tmp_path / "model.ubj"), people).parameters["learning_rate"] == 0.3  # not to be seen


@pytest.mark.parametrize(
    "options", [{}, {"learning_rate": 0.05, "reg_lambda": 0.0}, {"monotone_constraints": (0, 0, 1)}]
)
def test_learning_rate_and_penalty_are_worked_out_from_leaves(people, numbers, options):
    xgboost = pytest.importorskip("xgboost")
    model = xgboost.XGBClassifier(n_estimators=25, max_depth=4, **options).fit(numbers, people.labels)
    text = bytes(model.get_booster().save_raw("json")).decode()
    assert learning_of(text) == (options.get("learning_rate", 0.3), options.get("reg_lambda", 1.0))


@pytest.mark.parametrize("text", ["", "{}", '{"learner": {"gradient_booster": {"model": {"trees": []}}}}'])
def test_a_file_without_trees_tells_no_learning_rate(text):
    assert learning_of(text) is None


def test_an_l1_penalty_leaves_the_learning_rate_unknown(people, numbers):
    xgboost = pytest.importorskip("xgboost")
    model = xgboost.XGBClassifier(n_estimators=25, max_depth=3, reg_alpha=5.0).fit(numbers, people.labels)
    assert learning_of(bytes(model.get_booster().save_raw("json")).decode()) is None


@pytest.mark.parametrize("library", ["xgboost", "lightgbm", "sklearn"])
def test_directions_are_seen_in_trees_that_were_held_to_them_and_in_no_others(people, numbers, library):
    signs = [1, 0, -1]
    if library == "sklearn":
        kinds = [HistGradientBoostingClassifier(max_iter=30, monotonic_cst=c) for c in (signs, None)]
    else:
        module = pytest.importorskip(library)
        kind = {"xgboost": "XGBClassifier", "lightgbm": "LGBMClassifier"}[library]
        quiet = {"verbose": -1} if library == "lightgbm" else {}
        kinds = [
            getattr(module, kind)(n_estimators=30, n_jobs=1, monotone_constraints=c, **quiet)
            for c in (tuple(signs), (0, 0, 0))
        ]
    held, free = (signs_in_trees(read_trees(model.fit(numbers, people.labels))) for model in kinds)
    assert held == {0: 1, 2: -1}
    assert free == {}


@pytest.mark.usefixtures("opened_here")
def test_a_lightgbm_model_its_booster_and_its_file_tell_the_same(people, numbers, tmp_path):
    lightgbm = pytest.importorskip("lightgbm")
    model = lightgbm.LGBMClassifier(
        n_estimators=20, num_leaves=6, min_child_samples=15, reg_lambda=2.0, colsample_bytree=0.9,
        monotone_constraints=[1, 0, 0], n_jobs=1, verbose=-1, random_state=0,
    ).fit(numbers, people.labels)  # fmt: skip
    model.booster_.save_model(tmp_path / "model.txt")
    found = [read_start(given, people) for given in (model, model.booster_, tmp_path / "model.txt")]
    assert all((start.family, start.parameters) == (found[0].family, found[0].parameters) for start in found)
    assert found[0].favorable == "high"
    assert found[0].parameters["monotone"] == {"income": 1}
    np.testing.assert_allclose(margin(refitted(found[0], people), people.table), margin(model, people.table), atol=1e-4)


def test_boosted_trees_of_scikit_learn_keep_their_rounds(people, numbers):
    model = HistGradientBoostingClassifier(
        max_iter=200, max_leaf_nodes=6, early_stopping=True, random_state=0, monotonic_cst={"income": 1}
    ).fit(numbers, people.labels)
    start = read_start(GridSearchCV(model, {"max_leaf_nodes": [6]}, cv=2).fit(numbers, people.labels), people)
    assert start.parameters["max_iter"] < 200
    assert "stopped early" in start.notes[0]
    plain = HistGradientBoostingClassifier(max_iter=20, monotonic_cst=[0, -1, 0], random_state=0)
    start = read_start(plain.fit(numbers, people.labels), people)
    assert start.parameters["monotone"] == {"debt": -1}
    np.testing.assert_allclose(margin(refitted(start, people), people.table), margin(plain, people.table), atol=1e-9)


def test_regressions_and_scorecards_are_told_apart(people, numbers):
    scaled = make_pipeline(StandardScaler(), LogisticRegression(C=0.2, tol=1e-8)).fit(numbers, people.labels)
    start = read_start(scaled, people)
    assert (start.family, start.parameters["C"]) == ("logistic", 0.2)
    assert "before its classifier (StandardScaler) are replaced" in start.warnings[0]
    np.testing.assert_allclose(margin(refitted(start, people), people.table), margin(scaled, numbers), atol=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # parameters of the class change
        tuned = LogisticRegressionCV(Cs=[0.5], cv=2).fit(numbers, people.labels)
        alone = read_start(tuned, people)
        assert (alone.parameters["C"], alone.warnings) == (0.5, ())
    bins = KBinsDiscretizer(4, strategy="quantile", quantile_method="averaged_inverted_cdf")
    card = read_start(make_pipeline(bins, LogisticRegression(C=0.3)).fit(numbers, people.labels), people)
    assert (card.family, card.parameters["n_bins"], card.parameters["C"]) == ("scorecard", 4, 0.3)
    assert card.parameters["drop"] == ("home", "unseen")


@pytest.mark.filterwarnings("ignore")
def test_a_scorecard_of_optbinning_is_a_start(people, numbers):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optbinning = pytest.importorskip("optbinning")
    process = optbinning.BinningProcess(list(numbers.columns))
    card = optbinning.Scorecard(binning_process=process, estimator=LogisticRegression(C=0.7)).fit(
        numbers, people.labels
    )
    start = read_start(card, people)
    assert (start.family, start.parameters["C"]) == ("scorecard", 0.7)
    assert "replaced by quantile bins" in start.notes[0]


def test_what_is_not_a_start_is_refused(people, numbers):
    with pytest.raises(InvalidTypeError, match=r"`start` must be a fitted model .* got RandomForestC"):
        read_start(RandomForestClassifier(5).fit(numbers, people.labels), people)
    other = numbers.rename(columns={"age": "years"})
    with pytest.raises(InvalidInputError, match=r"`start` takes columns that the people do not have: \['years'\]"):
        read_start(LogisticRegression().fit(other, people.labels), people)
    with pytest.raises(InvalidInputError, match=r"`start` does not take \['debt'\], on which people are matched"):
        read_start(LogisticRegression().fit(numbers[["income", "age"]], people.labels), people)
    chance = LogisticRegression().fit(numbers, people.labels)
    chance.coef_[:] = [[0.0, 0.0, 1.0]]  # age says nothing
    with pytest.raises(InvalidInputError, match=r"`start` has an AUC of 0\.\d+ on these people, which does not show"):
        read_start(chance, people)


@pytest.fixture(scope="module")
def found(people, lenders_model):
    names = np.asarray(people.groups.names)[people.groups.codes]
    return search(
        X=people.table,
        y=people.labels,
        sensitive_features=names,
        financial_features=FINANCIAL,
        start=lenders_model,
        n_candidates=5,
        folds=3,
        keep=["auc >= start - 0.2"],
        confirmation=0.3,
    )


@pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")
def test_everything_is_compared_with_the_start(found, tmp_path):
    assert found.unconstrained == 0
    assert [c.is_start for c in found.tried] == [True] + [False] * 5
    assert found.tried[0].words(found.tried).startswith("your model, ")
    assert all(c.parameters["monotone"] == {"debt": -1} for c in found.tried)
    assert all("unseen" in c.parameters["drop"] for c in found.tried)
    assert all(c.parameters["gamma"] == 0.1 for c in found.tried)
    data = json.loads(found.to_json(tmp_path / "search.json").read_text())
    assert data["start"]["favorable"] == "low"
    assert data["candidates"][0]["is_start"]
    assert data["start"]["copy"]["n_people"] == len(found.people.confirming)
    assert found.start_copy.sentence in data["sentences"]
    page = found.to_html(tmp_path / "search.html", {"The chosen <model>": "model/model.json"}).read_text("utf-8")
    assert '<a href="model/model.json">model/model.json</a>' in page
    assert "The chosen &lt;model&gt;" in page
    assert "your model, retrained" in page
    assert found.start_copy.sentence in html.unescape(page)


def test_the_copy_of_a_model_is_told_apart_from_it(found, lenders_model, people):
    held = people.table.iloc[found.people.confirming]
    own = -margin(lenders_model, held)
    copy = margin(found.fit(found.tried[0]), held)
    labels = people.labels[found.people.confirming]
    told = found.start_copy
    assert (told.auc, told.copy_auc) == pytest.approx((roc_auc_score(labels, own), roc_auc_score(labels, copy)))
    apart = np.abs(expit(own) - expit(copy))
    assert (told.mean_difference, told.largest_difference) == pytest.approx((apart.mean(), apart.max()), abs=1e-6)
    assert told.are_held_out
    assert told.largest_difference > 0.01  # it learned from fewer people


@pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")
def test_confirmation_and_comparison_have_one_unit_and_agree():
    """A pipeline that mixes columns is explained by sampling, by default in probability; candidates are in log-odds."""
    rng = np.random.default_rng(0)
    n = 700
    group = rng.integers(0, 2, n)
    X = pd.DataFrame({"income": rng.normal(size=n), "proxy": group + 0.3 * rng.normal(size=n)})
    y = (2 * X["income"] - 2 * X["proxy"] + rng.logistic(size=n) > -1).astype(int)
    result = search(
        X=X,
        y=y,
        sensitive_features=group,
        financial_features=["income"],
        start=make_pipeline(PCA(2), LogisticRegression()).fit(X, y),
        space={"C": [1.0], "drop": [("proxy",)]},
        minimize="score_gap",
        keep=[],
        folds=2,
        confirmation=0.4,
    )
    (of,) = result.confirmation.candidates
    assert of.objective.answer == "confirmed"
    assert "score gap in log-odds 0.0" in result.sentences[0]
    finding = next(finding for finding in result.compare().findings if finding.key == "score_gap")
    assert (finding.unit, finding.answer) == ("log-odds", "yes")
    assert abs(finding.estimate) == pytest.approx(-of.objective.difference.value, rel=0.3)


def test_the_steps_of_a_pipeline_that_are_replaced_are_named_in_the_result_and_on_the_page(people, numbers, tmp_path):
    names = np.asarray(people.groups.names)[people.groups.codes]
    found = search(
        X=numbers,
        y=people.labels,
        sensitive_features=names,
        financial_features=FINANCIAL,
        start=make_pipeline(QuantileTransformer(n_quantiles=20), LogisticRegression()).fit(numbers, people.labels),
        n_candidates=1,
        folds=2,
        confirmation=0,
    )
    assert "before its classifier (QuantileTransformer) are replaced" in found.warnings[0]
    assert found.warnings[0] in found.to_html(tmp_path / "search.html").read_text("utf-8")


@pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")
def test_both_models_are_audited_on_the_same_people_and_compared(found, lenders_model, people):
    yours = found.audit_start(evidence=False)
    held = people.table.iloc[found.people.confirming][["income", "debt", "age", "home"]]
    approved = lenders_model.predict_proba(held.astype({"home": pd.CategoricalDtype(["own", "rent"])}))[:, 1] <= 0.5
    assert yours.to_dict()["outcome"]["positive_rate"] == pytest.approx(approved.mean())
    comparison = found.compare(evidence=False)
    assert comparison.names == ("your model", "alternative")
    assert all(pairing.is_paired for pairing in comparison.pairings)


def test_families_beside_that_of_the_start_keep_its_columns(people, lenders_model):
    point = read_start(lenders_model, people)
    tried = candidates_of(("logistic", "lightgbm"), None, 6, 0, drops=[("age",)], start=point)
    assert tried[0].family == "xgboost"
    assert {c.family for c in tried[1:]} == {"logistic", "lightgbm"}
    assert all("unseen" in c.parameters["drop"] for c in tried)
    assert all(c.parameters["monotone"] == {"debt": -1} for c in tried if c.family == "lightgbm")
    given = candidates_of("xgboost", {"drop": [(), ("age",)], "max_depth": [2]}, None, 0, start=point)
    assert sorted(c.parameters["drop"] for c in given[1:]) == [["unseen"], ["unseen", "age"]]
    assert all(c.parameters["learning_rate"] == 0.07 for c in given)
    with pytest.raises(InvalidInputError, match=r"Networks see every column, but `start` does not see \['unseen'\]"):
        candidates_of("network", None, 1, 0, start=point)


def test_a_constraint_on_the_start_needs_one(given):
    with pytest.raises(InvalidInputError, match="compare with `start`; pass a model as `start`"):
        search(**given, family="logistic", keep=["auc >= start - 0.01"])
