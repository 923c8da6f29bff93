"""People as the audit holds them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.inputs.roles import Rows
from evenhand.inputs.validation import Groups
from evenhand.models.protocol import AuditedModel

__all__ = ["People", "check_known_groups", "people_of"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class People:
    """Checked people: the table, its encoding, labels and groups; decisions made about them and their ids, if given."""

    table: pd.DataFrame
    x: Tensor
    labels: Ints
    groups: Groups
    decisions: Ints | None = None
    ids: NDArray[np.object_] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def cells(self) -> Ints:
        """The (label, group) cell of each person."""
        return self.labels * len(self.groups.names) + self.groups.codes


def check_known_groups(groups: Groups, names: tuple[str, ...]) -> None:
    """Refuse groups of which the reference, whose groups are `names`, has no one."""
    unknown = [name for name in groups.names if name not in names]
    if unknown:
        raise InvalidInputError(
            f"No one of the groups {unknown} is in the reference, which has {list(names)}; people are compared with, "
            "and explained from, the people of the reference."
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
        labels = model.favorable_labels(rows.labels)
        return People(table, model.encode(table), labels, rows.groups.recoded(names), rows.decisions, rows.ids)
    except (InvalidInputError, InvalidTypeError) as error:
        raise type(error)(f"{where}: {error}") from None
