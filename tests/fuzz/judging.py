"""What becomes of one damaged file: refused with a sentence, or accepted with the scores of its own library."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from copies import Ended, in_a_copy
from hostile_tables import judged
from valid_files import people, table_for

from evenhand.arrays import as_numpy
from evenhand.cli import main
from evenhand.exceptions import EvenhandError
from evenhand.models.dispatch import as_audited_model
from evenhand.models.files.load import load_model
from evenhand.models.files.skops import TRUSTED

__all__ = ["SECONDS", "emptied", "judge_command", "judge_models", "judge_table"]

SECONDS = 60.0
_TOLERANCE = 1e-4  # of a probability: libraries add leaves in float32
_RUNS_CODE = (
    *("os.system", "os.exec", "os.spawn", "os.posix_spawn", "subprocess.Popen", "pickle.find_class", "socket.connect"),
    *("pty.spawn", "ctypes.dlopen"),
)


def judge_models(paths: list[Path], canary: Path) -> list[dict[str, Any]]:
    """Load model files one after the other, score people with each, and compare the scores with those of its library.

    Files are opened in one copy of this process; where anything went wrong in it, each is opened in its own.
    """
    ended = in_a_copy(lambda: [_asked(path) for path in paths], SECONDS)
    verdicts = [_verdict(Ended(answer, "", answer["seconds"], ended.peak), canary) for answer in ended.answer or ()]
    withstood = not ended.error and all(found["verdict"] in ("refused", "accepted") for found in verdicts)
    if not withstood and len(paths) > 1:
        canary.unlink(missing_ok=True)
        return [judge_models([path], canary)[0] for path in paths]
    if not withstood:
        return verdicts or [_verdict(ended, canary)]
    accepted = [k for k, found in enumerate(verdicts) if found["verdict"] == "accepted"]
    theirs = in_a_copy(lambda: [_of_library(paths[k]) for k in accepted], SECONDS)
    if theirs.error and len(paths) > 1:
        return [judge_models([path], canary)[0] for path in paths]
    for place, k in enumerate(accepted):
        why = (
            _difference(ended.answer[k]["scores"], theirs.answer[place])
            if not theirs.error
            else (f"its library: {theirs.error.strip().splitlines()[-1][:300]}")
        )
        if why:
            verdicts[k] |= {"verdict": "differs", "why": why}
    return verdicts


def _difference(ours: list[float], theirs: list[float]) -> str:
    one, two = (np.asarray(scores, dtype=np.float64) for scores in (ours, theirs))
    is_same = one.shape == two.shape and np.allclose(one, two, rtol=0, atol=_TOLERANCE, equal_nan=True)
    return "" if is_same else f"{one[:3]} and {two[:3]}"


def judge_command(
    words: list[str], codes: tuple[int, ...], folder: Path, canary: Path, *, is_written: bool
) -> dict[str, Any]:
    """Run a command of evenhand on a damaged file, in the folder of the file."""

    def run() -> dict[str, Any]:
        os.chdir(folder)  # of the copy alone: the folder is soon deleted
        return _commanded(words, codes, is_written=is_written)

    return _verdict(in_a_copy(run, SECONDS), canary)


def judge_table(kind: str, given: str, canary: Path) -> dict[str, Any]:
    """Read a damaged table in every way, or open a damaged template."""

    def look() -> dict[str, Any]:
        seen = _watched()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return judged(kind, given) | {"ran": seen}

    return _verdict(in_a_copy(look, SECONDS), canary)


def _verdict(ended: Ended, canary: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"seconds": round(ended.seconds, 3), "mb": ended.peak >> 20}
    if canary.exists() or (ended.answer or {}).get("ran"):
        return found | {"verdict": "ran code", "why": str((ended.answer or {}).get("ran"))}
    if ended.error:
        how = {"time": "hang"}.get(ended.error, "crash" if ended.error.startswith("signal") else "traceback")
        return found | {"verdict": how, "why": ended.error[-2000:]}
    if ended.peak > 4 * 2**30:
        return found | {"verdict": "memory", "why": str(ended.peak)}
    return found | {"verdict": ended.answer["verdict"], "why": ended.answer.get("why", "")}


@cache
def _watched() -> list[str]:
    """What would run code of a file's choosing, as Python tells of it from now on; once in each copy."""
    seen: list[str] = []
    here = os.getpid()

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event.startswith(_RUNS_CODE) and len(seen) < 9:
            seen.append(f"{event} {arguments!r}"[:200])
            if os.getpid() != here and not event.startswith("ctypes"):  # a copy of the copy, which tells nobody
                Path(os.environ["EVENHAND_CANARY"]).write_text(seen[-1])

    sys.addaudithook(hook)
    return seen


def _asked(path: Path) -> dict[str, Any]:
    begun = time.perf_counter()
    return _asked_for_scores(path) | {"seconds": time.perf_counter() - begun}


