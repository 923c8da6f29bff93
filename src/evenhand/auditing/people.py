"""People as the audit holds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.inputs.roles import Rows
from evenhand.inputs.validation import Groups
from evenhand.matching.identity import Identity
from evenhand.models.protocol import AuditedModel

__all__ = [
    "People",
    "check_counted",
    "check_finances_apart",
    "check_known_groups",
    "in_unit_of",
    "people_of",
    "weight_unit",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class People:
    """Checked people: the table, its encoding, labels and groups; decisions made about them and their ids, if given.

    Attributes
    ----------
    clusters
        A hash of who each row is, or of their household, 0 where that is not known; None where no one said.
    sample_weight
        How many people of the population each row stands for, up to a common factor; None where all weigh the same.
    """

    table: pd.DataFrame
    x: Tensor
    labels: Ints
    groups: Groups
    decisions: Ints | None = None
    ids: NDArray[np.object_] | None = None
    clusters: NDArray[np.uint64] | None = None
    sample_weight: Floats | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def cells(self) -> Ints:
        """The (label, group) cell of each person."""
        return self.labels * len(self.groups.names) + self.groups.codes

    @cached_property
    def weight(self) -> Floats:
        """What each row weighs: 1 where no one said."""
        return np.ones(len(self)) if self.sample_weight is None else self.sample_weight

    @cached_property
    def identity(self) -> Identity:
        """Who each row is: by the clusters, or by all that the model sees."""
        found = Identity.of(self.x.cpu().numpy(), self.labels, self.groups.codes, self.clusters)
        if self.clusters is None:
            return found
        return replace(found, person=np.where(self.clusters == 0, found.content, self.clusters))


def check_known_groups(groups: Groups, names: tuple[str, ...]) -> None:
    """Refuse groups of which the reference, whose groups are `names`, has no one."""
    unknown = [name for name in groups.names if name not in names]
    if unknown:
        raise InvalidInputError(
            f"No one of the groups {unknown} is in the reference, which has {list(names)}; people are compared with, "
            "and explained from, the people of the reference."
        )


def check_finances_apart(people: People, financial_features: Sequence[str]) -> None:
    """Refuse a financial feature that is the group, or a part of it: people of different groups would never be alike.

    Raises
    ------
    InvalidInputError
        If everyone of a group has the same value of a feature, and groups differ in it.
    """
    for name in financial_features:
        codes, values = pd.factorize(people.table[name])
        if not 1 < len(values) <= len(people.groups.names):
            continue
        pairs = np.unique(np.stack([people.groups.codes, codes]), axis=1).shape[1]
        if pairs == len(np.unique(people.groups.codes)):
            raise InvalidInputError(
                f"The financial feature {name!r} is the group: everyone of a group has the same value, so that people "
                "of different groups are never comparable. Take it out of `financial_features`."
            )


def weight_unit(sample_weight: Floats | None, name: str = "sample_weight") -> float:
    """The largest weight, which weights are counted in, so that equal weights are exactly 1.

    Raises
    ------
    InvalidInputError
        If all weights are 0.
    """
    if sample_weight is None:
        return 1.0
    check_counted(sample_weight, name)
    return float(sample_weight.max())


def check_counted(sample_weight: Floats, name: str | None) -> None:
    """Refuse weights that count no one."""
    if not sample_weight.any():
        raise InvalidInputError(
            f"`{name}` is 0 for everyone, so that no one is counted; name the column of the weights, or leave it out."
        )


def in_unit_of(people: People, sample_weight: Floats | None) -> People:
    """The same people with their weights in the unit of other weights."""
    if people.sample_weight is None:
        return people
    return replace(people, sample_weight=people.sample_weight / weight_unit(sample_weight))


def people_of(
    rows: Rows, model: AuditedModel, names: tuple[str, ...], where: str, unit_of_weight: float = 1.0
) -> People:
    """Rows of a table as people, in the group codes of the reference and the unit of its weights.

    Raises
    ------
    InvalidInputError
        If a group is not in the reference, or a value cannot be used; the message begins with `where`.
    """
    assert rows.table is not None
    assert rows.groups is not None
    try:
        check_known_groups(rows.groups, names)
        table = model.aligned(rows.table)
        return People(
            table,
            model.encode(table),
            model.favorable_labels(rows.labels),
            rows.groups.recoded(names),
            decisions=rows.decisions,
            ids=rows.ids,
            clusters=rows.clusters,
            sample_weight=None if rows.sample_weight is None else rows.sample_weight / unit_of_weight,
        )
    except (InvalidInputError, InvalidTypeError) as error:
        raise type(error)(f"{where}: {error}") from None
