"""Any model from its file.

The format is recognized by extension and content. The native readers of other libraries may crash or hang on a damaged
file, so they first open it in a separate process.
"""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray

from evenhand.exceptions import LimitError, MissingExtraError, ModelFileError, first_line
from evenhand.models.trees import TreeEnsemble
from evenhand.models.trees.libraries import catboost_model
from evenhand.system.processes import run_limited

# Formats by file extension; several formats can share an extension.
_BY_ENDING: dict[str, tuple[str, ...]] = {
    ".safetensors": ("evenhand",),
    ".onnx": ("onnx",),
    ".json": ("xgboost json", "catboost json"),
    ".ubj": ("xgboost ubj",),
    ".txt": ("lightgbm",),
    ".cbm": ("catboost cbm",),
    ".skops": ("skops",),
    ".pmml": ("pmml",),
    ".pt": ("torch",),
    ".pth": ("torch",),
    ".pkl": ("pickle",),
    ".pickle": ("pickle",),
    ".joblib": ("pickle",),
}
PICKLES = tuple(ending for ending, formats in _BY_ENDING.items() if formats == ("pickle",))

_HEAD = 4096
# gzip, bzip2, xz, lz4 and zlib, in which joblib may wrap a pickle.
_COMPRESSED = (
    b"\x1f\x8b",
    b"BZh",
    b"\xfd7zXZ\x00",
    b"\x04\x22\x4d\x18",
    b"\x78\x01",
    b"\x78\x5e",
    b"\x78\x9c",
    b"\x78\xda",
)


def file_format(path: Path) -> str:
    """The format of a model file.

    Raises
    ------
    ModelFileError
        If there is no such file, its extension is not one of a model, or its content does not match its extension.
    """
    if not path.is_file():
        raise ModelFileError(f"There is no model file {str(path)!r}.")
    named = _BY_ENDING.get(path.suffix.lower())
    if named is None:
        raise ModelFileError(
            f"{str(path)!r} must end in one of {', '.join(_BY_ENDING)}; the extension says how to read the model."
        )
    if path.stat().st_size == 0:
        raise ModelFileError(f"{str(path)!r} is empty.")
    found = _by_content(path)
    # ONNX files have no fixed first bytes, and XML has many encodings.
    if found in named or (found == "unknown" and named in (("onnx",), ("pmml",))):
        return named[0] if found == "unknown" else found
    if named in (("pickle",), ("torch",)) and found in ("pickle", "compressed", "torch"):
        return named[0]
    what = "something unknown" if found == "unknown" else f"a file of the kind {found!r}"
    raise ModelFileError(
        f"{str(path)!r} is truncated, altered or misnamed: by its extension it is of the kind {' or '.join(named)!r}, "
        f"by its content {what}."
    )


def _by_content(path: Path) -> str:
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if head[:4] == b"PK\x03\x04":
        return _zipped(path)
    if head[:1] == b"\x80" and len(head) > 1 and head[1] <= 5:
        return "pickle"
    if head[:4] == b"CBM1":
        return "catboost cbm"
    if head.startswith(_COMPRESSED):
        return "compressed"
    if head[:5] in (b"tree\n", b"tree\r"):
        return "lightgbm"
    if len(head) > 8 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 2**32:
        return "evenhand"
    if head[:1] == b"{" and head[1:2] in (b"L", b"i", b"U", b"I", b"l", b"$", b"#"):
        return "xgboost ubj"
    if head.lstrip()[:1] == b"{":
        return _json_kind(path)
    return "unknown"


def _zipped(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return "unknown"
    if "schema.json" in names:
        return "skops"
    return "torch" if any(name.endswith(("/data.pkl", "/version")) for name in names) else "unknown"


def _json_kind(path: Path) -> str:
    """Which library's JSON it is, by the keys at its top."""
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return "unknown"
    if "learner" in content:
        return "xgboost json"
    return "catboost json" if {"oblivious_trees", "trees"} & set(content) else "unknown"


def load_model(path: str | os.PathLike[str], *, trust_pickle: bool = False) -> Any:
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
    if kind == "evenhand":
        return _read_evenhand(file)
    if kind == "skops":
        return _read_skops(file)
    if kind in ("onnx", "pmml"):
        from evenhand.models.onnx import OnnxModel
        from evenhand.models.pmml import PmmlModel

        opened_apart(file, kind)
        return (OnnxModel if kind == "onnx" else PmmlModel)(file.read_bytes())
    return read_tree_file(file, kind.split()[0])


_READERS: dict[str, Callable[[Path], Any]] = {}


def register_reader(kind: str, reader: Callable[[Path], Any]) -> None:
    """Let a function from a higher layer of the package read files of a kind."""
    _READERS[kind] = reader


def _read_evenhand(file: Path) -> Any:
    if "evenhand" not in _READERS:
        raise ModelFileError(f"{str(file)!r} was saved by `CECClassifier`: import `evenhand.training` to open it.")
    return _READERS["evenhand"](file)


def _read_skops(file: Path) -> Any:
    from evenhand.models.files.skops import check_scores, checked_content, trusted_model

    with ThreadPoolExecutor(1) as pool:  # the other process takes as long to start as this one to import skops
        apart = pool.submit(opened_apart, file, "skops")
        content = checked_content(file)
        apart.result()
    try:
        model = trusted_model(content)
        check_scores(model)
    except Exception as error:  # of skops, numpy and scikit-learn
        raise ModelFileError(f"{str(file)!r} cannot be read as skops: {first_line(error)}.") from error
    return model


def _read_pickle(file: Path, trust_pickle: bool) -> Any:
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


_PARAMETER = re.compile(rb"\[\w+: .*\]")  # of LightGBM
_TOLERANCE = 1e-4  # of margins, over their size: libraries add leaves in float32


def read_tree_file(path: Path, library: str) -> Any:
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
    content = path.read_bytes() if library == "lightgbm" else b""  # which it would read beyond its end, or forever
    if b"\0" in content:
        raise ModelFileError(f"{str(path)!r} is damaged: a text file must not contain NUL bytes.")
    if b"\nparameters:" in content and b"\nend of parameters" not in content:
        raise ModelFileError(f"{str(path)!r} is damaged: its parameters do not come to an end. Copy the file again.")
    parameters = content.partition(b"\nparameters:")[2].partition(b"\nend of parameters")[0]
    if any(line and not _PARAMETER.fullmatch(line) for line in parameters.splitlines()):
        raise ModelFileError(f"{str(path)!r} is damaged: it has a line among its parameters that is none of them.")
    arrays, rest = opened_apart(path, library)
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


def opened_apart(path: Path, library: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays, and values by name, that a separate process read from a file.

    Raises
    ------
    ModelFileError
        If the process could not read the file, crashed, or did not finish.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            size = path.stat().st_size
            rest = run_limited("evenhand.models.files.worker:read", library, str(path), folder, size=size)
        except LimitError as error:
            raise ModelFileError(f"{str(path)!r} is damaged: {library} {error}.") from None
        with np.load(Path(folder) / "arrays.npz", allow_pickle=False) as stored:
            return dict(stored), rest
