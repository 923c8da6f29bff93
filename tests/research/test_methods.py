"""Every method on people whose error rates differ widely between groups, and the parts of each."""

import importlib
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import evenhand as eh
from evenhand.exceptions import InvalidInputError, MissingExtraError
from evenhand.metrics.outcomes import auc, equalized_odds_gap, group_outcomes
from evenhand.research.methods import (
    CEC,
    AdversarialDebiasing,
    Adversary,
    AgarwalReduction,
    AverageLogit,
    DisparateImpactRemover,
    FairSHAP,
    HardtPostProcessing,
    LagrangianConstraints,
    Method,
    NetworkSettings,
    QuantileRepair,
    RepairsTable,
    Unconstrained,
    WeightedNetwork,
    _network_of,
    adversarial_update,
    make_method,
    method_names,
    rate_differences,
    train_network,
)
from evenhand.research.paper import PAPER

pytestmark = pytest.mark.integration

SETTINGS = NetworkSettings(epochs=10, learning_rate=2e-3)
QUICK = NetworkSettings(hidden=(8, 4), epochs=1)


def people_with_a_gap(n, seed):
    """Group b is favored by the labels themselves, and two proxies tell the group."""
    rng = np.random.default_rng(seed)
    is_b, merit = rng.integers(0, 2, n), rng.normal(size=n)
    y = (merit + 2 * is_b + 1.2 * rng.normal(size=n) > 1).astype(int)
    X = pd.DataFrame(
        {
            "merit": merit,
            "proxy_1": 2 * is_b + 0.5 * rng.normal(size=n),
            "proxy_2": 2 * is_b + 0.5 * rng.normal(size=n),
            "trade": rng.choice(["cook", "clerk"], n),
        }
    )
    return X, y, np.where(is_b == 1, "b", "a")


def gap_and_auc(method, X, y, group):
    decisions, score = method.predict(X, group), method.predict_proba(X, group)[:, 1]
    outcomes = group_outcomes(y, decisions, score, (group == "b").astype(int), ("a", "b"))
    return equalized_odds_gap(outcomes).value, auc(y, score)


@pytest.fixture(scope="module")
def train_people():
    return people_with_a_gap(1500, seed=0)


@pytest.fixture(scope="module")
def test_people():
    return people_with_a_gap(3000, seed=1)


@pytest.fixture(scope="module")
def plain_gap(train_people, test_people):
    X, y, group = train_people
    method = Unconstrained(SETTINGS).fit(X, y, sensitive_features=group)
    return gap_and_auc(method, *test_people)[0]


def test_the_unconstrained_network_has_a_large_gap(plain_gap):
    assert plain_gap > 0.4


