"""Candidates of the tree family: gradient-boosted trees, searched over their own hyper-parameters.

There is no loss on reasoning for trees. What a search can move are their size and number, monotone constraints and the
columns they see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OrdinalEncoder

from evenhand.exceptions import InvalidInputError
from evenhand.inputs.validation import check_columns, is_number_column
from evenhand.searching.people import EvaluationSettings, SearchPeople
from evenhand.searching.scoring import score_model
from evenhand.searching.space import Candidate
from evenhand.searching.store import Scored
from evenhand.system.files import write_atomically
from evenhand.system.optional import optional_module
from evenhand.training.folds import ComparedFold

__all__ = ["TreeFamily", "make_tree_model", "save_tree_model"]

# The classifier of each library, and what it calls the parameters of a search.
_LIBRARIES: dict[str, tuple[str, str, dict[str, str]]] = {
    "sklearn": ("sklearn.ensemble", "HistGradientBoostingClassifier", {}),
    "xgboost": (
        "xgboost",
        "XGBClassifier",
        {
            "max_iter": "n_estimators",
            "max_leaf_nodes": "max_leaves",
            "min_samples_leaf": "min_child_weight",
            "l2_regularization": "reg_lambda",
            "monotonic_cst": "monotone_constraints",
        },
    ),
    "lightgbm": (
        "lightgbm",
        "LGBMClassifier",
        {
            "max_iter": "n_estimators",
            "max_leaf_nodes": "num_leaves",
            "min_samples_leaf": "min_child_samples",
            "l2_regularization": "reg_lambda",
            "monotonic_cst": "monotone_constraints",
        },
    ),
}
_OWN = ("drop", "monotone", "library", "seed")


@dataclass(frozen=True, eq=False)
class TreeFamily:
    """Trees on the folds of a search; each candidate is a block of its own.

    Attributes
    ----------
    people, compared, settings
        Everyone, the folds, and how candidates are evaluated.
    """

    people: SearchPeople
    compared: Sequence[ComparedFold]
    settings: EvaluationSettings

    def blocks(self, candidates: Sequence[Candidate]) -> list[tuple[Candidate, ...]]:
        """One block for each candidate."""
        return [(candidate,) for candidate in candidates]

    def run(self, block: Sequence[Candidate]) -> list[Scored]:
        """Train and score a block."""
        return [
            Scored(candidate.key, fold, seed, self._metrics(candidate, compared, seed))
            for candidate in block
            for fold, compared in enumerate(self.compared)
            for seed in range(self.settings.seeds)
        ]

    def _metrics(self, candidate: Candidate, compared: ComparedFold, seed: int) -> dict[str, float]:
        train = self.people.table.iloc[compared.fold.train].reset_index(drop=True)
        random_state = self.settings.random_state + candidate.seed + seed
        model = make_tree_model(candidate, train, random_state).fit(train, compared.fold.y_train)
        return score_model(model, self.people, compared, self.settings)


def make_tree_model(candidate: Candidate, table: pd.DataFrame, random_state: int) -> Any:  # noqa: ANN401 - a Pipeline
    """An unfitted scikit-learn Pipeline: integer codes for categories, then trees.

    Parameters
    ----------
    candidate
        Its parameters.
    table
        The people to be trained on, from whose columns the codes are made.
    random_state
        Seed.

    Raises
    ------
    InvalidInputError
        If ``drop`` or ``monotone`` name columns that are not there, or the library is not installed.
    """
    parameters = candidate.parameters
    columns = [str(column) for column in table.columns]
    dropped = _columns(parameters["drop"], columns, "drop")
    kept = [column for column in columns if column not in dropped]
    if not kept:
        raise InvalidInputError("`drop` leaves no column to train on.")
    numbers = [column for column in kept if is_number_column(table[column])]
    words = [column for column in kept if column not in numbers]
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-1)
    encode = ColumnTransformer([("numbers", "passthrough", numbers), ("words", codes, words)])
    signs = _monotone(parameters["monotone"], columns)
    order = [signs.get(column, 0) for column in [*numbers, *words]]
    return Pipeline([("encode", encode), ("trees", _classifier(parameters, order, random_state))])


def save_tree_model(model: Any, path: Path) -> Path:  # noqa: ANN401 - a Pipeline of `make_tree_model`
    """Write fitted trees of scikit-learn, and the codes of their categories, as a skops file; whole or not at all.

    Parameters
    ----------
    model
        Fitted, of `make_tree_model`.
    path
        A file ending in ``.skops``, or a folder, in which the file is called ``model.skops``.

    Raises
    ------
    MissingExtraError
        If skops is not installed.
    InvalidInputError
        If the trees are of another library, whose types a skops file may hold but `load_model` does not trust.
    """
    library = type(model[-1]).__module__.split(".")[0]
    if library != "sklearn":
        raise InvalidInputError(
            f"The chosen trees are of {library}, and only those of scikit-learn are saved; take them from `best_model` "
            f"and save them as {library} does."
        )
    skops_io = optional_module("skops.io", "Saving trees", "skops", "skops")
    file = path if path.suffix == ".skops" else path / "model.skops"
    with write_atomically(file) as temporary:
        skops_io.dump(model, temporary)
    return file


def _columns(names: Any, columns: Sequence[str], what: str) -> list[str]:  # noqa: ANN401
    return check_columns(names, columns, f"`{what}`") if len(names) else []


def _monotone(given: Any, columns: Sequence[str]) -> dict[str, int]:  # noqa: ANN401
    if not given:
        return {}
    if not isinstance(given, Mapping) or not set(given.values()) <= {-1, 0, 1}:
        raise InvalidInputError(f"`monotone` must map columns to 1, -1 or 0, got {given!r}.")
    return {name: int(given[name]) for name in check_columns(list(given), columns, "`monotone`")}


def _classifier(parameters: Mapping[str, Any], monotone: Sequence[int], random_state: int) -> Any:  # noqa: ANN401
    library = parameters["library"]
    if library not in _LIBRARIES:
        raise InvalidInputError(f"`library` must be one of {list(_LIBRARIES)}, got {library!r}.")
    module, name, renamed = _LIBRARIES[library]
    try:
        kind = getattr(import_module(module), name)
    except ImportError as error:
        raise InvalidInputError(f"library={library!r} needs the package {module!r}: pip install {module}.") from error
    options = {k: v for k, v in parameters.items() if k not in _OWN}
    if any(monotone):
        options["monotonic_cst"] = list(monotone) if library == "sklearn" else tuple(monotone)
    if library == "xgboost":
        options |= {"max_depth": options["max_depth"] or 0, "grow_policy": "lossguide", "tree_method": "hist"}
    elif library == "lightgbm":
        options |= {"max_depth": options["max_depth"] or -1, "verbose": -1}
    else:
        options["early_stopping"] = False
    return kind(random_state=random_state, **{renamed.get(k, k): v for k, v in options.items()})
