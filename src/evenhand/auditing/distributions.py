"""Histograms of the pairs with fixed bins, so that histograms of parts of the people can be added."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from evenhand.exceptions import InvalidInputError
from evenhand.metrics.regimes import REGIMES

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = [
    "CEC_EDGES",
    "DISTANCE_EDGES",
    "PLANE_EDGES",
    "SCORE_EDGES",
    "histogram_of",
    "merge_distributions",
    "pair_distributions",
    "scaled_distributions",
]

CEC_EDGES = np.round(np.linspace(0, 1, 51), 3)
SCORE_EDGES = np.round(np.linspace(0, 1, 41), 4)
# Distances are unbounded: one bin for 0, then 20 per power of ten, and a last one for the rest.
DISTANCE_EDGES = np.concatenate([[0.0], np.round(np.logspace(-3, 3, 121), 6)])
PLANE_EDGES = (np.round(np.linspace(-1, 1, 41), 3), np.round(np.linspace(0, 1, 26), 3))


def pair_distributions(pairs: pd.DataFrame) -> dict[str, Any]:
    """Counts of pairs by group, enough to draw the charts of a report; sums of weights if people have weights.

    Parameters
    ----------
    pairs
        Table of pairs, as `AuditResult.pairs`.

    Returns
    -------
    Plain data. `cec` and `placebo_cec` (the mean over a person's placebo pairs), `distance` and `score`: `edges`, and
    `counts` by group. A bin includes its left edge, and the last bin both edges and everything beyond. `score` counts
    people, the others count pairs. `plane` counts pairs by score of the match minus score of the person, and by CEC
    score: `cells` are (bin of the difference, bin of the score, count). `regimes` counts pairs by group and regime.

    Examples
    --------
    >>> import pandas as pd
    >>> row = dict(person=0, group="a", score=0.7, match_score=0.5, cec=0.31, placebo_cec=0.2, distance=1.0, regime="B")
    >>> found = pair_distributions(pd.DataFrame([row]))
    >>> found["regimes"]["a"], found["plane"]["cells"]
    ({'A': 0, 'B': 1, 'C': 0, 'D': 0}, [[16, 7, 1]])
    """
    scored = pairs[pairs["cec"].notna()]
    people = pairs.drop_duplicates("person")
    groups = sorted(str(name) for name in pairs["group"].unique())
    difference = scored["match_score"].to_numpy(dtype=float) - scored["score"].to_numpy(dtype=float)
    return {
        "cec": _by_group(scored, "cec", CEC_EDGES, groups),
        "placebo_cec": _by_group(scored, "placebo_cec", CEC_EDGES, groups),
        "distance": _by_group(scored, "distance", DISTANCE_EDGES, groups),
        "score": _by_group(people, "score", SCORE_EDGES, groups),
        "plane": {
            "difference_edges": PLANE_EDGES[0].tolist(),
            "cec_edges": PLANE_EDGES[1].tolist(),
            "cells": _cells(difference, scored["cec"].to_numpy(dtype=float), _weight(scored)),
        },
        "regimes": _regimes(scored, groups),
    }


def histogram_of(people: pd.DataFrame, column: str) -> dict[str, Any]:
    """Counts by group of a column on any scale, in bins as fine as those of scores, over its whole range.

    Examples
    --------
    >>> found = histogram_of(pd.DataFrame({"group": ["a", "b"], "score": [3.0, 7.0]}), "score")
    >>> found["edges"][0], found["edges"][-1], sum(found["counts"]["b"])
    (3.0, 7.0, 1)
    """
    values = people[column].to_numpy(dtype=float)
    edges = np.linspace(values.min(), values.max(), len(SCORE_EDGES))
    return _by_group(people, column, edges, sorted(str(name) for name in people["group"].unique()))


def merge_distributions(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Add the distributions of two sets of pairs.

    Raises
    ------
    InvalidInputError
        If the bins differ.

    Examples
    --------
    >>> import pandas as pd
    >>> row = dict(person=0, group="a", score=0.7, match_score=0.5, cec=0.31, placebo_cec=0.2, distance=1.0, regime="B")
    >>> part = pair_distributions(pd.DataFrame([row]))
    >>> merge_distributions(part, part)["regimes"]["a"]["B"]
    2
    """
    merged: dict[str, Any] = {}
    for name in ("cec", "placebo_cec", "distance", "score"):
        _check_edges(name, first[name]["edges"], second[name]["edges"])
        counts, more = first[name]["counts"], second[name]["counts"]
        zeros = [0] * (len(first[name]["edges"]) - 1)
        merged[name] = {
            "edges": list(first[name]["edges"]),
            "counts": {
                group: [a + b for a, b in zip(counts.get(group, zeros), more.get(group, zeros), strict=True)]
                for group in sorted({*counts, *more})
            },
        }
    plane, other = first["plane"], second["plane"]
    for edges in ("difference_edges", "cec_edges"):
        _check_edges("plane", plane[edges], other[edges])
    cells: dict[tuple[int, int], float] = {}
    for column, row, n in [*plane["cells"], *other["cells"]]:
        cells[column, row] = cells.get((column, row), 0) + n
    merged["plane"] = {**plane, "cells": [[*place, n] for place, n in sorted(cells.items())]}
    none: dict[str, float] = dict.fromkeys(REGIMES, 0)
    merged["regimes"] = {
        group: {r: first["regimes"].get(group, none)[r] + second["regimes"].get(group, none)[r] for r in REGIMES}
        for group in sorted({*first["regimes"], *second["regimes"]})
    }
    return merged


def scaled_distributions(distributions: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """Multiply every count of the distributions by a factor.

    Examples
    --------
    >>> import pandas as pd
    >>> row = dict(person=0, group="a", score=0.7, match_score=0.5, cec=0.31, placebo_cec=0.2, distance=1.0, regime="B")
    >>> scaled_distributions(pair_distributions(pd.DataFrame([row])), 0.5)["regimes"]["a"]["B"]
    0.5
    """

    def counts(found: Mapping[str, Any]) -> dict[str, list[float]]:
        return {group: [factor * n for n in numbers] for group, numbers in found.items()}

    histograms = {
        name: {**distributions[name], "counts": counts(distributions[name]["counts"])}
        for name in ("cec", "placebo_cec", "distance", "score")
    }
    plane = distributions["plane"]
    regimes = distributions["regimes"].items()
    return {
        **histograms,
        "plane": {**plane, "cells": [[column, row, factor * n] for column, row, n in plane["cells"]]},
        "regimes": {group: {regime: factor * n for regime, n in found.items()} for group, found in regimes},
    }


def _check_edges(name: str, first: list[float], second: list[float]) -> None:
    if list(first) != list(second):
        raise InvalidInputError(
            f"The distributions of {name!r} have different bins ({len(first) - 1} and {len(second) - 1}), "
            "so they cannot be added: create both with the same version of evenhand."
        )


def _weight(pairs: pd.DataFrame) -> NDArray[np.float64] | None:
    return pairs["sample_weight"].to_numpy(dtype=float) if "sample_weight" in pairs.columns else None


def _by_group(table: pd.DataFrame, column: str, edges: NDArray[np.float64], groups: list[str]) -> dict[str, Any]:
    of, weight = table["group"].astype(str).to_numpy(), _weight(table)
    values = table[column].to_numpy(dtype=float)
    counts = {
        name: _counts(values[of == name], edges, None if weight is None else weight[of == name]) for name in groups
    }
    return {"edges": edges.tolist(), "counts": counts}


def _counts(values: ArrayLike, edges: NDArray[np.float64], weight: NDArray[np.float64] | None) -> list[float]:
    known = np.asarray(values, dtype=float)
    finite = np.isfinite(known)
    known = np.minimum(known[finite], edges[-1])
    counts: list[float] = np.histogram(known, edges, weights=None if weight is None else weight[finite])[0].tolist()
    return counts


def _cells(
    difference: NDArray[np.float64], cec: NDArray[np.float64], weight: NDArray[np.float64] | None
) -> list[list[float]]:
    """Keep only bins that have pairs, because most of the plane is empty."""
    counts = np.histogram2d(difference, cec, PLANE_EDGES, weights=weight)[0]
    column, row = np.nonzero(counts)
    numbers = counts[column, row] if weight is not None else counts[column, row].astype(int)
    return [list(cell) for cell in zip(column.tolist(), row.tolist(), numbers.tolist(), strict=True)]


def _regimes(scored: pd.DataFrame, groups: list[str]) -> dict[str, dict[str, float]]:
    of, regime, weight = scored["group"].astype(str).to_numpy(), scored["regime"].to_numpy(dtype=str), _weight(scored)

    def number(inside: NDArray[np.bool_]) -> float:
        return int(inside.sum()) if weight is None else float(weight[inside].sum())

    return {name: {r: number((of == name) & (regime == r)) for r in REGIMES} for name in groups}
