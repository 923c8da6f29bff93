"""Folds as plain arrays: encoded people, and their matches and baselines in the training fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.arrays import Ints, Keys
from evenhand.attribution.baselines import label_group_baselines
from evenhand.exceptions import InvalidInputError
from evenhand.matching import MatchReference
from evenhand.training.data import TrainingData

Singles = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Fold:
    """People of one fold.

    Attributes
    ----------
    train, test
        Their rows in the dataset.
    x_train, x_test
        Encoded inputs, of shape (n, d).
    y_train, y_test, group_train, group_test
        Labels 0 or 1 and group codes.
    match_train, match_test
        Rows of the training fold matched to each person, one for each other group, -1 for none.
    baselines
        Means of the training fold's (label, group) cells, of shape (2, G, d).
    join
        Sums encoded columns into the table's, of shape (d, n_columns).
    """

    train: Ints
    test: Ints
    x_train: Singles
    x_test: Singles
    y_train: Ints
    y_test: Ints
    group_train: Ints
    group_test: Ints
    match_train: Ints
    match_test: Ints
    baselines: NDArray[np.float64]
    join: NDArray[np.float64]

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return int(self.baselines.shape[1])

    @property
    def cells_test(self) -> Ints:
        """The (label, group) cell of each test person."""
        return self.y_test * self.n_groups + self.group_test

    @property
    def matched_test(self) -> tuple[Ints, Ints]:
        """Test person and training row of each pair that has a match."""
        person, column = np.nonzero(self.match_test >= 0)
        return person.astype(np.int64), self.match_test[person, column]


def match_fold(
    x: Singles,
    F: pd.DataFrame,
    y: Ints,
    group: Ints,
    train: Ints,
    test: Ints,
    join: NDArray[np.float64],
    max_distance: float | None = None,
    *,
    keys: Keys | None = None,
) -> Fold:
    """A fold of encoded people, matched in its training part.

    Parameters
    ----------
    x, F, y, group
        Everyone: encoded inputs, financial features, labels and group codes.
    train, test
        Rows of the two parts.
    join
        Sums encoded columns into the table's.
    max_distance
        Largest distance of a match; None for no limit.
    keys
        Of equally near people, the one with the lowest key is the match; by default the lowest row.
    """
    pool = MatchReference.of(
        F.iloc[train], y[train], group[train], missing="indicator", keys=None if keys is None else keys[train]
    )
    of_train, of_test = pool.match_members(max_distance), pool.match(F.iloc[test], y[test], group[test], max_distance)
    return Fold(
        train=train,
        test=test,
        x_train=x[train],
        x_test=x[test],
        y_train=y[train],
        y_test=y[test],
        group_train=group[train],
        group_test=group[test],
        match_train=of_train.match.reshape(len(train), -1),
        match_test=of_test.match.reshape(len(test), -1),
        baselines=label_group_baselines(x[train], y[train], group[train]),
        join=join,
    )


def stack_tables(folds: Sequence[Fold], triples: Sequence[Ints] | None = None) -> TrainingData:
    """All training folds as the tables of one stack, padded to the longest with rows of weight 0.

    Raises
    ------
    InvalidInputError
        If the folds were encoded into different columns.
    """
    n_rows = max(len(fold.y_train) for fold in folds)

    def padded(tables: Sequence[NDArray[np.generic]], filler: int = 0) -> Tensor:
        rows = []
        for values in tables:
            widths = [(0, n_rows - len(values))] + [(0, 0)] * (values.ndim - 1)
            rows.append(np.pad(values, widths, constant_values=filler))
        return torch.from_numpy(np.stack(rows))

    join = folds[0].join
    if any(not np.array_equal(fold.join, join) for fold in folds):
        raise InvalidInputError(
            "The folds differ in their encoded columns, so they cannot train as one stack: a category or a missing "
            "value is absent from a training fold. Use encoding='ordinal' or fewer folds."
        )
    return TrainingData(
        X=padded([fold.x_train for fold in folds]),
        y=padded([fold.y_train for fold in folds]),
        group=padded([fold.group_train for fold in folds]),
        match=padded([fold.match_train for fold in folds], -1),
        baselines=torch.from_numpy(np.stack([fold.baselines for fold in folds])),
        weight=torch.stack([(torch.arange(n_rows) < len(fold.y_train)).float() for fold in folds]),
        join=torch.from_numpy(join) if join.shape[0] > join.shape[1] else None,
        triples=None if triples is None else padded(triples, -1),
    )
