"""What a comparison with another audit of the same people needs: influences by bucket of people."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.exceptions import DataFileError
from evenhand.metrics.influence import folded

__all__ = ["Influence", "Influences", "gap_key", "input_key"]

_MOST_VALUES = 1 << 16  # for all columns together: 175 KB of text
_FEWEST_BUCKETS = 64
_EDITED = "The influences on {} were cut or edited: write the audit again with to_json."


def gap_key(group: str, reference: str, unit: str = "") -> str:
    """Name of a score gap between two groups; `unit` is empty for the unit of the explanations.

    Examples
    --------
    >>> gap_key("b", "a"), gap_key("b", "a", "decision")
    ('score_gap: b minus a', 'score_gap_decision: b minus a')
    """
    return f"score_gap{'_' if unit else ''}{unit}: {group} minus {reference}"


def input_key(feature: str, group: str, reference: str) -> str:
    """Name of an input's part of the score gap between two groups."""
    return f"input: {feature}: {group} minus {reference}"


@dataclass(frozen=True)
class Influence:
    """The place of the influences on a metric, and whether they are of the metric or of its negative."""

    name: str
    sign: float = 1.0


@dataclass(frozen=True, eq=False)
class Influences:
    """Influences on the estimates of an audit, by name; each is a sum over the people of a bucket, up to a factor."""

    columns: Mapping[str, NDArray[np.float16]]

    @classmethod
    def of(cls, columns: Mapping[str, NDArray[np.floating]]) -> Influences:
        """Influences in half precision, in fewer buckets where there are many estimates.

        Examples
        --------
        >>> Influences.of({"excess": np.array([0.5, -2.0, 1.5])}).columns["excess"]
        array([ 0.25, -1.  ,  0.75], dtype=float16)
        """
        n_buckets = max((len(values) for values in columns.values()), default=0)
        while n_buckets * len(columns) > _MOST_VALUES and n_buckets > _FEWEST_BUCKETS:
            n_buckets //= 2
        return cls({name: _scaled(folded(values, n_buckets)) for name, values in columns.items()})

    def of_metric(self, influence: Influence | None) -> NDArray[np.float64] | None:
        """Influences on an estimate, or on its negative; None if they are not kept."""
        found = None if influence is None else self.columns.get(influence.name)
        return None if found is None or influence is None else influence.sign * found.astype(np.float64)

    def to_dict(self) -> dict[str, str]:
        """Each column as text: base64 of little-endian half-precision numbers."""
        return {name: base64.b64encode(v.astype("<f2").tobytes()).decode() for name, v in self.columns.items()}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Influences:
        """Read what `to_dict` returned.

        Examples
        --------
        >>> found = Influences.of({"excess": np.array([0.5, -2.0, 1.5])})
        >>> Influences.from_dict(found.to_dict()).columns["excess"].tolist()
        [0.25, -1.0, 0.75]

        Raises
        ------
        DataFileError
            If a text is not what `to_dict` writes.
        """
        columns = {name: _decoded(name, text) for name, text in plain.items()}
        shapes = [values.shape for values in columns.values()]
        for name, values in columns.items():
            if values.shape != max(shapes, key=shapes.count) or not np.isfinite(values).all():
                raise DataFileError(_EDITED.format(name))
        return cls(columns)


def _decoded(name: str, text: str) -> NDArray[np.float16]:
    try:
        return np.frombuffer(base64.b64decode(text, validate=True), dtype="<f2")
    except ValueError as error:
        raise DataFileError(_EDITED.format(name)) from error


def _scaled(values: NDArray[np.float64]) -> NDArray[np.float16]:
    largest = np.abs(values).max(initial=0.0)
    return (values / largest if largest > 0 else values).astype(np.float16)
