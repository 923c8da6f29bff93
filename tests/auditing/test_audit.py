import io
import json
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from captum.attr import IntegratedGradients
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler
from torch import nn

import evenhand as eh
from evenhand.exceptions import EvenhandWarning, InvalidInputError, InvalidTypeError
from evenhand.inputs.encoding import TableEncoder
from evenhand.models.gradient import DifferentiableModel

FINANCIAL = ["x0", "x1", "x2"]


def network(d=5, seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(d, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1))
    with torch.no_grad():  # decisions of both kinds
        model[-1].bias -= model.eval()(torch.randn(500, d)).median()
    return model


@pytest.fixture
def result(people):
    X, y, group = people
    return eh.audit(network(), X, y, sensitive_features=group, financial_features=FINANCIAL)


def audit_the_slow_way(model, X, y, group, reference, n_steps):
    """Definition 2, Principle 1 and Definition 3 with scikit-learn and captum, a person at a time."""
    model = model.double().eval()
    X_ref, y_ref, group_ref = reference
    scaler = StandardScaler().fit(X_ref[:, :3])
    explain = IntegratedGradients(lambda z: model(z).squeeze(-1)).attribute
    rows = []
    for x, label, own in zip(X, y, group, strict=True):
        pool = np.flatnonzero((y_ref == label) & (group_ref != own))
        neighbors = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(scaler.transform(X_ref[pool, :3]))
        distance, index = neighbors.kneighbors(scaler.transform(x[None, :3]))
        match = pool[index[0, 0]]
        baseline = torch.from_numpy(X_ref[(y_ref == label) & (group_ref == own)].mean(axis=0))[None]
        ends = torch.from_numpy(np.stack([x, X_ref[match]]))
        g, h = explain(ends, baseline, n_steps=n_steps, method="riemann_middle").numpy()
        delta = np.linalg.norm(g / (np.linalg.norm(g) + 1e-8) - h / (np.linalg.norm(h) + 1e-8)) / 2
        rows.append((match, distance[0, 0], delta, *torch.sigmoid(model(ends)).flatten().tolist()))
    return pd.DataFrame(rows, columns=["match", "distance", "cec", "score", "match_score"])


@pytest.mark.parametrize("with_reference", [False, True])
def test_the_audit_equals_scikit_learn_and_captum(rng, people, with_reference):
    X, y, group = people
    reference = None
    if with_reference:
        reference = (rng.normal(size=(60, 5)), rng.integers(0, 2, 60), rng.choice(["a", "b"], 60))
    model = network().double()
    ours = eh.audit(
        model, X, y, sensitive_features=group, financial_features=FINANCIAL, reference=reference,
        options=eh.AuditOptions(method="midpoint", n_steps=32),
    ).pairs  # fmt: skip
    slow = audit_the_slow_way(model, X, y, group, reference or (X, y, group), 32)
    assert ours["match"].tolist() == slow["match"].tolist()
    for column in ("distance", "score", "match_score"):
        np.testing.assert_allclose(ours[column], slow[column], rtol=1e-6)
    np.testing.assert_allclose(ours["cec"], slow["cec"], atol=1e-6)


def test_pairs_have_the_promised_columns(result):
    promised = [
        "person", "match", "distance", "group", "other_group", "label", "score", "match_score", "decision",
        "match_decision", "cec", "placebo_cec", "input_gap", "reasoning_gap", "regime",
    ]  # fmt: skip
    assert [c for c in result.pairs.columns if c in promised] == promised
    assert len(result.pairs) == 40


def test_the_dict_has_the_promised_parts_and_agrees_with_the_tables(result):
    data = result.to_dict()
    assert data["cec"]["mean"] == pytest.approx(result.pairs["cec"].mean())
    assert data["cec"]["reasoning_gap"] == pytest.approx(result.pairs["reasoning_gap"].mean())
    assert sum(data["regimes"].values()) == pytest.approx(1)
    assert data["outcome"]["pfr"] == pytest.approx((result.pairs["decision"] != result.pairs["match_decision"]).mean())
    assert {"auc", "f1", "eo_gap", "sp_gap", "pfr", "positive_rate"} <= set(data["outcome"])
    assert data["settings"]["consistency_threshold"] == 0.3
    assert data["data"]["groups"] == {"a": 20, "b": 20}


