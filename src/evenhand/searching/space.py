"""Which candidates a search tries: all combinations of a space or a seeded draw, and the model that it starts from."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd

from evenhand.arrays import Floats, Ints, as_numpy, double
from evenhand.exceptions import InvalidInputError, InvalidTypeError, did_you_mean
from evenhand.inputs.identity import fingerprint_plain
from evenhand.metrics.outcomes import auc
from evenhand.metrics.proxies import feature_strengths
from evenhand.models.dispatch import as_audited_model, input_columns
from evenhand.models.encoders import flat_steps
from evenhand.models.files.load import load_model
from evenhand.models.protocol import AuditedModel
from evenhand.models.sklearn import is_kind, unwrapped
from evenhand.searching.families import (
    ESTIMATORS,
    FAMILIES,
    FAMILY_NAMES,
    Family,
    FamilyName,
    Parameters,
    spelled_as,
)
from evenhand.searching.people import SearchPeople
from evenhand.system.files import json_ready

Space: TypeAlias = Mapping[str, Sequence[Any]]
Drops: TypeAlias = Sequence[tuple[str, ...]]
"""Sets of columns to leave out."""

_MOST_COMBINATIONS = 5_000
_MOST_PLAIN = 24  # unconstrained candidates of a family
_MOST_PROXIES = 3
_PEOPLE_TO_ORIENT = 5_000  # whose scores show whether high scores are good
_LEAST_AUC = 0.02  # beyond 0.5, to be sure


@dataclass(frozen=True, eq=False)
class Start:
    """A model that a search starts from.

    Attributes
    ----------
    model
        The model as given, or as read from its file.
    family, parameters
        Its family, and all parameters with which it is retrained in every fold as a candidate; ``drop`` is the columns
        of the table that it does not see.
    kind
        What it is, in words.
    favorable
        ``"low"`` if its score is a risk; candidates always score the favorable outcome.
    notes
        What could not be read, or what candidates do differently.
    warnings
        What makes the retrained model different from yours.
    """

    model: Any
    family: FamilyName
    parameters: Parameters
    kind: str
    favorable: Literal["high", "low"]
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "kind": self.kind,
            "family": self.family,
            "favorable": self.favorable,
            "monotone": dict(self.parameters.get("monotone") or {}),
            "not_seen": list(self.parameters["drop"]),
            "notes": list(self.notes),
        }


def read_start(given: Any, people: SearchPeople) -> Start:
    """A fitted model, or the file of one, as a starting point.

    Raises
    ------
    InvalidTypeError
        If it does not belong to a family that can be searched.
    InvalidInputError
        If the people lack columns that it takes, or its scores do not show whether high ones are good.
    ModelFileError
        If its file cannot be read.
    """
    model, text = given, ""
    if isinstance(given, (str, os.PathLike)):
        model = load_model(given)
        text = Path(given).read_text(encoding="utf-8") if Path(given).suffix in (".txt", ".json") else ""
    readings = ((family, family.read(model, text)) for family in ESTIMATORS.values())
    family, reading = next((pair for pair in readings if pair[1] is not None), (None, None))
    if family is None or reading is None:
        raise InvalidTypeError(
            "`start` must be a fitted model of XGBoost, LightGBM, HistGradientBoostingClassifier or "
            f"LogisticRegression, alone or in a pipeline, a scorecard, or a file of one; got {type(model).__name__}."
        )
    columns = people.columns
    seen = spelled_columns(model, people)
    if input_columns(model) is None:
        encoder = as_audited_model(model, table=people.table).encoder  # a Booster has a different way to name them
        seen = columns if encoder is None else encoder.names
    absent = [name for name in seen if name not in columns]
    if absent:
        raise InvalidInputError(f"`start` takes columns that the people do not have: {absent}.")
    unseen = [name for name in people.financial_features if name not in seen]
    if unseen:
        raise InvalidInputError(
            f"`start` does not take {unseen}, on which people are matched: an audit needs a model that does. Match on "
            "others."
        )
    audited = as_audited_model(model, table=people.table[seen])
    favorable = _favorable(audited, people.table[seen], people.labels)
    # Monotone constraints by the table's columns, from names or positions of the model's inputs.
    source = range(len(seen)) if audited.encoder is None else audited.encoder.join_matrix.argmax(axis=1)
    signs = {seen[source[name]] if isinstance(name, int) else name: sign for name, sign in reading.signs.items()}
    usual = {name: parameter.usual for name, parameter in family.parameters.items()}
    parameters = {**family.plain, **usual, **reading.parameters, "seed": 0}
    notes = reading.notes
    if favorable == "low":
        signs = {name: -sign for name, sign in signs.items()}
        if "scale_pos_weight" in parameters:
            parameters["scale_pos_weight"] = 1 / parameters["scale_pos_weight"]
        notes += ("Your model scores the unfavorable outcome; candidates score the favorable one.",)
    parameters |= {"drop": tuple(name for name in columns if name not in seen)}
    parameters |= {"monotone": signs} if "monotone" in family.plain else {}
    plain = unwrapped(model)
    steps = [type(step).__name__ for _, step in flat_steps(plain)][:-1] if is_kind(plain, "Pipeline") else []
    warnings = (
        f"The search prepares columns in its own way: the steps of your pipeline before its classifier "
        f"({', '.join(steps)}) are replaced, so the retrained model may score people differently.",
    )
    return Start(model, family.name, parameters, audited.kind, favorable, notes, warnings if steps else ())


def spelled_columns(model: Any, people: SearchPeople) -> list[str]:
    """Columns that a model takes, as the table spells them; all columns if the model does not name any."""
    seen = input_columns(model)
    return people.columns if seen is None else spelled_as(people.columns, seen)


def favorable_probability(model: Any, people: SearchPeople, rows: Ints) -> Floats:
    """A model's probability of the outcome that it scores, for some of the people."""
    table = people.table[spelled_columns(model, people)]
    audited = as_audited_model(model, table=table)
    margin = audited.margin(audited.encode(table.iloc[rows].reset_index(drop=True)))
    return as_numpy(audited.probability(margin))


