import numpy as np
import pytest
import torch

from evenhand.datasets import make_planted_bias, make_synthetic
from evenhand.exceptions import InvalidInputError


def is_group_1(data):
    return data.group == "group 1"


def logits(planted):
    return planted.model(torch.tensor(planted.dataset.X.to_numpy())).numpy()


class TestSynthetic:
    def test_defaults_are_the_papers(self):
        data = make_synthetic()
        assert data.X.shape == (10_000, 20)
        assert len(data.financial_features) == 10
        assert data.y.mean() == 0.5

    def test_only_proxies_differ_between_groups(self):
        data = make_synthetic(n=50_000)
        member = is_group_1(data)
        gap = data.X[member].mean() - data.X[~member].mean()
        is_proxy = gap.index.str.startswith("proxy")
        np.testing.assert_allclose(gap[is_proxy], 0.5, atol=0.04)
        np.testing.assert_allclose(gap[~is_proxy], 0.0, atol=0.04)

    def test_labels_depend_on_financial_features_alone(self):
        w = np.array([3.0, -4.0])
        data = make_synthetic(n=500, n_financial=2, weights=w, label_noise=0.0)
        merit = data.X[["financial_0", "financial_1"]].to_numpy() @ w
        assert merit[data.y == 1].min() > merit[data.y == 0].max()

    def test_seed_decides_everything(self):
        one, same, other = (make_synthetic(n=100, random_state=seed) for seed in (1, 1, 2))
        assert one.X.equals(same.X)
        assert (one.y == same.y).all()
        assert (one.group == same.group).all()
        assert not one.X.equals(other.X)

    def test_shares_are_parameters(self):
        data = make_synthetic(n=20_000, group_share=0.1, positive_share=0.3)
        assert is_group_1(data).mean() == pytest.approx(0.1, abs=0.01)
        assert data.y.mean() == pytest.approx(0.3, abs=0.001)

    def test_a_logistic_model_on_the_merit_reaches_the_papers_auc(self):
        from sklearn.linear_model import LogisticRegression
        from sklearn.metrics import roc_auc_score

        data = make_synthetic()
        fitted = LogisticRegression().fit(data.X[:8000], data.y[:8000])
        assert roc_auc_score(data.y[8000:], fitted.decision_function(data.X[8000:])) == pytest.approx(0.993, abs=0.003)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"n": 0}, "`n` must be at least 1, got 0"),
            ({"n_noise": -1}, "`n_noise` must be at least 0, got -1"),
            ({"group_share": 1.0}, "`group_share` must be strictly between 0 and 1, got 1.0"),
            ({"weights": [1.0, 2.0]}, "`weights` must hold 10 finite numbers"),
            ({"weights": np.zeros(10)}, "not all 0"),
        ],
    )
    def test_bad_numbers_are_named(self, options, message):
        with pytest.raises(InvalidInputError, match=message):
            make_synthetic(**options)


SETTINGS = [
    {},
    {"group_share": 0.05},
    {"shift": 0.5},
    {"ties": 0.5, "shift": 0.5},
    {"n_onehot": 4, "shift": 0.5, "ties": 0.25},
    {"approval_share": 0.2},
]


