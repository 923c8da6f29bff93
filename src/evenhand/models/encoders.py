"""Encodings of a table of people as a model's input matrix.

A pipeline's steps before its classifier, columns by name, and tables of categories as codes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.arrays import Floats
from evenhand.exceptions import InvalidInputError, first_line
from evenhand.inputs.validation import as_matrix, is_number_column, text_columns


def fitted_names(model: Any) -> list[str] | None:
    """Names of the columns that a scikit-learn or optbinning model was fitted on; None if they had none."""
    names = getattr(model, "feature_names_in_", None)
    if names is None and type(model).__module__.startswith("optbinning."):
        names = getattr(model, "variable_names", None)
    return None if names is None else [str(name) for name in names]


def spread_people(table: pd.DataFrame, n: int = 64) -> pd.DataFrame:
    """At most n people, spread over a table, to try a model on."""
    return table.iloc[np.linspace(0, len(table) - 1, min(len(table), n)).astype(np.int64)]


class OneToOne:
    """An encoding whose inputs are the table's columns, one to one."""

    names: list[str]

    @property
    def join_matrix(self) -> NDArray[np.float64]:
        """The identity."""
        return np.eye(len(self.names))


@dataclass(frozen=True)
class NamedColumns(OneToOne):
    """Numeric columns, unchanged: an encoding that only ensures the order.

    Attributes
    ----------
    names
        Columns of the table, in the order of the model's inputs.
    takes_missing
        Whether a value may be missing.
    takes_names
        Whether the names are the model's, and not only those of the table.
    """

    names: list[str]
    takes_missing: bool = False
    takes_names: bool = True

    def transform(self, table: pd.DataFrame) -> NDArray[np.floating]:
        """The columns as a float64 matrix."""
        return as_matrix(table[self.names], dtype=np.float64, allow_missing=self.takes_missing)


@dataclass(frozen=True, eq=False)
class Steps:
    """Fitted transformers in the order in which they are applied to a table.

    A scikit-learn Pipeline asks its last step whether it is fitted, and treats a step as unfitted if its learned
    attributes have names without a trailing underscore, as in some other libraries. Here every step is simply called.

    Attributes
    ----------
    steps
        Names and transformers.
    """

    steps: tuple[tuple[str, Any], ...]

    @property
    def feature_names_in_(self) -> list[str] | None:
        """Columns that the first step was fitted on, if known."""
        return fitted_names(self.steps[0][1])

    @property
    def n_features_in_(self) -> int:
        """Number of columns that the first step was fitted on, if known."""
        return int(self.steps[0][1].n_features_in_)

    def transform(self, table: Any) -> Any:
        """The output of the last step for a table."""
        for _, step in self.steps:
            table = step.transform(table)
        return table


def flat_steps(pipeline: Any) -> Iterator[tuple[str, Any]]:
    """Steps of a pipeline that apply when people are scored; nested pipelines are opened.

    Disabled steps, and samplers of imbalanced-learn, which change the people only during fitting, are skipped.
    """
    for name, step in pipeline.steps:
        if step is None or isinstance(step, str) or hasattr(step, "fit_resample"):
            continue
        if hasattr(step, "steps"):
            yield from flat_steps(step)
        else:
            yield name, step


Sources = list[int]
Reader = Callable[[Any, int], Sources | None]


def column_sources(transformer: Any, n_inputs: int) -> Sources | None:
    """Position of the input column behind each output column; None if it is unknown, or there are several.

    Examples
    --------
    >>> from sklearn.preprocessing import OneHotEncoder
    >>> encoder = OneHotEncoder().fit([["rent", "yes"], ["own", "no"], ["free", "no"]])
    >>> column_sources(encoder, 2)
    [0, 0, 0, 1, 1]
    """
    if transformer is None or isinstance(transformer, str):
        return [] if transformer == "drop" else list(range(n_inputs))
    if isinstance(transformer, Steps):
        return _pipeline(transformer, n_inputs)
    if hasattr(transformer, "sources"):  # one of ours
        return list(transformer.sources)
    for kind in type(transformer).__mro__:
        reader = _READERS.get(kind.__module__.split(".")[0], {}).get(kind.__name__)
        if reader is not None:
            return reader(transformer, n_inputs)
    return None


