"""Explain people from the baselines of (label, group) cells: each row from each cell once.

An explainer uses one model, or a stack of networks of one shape: explanations then have a leading dimension of models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.attribution import Explanation, label_group_baselines
from evenhand.attribution.gradients import Method
from evenhand.models.protocol import AuditedModel

__all__ = ["CellBaselines", "Explainer", "HalvedExplainer", "Seen", "SeenTriples"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class CellBaselines:
    """The rows that people are explained from, one for each (label, group) cell of a pool.

    Cells are numbered label * n_groups + group.

    Attributes
    ----------
    rows
        Mean of each cell, of shape (n_cells, d); for a category, the most common value. NaN if the pool has no one.
    sizes
        Number of counted people of the pool in each cell, of shape (n_cells,).
    """

    rows: Tensor
    sizes: Ints

    @classmethod
    def of(
        cls,
        x: Tensor,
        labels: Ints,
        groups: Ints,
        *,
        n_groups: int | None = None,
        skip_missing: bool = False,
        categorical: Sequence[int] = (),
        sample_weight: Floats | None = None,
    ) -> CellBaselines:
        """Baselines of a pool; parameters as in `label_group_baselines`. The last of `n_groups` may be empty.

        Examples
        --------
        >>> x = torch.tensor([[1.0], [3.0], [5.0], [7.0]])
        >>> found = CellBaselines.of(x, np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1]))
        >>> found.rows.flatten().tolist(), found.sizes.tolist()
        ([2.0, nan, 5.0, 7.0], [2, 0, 1, 1])
        """
        means = label_group_baselines(
            x.cpu().numpy(),
            labels,
            groups,
            skip_missing=skip_missing,
            categorical=categorical,
            sample_weight=sample_weight,
        )
        n = means.shape[1] if n_groups is None else n_groups
        rows = np.full((2, n, means.shape[2]), np.nan)
        rows[:, : means.shape[1]] = means
        return cls(
            torch.as_tensor(rows.reshape(2 * n, -1), dtype=x.dtype, device=x.device),
            np.bincount(
                (labels * n + groups)[slice(None) if sample_weight is None else sample_weight > 0], minlength=2 * n
            ),
        )


@dataclass(frozen=True, eq=False)
class Seen:
    """Rows of a pool, each explained from the baseline of a person's cell; a row used twice from a cell is stored once.

    Attributes
    ----------
    attribution
        Attributions of the distinct (row, cell).
    position
        Place in `attribution` of each requested row.
    """

    attribution: Explanation
    position: Tensor

    def __getitem__(self, part: slice) -> Explanation:
        """A part of the requested rows, in float64."""
        return self.attribution.rows(self.position[part])

    @property
    def logit(self) -> Tensor:
        """Logit of each requested row, of shape (..., n)."""
        return self.attribution.logit[..., self.position]

    def split(self, sizes: Sequence[int]) -> list[Seen]:
        """The requested rows, in consecutive parts."""
        return [replace(self, position=part) for part in self.position.split(list(sizes))]


@dataclass(frozen=True, eq=False)
class Explainer:
    """Attributions of people from the mean of a (label, group) cell of the pool.

    Attributes
    ----------
    model
        The explained model, or a `DifferentiableModel` of a stack.
    baselines
        Baselines of the pool.
    n_steps, method
        How attributions are integrated.
    join
        Sums inputs into the table's columns, in float64; None if they are the same.
    known
        Attributions of every row of the pool from the cells of its label, sorted by row, then by group; None if they
        are computed on demand.
    """

    model: AuditedModel
    baselines: CellBaselines
    n_steps: int
    method: Method
    join: Tensor | None = None
    known: Explanation | None = None

    @classmethod
    def of(
        cls,
        model: AuditedModel,
        x: Tensor,
        labels: Ints,
        groups: Ints,
        n_steps: int = 8,
        method: Method = "segments",
        *,
        n_groups: int | None = None,
        sample_weight: Floats | None = None,
    ) -> Explainer:
        """Take the baselines from a pool of encoded people and the columns from the model's encoder.

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
            x,
            labels,
            groups,
            n_groups=n_groups,
            skip_missing=model.accepts_missing,
            categorical=model.categorical_inputs,
            sample_weight=sample_weight,
        )
        join = model.join_matrix()
        return cls(model, baselines, n_steps, method, None if join is None else join.double())

    def has_baseline(self, cells: Ints) -> Bools:
        """Whether the pool has anyone in each cell."""
        return self.baselines.sizes[cells] > 0

    def spread_people(self, cells: Ints, n: int) -> Ints:
        """Rows of at most n people with a baseline, spread over the given cells."""
        rows = np.linspace(0, len(cells) - 1, min(len(cells), n)).astype(np.int64)
        return rows[self.has_baseline(cells[rows])]

    def explain(self, x: Tensor, cells: Ints | Tensor) -> Explanation:
        """Attributions of the rows of `x`; from the origin if a cell is empty, which the caller must leave out."""
        rows = self.baselines.rows
        is_empty = torch.as_tensor(self.baselines.sizes == 0, device=rows.device).unsqueeze(-1)
        start = rows.masked_fill(is_empty, 0.0)[torch.as_tensor(cells, device=rows.device)]
        return self.model.attribute(x.to(rows.device), start, self.n_steps, self.method)

    def knowing(self, pool: Tensor, labels: Ints) -> Explainer:
        """The same, with every row of the pool explained beforehand: worthwhile if most are used repeatedly."""
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
        distinct, position = _distinct(rows * n_cells + cells, len(pool) * n_cells)
        found = self.explain(pool[torch.as_tensor(distinct // n_cells, device=pool.device)], distinct % n_cells)
        return Seen(found, torch.as_tensor(position, device=device))


@dataclass(frozen=True, eq=False)
class SeenTriples:
    """Everyone in some triples, explained from the baselines of the triples.

    Attributes
    ----------
    person, match, placebo
        The three of each triple.
    cells
        The half cell of each triple.
    """

    person: Seen
    match: Seen
    placebo: Seen
    cells: Ints


@dataclass(frozen=True, eq=False)
class HalvedExplainer:
    """Attributions of triples from the half of the person's cell that the placebo is not in.

    A placebo is in the person's cell, a match is not. From the mean of the whole cell, placebos would be closer to
    the baseline than matches, by the inverse of the cell's size. Leaving each placebo out of its baseline is not enough
    if a model is discontinuous: if a cell's mean is next to a split of a tree, every placebo would push its baseline to
    the other side. From the mean of the other half, neither match nor placebo affects the baseline.

    Attributes
    ----------
    explainer
        Explainer of half cells: group 2 g + h is half h of group g.
    half
        The half of its cell that each row of the pool is in.
    """

    explainer: Explainer
    half: Ints

    @classmethod
    def of(
        cls,
        explainer: Explainer,
        x: Tensor,
        labels: Ints,
        groups: Ints,
        half: Ints,
        sample_weight: Floats | None = None,
    ) -> HalvedExplainer:
        """Split the cells of an explainer, whose pool is given, into halves."""
        halved = Explainer.of(
            explainer.model,
            x,
            labels,
            2 * groups + half,
            explainer.n_steps,
            explainer.method,
            n_groups=len(explainer.baselines.rows),
            sample_weight=sample_weight,
        )
        return cls(halved, half)

    def cells(self, cells: Ints, placebo: Ints) -> Ints:
        """The half cell for people of whole cells, each with a placebo, a row of the pool."""
        return 2 * cells + 1 - self.half[placebo]

    def has_baseline(self, cells: Ints, placebo: Ints) -> Bools:
        """Whether there is anyone in the half cell."""
        return self.explainer.has_baseline(self.cells(cells, placebo))

    def see(self, x: Tensor, cells: Ints, pool: Tensor, person: Ints, match: Ints, placebo: Ints) -> SeenTriples:
        """Everyone in triples: people are rows of `x`, matches and placebos rows of the pool.

        A person who is in several triples, as person, match or placebo, is explained once from each half cell.
        """
        halves = self.cells(cells[person], placebo)
        of_pool = (match, placebo, person) if x is pool else (match, placebo)
        seen = self.explainer.see(pool, np.concatenate(of_pool), np.tile(halves, len(of_pool)))
        matches, placebos, *people = seen.split([len(halves)] * len(of_pool))
        if not people:
            people = [replace(self.explainer, known=None).see(x, person, halves)]
        return SeenTriples(people[0], matches, placebos, halves)


def _distinct(codes: Ints, n_codes: int) -> tuple[Ints, Ints]:
    """The codes that occur, ascending, and the place of each code among them: `np.unique`, without sorting.

    Examples
    --------
    >>> [part.tolist() for part in _distinct(np.array([3, 1, 3]), 5)]
    [[1, 3], [1, 0, 1]]
    """
    occurs = np.zeros(n_codes, dtype=np.bool_)
    occurs[codes] = True
    distinct = np.flatnonzero(occurs)
    place = np.empty(n_codes, dtype=np.int64)
    place[distinct] = np.arange(len(distinct))
    return distinct, place[codes]
