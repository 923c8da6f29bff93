"""People with group probabilities, as members of the groups of one draw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.auditing.people import People
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.fingerprints import hash_rows
from evenhand.inputs.group_probabilities import FEWEST_EXPECTED, GroupProbabilities
from evenhand.inputs.validation import Groups, as_groups
from evenhand.system.hashing import mixed_hash

__all__ = ["grouped", "of_draw", "of_threshold", "with_first_draw"]


def grouped(people: Mapping[str, Any], sensitive: Any, X: Any, name: str) -> People:  # noqa: ANN401 - any column or table
    """People with their groups or group probabilities; `people` holds the other fields of `People`.

    Groups of people with probabilities must then be drawn with `with_first_draw`.
    """
    n = len(people["labels"])
    if not isinstance(sensitive, GroupProbabilities):
        return People(**people, groups=as_groups(sensitive, n, name))
    table = sensitive.in_row_order(X, n, name)
    probable = sensitive.of_people(table, _keys(people, table))
    return People(**people, groups=probable.drawn(0, 0), probabilities=probable)


def with_first_draw(people: People, pool: People, random_state: int) -> tuple[People, People]:
    """The audited people and their pool in the groups of the first draw, if groups are known as probabilities.

    Raises
    ------
    InvalidInputError
        If only one of the two has probabilities, or their groups differ.
    """
    own, other = people.probabilities, pool.probabilities
    if own is None and other is None:
        return people, pool
    if own is None or other is None or own.names != other.names:
        raise InvalidInputError(
            "The audited people and the reference must both have `GroupProbabilities` with the same columns, or both "
            f"have groups, got {_known(people)} and {_known(pool)}; give probabilities for both."
        )
    if people.sample_weight is not None:
        raise InvalidInputError(
            "Groups known as probabilities cannot be audited with sampling weights yet: drop `sample_weight` "
            "(--sample-weight), or give groups."
        )
    return of_draw(people, pool, 0, random_state)


def of_draw(people: People, pool: People, number: int, random_state: int) -> tuple[People, People]:
    """The audited people and their pool, who may be the same, in the groups of a draw."""
    drawn = _drawn(people, number, random_state)
    return drawn, drawn if pool is people else _drawn(pool, number, random_state)


def of_threshold(people: People, pool: People) -> tuple[People, People] | None:
    """People who are likely enough to belong to a group, as members of it; None if too few are left in a group."""
    sure = _sure(people)
    sure_pool = sure if pool is people else _sure(pool)
    if min(*sure.groups.counts.values(), *sure_pool.groups.counts.values()) < FEWEST_EXPECTED:
        return None
    return sure, sure_pool


def _sure(people: People) -> People:
    assert people.probabilities is not None
    put = people.probabilities.thresholded
    rows = np.flatnonzero(put >= 0)
    given = {name: getattr(people, name) for name in ("decisions", "ids", "clusters", "cut_offs", "known_by")}
    rows_of: dict[str, Any] = {name: None if values is None else values[rows] for name, values in given.items()}
    return replace(
        people,
        table=people.table.iloc[rows].reset_index(drop=True),
        x=people.x[rows],
        labels=people.labels[rows],
        groups=Groups(put[rows], people.probabilities.names),
        probabilities=None,
        **rows_of,
    )


def _drawn(people: People, number: int, random_state: int) -> People:
    assert people.probabilities is not None
    return replace(people, groups=people.probabilities.drawn(number, random_state))


def _known(people: People) -> str:
    how = "groups" if people.probabilities is None else "probabilities of"
    return f"{how} {list(people.groups.names)}"


def _keys(people: Mapping[str, Any], probabilities: pd.DataFrame) -> NDArray[np.uint64]:
    """Who each row is: given by the clusters, by the ids, or else by all that is known, whatever the row order.

    Identical rows are numbered, so that each is drawn separately.
    """
    if people["ids"] is not None:
        keys = hash_rows(pd.DataFrame({"id": people["ids"]}))
    else:
        content = mixed_hash(hash_rows(people["table"]) + hash_rows(probabilities), people["labels"])
        keys = mixed_hash(content, pd.Series(content).groupby(content).cumcount().to_numpy().astype(np.int64))
    clusters = people["clusters"]
    return keys if clusters is None else np.where(clusters == 0, keys, clusters)