def test_feature_contributions_sum_to_the_mean_score(result):
    assert result.features["contribution"].sum() == pytest.approx(result.pairs["cec"].mean(), rel=1e-5)
    assert result.features["share"].sum() == pytest.approx(1)
    assert sorted(result.features["feature"]) == [f"x{j}" for j in range(5)]


def test_summary_has_the_promised_columns(result):
    assert list(result.summary().columns) == ["metric", "value", "ci_low", "ci_high", "note"]
    summary = result.summary().set_index("metric")
    missing = summary.index[summary["value"].isna()].tolist()
    assert missing in ([], ["excess, shared principal reasons"])  # of declined people, who may be too few
    assert all("at least 10 needed" in summary["note"][name] for name in missing)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_any_table_gives_the_same_audit(result, people, make):
    X, y, group = people
    table = make({f"x{j}": X[:, j] for j in range(5)})
    other = eh.audit(network(), table, pl.Series(y), sensitive_features=pl.Series(group), financial_features=FINANCIAL)
    pd.testing.assert_frame_equal(other.pairs, result.pairs)


def test_more_groups_give_a_row_for_each_other_group(rng):
    X, y, group = rng.normal(size=(90, 5)), np.tile([0, 1, 1], 30), np.repeat(["a", "b", "c"], 30)
    pairs = eh.audit(network(), X, y, sensitive_features=group, financial_features=FINANCIAL).pairs
    assert len(pairs) == 180
    assert pairs["person"].tolist() == np.repeat(np.arange(90), 2).tolist()
    assert (pairs["group"] != pairs["other_group"]).all()
    assert (pairs["other_group"].to_numpy() == group[pairs["match"]]).all()
    assert (y[pairs["match"]] == pairs["label"]).all()


def test_several_columns_are_intersected(rng, people):
    X, y, group = people
    other = pd.DataFrame({"g": group, "old": np.tile(["no", "no", "yes", "yes"], 10)})
    result = eh.audit(network(), X, y, sensitive_features=other, financial_features=FINANCIAL)
    assert sorted(result.provenance.groups) == ["a & no", "a & yes", "b & no", "b & yes"]
    assert len(result.pairs) == 40 * 3


def test_unmatched_people_are_counted_and_have_no_figures(people):
    X, y, group = people
    with pytest.warns(EvenhandWarning, match="of people have a match"):
        result = eh.audit(network(), X, y, sensitive_features=group, financial_features=FINANCIAL, max_distance=0.8)
    unmatched = result.pairs["match"] == -1
    assert 0 < unmatched.sum() < 40
    assert result.pairs.loc[unmatched, ["cec", "match_score", "regime", "match_decision"]].isna().all(axis=None)
    assert result.to_dict()["cec"]["n_pairs"] == (~unmatched).sum()
    assert result.to_dict()["matching"]["coverage"] == pytest.approx((~unmatched).mean())


def test_no_pairs_at_all_is_nan_not_zero(people):
    X, y, group = people
    with pytest.warns(EvenhandWarning, match="Only 0.0%"):
        result = eh.audit(network(), X, y, sensitive_features=group, financial_features=FINANCIAL, max_distance=0)
    data = result.to_dict()
    assert np.isnan(data["cec"]["mean"])
    assert np.isnan(data["regimes"]["B"])
    assert not np.isnan(data["outcome"]["auc"])


def test_people_whose_cell_is_empty_in_the_reference_are_counted(people):
    X, y, group = people
    keep = ~((y == 1) & (group == "b"))
    with pytest.warns(EvenhandWarning, match="have a match"):
        result = eh.audit(
            network(), X, y, sensitive_features=group, financial_features=FINANCIAL,
            reference=(X[keep], y[keep], group[keep]),
        )  # fmt: skip
    gone = (y == 1) & (group == "b")
    assert result.provenance.n_without_baseline == gone.sum()
    assert result.pairs.loc[gone, "cec"].isna().all()
    assert any("no one of their label and group" in w for w in result.warnings)


def test_a_constant_model_is_said_to_be_one(people):
    X, y, group = people
    model = nn.Linear(5, 1)
    nn.init.zeros_(model.weight)
    nn.init.ones_(model.bias)
    with pytest.warns(EvenhandWarning) as caught:
        result = eh.audit(model, X, y, sensitive_features=group, financial_features=FINANCIAL)
    text = " ".join(str(w.message) for w in caught)
    assert "constant" in text
    assert "too short to have a direction" in text
    assert result.to_dict()["cec"]["n_negligible"] == 40
    assert result.to_dict()["cec"]["mean"] == 0


