"""Explain people from the baselines of (label, group) cells: each row from each cell once.

An explainer uses one model, or a stack of networks of one shape: explanations then have a leading dimension of models.

How many segments the paths of integrated gradients need is measured on people of the reference beforehand. More
segments are closer to the integral, and halving their length at least halves the error. So with N segments, many more
than needed, the error of n is at most |IG(n) - IG(N)| + |IG(N) - IG(N / 2)|, by the triangle inequality; the last term
bounds the error of N segments. So is how many orders of the inputs sampled Shapley values need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from evenhand.arrays import Array, Bools, Floats, Ints, as_numpy, double, like, namespace
from evenhand.attribution.baselines import label_group_baselines
from evenhand.attribution.explanation import Explanation, Method
from evenhand.attribution.sampled import SampledShapley
from evenhand.attribution.shapley import ShapleyAttribution, SharedGame
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

    rows: Array
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
    position: Array

    def __getitem__(self, part: slice) -> Explanation:
        """A part of the requested rows, in float64."""
        return self.attribution.rows(self.position[part])

    @property
    def logit(self) -> Array:
        """Logit of each requested row, of shape (..., n)."""
        return self.attribution.logit[..., self.position]

    def split(self, sizes: Sequence[int]) -> list[Seen]:
        """The requested rows, in consecutive parts."""
        ends = np.cumsum(sizes).tolist()
        return [replace(self, position=self.position[end - n : end]) for n, end in zip(sizes, ends, strict=True)]


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
    join: Array | None = None
    known: Explanation | None = None

    @classmethod
    def of(
        cls,
        model: AuditedModel,
        x: Array,
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
        >>> from evenhand.models.protocol import LinearModel
        >>> model = LinearModel(np.array([2.0]), 0.5, "scorecard")
        >>> x, y, group = np.array([[1.0], [3.0]]), np.array([1, 1]), np.array([0, 0])
        >>> explainer = Explainer.of(model, x, y, group)
        >>> explainer.explain(x, np.array([1, 1])).offset.flatten().tolist()
        [-1.0, 1.0]
        """
        means = label_group_baselines(
            as_numpy(x),
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
            like(cells.reshape(2 * n, -1), x, dtype=x.dtype),
            np.bincount((labels * n + groups)[counted], minlength=2 * n),
        )
        join = model.join_matrix()
        return cls(model, baselines, n_steps, method, None if join is None else double(like(join, x)))

    def has_baseline(self, cells: Ints) -> Bools:
        """Whether the pool has anyone in each cell."""
        return self.baselines.sizes[cells] > 0

    def spread_people(self, cells: Ints, n: int) -> Ints:
        """Rows of at most n people with a baseline, spread over the given cells."""
        rows = np.linspace(0, len(cells) - 1, min(len(cells), n)).astype(np.int64)
        return rows[self.has_baseline(cells[rows])]

    def explain(self, x: Array, cells: Array) -> Explanation:
        """Attributions of the rows of `x`; from the origin if a cell is empty, which the caller must leave out."""
        rows = self.baselines.rows
        is_empty = like(self.baselines.sizes == 0, rows)[:, None]
        start = namespace(rows).where(is_empty, 0.0, rows)[like(cells, rows)]
        return self.model.attribute(like(x, rows), start, self.n_steps, self.method)

    def exchanged(
        self, me: Explanation, mine: Array, others: Sequence[Array], cells: Array, is_moved: Array
    ) -> Iterator[tuple[Explanation, Explanation, Array]]:
        """People with inputs of others, the others with theirs, and what the people's inputs contribute in the latter.

        Parameters
        ----------
        me, mine
            Explanations of the people from their cells, and their inputs, of shape (n, d).
        others
            Inputs of the others, several for each person, of shape (n, d) each; explained from the person's cell, too.
        cells
            The cells.
        is_moved
            Which inputs are exchanged, of shape (d,).

        Yields
        ------
        Explanations of both, in float64, and the contributions, for each of `others`.
        """
        xp, k, n = namespace(mine), len(others), len(mine)
        if isinstance(self.model, ShapleyModel) and isinstance(game := self.model.game, SharedGame):
            theirs, people = xp.concat(others), np.tile(np.arange(n), k)
            with_theirs = self.explain(xp.where(is_moved, theirs, mine[people]), cells[people])
            assert isinstance(with_theirs, ShapleyAttribution)
            as_me = xp.where(is_moved, mine[people], theirs)
            values, moved = game.contributions_beside(mine[people], as_me, with_theirs.baseline)
            logit = with_theirs.baseline_logit + values.sum(-1)
            beside = replace(with_theirs, x=as_me, shapley_values=values, logit=logit)
            for rows in np.arange(k * n).reshape(k, n):
                yield with_theirs.rows(rows), beside.rows(rows), moved[rows]
            return
        for theirs in others:
            with_theirs, as_me = (
                self.explain(xp.where(is_moved, *rows), cells).rows(slice(None))
                for rows in ((theirs, mine), (mine, theirs))
            )
            yield with_theirs, as_me, as_me.with_inputs_of(me)

    def knowing(self, pool: Array, labels: Ints) -> Explainer:
        """The same, with every row of the pool explained beforehand: worthwhile if most are used repeatedly."""
        n_groups = len(self.baselines.rows) // 2
        rows = np.repeat(np.arange(len(pool)), n_groups)
        cells = (labels[:, None] * n_groups + np.arange(n_groups)).ravel()
        return replace(self, known=self.explain(pool[like(rows, pool)], cells))

    def see(self, pool: Array, rows: Ints, cells: Ints) -> Seen:
        """Rows of the pool, each from the baseline of the given cell, which has the row's label."""
        starts = self.baselines.rows
        n_cells = len(starts)
        if self.known is not None:
            n_groups = n_cells // 2
            return Seen(self.known, like(rows * n_groups + cells % n_groups, starts))
        distinct, position = _distinct(rows * n_cells + cells, len(pool) * n_cells)
        found = self.explain(pool[like(distinct // n_cells, pool)], distinct % n_cells)
        return Seen(found, like(position, starts))


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
        x: Array,
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

    def see(self, x: Array, cells: Ints, pool: Array, person: Ints, match: Ints, placebo: Ints) -> SeenTriples:
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


def needed_segments(explainer: Explainer, x: Array, cells: Ints, asked: int | None = None) -> Segments:
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
    people, starts = x[like(rows, x)], cells[rows]
    coarsest = replace(explainer, n_steps=_TRIED_SEGMENTS[0]).explain(people, starts)
    if coarsest.method != "segments":  # a module that is not a chain of layers
        return Segments(most)

    def found(n: int) -> Floats:
        return _in_double(replace(explainer, n_steps=n).explain(people, starts))

    n_fine = max(_FINE, 4 * most)
    fine = found(n_fine)
    size, rest = np.linalg.norm(fine, axis=-1), np.linalg.norm(fine - found(n_fine // 2), axis=-1)

    rounding = float(np.finfo(explainer.model.dtype).eps)

    def error(n: int) -> float:
        values = _in_double(coarsest) if n == _TRIED_SEGMENTS[0] else found(n)
        errors = np.linalg.norm(values - fine, axis=-1) + rest
        shares = errors[size > 0] / size[size > 0]
        if not len(shares):
            return rounding
        return float(shares.mean() + _STANDARD_ERRORS * shares.std() / np.sqrt(len(shares))) + rounding

    for n in () if asked else _TRIED_SEGMENTS:
        if (bound := error(n)) <= ERROR:
            return Segments(n, bound)
    return Segments(most, error(most))


def _in_double(explained: Explanation) -> Floats:
    return as_numpy(double(explained.values))


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


def needed_permutations(explainer: Explainer, x: Array, cells: Ints, target: float) -> int:
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
    found = with_permutations(explainer, _TRIED).explain(x[rows], cells[rows])
    assert found.standard_error is not None
    size = float((found.values**2).sum())
    error = float((found.standard_error**2).sum() / size) ** 0.5 if size > 0 else 0.0
    needed = _TRIED * (error / target) ** 2  # the error decreases with the square root of the orders
    return int(np.clip(4 * np.ceil(needed / 4), _TRIED, _MOST))
