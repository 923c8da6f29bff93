"""Files opened in a process of their own first, so that a damaged one can do no harm here."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.exceptions import ModelFileError
from evenhand.models.files.worker import catboost_model
from evenhand.models.trees import TreeEnsemble

__all__ = ["TIME_LIMIT", "opened_apart", "read_tree_file"]

TIME_LIMIT = 300.0  # seconds; a large model of honest origin takes a few

_PACKAGES = {
    "xgboost": "xgboost",
    "lightgbm": "lightgbm",
    "catboost": "catboost",
    "onnx": "evenhand[onnx]",
    "pmml": "evenhand[pmml]",
}


def read_tree_file(path: Path, library: str, time_limit: float = TIME_LIMIT) -> Any:  # noqa: ANN401
    """The trees of a native file of XGBoost, LightGBM or CatBoost.

    A CatBoost model of categories cannot be taken apart into trees; it is read again here once it has scored people
    there.

    Raises
    ------
    ModelFileError
        If the library cannot read it, or what it read is no model that can be explained.
    """
    arrays, rest = opened_apart(path, library, time_limit)
    if "takes_words" in rest:
        return catboost_model(path)
    rest["categories"] = {int(j): tuple(known) for j, known in rest["categories"].items()}
    names = rest["feature_names"]
    rest["feature_names"] = None if names is None else tuple(names)
    rest["missing_value"] = math.nan if rest["missing_value"] is None else rest["missing_value"]
    return TreeEnsemble(**arrays, **rest)


def opened_apart(path: Path, library: str, time_limit: float = TIME_LIMIT) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a process of its own read from a file: arrays, and values by name.

    Raises
    ------
    ModelFileError
        If the process found the file unreadable, crashed on it or did not come to an end.
    """
    with tempfile.TemporaryDirectory() as folder:
        # -P: modules that lie in the working folder, perhaps beside the file, are not imported.
        command = [sys.executable, "-P", "-m", "evenhand.models.files.worker", library, str(path.resolve()), folder]
        known = [str(Path(__file__).parents[3]), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(known)}
        try:
            ended = subprocess.run(
                command, env=environment, capture_output=True, timeout=time_limit, check=False, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            raise ModelFileError(
                f"{str(path)!r} is damaged: {library} was still reading it after {time_limit:g} seconds."
            ) from None
        answer_file = Path(folder) / "answer.json"
        if not answer_file.exists():
            how = f"signal {-ended.returncode}" if ended.returncode < 0 else f"exit code {ended.returncode}"
            raise ModelFileError(f"{str(path)!r} is damaged: {library} crashed while reading it ({how}).")
        answer = json.loads(answer_file.read_text())
        if "error" in answer:
            if answer["type"] in ("ImportError", "ModuleNotFoundError", "MissingExtraError"):
                raise ModelFileError(
                    f"{str(path)!r} needs {library}, which is not installed: pip install '{_PACKAGES[library]}'."
                )
            raise ModelFileError(
                f"{str(path)!r} cannot be read as a model of {library}: {answer['error'].rstrip('.')}."
            )
        with np.load(Path(folder) / "arrays.npz", allow_pickle=False) as stored:
            return dict(stored), answer["rest"]
