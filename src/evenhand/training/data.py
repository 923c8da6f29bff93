"""The training data of a stack of models, checked once; and folds of people, matched in their training part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.arrays import Floats, Ints, Keys
from evenhand.attribution.baselines import label_group_baselines
from evenhand.exceptions import InvalidInputError
from evenhand.matching.pairs import MatchReference


class _People:
    X: Tensor
    y: Tensor
    group: Tensor
    match: Tensor
    weight: Tensor | None
    triples: Tensor | None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and name != "validation":
                dtype = torch.int64 if name in _CODES else torch.float32
                tensor = torch.as_tensor(value, dtype=dtype, device="cpu").contiguous()
                object.__setattr__(self, name, tensor)
        _check_shape("X", self.X, "n_tables", "n_rows", "n_columns")
        shape = self.X.shape[:2]
        for name in ("y", "group", "weight"):
            _check_shape(name, getattr(self, name), *shape)
        _check_shape("match", self.match, *shape, "n_groups - 1")
        _check_shape("triples", self.triples, *self.match.shape, "n_triples", 2)
        y, least = self.y.unique().tolist()[:5], int(self.group.min())
        _require(bool(self.X.isfinite().all()), "`X` must be finite; fill padding rows with 0.")
        _require(set(y) <= {0, 1}, f"`y` must be 0 or 1, got {y}.")
        _require(least >= 0, f"`group` must contain codes 0..G-1, got {least}.")
        is_possible = bool((self.weights.isfinite() & (self.weights >= 0)).all())
        _require(is_possible, "`weight` must be finite and not negative.")

    @property
    def weights(self) -> Tensor:
        """Row weights of shape (D, n), whether given or not."""
        return torch.ones(self.y.shape) if self.weight is None else self.weight


@dataclass(frozen=True, eq=False)
class ValidationData(_People):
    """People held out of training, table by table; fields as in `TrainingData`.

    Attributes
    ----------
    X, y, group
        Of shapes (D, n, d), (D, n), (D, n).
    match
        For each person and other group, the matched row of the *training* table, -1 for none; (D, n, M).
    weight
        Of shape (D, n), 0 for padding; None for 1 each.
    triples
        Rows of the *training* table, as `TrainingData.triples`.
    """

    X: Tensor
    y: Tensor
    group: Tensor
    match: Tensor
    weight: Tensor | None = None
    triples: Tensor | None = None


@dataclass(frozen=True, eq=False)
class TrainingData(_People):
    """Tables of people that members of a stack learn from; several members may share one.

    Arrays are converted to tensors. Tables of different lengths are padded at the end with rows of weight 0.

    Attributes
    ----------
    X
        Encoded and standardized inputs, of shape (D, n, d).
    y, group
        Labels 0 or 1 and group codes 0..G-1, of shape (D, n).
    match
        For each person and other group, the matched row of the same table, -1 for none; of shape (D, n, M).
    baselines
        Mean inputs of each (label, group) cell, of shape (D, 2, G, d); not finite if a cell is empty.
    weight
        How often each row counts, of shape (D, n), 0 for padding; None for 1 each.
    join
        Matrix of shape (d, n_features) that sums attributions of encoded columns into features before they are
        compared; None to compare column by column.
    validation
        People held out; required for validation metrics and early stopping.
    triples
        For each person, other group and one of C triples, the rows of someone in that group and of a placebo in the
        person's group, -1 for none; of shape (D, n, M, C, 2), from `training_triples`. Objectives with placebo pairs
        need them.

    Raises
    ------
    InvalidInputError
        If shapes disagree, values are not finite, or codes are out of range.

    Examples
    --------
    >>> import torch
    >>> data = TrainingData(
    ...     X=torch.randn(1, 6, 3), y=torch.tensor([[0, 0, 0, 1, 1, 1]]), group=torch.tensor([[0, 1, 1, 0, 1, 1]]),
    ...     match=torch.tensor([[[1], [0], [0], [4], [3], [3]]]), baselines=torch.zeros(1, 2, 2, 3))
    >>> data.n_tables, data.n_groups, data.n_rows.tolist()
    (1, 2, [6])
    """

    X: Tensor
    y: Tensor
    group: Tensor
    match: Tensor
    baselines: Tensor
    weight: Tensor | None = None
    join: Tensor | None = None
    validation: ValidationData | None = None
    triples: Tensor | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        n_tables, n_rows, n_columns = self.X.shape
        _check_shape("baselines", self.baselines, n_tables, 2, "n_groups", n_columns)
        _check_shape("join", self.join, n_columns, "n_features")
        highest = int(self.group.max())
        _require(
            highest < self.n_groups,
            f"`group` must contain codes below {self.n_groups}, the groups of `baselines`, got {highest}.",
        )
        matched = int(self.match.max()) if self.match.numel() else -1
        _require(matched < n_rows, f"`match` must contain rows below {n_rows}, got {matched}.")
        empty = (self.n_rows == 0).nonzero().flatten().tolist()
        _require(not empty, f"Every table needs a row of positive weight; tables {empty} have none.")
        is_finite = self.baselines.isfinite().all(-1)[torch.arange(n_tables).unsqueeze(1), self.y, self.group]
        for d, row in (~is_finite & (self.weights > 0)).nonzero()[:1].tolist():
            raise InvalidInputError(
                f"`baselines` is not finite for label {int(self.y[d, row])}, group {int(self.group[d, row])} of table "
                f"{d}, which has people. Compute it with `label_group_baselines`."
            )
        held_out = self.validation
        if held_out is not None:
            own, theirs = ((len(d.X), d.X.shape[2], d.match.shape[2]) for d in (self, held_out))
            _require(
                own == theirs and bool((held_out.match < n_rows).all()) and int(held_out.group.max()) < self.n_groups,
                "`validation` must have the tables, columns and groups of the training data and match into its rows, "
                f"got X of shape {tuple(held_out.X.shape)} and match of shape {tuple(held_out.match.shape)} for "
                f"{n_tables} tables of {n_rows} rows and {n_columns} columns.",
            )
        for rows in (people.triples for people in (self, held_out) if people is not None):
            _require(
                rows is None or not rows.numel() or (int(rows.max()) < n_rows and _is_whole(rows)),
                f"`triples` must contain rows below {n_rows}, or -1 for both people of an absent triple.",
            )

    @property
    def n_tables(self) -> int:
        """Number of tables D."""
        return self.X.shape[0]

    @property
    def n_groups(self) -> int:
        """Number of groups G."""
        return self.baselines.shape[2]

    @property
    def n_columns(self) -> int:
        """Number of encoded input columns d."""
        return self.X.shape[2]

    @property
    def n_rows(self) -> Tensor:
        """Rows of each table up to the last of positive weight; int64 of shape (D,)."""
        position = torch.arange(1, self.X.shape[1] + 1)
        return torch.where(self.weights > 0, position, 0).amax(1)


_CODES = ("y", "group", "match", "triples")


def _is_whole(triples: Tensor) -> bool:
    return bool(((triples < 0).any(-1) == (triples < 0).all(-1)).all())


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InvalidInputError(message)


def _check_shape(name: str, tensor: Tensor | None, *expected: int | str) -> None:
    """Refuse a tensor of another shape; a dimension that is a name may have any size."""
    if tensor is None:
        return
    fits = [isinstance(size, str) or n == size for n, size in zip(tensor.shape, expected, strict=False)]
    if tensor.dim() != len(expected) or not all(fits):
        shown = ", ".join(map(str, expected))
        raise InvalidInputError(f"`{name}` must have shape ({shown}), got {tuple(tensor.shape)}.")


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
    baselines: Floats
    join: Floats

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
    join: Floats,
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
        stacked = np.full((len(tables), n_rows, *tables[0].shape[1:]), filler, dtype=tables[0].dtype)
        for rows, values in zip(stacked, tables, strict=True):
            rows[: len(values)] = values
        return torch.from_numpy(stacked)

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
