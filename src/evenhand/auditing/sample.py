"""Pairs to inspect one by one: the strongest, and others at random; the same however the pairs are stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.arrays import person_hash
from evenhand.exceptions import InvalidInputError
from evenhand.report.labels import Labels

MAX_PAIRS = 2000
_STRONGEST_SHARE = 0.2
_ROWS_AT_ONCE = 1 << 16  # pairs that candidates are chosen from
_REVIEW_COLUMNS = [
    *("person", "person_id", "group", "score", "decision"),
    *("match", "match_id", "other_group", "match_score", "match_decision", "distance"),
]
_CASE_COLUMNS = ["person", "match", "group", "other_group", "q_value", "cec", "placebo_cec", "score", "match_score"]


@dataclass(frozen=True, eq=False)
class ExplainedPairs:
    """Everything about the two people of some pairs.

    Attributes
    ----------
    values, match_values
        Columns of the person and of the match, one row per pair.
    attributions, match_attributions
        Attributions by feature, of shape (n_pairs, n_features), both from the person's baseline.
    reasons, match_reasons
        Codes of the principal reasons of both, of shape (n_pairs, k), -1 for none.
    """

    values: pd.DataFrame
    match_values: pd.DataFrame
    attributions: NDArray[np.float32]
    match_attributions: NDArray[np.float32]
    reasons: NDArray[np.int64]
    match_reasons: NDArray[np.int64]


class PairSource(Protocol):
    """Where the pairs of an audit are stored: in memory, or in the folder of a streamed audit."""

    def parts(self) -> Iterator[pd.DataFrame]:
        """The pair table in parts, sorted by person."""

    def of_person(self, person: int) -> pd.DataFrame:
        """The pairs of one person."""

    def explained(self, pairs: pd.DataFrame) -> ExplainedPairs:
        """Values and attributions of some rows of the parts."""

    def reason_parts(self) -> Iterator[pd.DataFrame]:
        """The table of principal reasons in parts, sorted by person."""


@dataclass(frozen=True, eq=False)
class PairsInMemory:
    """Pairs of people in memory.

    Attributes
    ----------
    pairs
        The pair table.
    table, reference_table
        The audited people's columns, and those of the people they were matched in.
    attributions, match_attributions
        By feature: for each audited person, of shape (n_people, n_features), and for the match of each pair, of shape
        (n_pairs, n_features).
    reason_table, reason_codes
        Principal reasons: one row per declined person; and as codes, for everyone and for the people they were matched
        in. None if there are none.
    """

    pairs: pd.DataFrame
    table: pd.DataFrame
    reference_table: pd.DataFrame
    attributions: NDArray[np.float32]
    match_attributions: NDArray[np.float32]
    reason_table: pd.DataFrame | None = None
    reason_codes: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def parts(self) -> Iterator[pd.DataFrame]:
        """The whole pair table."""
        yield self.pairs

    def of_person(self, person: int) -> pd.DataFrame:
        """The pairs of one person."""
        return self.pairs[self.pairs["person"] == person]

    def explained(self, pairs: pd.DataFrame) -> ExplainedPairs:
        """Values and attributions of some rows of the pair table."""
        person, match = pairs["person"].to_numpy(), pairs["match"].to_numpy()
        none = [np.zeros((len(table), 0), dtype=np.int64) for table in (self.table, self.reference_table)]
        codes, match_codes = none if self.reason_codes is None else self.reason_codes
        return ExplainedPairs(
            values=self.table.iloc[person].reset_index(drop=True),
            match_values=self.reference_table.iloc[match].reset_index(drop=True),
            attributions=self.attributions[person],
            match_attributions=self.match_attributions[pairs.index.to_numpy()],
            reasons=codes[person],
            match_reasons=match_codes[match],
        )

    def reason_parts(self) -> Iterator[pd.DataFrame]:
        """The whole table of reasons."""
        yield pd.DataFrame() if self.reason_table is None else self.reason_table


@dataclass(frozen=True, eq=False)
class LabeledPairs:
    """Pairs and their people in the user's words."""

    source: PairSource
    labels: Labels

    def parts(self) -> Iterator[pd.DataFrame]:
        """The pair table in parts, sorted by person."""
        return map(self.labels.frame, self.source.parts())

    def of_person(self, person: int) -> pd.DataFrame:
        """The pairs of one person."""
        return self.labels.frame(self.source.of_person(person))

    def explained(self, pairs: pd.DataFrame) -> ExplainedPairs:
        """Values and attributions of some rows of the parts."""
        found = self.source.explained(pairs)
        values, match_values = map(self.labels.people, (found.values, found.match_values))
        return replace(found, values=values, match_values=match_values)

    def reason_parts(self) -> Iterator[pd.DataFrame]:
        """The table of principal reasons in parts, sorted by person."""
        return map(self.labels.frame, self.source.reason_parts())


