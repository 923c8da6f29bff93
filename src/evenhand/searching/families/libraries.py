"""Classifiers of libraries that may not be installed: fitted with one-sentence errors, and saved as skops files."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
from threadpoolctl import threadpool_limits  # comes with scikit-learn

from evenhand.exceptions import InvalidInputError, first_line
from evenhand.searching.families.repairs import Training
from evenhand.system.files import write_atomically
from evenhand.system.optional import optional_module
from evenhand.system.threads import one_thread_each

__all__ = ["class_parameters", "file_in", "fitted", "held_to_one_thread", "library_class", "save_skops"]


def library_class(module: str, name: str) -> Any:  # noqa: ANN401 - a class
    """The class of a library.

    Raises
    ------
    InvalidInputError
        If the library is not installed.
    """
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        package = module.split(".")[0]
        raise InvalidInputError(
            f"A search over {package} needs the package {package!r}: pip install {package}."
        ) from error


def class_parameters(module: str, name: str) -> frozenset[str]:
    """Names of the parameters of a library's class; empty if the library is not installed."""
    try:
        return frozenset(library_class(module, name)().get_params())
    except InvalidInputError:
        return frozenset()


@contextmanager
def held_to_one_thread() -> Iterator[None]:
    """Keep BLAS and torch on one thread, and scikit-learn from warning that a column has fewer bins than requested.

    Use this around all threads that fit models, because these settings apply to the whole process. How a matrix product
    is split among threads decides its last digits.
    """
    with one_thread_each(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Bins whose width are too small", category=UserWarning)
        yield


def fitted(model: Any, X: pd.DataFrame, training: Training, weight_name: str = "sample_weight") -> Any:  # noqa: ANN401
    """A model fitted on people, with one thread of OpenMP; see `held_to_one_thread` for the other libraries.

    Parameters
    ----------
    model
        An unfitted model.
    X, training
        The table that the model sees; labels and weights.
    weight_name
        What `fit` calls the weights.

    Raises
    ------
    InvalidInputError
        If the library refuses parameters or people.
    """
    given = {} if training.weight is None else {weight_name: training.weight}
    try:
        with threadpool_limits(1, user_api="openmp"):
            return model.fit(X, training.y, **given)
    except (ValueError, TypeError, RuntimeError) as error:
        last = getattr(model, "steps", [("", model)])[-1][1]
        raise InvalidInputError(f"{type(last).__name__} cannot be fitted: {first_line(error)}.") from error


def file_in(path: Path, ending: str) -> Path:
    """The file itself, or ``model`` with the file extension in a folder."""
    return path if path.suffix == ending else path / f"model{ending}"


def save_skops(model: Any, path: Path) -> Path:  # noqa: ANN401 - an estimator of scikit-learn
    """Write an estimator of scikit-learn as a skops file, whole or not at all.

    Raises
    ------
    MissingExtraError
        If skops is not installed.
    """
    skops_io = optional_module("skops.io", "Saving a model of scikit-learn", "skops", "skops")
    file = file_in(path, ".skops")
    with write_atomically(file) as temporary:
        skops_io.dump(model, temporary)
    return file
