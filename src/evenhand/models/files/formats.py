"""The format of a model file, by its name and its first bytes."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from evenhand.exceptions import ModelFileError

__all__ = ["PICKLES", "file_format"]

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
