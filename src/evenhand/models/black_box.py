"""Models of which only the score is known: anything with a `predict_proba`, or a plain function."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from evenhand.arrays import Floats, as_numpy, placed
from evenhand.attribution.sampled import SampledShapley
from evenhand.exceptions import InvalidInputError, InvalidTypeError, first_line
from evenhand.inputs.validation import text_columns
from evenhand.models.encoders import CodedTable, NamedColumns, fitted_names, spread_people
from evenhand.models.protocol import AuditedModel, EncodesTables, Output, ShapleyModel

_TRIED_PEOPLE = 64
CERTAINTY = 1e-9  # probabilities closer than this to 0 or 1 are moved to this distance before they become log-odds


@dataclass(frozen=True)
class Score:
    """A checked function that maps a matrix to one number per row.

    Attributes
    ----------
    function
        The model's scoring function.
    column_names
        Names of the inputs if the model takes a named table; None if it takes a matrix.
    source
        Where the score comes from, for messages.
    is_probability
        Whether the function returns a probability.
    output
        The scale on which the score is explained. To become log-odds, a probability is at least `CERTAINTY` and at most
        1 minus that.
    coded
        The encoding of the matrix, if the model takes a table of categories and numbers.
    """

    function: Callable[[Any], Any]
    source: str
    is_probability: bool
    output: Output
    column_names: Sequence[str] | None = None
    coded: CodedTable | None = None

    def __call__(self, x: Floats) -> Floats:
        returned, n = self._asked(x), len(x)
        try:
            scores = np.asarray(returned, dtype=np.float64)
        except (TypeError, ValueError):
            raise InvalidTypeError(f"{self.source} must return numbers, got {type(returned).__name__}.") from None
        if scores.shape == (n, 2):
            return self.checked(np.ascontiguousarray(scores[:, 1]))
        if scores.shape not in ((n,), (n, 1)):
            raise InvalidInputError(
                f"{self.source} must return one number per row, of shape ({n},), or the probabilities of two classes, "
                f"of shape ({n}, 2); got {scores.shape}."
            )
        return self.checked(scores.reshape(n))

    def checked(self, scores: Floats) -> Floats:
        """Scores on the explained scale, after checking that they are valid."""
        if self.is_probability and not ((scores >= 0) & (scores <= 1)).all():
            n_bad = int((~((scores >= 0) & (scores <= 1))).sum())
            raise InvalidInputError(
                f"{self.source} returned {n_bad} of {len(scores)} values outside 0 to 1, which are not probabilities; "
                'if it returns log-odds, pass options=AuditOptions(output="log-odds") (--output log-odds).'
            )
        if not np.isfinite(scores).all():
            n_bad = int((~np.isfinite(scores)).sum())
            raise InvalidInputError(
                f"{self.source} returned {n_bad} of {len(scores)} scores that are missing or infinite."
            )
        if self.is_probability and self.output == "log-odds":
            scores = np.clip(scores, CERTAINTY, 1 - CERTAINTY)
            scores = np.log(scores) - np.log1p(-scores)
        return scores

    def _asked(self, x: Floats) -> Any:
        if self.coded is not None:
            table = self.coded.decoded(x)
            try:
                return self.function(table)
            except Exception as error:  # a model may raise anything on a table that it does not accept
                raise InvalidInputError(
                    f"{self.source} failed on a pandas table with the columns {list(table.columns)}, which was used "
                    f"because they are not all numbers ({type(error).__name__}: {first_line(error)})."
                ) from error
        if self.column_names is not None:
            return self.function(pd.DataFrame(x, columns=list(self.column_names)))
        return self.function(x)


def score_function(
    model: Any,
    output: Output | None = None,
    column_names: Sequence[str] | None = None,
    coded: CodedTable | None = None,
) -> Score:
    """The score of a model, explained as a probability or as log-odds.

    The probability of a function is explained as log-odds: a scorecard adds points, and so does a function that returns
    its probability.

    Parameters
    ----------
    model, output
        As in `as_audited_model`.
    column_names, coded
        As in `Score`.

    Raises
    ------
    InvalidTypeError
        If the model has no score.
    InvalidInputError
        If its score is neither, and `output` does not say how to interpret it.
    """
    name = type(model).__name__
    score = partial(Score, column_names=column_names, coded=coded)
    if output == "value":
        predict = getattr(model, "predict", model)
        if not callable(predict):
            raise InvalidTypeError(
                f"Cannot audit a {name}: expected a fitted regressor with `predict`, or a function that maps a matrix "
                "or a table to one number per row."
            )
        return score(predict, f"predict of {name}", False, output)
    if callable(getattr(model, "predict_proba", None)):
        return score(model.predict_proba, f"predict_proba of {name}", True, output or "probability")
    if _gives_margin(model):
        check_margin(name, output)
        return score(model.decision_function, f"decision_function of {name}", False, "log-odds")
    if callable(getattr(model, "predict", None)):
        classes = getattr(model, "classes_", None)
        if classes is None or len(classes) != 2:
            return score(model.predict, f"predict of {name}", output != "log-odds", output or "probability")

        def is_favorable(x: Any) -> Floats:
            return np.asarray(np.asarray(model.predict(x)) == classes[1], dtype=np.float64)

        return score(is_favorable, f"predict of {name}", True, output or "probability")
    if callable(model):
        source = f"The function {getattr(model, '__name__', name)}"
        return score(model, source, output != "log-odds", output or "log-odds")
    raise InvalidTypeError(
        f"Cannot audit a {name}: expected a torch module, a fitted classifier with `predict_proba`, "
        "`decision_function` or `predict`, or a function that maps a matrix or a table to one number per row."
    )


def _gives_margin(model: Any) -> bool:
    """Whether the score is a margin, such as that of a support vector machine."""
    return not hasattr(model, "predict_proba") and callable(getattr(model, "decision_function", None))


def check_margin(name: str, output: Output | None) -> None:
    """Reject a margin unless the user says how to interpret it."""
    if output is None:
        raise InvalidInputError(
            f"A {name} returns a margin with its decision at 0, not log-odds or a probability; pass "
            'options=AuditOptions(output="log-odds") (--output log-odds) to treat it as log-odds (decisions stay the '
            "same), or calibrate it first."
        )
    if output == "probability":
        raise InvalidInputError(
            f'A {name} has no probabilities to explain; pass options=AuditOptions(output="log-odds") '
            "(--output log-odds) to explain its margin."
        )


def black_box_model(
    model: Any,
    *,
    output: Output | None = None,
    encoder: EncodesTables | None = None,
    n_permutations: int = 32,
    random_state: int = 0,
    kind: str | None = None,
    table: pd.DataFrame | None = None,
    names: Sequence[str] | None = None,
    categorical: Sequence[str] = (),
) -> ShapleyModel:
    """Any score in the form of the audit, explained by sampled Shapley values.

    If the table has columns that are not numbers, the model gets tables with the same columns; otherwise it gets a
    matrix, or a table if it was fitted on one or is a function that uses column names. Missing values are passed on to
    a model that can score people who have some. A function that returns only 0 and 1 decides rather than scores: its
    values are explained as they are.

    Parameters
    ----------
    model, output, n_permutations, random_state
        As in `as_audited_model`.
    encoder
        Converts the table to the model's inputs; None if it takes the columns directly.
    kind
        Description of the model.
    table
        People of the audit.
    names
        Columns that the model uses; by default its `feature_names_in_`, or all.
    categorical
        Columns that are categories even if they hold numbers.

    Examples
    --------
    >>> import pandas as pd
    >>> black_box_model(lambda x: x[:, 0].clip(0, 1)).output
    'log-odds'
    >>> people = pd.DataFrame({"income": [0.2, 0.7], "home": ["rent", "own"]})
    >>> score = lambda table: table["income"] + 0.1 * (table["home"] == "own")
    >>> audited = black_box_model(score, output="probability", table=people)
    >>> audited.margin(audited.encode(people)).tolist(), audited.categorical_inputs
    ([0.2, 0.7999999999999999], (1,))
    """
    columns = fitted_names(model) if names is None else [str(column) for column in names]
    coded = _coded(table, columns, categorical) if encoder is None else None
    score = score_function(model, output, columns, coded)
    if columns is None and encoder is None and coded is None and table is not None and _asks_for_names(score, table):
        columns = [str(column) for column in table.columns]
        score = replace(score, column_names=columns)
    takes_missing = coded is not None or scores_missing(score, table, columns, encoder)
    if encoder is None:
        named_columns = None if columns is None else NamedColumns(columns, takes_missing)
        encoder = named_columns if coded is None else coded
    as_log_odds = score.is_probability and score.output == "log-odds"
    if output is None and as_log_odds and _only_decides(score, table, encoder):
        score = replace(score, output="probability")
    return ShapleyModel(
        SampledShapley(score, n_permutations, random_state),
        kind or f"{score.source} (black box)",
        encoder,
        output=score.output,
        takes_missing=takes_missing,
        categorical_inputs=() if coded is None else coded.categorical,
        has_probabilities=not _gives_margin(model),
    )


def scores_missing(
    score: Score, table: pd.DataFrame | None, columns: Sequence[str] | None, encoder: EncodesTables | None = None
) -> bool:
    """Whether a model can score people with a missing number; False if the table has no such people."""
    if table is None or not set(columns or ()) <= set(table.columns):
        return False
    chosen = table if columns is None else table[list(columns)]
    lacking = chosen[chosen.isna().any(axis=1)].head(_TRIED_PEOPLE)
    if not len(lacking):
        return False
    return _tried(score, lacking, encoder) is not None


def _tried(score: Score, people: pd.DataFrame, encoder: EncodesTables | None) -> Floats | None:
    """The scores of a few people; None if the model does not accept them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from a model that computes with missing values
        try:
            return score(np.asarray(people if encoder is None else encoder.transform(people), dtype=np.float64))
        except Exception:  # a model may raise anything on values that it does not accept
            return None


