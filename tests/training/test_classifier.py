import json
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from sklearn import config_context
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import _num_samples

import evenhand as eh
from evenhand.exceptions import EvenhandWarning, InvalidInputError, ModelFileError
from evenhand.training import Trainer
from evenhand.training.classifier import CECClassifier

# Networks trained for three epochs decide the same for everyone; one test below asks for just that warning.
pytestmark = pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")


@pytest.fixture(scope="module")
def german():
    return eh.load_dataset("german")


@pytest.fixture
def small(german):
    """Two hundred people with categories, missing values and a group."""
    rows = np.arange(0, 1000, 5)
    X = german.X.iloc[rows].reset_index(drop=True)
    X.loc[::7, "duration_months" if "duration_months" in X else X.columns[1]] = np.nan
    return X, german.y[rows], german.group[rows], list(german.financial_features)


def quick(financial=None, **changes):
    return CECClassifier(
        **{"financial_features": financial, "epochs": 3, "hidden": (16, 8), "device": "cpu", **changes}
    )


class GroupsFromRows(CECClassifier):
    """The estimator with groups made from the row numbers, so that scikit-learn's checks, which know none, can run."""

    def __init__(self, *, epochs=60, learning_rate=1e-2, hidden=(16,), cec_weight=0.1, equalized_odds_weight=0.1):
        super().__init__(
            epochs=epochs, learning_rate=learning_rate, hidden=hidden, cec_weight=cec_weight,
            equalized_odds_weight=equalized_odds_weight, device="cpu",
        )  # fmt: skip

    def fit(self, X, y, sample_weight=None):
        n = _num_samples(X)
        groups = np.arange(n) % 2
        return super().fit(X, y, sensitive_features=groups, sample_weight=sample_weight)


EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": "mini-batches of repeated rows differ from those of weighted rows",
}


@pytest.mark.integration
@parametrize_with_checks([GroupsFromRows()], expected_failed_checks=lambda estimator: EXPECTED_FAILURES)
def test_scikit_learn_estimator_checks(estimator, check):
    check(estimator)


def test_it_learns_from_a_mixed_table_with_missing_values(small):
    X, y, group, financial = small
    model = quick(financial, epochs=40, learning_rate=3e-3, cec_weight=0.1).fit(X, y, sensitive_features=group)
    proba = model.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_array_equal(model.predict(X), (proba[:, 1] >= 0.5).astype(int))
    assert np.mean(model.predict(X) == y) > 0.8
    assert set(model.history_) >= {"bce", "equalized_odds", "cec"}
    assert len(model.history_["bce"]) == model.n_iter_ == 40
    assert model.group_names_ == ("female", "male")
    assert list(model.feature_names_in_) == list(X.columns)


def test_the_same_seed_gives_the_same_model_bit_for_bit(small):
    X, y, group, financial = small
    first, second, other = (
        quick(financial, random_state=seed).fit(X, y, sensitive_features=group).decision_function(X)
        for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)


def test_the_group_is_no_input(small):
    X, y, group, financial = small
    model = quick(financial).fit(X, y, sensitive_features=group)
    assert model.encoder_.names == list(X.columns)
    assert "sensitive_features" not in model.predict.__code__.co_varnames


@pytest.mark.parametrize("make", [pl.from_pandas, lambda X: X])
def test_tables_of_other_libraries(small, make):
    X, y, group, financial = small
    X = X.astype(dict.fromkeys(X.select_dtypes("category"), str))
    reference = quick(financial).fit(X, y, sensitive_features=group).decision_function(X)
    model = quick(financial).fit(make(X), y, sensitive_features=pl.Series(group.astype(str)))
    np.testing.assert_allclose(model.decision_function(make(X)), reference, atol=1e-6)


def test_text_labels_and_array_positions(rng):
    X, y = rng.normal(size=(120, 4)), np.where(rng.random(120) < 0.5, "no", "yes")
    model = quick([0, 2]).fit(X, y, sensitive_features=rng.integers(0, 3, 120))
    assert model.classes_.tolist() == ["no", "yes"]
    assert set(model.predict(X)) <= {"no", "yes"}
    assert model.group_names_ == ("0", "1", "2")


def test_unknown_categories_at_predict_count_as_none(small):
    X, y, group, financial = small
    model = quick(financial).fit(X, y, sensitive_features=group)
    column = next(c for c in X.columns if isinstance(X[c].dtype, pd.CategoricalDtype))
    strange = X.assign(**{column: "never seen"})
    assert np.isfinite(model.decision_function(strange)).all()