@pytest.mark.parametrize(
    ("method", "share_left"),
    [
        (DisparateImpactRemover(SETTINGS), 0.7),
        (HardtPostProcessing(SETTINGS), 0.4),
        (AgarwalReduction(NetworkSettings(epochs=5, learning_rate=4e-3), max_iterations=5), 0.6),
        (LagrangianConstraints(SETTINGS), 0.5),
        (AdversarialDebiasing(NetworkSettings()), 0.7),  # a game of two that faster steps unsettle
        (CEC(SETTINGS, ["merit"], cec_weight=0.1, n_steps=4, integration="segments"), 0.5),
        (FairSHAP(SETTINGS, ["merit"], max_auc_loss=0.2), 0.5),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_method_lowers_the_gap_and_still_ranks_people(method, share_left, train_people, test_people, plain_gap):
    X, y, group = train_people
    method.fit(X, y, sensitive_features=group)
    gap, ranking = gap_and_auc(method, *test_people)
    assert gap < share_left * plain_gap
    assert ranking > 0.65


@pytest.fixture(scope="module", params=method_names())
def fitted(request, train_people):
    X, y, group = (values[:300] for values in train_people)
    return make_method(request.param, QUICK, ["merit"]).fit(X, y, sensitive_features=group)


def test_a_fitted_method_keeps_the_protocol(fitted, test_people):
    X, _, group = (values[:200] for values in test_people)
    assert isinstance(fitted, Method)
    decisions, probabilities = fitted.predict(X, group), fitted.predict_proba(X, group)
    assert set(np.unique(decisions)) <= {0, 1}
    np.testing.assert_array_equal(decisions, fitted.predict(X, group))  # randomized rules too
    assert probabilities.shape == (200, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert probabilities.min() >= 0


def test_what_is_attributed_is_a_differentiable_score_over_the_encoded_table(fitted, test_people):
    X, _, group = (values[:50] for values in test_people)
    model = fitted.audited_model()
    x = model.encode(fitted.audited_table(X, group) if isinstance(fitted, RepairsTable) else X)
    found = model.attribute(x, np.zeros_like(x), n_steps=64, method="segments")
    assert found.gradients.shape == (50, 4)
    assert float(found.completeness_gap.max()) < 1e-4
    logit = model.network(torch.as_tensor(x)).detach().reshape(-1).numpy()
    np.testing.assert_allclose(found.logit, logit, rtol=1e-4, atol=1e-5)


def test_fitting_leaves_the_global_random_state_alone(train_people):
    X, y, group = (values[:200] for values in train_people)
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    for name in method_names():
        make_method(name, QUICK, ["merit"]).fit(X, y, sensitive_features=group)
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize("method", [AdversarialDebiasing, LagrangianConstraints, AgarwalReduction])
def test_the_same_seed_gives_the_same_method(method, train_people):
    X, y, group = (values[:200] for values in train_people)
    first, second = (method(QUICK).fit(X, y, sensitive_features=group) for _ in range(2))
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))


def test_unconstrained_is_the_classifier_without_its_terms(train_people):
    X, y, group = (values[:300] for values in train_people)
    method = Unconstrained(NetworkSettings(epochs=2)).fit(X, y, sensitive_features=group)
    plain = eh.CECClassifier(cec_weight=0, equalized_odds_weight=0, epochs=2, encoding="ordinal", device="cpu")
    plain.fit(X, y, sensitive_features=group)
    np.testing.assert_allclose(method.predict_proba(X), plain.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("method", [DisparateImpactRemover, HardtPostProcessing])
def test_rules_that_differ_between_groups_need_groups_to_predict(method, train_people):
    X, y, group = (values[:200] for values in train_people)
    fitted = method(QUICK).fit(X, y, sensitive_features=group)
    with pytest.raises(InvalidInputError, match="needs `sensitive_features` to predict"):
        fitted.predict(X)
    with pytest.raises(InvalidInputError, match=r"one of \['a', 'b'\] in each of 200 rows.*unknown groups \['c'\]"):
        fitted.predict(X, ["c"] * 200)
    with pytest.raises(InvalidInputError, match="in each of 200 rows, got 3 values"):
        fitted.predict(X, ["a"] * 3)
    assert fitted.predict(X[:5], ["b"] * 5).shape == (5,)  # all of one group


def test_an_unknown_method_is_named():
    with pytest.raises(InvalidInputError, match=r"`methods` must be among .*got 'magic'"):
        make_method("magic", QUICK, [])


# Disparate impact remover --------------------------------------------------------------------------------------------


@pytest.fixture
def shifted(rng):
    group = np.repeat([0, 1], [300, 700])
    return np.where(group == 1, 3 + 2 * rng.normal(size=1000), rng.normal(size=1000)), group


def test_full_repair_makes_new_people_of_both_groups_alike(shifted, rng):
    repair = QuantileRepair.fit(*shifted)
    group = np.repeat([0, 1], 2000)
    numbers = np.where(group == 1, 3 + 2 * rng.normal(size=4000), rng.normal(size=4000))
    repaired = repair(numbers, group)
    for q in (0.1, 0.5, 0.9):
        assert abs(np.quantile(repaired[group == 0], q) - np.quantile(repaired[group == 1], q)) < 0.3
    assert abs(np.median(numbers[group == 0]) - np.median(numbers[group == 1])) > 2


@pytest.mark.parametrize("level", [0.0, 0.3, 1.0])
def test_repair_is_increasing_within_a_group_also_outside_the_range_seen(shifted, level):
    repair = QuantileRepair.fit(*shifted, level=level)
    for code in (0, 1):
        grid = np.linspace(-20, 20, 500)
        assert (np.diff(repair(grid, np.full(500, code))) > 0).all()


def test_no_repair_changes_nothing(shifted):
    numbers, group = shifted
    np.testing.assert_allclose(QuantileRepair.fit(numbers, group, level=0.0)(numbers, group), numbers)


def test_repair_goes_part_of_the_way(shifted):
    numbers, group = shifted
    whole, half = (QuantileRepair.fit(numbers, group, level)(numbers, group) for level in (1.0, 0.5))
    np.testing.assert_allclose(half, (numbers + whole) / 2)


def test_tied_values_stay_tied():
    numbers, group = np.array([0.0, 0, 0, 1, 0, 1, 1, 1]), np.repeat([0, 1], 4)
    repaired = QuantileRepair.fit(numbers, group)(numbers, group)
    assert len(set(repaired[:3])) == 1
    assert repaired[3] > repaired[0]


def test_missing_numbers_stay_missing_and_a_group_without_values_is_left_alone():
    numbers, group = np.array([1.0, np.nan, 3.0, np.nan]), np.array([0, 0, 0, 1])
    repair = QuantileRepair.fit(numbers, group)
    np.testing.assert_array_equal(repair(np.array([np.nan, 2.0, 9.0]), np.array([0, 0, 1])), [np.nan, 2.0, 9.0])


def test_a_repair_level_out_of_range_is_refused(shifted):
    with pytest.raises(InvalidInputError, match=r"`level` must be between 0 .* and 1 .*, got 2"):
        QuantileRepair.fit(*shifted, level=2)


def test_categories_are_not_repaired(train_people):
    X, y, group = (values[:200] for values in train_people)
    method = DisparateImpactRemover(QUICK).fit(X, y, sensitive_features=group)
    repaired = method.audited_table(X, group)
    assert set(method.repairs_) == {"merit", "proxy_1", "proxy_2"}
    pd.testing.assert_series_equal(repaired["trade"], X["trade"])


# FairSHAP ------------------------------------------------------------------------------------------------------------


def test_fairshap_changes_what_it_learns_from_and_nothing_it_decides_on(train_people):
    X, y, group = (values[:300] for values in train_people)
    method = FairSHAP(SETTINGS, ["merit"], max_auc_loss=0.2).fit(X, y, sensitive_features=group)
    encoded = method.encoder_.transform(X)
    is_changed = method.repaired_.features != encoded
    assert is_changed.sum() > 0
    assert is_changed[:, [0, 3]].sum() <= 0.2 * is_changed.sum()  # stand-ins for the group are what is repaired
    assert not is_changed[:, 0].any()
    learned = train_network(method.repaired_.features.astype(np.float32), y, SETTINGS)
    with torch.no_grad():
        expected = torch.sigmoid(learned(torch.from_numpy(encoded)).squeeze(-1)).numpy()
    np.testing.assert_allclose(method.predict_proba(X)[:, 1], expected, atol=1e-6)  # no group is given


def test_without_financial_features_fairshap_matches_on_all_columns_and_may_change_all(train_people):
    X, y, group = (values[:300] for values in train_people)
    method = FairSHAP(SETTINGS, max_auc_loss=1.0).fit(X, y, sensitive_features=group)
    assert (method.repaired_.features != method.encoder_.transform(X)).any(axis=0)[0]


# Hardt and Agarwal ---------------------------------------------------------------------------------------------------


def test_hardt_is_fairlearns_rule_on_the_plain_networks_scores(train_people):
    from fairlearn.postprocessing import ThresholdOptimizer
    from sklearn.base import BaseEstimator, ClassifierMixin

    X, y, group = (values[:400] for values in train_people)
    method = HardtPostProcessing(QUICK).fit(X, y, sensitive_features=group)
    plain = Unconstrained(QUICK).fit(X, y, sensitive_features=group)

    class Fitted(ClassifierMixin, BaseEstimator):
        def fit(self):
            self.classes_ = np.array([0, 1])
            return self

        def predict_proba(self, table):
            return plain.predict_proba(X.iloc[np.asarray(table)[:, 0].astype(int)])

    rule = ThresholdOptimizer(
        estimator=Fitted().fit(), constraints="equalized_odds", prefit=True, predict_method="predict_proba"
    )
    rows = np.arange(len(X))[:, None]
    rule.fit(rows, y, sensitive_features=group)
    expected = rule._pmf_predict(rows, sensitive_features=group)
    np.testing.assert_allclose(method.predict_proba(X, group), expected, atol=1e-6)


def test_attributions_of_an_average_are_those_of_the_module_as_a_whole(rng):
    from evenhand.attribution.gradients import attribute
    from evenhand.research.methods import _AuditedAverage

    members = [
        train_network(
            np.zeros((1, 4), np.float32), np.array([1]), NetworkSettings(hidden=(8, 4), epochs=0, random_state=s)
        )
        for s in (0, 1)
    ]
    average = AverageLogit(members, np.array([0.3, 0.7]))
    x = torch.from_numpy(rng.normal(size=(20, 4)).astype(np.float32))
    ours = _AuditedAverage(average, "").attribute(x, torch.zeros_like(x), 32, "midpoint")
    general = attribute(average, x, torch.zeros_like(x), 32, "midpoint")
    torch.testing.assert_close(ours.gradients, general.gradients.detach())
    torch.testing.assert_close(ours.logit, general.logit.detach())


def test_rows_of_weight_zero_are_not_learned_from(rng):
    x, y = rng.normal(size=(60, 3)).astype(np.float32), rng.integers(0, 2, 60)
    weight = np.r_[np.ones(40), np.zeros(20)].astype(np.float32)
    some, kept = train_network(x, y, QUICK, weight), train_network(x[:40], y[:40], QUICK, weight[:40])
    for one, other in zip(some.parameters(), kept.parameters(), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("constant", [0, 1])
def test_a_constant_predictor_is_a_network_without_attributions(constant):
    from sklearn.dummy import DummyClassifier

    dummy = DummyClassifier(strategy="constant", constant=constant).fit(np.zeros((2, 3)), [constant, constant])
    network = _network_of(dummy, 3, 100, QUICK)
    logits = network(torch.randn(5, 3)).detach()
    assert torch.equal(logits, logits[:1].expand(5, 1))
    assert (float(logits[0]) > 0) == bool(constant)


def test_the_weighted_learner_follows_its_weights(rng):
    x = rng.normal(size=(200, 2)).astype(np.float32)
    y = np.tile([0, 1], 100)
    learner = WeightedNetwork(NetworkSettings(hidden=(8,), epochs=20, learning_rate=1e-2))
    assert learner.fit(x, y, sample_weight=np.where(y == 1, 10.0, 0.1)).predict(x).mean() > 0.95
    assert learner.fit(x, y).predict(x).mean() < 0.9


# Lagrangian ----------------------------------------------------------------------------------------------------------


def test_rate_differences_of_three_groups_are_taken_from_the_first():
    decisions = torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0, 1.0])
    y, group = torch.tensor([1, 0, 1, 0, 1, 0]), torch.tensor([0, 0, 1, 1, 2, 2])
    assert rate_differences(decisions, y, group, 3).tolist() == [-1, -1, 0, 0]


def test_a_difference_with_an_absent_side_is_left_out():
    decisions, y, group = torch.tensor([1.0, 0.0]), torch.tensor([1, 0]), torch.tensor([0, 1])
    assert rate_differences(decisions, y, group, 2).tolist() == [0, 0]


def test_multipliers_move_by_the_rates_of_decisions(train_people):
    X, y, group = train_people
    settings = NetworkSettings(epochs=1, batch_size=len(y), learning_rate=1e-3)
    method = LagrangianConstraints(settings, dual_learning_rate=0.5).fit(X, y, sensitive_features=group)
    x = torch.from_numpy(method.encoder_.transform(X))
    from evenhand.research.methods import new_network, seeded

    with seeded(settings), torch.no_grad():
        logits = new_network(x.shape[1], settings)(x[np.random.default_rng(0).permutation(len(y))]).squeeze(-1)
    order = np.random.default_rng(0).permutation(len(y))
    hard = rate_differences(
        (logits >= 0).float(), torch.from_numpy(y[order]), torch.from_numpy((group[order] == "b").astype(int)), 2
    )
    np.testing.assert_allclose(method.multipliers_, 0.5 * hard.numpy(), atol=1e-6)


# Adversarial ---------------------------------------------------------------------------------------------------------


def gradients_of_both(seed=0):
    """The network's and the adversary's gradients in the parameters of a small network."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1))
    adversary = Adversary(2)
    x, y, group = torch.randn(32, 4), torch.randint(0, 2, (32,)), torch.randint(0, 2, (32,))
    logits = network(x).squeeze(-1)
    own = nn.functional.binary_cross_entropy_with_logits(logits, y.float())
    against = nn.functional.cross_entropy(adversary(logits, y), group)
    parameters = list(network.parameters())
    return (torch.autograd.grad(loss, parameters, retain_graph=True) for loss in (own, against))


def flat(gradients):
    return torch.cat([gradient.flatten() for gradient in gradients]).double()


def test_after_projection_nothing_is_left_along_the_adversarys_gradient():
    own, against = (flat(g) for g in gradients_of_both())
    update = adversarial_update(own, against, alpha=0.0)
    assert abs(float(update @ against)) < 1e-12
    assert abs(float(own @ against)) > 1e-6  # there was something to take away
    pushed = adversarial_update(own, against, alpha=0.5)
    torch.testing.assert_close(pushed @ against, -0.5 * against @ against)


def test_summing_inner_products_of_matrices_is_no_projection():
    # What fairlearn 0.15 does, parameter by parameter. torch.inner of two matrices holds the products of all rows.
    own, against = gradients_of_both()
    weight_own, weight_against = own[0].double(), against[0].double()
    unit = weight_against / weight_against.norm()
    summed, frobenius = torch.sum(torch.inner(unit, weight_own)), (unit * weight_own).sum()
    assert abs(float(summed - frobenius)) > 1e-3
    assert abs(float(((weight_own - summed * unit) * unit).sum())) > 1e-3
    assert abs(float(((weight_own - frobenius * unit) * unit).sum())) < 1e-12


def test_fairlearns_engine_still_does_so():
    engine = importlib.import_module("fairlearn.adversarial._pytorch_engine")
    with open(engine.__file__) as file:  # noqa: PTH123
        assert "torch.sum(torch.inner(unit_dW_LA, dW_LP[i]))" in file.read()


def test_a_zero_adversary_changes_nothing():
    own = torch.randn(7)
    assert torch.equal(adversarial_update(own, torch.zeros(7), alpha=1.0), own)


# Optional libraries --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "library"), [("hardt", "fairlearn"), ("agarwal", "fairlearn"), ("lagrangian", "cooper-optim")]
)
def test_a_missing_library_is_named_with_the_extra_that_brings_it(name, library, monkeypatch, train_people):
    X, y, group = (values[:100] for values in train_people)
    module = library.split("-")[0]
    for loaded in [m for m in sys.modules if m.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"needs {library}.*evenhand\[methods\]"):
        make_method(name, QUICK, ["merit"]).fit(X, y, sensitive_features=group)


@pytest.mark.slow
def test_importing_the_methods_loads_no_optional_library():
    code = "import sys, evenhand.research.methods; assert not {'fairlearn', 'cooper'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_papers_method_has_the_papers_settings():
    own = CEC().classifier.get_params()
    assert {name: own[name] for name in PAPER.training} == dict(PAPER.training)