def _favorable(audited: AuditedModel, table: pd.DataFrame, labels: Ints) -> Literal["high", "low"]:
    """Whether high or low scores are good, by the outcomes of people with high scores."""
    rows = np.random.default_rng(0).permutation(len(table))[:_PEOPLE_TO_ORIENT]
    scores = as_numpy(double(audited.margin(audited.encode(table.iloc[rows].reset_index(drop=True)))))
    area = auc(labels[rows], scores)
    if not abs(area - 0.5) > _LEAST_AUC:
        raise InvalidInputError(
            f"`start` has an AUC of {area:.3f} on these people, which does not show whether high scores are good or "
            "bad. Check that it is a model of this outcome."
        )
    return "high" if area > 0.5 else "low"


def proxy_drops(people: SearchPeople) -> Drops:
    """Each of the three columns that alone predict the group best, and the three together.

    Columns on which people are matched are never dropped.
    """
    columns = [name for name in people.table.columns if name not in people.financial_features]
    if not columns:
        return ()
    table = people.table[columns].iloc[people.searched].reset_index(drop=True)
    strengths = feature_strengths(table, people.groups.codes[people.searched])
    best = [strength.feature for strength in strengths[:_MOST_PROXIES] if strength.auc == strength.auc]
    together = [tuple(best)] if len(best) > 1 else []
    return [*((name,) for name in best), *together]


@dataclass(frozen=True)
class Candidate:
    """A way to train.

    Attributes
    ----------
    number
        Its position in the search, from 0.
    parameters
        Every parameter of its family.
    is_unconstrained
        Whether it is trained for accuracy alone; in a search with a starting model, whether it is that model.
    family
        What is trained.
    is_start
        Whether the search starts from it.
    """

    number: int
    parameters: Mapping[str, Any]
    is_unconstrained: bool
    family: FamilyName = "network"
    is_start: bool = False

    @property
    def key(self) -> str:
        """Sixteen hexadecimal digits that differ when the family or a parameter does."""
        return fingerprint_plain([self.family, dict(self.parameters)])

    @property
    def seed(self) -> int:
        """The number to add to the seeds of its models."""
        return int(self.parameters["seed"])

    def words(self, among: Sequence[Candidate] = ()) -> str:
        """The parameters that differ among the candidates, or all."""
        alike = [candidate for candidate in among if candidate.family == self.family]
        names = [n for n in self.parameters if not alike or len({repr(c.parameters.get(n)) for c in alike}) > 1]
        kind = "your model, retrained" if self.is_start else "unconstrained" if self.is_unconstrained else ""
        if self.is_unconstrained and not self.is_start:
            hidden = FAMILIES[self.family].unused if self.family == "network" else ()
            names = [name for name in names if name not in hidden]
        told = [f"{name} {shown(self.parameters[name])}" for name in names]
        family = self.family if len(alike) < len(among) else ""
        return ", ".join(part for part in (kind, family, *told) if part)


