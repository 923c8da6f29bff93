"""Tree ensembles in the form of the audit: exact Shapley values by walking the trees.

CatBoost models with categories and text are black boxes whose log-odds are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.arrays import Floats, Ints
from evenhand.attribution.shapley import Contributions
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.validation import as_spelled
from evenhand.models.black_box import black_box_model
from evenhand.models.encoders import NamedColumns, OneToOne, PipelineEncoder
from evenhand.models.protocol import EncodesTables, Output, ShapleyModel
from evenhand.models.trees import TreeEnsemble, coded_matrix, coded_values, contributions, read_trees
from evenhand.models.trees.ensemble import levels
from evenhand.models.trees.libraries import check_loss, word_features
from evenhand.models.trees.tree_shap import (
    NumberedRows,
    distinct_margins,
    numbered_contributions,
    shapley_values,
    values_beside,
)


@dataclass(frozen=True, eq=False)
class TreeColumns(OneToOne):
    """A table for an ensemble that knows categories by value.

    Attributes
    ----------
    ensemble
        The trees, with the categories of each feature in the order of their codes.
    names
        Columns of the table, in the order of the features.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.ensemble import HistGradientBoostingClassifier
    >>> from evenhand.models.trees import read_trees
    >>> table = pd.DataFrame({"age": [30, 50, 40], "home": pd.Categorical(["rent", "own", "rent"])})
    >>> ensemble = read_trees(HistGradientBoostingClassifier().fit(table, [0, 1, 1]))
    >>> TreeColumns(ensemble, ["age", "home"]).transform(pd.DataFrame({"home": ["own"], "age": [20]}))
    array([[20.,  0.]])
    """

    ensemble: TreeEnsemble
    names: list[str]

    @property
    def takes_names(self) -> bool:
        """Whether the model was fitted on columns with names."""
        return self.ensemble.feature_names is not None

    def transform(self, table: pd.DataFrame) -> NDArray[np.float64]:
        """Numbers unchanged, and categories as codes."""
        return coded_matrix(self.ensemble, table[self.names])


@dataclass(frozen=True, eq=False)
class RecodedColumns(PipelineEncoder):
    """The outputs of a pipeline's steps for an ensemble that treats some of them as categories.

    Attributes
    ----------
    ensemble
        The trees, which take the output of the steps.
    """

    ensemble: TreeEnsemble

    def transform(self, table: pd.DataFrame) -> NDArray[np.float64]:
        """Outputs of the steps, with categories as the trees' codes."""
        return coded_values(self.ensemble, super().transform(table))


@dataclass(frozen=True, eq=False)
class TreeGame:
    """The margin of a tree ensemble and its Shapley values: a `Game`."""

    ensemble: TreeEnsemble
    method: ClassVar[str] = "interventional TreeSHAP from one baseline row"

    def margin(self, x: Floats) -> Floats:
        """The margin, of shape (n,)."""
        return distinct_margins(self.ensemble, x)

    def contributions(self, inputs: Floats, context: Floats, baseline: Floats) -> Contributions:
        """phi(inputs | context; baseline), exactly."""
        if inputs is context:
            return shapley_values(self.ensemble, inputs, baseline)
        return Contributions(contributions(self.ensemble, inputs, context, baseline))

    def contributions_at(
        self, inputs: tuple[Floats, Ints], context: tuple[Floats, Ints], baseline: tuple[Floats, Ints]
    ) -> Floats:
        """The same for rows by number, each context walked once."""
        z, w, b = (NumberedRows(rows, at) for rows, at in (inputs, context, baseline))
        return numbered_contributions(self.ensemble, z, w, b)

    def contributions_beside(self, inputs: Floats, context: Floats, baseline: Floats) -> tuple[Floats, Floats]:
        """phi(context | context; baseline) and phi(inputs | context; baseline), from one walk."""
        return values_beside(self.ensemble, inputs, context, baseline)


