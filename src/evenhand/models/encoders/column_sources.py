"""The table column behind each output of a fitted transformer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from evenhand.models.encoders.named_columns import fitted_names
from evenhand.models.encoders.steps import Steps

__all__ = ["column_sources", "part_that_mixes"]

Sources = list[int]
Reader = Callable[[Any, int], Sources | None]


def column_sources(transformer: Any, n_inputs: int) -> Sources | None:  # noqa: ANN401 - any transformer
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


def part_that_mixes(transformer: Any, n_inputs: int) -> Any:  # noqa: ANN401
    """The first part of a transformer whose outputs cannot be traced to single columns."""
    for part, width in _parts(transformer, n_inputs):
        if column_sources(part, width) is None:
            return part_that_mixes(part, width)
    return transformer


def _parts(transformer: Any, n_inputs: int) -> list[tuple[Any, int]]:  # noqa: ANN401
    """Transformers inside a transformer, with the number of columns of each, if known."""
    if hasattr(transformer, "transformers_"):
        names = fitted_names(transformer)
        return [(part, len(_positions(columns, names, n_inputs))) for _, part, columns in transformer.transformers_]
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


def _one_to_one(transformer: Any, n_inputs: int) -> Sources:  # noqa: ANN401
    return list(range(n_inputs))


def _simple_imputer(transformer: Any, n_inputs: int) -> Sources:  # noqa: ANN401
    kept = list(range(n_inputs))
    if not transformer.keep_empty_features and transformer.strategy != "constant":
        statistics = np.asarray(transformer.statistics_, dtype=object)
        kept = [j for j in kept if statistics[j] == statistics[j]]
    flagged = [] if transformer.indicator_ is None else [int(j) for j in transformer.indicator_.features_]
    return [*kept, *flagged]


def _missing_indicator(transformer: Any, n_inputs: int) -> Sources:  # noqa: ANN401
    return [int(j) for j in transformer.features_]


def _one_hot_encoder(transformer: Any, n_inputs: int) -> Sources:  # noqa: ANN401
    return _repeated(transformer._n_features_outs)


def _bins(transformer: Any, n_inputs: int) -> Sources:  # noqa: ANN401
    return list(range(n_inputs)) if transformer.encode == "ordinal" else _repeated(transformer.n_bins_)


def _splines(transformer: Any, n_inputs: int) -> Sources:  # noqa: ANN401
    return _repeated([transformer.n_features_out_ // n_inputs] * n_inputs)


def _selected(transformer: Any, n_inputs: int) -> Sources:  # noqa: ANN401
    return [int(j) for j in transformer.get_support(indices=True)]


def _function(transformer: Any, n_inputs: int) -> Sources | None:  # noqa: ANN401
    by_itself = transformer.func is None or isinstance(transformer.func, np.ufunc)
    return list(range(n_inputs)) if by_itself or transformer.feature_names_out == "one-to-one" else None


def _target_encoder(transformer: Any, n_inputs: int) -> Sources | None:  # noqa: ANN401
    return list(range(n_inputs)) if transformer.target_type_ != "multiclass" else None


def _pipeline(transformer: Any, n_inputs: int) -> Sources | None:  # noqa: ANN401
    sources = list(range(n_inputs))
    for _, step in transformer.steps:
        following = column_sources(step, len(sources))
        if following is None:
            return None
        sources = [sources[j] for j in following]
    return sources


def _column_transformer(transformer: Any, n_inputs: int) -> Sources | None:  # noqa: ANN401
    names = fitted_names(transformer)
    width = max((part.stop for part in transformer.output_indices_.values()), default=0)
    sources = [-1] * width
    for name, part, columns in transformer.transformers_:
        place = transformer.output_indices_[name]
        if part == "drop" or place.start == place.stop:
            continue
        positions = _positions(columns, names, n_inputs)
        inner = column_sources(part, len(positions))
        if inner is None or len(inner) != place.stop - place.start:
            return None
        sources[place] = [positions[j] for j in inner]
    return None if -1 in sources else sources


def _feature_union(transformer: Any, n_inputs: int) -> Sources | None:  # noqa: ANN401
    parts = [column_sources(part, n_inputs) for _, part in transformer.transformer_list if part != "drop"]
    return None if any(part is None for part in parts) else [j for part in parts for j in part or []]


def _repeated(widths: Sequence[int]) -> Sources:
    return np.repeat(np.arange(len(widths)), widths).tolist()


def _positions(columns: Any, names: list[str] | None, n_inputs: int) -> list[int]:  # noqa: ANN401
    """Columns of a ColumnTransformer, given by name, position, slice or mask, as positions."""
    if isinstance(columns, slice):
        if isinstance(columns.start, str) or isinstance(columns.stop, str):  # by name, both ends included
            assert names is not None
            start = 0 if columns.start is None else names.index(columns.start)
            stop = n_inputs if columns.stop is None else names.index(columns.stop) + 1
            return list(range(n_inputs))[start : stop : columns.step]
        return list(range(n_inputs))[columns]
    chosen: list[Any] = [columns] if isinstance(columns, (str, int, np.integer)) else list(columns)
    if chosen and all(isinstance(c, (bool, np.bool_)) for c in chosen):
        return np.flatnonzero(chosen).tolist()
    if chosen and isinstance(chosen[0], str):
        assert names is not None
        return [names.index(column) for column in chosen]
    return [int(c) % n_inputs for c in chosen]


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
        _one_to_one,
    ),
    "ColumnTransformer": _column_transformer,
    "FeatureUnion": _feature_union,
    "FunctionTransformer": _function,
    "KBinsDiscretizer": _bins,
    "MissingIndicator": _missing_indicator,
    "OneHotEncoder": _one_hot_encoder,
    "Pipeline": _pipeline,
    "SelectorMixin": _selected,
    "SimpleImputer": _simple_imputer,
    "SplineTransformer": _splines,
    "TargetEncoder": _target_encoder,
}
_READERS: dict[str, dict[str, Reader]] = {"sklearn": _SKLEARN, "optbinning": {"BinningProcess": _selected}}
