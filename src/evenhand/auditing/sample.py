"""Pairs to look at one by one: the strongest cases, and others at random."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from evenhand.exceptions import InvalidInputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MAX_PAIRS", "PairSample", "draw_pair_sample", "strongest_pairs"]

MAX_PAIRS = 2000
_STRONGEST_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class PairSample:
    """Some pairs of an audit with everything about the two people.

    Attributes
    ----------
    pairs
        Rows of the pair table; strongest evidence first.
    values, match_values
        Columns of the person and of the match, a row per sampled pair.
    attributions, match_attributions
        By feature, of shape (n_sampled, n_features), both from the person's baseline.
    n_pairs, n_scored
        Pairs of the audit, and those with a score: the sample is drawn from the latter.
    n_strongest
        How many of the sample, from its start, were taken because their evidence is strongest.
    how
        How the sample was drawn, in words.
    """

    pairs: pd.DataFrame
    values: pd.DataFrame
    match_values: pd.DataFrame
    attributions: NDArray[np.float32]
    match_attributions: NDArray[np.float32]
    n_pairs: int
    n_scored: int
    n_strongest: int
    how: str

    def __len__(self) -> int:
        return len(self.pairs)

    def to_dict(self) -> dict[str, Any]:
        """The attributes by name, as a report takes them; tables and arrays stay what they are."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def draw_pair_sample(
    pairs: pd.DataFrame,
    table: pd.DataFrame,
    reference_table: pd.DataFrame,
    attributions: NDArray[np.float32],
    match_attributions: NDArray[np.float32],
    *,
    max_pairs: int = MAX_PAIRS,
    random_state: int = 0,
) -> PairSample:
    """A sample of scored pairs.

    A fifth of it are the pairs with the lowest `q_value`, ties by CEC score over placebo score. The others are drawn
    at random, as nearly as possible the same number from every regime and group, so that rare ones can be seen too.

    Parameters
    ----------
    pairs, table, reference_table, attributions, match_attributions
        As in `AuditResult`.
    max_pairs
        Most pairs to take; all are taken when there are no more.
    random_state
        Seed of the draw.

    Raises
    ------
    InvalidInputError
        If `max_pairs` is below 1.
    """
    if max_pairs < 1:
        raise InvalidInputError(f"`max_pairs` must be at least 1, got {max_pairs}.")
    scored = np.flatnonzero(pairs["cec"].notna().to_numpy())
    ranked = _by_strength(pairs, scored)
    n_strongest = len(scored) if len(scored) <= max_pairs else int(np.ceil(max_pairs * _STRONGEST_SHARE))
    rows = ranked[:n_strongest]
    if len(scored) > max_pairs:
        rng = np.random.default_rng(random_state)
        others = _spread(pairs, ranked[n_strongest:], max_pairs - n_strongest, rng)
        place = np.empty(len(pairs), dtype=np.int64)
        place[ranked] = np.arange(len(ranked))
        rows = np.concatenate([rows, others[np.argsort(place[others])]])
    chosen = pairs.iloc[rows].reset_index(drop=True)
    return PairSample(
        pairs=chosen,
        values=table.iloc[chosen["person"].to_numpy()].reset_index(drop=True),
        match_values=reference_table.iloc[chosen["match"].to_numpy()].reset_index(drop=True),
        attributions=attributions[chosen["person"].to_numpy()],
        match_attributions=match_attributions[rows],
        n_pairs=len(pairs),
        n_scored=len(scored),
        n_strongest=n_strongest,
        how=_how(len(rows), n_strongest, len(scored), random_state),
    )


def strongest_pairs(parts: Iterable[pd.DataFrame], n: int) -> tuple[pd.DataFrame, int]:
    """All pairs in their order, or the n with the strongest evidence where there are more, and how many are left out.

    Parameters
    ----------
    parts
        Pair tables, one after the other; no more than a part and twice n pairs are held at a time.
    n
        Most pairs to keep.

    Examples
    --------
    >>> table = pd.DataFrame({"q_value": [0.5, 0.01, 0.2], "cec": [0.1, 0.2, 0.3], "placebo_cec": [0.1, 0.1, 0.1]})
    >>> kept, n_left_out = strongest_pairs([table, table], 2)
    >>> kept["q_value"].tolist(), n_left_out
    ([0.01, 0.01], 4)
    """
    kept: list[pd.DataFrame] = []
    n_seen = 0
    for part in parts:
        kept.append(part)
        n_seen += len(part)
        if sum(map(len, kept)) > 2 * n:
            kept = [_strongest(kept, n)]
    found = kept[0] if len(kept) == 1 else pd.concat(kept, ignore_index=True)
    found = _strongest([found], n) if len(found) > n else found
    return found, n_seen - len(found)


def _strongest(parts: list[pd.DataFrame], n: int) -> pd.DataFrame:
    pairs = pd.concat(parts, ignore_index=True)
    return pairs.iloc[_by_strength(pairs, np.arange(len(pairs)))[:n]].reset_index(drop=True)


def _by_strength(pairs: pd.DataFrame, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    part = pairs.iloc[rows]
    over = (part["cec"] - part["placebo_cec"].fillna(0)).to_numpy(dtype=float)
    q_value = part["q_value"].to_numpy(dtype=float)
    # NaN sorts last; the row itself makes the order total.
    return rows[np.lexsort((rows, -over, q_value))]


def _spread(pairs: pd.DataFrame, rows: NDArray[np.intp], n: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Random rows, as evenly as possible over regimes and groups: one of each in turn until there are enough."""
    rows = rng.permutation(rows)
    part = pairs.iloc[rows]
    turn = part.groupby(["regime", "group"], sort=False).cumcount().to_numpy()
    return rows[np.argsort(turn, kind="stable")[:n]]


def _how(n: int, n_strongest: int, n_scored: int, random_state: int) -> str:
    if n == n_scored:
        return f"All {n_scored:,} scored pairs."
    return (
        f"{n:,} of {n_scored:,} scored pairs: the {n_strongest:,} with the strongest evidence, and {n - n_strongest:,} "
        f"at random, as evenly as possible over regimes and groups (seed {random_state})."
    )