def tree_model(
    model: Any, encoder: PipelineEncoder | None = None, columns: Sequence[str] | None = None
) -> ShapleyModel:
    """A fitted tree model in the form of the audit.

    Parameters
    ----------
    model
        The model, or its trees.
    encoder
        Steps that convert the table to the trees' inputs; None if the trees take its columns.
    columns
        Column names of the table, for trees that have no names for them or spell them differently.

    Examples
    --------
    >>> from sklearn.ensemble import GradientBoostingClassifier
    >>> trees = GradientBoostingClassifier(n_estimators=5).fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
    >>> tree_model(trees).output
    'log-odds'
    """
    ensemble = model if isinstance(model, TreeEnsemble) else read_trees(model)
    _check_walkable(ensemble)
    return ShapleyModel(
        TreeGame(ensemble),
        ensemble.source,
        _encoder(ensemble, encoder, columns),
        output=ensemble.output,
        takes_missing=True,
        attribution="tree_shap",
        categorical_inputs=ensemble.categorical_features,
    )


def _encoder(
    ensemble: TreeEnsemble, steps: PipelineEncoder | None, columns: Sequence[str] | None
) -> EncodesTables | None:
    """Converts the table to the trees' inputs: preceding steps, codes for categories, both or neither."""
    if steps is not None:
        if not ensemble.categories:
            return steps
        return RecodedColumns(steps.transformer, steps.names, steps.sources, steps.takes_names, ensemble)
    fitted: Sequence[str] | None = ensemble.feature_names
    known = list(columns or ())
    if ensemble.categorical_features and fitted is None:
        fitted = known if len(known) == ensemble.n_features else [f"x{j}" for j in range(ensemble.n_features)]
    if fitted is None:
        return None
    names = as_spelled(fitted, known)
    return TreeColumns(ensemble, names) if ensemble.categorical_features else NamedColumns(names, takes_missing=True)


def _check_walkable(ensemble: TreeEnsemble) -> None:
    """Reject trees that a walk would leave, or never finish: files can be altered."""
    asks = ensemble.feature >= 0
    following = np.concatenate([ensemble.left[asks], ensemble.right[asks]])
    n_nodes, children = len(ensemble.feature), (ensemble.left, ensemble.right, ~asks)
    is_sound = (
        np.isfinite(ensemble.base_margin)
        and np.isfinite(ensemble.value[~asks]).all()
        and (ensemble.feature < ensemble.n_features).all()
        and all(0 <= j < ensemble.n_features for j in ensemble.categories)
        and all(((nodes >= 0) & (nodes < n_nodes)).all() for nodes in (following, ensemble.roots))
        and ((ensemble.set_start >= 0) & (ensemble.set_start + ensemble.set_size <= len(ensemble.in_set))).all()
        # In a cycle, the paths from the roots would visit more nodes than exist.
        and all(n <= n_nodes for n in accumulate(len(level) for level in levels(ensemble.roots, *children)))
    )
    if not is_sound:
        raise InvalidInputError(f"The trees of the {ensemble.source} are damaged: their nodes do not form trees.")


def catboost_black_box(
    model: Any, table: pd.DataFrame, *, output: Output | None = None, **sampling: Any
) -> ShapleyModel:
    """A CatBoost model with categories in the form of the audit.

    Raises
    ------
    InvalidInputError
        If its loss is not logistic.
    """
    name = type(model).__name__
    check_loss(str(model.get_all_params().get("loss_function", "unknown")).split(":")[0], name)
    names = [str(feature) for feature in model.feature_names_]
    if names == [str(j) for j in range(len(names))] and len(names) == table.shape[1]:
        names = [str(column) for column in table.columns]  # fitted without names
    wants_probability = output == "probability"
    return black_box_model(
        model if wants_probability else partial(model.predict, prediction_type="RawFormulaVal"),
        output=output if wants_probability else "log-odds",
        **sampling,
        kind=f"CatBoost {name} of categories (black box)",
        table=table,
        names=names,
        categorical=[names[j] for j in word_features(model)],
    )