def test_people_of_weight_zero_are_not_there(small):
    X, y, group, financial = small
    weight = np.ones(len(y))
    weight[::4] = 0
    kept = weight > 0
    weighted = quick(financial).fit(X, y, sensitive_features=group, sample_weight=weight)
    without = quick(financial).fit(X[kept], y[kept], sensitive_features=group[kept])
    np.testing.assert_array_equal(weighted.decision_function(X), without.decision_function(X))


def test_grid_search_and_cross_validation_route_the_groups(small):
    X, y, group, financial = small
    with config_context(enable_metadata_routing=True):
        model = quick(financial).set_fit_request(sensitive_features=True)
        pipeline = make_pipeline(FunctionTransformer(), model)
        scores = cross_validate(pipeline, X, y, cv=2, scoring="roc_auc", params={"sensitive_features": group})
        assert np.isfinite(scores["test_score"]).all()
        search = GridSearchCV(model, {"cec_weight": [0.0, 1.0]}, cv=2, scoring="roc_auc")
        search.fit(X, y, sensitive_features=group)
        assert search.best_params_["cec_weight"] in (0.0, 1.0)


def test_early_stopping_keeps_the_best_epoch(small):
    X, y, group, financial = small
    model = quick(
        financial, epochs=60, learning_rate=2e-2, validation_fraction=0.3, patience=3, monitor="bce", cec_weight=0.1
    ).fit(X, y, sensitive_features=group)
    assert model.n_iter_ < 60
    assert model.best_epoch_ == int(np.nanargmin(model.history_["validation_bce"]))
    assert model.n_iter_ - 1 - model.best_epoch_ == 3


# The paper's objective, integrated at the cost of a test.
PAPER = {**eh.PAPER.training, "method": "segments", "n_steps": 1}


def test_the_papers_objective_approves_everyone_on_german_credit_and_says_so(german):
    model = CECClassifier(financial_features=german.financial_features, device="cpu", **PAPER)
    with pytest.warns(EvenhandWarning, match=r"\(almost\) constant: .* are favorable, 70\.0% of labels are"):
        model.fit(german.X, german.y, sensitive_features=german.group)


@pytest.mark.parametrize("encoding", ["onehot", "ordinal"])
@pytest.mark.parametrize(
    ("changes", "warns"),
    [
        ({}, False),
        (PAPER, True),
        (PAPER | {"cec_weight": 0.1, "equalized_odds_weight": 0.1}, False),
        (PAPER | {"least_explained": 0.1}, False),
    ],
    ids=["defaults", "paper", "a tenth of the paper's weights", "the paper's weights, held off"],
)
def test_weights_that_are_about_to_collapse_the_model_are_named_half_way(german, encoding, changes, warns):
    changes = {**changes, "encoding": encoding, "device": "cpu"}
    model = CECClassifier(financial_features=german.financial_features, **changes)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(german.X, german.y, sensitive_features=german.group)
    said = [str(warning.message) for warning in caught if "of the labels' entropy" in str(warning.message)]
    assert len(said) == warns
    assert (model.predict(german.X).mean() > 0.99) == warns
    if warns:
        assert said[0].startswith("After 15 of 30 epochs")
        assert "`cec_weight`, now 1, or `equalized_odds_weight`, now 1, or set `least_explained=0.1`" in said[0]
        assert "of its decisions are favorable (70.0% of labels are)" in said[0]


def test_decisions_that_are_almost_all_alike_are_warned_of_half_way_whatever_is_explained(german, monkeypatch):
    monkeypatch.setattr("evenhand.training.settings._LEAST_EXPLAINED", -10.0)
    model = CECClassifier(financial_features=german.financial_features, device="cpu", **PAPER)
    with pytest.warns(EvenhandWarning, match="may end with the same decision for everyone"):
        model.fit(german.X, german.y, sensitive_features=german.group)


def test_a_model_file_older_than_a_parameter_was_trained_without_it(small, tmp_path, monkeypatch):
    X, y, group, financial = small
    model = quick(financial).fit(X, y, sensitive_features=group)
    known = model.get_params()
    monkeypatch.setattr(model, "get_params", lambda deep: {k: v for k, v in known.items() if k != "least_explained"})
    assert CECClassifier.load(model.save(tmp_path / "old")).least_explained == 0
    monkeypatch.undo()
    assert CECClassifier.load(model.save(tmp_path / "new")).least_explained == known["least_explained"] > 0


