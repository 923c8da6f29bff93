"""Any model from its file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib

from evenhand.exceptions import ModelFileError, first_line
from evenhand.models.files.formats import PICKLES, file_format

__all__ = ["load_model", "register_reader"]


def load_model(path: str | os.PathLike[str], *, trust_pickle: bool = False) -> Any:  # noqa: ANN401 - any model
    """Read a model that `evenhand.audit` takes.

    Parameters
    ----------
    path
        A folder or ``.safetensors`` file that `CECClassifier.save` wrote; an ONNX or PMML file; a native file of
        XGBoost (``.json``, ``.ubj``), LightGBM (``.txt``) or CatBoost (``.cbm``, ``.json``); a ``.skops`` file; or,
        if trusted, a pickle (``.pkl``, ``.pickle``, ``.joblib``).
    trust_pickle
        Whether to open pickles, which run any code they contain.

    Raises
    ------
    ModelFileError
        If the file is absent, damaged, misnamed, of a different kind, or contains untrusted types or code.

    Examples
    --------
    >>> load_model("model.pkl")
    Traceback (most recent call last):
    ...
    evenhand.exceptions.ModelFileError: There is no model file 'model.pkl'.
    """
    file = Path(path)
    if file.is_dir():
        return _read_evenhand(file)
    kind = file_format(file)
    if kind == "pickle":
        return _read_pickle(file, trust_pickle)
    if kind == "torch":
        raise ModelFileError(
            f"{str(file)!r} has the weights of a torch model without its network; build the module in Python, load "
            "the weights and call `evenhand.audit`, or export it with `torch.onnx.export`."
        )
    if kind == "skops":
        return _read_skops(file)
    if kind == "evenhand":
        return _read_evenhand(file)
    if kind == "onnx":
        return _read_onnx(file)
    if kind == "pmml":
        return _read_pmml(file)
    from evenhand.models.files.guarded import read_tree_file

    return read_tree_file(file, kind.split()[0])


_READERS: dict[str, Callable[[Path], Any]] = {}


def register_reader(kind: str, reader: Callable[[Path], Any]) -> None:
    """Let a function from a higher layer of the package read files of a kind."""
    _READERS[kind] = reader


def _read_evenhand(file: Path) -> Any:  # noqa: ANN401
    if "evenhand" not in _READERS:
        raise ModelFileError(f"{str(file)!r} was saved by `CECClassifier`: import `evenhand.training` to open it.")
    return _READERS["evenhand"](file)


def _read_skops(file: Path) -> Any:  # noqa: ANN401
    from evenhand.models.files.guarded import opened_apart
    from evenhand.models.files.same_scores import check_scores
    from evenhand.models.files.skops_files import checked_content, trusted_model

    content = checked_content(file)
    opened_apart(file, "skops")
    try:
        model = trusted_model(content)
        check_scores(model)
    except Exception as error:  # of skops, numpy and scikit-learn
        raise ModelFileError(f"{str(file)!r} cannot be read as skops: {first_line(error)}.") from error
    return model


def _read_onnx(file: Path) -> Any:  # noqa: ANN401
    from evenhand.models.files.guarded import opened_apart
    from evenhand.models.onnx import OnnxModel

    opened_apart(file, "onnx")
    return OnnxModel(file.read_bytes())


def _read_pmml(file: Path) -> Any:  # noqa: ANN401
    from evenhand.models.files.guarded import opened_apart
    from evenhand.models.pmml import PmmlModel

    opened_apart(file, "pmml")
    return PmmlModel(file.read_bytes())


def _read_pickle(file: Path, trust_pickle: bool) -> Any:  # noqa: ANN401
    if not trust_pickle:
        raise ModelFileError(
            f"{str(file)!r} is a pickle ({', '.join(PICKLES)}), which can run any code when it is opened; if you made "
            "it yourself or trust whoever did, allow it (trust_pickle=True, --trust-pickle), or save the model as "
            ".skops or ONNX."
        )

    try:
        return joblib.load(file)
    except Exception as error:  # unpickling may raise anything
        raise ModelFileError(f"{str(file)!r} cannot be read as pickle: {first_line(error)}.") from error
