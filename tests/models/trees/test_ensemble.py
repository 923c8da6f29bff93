"""What an ensemble refuses to be made of."""

import numpy as np
import pytest

from evenhand.exceptions import InvalidInputError
from evenhand.models.trees import Tree, TreeEnsemble

STUMP = {
    "feature": np.array([0, -1, -1]),
    "threshold": np.zeros(3),
    "left": np.array([1, -1, -1]),
    "right": np.array([2, -1, -1]),
    "missing_left": np.zeros(3, bool),
    "value": np.array([0.0, -1.0, 1.0]),
}


def ensemble_with(**changes):
    trees = [Tree(**STUMP), Tree(**{**STUMP, **changes})]
    return TreeEnsemble.from_trees(
        trees, base_margin=0.0, n_features=2, input_dtype="float64", output="log-odds", source="test ensemble"
    )


def test_trees_stand_one_after_the_other():
    ensemble = ensemble_with(feature=np.array([1, -1, -1]))
    assert ensemble.n_trees == 2
    assert ensemble.max_depth == 1
    np.testing.assert_array_equal(ensemble.roots, [0, 3])
    np.testing.assert_array_equal(ensemble.feature, [0, -1, -1, 1, -1, -1])
    np.testing.assert_array_equal(ensemble.left[[0, 3]], [1, 4])
    np.testing.assert_array_equal(ensemble.margin([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]), [-2.0, 0.0, 2.0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"threshold": np.zeros(2)}, "must have a root and as many entries in each array, got 3 features"),
        ({name: values[:0] for name, values in STUMP.items()}, "must have a root .* got 0 features"),
        ({"feature": np.array([2, -1, -1])}, "tests feature 2; there are 2, numbered from 0"),
        (
            {"left": np.array([0, -1, -1])},
            "leads from a node out of its 3 nodes, back to its root, or to a node with two",
        ),
        ({"left": np.array([3, -1, -1])}, "leads from a node out of its 3 nodes"),
        ({"left": np.array([2, -1, -1])}, "leads from a node out of its 3 nodes"),
        ({"left_categories": {1: np.ones(1, bool)}}, "has categories at a node that tests nothing"),
        ({"left_categories": {7: np.ones(1, bool)}}, "has categories at a node that tests nothing"),
    ],
)
def test_nodes_that_form_no_tree_are_refused(changes, message):
    with pytest.raises(InvalidInputError, match=f"^Tree 1 of the test ensemble {message}"):
        ensemble_with(**changes)