def test_an_audit_reports_by_original_column(small):
    X, y, group, financial = small
    model = quick(financial, epochs=20, learning_rate=3e-3).fit(X, y, sensitive_features=group)
    result = eh.audit(model, X, y, sensitive_features=group, financial_features=financial)
    assert sorted(result.features["feature"]) == sorted(X.columns)
    np.testing.assert_allclose(result.pairs["score"], model.predict_proba(X)[:, 1], atol=1e-6)


def test_unmatched_people_are_counted(small):
    X, y, group, financial = small
    assert quick(financial, epochs=1).fit(X, y, sensitive_features=group).n_unmatched_ == 0
    assert quick(financial, epochs=1, max_distance=0.5).fit(X, y, sensitive_features=group).n_unmatched_ > 0


@pytest.mark.parametrize("name", ["model", "sub/model.safetensors"])
def test_a_saved_model_is_the_same_model(small, tmp_path, name):
    X, y, group, financial = small
    model = quick(financial, encoding="ordinal").fit(X, y, sensitive_features=group)
    written = model.save(tmp_path / name)
    assert written.suffix == ".safetensors"
    again = CECClassifier.load(tmp_path / name)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.get_params() == {**model.get_params(), "hidden": [16, 8]}
    assert again.classes_.tolist() == model.classes_.tolist()
    np.testing.assert_array_equal(again.history_["bce"], model.history_["bce"])
    assert [p.name for p in written.parent.iterdir()] == [written.name]


def test_the_same_training_gives_the_same_file(small, tmp_path):
    X, y, group, financial = small
    contents = set()
    for run in range(2):
        model = quick(financial).fit(X, y, sensitive_features=group)
        for copy in range(5):  # the library that writes the file orders its header anew each time
            contents.add(model.save(tmp_path / f"{run}-{copy}").read_bytes())
    assert len(contents) == 1


def test_a_saved_model_of_an_array_with_text_labels(rng, tmp_path):
    X, y = rng.normal(size=(60, 3)), np.tile(["no", "yes"], 30)
    model = quick(random_state=np.random.RandomState(0)).fit(X, y, sensitive_features=rng.integers(0, 2, 60))
    model.save(tmp_path)
    again = CECClassifier.load(tmp_path)
    assert again.predict(X).tolist() == model.predict(X).tolist()
    assert not hasattr(again, "feature_names_in_")


def test_files_that_are_cut_altered_or_foreign_are_refused(small, tmp_path):
    X, y, group, financial = small
    path = quick(financial, epochs=1).fit(X, y, sensitive_features=group).save(tmp_path / "model.safetensors")
    content = path.read_bytes()
    for length in (0, 4, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(ModelFileError, match=r"cut short|not a readable"):
            CECClassifier.load(path)
    altered = bytearray(content)
    altered[-1] ^= 1
    path.write_bytes(altered)
    with pytest.raises(ModelFileError, match="altered after it was saved"):
        CECClassifier.load(path)
    with pytest.raises(ModelFileError, match="There is no model at"):
        CECClassifier.load(tmp_path / "nowhere")
    save_file({"weight": torch.zeros(2)}, path)
    with pytest.raises(ModelFileError, match="not a model saved by evenhand"):
        CECClassifier.load(path)


def resaved(path, change):
    """The model file with its header changed and its checksum made to fit."""
    from evenhand.training.model_file import _digest

    with safe_open(path, framework="pt") as file:
        header, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    content = json.loads(header["content"])
    change(header, content, tensors)
    header["content"] = json.dumps(content)
    header["sha256"] = _digest(tensors, header["content"])
    save_file(tensors, path, header)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h, c, t: h.update(version="99"), "has version '99' of the format; this evenhand reads 1"),
        (lambda h, c, t: c.pop("encoder"), "does not contain a valid model"),
        (lambda h, c, t: c.update(classes=[0, 1, 2]), "classes has 3 entries"),
        (lambda h, c, t: c.update(widths=[3, 2, 1]), "does not contain a valid model"),
        (lambda h, c, t: t.pop("0.weight"), "does not contain a valid model"),
        (lambda h, c, t: c["parameters"].update(unknown=1), "does not contain a valid model"),
    ],
)
def test_files_that_do_not_make_a_model_are_refused(small, tmp_path, change, message):
    X, y, group, financial = small
    path = quick(financial, epochs=1).fit(X, y, sensitive_features=group).save(tmp_path)
    resaved(path, change)
    with pytest.raises(ModelFileError, match=message):
        CECClassifier.load(path)


