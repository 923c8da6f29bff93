"""Group probabilities, such as those estimated from surname and address: checked, and drawn from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.arrays import Floats, mixed_hash, person_hash
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.validation import Groups, as_table, check_group_names, in_row_order, text_columns

TOLERANCE = 1e-3
"""How far the probabilities of a row may be from a sum of 1, because of rounding; they are then rescaled."""

FEWEST_EXPECTED = 20.0
"""A group with fewer expected people is rejected: some draws would have too few to compare."""


@dataclass(frozen=True, eq=False)
class GroupProbabilities:
    """The protected attribute as a probability for each group; `sensitive_features=` of `audit`.

    Groups are drawn from the probabilities, each draw is audited, and the audits are pooled. The draws know about a
    person only what the probabilities know: see `docs/group-probabilities.md` for what that assumes.

    Attributes
    ----------
    probabilities
        A table with one row per person and one column per group, named after it.
    n_draws
        How many times groups are drawn.
    threshold
        For comparison only: people are also assigned to their most likely group if its probability is at least this,
        and left out otherwise.

    Examples
    --------
    >>> import pandas as pd
    >>> found = GroupProbabilities(pd.DataFrame({"white": [0.9, 0.2] * 50, "black": [0.1, 0.8] * 50}), n_draws=5)
    >>> found.names
    ('black', 'white')
    >>> GroupProbabilities(pd.DataFrame({"white": [0.9, 0.2], "black": [0.1, 0.9]}))
    Traceback (most recent call last):
    ...
    evenhand.exceptions.InvalidInputError: The group probabilities of each row must sum to 1 within 0.001, but those of
    1 of 2 rows do not (the farthest, row 1, sums to 1.1); divide each row by its sum, or correct it.
    """

    probabilities: Any
    n_draws: int = 20
    threshold: float = 0.8

    def __post_init__(self) -> None:
        if not isinstance(self.n_draws, Integral) or isinstance(self.n_draws, bool) or self.n_draws < 2:
            raise InvalidInputError(
                f"`n_draws` (--draws) must be a whole number of at least 2, because the spread over draws is part of "
                f"the result, got {self.n_draws!r}."
            )
        if not isinstance(self.threshold, Real) or isinstance(self.threshold, bool) or not 0.5 <= self.threshold <= 1:
            raise InvalidInputError(
                f"`threshold` (--group-threshold) must be a number from 0.5 to 1, got {self.threshold!r}."
            )
        object.__setattr__(self, "probabilities", _checked(self.probabilities))

    @property
    def names(self) -> tuple[str, ...]:
        """The groups, in order."""
        return tuple(self.probabilities.columns)

    @property
    def likeliest(self) -> Groups:
        """The most likely group of each person, however likely."""
        return Groups(self.probabilities.to_numpy().argmax(axis=1).astype(np.int64), self.names)

    def __len__(self) -> int:
        return len(self.probabilities)

    def rows(self, chosen: NDArray[np.int64]) -> GroupProbabilities:
        """The probabilities of some rows."""
        return replace(self, probabilities=self.probabilities.iloc[chosen])

    def in_row_order(self, X: Any, n: int, name: str) -> pd.DataFrame:
        """The probabilities of the n rows of `X`, in their order."""
        if len(self) != n:
            raise InvalidInputError(f"`{name}` has group probabilities of {len(self)} people for {n} rows.")
        result: pd.DataFrame = in_row_order(self.probabilities, X, name)
        return result

    def of_people(self, keys: NDArray[np.uint64]) -> PersonProbabilities:
        """The probabilities of people; `keys` identify them."""
        values = self.probabilities.to_numpy()
        return PersonProbabilities(self.names, values, keys, int(self.n_draws), float(self.threshold))


@dataclass(frozen=True, eq=False)
class PersonProbabilities:
    """Checked probabilities of people.

    Attributes
    ----------
    names, values
        The groups, and the probability of each, of shape (n, G); rows sum to 1.
    keys
        A hash that identifies the person of each row: equal for rows of one person.
    n_draws, threshold
        As in `GroupProbabilities`.
    """

    names: tuple[str, ...]
    values: Floats
    keys: NDArray[np.uint64]
    n_draws: int
    threshold: float

    def drawn(self, number: int, random_state: int) -> Groups:
        """The groups of a draw, whatever the order of the people.

        Examples
        --------
        >>> keys = np.arange(2, dtype=np.uint64)
        >>> people = PersonProbabilities(("a", "b"), np.array([[1.0, 0.0], [0.0, 1.0]]), keys, 2, 0.8)
        >>> people.drawn(1, random_state=0).codes
        array([0, 1])
        """
        bits = mixed_hash(person_hash(self.keys, random_state), np.full(len(self.keys), number, dtype=np.int64))
        share = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
        upto = np.cumsum(self.values, axis=1)[:, :-1]
        codes = (share[:, None] >= upto).sum(axis=1)
        # Rounding may leave a sum just below 1: no one is drawn into an impossible group.
        likely = self.values.argmax(axis=1)
        is_possible = self.values[np.arange(len(codes)), codes] > 0
        return Groups(np.where(is_possible, codes, likely).astype(np.int64), self.names)

    @property
    def thresholded(self) -> NDArray[np.int64]:
        """The most likely group of each person, -1 if its probability is below the threshold."""
        return np.where(self.values.max(axis=1) >= self.threshold, self.values.argmax(axis=1), -1)


def _checked(given: Any) -> pd.DataFrame:
    """Probabilities that sum to 1 in each row, groups sorted by name; the pandas index is kept."""
    table = as_table(given, "group probabilities")
    if table.shape[1] < 2:
        raise InvalidInputError(
            f"Group probabilities need a column for every group, got only {list(table.columns)}; add the other "
            "groups, so that rows sum to 1."
        )
    text = text_columns(table)
    if text:
        raise InvalidInputError(f"Group probabilities must be numbers, but the columns {text} are not; correct them.")
    values = table.to_numpy(dtype=np.float64, na_value=np.nan)
    _check_values(values)
    expected = pd.Series(values.sum(axis=0), index=table.columns)
    check_group_names({str(name): round(n) for name, n in expected.items()}, "group probabilities")
    few = expected[expected < FEWEST_EXPECTED]
    if len(few):
        shown = ", ".join(f"{name!r} ({n:.1f})" for name, n in few.items())
        raise InvalidInputError(
            f"Too few people are likely to be in some groups: the probabilities must sum to at least "
            f"{FEWEST_EXPECTED:g} people, got {shown} of {len(values):,} people; add the column to that of a similar "
            "group, or leave it out and rescale the rest."
        )
    index = given.index if isinstance(given, pd.DataFrame) else table.index
    rescaled = values / values.sum(axis=1, keepdims=True)
    return pd.DataFrame(rescaled, columns=table.columns, index=index)[sorted(table.columns)]


def _check_values(values: Floats) -> None:
    n = len(values)
    missing = np.isnan(values).any(axis=1)
    if missing.any():
        raise InvalidInputError(
            f"Group probabilities are missing in {int(missing.sum()):,} of {n:,} rows; drop those people (on the "
            "command line: --drop-missing), or fill all groups of the row."
        )
    negative = (values < 0).any(axis=1)
    if negative.any():
        raise InvalidInputError(
            f"Group probabilities must be at least 0, but {int(negative.sum()):,} of {n:,} rows have a negative one "
            f"(the lowest is {values.min():g}); correct them."
        )
    apart = np.abs(values.sum(axis=1) - 1)
    wrong = ~(apart <= TOLERANCE)
    if wrong.any():
        worst = int(np.nan_to_num(apart, nan=np.inf).argmax())
        raise InvalidInputError(
            f"The group probabilities of each row must sum to 1 within {TOLERANCE:g}, but those of "
            f"{int(wrong.sum()):,} of {n:,} rows do not (the farthest, row {worst}, sums to "
            f"{values[worst].sum():.4g}); divide each row by its sum, or correct it."
        )
