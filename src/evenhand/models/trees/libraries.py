"""Trees of LightGBM, scikit-learn, XGBoost and CatBoost, read into one form.

The process that opens a file of trees imports this module, and does without torch.
"""

from __future__ import annotations

import itertools
import json
import math
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.models.encoders import fitted_names
from evenhand.models.trees.ensemble import ZERO_REACH, Tree, TreeEnsemble, flags_of, unrolled

_MOST_WAYS = 10_000


def read_lightgbm(model: Any) -> TreeEnsemble:
    """The ensemble of an `LGBMClassifier` or `Booster` with a binary objective, up to its best iteration.

    Raises
    ------
    InvalidTypeError
        If it is neither an estimator nor a Booster.
    InvalidInputError
        If it is not fitted, has several outputs, an objective that is not logistic, or linear models in its leaves.
    """
    import lightgbm

    name = type(model).__name__
    is_estimator = _is_estimator(model, lightgbm.LGBMModel, lightgbm.Booster, "LightGBM", "LGBMClassifier")
    dump = (model.booster_ if is_estimator else model).dump_model()
    if dump["num_tree_per_iteration"] > 1:
        raise InvalidInputError(
            f"This {name} has {dump['num_tree_per_iteration']} classes; tree models are explained for two, a decision "
            "and its opposite."
        )
    # LightGBM's probability is the logistic function of `sigmoid` times its raw score.
    scale = _sigmoid(dump.get("objective", "none"), name)
    if dump["average_output"]:
        scale /= len(dump["tree_info"])
    trees = [_lightgbm_tree(tree["tree_structure"], scale, name) for tree in dump["tree_info"]]
    names = dump["feature_names"]
    return TreeEnsemble.from_trees(
        trees,
        base_margin=0.0,
        n_features=dump["max_feature_idx"] + 1,
        input_dtype="float64",
        output="log-odds",
        source=f"LightGBM {name} ({len(trees)} trees)",
        feature_names=None if names == [f"Column_{j}" for j in range(len(names))] else names,
        categories=_lightgbm_categories(dump),
    )


def _is_estimator(model: Any, estimator: type[Any], booster: type[Any], library: str, example: str) -> bool:
    """Whether a model is a fitted estimator; otherwise, it is a Booster."""
    name = type(model).__name__
    if not isinstance(model, (estimator, booster)):
        raise InvalidTypeError(f"For {library}, an estimator such as {example} or a Booster is expected, got {name}.")
    if isinstance(model, estimator) and not model.__sklearn_is_fitted__():
        raise InvalidInputError(f"This {name} is not fitted: call its `fit` first.")
    return isinstance(model, estimator)


def sigmoid_of(booster: Any) -> float:
    """The factor that converts LightGBM's raw score to log-odds."""
    return _sigmoid(booster.dump_model(num_iteration=1).get("objective", "none"), type(booster).__name__)


def _sigmoid(objective: str, name: str) -> float:
    kind, *settings = objective.split()
    if kind == "binary":
        return float(dict(setting.split(":") for setting in settings if ":" in setting).get("sigmoid", 1.0))
    if kind == "cross_entropy":
        return 1.0
    raise InvalidInputError(
        f"This {name} was fitted with the objective {kind!r}, whose raw score is not the log-odds of a decision; fit "
        "it with 'binary' or 'cross_entropy'."
    )


def _lightgbm_tree(root: dict[str, Any], scale: float, name: str) -> Tree:
    nodes, left, right = unrolled(root, "split_feature", ("left_child", "right_child"))
    if any("leaf_const" in node for node in nodes):
        raise InvalidInputError(
            f"This {name} has linear models in its leaves (`linear_tree`), which are not constant; fit it without."
        )
    asks_category = [node.get("decision_type") == "==" for node in nodes]
    numbers = zip(nodes, asks_category, strict=True)
    threshold = np.array([0.0 if category else node.get("threshold", 0.0) for node, category in numbers])
    missing = np.array([node.get("missing_type", "NaN") for node in nodes])
    stated = np.array([bool(node.get("default_left", False)) for node in nodes])
    return Tree(
        feature=np.array([node.get("split_feature", -1) for node in nodes]),
        threshold=np.where(threshold == -ZERO_REACH, np.nextafter(-ZERO_REACH, -1.0), threshold),
        left=left,
        right=right,
        # Without missing values in training, a missing value is treated as zero; in a set of categories, as not in it.
        missing_left=np.where(asks_category, False, np.where(missing == "None", threshold >= 0.0, stated)),
        value=scale * np.array([node.get("leaf_value", 0.0) for node in nodes]),
        left_categories={
            i: flags_of([int(code) for code in nodes[i]["threshold"].split("||")])
            for i in np.flatnonzero(asks_category).tolist()
        },
        zero_is_missing=(missing == "Zero") & ~np.array(asks_category),
    )


