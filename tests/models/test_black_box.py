"""Any score: functions, estimators of other libraries, and what is not a score."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import logit
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier, VotingClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import NearestCentroid
from sklearn.svm import SVC

import evenhand as eh
from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.models.dispatch import as_audited_model

pytestmark = pytest.mark.integration  # most tests are of whole audits


class Vendor:
    """A model that is neither scikit-learn's nor ours."""

    def __init__(self, scores):
        self.scores = scores

    def predict(self, x):
        return self.scores(x)


def half(x):
    return 0.5 + 0.1 * np.tanh(x[:, 0] * x[:, 1])


@pytest.mark.parametrize(
    "model",
    [
        GaussianNB(),
        VotingClassifier([("a", LogisticRegression()), ("b", GaussianNB())], voting="soft"),
        CalibratedClassifierCV(LogisticRegression(), cv=3),
    ],
    ids=lambda m: type(m).__name__,
)
def test_an_estimator_of_any_kind_is_explained_by_its_probability(model, numbers):
    X, y, group = numbers
    model.fit(X, y)
    result = eh.audit(
        model,
        X,
        y,
        sensitive_features=group,
        financial_features=["income"],
        options=eh.AuditOptions(n_permutations=8),
    )
    assert result.settings["attribution"] == "sampled_shapley"
    assert result.provenance.completeness_gap < 1e-10
    scores = result.pairs.groupby("person")["score"].first()
    np.testing.assert_allclose(scores, model.predict_proba(X)[:, 1], atol=1e-12)


def test_a_function_is_asked_for_a_probability(numbers):
    audited = as_audited_model(half)
    x = audited.encode(numbers[0])
    assert (audited.output, audited.kind) == ("log-odds", "The function half (black box)")
    np.testing.assert_allclose(audited.probability(audited.margin(x)), half(numbers[0].to_numpy()), atol=1e-15)
    found = audited.attribute(x, np.broadcast_to(x.mean(0), x.shape), 8, "segments")
    assert found.completeness_gap.max() < 1e-14
    assert np.abs(found.values[:, 2:]).max() == 0  # inputs that it does not read


def test_a_function_may_return_log_odds_or_two_columns(numbers):
    X = numbers[0].to_numpy()
    log_odds = as_audited_model(lambda x: 3 * x[:, :1], output="log-odds")
    x = log_odds.encode(numbers[0])
    np.testing.assert_allclose(log_odds.probability(log_odds.margin(x)), 1 / (1 + np.exp(-3 * X[:, 0])), atol=1e-14)
    both = as_audited_model(lambda x: np.column_stack([1 - half(x), half(x)]), output="probability")
    np.testing.assert_allclose(both.margin(x), half(X))


def test_probabilities_are_explained_in_log_odds_where_asked(numbers):
    X, y, _ = numbers
    model = GaussianNB().fit(X, y)
    audited = as_audited_model(model, output="log-odds")
    expected = model.predict_proba(X)[:, 1]
    np.testing.assert_allclose(audited.margin(audited.encode(X)), logit(expected), rtol=1e-9)
    forest = as_audited_model(RandomForestClassifier(5, random_state=0).fit(X, y), attribution="sampled_shapley")
    assert forest.output == "probability"
    sure = as_audited_model(
        RandomForestClassifier(5, random_state=0).fit(X, y), attribution="sampled_shapley", output="log-odds"
    )
    assert np.abs(sure.margin(sure.encode(X))).max() == pytest.approx(np.log(1e9))


@pytest.mark.parametrize("points", [(1.0, -3.0), (2.0, -0.5)])
def test_a_scorecard_behind_a_function_weighs_everyone_alike(points, numbers):
    X, y, group = numbers

    def card(table):
        first, second = (table[name] for name in X.columns[:2])
        return 1 / (1 + np.exp(-(points[0] * first + points[1] * second)))

    options = {"evidence": False, "favorable": "high", "n_permutations": 8}
    audited = {
        output: eh.audit(card, X, y, sensitive_features=group, financial_features=["income"], output=output, **options)
        for output in (None, "probability")
    }
    assert audited[None].pairs["reasoning_gap"].max() < 1e-9  # the points of an input are the same for everyone
    assert audited["probability"].pairs["reasoning_gap"].max() > 0.01
    scores = [result.pairs["score"].to_numpy() for result in audited.values()]
    np.testing.assert_allclose(*scores, atol=1e-12)


