"""Any score: functions, estimators of other libraries, and what is not a score."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import logit
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import NearestCentroid
from sklearn.svm import SVC

import evenhand as eh
from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.models import as_audited_model


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
    result = eh.audit(model, X, y, sensitive_features=group, financial_features=["income"], n_permutations=8)
    assert result.settings["attribution"] == "sampled_shapley"
    assert result.provenance.completeness_gap < 1e-10
    scores = result.pairs.groupby("person")["score"].first()
    np.testing.assert_allclose(scores, model.predict_proba(X)[:, 1], atol=1e-12)


def test_a_function_is_asked_for_a_probability(numbers):
    audited = as_audited_model(half)
    x = audited.encode(numbers[0])
    assert (audited.output, audited.kind) == ("probability", "The function half (black box)")
    np.testing.assert_allclose(audited.probability(audited.margin(x)), half(numbers[0].to_numpy()), atol=1e-15)
    found = audited.attribute(x, x.mean(0).expand_as(x), 8, "segments")
    assert found.completeness_gap.max() < 1e-14
    assert found.values[:, 2:].abs().max() == 0  # inputs that it does not read


def test_a_function_may_return_log_odds_or_two_columns(numbers):
    X = numbers[0].to_numpy()
    log_odds = as_audited_model(lambda x: 3 * x[:, :1], output="log-odds")
    x = log_odds.encode(numbers[0])
    np.testing.assert_allclose(log_odds.probability(log_odds.margin(x)), 1 / (1 + np.exp(-3 * X[:, 0])), atol=1e-14)
    both = as_audited_model(lambda x: np.column_stack([1 - half(x), half(x)]))
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
    with pytest.raises(InvalidInputError, match="probabilities of exactly 0 or 1, whose log-odds are infinite"):
        sure.margin(sure.encode(X))


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
    x = torch.from_numpy(X).float()
    torch.testing.assert_close(sampled.margin(x).float(), plain.margin(x))
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
    with pytest.raises(InvalidInputError, match="A SVC gives a margin with its decision at 0"):
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


def test_what_has_no_score_is_refused():
    with pytest.raises(InvalidTypeError, match="Cannot audit a str: expected a torch module, a fitted classifier"):
        as_audited_model("model.pkl")


def test_text_is_refused_with_the_columns_name(mixed):
    audited = as_audited_model(half)
    with pytest.raises(InvalidInputError, match=r"columns that are not numbers: \['home', 'job'\]"):
        audited.encode(mixed[0])