def _lightgbm_categories(dump: dict[str, Any]) -> dict[int, tuple[Any, ...]]:
    """Values of the categories by feature, which LightGBM stores if it was fitted on a pandas table.

    The values are in column order but without names, and nothing says whether columns that it found useless (constant,
    or with rare categories) were categories. An assignment is used if it is the only one that has a value for every
    code.
    """
    stored = [tuple(values) for values in dump.get("pandas_categorical") or []]
    names, infos = dump["feature_names"], dump["feature_infos"]
    codes = {j: infos[name]["values"] for j, name in enumerate(names) if infos.get(name, {}).get("values")}
    useless = [j for j, name in enumerate(names) if name not in infos]
    n_more = len(stored) - len(codes)
    if n_more < 0 or math.comb(len(useless), n_more) > _MOST_WAYS:
        return {}
    ways = [dict(zip(sorted([*codes, *more]), stored, strict=True)) for more in itertools.combinations(useless, n_more)]
    ways = [way for way in ways if all(max(seen) < len(way[j]) for j, seen in codes.items())]
    if not ways or any(way[j] != ways[0][j] for way in ways for j in codes):
        return {}
    return {j: values for j, values in ways[0].items() if all(way.get(j) == values for way in ways)}


def read_sklearn(model: Any) -> TreeEnsemble:
    """The ensemble of a fitted tree, forest or gradient boosting classifier with two classes.

    Boosted trees add log-odds. A forest averages probabilities, so its margin is the probability of the second class
    and its `output` is "probability".

    Raises
    ------
    InvalidTypeError
        If it is a different kind of estimator.
    InvalidInputError
        If it is not fitted, does not have two classes, has several outputs, or starts from a model that is not a
        constant.
    """
    readers = {
        "DecisionTreeClassifier": _read_averaged,
        "RandomForestClassifier": _read_averaged,
        "ExtraTreesClassifier": _read_averaged,
        "GradientBoostingClassifier": _read_gradient_boosting,
        "HistGradientBoostingClassifier": _read_hist_gradient_boosting,
    }
    kinds = {kind.__name__ for kind in type(model).__mro__ if kind.__module__.startswith("sklearn.")}
    reader = next((reader for kind, reader in readers.items() if kind in kinds), None)
    name = type(model).__name__
    if reader is None:
        raise InvalidTypeError(
            f"scikit-learn's {name} is not among the tree classifiers that can be read: {', '.join(readers)}."
        )
    try:
        check_is_fitted(model)
    except NotFittedError:
        raise InvalidInputError(f"This {name} is not fitted: call its `fit` first.") from None
    if getattr(model, "n_outputs_", 1) > 1:
        raise InvalidInputError(
            f"This {name} predicts {model.n_outputs_} outputs at once; fit a binary classifier for the one to explain."
        )
    if len(model.classes_) != 2:
        raise InvalidInputError(
            f"This {name} has {len(model.classes_)} classes; tree models are explained for two, a decision and its "
            "opposite."
        )
    return reader(model)


def _read_averaged(model: Any) -> TreeEnsemble:
    members = getattr(model, "estimators_", [model])
    trees = [_sklearn_tree(member.tree_, member.tree_.value[:, 0, 1] / len(members)) for member in members]
    return _sklearn_ensemble(model, trees, base_margin=0.0, output="probability")


def _sklearn_ensemble(model: Any, trees: list[Tree], **others: Any) -> TreeEnsemble:
    return TreeEnsemble.from_trees(
        trees,
        n_features=model.n_features_in_,
        source=f"scikit-learn {type(model).__name__} ({len(trees)} {'trees' if len(trees) > 1 else 'tree'})",
        feature_names=fitted_names(model),
        **{"input_dtype": "float32", "output": "log-odds", **others},
    )


