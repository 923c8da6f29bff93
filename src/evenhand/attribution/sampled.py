"""Shapley values of a score that can only be evaluated.

The inputs of a person replace those of the baseline one by one, in some order; an input's contribution is the change of
the score at its turn, averaged over orders. Orders are drawn once, from a seed, and shared by everyone: two people are
compared under the same orders, the same question gets the same answer, and contributions sum to the score minus the
baseline's for any number of orders.

Each order is paired with its reverse. An input comes before another in exactly one of the two, so a score in which at
most two inputs interact at a time is explained exactly by a single such pair. Orders are spread over the sphere of
permutations: orthogonal directions, sorted (Mitchell, Cooper, Frank & Holmes, 2022). If all coalitions cost no more
than the walks, all are used, and nothing is sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from evenhand.arrays import Floats, Ints
from evenhand.attribution.shapley import Contributions
from evenhand.exceptions import InvalidInputError

# Largest number of input values passed to the score at once: bounds memory.
_CALL_VALUES = 4_000_000
# Largest number of people evaluated at once, so that long work can report its progress.
_CALL_ROWS = 4096


@dataclass(frozen=True, eq=False)
class Coalitions:
    """The evaluations for every person, each once, and how the results are weighted.

    Attributes
    ----------
    members
        Which inputs each coalition takes from the person, of shape (n_coalitions, d).
    before, joined
        For each turn, the coalition before and after an input joins, of shape (n_turns,).
    turn_input
        The input of each turn, sorted.
    turn_weight
        Weight of each turn in its input's contribution.
    pair_turns
        The two turns of each input in each pair of orders, of shape (n_pairs, d, 2); None if nothing is sampled.
    """

    members: NDArray[np.bool_]
    before: Ints
    joined: Ints
    turn_input: Ints
    turn_weight: Floats
    pair_turns: Ints | None

    @property
    def is_exact(self) -> bool:
        """Whether these are all coalitions."""
        return self.pair_turns is None


def antithetic_permutations(n_inputs: int, n_permutations: int, random_state: int) -> Ints:
    """Orders of the inputs, of shape (n_permutations, n_inputs); each is followed by its reverse.

    Examples
    --------
    >>> orders = antithetic_permutations(5, 4, random_state=0)
    >>> bool((orders[1] == orders[0][::-1]).all())
    True
    """
    if n_inputs < 2:
        return np.zeros((n_permutations, n_inputs), dtype=np.int64)
    rng = np.random.default_rng(random_state)
    # An order is the sorting of a direction in the hyperplane of zero sum; this is a basis of it.
    contrasts = np.eye(n_inputs)[:, 1:] - np.eye(n_inputs)[:, :-1]
    basis = np.linalg.qr(contrasts)[0].T
    n_blocks = -(-(n_permutations // 2) // (n_inputs - 1))
    directions = [np.linalg.qr(rng.normal(size=(n_inputs - 1, n_inputs - 1)))[0] @ basis for _ in range(n_blocks)]
    orders = np.argsort(np.concatenate(directions)[: n_permutations // 2], axis=1)
    return np.stack([orders, orders[:, ::-1]], axis=1).reshape(-1, n_inputs)


@lru_cache(maxsize=32)
def coalitions(n_inputs: int, n_permutations: int, random_state: int) -> Coalitions:
    """Coalitions to evaluate: those of the orders, or all if there are no more."""
    if n_inputs == 1 or (n_inputs < 60 and 2**n_inputs <= n_permutations * (n_inputs - 1)):
        return _all_coalitions(n_inputs)
    return _visited_coalitions(antithetic_permutations(n_inputs, n_permutations, random_state))


def _all_coalitions(n_inputs: int) -> Coalitions:
    members = (np.arange(2**n_inputs)[:, None] >> np.arange(n_inputs)) & 1 == 1
    turn_input, before = np.nonzero(~members.T)
    size = members.sum(axis=1)[before]
    weight = np.array([1 / (n_inputs * comb(n_inputs - 1, s)) for s in range(n_inputs)])
    return Coalitions(members, before, before + (1 << turn_input), turn_input, weight[size], None)


def _visited_coalitions(orders: Ints) -> Coalitions:
    """Coalitions on the walks; one that is on several walks, like the first and the last, is evaluated once."""
    n_orders, d = orders.shape
    place = np.argsort(orders, axis=1)
    on_walk = place[:, None, :] < np.arange(d + 1)[None, :, None]  # order, step, input
    members, index = np.unique(on_walk.reshape(-1, d), axis=0, return_inverse=True)
    index = index.reshape(n_orders, d + 1)
    turn = np.stack([orders, index[:, :-1], index[:, 1:]], axis=-1).reshape(-1, 3)
    turns, which, counts = np.unique(turn, axis=0, return_inverse=True, return_counts=True)
    turn_of = np.take_along_axis(which.reshape(n_orders, d), place, axis=1)  # of each input, in each order
    pairs = turn_of.reshape(-1, 2, d).swapaxes(1, 2)
    return Coalitions(members, turns[:, 1], turns[:, 2], turns[:, 0], counts / n_orders, pairs)


@dataclass(frozen=True, eq=False)
class Mixtures:
    """The same m mixtures for each of n people: each input comes from one of three rows.

    Attributes
    ----------
    inputs, context, baseline
        Rows of the people, of shape (n, d).
    is_input, is_context
        Which inputs each mixture takes from there, of shape (m, d); the others are the baseline's.
    """

    inputs: Floats
    context: Floats
    baseline: Floats
    is_input: NDArray[np.bool_]
    is_context: NDArray[np.bool_]

    @property
    def points(self) -> Floats:
        """The mixed rows, of shape (n, m, d).

        Examples
        --------
        >>> me, base = np.array([[1.0, 2.0]]), np.array([[0.0, 0.0]])
        >>> none = np.zeros((2, 2), bool)
        >>> Mixtures(me, me, base, none, np.array([[True, False], [True, True]])).points.tolist()
        [[[1.0, 0.0], [1.0, 2.0]]]
        """
        mixed = np.where(self.is_context, self.context[:, None, :], self.baseline[:, None, :])
        return np.where(self.is_input, self.inputs[:, None, :], mixed) if self.is_input.any() else mixed

    def blocks(self, values_per_person: int) -> Iterator[tuple[slice, Mixtures]]:
        """Parts of the people, each with a limited number of values."""
        for rows in _slices(len(self.context), values_per_person):
            yield (
                rows,
                Mixtures(self.inputs[rows], self.context[rows], self.baseline[rows], self.is_input, self.is_context),
            )

    def scores(self, score: Callable[[Floats], Floats]) -> Floats:
        """The score of each mixture for each person, of shape (n, m)."""
        if isinstance(score, ScoresMixtures):
            return score.mixtures(self)
        found = np.empty((len(self.context), len(self.is_context)))
        for rows, part in self.blocks(self.is_context.size):
            found[rows] = score(part.points.reshape(-1, self.context.shape[1])).reshape(found[rows].shape)
        return found


@runtime_checkable
class ScoresMixtures(Protocol):
    """A score that is faster for all mixtures of a person at once than one by one."""

    def mixtures(self, asked: Mixtures) -> Floats:
        """The score of each mixture for each person, of shape (n, m)."""
        ...


@dataclass(frozen=True, eq=False)
class SampledShapley:
    """A score and its Shapley values: a `Game`.

    Attributes
    ----------
    score
        Maps inputs, of shape (n, d) in float64, to n numbers. It may also score mixtures.
    n_permutations
        Number of orders, even and at least 4.
    random_state
        Seed of the orders.
    watch
        Called with the number of evaluations after each batch; None for no reports.

    Examples
    --------
    >>> game = SampledShapley(lambda x: x[:, 0] * x[:, 1] + 3 * x[:, 2], n_permutations=4)
    >>> x, baseline = np.array([[2.0, 4.0, 1.0]]), np.zeros((1, 3))
    >>> game.contributions(x, x, baseline).values.tolist()
    [[4.0, 4.0, 3.0]]
    """

    score: Callable[[Floats], Floats]
    n_permutations: int = 32
    random_state: int = 0
    watch: Callable[[int], None] | None = None

    def __post_init__(self) -> None:
        n = self.n_permutations
        if not isinstance(n, (int, np.integer)) or n < 4 or n % 2:
            raise InvalidInputError(
                f"`n_permutations` must be an even number of at least 4, got {n!r}: each order is paired with its "
                "reverse, and two such pairs are needed for a standard error."
            )

    @property
    def method(self) -> str:
        """How contributions are computed."""
        return f"Shapley values from {self.n_permutations} antithetic permutations (exact where that is all)"

    def is_exact(self, n_inputs: int) -> bool:
        """Whether all coalitions of this many inputs are used."""
        return coalitions(n_inputs, self.n_permutations, self.random_state).is_exact

    def n_questions(self, n_inputs: int, *, is_own: bool) -> int:
        """How often the score is evaluated for a person; in their own context, or in a different one."""
        asked = coalitions(n_inputs, self.n_permutations, self.random_state)
        return len(asked.members) + (0 if is_own else len(asked.before))

    def margin(self, x: Floats) -> Floats:
        """The score, of shape (n,)."""
        values = np.asarray(x, dtype=np.float64)
        parts = [self.score(values[rows]) for rows in _slices(len(values), values.shape[1])]
        return np.concatenate(parts) if parts else np.zeros(0)

    def contributions(self, inputs: Floats, context: Floats, baseline: Floats) -> Contributions:
        """phi(inputs | context; baseline); standard errors for people in their own context, if sampled.

        Errors come from the spread between pairs of orders, which overstates the error of spread-out orders.
        """
        d = context.shape[1]
        asked = coalitions(d, self.n_permutations, self.random_state)
        is_own = inputs is context
        z, w, b = (np.asarray(rows, dtype=np.float64) for rows in (inputs, context, baseline))
        values = np.zeros(w.shape)
        errors = np.zeros(w.shape) if is_own and not asked.is_exact else None
        n_asked = self.n_questions(d, is_own=is_own)
        for rows in _slices(len(w), n_asked * (1 if isinstance(self.score, ScoresMixtures) else d)):
            gains = self._gains(asked, None if is_own else z[rows], w[rows], b[rows])
            starts = np.searchsorted(asked.turn_input, np.arange(d))
            values[rows] = np.add.reduceat(gains * asked.turn_weight, starts, axis=1)
            if errors is not None and asked.pair_turns is not None:
                by_pair = gains[:, asked.pair_turns].mean(axis=-1)
                with np.errstate(over="ignore"):  # for scores whose squares overflow
                    errors[rows] = by_pair.std(axis=1, ddof=1) / np.sqrt(by_pair.shape[1])
            if self.watch is not None:
                self.watch(n_asked * len(gains))
        return Contributions(values, errors)

    def _gains(self, asked: Coalitions, z: Floats | None, w: Floats, b: Floats) -> Floats:
        """The change of the score at each turn, of shape (n, n_turns)."""
        without = Mixtures(w, w, b, np.zeros_like(asked.members), asked.members).scores(self.score)
        if z is None:
            return without[:, asked.joined] - without[:, asked.before]
        is_turn = asked.turn_input[:, None] == np.arange(w.shape[1])
        swapped = Mixtures(z, w, b, is_turn, asked.members[asked.before])
        return swapped.scores(self.score) - without[:, asked.before]


def _slices(n: int, values_per_row: int) -> Iterator[slice]:
    step = min(_CALL_ROWS, max(1, _CALL_VALUES // max(1, values_per_row)))
    yield from (slice(start, start + step) for start in range(0, n, step))
