"""The training data of a stack of models, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from evenhand.exceptions import InvalidInputError


@dataclass(frozen=True, eq=False)
class ValidationData:
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

    def __post_init__(self) -> None:
        _convert(self, "X", "weight")
        _check_people(self)

    @property
    def weights(self) -> Tensor:
        """Row weights of shape (D, n), whether given or not."""
        return torch.ones(self.y.shape) if self.weight is None else self.weight


@dataclass(frozen=True, eq=False)
class TrainingData:
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
        _convert(self, "X", "baselines", "weight", "join")
        _check_people(self)
        n_tables, n_rows, n_columns = self.X.shape
        shape = self.baselines.shape
        if len(shape) != 4 or shape[:2] != (n_tables, 2) or shape[3] != n_columns:
            raise InvalidInputError(
                f"`baselines` must have shape ({n_tables}, 2, n_groups, {n_columns}), got {tuple(shape)}."
            )
        if int(self.group.max()) >= self.n_groups:
            raise InvalidInputError(
                f"`group` must contain codes below {self.n_groups}, the groups of `baselines`, "
                f"got {int(self.group.max())}."
            )
        if self.match.numel() and int(self.match.max()) >= n_rows:
            raise InvalidInputError(f"`match` must contain rows below {n_rows}, got {int(self.match.max())}.")
        for people in (self, self.validation):
            if people is not None:
                _check_triples(people, n_rows)
        if self.join is not None and (self.join.dim() != 2 or len(self.join) != n_columns):
            raise InvalidInputError(f"`join` must have shape ({n_columns}, n_features), got {tuple(self.join.shape)}.")
        if (self.n_rows == 0).any():
            empty = (self.n_rows == 0).nonzero().flatten().tolist()
            raise InvalidInputError(f"Every table needs a row of positive weight; tables {empty} have none.")
        self._check_cells()
        if self.validation is not None and (
            self.validation.X.shape[0] != n_tables
            or self.validation.X.shape[2] != n_columns
            or self.validation.match.shape[2] != self.match.shape[2]
            or (self.validation.match >= n_rows).any()
            or int(self.validation.group.max()) >= self.n_groups
        ):
            raise InvalidInputError(
                "`validation` must have the tables, columns and groups of the training data and match into its rows, "
                f"got X of shape {tuple(self.validation.X.shape)} and match of shape "
                f"{tuple(self.validation.match.shape)} for {n_tables} tables of {n_rows} rows and {n_columns} columns."
            )

    def _check_cells(self) -> None:
        is_finite = self.baselines.isfinite().all(-1)
        table = torch.arange(self.n_tables).unsqueeze(1)
        bad = (~is_finite[table, self.y, self.group]) & (self.weights > 0)
        if bad.any():
            d, row = (int(i) for i in bad.nonzero()[0])
            raise InvalidInputError(
                f"`baselines` is not finite for label {int(self.y[d, row])}, group {int(self.group[d, row])} of table "
                f"{d}, which has people. Compute it with `label_group_baselines`."
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
    def weights(self) -> Tensor:
        """Row weights of shape (D, n), whether given or not."""
        return torch.ones(self.y.shape) if self.weight is None else self.weight

    @property
    def n_rows(self) -> Tensor:
        """Rows of each table up to the last of positive weight; int64 of shape (D,)."""
        position = torch.arange(1, self.X.shape[1] + 1)
        return torch.where(self.weights > 0, position, 0).amax(1)


def _check_triples(people: TrainingData | ValidationData, n_rows: int) -> None:
    rows = people.triples
    if rows is None:
        return
    if rows.dim() != 5 or rows.shape[:3] != people.match.shape or rows.shape[3] < 1 or rows.shape[4] != 2:
        raise InvalidInputError(
            f"`triples` must have shape {(*people.match.shape, 'n_triples', 2)}, got {tuple(rows.shape)}."
        )
    if rows.numel() and (int(rows.max()) >= n_rows or ((rows < 0).any(-1) != (rows < 0).all(-1)).any()):
        raise InvalidInputError(
            f"`triples` must contain rows below {n_rows}, or -1 for both people of an absent triple; "
            f"the largest is {int(rows.max())}."
        )


def _convert(data: Any, *floats: str) -> None:
    for name in (*floats, "y", "group", "match", "triples"):
        value, dtype = getattr(data, name), torch.float32 if name in floats else torch.int64
        if value is not None:
            object.__setattr__(data, name, torch.as_tensor(value, dtype=dtype, device="cpu").contiguous())


def _check_people(data: TrainingData | ValidationData) -> None:
    if data.X.dim() != 3:
        raise InvalidInputError(f"`X` must have shape (n_tables, n_rows, n_columns), got {tuple(data.X.shape)}.")
    shape = tuple(data.X.shape[:2])
    for name in ("y", "group", "weight", "match"):
        value = getattr(data, name)
        if value is not None and (tuple(value.shape[:2]) != shape or value.dim() != 2 + (name == "match")):
            expected = f"{shape}" if name != "match" else f"({shape[0]}, {shape[1]}, n_groups - 1)"
            raise InvalidInputError(f"`{name}` must have shape {expected}, got {tuple(value.shape)}.")
    if not data.X.isfinite().all():
        raise InvalidInputError("`X` must be finite; fill padding rows with 0.")
    if not ((data.y == 0) | (data.y == 1)).all():
        raise InvalidInputError(f"`y` must be 0 or 1, got {sorted(set(data.y.flatten().tolist()))[:5]}.")
    if int(data.group.min()) < 0:
        raise InvalidInputError(f"`group` must contain codes 0..G-1, got {int(data.group.min())}.")
    if data.weight is not None and not (data.weight.isfinite() & (data.weight >= 0)).all():
        raise InvalidInputError("`weight` must be finite and not negative.")
