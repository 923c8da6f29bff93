"""A sum of decision trees as flat arrays, from any library, and its numeric input from a table of people."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from evenhand.attribution.sampled import Mixtures
from evenhand.exceptions import InvalidInputError
from evenhand.system.libraries import optional_module
from evenhand.system.threads import n_cores

Output = Literal["log-odds", "probability"]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]
BoolArray = NDArray[np.bool_]

# The tests of nodes. Leaves have none: their feature is -1.
THRESHOLD, THRESHOLD_BUT_ZERO_IS_MISSING, CATEGORY_SET = 0, 1, 2

# LightGBM treats a value this close to zero as zero, and splits zero from negative values at exactly this distance.
ZERO_REACH = float(np.float32(1e-35))

# One record per node, so that a visit touches one cache line.
NODE = np.dtype(
    [
        ("threshold", np.float64),
        ("value", np.float64),
        ("feature", np.int32),
        ("left", np.int32),
        ("right", np.int32),
        ("set_start", np.int32),
        ("set_size", np.int32),
        ("rule", np.uint8),
        ("missing_left", np.uint8),
        ("other_left", np.uint8),
    ],
    align=True,
)

# People walked through the trees together: their rows and one tree fit in the innermost cache.
BLOCK = 256


@dataclass(frozen=True, eq=False)
class Tree:
    """One tree, its root first; arrays have one entry per node.

    Attributes
    ----------
    feature
        Feature that a node tests; -1 at a leaf.
    threshold
        Values up to and including it go left.
    left, right
        Child nodes within this tree; unused at a leaf.
    missing_left
        Whether a missing value goes left.
    value
        What a leaf adds to the margin; unused elsewhere.
    left_categories
        For a node that tests a category: whether each code 0, 1, ... goes left.
    other_left
        For such a node: whether a code outside `left_categories` goes left.
    zero_is_missing
        Whether zero goes where a missing value goes.
    """

    feature: NDArray[np.integer[Any]]
    threshold: NDArray[np.floating[Any]]
    left: NDArray[np.integer[Any]]
    right: NDArray[np.integer[Any]]
    missing_left: NDArray[Any]
    value: NDArray[np.floating[Any]]
    left_categories: Mapping[int, BoolArray] = field(default_factory=dict)
    other_left: BoolArray | None = None
    zero_is_missing: BoolArray | None = None


@dataclass(frozen=True, eq=False)
class TreeEnsemble:
    """The sum of a base margin and the leaf that a row reaches in each tree.

    Comparisons are stored in one form, `x <= threshold` goes left, with `x` first rounded to `input_dtype`. For a
    library that tests `x < t`, the number just below t in that type is stored, which splits the numbers in the same
    way.

    Attributes
    ----------
    feature, threshold, left, right, missing_left, value
        As in `Tree`, concatenated over all trees; `left` and `right` count from the start of the arrays.
    rule
        The test of each node: 0 a threshold, 1 a threshold that treats zero like a missing value, 2 a set of
        categories.
    set_start, set_size, in_set, other_left
        For rule 2: code k goes left if `in_set[set_start + k]`, and where `other_left` says if k is not in
        0..`set_size`-1.
    roots
        First node of each tree.
    base_margin
        Margin before any tree.
    n_features
        Columns of the rows it takes.
    input_dtype
        Type in which the library compares inputs with thresholds.
    output
        What the margin is: "log-odds", or, for averages of trees that hold probabilities, "probability".
    source
        A description of the model it was read from.
    feature_names
        Names the model was fitted with; None if it was fitted without names.
    missing_value
        A number that means a missing value, in addition to NaN.
    categories
        For each feature that the model treats as categories and knows by value: the values, in code order.
    takes_unknown
        Whether an unknown category counts as a missing value; otherwise it cannot be scored.

    Examples
    --------
    >>> stump = Tree(np.array([0, -1, -1]), np.array([0.5, 0, 0]), np.array([1, 0, 0]), np.array([2, 0, 0]),
    ...     np.array([True, False, False]), np.array([0.0, -1.0, 1.0]))
    >>> ensemble = TreeEnsemble.from_trees([stump, stump], base_margin=0.25, n_features=1, input_dtype="float64",
    ...     output="log-odds", source="two stumps")
    >>> ensemble.margin([[0.5], [0.6], [float("nan")]])
    array([-1.75,  2.25, -1.75])
    """

    feature: IntArray
    threshold: FloatArray
    left: IntArray
    right: IntArray
    missing_left: BoolArray
    value: FloatArray
    rule: NDArray[np.uint8]
    set_start: IntArray
    set_size: IntArray
    in_set: NDArray[np.uint8]
    other_left: BoolArray
    roots: IntArray
    base_margin: float
    n_features: int
    input_dtype: Literal["float32", "float64"]
    output: Output
    source: str
    feature_names: tuple[str, ...] | None = None
    missing_value: float = math.nan
    categories: Mapping[int, tuple[Any, ...]] = field(default_factory=dict)
    takes_unknown: bool = True

    @classmethod
    def from_trees(
        cls,
        trees: Sequence[Tree],
        *,
        n_features: int,
        source: str,
        feature_names: Sequence[str] | None = None,
        **others: Any,
    ) -> TreeEnsemble:
        """The ensemble of `trees`, with the attributes from `base_margin` on.

        Raises
        ------
        InvalidInputError
            If the nodes of a tree do not form one, or test an unknown feature.
        """
        for number, tree in enumerate(trees):
            _check_tree(tree, n_features, f"Tree {number} of the {source}")
        sizes = np.asarray([len(tree.feature) for tree in trees], dtype=np.int64)
        roots = np.concatenate([[0], np.cumsum(sizes)[:-1]]) if len(trees) else np.zeros(0)
        feature = _joined([tree.feature for tree in trees], np.int32)
        is_leaf = feature < 0
        shift = np.repeat(roots, sizes)
        rule = np.full(len(feature), THRESHOLD, np.uint8)
        rule[_joined([_or_no(tree.zero_is_missing, tree) for tree in trees], np.bool_)] = THRESHOLD_BUT_ZERO_IS_MISSING
        sets = {
            int(root) + node: codes
            for root, tree in zip(roots, trees, strict=True)
            for node, codes in tree.left_categories.items()
        }
        set_size, set_start = np.zeros(len(feature), np.int32), np.zeros(len(feature), np.int32)
        asking = np.asarray(list(sets), dtype=np.int64)
        rule[asking] = CATEGORY_SET
        set_size[asking] = [len(codes) for codes in sets.values()]
        set_start[asking] = np.cumsum(set_size[asking]) - set_size[asking]
        return cls(
            feature=feature,
            threshold=_joined([tree.threshold for tree in trees], np.float64),
            left=np.where(is_leaf, 0, _joined([tree.left for tree in trees], np.int64) + shift).astype(np.int32),
            right=np.where(is_leaf, 0, _joined([tree.right for tree in trees], np.int64) + shift).astype(np.int32),
            missing_left=_joined([tree.missing_left for tree in trees], np.bool_),
            value=_joined([tree.value for tree in trees], np.float64),
            rule=rule,
            set_start=set_start,
            set_size=set_size,
            in_set=_joined(list(sets.values()), np.uint8),
            other_left=_joined([_or_no(tree.other_left, tree) for tree in trees], np.bool_),
            roots=roots.astype(np.int32),
            n_features=int(n_features),
            source=source,
            feature_names=None if feature_names is None else tuple(feature_names),
            **others,
        )

    @classmethod
    def average(
        cls,
        ensembles: Sequence[TreeEnsemble],
        weights: FloatArray,
        columns: Sequence[NDArray[np.int64] | None],
        *,
        n_features: int,
        source: str,
        feature_names: Sequence[str] | None = None,
    ) -> TreeEnsemble:
        """The weighted sum of ensembles that only split on thresholds, as one ensemble.

        Parameters
        ----------
        ensembles, weights
            The ensembles, with the same kind of output and input, and the weight of each.
        columns
            For each, the features that its features correspond to; None if they are the same.
        n_features, source, feature_names
            Properties of the sum.
        """
        sizes = np.asarray([len(each.feature) for each in ensembles])
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])

        def shifted(name: str) -> IntArray:
            parts = [getattr(each, name) + start for each, start in zip(ensembles, starts, strict=True)]
            return np.concatenate(parts).astype(np.int32)

        alike = ("threshold", "missing_left", "rule", "set_start", "set_size", "other_left")
        joined: dict[str, Any] = {n: np.concatenate([getattr(each, n) for each in ensembles]) for n in alike}
        features = [
            each.feature if places is None else np.where(each.feature < 0, -1, places[each.feature])
            for each, places in zip(ensembles, columns, strict=True)
        ]
        feature = np.concatenate(features).astype(np.int32)
        is_leaf = feature < 0
        return replace(
            ensembles[0],
            **joined,
            feature=feature,
            left=np.where(is_leaf, 0, shifted("left")).astype(np.int32),
            right=np.where(is_leaf, 0, shifted("right")).astype(np.int32),
            value=np.concatenate([weight * each.value for each, weight in zip(ensembles, weights, strict=True)]),
            roots=shifted("roots"),
            base_margin=float(sum(w * each.base_margin for each, w in zip(ensembles, weights, strict=True))),
            n_features=n_features,
            source=source,
            feature_names=None if feature_names is None else tuple(feature_names),
        )

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return len(self.roots)

    @cached_property
    def max_depth(self) -> int:
        """Number of splits on the longest path from a root to a leaf."""
        return max(0, sum(1 for _ in levels(self.roots, self.left, self.right, self.feature < 0)) - 1)

    @property
    def categorical_features(self) -> tuple[int, ...]:
        """Features whose numbers are codes of categories, so that their mean is meaningless."""
        asked = self.feature[self.rule == CATEGORY_SET].tolist()
        return tuple(sorted({*asked, *self.categories}))

    @cached_property
    def nodes(self) -> NDArray[Any]:
        """The nodes as records, in the form of the compiled walks."""
        nodes = np.zeros(len(self.feature), NODE)
        for name in NODE.names or ():
            nodes[name] = getattr(self, name)
        return nodes

    def margin(self, X: ArrayLike, n_threads: int | None = None) -> FloatArray:
        """The base margin plus the leaves reached, in the units that `output` names.

        Parameters
        ----------
        X
            People, of shape (n, n_features); NaN is a missing value, a category is its code.
        n_threads
            Threads to share the people; None for as many as there are cores.

        Raises
        ------
        InvalidInputError
            If `X` has a different number of columns.
        MissingExtraError
            If numba is not installed.
        """
        kernel, nodes = kernel_module(), self.nodes
        x = checked_rows(self, X, "X")
        margin = np.full(len(x), self.base_margin)

        def walk(rows: slice) -> None:
            kernel.add_margin(nodes, self.in_set, self.roots, self.rounded(x[rows]), margin[rows])

        in_blocks(walk, len(x), n_threads)
        return margin

    def mixtures(self, asked: Mixtures, n_threads: int | None = None) -> FloatArray:
        """The margin of each mixture of each person's rows, of shape (n, m); parameters otherwise as in `margin`.

        Examples
        --------
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> from evenhand.attribution.sampled import Mixtures
        >>> from evenhand.models.trees import read_trees
        >>> X, y = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), np.array([0, 0, 0, 1])
        >>> model = read_trees(DecisionTreeClassifier(random_state=0).fit(X, y))
        >>> taken = np.array([[False, False], [True, False], [True, True]])
        >>> model.mixtures(Mixtures(X[3:], X[3:], X[:1], np.zeros_like(taken), taken))
        array([[0., 0., 1.]])
        """
        kernel, nodes = kernel_module(), self.nodes
        z, w, b = (
            checked_rows(self, rows, name)
            for rows, name in ((asked.inputs, "inputs"), (asked.context, "context"), (asked.baseline, "baseline"))
        )
        margin = np.full((len(z), len(asked.is_context)), self.base_margin)
        words = (_words(asked.is_input), _words(asked.is_context & ~asked.is_input))

        def walk(rows: slice) -> None:
            x = tuple(self.rounded(values[rows]) for values in (z, w, b))
            kernel.add_mixtures(nodes, self.in_set, self.roots, *words, x, self.max_depth, margin[rows])

        in_blocks(walk, len(z), n_threads)
        return margin

    def rounded(self, x: NDArray[np.floating[Any]]) -> FloatArray:
        """A copy of `x` rounded to the type in which the library compares, with NaN for missing values."""
        with np.errstate(over="ignore"):  # beyond float32 is infinite, as in the library
            values = np.array(x, dtype=self.input_dtype, order="C")
            missing = values.dtype.type(self.missing_value)
        values[values == missing] = np.nan
        return values.astype(np.float64)


def kernel_module(name: str = "kernel") -> Any:
    """The compiled walks, or a different compiled module of this package, imported on first use."""
    return optional_module(f"evenhand.models.trees.{name}", "A tree model", "numba", "trees")


def levels(
    start: NDArray[Any], left: NDArray[Any], right: NDArray[Any], is_leaf: NDArray[np.bool_]
) -> Iterator[NDArray[Any]]:
    """Nodes level by level, starting with those of `start`."""
    level = start
    while len(level):
        yield level
        level = level[~is_leaf[level]]
        level = np.concatenate([left[level], right[level]])


def unrolled(root: dict[str, Any], split: str, children: tuple[str, str]) -> tuple[list[dict[str, Any]], Any, Any]:
    """Nodes of a nested tree, and the places of the two children of each; -1 if a node has no `split`."""
    nodes, left = [root], []
    for node in nodes:  # grows while it is read
        left.append(len(nodes) if split in node else -1)
        nodes += [node[child] for child in children if split in node]
    places = np.array(left)
    return nodes, places, np.where(places < 0, -1, places + 1)


def flags_of(codes: Sequence[int]) -> BoolArray:
    """Codes of categories as one flag per code, up to the largest."""
    flags = np.zeros(max(codes, default=-1) + 1, dtype=bool)
    flags[list(codes)] = True
    return flags


def checked_rows(ensemble: TreeEnsemble, values: ArrayLike, name: str) -> NDArray[np.floating[Any]]:
    """`values` as a matrix with a column for each feature."""
    rows = np.asarray(values)
    if rows.dtype not in (np.float32, np.float64):
        try:
            rows = rows.astype(np.float64)
        except (TypeError, ValueError):
            raise InvalidInputError(
                f"`{name}` must hold numbers, got values of type {rows.dtype}; "
                "`evenhand.models.trees.coded_matrix` converts the categories of a table to codes."
            ) from None
    if rows.ndim != 2 or rows.shape[1] != ensemble.n_features:
        raise InvalidInputError(
            f"`{name}` must have shape (n, {ensemble.n_features}), with one column per feature of the "
            f"{ensemble.source}; got shape {rows.shape}."
        )
    return rows


def in_blocks(work: Callable[[slice], None], n: int, n_threads: int | None) -> None:
    """Call `work` on blocks of n people, on several threads at a time."""
    in_parallel(work, [slice(start, min(start + BLOCK, n)) for start in range(0, n, BLOCK)], n_threads)


def in_parallel(work: Callable[[slice], None], parts: Sequence[slice], n_threads: int | None) -> None:
    """Call `work` on each part, on several threads at a time."""
    if n_threads is not None and n_threads < 1:
        raise InvalidInputError(f"`n_threads` must be at least 1, or None for all cores, got {n_threads}.")
    n_workers = min(n_threads or n_cores(), len(parts))
    if n_workers < 2:
        for part in parts:
            work(part)
        return
    with ThreadPoolExecutor(n_workers) as pool:
        for _ in pool.map(work, parts):
            pass


def _check_tree(tree: Tree, n_features: int, name: str) -> None:
    """Reject what would lead the compiled walks, which check nothing, out of their arrays or in circles."""
    columns = (tree.threshold, tree.left, tree.right, tree.missing_left, tree.value)
    n, asks = len(tree.feature), np.asarray(tree.feature) >= 0
    if n == 0 or any(len(column) != n for column in columns):
        raise InvalidInputError(f"{name} must have a root and as many entries in each array, got {n} features.")
    if np.any(np.asarray(tree.feature) >= n_features):
        raise InvalidInputError(f"{name} tests feature {max(tree.feature)}; there are {n_features}, numbered from 0.")
    if np.isnan(np.asarray(tree.threshold)[asks & ~np.isin(np.arange(n), list(tree.left_categories))]).any():
        raise InvalidInputError(f"{name} compares a feature with a threshold that is not a number.")
    children = np.concatenate([np.asarray(tree.left)[asks], np.asarray(tree.right)[asks]])
    # Each node has at most one parent and the root none: no path from the root returns.
    if np.any((children < 1) | (children >= n)) or len(np.unique(children)) < len(children):
        raise InvalidInputError(
            f"{name} leads from a node out of its {n} nodes, back to its root, or to a node with two parents; give "
            "each node except the root one parent."
        )
    if any(not 0 <= node < n or not asks[node] for node in tree.left_categories):
        raise InvalidInputError(f"{name} has categories at a node that tests nothing.")


def _words(flags: BoolArray) -> NDArray[np.uint64]:
    """Flags of shape (m, d) as bits of words of shape (ceil(m / 64), d), the first of each 64 the lowest."""
    n_words = -(-len(flags) // 64)
    padded = np.zeros((64 * n_words, flags.shape[1]), np.uint64)
    padded[: len(flags)] = flags
    bits = padded.reshape(n_words, 64, -1) << np.arange(64, dtype=np.uint64)[:, None]
    result: NDArray[np.uint64] = np.bitwise_or.reduce(bits, axis=1)
    return result


def _joined(parts: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype), *parts]).astype(dtype)


def _or_no(flags: BoolArray | None, tree: Tree) -> BoolArray:
    return np.zeros(len(tree.feature), np.bool_) if flags is None else flags


def coded_matrix(ensemble: TreeEnsemble, table: pd.DataFrame) -> NDArray[np.float64]:
    """The columns of `table` in order, with categories that the model knows by value as codes.

    An unknown category is NaN, like a missing value, if its library treats it as missing.

    Raises
    ------
    InvalidInputError
        If the columns are not those the model was fitted with, in order, or hold text without codes, or categories
        that its library rejects.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.ensemble import HistGradientBoostingClassifier
    >>> from evenhand.models.trees import read_trees
    >>> table = pd.DataFrame({"age": [30, 50, 40], "home": pd.Categorical(["rent", "own", "rent"])})
    >>> ensemble = read_trees(HistGradientBoostingClassifier().fit(table, [0, 1, 1]))
    >>> coded_matrix(ensemble, table)
    array([[30.,  1.],
           [50.,  0.],
           [40.,  1.]])
    """
    _check_columns(ensemble, [str(name) for name in table.columns])
    matrix = np.full(table.shape, np.nan)
    asked = set(ensemble.feature.tolist())
    for j in range(table.shape[1]):
        column = table.iloc[:, j]
        if j in ensemble.categories:
            matrix[:, j] = _codes(column, j, ensemble)
        elif is_numeric_dtype(column.dtype) or is_bool_dtype(column.dtype):
            matrix[:, j] = column.to_numpy(dtype=np.float64, na_value=np.nan)
        elif j in asked:  # words that no tree tests need no codes
            raise InvalidInputError(
                f"The column {str(column.name)!r} is not numeric (its type is {column.dtype}), and the "
                f"{ensemble.source} has no codes for its values; pass it as it was coded in training."
            )
    return matrix


def coded_values(ensemble: TreeEnsemble, values: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """A numeric matrix, of shape (n, n_features), with the numbers of categories replaced by their codes.

    Raises
    ------
    InvalidInputError
        If it holds categories that the model's library rejects.
    """
    matrix = np.array(values, dtype=np.float64)
    names = ensemble.feature_names or [f"x{j}" for j in range(ensemble.n_features)]
    for j in ensemble.categories:
        matrix[:, j] = _codes(pd.Series(matrix[:, j], name=names[j]), j, ensemble)
    return matrix


def _check_columns(ensemble: TreeEnsemble, names: list[str]) -> None:
    if len(names) != ensemble.n_features:
        raise InvalidInputError(
            f"The {ensemble.source} takes {ensemble.n_features} columns, but the table has {len(names)}: {names}."
        )
    if ensemble.feature_names is None:
        return
    # LightGBM stores a space in a name as an underscore.
    differing = [
        (fitted, name)
        for fitted, name in zip(ensemble.feature_names, names, strict=True)
        if fitted.replace(" ", "_") != name.replace(" ", "_")
    ]
    if differing:
        fitted, name = differing[0]
        raise InvalidInputError(
            f"The {ensemble.source} was fitted with the column {fitted!r} where the table has {name!r}; pass the "
            f"columns in the order of training: {list(ensemble.feature_names)}."
        )


def _codes(column: pd.Series[Any], j: int, ensemble: TreeEnsemble) -> NDArray[np.float64]:
    """Place of each value among the categories of feature j; NaN if it is not one."""
    categories = ensemble.categories[j]
    which, met = pd.factorize(column)
    values = pd.Index(met).tolist()
    # A column of a file has no type of category: "1" may have been read as the number 1, and the reverse.
    if not isinstance(column.dtype, pd.CategoricalDtype):
        values = _alike(values, categories)
    place = pd.Index(categories, dtype=object).get_indexer(pd.Index(values, dtype=object))
    unknown = np.flatnonzero(place < 0)
    if len(unknown) and not ensemble.takes_unknown:
        n = int(np.isin(which, unknown).sum())
        raise InvalidInputError(
            f"The column {str(column.name)!r} has {n} values, such as {str(values[unknown[0]])!r}, that the "
            f"{ensemble.source} was not fitted on and cannot score; leave those people out, or give them one of "
            f"its categories: {[str(c) for c in categories[:10]]}{' and more' if len(categories) > 10 else ''}."
        )
    codes: NDArray[np.float64] = np.append(place, -1)[which].astype(np.float64)
    codes[codes < 0] = np.nan
    return codes


def _alike(values: list[Any], categories: tuple[Any, ...]) -> list[Any]:
    """Values as text if the categories are text, as numbers if they are numbers."""
    if all(isinstance(c, str) for c in categories):
        return [str(int(v)) if isinstance(v, float) and v.is_integer() else str(v) for v in values]
    if all(isinstance(c, (int, float)) for c in categories):
        numbers = pd.to_numeric(pd.Series(values, dtype=object), errors="coerce")
        return [v if n != n else n for v, n in zip(values, numbers, strict=True)]
    return values