def test_too_few_steps_are_noticed(people):
    X, y, group = people

    class Cube(nn.Module):
        def forward(self, x):
            return (x**5).sum(-1)

    with pytest.warns(EvenhandWarning, match="raise `n_steps`"):
        eh.audit(
            Cube(), X, y, sensitive_features=group, financial_features=FINANCIAL, options=eh.AuditOptions(n_steps=1)
        )


def test_columns_that_reveal_the_group_are_named(people):
    X, y, group = people
    table = pd.DataFrame(X, columns=[*FINANCIAL, "x3", "x4"]).assign(code=np.where(group == "a", 1.0, 2.0), same=1.0)
    result = eh.audit(network(7), table, y, sensitive_features=group, financial_features=FINANCIAL)
    assert result.provenance.group_columns == ["code"]


def test_doubtful_financial_features_are_named(people):
    X, y, group = people
    table = pd.DataFrame(X, columns=["age", "income", "x2", "x3", "x4"]).assign(income=1.0)
    result = eh.audit(network(), table, y, sensitive_features=group, financial_features=["age", "income", "x2"])
    assert any("protected" in w and "age" in w for w in result.warnings)
    assert any("constant" in w and "income" in w for w in result.warnings)
    assert any("fewer than 30 people" in w for w in result.warnings)


@pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")
def test_points_passed_off_as_log_odds_are_noticed(people):
    X, y, group = people
    table = pd.DataFrame(X, columns=[*FINANCIAL, "x3", "x4"])

    def points(rows):
        return 600 + 50 * np.asarray(rows)[:, 0]

    result = eh.audit(
        points,
        table,
        y,
        sensitive_features=group,
        financial_features=FINANCIAL,
        options=eh.AuditOptions(output="log-odds"),
        evidence=False,
    )
    assert any("40 of 40 people is 0 or 1 to the last digit" in warning for warning in result.warnings)


@pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")
def test_identifiers_and_numbers_written_as_text_are_noticed(rng):
    n = 120
    table = pd.DataFrame({"income": rng.normal(size=n), "id": [f"A{k}" for k in range(n)], "debt": rng.normal(size=n)})
    y, group = rng.integers(0, 2, n), rng.choice(["a", "b"], n)
    model = eh.CECClassifier(epochs=1, cec_weight=0, equalized_odds_weight=0, random_state=0)
    model.fit(table, y, sensitive_features=group)
    result = eh.audit(model, table, y, sensitive_features=group, financial_features=["income"], evidence=False)
    assert any("The input 'id' has a different code in every row" in warning for warning in result.warnings)
    money = table.assign(debt=[f"€ {k},000.50" for k in range(n)])
    with pytest.raises(
        InvalidInputError, match=r"'debt' is text with 120 different values in 120 people \(such as '€ 0"
    ):
        eh.match_pairs(money[["income", "debt"]], y, group)


def test_an_encoded_model_is_reported_by_original_column(rng):
    table = pd.DataFrame(
        {"income": rng.normal(size=80), "job": rng.choice(["cook", "clerk", None], 80), "debt": rng.normal(size=80)}
    )
    table.loc[::9, "debt"] = np.nan
    encoder = TableEncoder.fit(table)
    model = DifferentiableModel(network(len(encoder.encoded_names)), "encoded", encoder)
    y, group = rng.integers(0, 2, 80), rng.choice(["a", "b"], 80)
    result = eh.audit(model, table, y, sensitive_features=group, financial_features=["income", "job", "debt"])
    assert sorted(result.features["feature"]) == ["debt", "income", "job"]
    # by hand: attributions of encoded columns summed by column, then compared
    x = encoder.transform(table)
    baselines = eh.label_group_baselines(x, y, (group == "b").astype(int))[y, (group == "b").astype(int)]
    n = result.settings["n_steps"]
    own = encoder.join(eh.integrated_gradients(model.network, x, baselines, n))
    other = encoder.join(eh.integrated_gradients(model.network, x[result.pairs["match"]], baselines, n))
    np.testing.assert_allclose(result.pairs["cec"], eh.cec_scores(own, other), atol=1e-5)


