"""People explained from the baselines of (label, group) cells: each row from each cell once.

An explainer asks one model, or a stack of networks of one shape: explanations then have a leading dimension of models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.attribution import Explanation, label_group_baselines
from evenhand.attribution.baselines import categories_without_one
from evenhand.attribution.gradients import Method
from evenhand.models.protocol import AuditedModel

__all__ = ["CellBaselines", "Explainer", "Seen"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class CellBaselines:
    """The rows that people are explained from, one for each (label, group) cell of a pool.

    Cells are numbered label * n_groups + group.

    Attributes
    ----------
    rows
        Mean of each cell, of shape (n_cells, d); of a category, the most common. NaN where the pool has no one.
    sizes
        Number of people of the pool in each cell, of shape (n_cells,).
    n_known
        Number of them of whom each input is known, of shape (n_cells, d).
    without_one
        Categories of the baselines when one who has them is left out of the cell: see `categories_without_one`. None
        where no input is a category.
    """

    rows: Tensor
    sizes: Ints
    n_known: Tensor
    without_one: Tensor | None = None

    @classmethod
    def of(
        cls, x: Tensor, labels: Ints, groups: Ints, *, skip_missing: bool = False, categorical: Sequence[int] = ()
    ) -> CellBaselines:
        """Baselines of a pool; parameters as in `label_group_baselines`.

        Examples
        --------
        >>> x = torch.tensor([[1.0], [3.0], [5.0], [7.0]])
        >>> found = CellBaselines.of(x, np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1]))
        >>> found.rows.flatten().tolist(), found.sizes.tolist()
        ([2.0, nan, 5.0, 7.0], [2, 0, 1, 1])
        """
        people = (x.cpu().numpy(), labels, groups)

        def by_cell(rows: NDArray[np.float64]) -> Tensor:
            return torch.as_tensor(rows.reshape(-1, rows.shape[-1]), dtype=x.dtype, device=x.device)

        rows = by_cell(label_group_baselines(*people, skip_missing=skip_missing, categorical=categorical))
        cells = labels * (len(rows) // 2) + groups
        n_known = torch.zeros(rows.shape, dtype=torch.int64, device=x.device)
        return cls(
            rows,
            np.bincount(cells, minlength=len(rows)),
            n_known.index_add_(0, torch.as_tensor(cells, device=x.device), (~x.isnan()).long()),
            by_cell(categories_without_one(*people, categorical)) if categorical else None,
        )


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
        """Logit of each row asked for, of shape (..., n)."""
        return self.attribution.logit[..., self.position]

    def split(self, sizes: Sequence[int]) -> list[Seen]:
        """The rows asked for, in consecutive parts."""
        return [replace(self, position=part) for part in self.position.split(list(sizes))]


@dataclass(frozen=True, eq=False)
class Explainer:
    """Attributions of people from the mean of a (label, group) cell of the pool.

    Attributes
    ----------
    model
        What is explained: a model, or a `DifferentiableModel` of a stack.
    baselines
        Those of the pool.
    n_steps, method
        How attributions are integrated.
    join
        Sums inputs into the table's columns, in float64; None where they are the same.
    known
        Attributions of every row of the pool from the cells of its label, in order of row, then of group; None where
        they are computed as they are asked for.
    """

    model: AuditedModel
    baselines: CellBaselines
    n_steps: int
    method: Method
    join: Tensor | None = None
    known: Explanation | None = None

    @classmethod
    def of(
        cls, model: AuditedModel, x: Tensor, labels: Ints, groups: Ints, n_steps: int = 8, method: Method = "segments"
    ) -> Explainer:
        """Take the baselines from a pool of encoded people, as the model has them, and the columns from its encoder.

        Examples
        --------
        >>> from evenhand.models.gradient import DifferentiableModel
        >>> model = DifferentiableModel(torch.nn.Linear(1, 1), "torch module")
        >>> x, y, group = torch.tensor([[1.0], [3.0]]), np.array([1, 1]), np.array([0, 0])
        >>> explainer = Explainer.of(model, x, y, group)
        >>> explainer.explain(x, np.array([1, 1])).offset.flatten().tolist()
        [-1.0, 1.0]
        """
        baselines = CellBaselines.of(
            x, labels, groups, skip_missing=model.accepts_missing, categorical=model.categorical_inputs
        )
        join = model.join_matrix()
        return cls(model, baselines, n_steps, method, None if join is None else join.double())

    def has_baseline(self, cells: Ints) -> Bools:
        """Whether the pool has anyone in each cell."""
        return self.baselines.sizes[cells] > 0

    def explain(self, x: Tensor, cells: Ints | Tensor) -> Explanation:
        """Attributions of the rows of `x`; from the origin where a cell is empty, to be left out by the caller."""
        rows = self.baselines.rows
        is_empty = torch.as_tensor(self.baselines.sizes == 0, device=rows.device).unsqueeze(-1)
        start = rows.masked_fill(is_empty, 0.0)[torch.as_tensor(cells, device=rows.device)]
        return self.model.attribute(x.to(rows.device), start, self.n_steps, self.method)

    def knowing(self, pool: Tensor, labels: Ints) -> Explainer:
        """The same, with every row of the pool explained beforehand: worthwhile where most are asked for repeatedly."""
        n_groups = len(self.baselines.rows) // 2
        rows = torch.arange(len(pool), device=pool.device).repeat_interleave(n_groups)
        cells = (labels[:, None] * n_groups + np.arange(n_groups)).ravel()
        return replace(self, known=self.explain(pool[rows], cells))

    def see(self, pool: Tensor, rows: Ints, cells: Ints) -> Seen:
        """Rows of the pool, each from the baseline of the given cell, which has the row's label."""
        n_cells, device = len(self.baselines.rows), self.baselines.rows.device
        if self.known is not None:
            n_groups = n_cells // 2
            return Seen(self.known, torch.as_tensor(rows * n_groups + cells % n_groups, device=device))
        distinct, position = np.unique(rows * n_cells + cells, return_inverse=True)
        found = self.explain(pool[torch.as_tensor(distinct // n_cells, device=pool.device)], distinct % n_cells)
        return Seen(found, torch.as_tensor(position, device=device))
