"""Check scores, attributions and reason codes that users give in place of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import logit

from evenhand.arrays import Floats
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.validation import as_columns, as_ids, as_table, category_text, check_columns, is_number_column

Scale = Literal["log-odds", "probability", "value"]

_TOLERANCE = 0.01  # share of the standard deviation of the scores: the effect of rounding in a file
_MOST_OFF = 0.01  # share of people whose sums may differ: rounded probabilities near 0 and 1 have coarse log-odds
_SAID = {"log-odds": "the log-odds of `scores`", "probability": "`scores`", "value": "`scores`"}


@dataclass(frozen=True, eq=False)
class Explained:
    """The scores of people, on the scale in which they are explained.

    Attributes
    ----------
    parts
        Attributions by feature, of shape (n, d), or the scores alone, of shape (n, 1).
    base
        Added to the sum of a person's parts.
    scale
        Scale of the sum.
    n_off, largest_gap
        People whose attributions do not quite sum to their score, and the largest difference.
    """

    parts: Floats
    base: float
    scale: Scale
    n_off: int = 0
    largest_gap: float = 0.0


def as_scores(scores: Any, n: int, name: str = "scores") -> Floats:
    """Scores of n people, which must not all be equal.

    Examples
    --------
    >>> as_scores([0.2, 0.7], 2)
    array([0.2, 0.7])
    """
    values = _numbers(scores, n, name)
    if values.shape[1] != 1:
        raise InvalidInputError(f"`{name}` must be one column, got {values.shape[1]}; pass the one to audit.")
    if n and (values == values[0]).all():
        raise InvalidInputError(
            f"`{name}` is {values[0, 0]:g} for everyone, so there is nothing to compare; pass the model's scores."
        )
    return values[:, 0]


def as_attributions(attributions: Any, features: Sequence[str], n: int) -> Floats:
    """Attributions of n people in the order of the features.

    Parameters
    ----------
    attributions
        A table whose columns are named like the features, in any order; an array with one column per feature; or the
        output of a shap explainer.
    features
        Columns of the people's table.
    n
        Number of people.

    Examples
    --------
    >>> as_attributions(pd.DataFrame({"debt": [-0.5], "income": [0.25]}), ["income", "debt"], 1)
    array([[ 0.25, -0.5 ]])
    """
    values: Any = attributions.values if hasattr(attributions, "base_values") else attributions
    if np.ndim(values) == 3:
        raise InvalidInputError(
            f"`attributions` has {np.shape(values)[2]} outputs for each feature; pass those of one, such as "
            "`explanation[..., 1]` of the favorable class."
        )
    if isinstance(values, np.ndarray) or not hasattr(values, "columns"):
        numbers = _numbers(values, n, "attributions")
        if numbers.shape[1] != len(features):
            raise InvalidInputError(
                f"`attributions` has {numbers.shape[1]} columns for the {len(features)} columns of `X`; pass one for "
                "each, in their order, or a table whose columns have the same names."
            )
        return numbers
    table = as_table(values, "attributions")
    named = [str(column) for column in table.columns]
    absent, extra = [f for f in features if f not in named], [c for c in named if c not in features]
    if absent:
        raise InvalidInputError(
            f"Attributions are missing for {len(absent)} of the {len(features)} columns of `X`: {absent[:5]}; pass "
            "them, with 0 for a column that the model does not use, or leave the columns out of `X` (--drop)."
        )
    if extra:
        raise InvalidInputError(
            f"`attributions` has {len(extra)} columns that are not columns of `X`: {extra[:5]}; add up those of "
            "encoded columns for the column they come from."
        )
    return _numbers(table[list(features)], n, "attributions")


def as_base_value(base_values: Any, n: int) -> float:
    """The single base value of the attributions, from a number or a column.

    Examples
    --------
    >>> as_base_value([0.5, 0.5], 2)
    0.5
    """
    if np.ndim(base_values) == 0:
        base_values = [base_values] * max(n, 1)
    values = _numbers(base_values, n, "base_values")
    low, high = float(values.min()), float(values.max())
    if values.shape[1] != 1 or high - low > 1e-6 * max(1.0, abs(low), abs(high)):
        raise InvalidInputError(
            f"`base_values` ranges from {low:g} to {high:g}, but attributions must all start from one background: "
            "explain everyone again from the same background."
        )
    return float(values[0, 0])


def as_reason_codes(reason_codes: Any, n: int) -> pd.DataFrame:
    """Principal reasons of n people as text, first reason first; an empty cell means no reason.

    Examples
    --------
    >>> as_reason_codes(pd.DataFrame({"first": ["R1", None], "second": ["R4", None]}), 2)["first"].tolist()
    ['R1', None]
    """
    table = _columns(reason_codes, n, "reason_codes")
    text = table.astype(object).map(category_text, na_action="ignore")
    text = text.map(str.strip, na_action="ignore").astype(object)
    text = text.where(text.notna() & (text != ""), None)
    if not text.notna().any(axis=None):
        raise InvalidInputError("`reason_codes` has no reason for anyone; pass the columns of the codes.")
    return text


def explained_scores(
    scores: Floats | None, attributions: Floats | None, base: float | None, output: Scale | None, unit: str | None
) -> Explained:
    """Scores on the scale in which they are explained, with their parts.

    Probabilities become log-odds, unless attributions sum to the probabilities, or `output` says so.

    Parameters
    ----------
    scores
        Probabilities, log-odds if `output` says so, or values in a unit; None if attributions and base give them.
    attributions, base
        Of shape (n, d), and the value added to their sum; None for the value that makes the sums the scores.
    output, unit
        As in `evenhand.audit_given`.

    Raises
    ------
    InvalidInputError
        If the scores are not probabilities, or attributions do not sum to them.
    """
    if unit is not None and output not in (None, "value"):
        raise InvalidInputError(
            f"`output` (--output) is {output!r}, but a score with a `unit` (--unit), {unit!r}, is neither log-odds nor "
            "a probability; drop one of them."
        )
    if scores is None:
        assert attributions is not None
        if base is None:
            raise InvalidInputError(
                "Attributions without `scores` (--scores) need `base_values` (--base-values) to give the score; pass "
                "one of them."
            )
        return Explained(attributions, base, "value" if unit else output or "log-odds")
    linked = _linked(scores, output, unit, has_parts=attributions is not None)
    if attributions is None:
        ((scale, values),) = linked.items()
        return Explained(values[:, None], 0.0, scale)
    return _summed(linked, attributions, base)


def _linked(scores: Floats, output: Scale | None, unit: str | None, *, has_parts: bool) -> dict[Scale, Floats]:
    """The scores on every scale in which they may be explained."""
    if unit is not None:
        return {"value": scores}
    low, high = float(scores.min()), float(scores.max())
    if low < 0 or high > 1:
        if output == "log-odds":
            return {"log-odds": scores}
        raise InvalidInputError(
            f'`scores` ranges from {low:g} to {high:g}, which are not probabilities: set `output="log-odds"` (--output '
            'log-odds) for log-odds, or set the `unit` (--unit) of a value, such as "percentage points" or "points".'
        )
    if output == "probability":
        return {"probability": scores}
    n_sure = int(((scores == 0) | (scores == 1)).sum())
    if n_sure and (output == "log-odds" or not has_parts):
        raise InvalidInputError(
            f"{n_sure} of {len(scores)} scores are exactly 0 or 1, whose log-odds are infinite; pass "
            '`output="probability"` (--output probability) to compare probabilities.'
        )
    found: dict[Scale, Floats] = {} if n_sure else {"log-odds": logit(scores)}
    return {**found, "probability": scores} if has_parts and output is None else found


def _summed(linked: dict[Scale, Floats], parts: Floats, base: float | None) -> Explained:
    """The scale on which attributions sum to the scores."""
    candidates = []
    for scale, scores in linked.items():
        apart = scores - parts.sum(axis=1)
        start = float(np.median(apart)) if base is None else base
        gap, limit = np.abs(apart - start), max(_TOLERANCE * float(scores.std()), 1e-9)
        found = Explained(parts, start, scale, int((gap > limit).sum()), float(gap.max()))
        candidates.append((found.n_off, float(gap.max()) / limit, limit, found))
    n_off, _, limit, best = min(candidates, key=lambda one: one[:2])
    if n_off > _MOST_OFF * len(parts):
        raise InvalidInputError(
            f"Attributions do not sum to the score: {'a base value' if base is None else 'the base value'} plus a "
            f"person's attributions differs from {_SAID[best.scale]} by up to {best.largest_gap:.3g}, for {n_off} of "
            f"{len(parts)} people by more than {limit:.2g}; pass attributions of the same model and people, in "
            "log-odds or in probability, all from one background."
        )
    return best


def _numbers(values: Any, n: int, name: str) -> Floats:
    """Finite numbers of n people, of shape (n, k)."""
    table = _columns(values, n, name)
    text = [str(column) for column in table.columns if not is_number_column(table[column])]
    if text:
        shown = table[text[0]].dropna()
        example = f", such as {shown.iloc[0]!r}" if len(shown) else ""
        where = f" in {text[:5]}" if len(table.columns) > 1 else ""
        raise InvalidInputError(f"`{name}` must be numbers, got text{where}{example}; pass numeric columns.")
    numbers = table.to_numpy(dtype=np.float64, na_value=np.nan)
    n_bad = int((~np.isfinite(numbers)).any(axis=1).sum())
    if n_bad:
        raise InvalidInputError(
            f"`{name}` is missing or infinite for {n_bad} of {n} people; fill those values or leave the people out."
        )
    return numbers


def _columns(values: Any, n: int, name: str) -> pd.DataFrame:
    """One column or several of n people."""
    given = np.asarray(values) if isinstance(values, (list, tuple)) else values
    return as_table(as_columns(given, n, name), name)


_ATTRIBUTIONS = "`attributions` (--attributions)"


def given_columns(
    available: Sequence[str], scores: str | None, base_values: str | None, reason_codes: Sequence[str]
) -> tuple[str | None, str | float | None, list[str]]:
    """The columns of scores, base values and reason codes, checked; a base value may also be a number."""
    if scores is not None:
        (scores,) = check_columns([scores], available, "`scores` (--scores)")
    codes = check_columns(reason_codes, available, "`reason_codes` (--reason-codes)") if reason_codes else []
    base: str | float | None = base_values
    if base_values is not None and base_values not in available:
        try:
            base = float(base_values)
        except ValueError:
            (base,) = check_columns([base_values], available, "`base_values` (--base-values)")
    return scores, base, codes


def attribution_columns(named: Sequence[str], available: Sequence[str]) -> dict[str, str]:
    """The column of attributions of each feature, by feature.

    Parameters
    ----------
    named
        Patterns in which ``*`` is the feature, such as ``shap_*``; ``feature=column``; or columns with the same names
        as their features.
    available
        Columns of the file.

    Raises
    ------
    InvalidInputError
        If a name is missing, a pattern matches nothing, or a feature has two columns.

    Examples
    --------
    >>> attribution_columns(["shap_*"], ["income", "shap_income", "shap_debt"])
    {'income': 'shap_income', 'debt': 'shap_debt'}
    >>> attribution_columns(["income=phi_1", "debt"], ["phi_1", "debt"])
    {'income': 'phi_1', 'debt': 'debt'}
    """
    columns: dict[str, str] = {}
    for name in named:
        for feature, column in _mapped(name.strip(), available).items():
            if columns.setdefault(feature, column) != column:
                raise InvalidInputError(
                    f"{_ATTRIBUTIONS} gives {feature!r} two columns, {columns[feature]!r} and {column!r}; name only "
                    "one."
                )
    return columns


def _mapped(name: str, available: Sequence[str]) -> dict[str, str]:
    if name.count("*") > 1:
        raise InvalidInputError(f"{_ATTRIBUTIONS} may have one * in a pattern, got {name!r}; write it like 'shap_*'.")
    if "*" in name:
        start, end = name.split("*")
        shortest = len(start) + len(end)
        fits = [c for c in available if c.startswith(start) and c.endswith(end) and len(c) > shortest]
        if not fits:
            raise InvalidInputError(
                f"{_ATTRIBUTIONS} matches no column: {name!r} is none of {list(available)[:8]}; correct the pattern."
            )
        return {column[len(start) : len(column) - len(end)]: column for column in fits}
    feature, is_pair, column = name.partition("=")
    if name in available or not is_pair:
        (column,) = check_columns([name], available, _ATTRIBUTIONS)
        return {column: column}
    (column,) = check_columns([column.strip()], available, _ATTRIBUTIONS)
    return {feature.strip(): column}


def rows_by_id(frame: pd.DataFrame, ids: str, wanted: NDArray[np.object_], where: str) -> pd.DataFrame:
    """Rows of a different file in the order of people's ids.

    Parameters
    ----------
    frame
        The different file.
    ids
        Its column of ids.
    wanted
        Ids of the people.
    where
        Name of that file, for messages.

    Examples
    --------
    >>> found = pd.DataFrame({"id": [2, 1], "x": [0.5, 0.1]})
    >>> rows_by_id(found, "id", np.array(["1", "2"], dtype=object), "b.csv")["x"].tolist()
    [0.1, 0.5]
    """
    own = pd.Index(as_ids(frame[ids], len(frame), ids))  # rejects a repeated id
    place = own.get_indexer(pd.Index(wanted))
    n_absent = int((place < 0).sum())
    if n_absent:
        raise InvalidInputError(
            f"{where} has no row for {n_absent} of {len(wanted)} applicants, such as the id "
            f"{wanted[place < 0][0]!r}; pass attributions for everyone."
        )
    return frame.iloc[place].reset_index(drop=True)


def rows_in_order(frame: pd.DataFrame, n: int, kept: NDArray[np.int64], where: str) -> pd.DataFrame:
    """Rows of a different file that match, in order, the `n` rows of the applicants' file, some of which are kept."""
    if len(frame) != n:
        raise InvalidInputError(
            f"{where} has {len(frame)} rows for {n} rows of the applicants' file; pass one for each, or name a column "
            "of ids that both files have with --id."
        )
    return frame.iloc[kept].reset_index(drop=True)
