"""What a method must provide to be compared with the others."""

from __future__ import annotations

from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from evenhand.models.protocol import AuditedModel

__all__ = ["Method", "RepairsTable"]


@runtime_checkable
class Method(Protocol):
    """A way to train a model, its decisions, and the score whose reasons are compared."""

    def fit(self, X: Any, y: ArrayLike, *, sensitive_features: Any) -> Self:  # noqa: ANN401 - any table, any column
        """Learn from people, their labels 0 or 1 and their groups."""
        ...

    def predict(self, X: Any, sensitive_features: Any = None) -> NDArray[np.int64]:  # noqa: ANN401
        """Decisions 0 or 1, of shape (n,); always the same for the same rows."""
        ...

    def predict_proba(self, X: Any, sensitive_features: Any = None) -> NDArray[np.float64]:  # noqa: ANN401
        """Expected decisions or probabilities, of shape (n, 2)."""
        ...

    def audited_model(self) -> AuditedModel:
        """The differentiable score that is attributed."""
        ...


@runtime_checkable
class RepairsTable(Protocol):
    """A method whose score is a function of a changed table."""

    def audited_table(self, X: Any, sensitive_features: Any = None) -> pd.DataFrame:  # noqa: ANN401
        """The table that `audited_model()` takes."""
        ...