def default_space(family: FamilyName) -> dict[str, Sequence[Any]]:
    """The space to search if none is given.

    Examples
    --------
    >>> sorted(default_space("network"))
    ['cec_weight', 'epochs', 'equalized_odds_weight', 'learning_rate', 'objective']
    """
    (name,) = family_names(family)
    return dict(FAMILIES[name].space)


def family_names(family: FamilyName | Sequence[FamilyName]) -> tuple[FamilyName, ...]:
    """One family, or several, checked.

    Raises
    ------
    InvalidInputError
        If there is none, one is named twice, or one is unknown.

    Examples
    --------
    >>> family_names("trees"), family_names(["xgboost", "logistic"])
    (('trees',), ('xgboost', 'logistic'))
    """
    given = (family,) if isinstance(family, str) else tuple(family)
    unknown = [name for name in given if name not in FAMILY_NAMES]
    if unknown or not given or len(set(given)) < len(given):
        raise InvalidInputError(
            f"`family` must be one or more of {list(FAMILY_NAMES)}, each once, got {family!r}."
            f"{did_you_mean(str(unknown[0]), FAMILY_NAMES) if unknown else ''}"
        )
    return given


def candidates_of(
    family: FamilyName | Sequence[FamilyName],
    space: Space | Mapping[str, Space] | None,
    n_candidates: int | None,
    random_state: int,
    *,
    drops: Drops = (),
    start: Start | None = None,
) -> tuple[Candidate, ...]:
    """The candidates of a search: the unconstrained ones first, then the others in random order.

    Unconstrained candidates are always tried, with every value that the space gives to the other parameters: compared
    with an untuned model, a candidate would gain from tuning alone. In a search with a starting model, only that model
    comes first, and everything is compared with it.

    Parameters
    ----------
    family
        One or more families.
    space
        Values to try by parameter; with several families, a space for each by name. None for the default.
    n_candidates
        How many constrained combinations to draw, without repetition and equally from each family; None for all.
    random_state
        Seed of the draw.
    drops
        Columns to leave out, tried if no space is given.
    start
        The model that the search starts from. Its parameters are the default of those that the space does not name;
        without a space, the search varies around them.

    Raises
    ------
    InvalidInputError
        If the space names an unknown parameter, a parameter has no values, or there are too many combinations.

    Examples
    --------
    >>> space = {"objective": ["reasoning_gap"], "cec_weight": [1.0, 3.0], "epochs": [10]}
    >>> [c.words() for c in candidates_of("network", space, None, 0)][0]
    'unconstrained, learning_rate 0.0003, epochs 10, hidden 128-64, dropout 0.2, batch_size 64, n_steps 1, method \
segments, cec_every 1, least_explained 0, seed 0'
    """
    names = family_names(family)
    if n_candidates is not None and (not isinstance(n_candidates, int) or n_candidates < 1):
        raise InvalidInputError(f"`n_candidates` must be None or at least 1, got {n_candidates!r}.")
    rng = np.random.default_rng(random_state)
    first: list[tuple[FamilyName, Parameters]] = []
    others: list[tuple[FamilyName, Parameters]] = []
    if start is not None:
        first.append((start.family, _canonical(FAMILIES[start.family].defaults, start.parameters)))
    for k, (name, given) in enumerate(_by_family(names, space)):
        kind, defaults = FAMILIES[name], _defaults(name, start)
        tried = dict(_tried(kind, drops, start) if given is None else given)
        if start is not None and "drop" in tried:  # no candidate sees a column that the starting model does not see
            absent = start.parameters["drop"]
            tried["drop"] = [tuple(dict.fromkeys((*absent, *more))) for more in tried["drop"]]
        values = _checked(kind, defaults, tried)
        if start is None:
            unused: dict[str, Sequence[Any]] = {parameter: (value,) for parameter, value in kind.unused.items()}
            rest = {parameter: options for parameter, options in values.items() if parameter not in kind.plain}
            first += [(name, _canonical(defaults, p)) for p in _drawn({**rest, **unused}, _MOST_PLAIN, rng)]
        n = None if n_candidates is None else len(range(k, n_candidates, len(names)))
        plain = _canonical(defaults, kind.plain)
        for drawn in _drawn(values, n, rng):
            full = _canonical(defaults, drawn)
            if start is not None or any(full[parameter] != plain[parameter] for parameter in kind.plain):
                others.append((name, full))
    # The bound on further gains needs the candidates tried first to be a random draw from all.
    others = [others[k] for k in rng.permutation(len(others))]
    chosen: dict[str, Candidate] = {}
    for k, (name, parameters) in enumerate([*first, *others]):
        candidate = Candidate(len(chosen), parameters, k < len(first), name, start is not None and k == 0)
        chosen.setdefault(candidate.key, candidate)
    return tuple(chosen.values())


