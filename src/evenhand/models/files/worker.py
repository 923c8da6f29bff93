"""Run as a process of its own: opens a file with the library that wrote it, and writes down what it read.

The native readers may crash or never end on a damaged file; here that ends this process and no other.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["catboost_model", "main"]

_MADE_UP = 512  # people
_MEMORY = 16 * 2**30  # address space: a damaged length may ask for anything


def main(kind: str, source: str, folder: str) -> None:
    """Read the file `source`; leave arrays and plain values, or the reason why not, in `folder`."""
    _limit_resources()
    try:
        arrays, rest = _READERS[kind](source)
        np.savez(Path(folder) / "arrays.npz", **arrays)
        answer: dict[str, Any] = {"rest": rest}
    except Exception as error:  # whatever a library raises, the caller needs the reason
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        answer = {"error": (lines or [type(error).__name__])[0][:300], "type": type(error).__name__}
    (Path(folder) / "answer.json").write_text(json.dumps(answer))


def _limit_resources() -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    for what, limit in ((resource.RLIMIT_AS, _MEMORY), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(what)[1]
        resource.setrlimit(what, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _read_xgboost(source: str) -> tuple[dict[str, Any], dict[str, Any]]:
    import xgboost

    booster = xgboost.Booster()
    booster.load_model(source)
    if booster.attr("scikit_learn") is None:
        return _stored(booster)
    classifier = xgboost.XGBClassifier()  # stops where early stopping found best
    classifier.load_model(source)
    return _stored(classifier)


def _read_lightgbm(source: str) -> tuple[dict[str, Any], dict[str, Any]]:
    import lightgbm

    return _stored(lightgbm.Booster(model_file=source, params={"verbose": -1}))


def _read_catboost(source: str) -> tuple[dict[str, Any], dict[str, Any]]:
    from evenhand.models.trees.catboost_trees import takes_words

    model = catboost_model(Path(source))
    if not takes_words(model):
        return _stored(model)
    _score_anyone(model)
    return {}, {"takes_words": True}


def catboost_model(path: Path) -> Any:  # noqa: ANN401 - catboost ships no types
    """The model of a CatBoost file, as the library reads it."""
    import catboost

    model = catboost.CatBoostClassifier()
    model.load_model(str(path), format="json" if path.suffix.lower() == ".json" else "cbm")
    return model


def _score_anyone(model: Any) -> None:  # noqa: ANN401
    """Let a model of categories score made-up people, so that what is wrong inside a file shows here."""
    import pandas as pd

    from evenhand.models.trees.catboost_trees import word_features

    rng = np.random.default_rng(0)
    words = word_features(model)
    people = {
        name: rng.choice(["", "a", "1"], _MADE_UP)
        if j in words
        else rng.normal(0, 1, _MADE_UP) * 10.0 ** rng.integers(0, 9)
        for j, name in enumerate(model.feature_names_)
    }
    model.get_all_params()  # the audit asks for the loss
    scores = model.predict(pd.DataFrame(people), prediction_type="RawFormulaVal")
    if np.shape(scores) != (_MADE_UP,) or not np.isfinite(scores).all():
        raise ValueError("its scores are not one finite number for each person")


def _stored(model: Any) -> tuple[dict[str, Any], dict[str, Any]]:  # noqa: ANN401 - a model of one of the libraries
    """A tree ensemble as plain arrays and plain values."""
    from dataclasses import fields

    from evenhand.models.trees import read_trees

    ensemble = read_trees(model)
    values = {field.name: getattr(ensemble, field.name) for field in fields(ensemble)}
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    rest = {name: value for name, value in values.items() if name not in arrays}
    rest["categories"] = {
        str(j): [v if isinstance(v, (str, int, float)) else str(v) for v in known]
        for j, known in ensemble.categories.items()
    }
    return arrays, rest


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


_READERS = {
    "xgboost": _read_xgboost,
    "lightgbm": _read_lightgbm,
    "catboost": _read_catboost,
    "onnx": _read_onnx,
    "pmml": _read_pmml,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
