"""People as the audit holds them, and the attributions of one seen from the cell of another."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.attribution import Explanation, label_group_baselines
from evenhand.attribution.baselines import categories_without_one
from evenhand.attribution.gradients import Method
from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.inputs.roles import Rows
from evenhand.inputs.validation import Groups
from evenhand.models.protocol import AuditedModel

__all__ = ["Explainer", "People", "Seen", "people_of"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class People:
    """Checked people: the table, its encoding, labels and groups."""

    table: pd.DataFrame
    x: Tensor
    labels: Ints
    groups: Groups

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def cells(self) -> Ints:
        """The (label, group) cell of each person."""
        return self.labels * len(self.groups.names) + self.groups.codes


@dataclass(frozen=True, eq=False)
class Seen:
    """Rows of a pool, each seen from the baseline of a person's cell; a row seen twice from a cell is kept once.

    Attributes
    ----------
    attribution
        Attributions of the distinct (row, cell).
    position
        Where in `attribution` each asked-for row is.
    """

    attribution: Explanation
    position: Tensor

    def __getitem__(self, part: slice) -> Explanation:
        """A part of the rows asked for, in float64."""
        return self.attribution.rows(self.position[part])

    @property
    def logit(self) -> Tensor:
        """Logit of each row asked for."""
        return self.attribution.logit[self.position]


@dataclass(frozen=True, eq=False)
class Explainer:
    """Attributions of people from the mean of a (label, group) cell of the pool.

    Attributes
    ----------
    baselines
        Mean of each cell, of shape (n_cells, d); of a category, the most common. NaN where the pool has no one.
    cell_sizes
        Number of people of the pool in each cell.
    n_known
        Number of them of whom each input is known, of shape (n_cells, d).
    known
        Attributions of every row of the pool from the cells of its label, in order of row, then of group; None where
        they are computed as they are asked for.
    without_one
        Categories of the baselines when one who has them is left out of the cell: see `categories_without_one`. None
        where no input is a category.
    """

    model: AuditedModel
    baselines: Tensor
    cell_sizes: Ints
    n_known: Tensor
    n_steps: int
    method: Method
    known: Explanation | None = None
    without_one: Tensor | None = None

    @classmethod
    def of(cls, model: AuditedModel, pool: People, n_steps: int, method: Method) -> Explainer:
        """Take the baselines from a pool."""
        people = (pool.x.cpu().numpy(), pool.labels, pool.groups.codes)
        categorical = model.categorical_inputs

        def by_cell(rows: NDArray[np.float64]) -> Tensor:
            return torch.as_tensor(rows.reshape(-1, rows.shape[-1]), dtype=pool.x.dtype, device=pool.x.device)

        flat = by_cell(label_group_baselines(*people, skip_missing=model.accepts_missing, categorical=categorical))
        cell = torch.as_tensor(pool.cells, device=pool.x.device)
        return cls(
            model,
            flat,
            np.bincount(pool.cells, minlength=len(flat)),
            torch.zeros(flat.shape, dtype=torch.int64, device=flat.device).index_add_(
                0, cell, (~pool.x.isnan()).long()
            ),
            n_steps,
            method,
            without_one=by_cell(categories_without_one(*people, categorical)) if categorical else None,
        )

    def has_baseline(self, people: People) -> NDArray[np.bool_]:
        """Whether the pool has anyone in each person's cell."""
        return self.cell_sizes[people.cells] > 0

    def explain(self, x: Tensor, cells: Ints) -> Explanation:
        """Attributions of the rows of `x`; from the origin where a cell is empty, to be left out by the caller."""
        is_empty = torch.as_tensor(self.cell_sizes == 0, device=x.device).unsqueeze(-1)
        baselines = self.baselines.masked_fill(is_empty, 0.0)
        baseline = baselines[torch.as_tensor(cells, device=x.device)]
        return self.model.attribute(x, baseline, self.n_steps, self.method)

    def knowing(self, pool: People) -> Explainer:
        """The same, with every row of the pool explained beforehand: worthwhile where most are asked for repeatedly."""
        n_groups = len(pool.groups.names)
        rows = torch.arange(len(pool), device=pool.x.device).repeat_interleave(n_groups)
        cells = (pool.labels[:, None] * n_groups + np.arange(n_groups)).ravel()
        return replace(self, known=self.explain(pool.x[rows], cells))

    def see(self, pool: People, rows: Ints, cells: Ints) -> Seen:
        """Rows of the pool, each from the baseline of the given cell, which has the row's label."""
        n_cells = len(self.baselines)
        if self.known is not None:
            n_groups = n_cells // 2
            return Seen(self.known, torch.as_tensor(rows * n_groups + cells % n_groups, device=pool.x.device))
        distinct, position = np.unique(rows * n_cells + cells, return_inverse=True)
        chosen = torch.as_tensor(distinct // n_cells, device=pool.x.device)
        found = self.explain(pool.x[chosen], distinct % n_cells)
        return Seen(found, torch.as_tensor(position, device=pool.x.device))


def people_of(rows: Rows, model: AuditedModel, names: tuple[str, ...], where: str) -> People:
    """Rows of a table as people, in the group codes of the reference.

    Raises
    ------
    InvalidInputError
        If a group is not in the reference, or a value cannot be used; the message begins with `where`.
    """
    assert rows.table is not None
    assert rows.groups is not None
    unknown = [name for name in rows.groups.names if name not in names]
    if unknown:
        raise InvalidInputError(
            f"{where}: no one of the groups {unknown} is in the reference, which has {list(names)}; people are "
            "compared with, and explained from, the people of the reference."
        )
    try:
        table = model.aligned(rows.table)
        return People(table, model.encode(table), rows.labels, rows.groups.recoded(names))
    except (InvalidInputError, InvalidTypeError) as error:
        raise type(error)(f"{where}: {error}") from None
