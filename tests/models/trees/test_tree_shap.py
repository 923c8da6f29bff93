"""Contributions against brute force over all coalitions, and the properties that define them."""

import subprocess
import sys
from itertools import combinations
from math import factorial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.attribution.sampled import Mixtures
from evenhand.exceptions import InvalidInputError, MissingExtraError
from evenhand.models.trees import Tree, TreeEnsemble, contributions, tree_shap
from evenhand.models.trees import tree_shap as grouped
from evenhand.models.trees.tree_shap import NumberedRows, order_shares

TOLERANCE = 1e-9


def random_tree(rng, n_features, max_depth):
    """A tree that repeats features along a path, with thresholds, zero-as-missing thresholds and category sets."""
    feature, threshold, left, right, value, sets = [], [], [], [], [], {}

    def grow(depth):
        node = len(feature)
        is_leaf = depth == max_depth or rng.random() < 0.15
        feature.append(-1 if is_leaf else int(rng.integers(n_features)))
        threshold.append(float(rng.integers(-1, 4)))
        value.append(rng.normal() if is_leaf else 0.0)
        left.append(-1)
        right.append(-1)
        if not is_leaf:
            if rng.random() < 0.2:
                sets[node] = rng.random(rng.integers(1, 5)) < 0.5
            left[node] = grow(depth + 1)
            right[node] = grow(depth + 1)
        return node

    grow(0)
    n = len(feature)
    zero_is_missing = rng.random(n) < 0.2
    zero_is_missing[list(sets)] = False
    flags = rng.random((2, n)) < 0.5
    columns = (np.array(column) for column in (feature, threshold, left, right, flags[0], value))
    return Tree(*columns, left_categories=sets, other_left=flags[1], zero_is_missing=zero_is_missing)


def plain_value(tree, x):
    """The leaf that one row reaches, by the words of `Tree`'s description."""
    node = 0
    while tree.feature[node] >= 0:
        v = x[tree.feature[node]]
        if np.isnan(v) or (tree.zero_is_missing[node] and v == 0):
            goes_left = tree.missing_left[node]
        elif node in tree.left_categories:
            codes = tree.left_categories[node]
            goes_left = codes[int(v)] if 0 <= v < len(codes) else tree.other_left[node]
        else:
            goes_left = v <= tree.threshold[node]
        node = tree.left[node] if goes_left else tree.right[node]
    return tree.value[node]


def ensemble_of(trees, n_features, input_dtype="float64", **details):
    return TreeEnsemble.from_trees(
        trees,
        base_margin=0.5,
        n_features=n_features,
        input_dtype=input_dtype,
        output="log-odds",
        source="test ensemble",
        **details,
    )


def brute_force(f, z, w, b):
    """The definition, coalition by coalition, for one person."""
    d = len(z)
    phi = np.zeros(d)
    for j in range(d):
        others = [k for k in range(d) if k != j]
        for size in range(d):
            for coalition in combinations(others, size):
                row = b.copy()
                row[list(coalition)] = w[list(coalition)]
                with_input = row.copy()
                with_input[j] = z[j]
                phi[j] += factorial(size) * factorial(d - 1 - size) / factorial(d) * (f(with_input) - f(row))
    return phi


def random_case(seed, n_features, depth, n_trees, n=3):
    rng = np.random.default_rng(seed)
    trees = [random_tree(rng, n_features, depth) for _ in range(n_trees)]
    # Few distinct values, so that rows agree on some features, and meet thresholds exactly.
    z, w, b = rng.choice([-1.0, 0.0, 1.0, 2.0, 3.0, 3.5, np.nan], size=(3, n, n_features))
    w[0] = z[0]
    b[1] = w[1]
    return trees, z, w, b


cases = given(
    seed=st.integers(0, 2**32 - 1),
    n_features=st.integers(1, 5),
    depth=st.integers(0, 6),
    n_trees=st.integers(0, 3),
)


@cases
def test_margin_is_the_base_plus_the_leaves_reached(seed, n_features, depth, n_trees):
    trees, z, _, _ = random_case(seed, n_features, depth, n_trees, n=20)
    expected = [0.5 + sum(plain_value(tree, row) for tree in trees) for row in z]
    np.testing.assert_allclose(ensemble_of(trees, n_features).margin(z), expected, atol=TOLERANCE)


def both_ways(ensemble, z, w, b):
    """Contributions of people who go down the trees together, and one by one."""
    yield contributions(ensemble, z, w, b)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree_shap, "GROUPED_NODES", 0)
        assert not tree_shap.is_grouped(ensemble)
        yield contributions(ensemble, z, w, b)