@dataclass(frozen=True, eq=False)
class PairSample(ExplainedPairs):
    """Some pairs of an audit with everything about the two people.

    Attributes
    ----------
    pairs
        Rows of the pair table, strongest evidence first.
    n_pairs, n_scored
        Pairs of the audit, and those with a score: the sample is drawn from the latter.
    n_strongest
        How many pairs, at the start of the sample, were taken because their evidence is strongest.
    how
        A description of how the sample was drawn.
    """

    pairs: pd.DataFrame
    n_pairs: int
    n_scored: int
    n_strongest: int
    how: str

    def __len__(self) -> int:
        return len(self.pairs)

    def to_dict(self) -> dict[str, Any]:
        """The attributes by name, as a report needs them; tables and arrays are unchanged."""
        return dict(vars(self))


def draw_pair_sample(source: PairSource, max_pairs: int = MAX_PAIRS, random_state: int = 0) -> PairSample:
    """Draw a sample of scored pairs.

    A fifth are the pairs with the lowest `q_value`, with ties broken by CEC score minus placebo score. The rest are
    drawn at random, as evenly as possible from every regime and group, so that rare ones are included: within each
    regime and group, people with the lowest hashes come first. A person's hash depends only on their number and the
    seed, so pairs read in parts give the same sample as pairs read at once.

    Parameters
    ----------
    source
        The pairs.
    max_pairs
        Largest number of pairs; if there are no more, all are taken.
    random_state
        Seed of the draw.

    Raises
    ------
    InvalidInputError
        If `max_pairs` is below 1.
    """
    if max_pairs < 1:
        raise InvalidInputError(f"`max_pairs` must be at least 1, got {max_pairs}.")
    n_pairs = n_scored = 0
    parts: list[pd.DataFrame] = []
    for part in source.parts():
        scored = part[part["cec"].notna()]
        n_pairs, n_scored = n_pairs + len(part), n_scored + len(scored)
        parts.append(scored)
        if sum(map(len, parts)) > _ROWS_AT_ONCE:
            parts = [_candidates(pd.concat(parts), max_pairs, random_state)]
    kept = _candidates(pd.concat(parts), max_pairs, random_state)
    ranked = _by_strength(kept)
    n_strongest, chosen, how = n_scored, ranked, f"All {n_scored:,} scored pairs."
    if n_scored > max_pairs:
        n_strongest = int(np.ceil(max_pairs * _STRONGEST_SHARE))
        others = kept.iloc[ranked[n_strongest:]]
        turn = np.lexsort((person_hash(_person(others), random_state), _turn(others, random_state)))
        drawn = np.sort(turn[: max_pairs - n_strongest])  # back in order of strength
        chosen = np.concatenate([ranked[:n_strongest], ranked[n_strongest:][drawn]])
        how = (
            f"{len(chosen):,} of {n_scored:,} scored pairs: the {n_strongest:,} with the strongest evidence, and "
            f"{len(drawn):,} at random, as evenly as possible over regimes and groups (seed {random_state})."
        )
    pairs = kept.iloc[chosen]
    return PairSample(
        pairs=pairs.reset_index(drop=True),
        **vars(source.explained(pairs)),
        n_pairs=n_pairs,
        n_scored=n_scored,
        n_strongest=n_strongest,
        how=how,
    )


def strongest_pairs(source: PairSource, n: int) -> pd.DataFrame:
    """The n scored pairs with the strongest evidence, strongest first."""
    kept = pd.DataFrame()
    for part in source.parts():
        scored = part[part["cec"].notna()]
        kept = pd.concat([kept, scored]) if len(kept) else scored
        kept = kept.iloc[_by_strength(kept)[:n]]
    return kept


def cases_of(source: PairSource, n: int, reason_of: Sequence[int] = ()) -> pd.DataFrame:
    """The n pairs with the strongest evidence, one row per feature: see `AuditResult.cases`.

    `reason_of` has the code of each feature's reason; empty if features have none.
    """
    pairs = strongest_pairs(source, n)
    found = source.explained(pairs)
    reason_of = reason_of or [-1] * found.values.shape[1]
    ids = [column for column in ("person_id", "match_id") if column in pairs]
    parts = [
        pd.DataFrame(
            {
                **{column: pair[column] for column in (*_CASE_COLUMNS, *ids)},
                "feature": list(found.values.columns),
                "value": found.values.iloc[k].astype(object).to_numpy(),
                "match_value": found.match_values.iloc[k].astype(object).to_numpy(),
                "attribution": found.attributions[k],
                "match_attribution": found.match_attributions[k],
                "reason": _reason_places(found.reasons[k], reason_of),
                "match_reason": _reason_places(found.match_reasons[k], reason_of),
            }
        )
        for k, (_, pair) in enumerate(pairs.iterrows())
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=_CASE_COLUMNS)


