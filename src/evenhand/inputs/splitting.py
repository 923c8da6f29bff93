"""Split people into parts that are balanced over the (label, group) cells.

scikit-learn's `StratifiedKFold` and `train_test_split` would assign people differently, and all documented numbers
depend on these parts.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.arrays import Ints
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.read_options import check_seed


def units_of(clusters: NDArray[np.uint64]) -> Ints:
    """A code for each row, the same for rows of the same cluster; a row of cluster 0 is alone.

    Examples
    --------
    >>> units_of(np.array([7, 5, 7, 0, 0], dtype=np.uint64)).tolist()
    [1, 0, 1, 2, 3]
    """
    is_known = clusters != 0
    code = np.empty(len(clusters), dtype=np.int64)
    known, code[is_known] = np.unique(clusters[is_known], return_inverse=True)
    code[~is_known] = len(known) + np.arange(int((~is_known).sum()))
    return code


def split_people(y: Ints, group: Ints, share: float, random_state: int, units: Ints | None = None) -> tuple[Ints, Ints]:
    """Rows of two parts of the people, drawn at random within each (label, group) cell.

    Parameters
    ----------
    y, group
        Labels 0 or 1 and group codes, of shape (n,).
    share
        Share of each cell that goes to the first part, in (0, 1).
    random_state
        Seed.
    units
        A code for each row; rows with the same one stay together, in the part that falls to the first of them.

    Examples
    --------
    >>> first, second = split_people(np.array([0, 0, 1, 1]), np.array([0, 0, 0, 0]), 0.5, random_state=0)
    >>> len(first), len(second)
    (2, 2)
    """
    if not 0 < share < 1:
        raise InvalidInputError(f"`share` must be between 0 and 1, got {share!r}.")
    if units is not None:
        first, of = _firsts(units)
        is_drawn = np.zeros(len(first), dtype=np.bool_)
        is_drawn[split_people(y[first], group[first], share, random_state)[0]] = True
        return np.flatnonzero(is_drawn[of]), np.flatnonzero(~is_drawn[of])
    cell, rank = _rank_within_cell(y, group, random_state)
    is_first = rank < np.round(share * np.bincount(cell))[cell]
    return np.flatnonzero(is_first), np.flatnonzero(~is_first)


def sample_people(y: Ints, group: Ints, n: int, random_state: int) -> Ints:
    """Rows of at most n people, in order, with the shares of the (label, group) cells and someone from each.

    Parameters
    ----------
    y, group
        Labels 0 or 1 and group codes, of shape (n,).
    n
        Largest number of people to draw.
    random_state
        Seed.

    Examples
    --------
    >>> sample_people(np.array([0, 0, 0, 0, 1, 1]), np.array([0, 0, 0, 0, 1, 1]), 3, random_state=0)
    array([2, 3, 5])
    """
    cell, rank = _rank_within_cell(y, group, random_state)
    place = np.where(rank == 0, 0.0, (rank + 0.5) / np.bincount(cell)[cell])
    return np.sort(np.argsort(place, kind="stable")[:n])


def stratified_folds(
    y: Ints, group: Ints, n_folds: int, random_state: int, units: Ints | None = None
) -> list[tuple[Ints, Ints]]:
    """Training and test rows of each fold; every cell is spread evenly over the folds.

    Rows with the same code in `units` are tested in the same fold.

    Raises
    ------
    InvalidInputError
        If there are fewer than two folds, or more folds than people in some cell.

    Examples
    --------
    >>> y, group = np.array([0, 0, 1, 1, 0, 0, 1, 1]), np.array([0, 0, 0, 0, 1, 1, 1, 1])
    >>> [test.size for train, test in stratified_folds(y, group, 2, random_state=0)]
    [4, 4]
    """
    if units is not None:
        first, of = _firsts(units)
        fold_of = np.empty(len(first), dtype=np.int64)
        for k, (_, test) in enumerate(stratified_folds(y[first], group[first], n_folds, random_state)):
            fold_of[test] = k
        return [(np.flatnonzero(fold_of[of] != k), np.flatnonzero(fold_of[of] == k)) for k in range(n_folds)]
    cell, rank = _rank_within_cell(y, group, random_state)
    counts = np.bincount(cell)
    smallest = int(counts[counts > 0].min())
    if not 2 <= n_folds <= smallest:
        raise InvalidInputError(
            f"`n_folds` must be at least 2 and at most {smallest}, the number of people in the smallest (label, group) "
            f"cell; got {n_folds}."
        )
    # Each cell starts with a different fold, so that remainders do not pile up in one.
    starts = np.r_[0, np.cumsum(counts)][cell]
    fold = (starts + rank) % n_folds
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(n_folds)]


def _firsts(units: Ints) -> tuple[Ints, Ints]:
    """The first row of each unit, in their order, and each row's unit."""
    code, _ = pd.factorize(units)
    return np.unique(code, return_index=True)[1], code


def _rank_within_cell(y: Ints, group: Ints, random_state: int) -> tuple[Ints, Ints]:
    """The cell of each person, and their place in a random order of it."""
    cell = y * (int(group.max()) + 1) + group
    order = np.random.default_rng(check_seed(random_state)).permutation(len(y))
    rank = np.empty(len(y), dtype=np.int64)
    rank[order] = pd.Series(cell[order]).groupby(cell[order]).cumcount()
    return cell, rank