def test_a_fit_that_was_interrupted_goes_on_to_the_same_model(small, tmp_path, monkeypatch):
    X, y, group, financial = small
    whole = quick(financial, epochs=6).fit(X, y, sensitive_features=group)
    run = Trainer.run

    def interrupted(self, on_epoch):
        def stop(epoch, metrics):
            on_epoch(epoch, metrics)
            if epoch == 2:
                raise KeyboardInterrupt

        return run(self, stop)

    model = quick(financial, epochs=6, checkpoint=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y, sensitive_features=group)
    assert len(list(tmp_path.iterdir())) == 1
    epochs = []
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "run", lambda self, f: epochs.append(self.state.epoch) or run(self, f))
        model.fit(X, y, sensitive_features=group)
    assert epochs == [3]
    assert list(tmp_path.iterdir()) == []
    np.testing.assert_array_equal(model.decision_function(X), whole.decision_function(X))


def test_a_checkpoint_of_other_data_is_not_used(small, tmp_path, monkeypatch):
    X, y, group, financial = small
    model = quick(financial, epochs=2, checkpoint=tmp_path)

    def fail(self, on_epoch):
        run(self, None)
        raise KeyboardInterrupt

    run = Trainer.run
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "run", fail)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y, sensitive_features=group)
    model.fit(X, 1 - y, sensitive_features=group)
    expected = quick(financial, epochs=2).fit(X, 1 - y, sensitive_features=group)
    np.testing.assert_array_equal(model.decision_function(X), expected.decision_function(X))


def test_progress_is_shown_when_asked_for(small, capsys):
    X, y, group, financial = small
    quick(financial, epochs=2, progress=True).fit(X, y, sensitive_features=group)
    assert "epoch 2/2 bce" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sensitive_features": None}, "groups are needed"),
        ({"y": np.arange(200) % 3}, "Only binary classification is supported"),
        ({"y": np.zeros(3)}, "`y` has 3 values for 200 rows"),
        ({"y": None}, "requires y to be passed"),
        ({"financial": ["no such column"]}, "financial_features names columns absent"),
        ({"financial": [99]}, "positions below 20"),
        ({"validation_fraction": 1.5}, "must be between 0 and 1"),
        ({"patience": 3}, "`patience` needs validation data"),
    ],
)
def test_bad_input_is_refused(small, change, message):
    X, y, group, financial = small
    settings = {k: v for k, v in change.items() if k in ("validation_fraction", "patience")}
    model = quick(change.get("financial", financial), **settings)
    with pytest.raises(InvalidInputError, match=message):
        model.fit(X, change.get("y", y), sensitive_features=change.get("sensitive_features", group))


def test_the_group_is_a_required_keyword(small):
    X, y, _, financial = small
    with pytest.raises(TypeError, match="sensitive_features"):
        quick(financial).fit(X, y)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda said, _: said["encoder"]["columns"][0].update(mean="x"), r"columns\[0\].mean must be number, got 'x'"),
        (lambda said, _: said["encoder"]["columns"][0].update(scale=0), r"columns\[0\].scale must be from 1e-300"),
        (lambda said, _: said.pop("widths"), "widths is missing"),
        (
            lambda said, _: said.update(widths=[2, 100_000, 100_000, 1]),
            "the weights do not fit a network of widths",
        ),
        (lambda _, tensors: tensors["0.weight"].mul_(float("nan")), "some weights are not finite numbers"),
    ],
)
def test_a_file_that_was_edited_and_signed_again_is_refused(edit, message, tmp_path):
    from safetensors.torch import load_file

    from evenhand.training.model_file import _digest, tensor_bytes

    rng = np.random.default_rng(0)
    X = pd.DataFrame({"income": rng.normal(size=60), "debt": rng.normal(size=60)})
    model = eh.CECClassifier(financial_features=["income"], epochs=1, random_state=0)
    path = model.fit(X, np.resize([0, 1], 60), sensitive_features=np.resize([0, 0, 1], 60)).save(
        tmp_path / "m.safetensors"
    )
    content = path.read_bytes()
    words = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    said, tensors = json.loads(words["content"]), load_file(path)
    edit(said, tensors)
    words["content"] = json.dumps(said)
    words["sha256"] = _digest(tensors, words["content"])
    path.write_bytes(tensor_bytes(tensors, words))
    with pytest.raises(ModelFileError, match=f"does not contain a valid model: .*{message}"):
        eh.CECClassifier.load(path)