def review_of(
    source: PairSource, sides: Sequence[tuple[str, str]], n: int, ids: Sequence[Any] | None = None
) -> pd.DataFrame:
    """Pairs to review one by one, one row each: see `AuditResult.review`.

    Parameters
    ----------
    source
        The pairs.
    sides
        A group and a better-off group, the most unequal two first: people of the first who are declined, while the
        closest person of the second is approved, are listed.
    n
        Number of pairs.
    ids
        Ids of people, or row numbers if there are no ids, whose pairs are listed instead.

    Raises
    ------
    InvalidInputError
        If `n` is below 1, or there is no such person.
    """
    if n < 1:
        raise InvalidInputError(f"`n` must be at least 1, got {n}.")
    place_of = {two: place for place, two in enumerate(sides)}
    wanted = None if ids is None else {str(one): place for place, one in enumerate(ids)}
    kept = pd.DataFrame()
    for part in source.parts():
        if wanted is None:
            part = part[((part["decision"] == 0) & (part["match_decision"] == 1)).fillna(False)]
            turn = [place_of.get(two) for two in zip(part["group"], part["other_group"], strict=True)]
        else:
            turn = [wanted.get(str(one)) for one in part["person_id" if "person_id" in part else "person"]]
        chosen = part.assign(_turn=np.array(turn, dtype=np.float64))
        chosen = chosen[chosen["_turn"].notna()]
        kept = pd.concat([kept, chosen]) if len(kept) else chosen
        order = np.lexsort((_person(kept), kept["distance"], kept["_turn"]))
        kept = kept.iloc[order[: n if wanted is None else None]]
    if wanted is not None and (unknown := [one for one, place in wanted.items() if place not in set(kept["_turn"])]):
        raise InvalidInputError(
            f"There is no applicant {unknown[0]!r} among the audited people; pass their ids, or without ids the row "
            "numbers of the audited table, from 0."
        )
    return _side_by_side(kept.drop(columns="_turn"), source.explained(kept))


def _side_by_side(pairs: pd.DataFrame, people: ExplainedPairs) -> pd.DataFrame:
    """Both people of each pair in one row: who they are, scores, decisions, and their inputs."""
    is_matched = (pairs["match"] >= 0).to_numpy()
    own, other = people.values.astype(object), people.match_values.astype(object)
    other = other.where(pd.DataFrame(np.repeat(is_matched[:, None], other.shape[1], axis=1), columns=other.columns))
    is_other = ~((own == other) | (own.isna() & other.isna())).fillna(False).to_numpy(dtype=bool) & is_matched[:, None]
    apart = np.abs(np.nan_to_num(people.attributions - people.match_attributions))
    texts = [
        "; ".join(
            f"{own.columns[k]}: {_shown(own.iat[row, k])} | {_shown(other.iat[row, k])}"
            for k in np.argsort(-apart[row], kind="stable")
            if is_other[row, k]
        )
        for row in range(len(own))
    ]
    first = [*(name for name in _REVIEW_COLUMNS if name in pairs)]
    inputs = {
        f"{whose}: {name}": side.iloc[:, k].to_list()
        for k, name in enumerate(own.columns)
        for whose, side in (("person", own), ("match", other))
    }
    known = pairs[first].reset_index(drop=True)
    return pd.concat([known, pd.DataFrame({"inputs_that_differ": texts, **inputs}, index=known.index)], axis=1)


def _shown(value: Any) -> str:
    return "missing" if pd.isna(value) else f"{value:.6g}" if isinstance(value, (float, np.floating)) else str(value)


def _candidates(scored: pd.DataFrame, max_pairs: int, random_state: int) -> pd.DataFrame:
    """The pairs of a table that can be in the sample of a larger one."""
    if len(scored) <= max_pairs:
        return scored
    is_kept = _turn(scored, random_state) < max_pairs
    is_kept[_by_strength(scored)[:max_pairs]] = True
    return scored[is_kept]


def _turn(pairs: pd.DataFrame, random_state: int) -> NDArray[np.int64]:
    """Rank of each pair within its regime and group, in order of the people's hashes."""
    order = np.lexsort((_order_of_rows(pairs), person_hash(_person(pairs), random_state)))
    turn = np.empty(len(pairs), dtype=np.int64)
    turn[order] = pairs.iloc[order].groupby(["regime", "group"], sort=False).cumcount().to_numpy()
    return turn


def _by_strength(pairs: pd.DataFrame) -> NDArray[np.intp]:
    over = (pairs["cec"] - pairs["placebo_cec"].fillna(0)).to_numpy(dtype=float)
    q_value = pairs["q_value"].to_numpy(dtype=float)
    # NaN sorts last; person and other group make the order total.
    return np.lexsort((_order_of_rows(pairs), -over, q_value))


def _person(pairs: pd.DataFrame) -> NDArray[np.int64]:
    return pairs["person"].to_numpy(dtype=np.int64)


def _order_of_rows(pairs: pd.DataFrame) -> NDArray[np.intp]:
    """Rank of each pair by person and other group."""
    order = np.lexsort((pd.factorize(pairs["other_group"], sort=True)[0], _person(pairs)))
    rank = np.empty(len(pairs), dtype=np.intp)
    rank[order] = np.arange(len(pairs))
    return rank


def _reason_places(codes: NDArray[np.int64], reason_of: Sequence[int]) -> list[int | None]:
    """Rank of each feature's reason among the principal ones, from 1; None if it is not one of them."""
    place_of = {int(code): place for place, code in enumerate(codes, start=1) if code >= 0}
    return [place_of.get(code) for code in reason_of]