def _read_gradient_boosting(model: Any) -> TreeEnsemble:
    # Exponential loss fits half the log-odds: its probability is the logistic function of twice the raw score.
    scale = 2.0 if model.loss == "exponential" else 1.0
    members = model.estimators_[:, 0]
    trees = [_sklearn_tree(m.tree_, scale * model.learning_rate * m.tree_.value[:, 0, 0]) for m in members]
    return _sklearn_ensemble(model, trees, base_margin=scale * _initial_score(model))


def _initial_score(model: Any) -> float:
    """The raw score before any tree, the same for everyone."""
    if isinstance(model.init_, str):  # "zero"
        return 0.0
    if not isinstance(model.init_, DummyClassifier) or model.init_.strategy != "prior":
        raise InvalidInputError(
            f"This GradientBoostingClassifier starts from a {type(model.init_).__name__} (`init`), which is not part "
            "of its trees; fit it with `init=None` or `init='zero'`."
        )
    eps = np.finfo(np.float64).eps
    share = np.clip(model.init_.class_prior_[1], eps, 1 - eps)
    return float(np.log(share / (1 - share))) / (2.0 if model.loss == "exponential" else 1.0)


def _sklearn_tree(tree: Any, value: NDArray[np.float64]) -> Tree:
    return Tree(
        feature=np.where(tree.children_left < 0, -1, tree.feature),
        threshold=tree.threshold,
        left=tree.children_left,
        right=tree.children_right,
        missing_left=tree.missing_go_to_left,
        value=value,
    )


def _read_hist_gradient_boosting(model: Any) -> TreeEnsemble:
    columns, categories = _columns_and_categories(model)
    trees = [_hist_tree(predictor, columns, categories) for (predictor,) in model._predictors]
    base_margin = float(np.ravel(model._baseline_prediction)[0])
    return _sklearn_ensemble(model, trees, base_margin=base_margin, input_dtype="float64", categories=categories)


def _columns_and_categories(model: Any) -> tuple[NDArray[np.intp], dict[int, tuple[Any, ...]]]:
    """The table's column behind each column of the trees, which see categories first; and the categories by column."""
    if model.is_categorical_ is None:
        return np.arange(model.n_features_in_), {}
    is_categorical = np.asarray(model.is_categorical_)
    columns = np.concatenate([np.flatnonzero(is_categorical), np.flatnonzero(~is_categorical)])
    encoder = model._preprocessor.named_transformers_["encoder"]
    known = zip(np.flatnonzero(is_categorical), encoder.categories_, strict=True)
    return columns, {int(j): tuple(v for v in values.tolist() if v == v and v is not None) for j, values in known}


def _hist_tree(predictor: Any, columns: NDArray[np.intp], categories: dict[int, tuple[Any, ...]]) -> Tree:
    nodes = predictor.nodes
    is_leaf = nodes["is_leaf"].astype(bool)
    feature = np.where(is_leaf, -1, columns[np.where(is_leaf, 0, nodes["feature_idx"])])
    asking = np.flatnonzero(nodes["is_categorical"].astype(bool) & ~is_leaf)
    words = predictor.raw_left_cat_bitsets[nodes["bitset_idx"][asking]].astype("<u4")
    bits = np.unpackbits(words.view(np.uint8).reshape(len(asking), 32), axis=1, bitorder="little").astype(bool)
    return Tree(
        feature=feature,
        threshold=nodes["num_threshold"],
        left=nodes["left"].astype(np.int64),
        right=nodes["right"].astype(np.int64),
        missing_left=nodes["missing_go_to_left"],
        value=nodes["value"],
        left_categories={
            int(node): codes[: len(categories[int(feature[node])])] for node, codes in zip(asking, bits, strict=True)
        },
        other_left=nodes["missing_go_to_left"].astype(bool),
    )


# Objectives whose margin is log-odds.
LOGISTIC_OBJECTIVES = ("binary:logistic", "reg:logistic", "binary:logitraw")


