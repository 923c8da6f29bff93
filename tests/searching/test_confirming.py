"""What people held out of a search show, against simulations in which the truth is known; warnings of approvals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from evenhand.exceptions import InvalidInputError
from evenhand.searching import confirming, parse_constraint
from evenhand.searching.choice import ChoiceRule
from evenhand.searching.confirming import approval_warnings, confirm, confirmation_sentences, least_approved
from evenhand.searching.options import SearchSettings
from evenhand.searching.people import SearchPeople

from .conftest import search

N_NOISE = 6
QUICK = SearchSettings(folds=2, n_compared=40)


def applicants(n, rng):
    """People with columns of noise that are all alike: what a model does with one, it does with any other."""
    group = rng.integers(0, 2, n)
    merit = rng.normal(size=n)
    X = pd.DataFrame({"merit": merit, "proxy": group + 0.5 * rng.normal(size=n)})
    X = X.assign(**{f"noise{k}": rng.normal(size=n) for k in range(N_NOISE)})
    return X, (merit + 0.5 * rng.logistic(size=n) > 0).astype(int), group


def linear(**weights):
    """A model with these weights, as scikit-learn has them."""
    columns = ["merit", "proxy", *(f"noise{k}" for k in range(N_NOISE))]
    model = LogisticRegression()
    model.classes_, model.intercept_ = np.array([0, 1]), np.zeros(1)
    model.coef_ = np.array([[weights.get(name, 0.0) for name in columns]])
    model.feature_names_in_, model.n_features_in_ = np.array(columns, dtype=object), len(columns)
    return model


def people_of(X, y, group, confirmation=0.5, **options):
    return SearchPeople.of(X, y, group, ["merit"], confirmation, 0, **options)


def confirmed(people, models, minimize, constraints=(), promised=None, settings=None):
    return confirm(
        models,
        people,
        settings or SearchSettings(folds=2),
        unconstrained=0,
        promised={1: 0.05} if promised is None else promised,
        best={},
        rule=ChoiceRule(tuple(parse_constraint(text) for text in constraints), minimize, np.array([True]), 1.0),
    )


@pytest.fixture
def few_weightings(monkeypatch):
    monkeypatch.setattr(confirming, "_WEIGHTINGS", 60)


@pytest.mark.slow  # a simulation of 40 searches
@pytest.mark.usefixtures("few_weightings")
@pytest.mark.parametrize("metric", ["auc", "sp_gap"])
def test_candidates_that_differ_by_noise_are_rarely_confirmed(metric):
    """The best of six on the people searched on; all have the same truth, since their noise has the same law."""
    rng = np.random.default_rng(0)
    alarms, flattered, n_runs = 0, [], 40
    for _ in range(n_runs):
        X, y, group = applicants(400, rng)
        people = people_of(X, y, group)
        seen = people.searched
        models = {k: linear(merit=1.0, **{f"noise{k}": 1.0}) for k in range(N_NOISE)}
        scores = {k: model.predict_proba(X.iloc[seen])[:, 1] for k, model in models.items()}
        auc = {k: roc_auc_score(y[seen], score) for k, score in scores.items()}
        gap = {k: np.ptp([np.mean(score[group[seen] == g] >= 0.5) for g in (0, 1)]) for k, score in scores.items()}
        found = auc if metric == "auc" else {k: -value for k, value in gap.items()}
        chosen = max((k for k in found if k), key=found.get)
        flattered.append(found[chosen] - found[0])
        if flattered[-1] <= 0:
            continue  # the search would keep the unconstrained model
        promised = {chosen: flattered[-1]}
        told = confirmed(people, {0: models[0], chosen: models[chosen]}, metric, promised=promised, settings=QUICK)
        alarms += told.candidates[0].objective.answer == "confirmed"
    assert np.mean(flattered) > 0.01  # the best of many looks better than it is
    assert alarms / n_runs <= 0.05  # of an expected 0.025


@pytest.mark.usefixtures("few_weightings")
def test_a_gain_that_is_there_is_usually_confirmed():
    """The unconstrained model takes the group by proxy; the other does not."""
    rng = np.random.default_rng(1)
    answers = []
    for _ in range(10):
        people = people_of(*applicants(600, rng))
        models = {0: linear(merit=1.0, proxy=1.0), 1: linear(merit=1.0)}
        found = confirmed(people, models, "score_gap", ["auc >= unconstrained - 0.01"], promised={1: 0.9})
        answers.append((found.candidates[0].objective.answer, found.candidates[0].limits[0].answer))
    assert sum(objective == "confirmed" for objective, _ in answers) >= 9
    assert sum(limit == "confirmed" for _, limit in answers) >= 9  # the proxy only costs AUC


@pytest.mark.slow  # a simulation of 40 searches
@pytest.mark.usefixtures("few_weightings")
def test_intervals_cover_the_truth():
    """Differences of AUC and of approvals between two fixed models, the truth of which is that of 400,000 people."""
    rng = np.random.default_rng(2)
    models = {0: linear(merit=1.0), 1: linear(merit=1.0, noise0=0.7, proxy=0.4)}
    X, y, group = applicants(400_000, rng)
    score = {k: model.predict_proba(X)[:, 1] for k, model in models.items()}
    truth = {
        "auc": roc_auc_score(y, score[1]) - roc_auc_score(y, score[0]),
        "approval_rate[1]": np.mean(score[1][group == 1] >= 0.5) - np.mean(score[0][group == 1] >= 0.5),
    }
    covered = {name: [] for name in truth}
    for _ in range(40):
        found = confirmed(people_of(*applicants(300, rng)), models, "auc", settings=QUICK).candidates[0].differences
        for name, value in truth.items():
            covered[name].append(found[name].low <= value <= found[name].high)
    for name, inside in covered.items():
        assert 0.88 <= np.mean(inside) <= 1, name


@pytest.mark.usefixtures("few_weightings")
def test_answers_follow_from_the_interval():
    people = people_of(*applicants(600, np.random.default_rng(3)))
    models = {0: linear(merit=1.0, proxy=1.0), 1: linear(merit=1.0, proxy=0.9)}
    found = confirmed(people, models, "score_gap", promised={1: 0.1}).candidates[0].objective
    assert found.difference.low <= found.difference.value <= found.difference.high < 0
    assert found.answer == "confirmed"
    worse = confirmed(people, models | {0: models[1], 1: models[0]}, "score_gap", promised={1: 0.1})
    assert worse.candidates[0].objective.answer == "not confirmed"
    noise = {0: linear(merit=1.0, noise0=1.0), 1: linear(merit=1.0, noise1=1.0)}
    for promised, answer in ((0.5, "not confirmed"), (1e-3, "too few people to say")):
        told = confirmed(people, noise, "auc", promised={1: promised}).candidates[0].objective
        assert told.difference.low < 0 < told.difference.high < 0.5
        assert told.answer == answer


@pytest.mark.usefixtures("few_weightings")
@pytest.mark.parametrize(
    ("constraint", "answer"),
    [
        ("auc >= 0.5", "confirmed"),
        ("auc >= 0.99", "not confirmed"),
        ("auc <= 0.99", "confirmed"),
        ("positive_rate within 0.3 of unconstrained", "confirmed"),
        ("positive_rate within 0.3 of 0.99", "not confirmed"),
        ("positive_rate within 10% of unconstrained", "too few people to say"),
        ("auc >= unconstrained - 1%", "too few people to say"),
        ("auc >= unconstrained - 90%", "confirmed"),
        ("merit increasing", "confirmed"),
        ("merit decreasing", "not confirmed"),
        ("noise1 positive", "confirmed"),
    ],
)
def test_each_form_of_a_constraint_is_judged(constraint, answer):
    people = people_of(*applicants(300, np.random.default_rng(4)))
    settings = SearchSettings(folds=2, effects=("merit", "noise1"))
    models = {0: linear(merit=1.0, noise0=1.0), 1: linear(merit=1.0, noise1=1.0)}
    found = confirmed(people, models, "auc", [constraint], settings=settings)
    assert found.candidates[0].limits[0].answer == answer


@pytest.mark.usefixtures("few_weightings")
def test_intervals_of_several_candidates_allow_for_their_number():
    people = people_of(*applicants(400, np.random.default_rng(5)))
    models = {k: linear(merit=1.0, **{f"noise{k}": 1.0}) for k in range(4)}
    alone = confirmed(people, models, "auc")
    three = confirmed(people, models, "auc", promised=dict.fromkeys((1, 2, 3), 0.05))
    assert [of.candidate for of in three.candidates] == [1, 2, 3]
    one, of_three = (found.candidates[0].objective.difference for found in (alone, three))
    assert of_three.value == one.value
    assert of_three.high - of_three.low > 1.1 * (one.high - one.low)
    assert of_three.p_value == pytest.approx(min(1, 3 * one.p_value))
    assert three.confidence == pytest.approx(1 - 0.05 / 3)
    assert "98.3% interval" in confirmation_sentences(three, "auc")[0]
    assert "which allows for 3 candidates" in confirmation_sentences(three, "auc")[0]


@pytest.mark.usefixtures("few_weightings")
def test_with_few_people_of_a_group_nothing_is_said():
    X, y, group = applicants(300, np.random.default_rng(6))
    group[:] = 0
    group[:24] = 1
    found = confirmed(people_of(X, y, group, 0.3), {0: linear(merit=1.0), 1: linear(merit=0.5)}, "auc")
    assert found.smallest_group < 10
    assert found.candidates[0].objective.answer == "too few people to say"
    assert f"the smallest group has {found.smallest_group} of them" in confirmation_sentences(found, "auc")[0]


@pytest.mark.usefixtures("few_weightings")
def test_rows_of_a_person_weigh_as_one():
    """Everyone three times: with ids the intervals are those of the people, without they are too narrow."""
    X, y, group = applicants(200, np.random.default_rng(7))
    X, y, group = pd.concat([X] * 3, ignore_index=True), np.tile(y, 3), np.tile(group, 3)
    models = {0: linear(merit=1.0), 1: linear(merit=1.0, noise0=0.7)}
    widths = []
    for clusters in (np.tile(np.arange(200), 3), None):
        people = people_of(X, y, group, clusters=clusters)
        found = confirmed(people, models, "auc").candidates[0].differences["auc"]
        widths.append(found.high - found.low)
    assert widths[0] == pytest.approx(np.sqrt(3) * widths[1], rel=0.35)


@pytest.mark.integration
def test_ids_stay_on_one_side_of_every_split():
    rng = np.random.default_rng(8)
    X, y, group = applicants(240, rng)
    ids = np.arange(240) // 3
    y, group = y[ids * 3], group[ids * 3]
    people = people_of(X, y, group, 0.25, clusters=ids)
    assert not set(ids[people.searched]) & set(ids[people.confirming])
    for compared in people.compared_folds(SearchSettings(folds=3), has_training_triples=False):
        assert not set(ids[compared.train]) & set(ids[compared.test])
    with pytest.raises(InvalidInputError, match="`clusters` has 3 values for 240 rows"):
        people_of(X, y, group, clusters=["a", "b", "c"])


@pytest.mark.integration
@pytest.mark.usefixtures("few_weightings")
@pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")
def test_a_search_confirms_that_a_column_can_be_dropped():
    """Through the whole search: labels depend on merit alone, and past decisions on the proxy too."""
    X, _, group = applicants(600, np.random.default_rng(9))
    y = (X["merit"] - 0.8 * X["proxy"] + 0.5 * np.random.default_rng(0).logistic(size=600) > -0.4).astype(int)
    found = search(
        X=X,
        y=y,
        sensitive_features=group,
        financial_features=["merit"],
        family="trees",
        space={"max_leaf_nodes": [4], "max_iter": [12], "drop": [(), ("proxy",), ("noise0",)]},
        keep=["auc >= best - 0.2"],
        minimize="score_gap",
        folds=3,
        confirmation=0.3,
    )
    assert found.tried[found.chosen].parameters["drop"] == ["proxy"]
    (of,) = found.confirmation.candidates
    assert of.objective.answer == "confirmed"
    n = len(found.people.confirming)
    assert found.sentences[0].startswith(
        f"Confirmed for candidate {found.chosen}, on {n} people held out: score gap in log"
    )
    assert found.to_dict()["sentences"] == list(found.sentences)
    assert found.audit(evidence=False).provenance.n_people == n


AROUND = np.array([-0.01, 0.0, 0.01])


def metrics(everyone, first, second):
    """Approvals of candidates over three folds: of all, and of two groups."""
    given = {"positive_rate": everyone, "approval_rate[a]": first, "approval_rate[b]": second}
    return {name: np.asarray(values)[:, None] + AROUND * (name != "positive_rate") for name, values in given.items()}


def test_fewer_approvals_of_the_group_with_the_fewest_are_told():
    found = metrics([0.7, 0.7, 0.7], [0.8, 0.85, 0.75], [0.6, 0.55, 0.65])
    assert least_approved(found, 0) == "b"
    (told,) = approval_warnings(found, 1, 0, test_share=0.5)
    assert told == (
        "Candidate 1 approves fewer people of b, the group with the fewest approvals: 55.0% instead of 60.0% "
        "(−5.0 points, 95% interval −5.0 to −5.0)."
    )
    assert approval_warnings(found, 2, 0, test_share=0.5) == ()
    assert approval_warnings(found, 0, 0, test_share=0.5) == ()


def test_a_difference_within_noise_says_so():
    found = metrics([0.7, 0.7], [0.8, 0.8], [0.6, 0.59])
    found["approval_rate[b]"][1] = [0.7, 0.5, 0.57]
    (told,) = approval_warnings(found, 1, 0, test_share=0.5)
    assert told.endswith("; this is within noise).")


@pytest.mark.parametrize(
    ("rate", "start", "words"),
    [
        (1.0, 0.7, "approves everyone (100.0% of the people; the unconstrained one 70.0%)"),
        (0.96, 0.7, "approves nearly everyone (96.0%"),
        (0.0, 0.2, "approves no one (0.0%"),
        (0.02, 0.2, "approves nearly no one (2.0%"),
        (0.95, 0.94, ""),
        (0.995, 0.995, ""),
        (0.6, 0.7, ""),
    ],
)
def test_a_model_that_approves_nearly_everyone_or_no_one_is_named(rate, start, words):
    found = metrics([start, rate], [0.5, 0.5], [0.5, 0.5])
    told = approval_warnings(found, 1, 0, test_share=0.5)
    if words:
        assert words in told[0]
        assert told[0].endswith("its gaps between groups are small for that reason alone.")
    else:
        assert told == ()


def test_a_candidate_without_metrics_has_no_warning():
    found = metrics([0.7, np.nan], [0.5, np.nan], [0.5, np.nan])
    assert approval_warnings(found, 1, 0, test_share=0.5) == ()
