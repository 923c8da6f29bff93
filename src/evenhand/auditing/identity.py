"""Which people two audits share: fingerprints of columns, and buckets that do not depend on the order of rows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.arrays import person_hash
from evenhand.inputs.identity import hash_column, hash_rows
from evenhand.inputs.people import People
from evenhand.metrics.triples import N_BUCKETS

EVERYONE = "(label and group)"
"""Name of the print of labels and groups."""
_ID = "(id)"


def person_buckets(people: People, financial: Sequence[str]) -> NDArray[np.int64]:
    """The bucket of each person, computed from label, group and finances, which any two comparable audits share.

    A person's bucket does not depend on the rest of the table or on the order and batches in which people are read.
    People with the same label, group and finances share a bucket.
    """
    known = hash_rows(people.table[list(financial)].assign(**_cells(people)))
    return (person_hash(known) % np.uint64(N_BUCKETS)).astype(np.int64)


def people_prints(people: People) -> NDArray[np.uint64]:
    """Sums of the people's bits: for label and group, and then including ids and each column, (2 + n_columns,).

    Sums of parts of the people can be added, and the order of the people does not matter. Without ids, their sum is 0.
    """
    cells = pd.DataFrame(_cells(people))
    whose = hash_rows(cells)
    columns = [person_hash(hash_column(column) + whose) for _, column in people.table.items()]
    no_one = np.zeros(0, dtype=np.uint64)
    ids = no_one if people.ids is None else person_hash(hash_rows(pd.DataFrame({_ID: people.ids}).astype(str)) + whose)
    return np.array([bits.sum(dtype=np.uint64) for bits in (person_hash(whose), ids, *columns)], dtype=np.uint64)


def shown_prints(prints: NDArray[np.uint64], columns: Sequence[str]) -> dict[str, str]:
    """The sums by column, as sixteen hexadecimal digits each; ids only if there are any."""
    named = zip((EVERYONE, _ID, *columns), prints.tolist(), strict=True)
    return {name: f"{bits:016x}" for name, bits in named if bits or name != _ID}


def fingerprint_of(prints: Mapping[str, str], n_people: int) -> str:
    """SHA-256 of people's columns, labels and groups, whatever the ids and the order of people and columns."""
    lines = [f"{len(name)}:{name}:{bits}" for name, bits in sorted(prints.items()) if name != _ID]
    return hashlib.sha256("\n".join([str(n_people), *lines]).encode()).hexdigest()


def reference_hash(pool: People) -> str:
    """The fingerprint of the people of the reference."""
    return fingerprint_of(shown_prints(people_prints(pool), [str(name) for name in pool.table.columns]), len(pool))


def is_same_people(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool | None:
    """Whether two audits are of the same people, from the `data` of their summaries; None if unknown.

    They are if their number, labels and groups are the same, and also the ids if both have ids; otherwise, if their
    shared columns are the same.
    """
    own, other = (data.get("column_prints") for data in (first, second))
    if not own or not other:
        return None
    has_ids = _ID in own and _ID in other
    shared = [_ID] if has_ids else [name for name in own if name in other and name not in (EVERYONE, _ID)]
    return (
        first["n_people"] == second["n_people"]
        and own[EVERYONE] == other[EVERYONE]
        and bool(shared)
        and all(own[name] == other[name] for name in shared)
    )


def _cells(people: People) -> dict[str, Any]:
    """Label and group; if groups are drawn, their probabilities in place of the group."""
    if people.probabilities is not None:
        known = hash_rows(pd.DataFrame(people.probabilities.values, columns=list(people.probabilities.names)))
        return {"(label)": people.labels, "(group)": (known >> np.uint64(12)).astype(np.float64)}
    names = np.asarray(people.groups.names, dtype=object)
    return {"(label)": people.labels, "(group)": names[people.groups.codes]}
