"""Which columns a search tries to drop: those that predict the group best and are not used for matching."""

from __future__ import annotations

from evenhand.metrics.proxies import feature_strengths
from evenhand.searching.people import SearchPeople
from evenhand.searching.space import Drops

__all__ = ["proxy_drops"]

_MOST = 3


def proxy_drops(people: SearchPeople) -> Drops:
    """Each of the three columns that alone predict the group best, and the three together.

    Columns on which people are matched are never dropped.
    """
    columns = [name for name in people.table.columns if name not in people.financial_features]
    if not columns:
        return ()
    table = people.table[columns].iloc[people.searched].reset_index(drop=True)
    found = feature_strengths(table, people.groups.codes[people.searched])
    best = [strength.feature for strength in found[:_MOST] if strength.auc == strength.auc]
    together = [tuple(best)] if len(best) > 1 else []
    return [*((name,) for name in best), *together]
