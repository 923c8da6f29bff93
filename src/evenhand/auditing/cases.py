"""The pairs with the strongest evidence, as someone would look at them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from evenhand.metrics.cec import N_REASONS

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["strongest_cases"]


def strongest_cases(
    pairs: pd.DataFrame,
    table: pd.DataFrame,
    reference_table: pd.DataFrame,
    attributions: NDArray[np.float32],
    match_attributions: NDArray[np.float32],
    n: int,
) -> pd.DataFrame:
    """The n pairs with the strongest evidence, a row for each feature: see `AuditResult.cases`.

    Parameters
    ----------
    pairs
        `person` and `match` are rows of the two tables.
    table, reference_table
        Features of people and of matches.
    attributions, match_attributions
        Of the rows of `table`, and of the match of each pair.
    n
        Number of pairs.
    """
    order = pairs.assign(over=pairs["cec"] - pairs["placebo_cec"].fillna(0))
    order = order[order["cec"].notna()].sort_values(["q_value", "over"], ascending=[True, False], kind="stable")
    columns = ["person", "match", "group", "other_group", "q_value", "cec", "placebo_cec", "score", "match_score"]
    parts = []
    for row, pair in order.head(n).iterrows():
        own, other = attributions[int(pair["person"])], match_attributions[int(str(row))]
        parts.append(
            pd.DataFrame(
                {
                    **{column: pair[column] for column in columns},
                    "feature": list(table.columns),
                    "value": table.iloc[int(pair["person"])].astype(object).to_numpy(),
                    "match_value": reference_table.iloc[int(pair["match"])].astype(object).to_numpy(),
                    "attribution": own,
                    "match_attribution": other,
                    "reason": _reason_places(own),
                    "match_reason": _reason_places(other),
                }
            )
        )
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def _reason_places(attributions: NDArray[np.float32]) -> list[int | None]:
    """Place of each feature among the principal reasons, from 1; None for one that is not."""
    places: list[int | None] = [None] * len(attributions)
    for place, feature in enumerate(np.argsort(attributions, kind="stable")[:N_REASONS], start=1):
        places[feature] = place
    return places
