"""Models from skops files, of types that skops trusts and a few more."""

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
# The way matters: skops trusts names, and a hostile file may ask it to call a class instead of filling an object with
# attributes. ObjectNode makes an empty object and sets its attributes, DictNode fills a dictionary, DTypeNode takes the
# dtype of an array, TreeNode calls `Tree` with numbers. So no class below runs code that the file chooses: only the two
# trees have a `__setstate__` that does more than set attributes, and it copies arrays, which `check_trees` checks.
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


_LARGEST = 3 * 2**29  # bytes to which a file may expand; skops briefly needs them twice


def checked_content(file: Path) -> bytes:
    """The bytes of a skops file that is not too large, and builds only trusted types in the allowed way.

    Raises
    ------
    ModelFileError
        If skops is not installed, or the file is damaged or contains types that are not trusted.
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
    except Exception as error:  # skops does not catch errors of zipfile, json and numpy
        raise ModelFileError(f"{str(file)!r} cannot be read as skops: {first_line(error)}.") from error
    if untrusted:
        raise ModelFileError(
            f"{str(file)!r} has types that are not trusted, because they may run code: {', '.join(untrusted)}; save a "
            "model without them, such as the `best_estimator_` of a GridSearchCV."
        )
    if misused:
        raise ModelFileError(
            f"{str(file)!r} was not written by skops, or altered: it builds {', '.join(misused)} in a different way."
        )
    return content


def trusted_model(content: bytes) -> Any:  # noqa: ANN401 - any model
    """The model of a skops file whose plan was checked.

    Errors of skops, numpy and scikit-learn are not caught; a damaged tree may crash scikit-learn.
    """
    from skops import io as skops_io

    model = skops_io.loads(content, trusted=list(TRUSTED))
    check_trees(model)
    return model


def _checked_schema(content: bytes) -> Any:  # noqa: ANN401 - JSON
    """The plan by which skops builds a model, if what it reads is at most `_LARGEST` bytes.

    A part that is named many times is read many times.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        sizes = {part.filename: _inflated(archive, part) for part in archive.infolist()}
        if sizes["schema.json"] > _LARGEST // 20:  # JSON grows when it is parsed
            raise ValueError(f"its schema has {sizes['schema.json']:,} bytes")
        schema = json.loads(archive.read("schema.json"))
    total = sum(sizes.get(part["file"], 0) for part in _nodes(schema) if isinstance(part.get("file"), str))
    if total > _LARGEST:
        raise ValueError(f"it expands to {total / 2**30:.1f} GB, but only {_LARGEST / 2**30:g} GB are allowed")
    return schema


def _inflated(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> int:
    """Bytes to which a part expands, by sizes that Python enforces for zip files; sparse arrays are zipped again."""
    with archive.open(part) as stream:
        is_zip = stream.read(4) == b"PK\x03\x04"
    if not is_zip or part.file_size > _LARGEST:
        return part.file_size
    with zipfile.ZipFile(io.BytesIO(archive.read(part))) as inner:
        return part.file_size + sum(member.file_size for member in inner.infolist())


def _misused_types(schema: Any) -> Iterator[str]:  # noqa: ANN401
    """Names of `TRUSTED` that the file builds in a different way."""
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