def test_probabilities_of_0_and_1_become_large_log_odds_and_decisions_stay_as_they_are(numbers):
    X = numbers[0]
    partly_sure = as_audited_model(lambda x: x[:, 0].clip(0, 1), table=X)
    margin = partly_sure.margin(partly_sure.encode(X))
    assert partly_sure.output == "log-odds"
    assert (margin.min(), margin.max()) == (pytest.approx(-np.log(1e9)), pytest.approx(np.log(1e9)))
    decides = as_audited_model(lambda x: (x[:, 0] > 0).astype(float), table=X)
    assert decides.output == "probability"
    assert set(decides.margin(decides.encode(X)).tolist()) == {0.0, 1.0}


def test_a_torch_module_and_a_classifier_of_ours_can_be_sampled(people):
    X, y, group = people

    class Products(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Dropout(0.5))
            self.last = torch.nn.Bilinear(4, 4, 1)

        def forward(self, x):
            return self.last(self.hidden(x), self.hidden(x))

    network = Products().train()
    sampled = as_audited_model(network, attribution="sampled_shapley")
    plain = as_audited_model(network)
    x = X.astype(np.float32)
    np.testing.assert_allclose(sampled.margin(x), plain.margin(x), rtol=1e-5, atol=1e-6)
    assert network.training
    classifier = eh.CECClassifier(epochs=1).fit(X, y, sensitive_features=group)
    audited = as_audited_model(classifier, attribution="sampled_shapley")
    assert audited.encoder is classifier.encoder_
    table = pd.DataFrame(X, columns=[f"x{j}" for j in range(5)])
    scores = audited.margin(audited.encode(table))
    np.testing.assert_allclose(scores, classifier.decision_function(X), atol=1e-5)


def test_a_model_with_predict_alone_is_taken_at_its_word(numbers):
    X, y, _ = numbers
    audited = as_audited_model(Vendor(half))
    np.testing.assert_allclose(audited.margin(audited.encode(X)), half(X.to_numpy()))
    labels = NearestCentroid().fit(X, np.where(y == 1, "paid", "default"))
    labels.predict_proba = labels.decision_function = None  # of some versions
    decided = as_audited_model(labels)
    np.testing.assert_array_equal(decided.margin(decided.encode(X)), labels.predict(X) == "paid")
    regression = as_audited_model(LinearRegression().fit(X, 3 * y))
    x = regression.encode(X)
    with pytest.raises(InvalidInputError, match=r"predict of LinearRegression returned \d+ of 240 values outside 0 to"):
        regression.margin(x)


def test_a_margin_alone_is_taken_only_where_the_user_says_how(numbers):
    X, y, _ = numbers
    model = SVC().fit(X, y)
    with pytest.raises(InvalidInputError, match="A SVC returns a margin with its decision at 0"):
        as_audited_model(model)
    with pytest.raises(InvalidInputError, match="A SVC has no probabilities to explain"):
        as_audited_model(model, output="probability")
    audited = as_audited_model(model, output="log-odds")
    np.testing.assert_allclose(audited.margin(audited.encode(X)), model.decision_function(X))


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda x: x, InvalidInputError, r"must return one number per row, of shape \(240,\)"),
        (lambda x: x[:5, 0], InvalidInputError, r"got \(5,\)"),
        (lambda x: 2 + 0 * x[:, 0], InvalidInputError, 'returned 240 of 240 values outside 0 to 1.*output="log-odds"'),
        (lambda x: np.full(len(x), np.nan), InvalidInputError, "240 of 240 values outside 0 to 1"),
        (lambda x: ["yes"] * len(x), InvalidTypeError, "must return numbers, got list"),
    ],
)
def test_what_is_no_score_is_said(function, error, message, numbers):
    audited = as_audited_model(function)
    x = audited.encode(numbers[0])
    with pytest.raises(error, match=message):
        audited.margin(x)


def test_infinite_log_odds_are_refused(numbers):
    audited = as_audited_model(lambda x: np.where(x[:, 0] > 0, np.inf, 0.0), output="log-odds")
    x = audited.encode(numbers[0])
    with pytest.raises(InvalidInputError, match=r"returned \d+ of \d+ scores that are missing or infinite"):
        audited.attribute(x, x, 8, "segments")


@pytest.fixture
def holes(numbers):
    """People of whom some numbers are missing, and trees that were fitted on them."""
    X, y, group = numbers
    rng = np.random.default_rng(0)
    X = X.mask(rng.random(X.shape) < 0.1)
    X["income"] = numbers[0]["income"]
    trees = HistGradientBoostingClassifier(max_iter=20, min_samples_leaf=5, random_state=0).fit(X, y)
    return X, y, group, trees