@cases
def test_contributions_of_a_row_in_its_own_context_are_its_shapley_values(seed, n_features, depth, n_trees):
    trees, z, _, b = random_case(seed, n_features, depth, n_trees)
    expected = [
        brute_force(lambda x: sum(plain_value(t, x) for t in trees), *rows) for rows in zip(z, z, b, strict=True)
    ]
    for found in both_ways(ensemble_of(trees, n_features), z, z, b):
        np.testing.assert_allclose(found, expected, atol=TOLERANCE)


@cases
def test_contributions_in_the_context_of_another_row_follow_the_definition(seed, n_features, depth, n_trees):
    trees, z, w, b = random_case(seed, n_features, depth, n_trees)
    expected = [
        brute_force(lambda x: sum(plain_value(t, x) for t in trees), *rows) for rows in zip(z, w, b, strict=True)
    ]
    for found in both_ways(ensemble_of(trees, n_features), z, w, b):
        np.testing.assert_allclose(found, expected, atol=TOLERANCE)


@cases
def test_contributions_sum_to_the_margin_less_the_one_of_the_baseline(seed, n_features, depth, n_trees):
    trees, z, _, b = random_case(seed, n_features, depth, n_trees, n=20)
    ensemble = ensemble_of(trees, n_features)
    gap = ensemble.margin(z) - ensemble.margin(b)
    np.testing.assert_allclose(contributions(ensemble, z, z, b).sum(axis=1), gap, atol=TOLERANCE)


@cases
def test_people_in_groups_and_alone_get_the_same(seed, n_features, depth, n_trees):
    trees, z, w, b = random_case(seed, n_features, depth, n_trees, n=40)
    together, alone = both_ways(ensemble_of(trees, n_features), z, w, b[np.arange(40) % 3])
    np.testing.assert_allclose(together, alone, atol=TOLERANCE)


@cases
def test_one_step_in_every_context_is_what_it_is_among_others(seed, n_features, depth, n_trees):
    trees, z, w, b = random_case(seed, n_features, depth, n_trees, n=20)
    ensemble = ensemble_of(trees, n_features)
    step, base = np.tile(z[0], (20, 1)), np.tile(b[0], (20, 1))
    alone = contributions(ensemble, step, w, base)  # one input for all, of which less has to be walked
    among_others = contributions(ensemble, np.vstack([step, z]), np.vstack([w, w]), np.vstack([base, base]))
    np.testing.assert_array_equal(alone, among_others[:20])


@cases
def test_inputs_in_their_own_context_have_their_shapley_values_to_the_last_digit(seed, n_features, depth, n_trees):
    trees, z, w, b = random_case(seed, n_features, depth, n_trees, n=20)
    ensemble = ensemble_of(trees, n_features)
    crossed = contributions(ensemble, np.vstack([z, z]), np.vstack([z, w]), np.vstack([b, b]))
    np.testing.assert_array_equal(crossed[:20], contributions(ensemble, z, z, b))


@cases
def test_margins_in_groups_are_those_of_single_walks_to_the_last_digit(seed, n_features, depth, n_trees):
    trees, z, _, _ = random_case(seed, n_features, depth, n_trees, n=20)
    ensemble = ensemble_of(trees, n_features)
    np.testing.assert_array_equal(tree_shap.distinct_margins(ensemble, z), ensemble.margin(z))


@cases
def test_values_of_contexts_and_of_inputs_in_them_come_from_one_walk(seed, n_features, depth, n_trees):
    trees, z, w, b = random_case(seed, n_features, depth, n_trees, n=20)
    ensemble = ensemble_of(trees, n_features)
    z[:, 0] = w[:, 0]
    expected = contributions(ensemble, w, w, b), contributions(ensemble, z, w, b)
    for nodes in (tree_shap.GROUPED_NODES, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tree_shap, "GROUPED_NODES", nodes)
            np.testing.assert_allclose(tree_shap.values_beside(ensemble, z, w, b), expected, atol=TOLERANCE)


@cases
def test_shapley_values_come_with_the_margins_to_the_last_digit(seed, n_features, depth, n_trees):
    trees, z, _, b = random_case(seed, n_features, depth, n_trees, n=20)
    ensemble = ensemble_of(trees, n_features)
    found = tree_shap.shapley_values(ensemble, z, b).margin
    assert (found is None) == (n_trees == 0)
    np.testing.assert_array_equal(ensemble.margin(z) if found is None else found, ensemble.margin(z))