def read_xgboost(model: Any) -> TreeEnsemble:
    """The ensemble of an `XGBClassifier` or `Booster` with a logistic objective.

    As in `predict`, an estimator stopped early uses its trees up to the best iteration, and a `Booster` all of them.

    Raises
    ------
    InvalidTypeError
        If it is neither an estimator nor a Booster.
    InvalidInputError
        If it is not fitted, is linear or empty, has several outputs, or an objective that is not logistic.
    """
    import xgboost

    booster, missing, n_rounds = model, math.nan, None
    if _is_estimator(model, xgboost.XGBModel, xgboost.Booster, "XGBoost", "XGBClassifier"):
        booster = model.get_booster()
        missing = float(math.nan if model.missing is None else model.missing)
        if booster.attr("best_iteration") is not None:
            n_rounds = model.best_iteration + 1
    name = type(model).__name__
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    _check_binary(learner, name)
    stored = learner["gradient_booster"]
    forest = stored["gbtree"]["model"] if stored["name"] == "dart" else stored["model"]
    if not forest["trees"]:
        raise InvalidInputError(f"This {name} has no trees: train it for at least one round.")
    starts = forest["iteration_indptr"]
    n_trees = starts[-1] if n_rounds is None else starts[min(n_rounds, len(starts) - 1)]
    weights = stored.get("weight_drop", [1.0] * len(forest["trees"]))
    trees = [_xgboost_tree(t, weight) for t, weight in zip(forest["trees"][:n_trees], weights[:n_trees], strict=True)]
    return TreeEnsemble.from_trees(
        trees,
        base_margin=_base_margin(learner),
        n_features=int(learner["learner_model_param"]["num_feature"]),
        input_dtype="float32",
        output="log-odds",
        source=f"XGBoost {name} ({len(trees)} trees)",
        feature_names=learner["feature_names"] or None,
        missing_value=missing,
        categories=_xgboost_categories(forest.get("cats", {})),
        takes_unknown=False,
    )


def _check_binary(learner: dict[str, Any], name: str) -> None:
    parameters, booster = learner["learner_model_param"], learner["gradient_booster"]["name"]
    if booster not in ("gbtree", "dart"):
        raise InvalidInputError(
            f"This {name} was fitted with booster={booster!r}, which has no trees; gbtree and dart can be read."
        )
    n_outputs = max(int(parameters["num_class"]), int(parameters.get("num_target", 1)))
    if n_outputs > 1:
        raise InvalidInputError(
            f"This {name} has {n_outputs} classes or outputs; tree models are explained for two classes, a decision "
            "and its opposite."
        )
    objective = learner["objective"]["name"]
    if objective not in LOGISTIC_OBJECTIVES:
        raise InvalidInputError(
            f"This {name} was fitted with the objective {objective!r}, whose margin is not the log-odds of a decision; "
            f"fit it with one of {', '.join(LOGISTIC_OBJECTIVES)}."
        )


def _base_margin(learner: dict[str, Any]) -> float:
    """The margin before any tree, from a probability (or a margin, if that is what the objective outputs)."""
    base_score = np.float32(learner["learner_model_param"]["base_score"].strip("[]"))  # "[5E-1]" from 3.1 on
    if learner["objective"]["name"] == "binary:logitraw":
        return float(base_score)
    one, reach = np.float32(1), np.float32(1e-6)  # the same steps as XGBoost, in its precision
    return float(-np.log(one / np.clip(base_score, reach, one - reach) - one))


