"""Tree ensembles of any of four libraries, and exact Shapley values of them with a baseline for each person."""

from evenhand.trees.coding import coded_matrix, coded_values
from evenhand.trees.ensemble import Tree, TreeEnsemble
from evenhand.trees.reading import read_trees, tree_library
from evenhand.trees.shapley import contributions

__all__ = [
    "Tree",
    "TreeEnsemble",
    "coded_matrix",
    "coded_values",
    "contributions",
    "read_trees",
    "tree_library",
]
