"""Models from skops files, of types that skops trusts and a few more.

scikit-learn trusts a model's attributes, and an altered file can hold any. It follows the nodes of a tree and looks up
their columns without checking either, so that it could read memory outside its arrays, or loop forever: trees are
checked before anything walks them. An audit reads linear models, networks and trees from attributes whose shapes
scikit-learn may interpret differently, such as an intercept for each column: the scores of both are compared.
"""

from __future__ import annotations

import importlib
import inspect
import io
import json
import sys
import threading
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn import utils
from sklearn.base import BaseEstimator
from sklearn.ensemble._gb import BaseGradientBoosting
from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
from sklearn.ensemble._hist_gradient_boosting.gradient_boosting import BaseHistGradientBoosting
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.tree import BaseDecisionTree
from sklearn.tree._tree import Tree

from evenhand.arrays import as_numpy
from evenhand.exceptions import EvenhandError, InvalidInputError, ModelFileError, first_line

if TYPE_CHECKING:
    import pandas as pd


def check_trees(model: object) -> None:
    """Refuse a model in which a tree of scikit-learn is damaged, or is where it cannot be checked.

    Parameters
    ----------
    model
        Any estimator, with all its parts.

    Raises
    ------
    InvalidInputError
        If nodes do not form a tree, split on columns that the model does not have or on categories, or do not belong
        to a model; or if a method of a tree model was replaced.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> tree = DecisionTreeClassifier().fit([[0.0], [1.0]], [0, 1])
    >>> check_trees(tree)
    >>> tree.n_features_in_ = 0
    >>> check_trees(tree)
    Traceback (most recent call last):
    ...
    evenhand.exceptions.InvalidInputError: The trees of the DecisionTreeClassifier are damaged: ...
    """
    trees: list[Any] = []
    checked: set[int] = set()
    for part in _parts(model):
        if isinstance(part, Tree | TreePredictor):
            trees.append(part)
            continue
        if isinstance(part, BaseDecisionTree):
            members, is_sound = [getattr(part, "tree_", None)], _is_sound_tree(part)
        elif isinstance(part, BaseHistGradientBoosting):
            members = [p for stage in getattr(part, "_predictors", []) for p in stage]
            is_encoded = getattr(part, "_preprocessor", None) is not None or getattr(part, "_in_fit", False)
            is_sound = all(not is_encoded and _is_sound_predictor(p, _n_columns(part)) for p in members)
        elif isinstance(part, BaseGradientBoosting):
            members, is_sound = [], _is_sound_boosting(part)
        else:
            continue
        if not is_sound or _has_replaced_methods(part) or any(_has_replaced_methods(member) for member in members):
            raise InvalidInputError(
                f"The trees of the {type(part).__name__} are damaged: their nodes do not form trees of numbers on its "
                "columns."
            )
        checked |= {id(member) for member in members}
    stray = sum(id(tree) not in checked for tree in trees)
    if stray:
        raise InvalidInputError(
            f"{stray} of the model's {len(trees)} trees do not belong to a scikit-learn model and cannot be checked."
        )


def _parts(model: object, enters: Callable[[object], bool] = lambda _: True) -> Iterator[object]:
    """The model and all objects in it, each once; without those inside parts that are not entered."""
    seen: set[int] = set()
    waiting = [model]
    while waiting:
        part = waiting.pop()
        if id(part) in seen or isinstance(part, type | str | bytes | int | float | None):
            continue
        seen.add(id(part))
        yield part
        if enters(part):
            waiting.extend(held_by(part))


def held_by(part: object) -> Iterable[object]:
    """The contents of an object: entries of containers, or attributes."""
    if isinstance(part, np.ndarray):
        return part.ravel().tolist() if part.dtype == object else ()
    if isinstance(part, dict):
        return part.values()
    if isinstance(part, list | tuple | set):
        return part
    attributes = getattr(part, "__dict__", None)
    return attributes.values() if isinstance(attributes, dict) else ()