@pytest.mark.parametrize("kind", ["function of a matrix", "function of a table", "object"])
@pytest.mark.usefixtures("near_triples_only")
def test_a_model_that_scores_missing_values_is_given_them(kind, holes):
    X, y, group, trees = holes
    model = {
        "function of a matrix": lambda x: trees.decision_function(pd.DataFrame(x, columns=X.columns)),
        "function of a table": lambda table: trees.decision_function(table[list(X.columns)]),
        "object": Vendor(lambda x: trees.decision_function(pd.DataFrame(x, columns=X.columns))),
    }[kind]
    settings = {"sensitive_features": group, "financial_features": ["income"]}
    asked = eh.audit(model, X, y, options=eh.AuditOptions(output="log-odds", n_permutations=24), **settings)
    known = eh.audit(trees, X, y, **settings)
    assert known.settings["attribution"] == "tree_shap"
    # Of four inputs, 24 permutations are all there are.
    np.testing.assert_allclose(asked.pairs["cec"], known.pairs["cec"], atol=1e-6)
    excess = known.to_dict()["cec"]["excess"]
    assert asked.to_dict()["cec"]["excess"] == pytest.approx(excess, abs=1e-6)


@pytest.mark.parametrize(
    "model",
    [
        lambda x: 1 / (1 + np.exp(-x.sum(axis=1))),
        lambda x: np.where(np.isnan(x).any(axis=1), np.inf, 0.0),
        GaussianNB(),
    ],
    ids=["returns missing", "returns infinite", "raises"],
)
def test_a_model_that_has_no_score_for_missing_values_refuses_them(model, holes, numbers):
    X, y, group, _ = holes
    if isinstance(model, GaussianNB):
        model.fit(*numbers[:2])
    with pytest.raises(InvalidInputError, match=r"holds missing or infinite values \(column: count\): {'debt': \d+"):
        eh.audit(
            model,
            X,
            y,
            sensitive_features=group,
            financial_features=["income"],
            options=eh.AuditOptions(output="probability"),
        )


def test_infinity_is_refused_by_a_model_that_takes_missing_values(holes):
    X, y, group, trees = holes
    X = X.copy()
    X.iloc[4, X.columns.get_loc("debt")] = np.inf
    model = Vendor(lambda x: trees.predict_proba(pd.DataFrame(x, columns=X.columns)))
    with pytest.raises(InvalidInputError, match=r"holds infinite values \(column: count\): {'debt': 1}"):
        eh.audit(model, X, y, sensitive_features=group, financial_features=["income"])


def test_what_has_no_score_is_refused():
    with pytest.raises(InvalidTypeError, match="Cannot audit a str: expected a torch module, a fitted classifier"):
        as_audited_model("model.pkl")


def test_text_is_refused_with_the_columns_name_where_the_people_are_not_known(mixed):
    audited = as_audited_model(half)
    with pytest.raises(InvalidInputError, match=r"columns that are not numbers: \['home', 'job'\]"):
        audited.encode(mixed[0])


def scored(table):
    """A function of a table with text: the weight of the income depends on the area."""
    weight = np.where(table["area"] == "south", 0.1, 1.9)
    logit = 2 * (weight * table["income now"] - table["debt"] + (table["home"] == "own") - 0.5)
    return 1 / (1 + np.exp(-logit))


def audit_of(model, people, **settings):
    X, y, group = people
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", eh.EvenhandWarning)
        return eh.audit(model, X, y, sensitive_features=group, financial_features=["income now", "debt"], **settings)


@pytest.mark.parametrize("kind", [object, "str", "category"])
def test_a_function_of_a_table_with_text_is_explained_by_all_coalitions(
    kind, with_categories, all_coalitions, baselines_of
):
    X, y, group = with_categories(0.9, n=300)
    X = X.astype({"home": kind, "area": kind})
    asked = []

    def function(table):
        asked.append(table.dtypes)
        return scored(table)

    result = audit_of(function, (X, y, group), evidence=False, output="probability")
    assert all(dtypes.equals(X.dtypes) for dtypes in asked)
    assert result.settings["attribution"] == "sampled_shapley"
    rows = list(range(30))
    expected = all_coalitions(scored, X.iloc[rows], baselines_of(X, y, group, rows))
    np.testing.assert_allclose(result.attributions[rows], expected, atol=1e-6)


