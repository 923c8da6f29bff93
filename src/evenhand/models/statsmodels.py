"""Fitted logistic regressions of statsmodels, from columns or a formula; other links are black boxes."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.exceptions import InvalidInputError
from evenhand.models.black_box import black_box_model
from evenhand.models.encoders import NamedColumns, pipeline_encoder
from evenhand.models.protocol import AuditedModel, EncodesTables, LinearModel


def statsmodels_model(results: Any, table: pd.DataFrame | None, **sampling: Any) -> AuditedModel:
    """A fitted binary regression in the form of the audit.

    With a logit link, the coefficients explain the log-odds exactly; contributions of all terms of a formula that come
    from the same column are summed. If a term combines columns, or the link is different, the probability is explained
    by sampled Shapley values.

    Raises
    ------
    InvalidInputError
        If it is not a binary regression, or has an offset.

    Examples
    --------
    >>> import statsmodels.api as sm
    >>> people = pd.DataFrame({"income": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]})
    >>> fitted = sm.Logit([0, 1, 0, 1, 0, 1], sm.add_constant(people)).fit(disp=0)
    >>> statsmodels_model(fitted, people).attribution
    'linear'
    """
    design = _Design(results)
    kind = f"statsmodels {type(results.model).__name__}"
    if _link(results) == "logit" and sampling.get("output") != "probability":
        encoder = _encoder(design, table)
        if encoder is not None or not design.has_formula:
            weights = design.params[~design.is_constant]
            return LinearModel(weights, float(design.params[design.is_constant].sum()), kind, encoder)
    names = None if table is None or not design.has_formula else [str(column) for column in table.columns]
    return black_box_model(design, kind=f"{kind} (black box)", table=table, names=names, **sampling)


def regression_columns(results: Any) -> list[str] | None:
    """Columns that a regression uses, in order; None if it was fitted on an array, or its data were removed.

    A formula uses the variables on its right-hand side.

    Examples
    --------
    >>> import statsmodels.formula.api as smf
    >>> people = pd.DataFrame({"paid": [0, 1, 0, 1], "debt": [3.0, 1.0, 2.0, 3.0], "income": [1.0, 2.0, 3.0, 4.0]})
    >>> regression_columns(smf.logit("paid ~ np.log(income)", people).fit(disp=0))
    ['income']
    """
    design = _Design(results)
    if not design.has_formula:
        has_names = isinstance(results.model.data.orig_exog, pd.DataFrame)  # of an array, they are x1, x2, ...
        return design.feature_names_in_ if has_names else None
    frame = getattr(results.model.data, "frame", None)
    if frame is None:
        return None
    used = {name for _, words in _terms(design.spec) for word in words for name in _named_in(word)}
    return [str(column) for column in frame.columns if str(column) in used]


def _link(results: Any) -> str:
    """The link of a binary regression.

    Raises
    ------
    InvalidInputError
        If it is not one, or has an offset.
    """
    model, name = results.model, type(results.model).__name__
    family = getattr(model, "family", None)
    if name not in ("Logit", "Probit") and type(family).__name__ != "Binomial":
        raise InvalidInputError(
            f"An audit takes a Logit, a Probit or a GLM of the binomial family from statsmodels, got a {name}; pass a "
            "function that returns the probability of the favorable outcome instead."
        )
    shifts = [getattr(model, part, None) for part in ("offset", "exposure")]
    if any(shift is not None and np.any(shift) for shift in shifts):
        raise InvalidInputError(
            f"This {name} of statsmodels has an offset or an exposure, which is not a column of the table; pass a "
            "function that adds it."
        )
    return name.lower() if family is None else type(family.link).__name__.lower()


@dataclass(frozen=True, eq=False)
class _Design:
    """The table in the form that the regression takes.

    As a transformer, it computes the terms of a table, without the constant; as a score, the probability.

    Attributes
    ----------
    results
        The fitted regression.
    sources
        Position of the column of the table behind each term of a formula, once it is known.
    """

    results: Any
    sources: Sequence[int] = ()

    @property
    def has_formula(self) -> bool:
        return hasattr(self.results.model, "formula")

    @cached_property
    def params(self) -> NDArray[np.float64]:
        return np.array(self.results.params, dtype=np.float64)

    @cached_property
    def names(self) -> list[str]:
        return [str(name) for name in self.results.model.exog_names]

    @cached_property
    def is_constant(self) -> NDArray[np.bool_]:
        """Whether each coefficient is the intercept."""
        return np.isin(self.names, ["const", "Intercept"])

    @property
    def feature_names_in_(self) -> list[str]:
        if self.has_formula:
            raise AttributeError  # a formula takes its variables from any table
        return [name for name in self.names if name != "const"]

    @property
    def spec(self) -> Any:
        """The formula."""
        model = self.results.model
        if hasattr(model.data, "design_info"):  # statsmodels before 0.15
            return model.data.design_info
        return getattr(model, "model_spec", None) or model.data.model_spec

    def exog(self, table: pd.DataFrame) -> NDArray[np.float64]:
        if self.has_formula:
            return np.asarray(self.results._transform_predict_exog(table)[0], dtype=np.float64)
        columns = np.empty((len(table), len(self.names)))
        columns[:, self.is_constant] = 1.0
        columns[:, ~self.is_constant] = np.asarray(table, dtype=np.float64)
        return columns

    def transform(self, table: pd.DataFrame) -> NDArray[np.float64]:
        return self.exog(table)[:, ~self.is_constant]

    def predict(self, table: pd.DataFrame) -> NDArray[np.float64]:
        return np.asarray(self.results.model.predict(self.params, self.exog(table)), dtype=np.float64)

    def sources_among(self, columns: list[str]) -> list[int] | None:
        """Position of the one column behind each term; None if a term has several, or no known one."""
        found: dict[int, int] = {}
        for places, words in _terms(self.spec):
            used = {columns.index(name) for word in words for name in _named_in(word) if name in columns}
            if len(used) != 1 and words:
                return None
            found.update(dict.fromkeys(places, used.pop() if used else -1))
        return [found[j] for j in np.flatnonzero(~self.is_constant).tolist()]


def _encoder(design: _Design, table: pd.DataFrame | None) -> EncodesTables | None:
    """Computes the terms of the table; None if terms combine columns, or columns are identified by their order."""
    if not design.has_formula:
        names = design.feature_names_in_
        has_names = table is None or set(names) <= set(table.columns) or len(names) != table.shape[1]
        return NamedColumns(names) if has_names else None
    if table is None:
        return None
    sources = design.sources_among([str(column) for column in table.columns])
    return None if sources is None else pipeline_encoder(replace(design, sources=sources), table)


def _terms(spec: Any) -> Iterator[tuple[list[int], list[str]]]:
    """Positions of each term's columns, and the expressions of its factors: for formulaic and for patsy."""
    if hasattr(spec, "term_indices"):
        for term, places in spec.term_indices.items():
            yield list(places), [str(factor.expr) for factor in term.factors if str(factor.expr) != "1"]
        return
    for term, place in spec.term_slices.items():
        yield list(range(place.start, place.stop)), [factor.name() for factor in term.factors]


def _named_in(expression: str) -> Iterator[str]:
    """Names, and texts such as that of ``Q("a name")``, in an expression of a formula."""
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except SyntaxError:  # a name with spaces, in the notation of formulaic
        yield expression.strip("`")
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
