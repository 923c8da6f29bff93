"""Explain people from the baselines of (label, group) cells: each row from each cell once.

An explainer uses one model, or a stack of networks of one shape: explanations then have a leading dimension of models.

How many segments the paths of integrated gradients need is measured on people of the reference beforehand. More
segments are closer to the integral, and halving their length at least halves the error. So with N segments, many more
than needed, the error of n is at most |IG(n) - IG(N)| + |IG(N) - IG(N / 2)|, by the triangle inequality; the last term
bounds the error of N segments. So is how many orders of the inputs sampled Shapley values need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from evenhand.arrays import Bools, Floats, Ints
from evenhand.attribution import Explanation, label_group_baselines
from evenhand.attribution.gradients import Method
from evenhand.attribution.sampled import SampledShapley
from evenhand.models.protocol import AuditedModel, ShapleyModel


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

        The last of `n_groups` may be empty.

        Examples
        --------
        >>> from evenhand.models.gradient import DifferentiableModel
        >>> model = DifferentiableModel(torch.nn.Linear(1, 1), "torch module")
        >>> x, y, group = torch.tensor([[1.0], [3.0]]), np.array([1, 1]), np.array([0, 0])
        >>> explainer = Explainer.of(model, x, y, group)
        >>> explainer.explain(x, np.array([1, 1])).offset.flatten().tolist()
        [-1.0, 1.0]
        """
        means = label_group_baselines(
            x.cpu().numpy(),
            labels,
            groups,
            skip_missing=model.accepts_missing,
            categorical=model.categorical_inputs,
            sample_weight=sample_weight,
        )
        n = means.shape[1] if n_groups is None else n_groups
        cells = np.full((2, n, means.shape[2]), np.nan)
        cells[:, : means.shape[1]] = means
        counted = slice(None) if sample_weight is None else sample_weight > 0
        baselines = CellBaselines(
            torch.as_tensor(cells.reshape(2 * n, -1), dtype=x.dtype, device=x.device),
            np.bincount((labels * n + groups)[counted], minlength=2 * n),
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


MOST_SEGMENTS = 8
"""Number of segments for networks that do not reach the error with fewer."""

ERROR = 0.001
"""Largest error of attributions, as a share of their size."""

_TRIED_SEGMENTS = (2, 3, 4, 5, 6)
_FINE = 64
_TRIED_PEOPLE = 1024
_STANDARD_ERRORS = 3.0  # by which the mean over everyone may exceed the mean over those tested


@dataclass(frozen=True)
class Segments:
    """Number of segments of every path, and a bound on the mean error of attributions as a share of their size.

    Attributes
    ----------
    n
        Number of segments.
    error
        None if paths are not integrated by segments.
    """

    n: int
    error: float | None = None


def needed_segments(explainer: Explainer, x: Tensor, cells: Ints, asked: int | None = None) -> Segments:
    """The fewest segments, at most 8, whose error is below 0.1%; or the requested number, and its error.

    Parameters
    ----------
    explainer
        Explainer of the model.
    x, cells
        Encoded people of the reference, and the cells they are explained from.
    asked
        The requested number; None to choose.
    """
    rows = explainer.spread_people(cells, _TRIED_PEOPLE)
    most = asked or MOST_SEGMENTS
    if explainer.model.attribution != "integrated_gradients" or explainer.method != "segments" or not len(rows):
        return Segments(most)
    people, starts = x[rows], cells[rows]
    coarsest = replace(explainer, n_steps=_TRIED_SEGMENTS[0]).explain(people, starts)
    if coarsest.method != "segments":  # a module that is not a chain of layers
        return Segments(most)

    def found(n: int) -> Tensor:
        return replace(explainer, n_steps=n).explain(people, starts).values.double()

    n_fine = max(_FINE, 4 * most)
    fine = found(n_fine)
    size, rest = fine.norm(dim=-1), (fine - found(n_fine // 2)).norm(dim=-1)

    def error(n: int) -> float:
        values = coarsest.values.double() if n == _TRIED_SEGMENTS[0] else found(n)
        shares = (((values - fine).norm(dim=-1) + rest) / size)[size > 0].cpu().numpy()
        rounding = float(torch.finfo(x.dtype).eps)
        if not len(shares):
            return rounding
        return float(shares.mean() + _STANDARD_ERRORS * shares.std() / np.sqrt(len(shares))) + rounding

    for n in () if asked else _TRIED_SEGMENTS:
        if (bound := error(n)) <= ERROR:
            return Segments(n, bound)
    return Segments(most, error(most))


# Orders of the trial; orders that cost as much as all coalitions, which are then used; and the largest number.
_TRIED, _WHERE_ALL, _MOST = 8, 32, 64
_PLANNED_PEOPLE = 64


def is_sampled(explainer: Explainer) -> bool:
    """Whether an explainer's model is explained by sampled Shapley values."""
    return isinstance(explainer.model, ShapleyModel) and isinstance(explainer.model.game, SampledShapley)


def with_permutations(explainer: Explainer, n_permutations: int) -> Explainer:
    """An explainer of a sampled model that uses this many orders."""
    return _with_game(explainer, replace(_game(explainer), n_permutations=n_permutations))


def watched(explainer: Explainer, watch: Callable[[int], None]) -> Explainer:
    """An explainer of a sampled model that reports to `watch` how many evaluations it has made."""
    return _with_game(explainer, replace(_game(explainer), watch=watch))


def questions(explainer: Explainer, *, is_own: bool) -> int:
    """How often the score is evaluated for a person; in their own context, or in a different one."""
    return _game(explainer).n_questions(explainer.baselines.rows.shape[1], is_own=is_own)


def _game(explainer: Explainer) -> SampledShapley:
    assert isinstance(explainer.model, ShapleyModel)
    assert isinstance(explainer.model.game, SampledShapley)
    return explainer.model.game


def _with_game(explainer: Explainer, game: SampledShapley) -> Explainer:
    assert isinstance(explainer.model, ShapleyModel)
    return replace(explainer, model=replace(explainer.model, game=game))


def needed_permutations(explainer: Explainer, x: Tensor, cells: Ints, target: float) -> int:
    """Number of orders for everyone, so that two people are compared under the same ones; between 8 and 64.

    Parameters
    ----------
    explainer
        Explainer of a sampled model.
    x, cells
        Encoded people, and the cells they are explained from.
    target
        Largest standard error of attributions, as a share of their size.
    """
    rows = explainer.spread_people(cells, _PLANNED_PEOPLE)
    if not len(rows) or _game(with_permutations(explainer, _WHERE_ALL)).is_exact(x.shape[1]):
        return _WHERE_ALL
    found = with_permutations(explainer, _TRIED).explain(x[torch.as_tensor(rows)], cells[rows])
    assert found.standard_error is not None
    size = float(found.values.square().sum())
    error = float(found.standard_error.square().sum() / size) ** 0.5 if size > 0 else 0.0
    needed = _TRIED * (error / target) ** 2  # the error decreases with the square root of the orders
    return int(np.clip(4 * np.ceil(needed / 4), _TRIED, _MOST))
