"""Models from skops files: of types that skops trusts, and of few more."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

from evenhand.exceptions import ModelFileError, first_line
from evenhand.models.files.sound_trees import check_trees

__all__ = ["TRUSTED", "read_skops"]

# Types of ordinary scikit-learn models that skops leaves to its callers, and the one way in which skops may build each.
# The way matters: skops trusts names, and a hostile file may ask it to call what it was only to fill with attributes.
# ObjectNode makes an empty object and sets its attributes, DictNode fills a dictionary, DTypeNode takes the dtype of an
# array, TreeNode calls `Tree` with numbers. No class below then runs code of the file's choosing: only the two trees
# have a `__setstate__` that does more than set attributes, and it copies arrays, which `check_trees` looks into.
TRUSTED: dict[str, str] = {
    "numpy.dtype": "DTypeNode",
    "sklearn.calibration._CalibratedClassifier": "ObjectNode",
    "sklearn.calibration._SigmoidCalibration": "ObjectNode",
    "sklearn.calibration._TemperatureScaling": "ObjectNode",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor": "ObjectNode",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer": "ObjectNode",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer": "ObjectNode",
    "sklearn.tree._tree.Tree": "TreeNode",
    "sklearn.utils._bunch.Bunch": "DictNode",
}


def read_skops(file: Path) -> Any:  # noqa: ANN401 - any model
    """The model of a skops file.

    Raises
    ------
    ModelFileError
        If skops is not installed, the file is damaged, holds types that are not trusted, or trees that are damaged.
    """
    try:
        from skops import io as skops_io
    except ImportError as error:
        raise ModelFileError(
            f"{str(file)!r} needs skops, which is not installed: pip install 'evenhand[skops]'."
        ) from error
    try:
        content = file.read_bytes()  # once: what is checked is what is loaded
        untrusted = [name for name in skops_io.get_untrusted_types(data=content) if name not in TRUSTED]
        misused = _misused_types(content)
    except Exception as error:  # skops lets errors of zipfile, json and numpy through
        raise ModelFileError(f"{str(file)!r} cannot be read as skops: {first_line(error)}.") from error
    if untrusted:
        raise ModelFileError(
            f"{str(file)!r} holds types that are not trusted, because they may run code: {', '.join(untrusted)}; save "
            "a model without them, of a GridSearchCV for example its `best_estimator_`."
        )
    if misused:
        raise ModelFileError(
            f"{str(file)!r} was not written by skops, or altered: it builds {', '.join(misused)} in another way."
        )
    try:
        model = skops_io.loads(content, trusted=list(TRUSTED))
        check_trees(model)
    except Exception as error:
        raise ModelFileError(f"{str(file)!r} cannot be read as skops: {first_line(error)}.") from error
    return model


def _misused_types(content: bytes) -> list[str]:
    """Names of `TRUSTED` for which the file asks another way of building."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        waiting = [json.loads(archive.read("schema.json"))]
    misused = set()
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            name = f"{part.get('__module__')}.{part.get('__class__')}"
            if name in TRUSTED and part.get("__loader__") != TRUSTED[name]:
                misused.add(name)
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
    return sorted(misused)