def _has_replaced_methods(part: object) -> bool:
    """Whether an attribute replaces a method, which may be the one that checks the columns."""
    return any(callable(getattr(type(part), name, None)) for name in getattr(part, "__dict__", ()))


def _n_columns(model: Any) -> int:
    found = vars(model).get("n_features_in_")
    return int(found) if isinstance(found, int | np.integer) else 0


def _is_sound_tree(model: Any) -> bool:

    from evenhand.models.trees.ensemble import levels

    tree = getattr(model, "tree_", None)
    if tree is None:  # not fitted
        return True
    if type(tree) is not Tree or not 1 <= tree.node_count <= tree.capacity or 0 in tree.value.shape:
        return False
    is_leaf = tree.children_left == -1
    if not _is_tree(tree.children_left, tree.children_right, tree.feature, is_leaf, _n_columns(model)):
        return False
    depth = sum(1 for _ in levels(np.zeros(1, dtype=np.int64), tree.children_left, tree.children_right, is_leaf)) - 1
    return bool(tree.max_depth >= depth)


def _is_sound_predictor(predictor: Any, n_columns: int) -> bool:

    nodes = getattr(predictor, "nodes", None)
    if type(predictor) is not TreePredictor or type(nodes) is not np.ndarray:
        return False
    if nodes.dtype != PREDICTOR_RECORD_DTYPE or nodes.ndim != 1:
        return False
    is_leaf = nodes["is_leaf"] != 0
    left, right, feature = (nodes[name].astype(np.int64) for name in ("left", "right", "feature_idx"))
    return not nodes["is_categorical"][~is_leaf].any() and _is_tree(left, right, feature, is_leaf, n_columns)


def _is_sound_boosting(model: Any) -> bool:

    members = getattr(model, "estimators_", None)
    if members is None:  # not fitted
        return True
    return (
        type(members) is np.ndarray
        and members.ndim == 2
        and members.shape[1] == 1  # one score per person, as two classes have
        and vars(model).get("n_trees_per_iteration_", 1) == 1
        and not getattr(getattr(model, "_loss", None), "is_multiclass", False)
        and all(isinstance(m, BaseDecisionTree) and _n_columns(m) == _n_columns(model) for m in members.flat)
    )


def _is_tree(
    left: NDArray[np.integer[Any]],
    right: NDArray[np.integer[Any]],
    feature: NDArray[np.integer[Any]],
    is_leaf: NDArray[np.bool_],
    n_columns: int,
) -> bool:
    """Whether every child comes after its only parent, as scikit-learn numbers them."""
    asking = np.flatnonzero(~is_leaf)
    children = np.concatenate([left[asking], right[asking]])
    return bool(
        len(left) > 0
        and (children > np.concatenate([asking, asking])).all()
        and (children < len(left)).all()
        and len(np.unique(children)) == len(children)
        and ((feature[asking] >= 0) & (feature[asking] < n_columns)).all()
    )


# Types of ordinary scikit-learn models that skops leaves to its callers, and the one way in which skops may build each.
# The way matters: skops trusts names, and a hostile file may ask it to call a class instead of filling an object with
# attributes. ObjectNode makes an empty object and sets its attributes, DictNode fills a dictionary, DTypeNode takes the
# dtype of an array, TreeNode calls `Tree` with numbers. So no class below runs code that the file chooses: only the two
# trees have a `__setstate__` that does more than set attributes, and it copies arrays, which `check_trees` checks.
TRUSTED: dict[str, str] = {
    "numpy.dtype": "DTypeNode",
    "sklearn.calibration._CalibratedClassifier": "ObjectNode",
    "sklearn.calibration._SigmoidCalibration": "ObjectNode",
    "sklearn.calibration._TemperatureScaling": "ObjectNode",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor": "ObjectNode",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer": "ObjectNode",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer": "ObjectNode",
    "sklearn.tree._tree.Tree": "TreeNode",
    "sklearn.utils._bunch.Bunch": "DictNode",
}


_LARGEST = 3 * 2**29  # bytes to which a file may expand; skops briefly needs them twice


_NOT_LISTED = {"tests", "externals", "setup", "conftest", "experimental", "estimator_checks"}  # by scikit-learn itself
_IMPORTING = threading.Lock()


