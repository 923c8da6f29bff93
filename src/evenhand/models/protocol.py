"""What the audit needs from any model, and models that are linear or explained by Shapley values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from evenhand.arrays import Array, Bools, Floats, double, is_torch_array, namespace, placed
from evenhand.attribution.explanation import Attribution, Explanation, Method
from evenhand.attribution.shapley import Game, ShapleyAttribution, shapley_attribution
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.encoding import TableEncoder
from evenhand.inputs.validation import as_matrix, is_number_column
from evenhand.system.threads import one_torch_thread

# The explained score: log-odds of the favorable outcome, its probability, or a value in any unit.
Output = Literal["log-odds", "probability", "value"]

AttributionName = Literal["integrated_gradients", "linear", "additive", "tree_shap", "sampled_shapley", "given"]


class EncodesTables(Protocol):
    """A fitted map from a user's table to a model's input matrix, and back to the table's columns."""

    @property
    def names(self) -> list[str]:
        """The table's columns."""
        ...

    @property
    def join_matrix(self) -> NDArray[np.floating]:
        """1 if an encoded column (row) comes from a column of the table (column), else 0."""
        ...

    def transform(self, table: pd.DataFrame) -> NDArray[np.floating]:
        """The matrix of a table."""
        ...


class AuditedModel(ABC):
    """A score over a table of people that can be explained from a baseline.

    Attributes
    ----------
    kind
        A description of the underlying model.
    encoder
        Encoding of the table; None if the model takes the columns directly.
    attribution
        The attribution method that explains it.
    takes_missing
        Whether the score is defined if an input is missing.
    has_probabilities
        Whether `probability` is really a probability; False if a margin is treated as log-odds.
    """

    kind: str
    encoder: EncodesTables | None
    attribution: AttributionName
    takes_missing: bool = False
    output: Output = "log-odds"
    categorical_inputs: tuple[int, ...] = ()
    has_probabilities: bool = True

    @property
    def dtype(self) -> type[np.floating]:
        """Type of the model's input matrix."""
        return np.float64

    @property
    def device(self) -> str | None:
        """The device of a network that is not in memory of the processor, such as ``"cuda:0"``; else None."""
        return None

    @abstractmethod
    def attribute(self, x: Array, baseline: Array, n_steps: int, method: Method) -> Explanation:
        """Attributions of encoded people from encoded baselines, both of shape (n, d).

        `n_steps` and `method` say how gradients are integrated, if they are.
        """

    @abstractmethod
    def margin(self, x: Array) -> Array:
        """The explained score of encoded people, of shape (n,)."""

    @property
    def accepts_missing(self) -> bool:
        """Whether a value of the table may be missing."""
        return self.takes_missing or self.encoder is not None

    def identifying(self, table: pd.DataFrame) -> NDArray[np.float64] | None:
        """Numbers that identify equal rows, of shape (n, k); None to use the encoded rows."""
        return None

    def probability(self, logit: Array) -> Array:
        """Probability of the favorable outcome from the explained score, or the value itself, in float64."""
        score = double(logit)
        if self.output != "log-odds":
            return score
        if not is_torch_array(score):
            return expit(score)
        with one_torch_thread():  # otherwise the last digits depend on how many threads share the people
            return score.sigmoid()

    def favorable_labels(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """1 for the favorable outcome, from labels as the model was fitted on them."""
        return labels

    def encode(self, table: pd.DataFrame, name: str = "X") -> Array:
        """Return the table as the model's input, on the model's device."""
        if self.encoder is None:
            kind = np.dtype(self.dtype)
            values: NDArray[np.floating] = as_matrix(table, name, dtype=kind, allow_missing=self.accepts_missing)
        else:
            values = self.encoder.transform(table)
            self._check_encoded(values, name)
        # A copy, in the order of rows: what is changed in the table afterwards does not change the people.
        return placed(np.array(values, dtype=self.dtype, order="C"), self.device)

    def aligned(self, table: pd.DataFrame, name: str = "X") -> pd.DataFrame:
        """The table with its columns in the model's order.

        Raises
        ------
        InvalidInputError
            If the model names different columns from those of the table.
        """
        if self.encoder is None or list(table.columns) == self.encoder.names:
            return table
        expected, given = self.encoder.names, list(table.columns)
        absent, extra = [c for c in expected if c not in given], [c for c in given if c not in expected]
        if absent or extra:
            raise InvalidInputError(
                f"The columns of `{name}` differ from those the model was fitted on: missing {absent}, "
                f"unexpected {extra}."
            )
        return table[expected]

    def _check_encoded(self, values: NDArray[np.floating], name: str) -> None:
        """Reject encoded people whom the model cannot score."""
        is_bad = np.isinf(values) if self.takes_missing else ~np.isfinite(values)
        if is_bad.any():
            assert self.encoder is not None
            names = np.asarray(self.encoder.names)[self.encoder.join_matrix.argmax(axis=1)]
            bad = {str(c): int(is_bad[:, names == c].any(axis=1).sum()) for c in dict.fromkeys(names)}
            counts = {c: n for c, n in bad.items() if n}
            what = "infinite" if self.takes_missing else "missing or infinite"
            raise InvalidInputError(
                f"`{name}` holds values that are {what} once encoded, which the {self.kind} does not accept "
                f"(column: count): {counts}. Drop those rows or fill them."
            )

    def join_matrix(self) -> Floats | None:
        """Matrix that sums encoded columns into the table's columns; None if they are the same."""
        if self.encoder is None:
            return None
        join = self.encoder.join_matrix
        if join.shape[0] == join.shape[1] and np.array_equal(join, np.eye(len(join))):
            return None
        return np.asarray(join, dtype=np.float64)

    def category_columns(self, columns: list[str]) -> list[str]:
        """The table's columns that the model treats as categories."""
        names = columns if self.encoder is None else self.encoder.names
        source = range(len(names)) if self.encoder is None else self.encoder.join_matrix.argmax(axis=1)
        found = {names[source[j]] for j in self.categorical_inputs}
        return [column for column in columns if column in found]

    def financial_table(self, table: pd.DataFrame, financial_features: list[str]) -> pd.DataFrame:
        """Columns on which people are matched.

        Categories that are numbers in the table are categories for matching if they are for the model; categories are
        integer codes if the model takes integer codes as numbers.
        """
        chosen = table[financial_features]
        categories = self.category_columns(list(table.columns))
        numbered = [c for c in financial_features if c in categories and is_number_column(chosen[c])]
        if numbered:
            chosen = chosen.astype(dict.fromkeys(numbered, "category"))
        return self.encoder.as_matched(chosen) if isinstance(self.encoder, TableEncoder) else chosen

    def is_financial(self, columns: list[str], financial_features: list[str]) -> NDArray[np.bool_]:
        """Which inputs of the model belong to financial features, of shape (d,)."""
        if self.encoder is None:
            return np.isin(columns, financial_features)
        chosen = np.isin(self.encoder.names, financial_features)
        source: NDArray[np.int64] = self.encoder.join_matrix.argmax(axis=1)
        return chosen[source]


def check_finite(logit: Array) -> None:
    """Reject scores that are missing or infinite."""
    is_finite = namespace(logit).isfinite(logit)
    if not is_finite.all():
        n_bad = int((~is_finite).sum())
        raise InvalidInputError(f"The model returned {n_bad} logits that are missing or infinite.")


@dataclass(frozen=True, eq=False)
class LinearModel(AuditedModel):
    """A weighted sum of the encoded table plus an intercept.

    An input's attribution is its weight times its distance from the baseline. Integrated gradients and Shapley values
    both reduce to this, so nothing is integrated or sampled.

    Attributes
    ----------
    weights
        One per encoded column, of shape (d,), in float64.
    intercept
        The score if every input is 0.
    has_probabilities
        Whether the score is log-odds, and not a margin treated as log-odds.

    Examples
    --------
    >>> model = LinearModel(np.array([2.0, -1.0]), 0.5, "scorecard")
    >>> x = np.array([[1.0, 1.0]])
    >>> model.attribute(x, np.zeros_like(x), 1, "segments").values.tolist()
    [[2.0, -1.0]]
    """

    weights: Floats
    intercept: float
    kind: str
    encoder: EncodesTables | None = None
    attribution: AttributionName = "linear"
    output: Output = "log-odds"
    has_probabilities: bool = True

    def attribute(self, x: Floats, baseline: Floats, n_steps: int, method: Method) -> Attribution:
        """Weights times distances from the baselines; the steps and the method do not matter."""
        logit, baseline_logit = self.margin(x), self.margin(baseline)
        check_finite(logit)
        return Attribution(np.broadcast_to(self.weights, x.shape), x - baseline, logit, baseline_logit, "exact")

    def margin(self, x: Floats) -> Floats:
        """The weighted sum of encoded people."""
        if x.shape[-1] != len(self.weights):
            raise InvalidInputError(f"The {self.kind} takes {len(self.weights)} inputs, got {x.shape[-1]}.")
        return x @ self.weights + self.intercept


@dataclass(frozen=True)
class ShapleyModel(AuditedModel):
    """A score with the game that explains it: a tree ensemble, or a black box.

    Attributes
    ----------
    game
        The score and its Shapley values.
    output
        Whether the score is log-odds or a probability.
    takes_missing
        Whether the score is defined if an input is missing.
    categorical_inputs
        Positions of the inputs that are codes of categories.
    has_probabilities
        Whether the score is log-odds or a probability, and not a margin treated as log-odds.
    """

    game: Game
    kind: str
    encoder: EncodesTables | None = None
    output: Output = "log-odds"
    takes_missing: bool = False
    attribution: AttributionName = "sampled_shapley"
    categorical_inputs: tuple[int, ...] = ()
    has_probabilities: bool = True

    def attribute(self, x: Floats, baseline: Floats, n_steps: int, method: Method) -> ShapleyAttribution:
        """Shapley values of encoded people from encoded baselines; nothing is integrated."""
        is_category: Bools | None = None
        if self.categorical_inputs:
            is_category = np.zeros(x.shape[-1], dtype=np.bool_)
            is_category[list(self.categorical_inputs)] = True
        found = shapley_attribution(self.game, x, baseline, is_category)
        check_finite(found.logit)
        return found

    def margin(self, x: Floats) -> Floats:
        """The score of encoded people."""
        return self.game.margin(x)