def test_a_weight_that_depends_on_text_is_found_in_a_function(with_categories):
    result = audit_of(scored, with_categories(0.9, n=500))
    assert result.evidence.cec.p_value < 1e-6
    parts = {part.feature: part.estimate.value for part in result.evidence.features}
    assert max(parts, key=parts.get) == "area"
    assert {weight.feature for weight in result.evidence.weights} == {"income now", "debt"}


def test_an_estimator_of_any_kind_takes_its_own_columns_of_a_table_with_text(with_categories):
    X, y, group = with_categories(0.9, n=200)

    class Vendor:
        feature_names_in_ = ("home", "area", "debt", "income now")

        def predict_proba(self, table):
            assert tuple(table.columns) == self.feature_names_in_
            return np.column_stack([1 - scored(table), scored(table)])

    result = audit_of(Vendor(), (X, y, group), options=eh.AuditOptions(output="log-odds"), evidence=False)
    expected = 1 / (1 + np.exp(-logit(scored(X))))
    np.testing.assert_allclose(result.pairs.groupby("person")["score"].first(), expected, atol=1e-12)
    with pytest.raises(InvalidInputError, match=r"differ from those the model was fitted on: missing \['home'\]"):
        audit_of(Vendor(), (X.drop(columns="home"), y, group))


def test_values_of_the_reference_that_no_audited_person_has_are_known(with_categories):
    X, y, group = with_categories(0.9, n=300)
    people = X.index[X["home"] != "free"]
    result = eh.audit(
        scored,
        X.loc[people],
        y[people],
        sensitive_features=group[people],
        financial_features=["income now"],
        reference=(X, y, group),
        evidence=False,
    )
    matches = result.pairs["match"].to_numpy()
    assert (X["home"].iloc[matches] == "free").any()
    np.testing.assert_allclose(result.pairs["match_score"], scored(X).iloc[matches], atol=1e-12)


def test_a_function_of_a_table_with_text_is_audited_in_batches(with_categories, tmp_path):
    X, y, group = with_categories(0.9, n=600)
    X.loc[X.index[:3], "home"] = ["tent", "boat", "yurt"]  # in a batch, and perhaps not in the reference
    X.assign(paid=y, sex=group).to_parquet(tmp_path / "people.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", eh.EvenhandWarning)
        streamed = eh.audit_stream(
            scored,
            tmp_path / "people.parquet",
            label="paid",
            group="sex",
            financial_features=["income now", "debt"],
            out=tmp_path / "audit",
            batch_rows=100,
            reference=X.assign(paid=y, sex=group).iloc[3:],
            evidence=False,
        )
    pairs = pd.concat([pd.read_parquet(part) for part in sorted(streamed.pairs_path.glob("*.parquet"))])
    np.testing.assert_allclose(pairs.sort_values("person")["score"], scored(X), atol=1e-12)


def test_a_function_that_does_not_take_tables_is_told_why_it_got_one(mixed):
    X = mixed[0]
    audited = as_audited_model(half, table=X)
    x = audited.encode(X)
    message = r"function half failed on a pandas table with the columns \['income', 'home', 'debt', 'job'\], .*Error"
    with pytest.raises(InvalidInputError, match=message):
        audited.margin(x)


def test_missing_text_is_given_to_the_function_as_missing(mixed):
    X, y, group = mixed
    holes = X.assign(home=X["home"].mask(X.index % 7 == 0))

    def function(table):
        return 0.5 + 0.1 * table["home"].isna() + 0.2 * (table["home"] == "own") - 0.1 * table["debt"].isna()

    with pytest.warns(eh.EvenhandWarning, match="too short to have a direction"):
        result = eh.audit(function, holes, y, sensitive_features=group, financial_features=["income"], evidence=False)
    scores = result.pairs.groupby("person")["score"].first()
    np.testing.assert_allclose(scores, function(holes), atol=1e-12)
    assert result.provenance.completeness_gap < 1e-12


def test_a_function_that_asks_for_columns_by_name_is_given_a_table(rng):
    table = pd.DataFrame(rng.uniform(0.1, 0.9, size=(60, 3)), columns=["income", "debt", "age"])
    y, group = rng.integers(0, 2, 60), rng.choice(["a", "b"], 60)
    found = [
        eh.audit(function, table, y, sensitive_features=group, financial_features=["income"], evidence=False)
        for function in (
            lambda people: 0.5 * people["income"] + 0.3 * people["debt"],
            lambda people: 0.5 * people.income + 0.3 * people.debt,
            lambda rows: 0.5 * rows[:, 0] + 0.3 * rows[:, 1],
        )
    ]
    for by_name in found[:2]:
        np.testing.assert_allclose(by_name.attributions, found[2].attributions)