@pytest.mark.parametrize("grouped_nodes", [0, 255])
def test_rows_by_number_are_those_rows(rng, monkeypatch, grouped_nodes):
    monkeypatch.setattr(tree_shap, "GROUPED_NODES", grouped_nodes)
    ensemble = ensemble_of([random_tree(rng, 4, 5) for _ in range(3)], 4)
    rows = rng.choice([-1.0, 0.0, 1.0, 2.0, np.nan], size=(30, 4))
    z, w, b = rng.integers(0, 30, size=(3, 200))
    numbered = tree_shap.numbered_contributions(ensemble, *(NumberedRows(rows, each) for each in (z, w, b)))
    np.testing.assert_array_equal(numbered, contributions(ensemble, rows[z], rows[w], rows[b]))


def test_a_deep_tree_of_many_features_is_complete(rng):
    """A chain of 60 splits, each on a feature of its own, whose weights span thirty orders of magnitude."""
    n_splits = 60
    n = 2 * n_splits + 1
    inner = np.arange(0, n - 1, 2)
    columns = {name: np.full(n, -1) for name in ("feature", "left", "right")}
    columns["feature"][inner] = np.arange(n_splits)
    columns["left"][inner] = inner + 1
    columns["right"][inner] = inner + 2
    tree = Tree(**columns, threshold=np.zeros(n), missing_left=np.zeros(n, bool), value=rng.normal(size=n))
    ensemble = ensemble_of([tree], n_splits)
    z, b = rng.normal(size=(2, 5, n_splits)) + 0.5
    total = contributions(ensemble, z, z, b).sum(axis=1)
    np.testing.assert_allclose(total, ensemble.margin(z) - ensemble.margin(b), atol=TOLERANCE)


def test_threads_and_blocks_change_nothing(rng, monkeypatch):
    trees = [random_tree(rng, 4, 5) for _ in range(5)]
    ensemble = ensemble_of(trees, 4)
    z, w, b = rng.integers(-1, 4, size=(3, 700, 4)).astype(float)
    monkeypatch.setattr(grouped, "GROUP", (16, 64))
    for context in (z, w):
        one, three = (contributions(ensemble, z, context, b, n_threads=n) for n in (1, 3))
        np.testing.assert_array_equal(one, three)
        np.testing.assert_array_equal(one[650:], contributions(ensemble, z[650:], context[650:], b[650:]))
    np.testing.assert_array_equal(ensemble.margin(z, n_threads=1), ensemble.margin(z, n_threads=2))


def test_one_request_and_all_values_of_a_context_are_walked_to_the_same_digit(rng, monkeypatch):
    ensemble = ensemble_of([random_tree(rng, 5, 6) for _ in range(20)], 5)
    z, w, b = rng.integers(-1, 4, size=(3, 400, 5)).astype(float)
    z[rng.random(z.shape) < 0.1] = np.nan
    w[:, :2] = z[:, :2]
    b = b[np.arange(400) % 3]
    walks = []
    for asked_often in (0, 2):
        monkeypatch.setattr(grouped, "_ASKED_OFTEN", asked_often)
        walks.append(contributions(ensemble, z, w, b))
    np.testing.assert_array_equal(*walks)
    assert walks[0].any()


def test_one_baseline_row_serves_everyone_and_inputs_may_be_float32(rng):
    ensemble = ensemble_of([random_tree(rng, 4, 5)], 4)
    x = rng.integers(-1, 4, size=(6, 4))
    b = np.zeros(4)
    expected = contributions(ensemble, x.astype(float), x.astype(float), np.zeros((6, 4)))
    np.testing.assert_array_equal(contributions(ensemble, x.astype(np.float32), x, b), expected)


def test_inputs_are_left_as_they_were_and_may_be_read_only(rng):
    ensemble = ensemble_of([random_tree(rng, 4, 5)], 4, missing_value=1.0)
    x = rng.integers(-1, 4, size=(6, 4)).astype(float)
    before = x.copy()
    x.flags.writeable = False
    contributions(ensemble, x, x, x[0])
    np.testing.assert_array_equal(x, before)


def test_values_are_compared_in_the_type_the_library_compares_in():
    third = float(np.float32(1 / 3))  # above 1/3
    stump = Tree(*map(np.array, ([0, -1, -1], [1 / 3, 0, 0], [1, 0, 0], [2, 0, 0], [0, 0, 0], [0.0, -1.0, 1.0])))
    assert third > 1 / 3
    assert ensemble_of([stump], 1, "float64").margin([[1 / 3]]) == -0.5
    assert ensemble_of([stump], 1, "float32").margin([[1 / 3]]) == 1.5
    assert ensemble_of([stump], 1, "float32").margin([[1e300]]) == 1.5


