"""The sampled pairs of the page's explorer, as compact plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from evenhand.report.formatting import shortened

_MOST_PAIRS = 2000
_MOST_CELLS = 150_000  # sampled pairs times features: limits the size of the page
_LONGEST_VALUE = 200
_OF_PAIRS = ("distance", "score", "match_score", "q_value")
_OF_REASONING = ("cec", "placebo_cec", "input_gap", "reasoning_gap", "shared_reasons")


def pairs_to_show(n_features: int) -> int:
    """How many pairs a page can hold: fewer if there are very many features.

    Examples
    --------
    >>> pairs_to_show(20), pairs_to_show(1500)
    (2000, 100)
    """
    return max(1, min(_MOST_PAIRS, _MOST_CELLS // max(1, n_features)))


def explorer_data(data: Mapping[str, Any], sample: Mapping[str, Any]) -> dict[str, Any]:
    """The sampled pairs by column, with rounded numbers; a missing value is None.

    Attributions are given in ten-thousandths of the unit vector that the CEC score compares; multiplied by `length`
    they are the attribution.

    Parameters
    ----------
    data
        The summary of the audit.
    sample
        Output of `PairSample.to_dict`.
    """
    pairs, groups = sample["pairs"], [str(name) for name in data["data"]["groups"]]
    place = {name: i for i, name in enumerate(groups)}
    own, own_length = _unit(sample["attributions"])
    match, match_length = _unit(sample["match_attributions"])
    financial = set(map(str, data["settings"]["financial_features"]))
    return {
        "threshold": data["settings"]["consistency_threshold"],
        "reason_of": [] if data["reasons"] is None else list(data["reasons"]["of_features"]),
        "reasons": sample["reasons"].tolist(),
        "match_reasons": sample["match_reasons"].tolist(),
        "n_strongest": sample["n_strongest"],
        "groups": [shortened(name, _LONGEST_VALUE) for name in groups],
        "features": [shortened(name, _LONGEST_VALUE) for name in sample["values"].columns],
        "financial": [int(str(name) in financial) for name in sample["values"].columns],
        "person": _names(pairs, "person"),
        "match": _names(pairs, "match"),
        "group": [place[str(name)] for name in pairs["group"]],
        "other": [place[str(name)] for name in pairs["other_group"]],
        "label": pairs["label"].tolist(),
        "decision": pairs["decision"].tolist(),
        "match_decision": [int(value) for value in pairs["match_decision"]],
        "regime": "".join(pairs["regime"].astype(str)),
        "negligible": pairs["is_negligible"].astype(int).tolist(),
        **{name: _rounded(pairs[name]) for name in (*_OF_PAIRS, *_OF_REASONING)},
        "values": [
            _column(sample["values"].iloc[:, j], sample["match_values"].iloc[:, j])
            for j in range(sample["values"].shape[1])
        ],
        "own": own,
        "own_length": own_length,
        "match_attribution": match,
        "match_length": match_length,
    }


def _names(pairs: pd.DataFrame, who: str) -> list[int] | list[str]:
    """The user's ids of people if there are any, else their row numbers."""
    own = f"{who}_id"
    return [shortened(name, _LONGEST_VALUE) for name in pairs[own]] if own in pairs else pairs[who].tolist()


def _unit(attributions: np.ndarray[Any, np.dtype[np.float32]]) -> tuple[list[list[int]], list[float]]:
    """Directions in ten-thousandths, one list per feature, and lengths."""
    wide = np.nan_to_num(attributions.astype(np.float64))
    length = np.linalg.norm(wide, axis=1)
    unit = np.rint(1e4 * wide / np.maximum(length, 1e-30)[:, None]).astype(int)
    return unit.T.tolist(), [float(f"{value:.5g}") for value in length]


def _rounded(column: pd.Series[Any]) -> list[float | None]:
    return [round(float(v), 4) if math.isfinite(v) else None for v in column.to_numpy(dtype=float)]


def _column(own: pd.Series[Any], match: pd.Series[Any]) -> dict[str, Any]:
    """Values of one feature: numbers unchanged, anything else as places in a list of its levels."""
    if pd.api.types.is_numeric_dtype(own.dtype) and not pd.api.types.is_bool_dtype(own.dtype):
        return {"own": _numbers(own), "match": _numbers(match)}
    both = pd.concat([own.astype(object), match.astype(object)], ignore_index=True)
    text = both.map(lambda value: shortened(value, _LONGEST_VALUE), na_action="ignore")
    codes, levels = pd.factorize(text)
    places = [None if code < 0 else int(code) for code in codes]
    return {"levels": [str(level) for level in levels], "own": places[: len(own)], "match": places[len(own) :]}


def _numbers(column: pd.Series[Any]) -> list[float | int | None]:
    return [_number(value) for value in column.to_numpy(dtype=np.float64, na_value=np.nan).tolist()]


def _number(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < 2**53 else float(f"{value:.6g}")