class TestPlantedBias:
    @pytest.mark.parametrize("strength", [0.0, 0.3, 1.0])
    @pytest.mark.parametrize("options", SETTINGS, ids=str)
    def test_approval_rates_are_equal_at_any_strength(self, strength, options):
        planted = make_planted_bias(200_000, strength, **options)
        approved, member = logits(planted) > 0, is_group_1(planted.dataset)
        expected = options.get("approval_share", 0.5)
        assert approved[~member].mean() == pytest.approx(expected, abs=0.005)
        assert approved[member].mean() == pytest.approx(expected, abs=0.015 if "group_share" in options else 0.006)

    @pytest.mark.parametrize("strength", [0.0, 0.5, 1.0])
    def test_scores_vary_alike_in_both_groups(self, strength):
        planted = make_planted_bias(100_000, strength, shift=0.5)
        scores, member = logits(planted), is_group_1(planted.dataset)
        assert scores[member].std() == pytest.approx(scores[~member].std(), rel=0.02)

    @pytest.mark.parametrize("options", [*SETTINGS, {"merit_shift": 0.4}], ids=str)
    def test_strength_0_is_exactly_blind_to_the_group(self, options):
        planted = make_planted_bias(500, 0.0, **options)
        x = torch.tensor(planted.dataset.X.to_numpy(), requires_grad=True)
        (gradient,) = torch.autograd.grad(planted.model(x).sum(), x)
        assert (gradient[:, -1] == 0).all()
        assert (gradient == gradient[0]).all()

    def test_strength_1_is_figure_1(self):
        planted = make_planted_bias(10, 1.0)
        np.testing.assert_array_equal(planted.weights, [[0.55, 0.28, 0.10, 0.05, 0.02], [0.08, 0.02, 0.48, 0.38, 0.04]])

    @pytest.mark.parametrize("strength", [0.0, 0.4, 1.0])
    def test_gradients_follow_the_stated_shares(self, strength):
        planted = make_planted_bias(200, strength)
        x = torch.tensor(planted.dataset.X.to_numpy(), requires_grad=True)
        (gradient,) = torch.autograd.grad(planted.model(x).sum(), x)
        member = is_group_1(planted.dataset).astype(int)
        shares = gradient[:, :5] / gradient[:, :5].sum(dim=1, keepdim=True)
        np.testing.assert_allclose(shares, planted.weights[member], atol=1e-6)

    def test_labels_do_not_change_with_strength(self):
        even, biased = (make_planted_bias(1000, s, shift=0.5) for s in (0.0, 1.0))
        assert even.dataset.X.equals(biased.dataset.X)
        assert (even.dataset.y == biased.dataset.y).all()

    def test_labels_given_merit_do_not_depend_on_the_group(self):
        planted = make_planted_bias(200_000, 0.0, merit_shift=0.5, random_state=3)
        merit, member = logits(planted), is_group_1(planted.dataset)
        residual = planted.dataset.y - 1 / (1 + np.exp(-merit))
        assert abs(residual[member].mean()) < 0.004
        assert abs(residual[~member].mean()) < 0.004

    def test_shift_moves_features_but_not_merit(self):
        planted = make_planted_bias(200_000, 0.0, shift=0.5)
        member = is_group_1(planted.dataset)
        X = planted.dataset.X.to_numpy()[:, :5]
        gap = X[member].mean(axis=0) - X[~member].mean(axis=0)
        assert np.sqrt((gap**2).mean()) == pytest.approx(0.5, abs=0.02)
        scores = logits(planted)
        assert scores[member].mean() == pytest.approx(scores[~member].mean(), abs=0.05)

    def test_merit_shift_moves_merit_and_approvals(self):
        planted = make_planted_bias(100_000, 1.0, merit_shift=0.3)
        approved, member = logits(planted) > 0, is_group_1(planted.dataset)
        assert approved[~member].mean() == pytest.approx(0.5, abs=0.01)
        assert approved[member].mean() == pytest.approx(0.618, abs=0.01)

    def test_ties_leave_few_distinct_values(self):
        planted = make_planted_bias(1000, ties=0.5)
        assert planted.dataset.X["income"].nunique() < 20

    def test_onehot_columns_name_one_level_each(self):
        planted = make_planted_bias(1000, 0.5, n_onehot=3)
        X = planted.dataset.X
        assert X.columns.tolist()[4:] == ["other_0", "other_1", "other_2", "group"]
        assert (X[["other_0", "other_1", "other_2"]].sum(axis=1) == 1).all()
        assert "group" not in planted.dataset.financial_features

    def test_seed_decides_everything(self):
        one, same, other = (make_planted_bias(100, random_state=seed) for seed in (1, 1, 2))
        assert one.dataset.X.equals(same.dataset.X)
        assert not one.dataset.X.equals(other.dataset.X)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"n": 0}, "`n` must be at least 1, got 0"),
            ({"strength": 1.5}, "`strength` must be between 0 and 1, got 1.5"),
            ({"approval_share": 0}, "`approval_share` must be strictly between 0 and 1, got 0"),
            ({"ties": -1.0}, "`ties` must be 0 or more and `steepness` above 0, got -1.0 and 3.0"),
            ({"n_onehot": 1}, "`n_onehot` must be 0 or at least 2 levels, got 1"),
        ],
    )
    def test_bad_numbers_are_named(self, options, message):
        with pytest.raises(InvalidInputError, match=message):
            make_planted_bias(**options)