def test_a_number_can_stand_for_a_missing_value():
    stump = Tree(*map(np.array, ([0, -1, -1], [0.5, 0, 0], [1, 0, 0], [2, 0, 0], [0, 0, 0], [0.0, -1.0, 1.0])))
    ensemble = ensemble_of([stump], 1, missing_value=-999.0)
    np.testing.assert_array_equal(ensemble.margin([[-999.0], [np.nan], [-998.0]]), [1.5, 1.5, -0.5])


def test_nobody_gets_an_empty_table(rng):
    ensemble = ensemble_of([random_tree(rng, 4, 2)], 4)
    nobody = np.zeros((0, 4))
    assert contributions(ensemble, nobody, nobody, np.zeros(4)).shape == (0, 4)


def test_rows_of_another_width_are_refused(rng):
    ensemble = ensemble_of([random_tree(rng, 4, 2)], 4)
    x = np.zeros((2, 4))
    message = r"must have shape \(n, 4\), with one column per feature of the test ensemble; got shape \(2, 3\)"
    for name in "zwb":
        with pytest.raises(InvalidInputError, match=f"`{name}` {message}"):
            contributions(ensemble, **{"z": x, "w": x, "b": x, name: x[:, :3]})
    with pytest.raises(InvalidInputError, match=f"`X` {message}"):
        ensemble.margin(x[:, :3])


def test_different_numbers_of_people_are_refused(rng):
    ensemble = ensemble_of([random_tree(rng, 4, 2)], 4)
    x = np.zeros((3, 4))
    with pytest.raises(InvalidInputError, match="must have one row per person, got 3, 2 and 3 rows"):
        contributions(ensemble, x, x[:2], x)


def test_rows_that_are_no_numbers_are_refused(rng):
    ensemble = ensemble_of([random_tree(rng, 2, 2)], 2)
    with pytest.raises(InvalidInputError, match="`X` must hold numbers, got values of type <U4"):
        ensemble.margin([["rent", "own"]])


def test_a_number_of_threads_below_one_is_refused(rng):
    ensemble = ensemble_of([random_tree(rng, 2, 2)], 2)
    with pytest.raises(InvalidInputError, match="`n_threads` must be at least 1, or None for all cores, got 0"):
        ensemble.margin(np.zeros((1, 2)), n_threads=0)


def test_code_without_a_place_on_disk_is_compiled_all_the_same():
    from evenhand.system.libraries import compiled_in_order

    names = {}
    exec(compile("def double(x):\n    return 2 * x", "<nowhere>", "exec"), names)
    assert compiled_in_order(names["double"])(21) == 42


def test_weights_are_shares_of_orders():
    shares = order_shares(40)
    u, v = np.meshgrid(np.arange(41), np.arange(41), indexing="ij")
    from scipy.special import beta

    np.testing.assert_allclose(shares[1:], beta(u + 1, v + 1), rtol=1e-12)
    assert not shares[0].any()


@pytest.mark.integration
def test_without_numba_a_sentence_says_what_to_install():
    code = """
import sys
sys.modules["numba"] = None
import numpy as np
from evenhand.exceptions import MissingExtraError
from evenhand.models.trees import read_trees
from sklearn.tree import DecisionTreeClassifier
ensemble = read_trees(DecisionTreeClassifier().fit([[0.0], [1.0]], [0, 1]))
try:
    ensemble.margin(np.zeros((1, 1)))
except MissingExtraError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "A tree model needs numba, which is not installed: pip install 'evenhand[trees]'.\n"
    assert issubclass(MissingExtraError, ImportError)


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 7, 64, 65, 150]))
def test_mixtures_are_scored_as_each_would_be(seed, n_mixtures):
    rng = np.random.default_rng(seed)
    d = 5
    trees = [random_tree(rng, d, max_depth=5) for _ in range(3)]
    ensemble = TreeEnsemble.from_trees(
        trees, base_margin=0.5, n_features=d, input_dtype="float64", output="log-odds", source="random trees"
    )
    rows = rng.integers(-1, 5, size=(3, 4, d)).astype(float)
    rows[rng.random(rows.shape) < 0.2] = np.nan
    is_input, is_context = rng.random((2, n_mixtures, d)) < 0.4
    asked = Mixtures(*rows, is_input, is_context)
    expected = ensemble.margin(asked.points.reshape(-1, d)).reshape(4, n_mixtures)
    np.testing.assert_allclose(ensemble.mixtures(asked, n_threads=1), expected, atol=TOLERANCE)
