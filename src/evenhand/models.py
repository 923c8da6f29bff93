"""What the audit needs of a model, and how a model of each kind offers it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from evenhand.attribution import Attribution, FeedForward, attribute
from evenhand.attribution.gradients import Method, placement
from evenhand.encoding import CategoryColumn, TableEncoder
from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.validation import as_matrix

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["AuditedModel", "OffersAuditedModel", "as_audited_model"]


@runtime_checkable
class OffersAuditedModel(Protocol):
    """A fitted estimator that knows how it is to be audited."""

    def audited_model(self) -> AuditedModel:
        """Return the model as the audit sees it."""
        ...


@dataclass(frozen=True)
class AuditedModel:
    """A differentiable score over a table of people.

    Attributes
    ----------
    network
        Maps the encoded table, of shape (n, d), to one logit per row.
    kind
        What it was made from, in words.
    encoder
        Encoding of the table; None where the network takes the columns as they are.
    """

    network: nn.Module | FeedForward
    kind: str
    encoder: TableEncoder | None = None

    def encode(self, table: pd.DataFrame, name: str = "X") -> Tensor:
        """Return the table as the network sees it, on the network's device."""
        dtype, device = placement(self.network)
        values = as_matrix(table, name) if self.encoder is None else self.encoder.transform(table)
        return torch.tensor(values, dtype=dtype, device=device)

    def join_matrix(self) -> Tensor | None:
        """Matrix that sums encoded columns into the table's columns; None where they are the same."""
        if self.encoder is None or len(self.encoder.encoded_names) == len(self.encoder.columns):
            return None
        dtype, device = placement(self.network)
        return torch.as_tensor(self.encoder.join_matrix, dtype=dtype, device=device)

    def financial_table(self, table: pd.DataFrame, financial_features: list[str]) -> pd.DataFrame:
        """Columns on which people are matched; integer codes where the model is fed integer codes."""
        chosen = table[financial_features]
        if self.encoder is None or self.encoder.encoding != "ordinal":
            return chosen
        codes = {
            column.name: column.codes(chosen[column.name])
            for column in self.encoder.columns
            if isinstance(column, CategoryColumn) and column.name in financial_features
        }
        return chosen.assign(**codes)

    def is_financial(self, columns: list[str], financial_features: list[str]) -> NDArray[np.bool_]:
        """Which inputs of the network belong to financial features, of shape (d,)."""
        chosen = np.isin(columns, financial_features)
        if self.encoder is None:
            return chosen
        chosen = np.isin(self.encoder.names, financial_features)
        source: NDArray[np.int64] = self.encoder.join_matrix.argmax(axis=1)
        return chosen[source]

    def attribute(self, x: Tensor, baseline: Tensor, n_steps: int, method: Method) -> Attribution:
        """Integrated gradients of encoded people from encoded baselines, without a graph."""
        with torch.no_grad():
            found = attribute(self.network, x, baseline, n_steps, method)
        if not torch.isfinite(found.logit).all():
            n_bad = int((~torch.isfinite(found.logit)).sum())
            raise InvalidInputError(f"The model returned {n_bad} logits that are missing or infinite.")
        return found


def as_audited_model(model: Any) -> AuditedModel:  # noqa: ANN401 - anything a user may hold
    """Return `model` as the audit sees it.

    A torch module is taken as it is; an estimator that has an `audited_model()` method, as `CECClassifier` does,
    answers for itself.

    Examples
    --------
    >>> as_audited_model(torch.nn.Linear(3, 1)).kind
    'torch module Linear'
    """
    if isinstance(model, AuditedModel):
        return model
    if isinstance(model, nn.Module):
        return AuditedModel(model, f"torch module {type(model).__name__}")
    if isinstance(model, OffersAuditedModel):
        return model.audited_model()
    raise InvalidTypeError(
        f"Cannot audit a {type(model).__name__}: expected a torch module that maps (n, d) to one logit per row, "
        "or a fitted CECClassifier."
    )
