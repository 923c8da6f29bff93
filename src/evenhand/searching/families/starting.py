"""What can be read from a fitted model that a search starts from: its parameters and its monotone constraints."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.models.encoders.steps import flat_steps
from evenhand.models.sklearn import is_kind, unwrapped
from evenhand.models.trees.ensemble import CATEGORY_SET, TreeEnsemble, levels

__all__ = ["Reading", "given_parameters", "last_step", "plain_value", "signs_by_input", "signs_in_trees"]

_FEWEST_SPLITS = 10  # by chance alone, that many splits all go one way in one of 500 columns


@dataclass(frozen=True)
class Reading:
    """How a model was trained, as far as the model shows it.

    Attributes
    ----------
    parameters
        Parameters of the library's class.
    signs
        Its monotone directions, by the name or the position of an input.
    notes
        Sentences on what could not be read, or what candidates do differently.
    """

    parameters: Mapping[str, Any]
    signs: Mapping[str | int, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def last_step(model: Any) -> Any:  # noqa: ANN401 - any model
    """The classifier inside a pipeline, a parameter search or a threshold chooser; any other model unchanged."""
    model = unwrapped(model)
    return unwrapped(list(flat_steps(model))[-1][1]) if is_kind(model, "Pipeline") else model


def given_parameters(model: Any, fixed: frozenset[str]) -> tuple[dict[str, Any], tuple[str, ...]]:  # noqa: ANN401
    """Parameters of an estimator that differ from its defaults, and a note on those that a search cannot keep.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> given_parameters(LogisticRegression(C=0.1, random_state=3), frozenset({"random_state"}))
    ({'C': 0.1}, ())
    """
    usual = type(model)().get_params()
    given = {
        name: value
        for name, value in model.get_params(deep=False).items()
        if name not in fixed and value is not None and (name not in usual or repr(usual[name]) != repr(value))
    }
    odd = [name for name, value in given.items() if not _is_plain(value)]
    notes = (f"Parameters of your model that a search cannot keep: {', '.join(odd)}.",) if odd else ()
    return {name: _plain(value) for name, value in given.items() if name not in odd}, notes


def _is_plain(value: Any) -> bool:  # noqa: ANN401
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return isinstance(value, (str, bool, int, float, np.integer, np.floating))


def _plain(value: Any) -> Any:  # noqa: ANN401
    return value.item() if isinstance(value, np.generic) else value


def plain_value(text: str) -> Any:  # noqa: ANN401 - a number or the text
    """A parameter as a library writes it: a number with the digits of a float32, or a text.

    Examples
    --------
    >>> plain_value("0.300000012"), plain_value("6"), plain_value("depthwise")
    (0.3, 6, 'depthwise')
    """
    if re.fullmatch(r"[-+]?\d+", text):
        return int(text)
    try:
        return float(f"{float(text):.7g}")
    except ValueError:
        return text


def signs_by_input(given: Any) -> dict[str | int, int]:  # noqa: ANN401 - as libraries take monotone constraints
    """Monotone constraints by the name or position of an input, from a mapping, a list or XGBoost's "(1,0,-1)".

    Examples
    --------
    >>> signs_by_input("(1,0,-1)"), signs_by_input({"income": 1}), signs_by_input(None)
    ({0: 1, 2: -1}, {'income': 1}, {})
    """
    if given is None:
        return {}
    if isinstance(given, str):
        given = [int(sign) for sign in re.findall(r"-?\d+", given)]
    pairs: Sequence[tuple[Any, Any]] = list(given.items()) if isinstance(given, Mapping) else list(enumerate(given))
    return {name: int(sign) for name, sign in pairs if sign}


def signs_in_trees(ensemble: TreeEnsemble) -> dict[str | int, int]:
    """Directions that trees keep at every split, by the position of the input.

    In trees that were trained with a direction, every leaf on one side of a split is at least as high as every leaf on
    the other side. Inputs with few splits may keep a direction by chance and are skipped.
    """
    is_leaf = ensemble.feature < 0
    low, high = (np.where(is_leaf, ensemble.value, np.nan) for _ in range(2))
    for level in reversed(list(levels(ensemble.roots, ensemble.left, ensemble.right, is_leaf))):
        asking = level[~is_leaf[level]]
        left, right = ensemble.left[asking], ensemble.right[asking]
        low[asking], high[asking] = np.minimum(low[left], low[right]), np.maximum(high[left], high[right])
    asking = np.flatnonzero(~is_leaf & (ensemble.rule != CATEGORY_SET))
    left, right = ensemble.left[asking], ensemble.right[asking]
    rises, falls = high[left] <= low[right], low[left] >= high[right]

    def always(holds: NDArray[np.bool_]) -> NDArray[np.bool_]:
        n, n_held = (np.bincount(ensemble.feature[of], minlength=ensemble.n_features) for of in (asking, asking[holds]))
        return np.asarray((n >= _FEWEST_SPLITS) & (n == n_held))

    return {int(j): sign for sign, holds in ((1, rises), (-1, falls)) for j in np.flatnonzero(always(holds))}
