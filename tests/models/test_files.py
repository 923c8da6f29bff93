"""Model files: each comes back as it was saved, and no damaged, misnamed or hostile one does harm."""

import functools
import gzip
import io
import json
import operator
import os
import pickle
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import evenhand as eh
from evenhand.cli.jobs import audit_table
from evenhand.cli.options import AuditPlan
from evenhand.exceptions import EvenhandError, InvalidInputError, ModelFileError
from evenhand.models.dispatch import as_audited_model
from evenhand.models.files.load import load_model, opened_apart
from evenhand.models.files.skops import imported_skops, is_estimator
from evenhand.models.onnx import OnnxModel
from evenhand.system.processes import ready

pytestmark = pytest.mark.integration

COLUMNS = ["income", "debt", "years", "assets", "age"]


class Canary:
    """Leaves a mark where it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (Path.touch, (Path(self.path),))


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(200, 5)), columns=COLUMNS)
    y = (X["income"] + X["debt"] * X["years"] > 0).astype(int)
    return X, y.to_numpy(), rng.choice(["a", "b"], 200)


@pytest.fixture
def opened_here(monkeypatch):
    """Files are not opened in a process first: what is looked at comes after that, and many files are."""
    monkeypatch.setattr("evenhand.models.files.load.opened_apart", lambda *_: None)


def table_for(name, X):
    """People with the columns that a model takes."""
    return X.assign(years=np.where(X["years"] > 0, "many", "few")) if name.startswith("categories") else X


@pytest.fixture(scope="module")
def saved(people, tmp_path_factory):
    """A file of each kind, and the probabilities of the model in it."""
    import catboost
    import lightgbm
    import skops.io
    import xgboost
    from skl2onnx import to_onnx

    folder = tmp_path_factory.mktemp("models")
    X, y, group = people
    files = {}

    def keep(name, model, save):
        save(str(folder / name))
        files[name] = (folder / name, model.predict_proba(table_for(name, X))[:, 1])

    boosted = xgboost.XGBClassifier(n_estimators=4, max_depth=3).fit(X, y)
    keep("xgboost.json", boosted, boosted.save_model)
    keep("xgboost.ubj", boosted, boosted.save_model)
    light = lightgbm.LGBMClassifier(n_estimators=4, verbose=-1).fit(X, y)
    keep("lightgbm.txt", light, light.booster_.save_model)
    cat = catboost.CatBoostClassifier(iterations=4, verbose=0, allow_writing_files=False).fit(X, y)
    keep("catboost.cbm", cat, cat.save_model)
    keep("catboost.json", cat, lambda path: cat.save_model(path, format="json"))
    pool = catboost.Pool(table_for("categories", X), y, cat_features=["years"])
    of_categories = catboost.CatBoostClassifier(iterations=4, verbose=0, allow_writing_files=False).fit(pool)
    keep("categories.cbm", of_categories, of_categories.save_model)
    keep("categories.json", of_categories, lambda path: of_categories.save_model(path, format="json", pool=pool))
    linear = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    keep("linear.skops", linear, lambda path: skops.io.dump(linear, path))
    histogram = HistGradientBoostingClassifier(max_iter=4).fit(X, y)
    keep("trees.skops", histogram, lambda path: skops.io.dump(histogram, path))
    keep("linear.joblib", linear, lambda path: joblib.dump(linear, path))
    keep("linear.pkl", linear, lambda path: Path(path).write_bytes(pickle.dumps(linear)))
    onnx = to_onnx(linear, X[:1].to_numpy(dtype=np.float32)).SerializeToString()
    keep("linear.onnx", linear, lambda path: Path(path).write_bytes(onnx))
    ours = eh.CECClassifier(epochs=1).fit(X, y, sensitive_features=group)
    keep("ours.safetensors", ours, ours.save)
    keep("folder", ours, ours.save)
    return files


KINDS = [
    "xgboost.json",
    "xgboost.ubj",
    "lightgbm.txt",
    "catboost.cbm",
    "catboost.json",
    "categories.cbm",
    "categories.json",
    "linear.skops",
    "trees.skops",
    "linear.joblib",
    "linear.pkl",
    "linear.onnx",
    "ours.safetensors",
    "folder",
]


@pytest.mark.parametrize("name", KINDS)
def test_a_model_comes_back_as_it_was_saved(name, saved, people):
    path, expected = saved[name]
    model = load_model(path, trust_pickle=name.endswith((".pkl", ".joblib")))
    X = table_for(name, people[0])
    audited = as_audited_model(model, table=X)
    found = audited.probability(audited.margin(audited.encode(X)))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_an_xgboost_classifier_stopped_early_comes_back_up_to_its_best_round(people, tmp_path):
    import xgboost

    X, y, _ = people
    model = xgboost.XGBClassifier(n_estimators=200, learning_rate=1.0, early_stopping_rounds=2)
    model.fit(X[:100], y[:100], eval_set=[(X[100:], y[100:])], verbose=False)
    model.save_model(tmp_path / "model.ubj")
    ensemble = load_model(tmp_path / "model.ubj")
    assert ensemble.n_trees == model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
    booster = xgboost.train({"objective": "binary:logistic"}, xgboost.DMatrix(X, label=y), num_boost_round=3)
    booster.save_model(tmp_path / "booster.json")
    assert load_model(tmp_path / "booster.json").n_trees == 3


@pytest.mark.parametrize("name", ["xgboost.ubj", "trees.skops", "linear.joblib", "linear.onnx", "ours.safetensors"])
@pytest.mark.filterwarnings("ignore:.*too short to have a direction", "ignore:.*has no names for its inputs")
def test_a_table_is_audited_with_a_model_from_a_file(name, saved, people, tmp_path):
    X, y, group = people
    table = X.assign(group=group, repaid=y, note="text")[["repaid", "age", "note", *COLUMNS[:4], "group"]]
    table.to_csv(tmp_path / "people.csv", index=False)
    path, expected = saved[name]
    plan = AuditPlan(
        label="repaid",
        group=("group",),
        financial_features=("income",),
        evidence=False,
        model=str(path),
        columns=tuple(COLUMNS) if name == "linear.onnx" else (),  # it has no names for its columns
        trust_pickle=name.endswith(".joblib"),
    )
    result = audit_table(tmp_path / "people.csv", plan)
    scores = result.pairs.groupby("person")["score"].first()
    np.testing.assert_allclose(scores, expected, atol=1e-4)


def test_pickles_are_opened_only_where_trusted(saved, tmp_path):
    mark = tmp_path / "mark"
    for ending in (".pkl", ".pickle", ".joblib"):
        path = tmp_path / f"model{ending}"
        path.write_bytes(pickle.dumps(Canary(mark)))
        with pytest.raises(ModelFileError, match=r"is a pickle .* which can run any code when it is opened"):
            load_model(path)
        assert not mark.exists()
    load_model(path, trust_pickle=True)
    assert mark.exists()  # the canary sings where it may


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_under_another_name_is_never_opened(protocol, tmp_path):
    mark = tmp_path / "mark"
    canary = pickle.dumps(Canary(mark), protocol=protocol)
    for ending in (".json", ".ubj", ".txt", ".cbm", ".skops", ".onnx", ".safetensors", ".pt", ".bin"):
        for content in (canary, gzip.compress(canary)):
            path = tmp_path / f"model{ending}"
            path.write_bytes(content)
            for trust in (False, True):
                with pytest.raises(EvenhandError):
                    load_model(path, trust_pickle=trust)
    assert not mark.exists()


def test_every_estimator_that_skops_trusts_is_trusted_and_skops_itself_stays_whole():
    ours = imported_skops()
    from skops.io._trusted_types import SKLEARN_ESTIMATOR_TYPE_NAMES as TRUSTED_BY_SKOPS

    assert len(TRUSTED_BY_SKOPS) > 150
    assert [name for name in TRUSTED_BY_SKOPS if not is_estimator(name)] == []
    assert imported_skops() is ours
    for name in ("os.system", "sklearn.base.BaseEstimator", "sklearn.utils._bunch.Bunch", "sklearn.nothing.Model"):
        assert not is_estimator(name)


def test_a_skops_file_of_types_that_may_run_code_is_refused_by_name(people, tmp_path):
    import skops.io

    X, y, _ = people
    model = make_pipeline(FunctionTransformer(os.path.normpath), LogisticRegression())
    model.steps[-1][1].fit(X, y)
    skops.io.dump(model, tmp_path / "model.skops")
    with pytest.raises(ModelFileError, match=r"types that are not trusted, because they may run code: .*normpath"):
        load_model(tmp_path / "model.skops")


MODELS = {
    "histogram boosting": HistGradientBoostingClassifier(max_iter=4, max_leaf_nodes=8),
    "gradient boosting": GradientBoostingClassifier(n_estimators=4),
    "exponential boosting": GradientBoostingClassifier(n_estimators=4, loss="exponential", init="zero"),
    "forest": RandomForestClassifier(4, random_state=0),
    "extra trees": ExtraTreesClassifier(4, random_state=0),
    "tree": DecisionTreeClassifier(random_state=0),
    "network": MLPClassifier((4,), solver="lbfgs", random_state=0),
    "network by Adam": MLPClassifier((4,), max_iter=200, tol=1.0, random_state=0),
    "network by SGD": MLPClassifier((4,), solver="sgd", tol=1.0, random_state=0),
    "sigmoid": CalibratedClassifierCV(RandomForestClassifier(3, random_state=0), cv=2),
    "isotonic": CalibratedClassifierCV(LogisticRegression(), method="isotonic", cv=2),
    "vote": VotingClassifier([("a", LogisticRegression()), ("b", DecisionTreeClassifier(max_depth=3))], voting="soft"),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("encoded", [False, True], ids=["alone", "in a pipeline"])
@pytest.mark.usefixtures("opened_here")
def test_an_ordinary_scikit_learn_model_comes_back_from_skops_with_the_same_margins(name, encoded, people, tmp_path):
    import skops.io

    X, y, group = people
    model = clone(MODELS[name])
    if encoded:
        X = X.assign(job=group)
        scaled = make_pipeline(SimpleImputer(), StandardScaler())
        model = make_pipeline(
            make_column_transformer((OneHotEncoder(), ["job"]), (scaled, COLUMNS[:4]), remainder="passthrough"), model
        )
    model.fit(X, y)
    skops.io.dump(model, tmp_path / "model.skops")
    loaded = load_model(tmp_path / "model.skops")
    before, after = as_audited_model(model, table=X), as_audited_model(loaded, table=X)
    assert after.attribution == before.attribution
    assert np.array_equal(after.margin(after.encode(X)), before.margin(before.encode(X)))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_code_among_the_attributes_of_a_tree_is_refused_by_name(people, tmp_path):
    import skops.io

    X, y, _ = people
    mark = str(tmp_path / "mark")
    for code, named in (
        (functools.partial(os.mkdir, mark), r"functools.partial, posix.mkdir"),
        (operator.methodcaller("mkdir", mark), r"operator.methodcaller"),
        (os.mkdir, r"posix.mkdir"),
        (pickle.loads, r"_pickle.loads"),
    ):
        model = HistGradientBoostingClassifier(max_iter=2).fit(X, y)
        model._predictors[0][0].predict = code
        skops.io.dump(model, tmp_path / "model.skops")
        with pytest.raises(ModelFileError, match=rf"types that are not trusted, because they may run code: .*{named}"):
            load_model(tmp_path / "model.skops")
    assert not Path(mark).exists()


def rewritten(source, target, change_schema=lambda part: None, change_array=lambda array: None):
    """A skops file with each part of its schema and each of its arrays changed, sound as an archive."""

    def visit(part):
        if isinstance(part, dict):
            change_schema(part)
        for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            visit(inner)

    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "schema.json":
                schema = json.loads(content)
                visit(schema)
                content = json.dumps(schema).encode()
            else:
                array = np.load(io.BytesIO(content))
                change_array(array)
                buffer = io.BytesIO()
                np.save(buffer, array)
                content = buffer.getvalue()
            new.writestr(name, content)


@pytest.mark.parametrize(
    ("model", "type_name", "loaders"),
    [
        (HistGradientBoostingClassifier(max_iter=2), "TreePredictor", ["ConstructorFromReduceNode", "LossNode"]),
        (DecisionTreeClassifier(), "Tree", ["ConstructorFromReduceNode", "LossNode", "ObjectNode", "TypeNode"]),
        (SimpleImputer(), "dtype", ["ConstructorFromReduceNode", "LossNode", "ObjectNode", "TypeNode"]),
    ],
)
def test_a_trusted_type_is_built_in_one_way_only(model, type_name, loaders, people, tmp_path):
    import skops.io

    skops.io.dump(model.fit(people[0], people[1]), tmp_path / "model.skops")
    load_model(tmp_path / "model.skops")
    for loader in loaders:

        def otherwise(part, loader=loader):
            if part.get("__class__") == type_name:
                part["__loader__"] = loader
                part.setdefault("__reduce__", {"args": part["content"]})

        rewritten(tmp_path / "model.skops", tmp_path / "altered.skops", otherwise)
        with pytest.raises(
            ModelFileError, match=rf"was not written by skops, or altered: it builds .*\.{type_name} in"
        ):
            load_model(tmp_path / "altered.skops")


def altered_nodes(**values):
    def alter(model):
        for name, value in values.items():
            model._predictors[0][0].nodes[name][0] = value

    return alter


def altered_tree(**arrays):
    def alter(model):
        for name, value in arrays.items():
            getattr(model.tree_, name)[0] = value

    return alter


def altered_state(**state):
    def alter(model):
        model.tree_.__setstate__({**model.tree_.__getstate__(), **state})

    return alter


def altered_attributes(**attributes):
    def alter(model):
        for name, value in attributes.items():
            setattr(model, name, value)

    return alter


def two_scores(model):
    model.estimators_ = np.repeat(model.estimators_, 2, axis=1)


def fewer_columns_than_members(model):
    model.n_features_in_ = 2


def list_of_members(model):
    model.estimators_ = model.estimators_.tolist()


def other_members(model):
    model.estimators_[0, 0] = LogisticRegression()


def loss_of_many_classes(model):
    model._loss.is_multiclass = True


def nodes_in_two_dimensions(model):
    model._predictors[0][0].nodes = model._predictors[0][0].nodes[None]


def replaced_walk(model):
    model._predictors[0][0].predict = np.add


def no_predictor(model):
    model._predictors[0][0] = LogisticRegression()


HISTOGRAM, TREE = HistGradientBoostingClassifier(max_iter=2), DecisionTreeClassifier(random_state=0)
BOOSTING = GradientBoostingClassifier(n_estimators=2)


@pytest.mark.parametrize(
    ("model", "alter"),
    [
        (HISTOGRAM, altered_nodes(left=0)),
        (HISTOGRAM, altered_nodes(right=2**31)),
        (HISTOGRAM, altered_nodes(left=2, right=2)),
        (HISTOGRAM, altered_nodes(feature_idx=5)),
        (HISTOGRAM, altered_nodes(feature_idx=-1)),
        (HISTOGRAM, altered_nodes(is_categorical=1)),
        (HISTOGRAM, altered_attributes(n_features_in_=1)),
        (HISTOGRAM, altered_attributes(n_features_in_="5")),
        (HISTOGRAM, altered_attributes(_preprocess_X=np.positive)),
        (HISTOGRAM, altered_attributes(_preprocessor=StandardScaler())),
        (HISTOGRAM, altered_attributes(_in_fit=True)),
        (HISTOGRAM, nodes_in_two_dimensions),
        (HISTOGRAM, replaced_walk),
        (HISTOGRAM, no_predictor),
        (TREE, altered_tree(children_left=0)),
        (TREE, altered_tree(children_right=10**9)),
        (TREE, altered_tree(children_right=-1)),
        (TREE, altered_tree(feature=5)),
        (TREE, altered_state(max_depth=0)),
        (TREE, altered_state(node_count=1)),
        (TREE, altered_state(node_count=0)),
        (TREE, altered_attributes(n_features_in_=1)),
        (TREE, altered_attributes(_validate_X_predict=np.add)),
        (TREE, altered_attributes(tree_=LogisticRegression())),
        (BOOSTING, two_scores),
        (BOOSTING, fewer_columns_than_members),
        (BOOSTING, list_of_members),
        (BOOSTING, other_members),
        (BOOSTING, loss_of_many_classes),
        (BOOSTING, altered_attributes(n_trees_per_iteration_=0)),
        (BOOSTING, altered_attributes(_raw_predict_init=np.add)),
    ],
)
@pytest.mark.usefixtures("opened_here")
def test_trees_that_scikit_learn_would_lose_itself_in_are_refused(model, alter, people, tmp_path):
    import skops.io

    fitted = clone(model).fit(people[0].to_numpy(), people[1])
    alter(fitted)
    skops.io.dump(make_pipeline(StandardScaler(), fitted), tmp_path / "model.skops")
    with pytest.raises(ModelFileError, match=f"The trees of the {type(model).__name__} are damaged"):
        load_model(tmp_path / "model.skops")


def test_trees_that_belong_to_no_model_are_refused(people, tmp_path):
    import skops.io

    X, y, _ = people
    model, tree = LogisticRegression().fit(X, y), DecisionTreeClassifier().fit(X, y)
    model.spare = [{"tree": np.array([tree.tree_, None], dtype=object)}]
    skops.io.dump(model, tmp_path / "model.skops")
    with pytest.raises(ModelFileError, match="1 of the model's 1 trees do not belong to a scikit-learn model"):
        load_model(tmp_path / "model.skops")


def test_a_tree_that_crashes_scikit_learn_crashes_it_elsewhere(people, tmp_path):
    import skops.io

    X, y, _ = people
    skops.io.dump(DecisionTreeClassifier(max_depth=2).fit(X, y), tmp_path / "model.skops")
    with zipfile.ZipFile(tmp_path / "model.skops") as whole:
        parts = {name: whole.read(name) for name in whole.namelist()}
    number = io.BytesIO()
    np.save(number, np.array(7))
    with zipfile.ZipFile(tmp_path / "altered.skops", "w") as altered:
        for name, part in parts.items():
            altered.writestr(name, number.getvalue() if b"left_child" in part[:200] else part)
    with pytest.raises(ModelFileError, match=r"skops crashed while reading it \(signal 11\)|cannot be read as"):
        load_model(tmp_path / "altered.skops")


@pytest.mark.usefixtures("opened_here")
def test_a_model_that_scikit_learn_scores_differently_is_refused(people, tmp_path):
    import skops.io

    X, y, _ = people
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    model[-1].intercept_ = np.arange(5.0)  # as if there were five classes
    skops.io.dump(model, tmp_path / "model.skops")
    with pytest.raises(ModelFileError, match="damaged: scikit-learn scores 64 made-up people differently"):
        load_model(tmp_path / "model.skops")


def test_models_that_are_not_fitted_hold_no_trees_to_check(tmp_path):
    import skops.io

    skops.io.dump([clone(model) for model in (HISTOGRAM, TREE, BOOSTING)], tmp_path / "model.skops")
    assert len(load_model(tmp_path / "model.skops")) == 3


@pytest.mark.parametrize("name", ["histogram boosting", "gradient boosting", "forest"])
@pytest.mark.usefixtures("opened_here")
def test_trees_of_any_bits_are_refused_or_walked_to_their_ends(name, people, tmp_path):
    import skops.io

    X, y, _ = people
    rng = np.random.default_rng(0)
    skops.io.dump(clone(MODELS[name]).fit(X, y), tmp_path / "model.skops")

    def turn_bits(array):
        if array.dtype.names and rng.random() < 0.5:
            flat = array.view(np.uint8)
            for place in rng.integers(flat.size, size=2):
                flat[place] ^= 1 << rng.integers(8)

    found = []
    for _ in range(16):
        rewritten(tmp_path / "model.skops", tmp_path / "altered.skops", change_array=turn_bits)
        found.append(outcome(tmp_path / "altered.skops", X))
        if found[-1] == "read":
            load_model(tmp_path / "altered.skops").predict_proba(X)
    assert {"refused", "read"} == set(found)


def test_a_torch_file_says_what_to_do(tmp_path):
    torch.save(torch.nn.Linear(2, 1).state_dict(), tmp_path / "model.pt")
    with pytest.raises(ModelFileError, match=r"has the weights of a torch model without its network.*onnx.export"):
        load_model(tmp_path / "model.pt")


def test_files_that_are_absent_empty_or_of_no_known_kind_are_named(tmp_path):
    with pytest.raises(ModelFileError, match=r"There is no model file '.*nothing\.onnx'"):
        load_model(tmp_path / "nothing.onnx")
    (tmp_path / "model.onnx").touch()
    with pytest.raises(ModelFileError, match="is empty"):
        load_model(tmp_path / "model.onnx")
    (tmp_path / "model.h5").write_bytes(b"x")
    with pytest.raises(ModelFileError, match=r"must end in one of \.safetensors, \.onnx"):
        load_model(tmp_path / "model.h5")
    with pytest.raises(ModelFileError, match="There is no model at"):
        load_model(tmp_path)


def test_misnamed_files_are_told_apart_by_content(saved, tmp_path):
    for name in [k for k in KINDS if k != "folder"]:
        content = saved[name][0].read_bytes()
        for ending in (".json", ".ubj", ".txt", ".cbm", ".skops", ".safetensors"):
            if name.endswith(ending):
                continue
            path = tmp_path / f"model{ending}"
            path.write_bytes(content)
            with pytest.raises(ModelFileError, match="is truncated, altered or misnamed"):
                load_model(path)


@pytest.mark.usefixtures("own_processes")
def test_a_library_that_is_not_installed_is_named(tmp_path, monkeypatch):
    path = tmp_path / "model.txt"
    path.write_text("tree\nversion=v4\n")
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "lightgbm.py").write_text("raise ImportError('no')")
    monkeypatch.setenv("PYTHONPATH", str(blocked))
    with pytest.raises(ModelFileError, match="needs lightgbm, which is not installed: pip install 'lightgbm'"):
        load_model(path)


@pytest.mark.usefixtures("own_processes")
def test_modules_beside_the_file_are_not_imported(saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("lightgbm", "json", "numpy"):
        (tmp_path / f"{name}.py").write_text("import pathlib; pathlib.Path('mark').touch()")
    assert load_model(saved["lightgbm.txt"][0]).n_trees == 4
    assert not (tmp_path / "mark").exists()


@pytest.mark.usefixtures("own_processes")
@pytest.mark.slow
def test_a_reader_that_crashes_or_hangs_ends_with_a_sentence(tmp_path, monkeypatch):
    path = tmp_path / "model.txt"
    path.write_text("tree\nversion=v4\n")
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(blocked))
    (blocked / "lightgbm.py").write_text("import os; os.abort()")
    with pytest.raises(ModelFileError, match=r"is damaged: lightgbm crashed while reading it \(signal 6\)"):
        opened_apart(path, "lightgbm")
    (blocked / "lightgbm.py").write_text("import time; time.sleep(60)")
    with monkeypatch.context() as impatient:
        impatient.setattr("evenhand.system.processes._PATIENCE", 0.1)
        with pytest.raises(ModelFileError, match="lightgbm was still reading it after 30 seconds"):
            opened_apart(path, "lightgbm")
    (blocked / "lightgbm.py").write_text(
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 60))\nwhile True: pass"
    )
    with pytest.raises(ModelFileError, match="lightgbm was still reading it after 30 seconds"):  # of computing
        opened_apart(path, "lightgbm")


def test_a_model_that_cannot_be_explained_says_why(people, tmp_path):
    import xgboost

    X, y, _ = people
    booster = xgboost.train({"objective": "reg:squarederror"}, xgboost.DMatrix(X, label=y), num_boost_round=2)
    booster.save_model(tmp_path / "model.json")
    with pytest.raises(ModelFileError, match=r"cannot be read as a model of xgboost: .*objective 'reg:squarederror'"):
        load_model(tmp_path / "model.json")


def damaged(content, rng):
    """The file cut short, with bits turned, or with a piece of something else in it."""
    altered = bytearray(content)
    how = rng.integers(4)
    if how == 0:
        return bytes(altered[: rng.integers(len(altered))])
    if how == 1:
        for place in rng.integers(len(altered), size=rng.integers(1, 9)):
            altered[place] ^= 1 << rng.integers(8)
    elif how == 2:
        place, length = rng.integers(len(altered)), rng.integers(1, 60)
        altered[place : place + length] = rng.bytes(length)
    else:
        place = rng.integers(len(altered))
        altered[place:place] = rng.bytes(rng.integers(1, 60))
    return bytes(altered)


def outcome(path, X):
    """What becomes of a file: a model whose score can be asked for, or an error of ours in one sentence."""
    try:
        model = load_model(path)
        audited = as_audited_model(model, table=X, n_permutations=4)
        x = audited.encode(audited.aligned(X))
        audited.attribute(x[:3], x[3:6], 2, "segments")
    except EvenhandError as error:
        message = str(error)
        assert message.endswith("."), message
        assert "\n" not in message
        assert "Traceback" not in message
        return "crashed apart" if "crashed while" in message else "hung apart" if "still" in message else "refused"
    return "read"


def fuzz(name, saved, people, folder, n_cases, seed=0):
    path, X = saved[name][0], table_for(name, people[0])
    content = path.read_bytes()
    rng = np.random.default_rng(seed)
    cases = []
    for case in range(n_cases):
        file = folder / f"{case}-{path.name}"
        file.write_bytes(damaged(content, rng))
        cases.append(file)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda file: outcome(file, X), cases))
    assert set(found) - {"read"}


def test_damaged_files_read_here_end_in_a_sentence(saved, people, tmp_path):
    fuzz("ours.safetensors", saved, people, tmp_path, 120)


NATIVE = [
    *("xgboost.json", "xgboost.ubj", "lightgbm.txt", "catboost.cbm", "catboost.json"),
    *("categories.cbm", "categories.json", "linear.onnx", "linear.skops", "trees.skops"),
]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be copied here")
@pytest.mark.parametrize("n_cases", [6, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NATIVE)
def test_damaged_files_read_apart_end_in_a_sentence(name, n_cases, saved, people, tmp_path, monkeypatch):
    monkeypatch.setattr("evenhand.system.processes._PATIENCE", 0.5)
    assert outcome(saved[name][0], table_for(name, people[0])) == "read"
    fuzz(name, saved, people, tmp_path, n_cases)


def test_a_skops_file_may_not_become_larger_than_memory_allows(saved, tmp_path, monkeypatch):
    monkeypatch.setattr("evenhand.models.files.skops._LARGEST", 60_000_000)
    many, zeros, nested = (tmp_path / f"{name}.skops" for name in ("many", "zeros", "nested"))
    with zipfile.ZipFile(saved["linear.skops"][0]) as whole:
        schema = json.loads(whole.read("schema.json"))
        parts = {name: whole.read(name) for name in whole.namelist() if name != "schema.json"}
    name, array = next((name, part) for name, part in parts.items() if name.endswith(".npy"))
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(10_000_000))
    packed = io.BytesIO()
    np.savez_compressed(packed, data=np.zeros(10_000_000))
    more = {**schema, "more": [{"__class__": "ndarray", "file": name}] * 20_000}
    for path, plan, part in (
        (many, more, array + bytes(4_000)),
        (zeros, schema, buffer.getvalue()),
        (nested, schema, packed.getvalue()),
    ):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("schema.json", json.dumps(plan))
            for other, content in {**parts, name: part}.items():
                archive.writestr(other, content)
        assert path.stat().st_size < 5_000_000
        with pytest.raises(ModelFileError, match=r"cannot be read as skops: it expands to 0\.\d GB, but only 0\.05"):
            load_model(path)


def test_a_tree_that_its_library_walks_differently_is_refused(saved, tmp_path):
    content = json.loads(saved["xgboost.json"][0].read_bytes())
    trees = content["learner"]["gradient_booster"]["model"]["trees"]
    trees[0]["left_children"][0] = -2  # not a leaf to XGBoost, which knows -1 alone
    path = tmp_path / "model.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ModelFileError, match=r"scores \d+ of 512 made-up people differently|crashed|cannot be read"):
        load_model(path)
    content = json.loads(saved["catboost.json"][0].read_bytes())
    feature = content["features_info"]["float_features"][0]
    feature["borders"] = feature["borders"][::-1]
    path.write_text(json.dumps(content))
    with pytest.raises(ModelFileError, match=r"scores \d+ of 512 made-up people differently|cannot be read"):
        load_model(path)
    content = json.loads(saved["catboost.json"][0].read_bytes())
    content["features_info"]["float_features"][2]["flat_feature_index"] = 0
    path.write_text(json.dumps(content))
    with pytest.raises(ModelFileError, match=r"cannot be read as a model of catboost: .*two features the same place"):
        load_model(path)


def test_a_lightgbm_file_that_is_cut_in_its_parameters_is_refused(saved, tmp_path):
    text = saved["lightgbm.txt"][0].read_bytes()
    path = tmp_path / "model.txt"
    path.write_bytes(text[: text.index(b"\n[machine_list_filename") + 23])
    with pytest.raises(ModelFileError, match="is damaged: its parameters do not come to an end"):
        load_model(path)


def test_a_lightgbm_file_with_another_line_among_its_parameters_is_refused(saved, tmp_path):
    """The library reads on from it, beyond the end of the text."""
    text = saved["lightgbm.txt"][0].read_bytes()
    path = tmp_path / "model.txt"
    path.write_bytes(text.replace(b"\n[min_data_in_bin", b"\nleaf_weight=8.9 5.4\n[min_data_in_bin"))
    assert path.read_bytes() != text
    with pytest.raises(ModelFileError, match="has a line among its parameters that is none of them"):
        load_model(path)


def test_a_lightgbm_file_with_nul_bytes_is_refused_at_once(saved, tmp_path):
    text = saved["lightgbm.txt"][0].read_bytes()
    path = tmp_path / "model.txt"
    path.write_bytes(text[:200] + b"\0" * 5 + text[200:])
    begun = time.perf_counter()
    with pytest.raises(ModelFileError, match="is damaged: a text file must not contain NUL bytes"):
        load_model(path)
    assert time.perf_counter() - begun < 5


def test_trees_altered_by_hand_are_not_walked(saved, people, tmp_path):
    content = json.loads(saved["xgboost.json"][0].read_bytes())
    trees = content["learner"]["gradient_booster"]["model"]["trees"]
    trees[0]["left_children"][0] = 0  # its own child
    path = tmp_path / "model.json"
    path.write_text(json.dumps(content))
    with pytest.raises(EvenhandError, match=r"damaged|cannot be read"):
        as_audited_model(load_model(path))


def test_an_onnx_file_is_checked_before_it_is_run_here(saved):
    assert isinstance(load_model(saved["linear.onnx"][0]), OnnxModel)
    with pytest.raises(InvalidInputError, match="not a valid ONNX model"):
        OnnxModel(saved["linear.skops"][0].read_bytes())


def test_the_process_that_opens_a_tree_file_imports_neither_torch_nor_optional_libraries():
    libraries = ["torch", "numba", "xgboost", "lightgbm", "catboost", "shap"]
    code = (
        "import sys, evenhand.models.files.worker, evenhand.models.onnx_process;"
        f"assert not set({libraries}) & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_reader_that_cannot_prepare_still_says_why(saved, own_processes, monkeypatch, tmp_path):
    (tmp_path / "xgboost.py").write_text("raise OSError('libgomp.so.1: cannot open shared object file')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with (
        ready("evenhand.models.files.worker:prepare", ".json"),
        pytest.raises(ModelFileError, match=r"cannot be read as a model of xgboost: .*libgomp"),
    ):
        load_model(saved["xgboost.json"][0])
