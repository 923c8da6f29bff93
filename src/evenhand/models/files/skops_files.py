"""Models from skops files: of types that skops trusts, and of few more."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evenhand.exceptions import ModelFileError, first_line
from evenhand.models.files.sound_trees import check_trees

__all__ = ["TRUSTED", "checked_content", "trusted_model"]

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


_LARGEST = 3 * 2**29  # bytes that a file may become; skops holds them twice for a moment


def checked_content(file: Path) -> bytes:
    """The bytes of a skops file whose plan is not too large, and builds only what is trusted, in the way it may be.

    Raises
    ------
    ModelFileError
        If skops is not installed, or the file is damaged or holds types that are not trusted.
    """
    try:
        from skops import io as skops_io
    except ImportError as error:
        raise ModelFileError(
            f"{str(file)!r} needs skops, which is not installed: pip install 'evenhand[skops]'."
        ) from error
    try:
        content = file.read_bytes()
        schema = _checked_schema(content)
        untrusted = [name for name in skops_io.get_untrusted_types(data=content) if name not in TRUSTED]
        misused = sorted(set(_misused_types(schema)))
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
    return content


def trusted_model(content: bytes) -> Any:  # noqa: ANN401 - any model
    """The model of a skops file whose plan was checked.

    Whatever skops, numpy or scikit-learn raise comes through; a damaged tree may crash scikit-learn.
    """
    from skops import io as skops_io

    model = skops_io.loads(content, trusted=list(TRUSTED))
    check_trees(model)
    return model


def _checked_schema(content: bytes) -> Any:  # noqa: ANN401 - JSON
    """The plan by which skops builds a model, if all that it reads is not larger than `_LARGEST`.

    A part that is named many times is read many times.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        sizes = {part.filename: _inflated(archive, part) for part in archive.infolist()}
        if sizes["schema.json"] > _LARGEST // 20:  # JSON grows when it is parsed
            raise ValueError(f"its schema has {sizes['schema.json']:,} bytes")
        schema = json.loads(archive.read("schema.json"))
    total = sum(sizes.get(part["file"], 0) for part in _nodes(schema) if isinstance(part.get("file"), str))
    if total > _LARGEST:
        raise ValueError(f"it becomes {total / 2**30:.1f} GB, and {_LARGEST / 2**30:g} GB are allowed")
    return schema


def _inflated(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> int:
    """Bytes that a part becomes, by the sizes that Python holds a zip file to; sparse arrays are zipped again."""
    with archive.open(part) as stream:
        is_zip = stream.read(4) == b"PK\x03\x04"
    if not is_zip or part.file_size > _LARGEST:
        return part.file_size
    with zipfile.ZipFile(io.BytesIO(archive.read(part))) as inner:
        return part.file_size + sum(member.file_size for member in inner.infolist())


def _misused_types(schema: Any) -> Iterator[str]:  # noqa: ANN401
    """Names of `TRUSTED` for which the file asks another way of building."""
    for part in _nodes(schema):
        name = f"{part.get('__module__')}.{part.get('__class__')}"
        if name in TRUSTED and part.get("__loader__") != TRUSTED[name]:
            yield name


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    """Every object of the schema."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