def test_ordinal_models_are_matched_on_integer_codes(rng):
    table = pd.DataFrame({"job": rng.choice(list("abcdefgh"), 60), "debt": rng.normal(size=60)})
    encoder = TableEncoder.fit(table, "ordinal")
    y, group = rng.integers(0, 2, 60), rng.choice(["a", "b"], 60)
    model = DifferentiableModel(network(2), "ordinal", encoder)
    pairs = eh.audit(model, table, y, sensitive_features=group, financial_features=["job", "debt"]).pairs
    codes = table.assign(job=table["job"].map(ord))
    expected = eh.match_pairs(codes, y, group)
    assert pairs["match"].tolist() == expected.match.tolist()


def test_json_is_valid_and_whole(result, tmp_path):
    result.to_json(tmp_path / "sub" / "audit.json")
    data = json.loads((tmp_path / "sub" / "audit.json").read_text(), parse_constant=pytest.fail)
    assert data["schema"] == "evenhand.audit/3"
    assert data["cec"]["mean"] == pytest.approx(result.to_dict()["cec"]["mean"])
    assert [p.name for p in (tmp_path / "sub").iterdir()] == ["audit.json"]


def test_a_number_that_is_missing_is_null(people, tmp_path):
    X, y, group = people
    with pytest.warns(EvenhandWarning):
        result = eh.audit(network(), X, y, sensitive_features=group, financial_features=FINANCIAL, max_distance=0)
    result.to_json(tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text())["cec"]["mean"] is None


def test_the_pair_table_survives_parquet(result, tmp_path):
    result.to_parquet(tmp_path / "pairs.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "pairs.parquet"), result.pairs, check_dtype=False)


def test_it_shows_itself_on_a_terminal(result):
    from rich.console import Console

    console = Console(width=120, record=True, file=io.StringIO())
    console.print(result)
    text = console.export_text()
    assert "CEC score, mean" in text
    assert "AuditResult(40 people, 40 pairs" in repr(result)


def test_the_same_audit_twice_is_the_same(result, people):
    X, y, group = people
    again = eh.audit(network(), X, y, sensitive_features=group, financial_features=FINANCIAL)
    pd.testing.assert_frame_equal(again.pairs, result.pairs, check_exact=True)


def test_a_model_in_training_mode_is_audited_without_dropout_and_left_in_it(result, people):
    X, y, group = people
    model = network().train()
    again = eh.audit(model, X, y, sensitive_features=group, financial_features=FINANCIAL)
    pd.testing.assert_frame_equal(again.pairs, result.pairs)
    assert model.training


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"financial_features": ["x9"]}, InvalidInputError, "`financial_features` names columns absent"),
        ({"financial_features": []}, InvalidInputError, "names no column"),
        ({"sensitive_features": None}, InvalidInputError, "groups are needed"),
        ({"decision_threshold": 2}, InvalidInputError, "`decision_threshold` \\(--decision-threshold\\) must be"),
        (
            {"consistency_threshold": -1},
            InvalidInputError,
            "`consistency_threshold` .* must be",
        ),
        ({"max_distance": -1}, InvalidInputError, "max_distance"),
        ({"y": np.zeros(40)}, InvalidInputError, "only the label"),
        ({"model": "model.pkl"}, InvalidTypeError, "Cannot audit a str"),
        ({"model": network(4)}, InvalidInputError, "The model takes 4 features, but `x` has 5"),
        ({"X": np.full((40, 5), np.nan)}, InvalidInputError, "missing or infinite"),
        ({"reference": 3}, InvalidInputError, "`reference` must be"),
        ({"reference": (np.zeros((4, 4)), [0, 1, 0, 1], list("aabb"))}, InvalidInputError, r"missing \['x4'\]"),
        (
            {"reference": (np.zeros((4, 5)), [0, 1, 0, 1], list("aacc"))},
            InvalidInputError,
            r"no one of the groups \['b'\]",
        ),
    ],
)
def test_bad_input_is_refused(people, change, error, message):
    X, y, group = people
    arguments = {
        "model": network(), "X": X, "y": y, "sensitive_features": group, "financial_features": FINANCIAL,
    }  # fmt: skip
    with pytest.raises(error, match=message):
        eh.audit(**{**arguments, **change})


def test_a_reference_in_another_order_is_refused(people):
    X, y, group = people
    table = pd.DataFrame(X).add_prefix("x")
    with pytest.raises(InvalidInputError, match="the order differs"):
        eh.audit(
            network(), table, y, sensitive_features=group, financial_features=FINANCIAL,
            reference=(table[table.columns[::-1]], y, group),
        )  # fmt: skip