def _only_decides(score: Score, table: pd.DataFrame | None, encoder: EncodesTables | None) -> bool:
    """Whether every score of people spread over the table is 0 or 1."""
    if table is None or not len(table) or not set(table.columns if encoder is None else encoder.names) <= set(table):
        return False
    scores = _tried(replace(score, output="probability"), spread_people(table), encoder)
    return scores is not None and bool(np.isin(scores, (0.0, 1.0)).all())


def _asks_for_names(score: Score, table: pd.DataFrame) -> bool:
    """Whether a score fails on a matrix as a function that uses column names would."""
    if not len(table):
        return False
    try:
        score.function(table.iloc[:2].to_numpy(dtype=np.float64, na_value=np.nan))
    except (AttributeError, IndexError, KeyError, TypeError):
        return True
    except Exception:
        return False
    return False


def _coded(table: pd.DataFrame | None, columns: list[str] | None, categorical: Sequence[str]) -> CodedTable | None:
    """An encoding of the columns that a model uses; None if all are numbers, or some are missing."""
    if table is None or not set(columns or ()) <= set(table.columns):
        return None
    chosen = table if columns is None else table[columns]
    return CodedTable.of(chosen, categorical) if categorical or text_columns(chosen) else None


def margins_of(model: AuditedModel, x: Floats) -> Floats:
    """The explained score of encoded people, wherever the model computes it."""
    margin = model.margin(placed(x.astype(model.dtype, copy=False), model.device))
    return as_numpy(margin).astype(np.float64, copy=False)


def sampled_model(
    known: AuditedModel, *, output: Output | None = None, n_permutations: int = 32, random_state: int = 0
) -> ShapleyModel:
    """Explain a model by sampled Shapley values of its score instead of its usual method.

    `output` may ask for the probability if the score is log-odds, or the reverse.
    """

    def score(x: Floats) -> Floats:
        margin = margins_of(known, x)
        return margin if wanted == known.output else known.probability(margin)

    wanted = output or known.output
    is_probability = wanted == "log-odds" and known.output == "probability"
    checked = Score(score, f"The {known.kind}", is_probability, wanted)
    return ShapleyModel(
        SampledShapley(checked, n_permutations, random_state),
        known.kind,
        known.encoder,
        output=wanted,
        takes_missing=known.takes_missing,
        categorical_inputs=known.categorical_inputs,
        has_probabilities=known.has_probabilities,
    )
