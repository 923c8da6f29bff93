"""Tree ensembles of four libraries, and their exact Shapley values with a baseline for each person."""

from evenhand.models.trees.ensemble import Tree, TreeEnsemble, coded_matrix, coded_values
from evenhand.models.trees.libraries import read_trees, tree_library
from evenhand.models.trees.tree_shap import contributions

__all__ = [
    "Tree",
    "TreeEnsemble",
    "coded_matrix",
    "coded_values",
    "contributions",
    "read_trees",
    "tree_library",
]