def test_a_model_that_returns_nan_is_refused(people):
    X, y, group = people
    model = nn.Linear(5, 1)
    nn.init.constant_(model.bias, float("nan"))
    with pytest.raises(InvalidInputError, match="40 logits that are missing or infinite"):
        eh.audit(model, X, y, sensitive_features=group, financial_features=FINANCIAL)


def test_no_warning_for_a_sound_audit(rng):
    X = rng.normal(size=(200, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        eh.audit(
            network(seed=1), X, rng.integers(0, 2, 200), sensitive_features=rng.choice(["a", "b"], 200),
            financial_features=FINANCIAL,
        )  # fmt: skip


@pytest.fixture
def scored(rng):
    """People with incomes and debts, a group, a label, and a linear model of the two."""
    n = 300
    table = pd.DataFrame({"income": rng.normal(50, 10, n), "debt": rng.normal(30, 8, n)})
    group = rng.choice(["a", "b"], n)
    y = (table["income"] - table["debt"] + rng.normal(0, 15, n) > 20).astype(int)
    return table, y, group


def audited(table, y, group, financial=("income", "debt")):
    model = LogisticRegression(max_iter=2000).fit(table, y)
    return eh.audit(
        model, table, y, sensitive_features=group, financial_features=list(financial), evidence=False
    ).warnings


def test_sentinels_among_the_inputs_are_remarked(scored):
    table, y, group = scored
    assert not any("far from all other values" in w for w in audited(table, y, group))
    table.loc[::20, "debt"] = -999
    assert any("The input 'debt' has -999 in 15 rows, far from all other values" in w for w in audited(table, y, group))


def test_groups_that_still_differ_after_matching_are_remarked(scored):
    table, y, group = scored
    assert not any("After matching" in w for w in audited(table, y, group))
    table.loc[group == "a", "debt"] += 60  # no one of b is like anyone of a
    (remark,) = (w for w in audited(table, y, group) if "After matching" in w)
    assert "still differ in 'debt' by" in remark
    assert "max_distance" in remark


def test_small_groups_are_not_accused_of_imbalance(scored):
    table, y, group = scored
    group[:12], table.loc[:11, "debt"] = "c", 90.0
    y[:12] = np.arange(12) % 2
    remarks = [w for w in audited(table, y, group) if "After matching" in w]
    assert not any("people of c " in w for w in remarks)


@pytest.mark.filterwarnings("ignore::evenhand.EvenhandWarning")
def test_inputs_that_state_the_label_or_come_after_the_decision_are_remarked(scored):
    table, y, group = scored
    found = audited(table.assign(collected=1.0 - y, rate_spread=table["debt"] ** 2), y, group)
    assert any("The input 'collected' alone predicts the label with AUC 1.00" in w for w in found)
    assert any("The input 'rate_spread' by its name is set by the decision" in w for w in found)


def test_a_saved_index_and_a_date_in_numbers_warn(scored):
    table, y, group = scored
    days = pd.date_range("2020-01-01", periods=len(table)).strftime("%Y%m%d").astype(int)
    with pytest.warns(eh.EvenhandWarning) as caught:
        audited(table.assign(**{"Unnamed: 0": range(len(table)), "opened": days / 1.0}), y, group)
    told = " ".join(str(w.message) for w in caught)
    assert "'Unnamed: 0' numbers the rows from 0 to 299" in told
    assert "'opened' holds dates as numbers" in told


def test_a_financial_feature_that_is_the_group_is_refused(scored):
    table, y, group = scored
    with pytest.raises(InvalidInputError, match="The financial feature 'sex' is the group"):
        audited(table.assign(sex=(group == "a") * 1.0), y, group, financial=("income", "sex"))


def test_the_reservations_on_a_dataset_are_among_the_warnings():
    data = eh.load_dataset("german")
    X = data.X.iloc[:200][["duration", "installment_rate"]]
    found = eh.audit(
        LogisticRegression(class_weight="balanced").fit(X, data.y[:200]),
        X,
        data.y[:200],
        sensitive_features=data.group[:200],
        financial_features=["duration"],
        evidence=False,
    )
    assert found.warnings[-1:] == data.reservations
    assert any("Sex cannot be recovered" in warning for warning in found.to_dict()["warnings"])


def test_a_label_named_after_a_bad_outcome_is_remarked(scored):
    table, y, group = scored
    said = "The label is called 'default', and 1 counts as the favorable outcome"
    assert any(said in warning for warning in audited(table, y.rename("default"), group))
    assert not any(said in warning for warning in audited(table, y.rename("repaid"), group))