@cache
def imported_skops() -> Any:
    """The reader and writer of skops.

    Its import lists all estimators of scikit-learn, which it trusts, and for that imports all of scikit-learn. That
    takes longer than everything else. So this is a copy of our own that lists none, unless skops is already imported.
    Estimators that a file names are looked up by `is_estimator`. It also searches the loaded modules for functions of
    scipy, in the order of their import: pandas, which this module imports late, has many.
    """
    with _IMPORTING:
        if "skops.io" in sys.modules:
            return sys.modules["skops.io"]
        listed = utils.all_estimators
        utils.all_estimators = list
        try:
            return importlib.import_module("skops.io")
        finally:
            utils.all_estimators = listed
            for name in [name for name in sys.modules if name.partition(".")[0] == "skops"]:
                del sys.modules[name]  # others import the whole


def is_estimator(name: str) -> bool:
    """Whether this is one of scikit-learn's public estimators, which skops trusts.

    Examples
    --------
    >>> is_estimator("sklearn.linear_model._logistic.LogisticRegression"), is_estimator("sklearn.utils._bunch.Bunch")
    (True, False)
    """
    module, _, kind = name.rpartition(".")
    parts = module.split(".")
    if parts[0] != "sklearn" or kind.startswith("_") or _NOT_LISTED & {*parts}:
        return False
    public = ".".join(takewhile(lambda part: not part.startswith("_"), parts))
    try:
        found = getattr(importlib.import_module(public), kind, None)
    except ImportError:
        return False
    if not isinstance(found, type) or not issubclass(found, BaseEstimator) or found is BaseEstimator:
        return False
    return not inspect.isabstract(found) and f"{found.__module__}.{found.__name__}" == name


def checked_content(file: Path) -> bytes:
    """The bytes of a skops file that is not too large, and builds only trusted types in the allowed way.

    Raises
    ------
    ModelFileError
        If the file is damaged or contains types that are not trusted.
    """
    skops_io = imported_skops()
    try:
        content = file.read_bytes()
        schema = _checked_schema(content)
        ways = _trusted(skops_io, content)
        untrusted = [name for name in skops_io.get_untrusted_types(data=content) if name not in ways]
        built = {
            (f"{part.get('__module__')}.{part.get('__class__')}", part.get("__loader__")) for part in _nodes(schema)
        }
        misused = sorted({name for name, way in built if ways.get(name, way) != way})
    except Exception as error:  # skops does not catch errors of zipfile, json and numpy
        raise ModelFileError(f"{str(file)!r} cannot be read as skops: {first_line(error)}.") from error
    if untrusted:
        raise ModelFileError(
            f"{str(file)!r} has types that are not trusted, because they may run code: {', '.join(untrusted)}; save a "
            "model without them, such as the `best_estimator_` of a GridSearchCV."
        )
    if misused:
        raise ModelFileError(
            f"{str(file)!r} was not written by skops, or altered: it builds {', '.join(misused)} in a different way."
        )
    return content


def trusted_model(content: bytes) -> Any:
    """The model of a skops file whose plan was checked.

    Errors of skops, numpy and scikit-learn are not caught; a damaged tree may crash scikit-learn.
    """
    skops_io = imported_skops()
    model = skops_io.loads(content, trusted=list(_trusted(skops_io, content)))
    check_trees(model)
    return model


def _trusted(skops_io: Any, content: bytes) -> dict[str, str]:
    """Types of a file that may be built, and the way in which each may be."""
    return TRUSTED | {name: "ObjectNode" for name in skops_io.get_untrusted_types(data=content) if is_estimator(name)}