def _by_family(
    names: Sequence[FamilyName], space: Space | Mapping[str, Space] | None
) -> list[tuple[FamilyName, Space | None]]:
    """Each family with its space; None for the default."""
    if space is None:
        return [(name, None) for name in names]
    if not isinstance(space, Mapping) or not space:
        raise InvalidInputError(f"`space` must map parameters to the values to try, got {space!r}.")
    if set(space) <= set(FAMILY_NAMES) and all(isinstance(options, Mapping) for options in space.values()):
        unknown = [name for name in space if name not in names]
        if unknown:
            raise InvalidInputError(f"`space` names the families {unknown}, but the search is over {list(names)}.")
        return [(name, space.get(name)) for name in names]  # type: ignore[misc]
    if len(names) > 1:
        raise InvalidInputError(
            f"With several families, `space` must map each of them to a space, such as {{{names[0]!r}: "
            f"{{...}}}}, got the names {list(space)}."
        )
    return [(names[0], space)]  # type: ignore[list-item]


def _defaults(name: FamilyName, start: Start | None) -> Parameters:
    """A family's defaults, with the parameters of a starting model; a different family takes only its columns."""
    defaults = FAMILIES[name].defaults
    if start is None:
        return defaults
    if name == start.family:
        return {**defaults, **start.parameters}
    if name == "network" and start.parameters["drop"]:
        raise InvalidInputError(
            f"Networks see every column, but `start` does not see {list(start.parameters['drop'])}. Leave these "
            "columns out of the table, or leave networks out of `family`."
        )
    return {**defaults, **{key: start.parameters.get(key, ()) for key in ("drop", "monotone") if key in defaults}}


def _tried(family: Family, drops: Drops, start: Start | None) -> Space:
    """The space of a family if none is given."""
    if family.name == "network":
        return family.space
    space = {**family.space, "drop": [(), *drops]}
    if start is not None and family.name == start.family:
        near = {name: p.near(start.parameters[name]) for name, p in family.parameters.items() if p.near is not None}
        return {"repair": space["repair"], "drop": space["drop"], **near}
    return space


def _checked(family: Family, defaults: Parameters, space: Space) -> dict[str, list[Any]]:
    known = [*defaults, *sorted(family.further() - {*defaults})]
    checked: dict[str, list[Any]] = {}
    for name, options in space.items():
        if name not in known:
            raise InvalidInputError(
                f"`space` names {name!r}, which is not a parameter of a search over {family.name}."
                f"{did_you_mean(str(name), known)}"
            )
        if isinstance(options, str) or not isinstance(options, Sequence) or not len(options):
            raise InvalidInputError(f"`space[{name!r}]` must be a list of values to try, got {options!r}.")
        checked[name] = list({fingerprint_plain(json_ready(value)): value for value in options}.values())
    if not checked:
        raise InvalidInputError(f"`space` for {family.name} must map parameters to the values to try, got {space!r}.")
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
    numbers = np.sort(rng.choice(total, size=n, replace=False))
    places = np.column_stack(np.unravel_index(numbers, [len(options) for options in values.values()]))
    return [
        {name: options[place] for (name, options), place in zip(values.items(), own, strict=True)} for own in places
    ]


def _canonical(defaults: Parameters, parameters: Parameters) -> dict[str, Any]:
    """Plain JSON values, so that the same parameters are the same candidate in whatever form they were given."""
    return {
        name: float(value) if isinstance(defaults.get(name), float) and value is not None else json_ready(value)
        for name, value in {**defaults, **parameters}.items()
    }


def shown(value: Any) -> str:
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


def in_a_cell(value: Any) -> Any:
    """A parameter as a value for a cell of a table."""
    return shown(value) if isinstance(value, (list, Mapping)) else value