def _asked_for_scores(path: Path) -> dict[str, Any]:
    seen = _watched()
    X = table_for(path.name.partition("-")[2], people(64, seed=7))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = load_model(path)
            audited = as_audited_model(model, table=X, n_permutations=4)
            x = audited.encode(audited.aligned(X))
            audited.attribute(x[:3], x[3:6], 2, "segments")
            scores = as_numpy(audited.probability(audited.margin(x)))
        except EvenhandError as error:
            message = str(error)
            is_sentence = message.endswith((".", "?", ")")) and "\n" not in message and "Traceback" not in message
            return {"verdict": "refused" if is_sentence else "traceback", "why": message[:300], "ran": seen}
    return {"verdict": "accepted", "scores": scores.tolist(), "ran": seen}


def _commanded(words: list[str], codes: tuple[int, ...], *, is_written: bool) -> dict[str, Any]:
    seen = _watched()
    errors = io.StringIO()
    sys.argv = ["evenhand", *words]
    nothing = contextlib.nullcontext() if is_written else patch("evenhand.cli.audits.show_and_write", _not_written)
    code = 0
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()), nothing:
        try:
            with warnings.catch_warnings():
                main()
        except SystemExit as done:
            code = int(done.code or 0)
    said = errors.getvalue()
    if code not in codes or "Traceback" in said or (code == 2 and "Error: " not in said):
        return {"verdict": "traceback", "why": f"exit code {code}: {said[-1500:]}", "ran": seen}
    why = said.rpartition("Error: ")[2][:300] if code == 2 else ""
    return {"verdict": "refused" if code == 2 else "accepted", "why": why, "ran": seen}


def _not_written(result: Any, _out: Path, _further: object) -> None:
    json.dumps(result.to_dict(), default=str)


# -- what the library of each format says, asked as its users ask it


def _of_library(path: Path) -> list[float]:
    name = path.name.partition("-")[2]
    X = table_for(name, people(64, seed=7))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = _LIBRARIES[name.partition(".")[2] if name.startswith("xgboost") else _library_of(name)](path, X)
    return np.asarray(scores, dtype=np.float64).reshape(-1).tolist()


def _library_of(name: str) -> str:
    return "catboost" if name.startswith(("catboost", "categories")) else name.rpartition(".")[2]


def _xgboost(path: Path, X: Any) -> Any:
    import xgboost

    booster = xgboost.Booster()
    booster.load_model(path)
    best = booster.attr("best_iteration") if booster.attr("scikit_learn") is not None else None
    rounds = (0, 0) if best is None else (0, int(best) + 1)
    names = booster.feature_names
    matrix = xgboost.DMatrix(X[names] if names else X.to_numpy(), nthread=1, feature_types=booster.feature_types)
    return booster.predict(matrix, iteration_range=rounds)


def _lightgbm(path: Path, X: Any) -> Any:
    import lightgbm

    booster = lightgbm.Booster(model_file=str(path), params={"verbose": -1})
    names = booster.feature_name()
    return booster.predict(X[names] if set(names) <= set(X) else X.to_numpy(), num_threads=1)


def _catboost(path: Path, X: Any) -> Any:
    import catboost

    model = catboost.CatBoostClassifier()
    model.load_model(str(path), format="json" if path.suffix == ".json" else "cbm")
    return model.predict_proba(X[model.feature_names_] if set(model.feature_names_) <= set(X) else X)[:, 1]


def _onnx(path: Path, X: Any) -> Any:
    import onnxruntime

    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    floats = [item.name for item in session.get_outputs() if item.type in ("tensor(float)", "tensor(double)")]
    given = session.get_inputs()[0]
    kind = np.float32 if given.type == "tensor(float)" else np.float64
    found = np.asarray(session.run([floats[-1]], {given.name: X.to_numpy(dtype=kind)})[0])
    return found[:, -1] if found.ndim == 2 else found


def _pmml(path: Path, X: Any) -> Any:
    from sklearn_pmml_model.auto_detect import auto_detect_classifier

    model = auto_detect_classifier(pmml=str(path))
    names = [name for name, field in model.fields.items() if field is not model.target_field]
    return model.predict_proba(X[names].copy())[:, 1]


def _skops(path: Path, X: Any) -> Any:
    import skops.io

    model = skops.io.load(path, trusted=list(TRUSTED))
    return model.predict_proba(X)[:, 1]


def _safetensors(path: Path, X: Any) -> Any:
    """The network of the file, multiplied out; how columns become inputs is ours alone."""
    from safetensors.numpy import load_file

    tensors = load_file(path)
    x = load_model(path).encoder_.transform(X).astype(np.float32)
    weights = sorted(name for name in tensors if name.endswith(".weight"))
    for k, name in enumerate(weights):
        x = x @ tensors[name].T + tensors[name.replace("weight", "bias")]
        x = np.maximum(x, 0) if k < len(weights) - 1 else x
    return 1 / (1 + np.exp(-x.astype(np.float64)))


_LIBRARIES: dict[str, Callable[[Path, Any], Any]] = {
    "json": _xgboost,
    "ubj": _xgboost,
    "txt": _lightgbm,
    "catboost": _catboost,
    "onnx": _onnx,
    "pmml": _pmml,
    "skops": _skops,
    "safetensors": _safetensors,
}


def emptied(folder: Path) -> Path:
    """The folder, new and empty."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