def _checked_schema(content: bytes) -> Any:
    """The plan by which skops builds a model, if what it reads is at most `_LARGEST` bytes.

    A part that is named many times is read many times.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        sizes = {part.filename: _inflated(archive, part) for part in archive.infolist()}
        if sizes["schema.json"] > _LARGEST // 20:  # JSON grows when it is parsed
            raise ValueError(f"its schema has {sizes['schema.json']:,} bytes")
        schema = json.loads(archive.read("schema.json"))
    total = sum(sizes.get(part["file"], 0) for part in _nodes(schema) if isinstance(part.get("file"), str))
    if total > _LARGEST:
        raise ValueError(f"it expands to {total / 2**30:.1f} GB, but only {_LARGEST / 2**30:g} GB are allowed")
    return schema


def _inflated(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> int:
    """Bytes to which a part expands, by sizes that Python enforces for zip files; sparse arrays are zipped again."""
    with archive.open(part) as stream:
        is_zip = stream.read(4) == b"PK\x03\x04"
    if not is_zip or part.file_size > _LARGEST:
        return part.file_size
    with zipfile.ZipFile(io.BytesIO(archive.read(part))) as inner:
        return part.file_size + sum(member.file_size for member in inner.infolist())


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object of the schema."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)


_MADE_UP = 64  # people
_TOLERANCE = 1e-4  # of a probability
_MOST_COLUMNS = 20_000  # of a model that is checked


def check_scores(model: object) -> None:
    """Refuse a model that scores made-up people differently than its fitted attributes do.

    A model that takes more than numbers is checked part by part. A model that an audit only asks for scores is not
    checked.

    Raises
    ------
    InvalidInputError
        If probabilities differ or cannot be computed.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> linear = LogisticRegression().fit([[0.0, 1.0], [1.0, 0.0]], [0, 1])
    >>> check_scores(linear)
    >>> linear.intercept_ = np.array([0.0, 1.0])
    >>> check_scores(linear)
    Traceback (most recent call last):
    ...
    evenhand.exceptions.InvalidInputError: The LogisticRegression is damaged: ...
    """

    def is_unchecked(part: object) -> bool:
        is_model = isinstance(part, BaseEstimator) and (part is model or hasattr(part, "predict_proba"))
        return not (is_model and _is_checked(part))

    deque(_parts(model, is_unchecked), maxlen=0)


def _is_checked(model: Any) -> bool:
    """Whether the model takes numbers and can be read; refuse it if its own scores then differ."""
    from evenhand.models.dispatch import as_audited_model  # not in the process that opens files, which needs no torch

    name = type(model).__name__
    try:
        people = _people(model)
        audited = as_audited_model(model, table=people)
    except EvenhandError:
        return False  # the audit, which has the people, says why
    except Exception as error:  # attributes of a wrong kind
        raise InvalidInputError(
            f"The {name} is damaged: its attributes cannot be read ({first_line(error)})."
        ) from error
    if people is None or audited.attribution == "sampled_shapley" or not hasattr(model, "predict_proba"):
        return False
    try:
        ours = as_numpy(audited.probability(audited.margin(audited.encode(audited.aligned(people)))))
    except (EvenhandError, ValueError, TypeError, AttributeError):
        return False  # it takes more than numbers
    try:
        theirs: NDArray[np.float64] = np.asarray(model.predict_proba(people), dtype=np.float64)
    except Exception as error:  # scikit-learn trusts its attributes
        raise InvalidInputError(f"The {name} is damaged: it cannot score people ({first_line(error)}).") from error
    if theirs.shape != (_MADE_UP, 2) or not np.allclose(ours, theirs[:, 1], rtol=0, atol=_TOLERANCE):
        raise InvalidInputError(
            f"The {name} is damaged: scikit-learn scores {_MADE_UP} made-up people differently than its fitted "
            "attributes do."
        )
    return True


def _people(model: Any) -> pd.DataFrame | None:
    """People with the columns that the model takes; None if it does not name them, or takes too many."""
    import pandas as pd

    rng = np.random.default_rng(0)
    names = getattr(model, "feature_names_in_", range(int(getattr(model, "n_features_in_", 0))))
    if not 0 < len(names) <= _MOST_COLUMNS:
        return None
    values = rng.normal(size=(_MADE_UP, len(names))) * rng.choice([0.1, 1.0, 30.0], size=(_MADE_UP, 1))
    return pd.DataFrame(values, columns=names)
