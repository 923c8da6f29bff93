"""The steps of a pipeline before its classifier, as an encoding of the table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.exceptions import InvalidInputError, first_line
from evenhand.inputs.validation import is_number_column, text_columns
from evenhand.models.encoders.column_sources import column_sources, part_that_mixes
from evenhand.models.encoders.named_columns import fitted_names

__all__ = ["PipelineEncoder", "pipeline_encoder"]

_MAX_DENSE_VALUES = 2**28  # 2 GiB of float64
_PROBED_ROWS = 64


@dataclass(frozen=True, eq=False)
class PipelineEncoder:
    """A fitted transformer in which every output comes from one column of the table.

    Attributes
    ----------
    transformer
        The transformer, often a Pipeline or a ColumnTransformer.
    names
        Columns of the table.
    sources
        Position among `names` of the column behind each output.
    takes_names
        Whether the transformer was fitted on a table with names; otherwise it gets a matrix.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.preprocessing import OneHotEncoder
    >>> table = pd.DataFrame({"home": ["rent", "own"], "guarantor": ["no", "yes"]})
    >>> encoder = pipeline_encoder(OneHotEncoder().fit(table), table)
    >>> encoder.encoded_names
    ['home: 1', 'home: 2', 'guarantor: 1', 'guarantor: 2']
    """

    transformer: Any
    names: list[str]
    sources: tuple[int, ...]
    takes_names: bool

    @cached_property
    def encoded_names(self) -> list[str]:
        """Outputs of the transformer, by the column they come from."""
        counts = np.bincount(self.sources, minlength=len(self.names))
        seen = dict.fromkeys(range(len(self.names)), 0)
        encoded = []
        for source in self.sources:
            seen[source] += 1
            encoded.append(self.names[source] + (f": {seen[source]}" if counts[source] > 1 else ""))
        return encoded

    @cached_property
    def join_matrix(self) -> NDArray[np.float64]:
        """1 if an output (row) comes from a column of the table (column), else 0."""
        is_source: NDArray[np.bool_] = np.asarray(self.sources)[:, None] == np.arange(len(self.names))
        return is_source.astype(np.float64)

    def transform(self, table: pd.DataFrame) -> NDArray[np.float64]:
        """The transformer's outputs as a dense float64 matrix."""
        return dense(_transformed(self.transformer, table, self.takes_names))


def pipeline_encoder(transformer: Any, table: pd.DataFrame | None = None) -> PipelineEncoder | None:  # noqa: ANN401
    """A fitted transformer as an encoding; None if outputs mix columns, or are not all numbers.

    Parameters
    ----------
    transformer
        Fitted transformer; those of scikit-learn are inspected, any other is tested on `table`.
    table
        People to test it on: if one column changes, only the outputs that come from it may change.
    """
    names = fitted_names(transformer)
    n_inputs = getattr(transformer, "n_features_in_", None)
    takes_names = names is not None or (n_inputs is None and _takes_tables(transformer, table))
    if names is None:
        if table is None and n_inputs is None:
            return None
        names = [f"x{j}" for j in range(n_inputs or 0)] if table is None else [str(name) for name in table.columns]
    sources = column_sources(transformer, len(names))
    if table is not None and set(names) <= set(table.columns):
        part = None if sources is not None else part_that_mixes(transformer, len(names))
        if part is not None and type(part).__module__.startswith("sklearn.") and not hasattr(part, "func"):
            return None  # known to mix columns, even if these people do not show it
        try:
            moves = _probed(transformer, table[names], takes_names)
        except NotNumbersError:
            return None
        sources = _agreed(sources, moves)
    return None if sources is None else PipelineEncoder(transformer, names, tuple(sources), takes_names)


def _takes_tables(transformer: Any, table: pd.DataFrame | None) -> bool:  # noqa: ANN401
    """Whether a transformer that does not record what it was fitted on accepts a table."""
    if table is None:
        return False
    try:
        transformer.transform(table.iloc[:2])
    except Exception:  # from any library, on input that it does not accept
        return False
    return True


class NotNumbersError(InvalidInputError):
    """A transformer's outputs are not numbers."""


def dense(values: Any) -> NDArray[np.float64]:  # noqa: ANN401 - a matrix of any kind
    """A matrix, sparse or not, as a dense float64 array.

    Raises
    ------
    InvalidInputError
        If it is sparse and too large, or does not hold numbers.
    """
    if hasattr(values, "toarray"):
        n, d = values.shape
        if n * d > _MAX_DENSE_VALUES:
            raise InvalidInputError(
                f"The pipeline produces a sparse matrix of {n} rows and {d} columns, too large for memory; combine "
                "rare categories (`min_frequency` of OneHotEncoder) or audit fewer people at a time."
            )
        values = values.toarray()
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise NotNumbersError(f"The pipeline's steps must end in numbers: {first_line(error)}.") from None


def _transformed(transformer: Any, table: pd.DataFrame, takes_names: bool) -> Any:  # noqa: ANN401
    try:
        return transformer.transform(table if takes_names else table.to_numpy())
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidInputError(
            f"The pipeline cannot encode the table: {first_line(error)}.{_suspects(table)}"
        ) from error


def _suspects(table: pd.DataFrame) -> str:
    """The columns that a step may have failed on, in words: it names none itself."""
    numbers = [c for c in table.columns if is_number_column(table[c])]
    infinite = [str(c) for c in numbers if np.isinf(table[c].to_numpy(dtype=np.float64, na_value=np.nan)).any()]
    text = {str(c): str(table[c].dropna().iloc[0]) for c in text_columns(table) if table[c].notna().any()}
    sentences = [
        f" Columns with infinite values: {infinite}." if infinite else "",
        f" Columns of text, with a value of each: {text}." if text else "",
    ]
    return "".join(sentences)


def _probed(transformer: Any, table: pd.DataFrame, takes_names: bool) -> NDArray[np.bool_]:  # noqa: ANN401
    """Whether each output (row) changes when a column (column) does, for the first people of the table."""
    few = table.iloc[:_PROBED_ROWS].reset_index(drop=True)
    before = dense(_transformed(transformer, few, takes_names))
    moves = np.zeros((before.shape[1], few.shape[1]), dtype=bool)
    for j, name in enumerate(few.columns):
        turned = few.copy()
        turned[name] = few[name].array[np.roll(np.arange(len(few)), 1)]
        after = dense(_transformed(transformer, turned, takes_names))
        moves[:, j] = ~((before == after) | (np.isnan(before) & np.isnan(after))).all(axis=0)
    return moves


def _agreed(sources: list[int] | None, moves: NDArray[np.bool_]) -> list[int] | None:
    """Sources that are consistent with the observed changes; derived from them if unknown."""
    if sources is None:
        return moves.argmax(axis=1).tolist() if (moves.sum(axis=1) == 1).all() else None
    if len(sources) != len(moves):
        return None
    elsewhere = moves.copy()
    elsewhere[np.arange(len(sources)), sources] = False
    return None if elsewhere.any() else sources