def _xgboost_tree(tree: dict[str, Any], weight: float) -> Tree:
    left, right = np.asarray(tree["left_children"]), np.asarray(tree["right_children"])
    condition = np.asarray(tree["split_conditions"], dtype=np.float32)
    missing_left = np.asarray(tree["default_left"], dtype=bool)
    is_leaf = left < 0
    # XGBoost sends the categories of a set to the right; `Tree` sends them to the left.
    parts = zip(tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"], strict=True)
    sets = {int(node): flags_of(tree["categories"][start : start + size]) for node, start, size in parts}
    turned = np.zeros(len(left), dtype=bool)
    turned[list(sets)] = True
    return Tree(
        feature=np.where(is_leaf, -1, tree["split_indices"]),
        threshold=np.nextafter(condition, np.float32(-np.inf)),
        left=np.where(turned, right, left),
        right=np.where(turned, left, right),
        missing_left=missing_left ^ turned,
        value=np.where(is_leaf, condition, np.float32(0)) * np.float32(weight),
        left_categories=sets,
    )


def _xgboost_categories(stored: dict[str, Any]) -> dict[int, tuple[Any, ...]]:
    """Values of the categories by feature, which XGBoost stores from 3.1 on if it was fitted on a dataframe."""
    found: dict[int, tuple[Any, ...]] = {}
    for j, column in enumerate(stored.get("enc", [])):
        if "offsets" in column:
            text, ends = bytes(v % 256 for v in column["values"]), column["offsets"]
            values = tuple(text[a:b].decode() for a, b in pairwise(ends))
        else:
            values = tuple(column["values"])
        if values:
            found[j] = values
    return found


# Losses whose raw formula value is log-odds.
LOGISTIC_LOSSES = ("Logloss", "CrossEntropy")


def read_catboost(model: Any) -> TreeEnsemble:
    """The ensemble of a `CatBoostClassifier`, or a `CatBoost` with a logistic loss, with numeric features.

    Raises
    ------
    InvalidTypeError
        If it is not a CatBoost model.
    InvalidInputError
        If it is not fitted, has features that are not numeric, or a loss that is not logistic.
    """
    import catboost

    name = type(model).__name__
    if not isinstance(model, catboost.CatBoost):
        raise InvalidTypeError(f"For CatBoost, a fitted model such as CatBoostClassifier is expected, got {name}.")
    if not model.is_fitted():
        raise InvalidInputError(f"This {name} is not fitted: call its `fit` first.")
    _check_numeric(model, name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        model.save_model(str(path), format="json")
        stored = json.loads(path.read_text("utf-8"))
    names = [str(feature) for feature in model.feature_names_]
    check_loss(stored["model_info"].get("params", {}).get("loss_function", {}).get("type", "unknown"), name)
    features = stored["features_info"]["float_features"]
    column = {feature["feature_index"]: feature["flat_feature_index"] for feature in features}
    if len(set(column.values())) < len(features):
        raise InvalidInputError(f"The file of this {name} was altered: it gives two features the same place or number.")
    # A missing value fails `x > border`, unless the feature's missing values count as larger than any number.
    missing_left = {j: feature["nan_value_treatment"] != "AsTrue" for j, feature in zip(column, features, strict=True)}
    scale, (bias,) = stored["scale_and_bias"]
    if "oblivious_trees" in stored:
        trees = [_oblivious_tree(tree, column, missing_left, scale) for tree in stored["oblivious_trees"]]
    else:
        trees = [_catboost_tree(tree, column, missing_left, scale) for tree in stored["trees"]]
    return TreeEnsemble.from_trees(
        trees,
        base_margin=float(bias),
        n_features=len(names),
        input_dtype="float32",
        output="log-odds",
        source=f"CatBoost {name} ({len(trees)} trees)",
        feature_names=None if names == [str(j) for j in range(len(names))] else names,
    )


def catboost_model(path: Path) -> Any:
    """The model of a CatBoost file, as the library reads it."""
    import catboost

    model = catboost.CatBoostClassifier()
    model.load_model(str(path), format="json" if path.suffix.lower() == ".json" else "cbm")
    return model


def word_features(model: Any) -> list[int]:
    """Positions of the features that are categories or texts."""
    return [*model.get_cat_feature_indices(), *model.get_text_feature_indices()]


def takes_words(model: Any) -> bool:
    """Whether a model can be audited, but not by its trees.

    CatBoost turns categories and texts into statistics of the training data that do not belong to a single input, so
    its trees cannot be walked input by input.
    """
    return bool(word_features(model)) and not model.get_embedding_feature_indices()


def _check_numeric(model: Any, name: str) -> None:
    kinds = {
        "categorical": model.get_cat_feature_indices(),
        "text": model.get_text_feature_indices(),
        "embedding": model.get_embedding_feature_indices(),
    }
    for word, features in kinds.items():
        if features:
            raise InvalidInputError(
                f"This {name} has {len(features)} {word} feature{'s' if len(features) > 1 else ''}, which CatBoost "
                "turns into statistics of the training data that belong to no single input; audit the model itself, "
                'with its table and attribution="sampled_shapley", or fit it on encoded, numeric features.'
            )


def check_loss(loss: str, name: str) -> None:
    """Reject a model whose raw value is not log-odds."""
    if loss not in LOGISTIC_LOSSES:
        raise InvalidInputError(
            f"This {name} was fitted with the loss {loss!r}, whose raw value is not the log-odds of a decision; fit it "
            f"with one of {', '.join(LOGISTIC_LOSSES)}."
        )


def _oblivious_tree(tree: dict[str, Any], column: dict[int, int], missing_left: dict[int, bool], scale: float) -> Tree:
    """A tree that asks the same question at each level, with a node for each place where it is asked."""
    splits = tree["splits"] or []
    depth = len(splits)
    # Nodes in heap order, the last split at the root: the leaves are then in the order of `leaf_values`.
    question = np.repeat(np.arange(depth)[::-1], 2 ** np.arange(depth))
    n_inner, n_leaves = len(question), 2**depth
    asked = [split["float_feature_index"] for split in splits]

    def by_node(values: list[Any], at_leaf: float) -> Any:
        return np.concatenate([np.asarray(values)[question] if depth else [], np.full(n_leaves, at_leaf)])

    inner = np.arange(n_inner)
    no_child = np.full(n_leaves, -1)
    return Tree(
        feature=by_node([column[j] for j in asked], -1).astype(np.int64),
        threshold=by_node([np.float32(split["border"]) for split in splits], 0.0),
        left=np.concatenate([2 * inner + 1, no_child]),
        right=np.concatenate([2 * inner + 2, no_child]),
        missing_left=by_node([missing_left[j] for j in asked], 0).astype(bool),
        value=np.concatenate([np.zeros(n_inner), scale * np.asarray(tree["leaf_values"])]),
    )


def _catboost_tree(root: dict[str, Any], column: dict[int, int], missing_left: dict[int, bool], scale: float) -> Tree:
    nodes, left, right = unrolled(root, "split", ("left", "right"))
    splits = [node.get("split") for node in nodes]
    return Tree(
        feature=np.array([-1 if split is None else column[split["float_feature_index"]] for split in splits]),
        threshold=np.array([0.0 if split is None else np.float32(split["border"]) for split in splits]),
        left=left,
        right=right,
        missing_left=np.array([split is not None and missing_left[split["float_feature_index"]] for split in splits]),
        value=scale * np.array([0.0 if "split" in node else node["value"] for node in nodes]),
    )


READERS: dict[str, Callable[[Any], TreeEnsemble]] = {
    "xgboost": read_xgboost,
    "lightgbm": read_lightgbm,
    "catboost": read_catboost,
    "sklearn": read_sklearn,
}
# scikit-learn also has other models; its trees are here.
SKLEARN_TREES = ("sklearn.tree", "sklearn.ensemble._forest", "sklearn.ensemble._gb", "sklearn.ensemble._hist")


def tree_library(model: Any) -> str | None:
    """The library of `model`'s trees, None if it is not a tree model; nothing is imported to check.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> tree_library(DecisionTreeClassifier()), tree_library(LogisticRegression())
    ('sklearn', None)
    """
    modules = [kind.__module__ for kind in type(model).__mro__]
    for library in ("xgboost", "lightgbm", "catboost", "_catboost"):
        if any(module.split(".")[0] == library for module in modules):
            return library.removeprefix("_")
    return "sklearn" if any(module.startswith(SKLEARN_TREES) for module in modules) else None


def read_trees(model: Any) -> TreeEnsemble:
    """The trees of a fitted binary classifier of XGBoost, LightGBM, CatBoost or scikit-learn.

    Raises
    ------
    InvalidTypeError
        If it is not a tree model of these libraries.
    InvalidInputError
        If it is not fitted, not binary, or holds something that is not a tree.

    Examples
    --------
    >>> from sklearn.ensemble import GradientBoostingClassifier
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1]
    >>> model = GradientBoostingClassifier(n_estimators=5).fit(X, y)
    >>> ensemble = read_trees(model)
    >>> ensemble.source, ensemble.output
    ('scikit-learn GradientBoostingClassifier (5 trees)', 'log-odds')
    >>> bool(abs(ensemble.margin(X) - model.decision_function(X)).max() < 1e-12)
    True
    """
    library = tree_library(model)
    if library is None:
        raise InvalidTypeError(
            f"A tree model of XGBoost, LightGBM, CatBoost or scikit-learn is expected, got {type(model).__name__}."
        )
    return READERS[library](model)
