"""scikit-learn models from a file, whose scores must agree with their fitted attributes.

An audit reads linear models, networks and trees from their fitted attributes. In an altered file, these may have shapes
that scikit-learn interprets differently, such as an intercept for each column.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from evenhand.exceptions import EvenhandError, InvalidInputError, first_line
from evenhand.models.dispatch import as_audited_model
from evenhand.models.files.skops import held_by

_MADE_UP = 64  # people
_TOLERANCE = 1e-4  # of a probability
_MOST_COLUMNS = 20_000  # of a model that is checked


def check_scores(model: object) -> None:
    """Refuse a model that scores made-up people differently than its fitted attributes do.

    A model that takes more than numbers is checked part by part. A model that an audit only asks for scores is not
    checked.

    Raises
    ------
    InvalidInputError
        If probabilities differ or cannot be computed.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> linear = LogisticRegression().fit([[0.0, 1.0], [1.0, 0.0]], [0, 1])
    >>> check_scores(linear)
    >>> linear.intercept_ = np.array([0.0, 1.0])
    >>> check_scores(linear)
    Traceback (most recent call last):
    ...
    evenhand.exceptions.InvalidInputError: The LogisticRegression is damaged: ...
    """
    seen: set[int] = set()
    waiting: list[object] = [model]
    while waiting:
        part = waiting.pop()
        if id(part) in seen or isinstance(part, type | str | bytes | int | float | None):
            continue
        seen.add(id(part))
        is_model = isinstance(part, BaseEstimator) and (part is model or hasattr(part, "predict_proba"))
        if not (is_model and _is_checked(part)):
            waiting.extend(held_by(part))


def _is_checked(model: Any) -> bool:
    """Whether the model takes numbers and can be read; refuse it if its own scores then differ."""
    name = type(model).__name__
    try:
        people = _people(model)
        audited = as_audited_model(model, table=people)
    except EvenhandError:
        return False  # the audit, which has the people, says why
    except Exception as error:  # attributes of a wrong kind
        raise InvalidInputError(
            f"The {name} is damaged: its attributes cannot be read ({first_line(error)})."
        ) from error
    if people is None or audited.attribution == "sampled_shapley" or not hasattr(model, "predict_proba"):
        return False
    try:
        ours = audited.probability(audited.margin(audited.encode(audited.aligned(people)))).numpy()
    except (EvenhandError, ValueError, TypeError, AttributeError):
        return False  # it takes more than numbers
    try:
        theirs: NDArray[np.float64] = np.asarray(model.predict_proba(people), dtype=np.float64)
    except Exception as error:  # scikit-learn trusts its attributes
        raise InvalidInputError(f"The {name} is damaged: it cannot score people ({first_line(error)}).") from error
    if theirs.shape != (_MADE_UP, 2) or not np.allclose(ours, theirs[:, 1], rtol=0, atol=_TOLERANCE):
        raise InvalidInputError(
            f"The {name} is damaged: scikit-learn scores {_MADE_UP} made-up people differently than its fitted "
            "attributes do."
        )
    return True


def _people(model: Any) -> pd.DataFrame | None:
    """People with the columns that the model takes; None if it does not name them, or takes too many."""
    rng = np.random.default_rng(0)
    names = getattr(model, "feature_names_in_", range(int(getattr(model, "n_features_in_", 0))))
    if not 0 < len(names) <= _MOST_COLUMNS:
        return None
    values = rng.normal(size=(_MADE_UP, len(names))) * rng.choice([0.1, 1.0, 30.0], size=(_MADE_UP, 1))
    return pd.DataFrame(values, columns=names)
