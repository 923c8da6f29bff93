"""Files opened in a separate process first, so that a damaged one can do no harm here."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.exceptions import MissingExtraError, ModelFileError
from evenhand.models.files.worker import catboost_model, seconds_for
from evenhand.models.trees import TreeEnsemble
from evenhand.system.processes import module_command, module_environment

_PATIENCE = 4  # times the computing time allowed for a file, because the machine may be busy
_TIME_IS_OVER = getattr(signal, "SIGXCPU", None)  # Windows does not have it
_TOLERANCE = 1e-4  # of margins, over their size: libraries add leaves in float32

_PACKAGES = {
    "xgboost": "xgboost",
    "lightgbm": "lightgbm",
    "catboost": "catboost",
    "onnx": "evenhand[onnx]",
    "pmml": "evenhand[pmml]",
    "skops": "evenhand[skops]",
}


def read_tree_file(path: Path, library: str, time_limit: float | None = None) -> Any:
    """The trees of a native file of XGBoost, LightGBM or CatBoost.

    There the library scores made-up people, and the trees that were read must give them the same scores here.

    A CatBoost model with categories cannot be converted to trees; it is read again here after it has scored people
    there.

    Raises
    ------
    ModelFileError
        If the library cannot read the file, if the model cannot be explained, or if the library scores people
        differently than the trees that were read.
    """
    if library == "lightgbm":
        _check_text(path)
    arrays, rest = opened_apart(path, library, time_limit)
    if "takes_words" in rest:
        return catboost_model(path)
    rest["categories"] = {int(j): tuple(known) for j, known in rest["categories"].items()}
    names = rest["feature_names"]
    rest["feature_names"] = None if names is None else tuple(names)
    rest["missing_value"] = math.nan if rest["missing_value"] is None else rest["missing_value"]
    people, scores = arrays.pop("people"), arrays.pop("scores")
    ensemble = TreeEnsemble(**arrays, **rest)
    _check_scores(path, library, ensemble, people, scores)
    return ensemble


def _check_text(path: Path) -> None:
    """Refuse a file of LightGBM that the library would read beyond its end, or not come to an end with."""
    content = path.read_bytes()
    if b"\0" in content:
        raise ModelFileError(f"{str(path)!r} is damaged: a text file must not contain NUL bytes.")
    if b"\nparameters:" in content and b"\nend of parameters" not in content:
        raise ModelFileError(f"{str(path)!r} is damaged: its parameters do not come to an end. Copy the file again.")


def _check_scores(
    path: Path, library: str, ensemble: TreeEnsemble, people: NDArray[np.float64], scores: NDArray[np.float64]
) -> None:
    """Refuse trees whose scores differ from those of the library."""
    try:
        ours = ensemble.margin(people)
    except MissingExtraError:  # without numba, these trees cannot score anyone
        return
    scale = max(1.0, float(np.abs(scores).max(initial=0.0)))
    differs = ~(np.abs(ours - scores) <= _TOLERANCE * scale)
    if differs.any():
        raise ModelFileError(
            f"{str(path)!r} is damaged: {library} scores {differs.sum()} of {len(people)} made-up people differently "
            "than the trees in the file do."
        )


def opened_apart(path: Path, library: str, time_limit: float | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays, and values by name, that a separate process read from a file.

    Raises
    ------
    ModelFileError
        If the process could not read the file, crashed, or did not finish.
    """
    limit = seconds_for(path) if time_limit is None else time_limit
    with tempfile.TemporaryDirectory() as folder:
        command = module_command("evenhand.models.files.worker", library, str(path.resolve()), folder)
        try:
            ended = subprocess.run(
                command,
                env=module_environment(),
                capture_output=True,
                timeout=_PATIENCE * limit if time_limit is None else limit,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            ended = None
        if ended is None or -ended.returncode == _TIME_IS_OVER:
            raise ModelFileError(f"{str(path)!r} is damaged: {library} was still reading it after {limit:.0f} seconds.")
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