def part_that_mixes(transformer: Any, n_inputs: int) -> Any:
    """The first part of a transformer whose outputs cannot be traced to single columns."""
    for part, width in _parts(transformer, n_inputs):
        if column_sources(part, width) is None:
            return part_that_mixes(part, width)
    return transformer


def _parts(transformer: Any, n_inputs: int) -> list[tuple[Any, int]]:
    """Transformers inside a transformer, with the number of columns of each, if known."""
    if hasattr(transformer, "transformers_"):
        chosen = transformer._transformer_to_input_indices
        return [(part, len(chosen[name])) for name, part, _ in transformer.transformers_]
    if hasattr(transformer, "transformer_list"):
        return [(part, n_inputs) for _, part in transformer.transformer_list]
    parts = []
    for _, part in getattr(transformer, "steps", []):
        parts.append((part, n_inputs))
        sources = column_sources(part, n_inputs)
        if sources is None:
            break
        n_inputs = len(sources)
    return parts


def _simple_imputer(transformer: Any, n_inputs: int) -> Sources:
    kept = list(range(n_inputs))
    if not transformer.keep_empty_features and transformer.strategy != "constant":
        statistics = np.asarray(transformer.statistics_, dtype=object)
        kept = [j for j in kept if statistics[j] == statistics[j]]
    flagged = [] if transformer.indicator_ is None else [int(j) for j in transformer.indicator_.features_]
    return [*kept, *flagged]


def _selected(transformer: Any, n_inputs: int) -> Sources:
    return [int(j) for j in transformer.get_support(indices=True)]


def _function(transformer: Any, n_inputs: int) -> Sources | None:
    by_itself = transformer.func is None or isinstance(transformer.func, np.ufunc)
    return list(range(n_inputs)) if by_itself or transformer.feature_names_out == "one-to-one" else None


def _pipeline(transformer: Any, n_inputs: int) -> Sources | None:
    sources = list(range(n_inputs))
    for _, step in transformer.steps:
        following = column_sources(step, len(sources))
        if following is None:
            return None
        sources = [sources[j] for j in following]
    return sources


def _column_transformer(transformer: Any, n_inputs: int) -> Sources | None:
    width = max((part.stop for part in transformer.output_indices_.values()), default=0)
    sources = [-1] * width
    for name, part, _ in transformer.transformers_:
        place = transformer.output_indices_[name]
        if part == "drop" or place.start == place.stop:
            continue
        chosen = transformer._transformer_to_input_indices[name]
        inner = column_sources(part, len(chosen))
        if inner is None or len(inner) != place.stop - place.start:
            return None
        sources[place] = [chosen[j] for j in inner]
    return None if -1 in sources else sources


def _feature_union(transformer: Any, n_inputs: int) -> Sources | None:
    parts = [column_sources(part, n_inputs) for _, part in transformer.transformer_list if part != "drop"]
    return None if any(part is None for part in parts) else [j for part in parts for j in part or []]


def _repeated(widths: Sequence[int]) -> Sources:
    return np.repeat(np.arange(len(widths)), widths).tolist()


