"""Which candidates a search tries: every combination of a space, or a seeded draw of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, TypeAlias

import numpy as np

from evenhand.exceptions import InvalidInputError
from evenhand.inputs.fingerprints import fingerprint_plain
from evenhand.inputs.validation import did_you_mean
from evenhand.system.files import json_ready

__all__ = ["Candidate", "Family", "Space", "candidates_of", "default_space", "in_a_cell", "shown"]

Family = Literal["network", "trees"]
Space: TypeAlias = Mapping[str, Sequence[Any]]

_MOST_COMBINATIONS = 5_000
_MOST_PLAIN = 24  # unconstrained candidates

_DEFAULTS: dict[Family, dict[str, Any]] = {
    "network": {
        "objective": "reasoning_gap",
        "cec_weight": 0.0,
        "equalized_odds_weight": 0.0,
        "learning_rate": 3e-4,
        "epochs": 30,
        "hidden": (128, 64),
        "dropout": 0.2,
        "batch_size": 64,
        "n_steps": 1,
        "method": "segments",
        "cec_every": 1,
        "least_explained": 0.0,
        "seed": 0,
    },
    "trees": {
        "learning_rate": 0.1,
        "max_iter": 100,
        "max_leaf_nodes": 31,
        "max_depth": None,
        "min_samples_leaf": 20,
        "l2_regularization": 0.0,
        "drop": (),
        "monotone": (),
        "library": "sklearn",
        "seed": 0,
    },
}
_SPACES: dict[Family, dict[str, Sequence[Any]]] = {
    "network": {
        "objective": ("reasoning_gap", "excess", "reasoning_excess"),
        "cec_weight": (0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
        "equalized_odds_weight": (0.0, 0.1, 0.3, 1.0),
        "learning_rate": (3e-4, 1e-3),
        "epochs": (10, 20, 30),
    },
    "trees": {
        "learning_rate": (0.03, 0.1),
        "max_iter": (50, 100, 200),
        "max_leaf_nodes": (4, 8, 16, 31),
        "min_samples_leaf": (20, 50, 100),
        "l2_regularization": (0.0, 1.0, 10.0),
    },
}
# What makes a candidate more than plain training; all at these values is the unconstrained model.
_CONSTRAINTS: dict[Family, dict[str, Any]] = {
    "network": {"cec_weight": 0.0, "equalized_odds_weight": 0.0},
    "trees": {"drop": (), "monotone": ()},
}


@dataclass(frozen=True)
class Candidate:
    """A way to train.

    Attributes
    ----------
    number
        Its place in the search, from 0.
    parameters
        Every parameter of its family.
    is_unconstrained
        Whether nothing but accuracy is asked of it.
    """

    number: int
    parameters: Mapping[str, Any]
    is_unconstrained: bool

    @property
    def key(self) -> str:
        """Sixteen hexadecimal digits that differ when a parameter does."""
        return fingerprint_plain(dict(self.parameters))

    @property
    def seed(self) -> int:
        """What is added to the seeds of its models."""
        return int(self.parameters["seed"])

    def words(self, among: Sequence[Candidate] = ()) -> str:
        """The parameters that differ among the candidates, or all."""
        names = [n for n in self.parameters if not among or len({repr(c.parameters[n]) for c in among}) > 1]
        if self.is_unconstrained:
            names = [n for n in names if n not in ("objective", "cec_weight", "equalized_odds_weight")]
        told = ", ".join(f"{name} {shown(self.parameters[name])}" for name in names)
        return ", ".join(part for part in ("unconstrained" if self.is_unconstrained else "", told) if part)


def default_space(family: Family) -> dict[str, Sequence[Any]]:
    """The space searched when none is given.

    Examples
    --------
    >>> sorted(default_space("network"))
    ['cec_weight', 'epochs', 'equalized_odds_weight', 'learning_rate', 'objective']
    """
    _check_family(family)
    return dict(_SPACES[family])


def candidates_of(
    family: Family, space: Space | None, n_candidates: int | None, random_state: int
) -> tuple[Candidate, ...]:
    """The candidates of a search, the unconstrained ones first, the others in random order.

    Unconstrained candidates are always tried, with every value that the space gives to the other parameters: a model
    that is compared with an untuned one gains from tuning alone.

    Parameters
    ----------
    family
        ``"network"`` or ``"trees"``.
    space
        Values to try by parameter; None for the default.
    n_candidates
        How many constrained combinations to draw, without repetition; None for all.
    random_state
        Seed of the draw.

    Raises
    ------
    InvalidInputError
        If the space names no parameter of the family, a parameter has no values, or there are too many combinations.

    Examples
    --------
    >>> space = {"objective": ["reasoning_gap"], "cec_weight": [1.0, 3.0], "epochs": [10]}
    >>> [c.words() for c in candidates_of("network", space, None, 0)][0]
    'unconstrained, learning_rate 0.0003, epochs 10, hidden 128-64, dropout 0.2, batch_size 64, n_steps 1, method \
segments, cec_every 1, seed 0'
    """
    _check_family(family)
    values = _checked(family, default_space(family) if space is None else space)
    if n_candidates is not None and (not isinstance(n_candidates, int) or n_candidates < 1):
        raise InvalidInputError(f"`n_candidates` must be None or at least 1, got {n_candidates!r}.")
    rng = np.random.default_rng(random_state)
    plain = _CONSTRAINTS[family]
    others = {name: options for name, options in values.items() if name not in plain}
    unconstrained = _drawn({**others, **_unused_of(family, plain)}, _MOST_PLAIN, rng)
    constrained = [p for p in _drawn(values, n_candidates, rng) if not _is_plain(family, p)]
    # Those tried first are a random draw from all, on which the bound on further gains relies.
    constrained = [constrained[k] for k in rng.permutation(len(constrained))]
    chosen: dict[str, Candidate] = {}
    for parameters in [*unconstrained, *constrained]:
        full = _canonical({**_DEFAULTS[family], **parameters})
        candidate = Candidate(len(chosen), full, _is_plain(family, full))
        chosen.setdefault(candidate.key, candidate)
    return tuple(chosen.values())


def _check_family(family: str) -> None:
    if family not in _CONSTRAINTS:
        raise InvalidInputError(f'`family` must be "network" or "trees", got {family!r}.')


def _unused_of(family: Family, plain: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    """One value each for what plays no part in an unconstrained candidate."""
    unused: dict[str, Sequence[Any]] = {name: (value,) for name, value in plain.items()}
    return {**unused, "objective": ("reasoning_gap",)} if family == "network" else unused


def _is_plain(family: Family, parameters: Mapping[str, Any]) -> bool:
    defaults = _DEFAULTS[family]
    return all(
        _canonical({name: parameters.get(name, defaults[name])}) == _canonical({name: value})
        for name, value in _CONSTRAINTS[family].items()
    )


def _checked(family: Family, space: Space) -> dict[str, list[Any]]:
    defaults = _DEFAULTS[family]
    if not isinstance(space, Mapping) or not space:
        raise InvalidInputError(f"`space` must map parameters to the values to try, got {space!r}.")
    checked = {}
    for name, options in space.items():
        if name not in defaults:
            raise InvalidInputError(
                f"`space` names {name!r}, which is no parameter of a search over {family}."
                f"{did_you_mean(str(name), list(defaults))}"
            )
        if isinstance(options, str) or not isinstance(options, Sequence) or not len(options):
            raise InvalidInputError(f"`space[{name!r}]` must be a list of values to try, got {options!r}.")
        checked[name] = list(options)
    return checked


def _drawn(values: Mapping[str, Sequence[Any]], n: int | None, rng: np.random.Generator) -> list[dict[str, Any]]:
    """All combinations, or `n` of them without repetition, in the order of the space."""
    total = math.prod(len(options) for options in values.values())
    if n is None and total > _MOST_COMBINATIONS:
        raise InvalidInputError(
            f"`space` has {total:,} combinations, more than {_MOST_COMBINATIONS:,}; set `n_candidates` to draw some."
        )
    if n is None or n >= total:
        return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]
    drawn = []
    for number in np.sort(rng.choice(total, size=n, replace=False)).tolist():
        combination = {}
        for name, options in reversed(list(values.items())):
            number, place = divmod(number, len(options))
            combination[name] = options[place]
        drawn.append({name: combination[name] for name in values})
    return drawn


def _canonical(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Plain JSON values, so that the same parameters are the same candidate however they were written."""
    weights = ("cec_weight", "equalized_odds_weight", "learning_rate", "dropout", "l2_regularization")
    return {name: float(value) if name in weights else json_ready(value) for name, value in parameters.items()}


def shown(value: Any) -> str:  # noqa: ANN401 - a parameter's value
    """A parameter's value in words.

    Examples
    --------
    >>> shown([128, 64]), shown(["age", "sex"]), shown({"income": 1}), shown([]), shown(0.001)
    ('128-64', 'age and sex', 'income +1', 'none', '0.001')
    """
    if isinstance(value, Mapping):
        value = [f"{column} {sign:+d}" for column, sign in value.items()]
    if isinstance(value, list):
        between = "-" if all(isinstance(part, int) for part in value) else " and "
        return between.join(str(part) for part in value) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def in_a_cell(value: Any) -> Any:  # noqa: ANN401 - a parameter's value
    """A parameter as a cell of a table can hold it."""
    return shown(value) if isinstance(value, (list, Mapping)) else value
