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

__all__ = ["People", "check_finances_apart", "check_known_groups", "people_of"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class People:
    """Checked people: the table, its encoding, labels and groups; decisions made about them and their ids, if given.

    Attributes
    ----------
    clusters
        A hash of who each row is, or of their household, 0 where that is not known; None where no one said.
    """

    table: pd.DataFrame
    x: Tensor
    labels: Ints
    groups: Groups
    decisions: Ints | None = None
    ids: NDArray[np.object_] | None = None
    clusters: NDArray[np.uint64] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def cells(self) -> Ints:
        """The (label, group) cell of each person."""
        return self.labels * len(self.groups.names) + self.groups.codes

    def decided(self, score: NDArray[np.float64], threshold: float, rows: Ints | None = None) -> Ints:
        """Decisions about everyone, or about some rows: those that were made, or else those of the scores."""
        if self.decisions is None:
            return (score >= threshold).astype(np.int64)
        return self.decisions if rows is None else self.decisions[rows]

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


def people_of(rows: Rows, model: AuditedModel, names: tuple[str, ...], where: str) -> People:
    """Rows of a table as people, in the group codes of the reference.

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
        )
    except (InvalidInputError, InvalidTypeError) as error:
        raise type(error)(f"{where}: {error}") from None
