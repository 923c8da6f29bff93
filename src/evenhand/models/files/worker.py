"""What a separate process does: open a file with the library that wrote it, and write what it read.

The native readers may crash or hang on a damaged file; then only that process ends.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.arrays import Floats
from evenhand.exceptions import ModelFileError, first_line

_MISSING = 0.05  # share of values
_MADE_UP = 512  # people


# What it imports to read a file, by extension; JSON is rarely CatBoost's.
_MODULES = {
    ".json": ("xgboost", "evenhand.models.trees.libraries"),
    ".ubj": ("xgboost", "evenhand.models.trees.libraries"),
    ".txt": ("lightgbm", "evenhand.models.trees.libraries"),
    ".cbm": ("catboost", "evenhand.models.trees.libraries"),
    ".onnx": ("evenhand.models.onnx",),
    ".pmml": ("evenhand.models.pmml",),
}


def prepare(extension: str) -> None:
    """Import what reads a model file of this extension, while nobody waits for it."""
    if extension == ".skops":
        from evenhand.models.files.skops import imported_skops

        imported_skops()
    for module in _MODULES.get(extension, ()):
        with suppress(Exception):  # a library is missing or broken: `read` says so
            import_module(module)


_PACKAGES = {"onnx": "evenhand[onnx]", "pmml": "evenhand[pmml]"}


def read(library: str, source: str, folder: str) -> dict[str, Any]:
    """Read the file `source`, write its arrays to `folder`, and return plain values by name.

    Raises
    ------
    ModelFileError
        If the library is not installed, or cannot read the file.
    """
    try:
        arrays, rest = _READERS[library](source)
        np.savez(Path(folder) / "arrays.npz", **arrays)
    except MemoryError:
        raise
    except ImportError:
        package = _PACKAGES.get(library, library)
        raise ModelFileError(f"{source!r} needs {library}, which is not installed: pip install '{package}'.") from None
    except Exception as error:  # whatever a library raises
        why = first_line(error)[:300].rstrip(".")
        raise ModelFileError(f"{source!r} cannot be read as a model of {library}: {why}.") from error
    return rest


def _read_xgboost(source: str) -> tuple[dict[str, Any], dict[str, Any]]:
    import xgboost

    booster = xgboost.Booster()
    booster.load_model(source)
    model = booster
    rounds = (0, 0)  # all
    if booster.attr("scikit_learn") is not None:
        model = xgboost.XGBClassifier()  # uses the best round of early stopping
        model.load_model(source)
        if booster.attr("best_iteration") is not None:
            rounds = (0, model.best_iteration + 1)

    def score(people: Floats) -> Floats:
        named = {"feature_names": booster.feature_names, "feature_types": booster.feature_types}
        matrix = xgboost.DMatrix(people, nthread=1, **named)
        return booster.predict(matrix, output_margin=True, iteration_range=rounds)

    return _stored(model, score)


def _read_lightgbm(source: str) -> tuple[dict[str, Any], dict[str, Any]]:
    import lightgbm

    from evenhand.models.trees.libraries import sigmoid_of

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Ignoring params argument")  # said by some versions, which then are quiet
        booster = lightgbm.Booster(model_file=source, params={"verbose": -1})

    def score(people: Floats) -> Floats:
        return sigmoid_of(booster) * np.asarray(booster.predict(people, raw_score=True, num_threads=1))

    return _stored(booster, score)


def _read_catboost(source: str) -> tuple[dict[str, Any], dict[str, Any]]:
    from evenhand.models.trees.libraries import catboost_model, takes_words, word_features

    model = catboost_model(Path(source))
    if not takes_words(model):
        return _stored(model, lambda people: model.predict(people, prediction_type="RawFormulaVal", thread_count=1))
    import pandas as pd

    # A model with categories scores made-up people, so that damage inside a file shows here.
    rng = np.random.default_rng(0)
    words = word_features(model)
    people = {
        name: rng.choice(["", "a", "1"], _MADE_UP)
        if j in words
        else rng.normal(0, 1, _MADE_UP) * 10.0 ** rng.integers(0, 9)
        for j, name in enumerate(model.feature_names_)
    }
    model.get_all_params()  # the audit asks for the loss
    scores = model.predict(pd.DataFrame(people), prediction_type="RawFormulaVal", thread_count=1)
    if np.shape(scores) != (_MADE_UP,) or not np.isfinite(scores).all():
        raise ValueError("its scores are not one finite number for each person")
    return {}, {"takes_words": True}


def _stored(model: Any, score: Callable[[Floats], Floats]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A tree ensemble as plain arrays and plain values, with made-up people and the library's scores of them."""
    from evenhand.models.trees.libraries import read_trees

    ensemble = read_trees(model)
    values = {field.name: getattr(ensemble, field.name) for field in fields(ensemble)}
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    rest = {name: value for name, value in values.items() if name not in arrays}
    rest["categories"] = {
        str(j): [v if isinstance(v, (str, int, float)) else str(v) for v in known]
        for j, known in ensemble.categories.items()
    }
    people = _people_at_splits(ensemble)
    return arrays | {"people": people, "scores": np.asarray(score(people), dtype=np.float64)}, rest


def _people_at_splits(ensemble: Any) -> Floats:
    """Made-up people with values at, below and above the thresholds of the trees; some values are missing."""
    rng = np.random.default_rng(0)
    people = np.full((_MADE_UP, ensemble.n_features), 0.0)
    for j in np.unique(ensemble.feature[ensemble.feature >= 0]):
        if j in ensemble.categorical_features:
            asked = ensemble.feature == j
            people[:, j] = rng.integers(0, max(1, int(ensemble.set_size[asked].max())), _MADE_UP)
            continue
        splits = np.unique(ensemble.threshold[ensemble.feature == j])
        splits = splits[np.isfinite(splits)]
        if len(splits):
            at = rng.choice(splits, _MADE_UP)
            people[:, j] = (at + rng.choice([-1, 0, 1], _MADE_UP) * np.abs(at) * 1e-3).astype(np.float32)
            people[rng.random(_MADE_UP) < _MISSING, j] = np.nan
    return people


def _read_onnx(source: str) -> tuple[dict[str, Any], dict[str, Any]]:
    from evenhand.models.onnx import OnnxModel

    model = OnnxModel(Path(source).read_bytes())
    if model.n_inputs is not None:
        model.score(np.zeros((1, model.n_inputs)))
    return {}, {}


def _read_pmml(source: str) -> tuple[dict[str, Any], dict[str, Any]]:
    import pandas as pd

    from evenhand.models.pmml import PmmlModel

    model = PmmlModel(Path(source).read_bytes())
    if model.takes_numbers:
        drawn = np.random.default_rng(0).normal(0, 100, (_MADE_UP, len(model.feature_names_in_)))
        model.predict_proba(pd.DataFrame(drawn, columns=model.feature_names_in_))
    return {}, {}


def _read_skops(source: str) -> tuple[dict[str, Any], dict[str, Any]]:
    from evenhand.models.files.skops import checked_content, trusted_model

    trusted_model(checked_content(Path(source)))
    return {}, {}


_READERS = {
    "xgboost": _read_xgboost,
    "lightgbm": _read_lightgbm,
    "catboost": _read_catboost,
    "onnx": _read_onnx,
    "pmml": _read_pmml,
    "skops": _read_skops,
}