# Transformers that make each output from one input, by library.
_SKLEARN: dict[str, Reader] = {
    **dict.fromkeys(
        (
            "Binarizer",
            "MaxAbsScaler",
            "MinMaxScaler",
            "OrdinalEncoder",
            "PowerTransformer",
            "QuantileTransformer",
            "RobustScaler",
            "StandardScaler",
        ),
        lambda transformer, n_inputs: list(range(n_inputs)),
    ),
    "ColumnTransformer": _column_transformer,
    "FeatureUnion": _feature_union,
    "FunctionTransformer": _function,
    "KBinsDiscretizer": lambda transformer, n_inputs: (
        list(range(n_inputs)) if transformer.encode == "ordinal" else _repeated(transformer.n_bins_)
    ),
    "MissingIndicator": lambda transformer, n_inputs: [int(j) for j in transformer.features_],
    "OneHotEncoder": lambda transformer, n_inputs: _repeated(transformer._n_features_outs),
    "Pipeline": _pipeline,
    "SelectorMixin": _selected,
    "SimpleImputer": _simple_imputer,
    "SplineTransformer": lambda transformer, n_inputs: _repeated([transformer.n_features_out_ // n_inputs] * n_inputs),
    "TargetEncoder": lambda transformer, n_inputs: (
        list(range(n_inputs)) if transformer.target_type_ != "multiclass" else None
    ),
}
_READERS: dict[str, dict[str, Reader]] = {"sklearn": _SKLEARN, "optbinning": {"BinningProcess": _selected}}


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
    >>> encoder.sources
    (0, 0, 1, 1)
    """

    transformer: Any
    names: list[str]
    sources: tuple[int, ...]
    takes_names: bool

    @cached_property
    def join_matrix(self) -> NDArray[np.float64]:
        """1 if an output (row) comes from a column of the table (column), else 0."""
        is_source: NDArray[np.bool_] = np.asarray(self.sources)[:, None] == np.arange(len(self.names))
        return is_source.astype(np.float64)

    def transform(self, table: pd.DataFrame) -> NDArray[np.float64]:
        """The transformer's outputs as a dense float64 matrix."""
        return _transformed(self.transformer, table, self.takes_names)


def pipeline_encoder(transformer: Any, table: pd.DataFrame | None = None) -> PipelineEncoder | None:
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


def _takes_tables(transformer: Any, table: pd.DataFrame | None) -> bool:
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


def _transformed(transformer: Any, table: pd.DataFrame, takes_names: bool) -> NDArray[np.float64]:
    try:
        values = transformer.transform(table if takes_names else table.to_numpy())
    except (ValueError, TypeError, KeyError, AttributeError) as error:  # the last of an altered file
        raise InvalidInputError(
            f"The pipeline cannot encode the table: {first_line(error)}.{_suspects(table)}"
        ) from error
    return dense(values)


def dense(values: Any) -> NDArray[np.float64]:
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


def _probed(transformer: Any, table: pd.DataFrame, takes_names: bool) -> NDArray[np.bool_]:
    """Whether each output (row) changes when a column (column) does, for the first people of the table."""
    few = table.iloc[:_PROBED_ROWS].reset_index(drop=True)
    before = _transformed(transformer, few, takes_names)
    moves = np.zeros((before.shape[1], few.shape[1]), dtype=bool)
    for j, name in enumerate(few.columns):
        turned = few.copy()
        turned[name] = few[name].array[np.roll(np.arange(len(few)), 1)]
        after = _transformed(transformer, turned, takes_names)
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


# What pandas finds in a column of objects.
_NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal")
_CATEGORIES = ("string", "boolean", "bytes", "empty")
_MIXTURES = ("mixed", "mixed-integer")
_PLAIN = (str, bytes, bool, int, float, np.generic)

_MEETING = Lock()


@dataclass(frozen=True, eq=False)
class ValueCodes:
    """The values of a column in the order of their codes.

    A value that was not seen before, in a later batch or in a reference, gets the next code. Codes have no meaning
    beyond their values, so no metric depends on which value was seen first.

    Attributes
    ----------
    dtype
        Type of the column.
    values, places
        The values, and the code of each.
    """

    dtype: Any
    values: list[Any] = field(default_factory=list)
    places: dict[Any, int] = field(default_factory=dict)

    @classmethod
    def of(cls, column: pd.Series[Any]) -> ValueCodes:
        """The codes of a column: in the order of a pandas category's values, otherwise sorted."""
        found = cls(column.dtype)
        if isinstance(column.dtype, pd.CategoricalDtype):
            found.meet(column.dtype.categories.tolist())
        else:
            found.codes(column)
        return found

    def meet(self, values: Sequence[Any]) -> None:
        """Assign codes to values that have none."""
        with _MEETING:
            for value in values:
                if value not in self.places:
                    self.places[value] = len(self.values)
                    self.values.append(value)

    def codes(self, column: pd.Series[Any]) -> Floats:
        """The code of each value; NaN for a missing one."""
        which, met = pd.factorize(column)
        found = pd.Index(met).tolist()
        self.meet(sorted(found, key=lambda value: (type(value).__name__, value)))
        return np.asarray([*(self.places[value] for value in found), np.nan])[which]

    def decoded(self, codes: Floats) -> Any:
        """The values of codes, as an array of the column's type."""
        is_missing = ~(codes < len(self.values))  # even if a column has no values
        place = np.where(is_missing, -1, codes).astype(np.int64)
        if isinstance(self.dtype, pd.CategoricalDtype):
            known: pd.Index[Any] = self.dtype.categories
            categories = known if len(known) == len(self.values) else pd.Index(list(self.values))
            return pd.Categorical.from_codes(place, categories=categories, ordered=self.dtype.ordered)
        if not isinstance(self.dtype, np.dtype):
            return pd.Series(list(self.values), dtype=self.dtype).array.take(place, allow_fill=True)
        stored = np.asarray([*self.values, np.nan], dtype=object)
        # numpy's integers and booleans cannot be missing.
        return pd.Series(stored[place], dtype=object if is_missing.any() else self.dtype)


@dataclass(frozen=True, eq=False)
class CodedTable(OneToOne):
    """Columns of a table as numbers: a reversible encoding.

    Attributes
    ----------
    names
        Columns of the table.
    columns
        Codes of the values of each column; None for a column of numbers.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"income": [1.5, 2.0], "home": ["rent", "own"]})
    >>> coded = CodedTable.of(table)
    >>> coded.transform(table)
    array([[1.5, 1. ],
           [2. , 0. ]])
    >>> coded.decoded(np.array([[1.75, 1.0]]))
       income  home
    0    1.75  rent
    """

    names: list[str]
    columns: tuple[ValueCodes | None, ...]

    @classmethod
    def of(cls, table: pd.DataFrame, categorical: Sequence[str] = ()) -> CodedTable:
        """Learn the columns of a table.

        Parameters
        ----------
        table
            The people.
        categorical
            Columns that are categories even if they hold numbers.

        Raises
        ------
        InvalidInputError
            If a column holds neither numbers nor categories.
        """
        names = [str(name) for name in table.columns]
        kinds = {name: "category" if name in categorical else _kind(table[name]) for name in names}
        strange = {name: str(table[name].dtype) for name, kind in kinds.items() if kind == "other"}
        if strange:
            raise InvalidInputError(
                f"The table has columns that are neither numbers nor categories (column: type): {strange}; turn them "
                "into numbers, such as days since a date, or into text."
            )
        return cls(names, tuple(ValueCodes.of(table[n]) if kinds[n] == "category" else None for n in names))

    @property
    def categorical(self) -> tuple[int, ...]:
        """Positions of the columns that are categories."""
        return tuple(j for j, codes in enumerate(self.columns) if codes is not None)

    def transform(self, table: pd.DataFrame) -> Floats:
        """Numbers, and codes of all other values; NaN for what is missing.

        Raises
        ------
        InvalidInputError
            If a column that held numbers holds something else.
        """
        matrix = np.empty((len(table), len(self.names)))
        for j, (name, codes) in enumerate(zip(self.names, self.columns, strict=True)):
            column = table[name]
            if codes is None and _kind(column) != "number":
                raise InvalidInputError(
                    f"The column {name!r} holds numbers for the audited people, but values of type {column.dtype} "
                    "here; give it the same type."
                )
            matrix[:, j] = column.astype("float64").to_numpy(na_value=np.nan) if codes is None else codes.codes(column)
        return matrix

    def decoded(self, matrix: Floats) -> pd.DataFrame:
        """Convert a matrix back to a table; numbers are float64, because a baseline holds means."""
        columns = zip(self.names, self.columns, matrix.T, strict=True)
        return pd.DataFrame(
            {name: values if codes is None else codes.decoded(values) for name, codes, values in columns}
        )


def _kind(column: pd.Series[Any]) -> str:
    """Whether a column holds a "number", a "category" or something "other"."""
    if is_number_column(column):
        return "other" if column.dtype.kind == "c" else "number"
    if column.dtype == object:
        inferred = pd.api.types.infer_dtype(column, skipna=True)
        is_category = inferred in _CATEGORIES or (inferred in _MIXTURES and _is_plain(column))
        return "number" if inferred in _NUMBERS else "category" if is_category else "other"
    is_category = isinstance(column.dtype, pd.CategoricalDtype)
    is_text = pd.api.types.is_string_dtype(column.dtype) or pd.api.types.is_bool_dtype(column.dtype)
    return "category" if is_category or is_text else "other"


def _is_plain(column: pd.Series[Any]) -> bool:
    """Whether a column of objects holds only text, numbers or booleans."""
    try:
        return all(isinstance(value, _PLAIN) for value in column.dropna().unique())
    except TypeError:  # lists and the like are not hashable
        return False
