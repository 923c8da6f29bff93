"""Fingerprints of data and models, which change when they do, so that a document identifies what it is about."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from evenhand.inputs.validation import is_number_column
from evenhand.system.hashing import person_hash

_CHUNK = 1 << 20


def fingerprint_table(table: pd.DataFrame) -> str:
    """SHA-256 of a table's column names and values, in order; the index and data types do not matter.

    Examples
    --------
    >>> import pandas as pd
    >>> first = fingerprint_table(pd.DataFrame({"a": [1, 2], "b": ["x", None]}))
    >>> first == fingerprint_table(pd.DataFrame({"a": [1.0, 2.0], "b": ["x", None]}))
    True
    >>> first == fingerprint_table(pd.DataFrame({"a": [2, 1], "b": ["x", None]}))
    False
    """
    digest = hashlib.sha256()
    for name in table.columns:
        column = table[name]
        if is_number_column(column) or column.dtype == bool:
            content = column.to_numpy(dtype=np.float64, na_value=np.nan).tobytes()
        else:
            codes, values = column.astype(object).factorize()
            texts = [hashlib.sha256(f"{type(value).__name__}:{value}".encode()).digest() for value in values]
            content = b"".join(texts[code] if code >= 0 else b"\0" * 32 for code in codes.tolist())
        digest.update(f"{len(str(name))}:{name}:{len(content)}:".encode())
        digest.update(content)
    return digest.hexdigest()


def hash_rows(table: pd.DataFrame) -> NDArray[np.uint64]:
    """64 random-looking bits for each row, from the names and values of its columns, in any order.

    The order of rows and columns, the index and the data types do not matter, so a row has the same bits wherever it is
    read.

    Examples
    --------
    >>> import pandas as pd
    >>> whole = hash_rows(pd.DataFrame({"a": [1, 2], "b": ["x", None]}))
    >>> bool(whole[1] == hash_rows(pd.DataFrame({"b": [None], "a": [2.0]}))[0])
    True
    """
    bits = np.zeros(len(table), dtype=np.uint64)
    for name in table.columns:
        bits += hash_column(table[name])
    return bits


def hash_column(column: pd.Series[Any]) -> NDArray[np.uint64]:
    """The contribution of a column to the bits of each row; all missing values are equal."""
    bits: NDArray[np.uint64]
    if is_number_column(column) or column.dtype == bool:
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan) + 0.0  # one zero, without a sign
        numbers[np.isnan(numbers)] = np.nan
        bits = numbers.view(np.uint64)
    else:
        codes, values = column.astype(object).factorize()
        bits = np.array([*map(_object_bits, values), _number_bits(np.nan)], dtype=np.uint64)[codes]
    return person_hash(bits, _text_bits(str(column.name)) >> 1)


def _object_bits(value: object) -> int:
    """Bits of a value in a column of mixed types; booleans next to missing values keep their usual bits."""
    if isinstance(value, (bool, np.bool_)):
        return _number_bits(float(value))
    return _text_bits(f"{type(value).__name__}:{value}")


def _number_bits(value: float) -> int:
    return int(np.float64(value).view(np.uint64))


def _text_bits(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def fingerprint_numbers(*arrays: ArrayLike) -> str:
    """SHA-256 of arrays of numbers, as float64.

    Examples
    --------
    >>> fingerprint_numbers([1, 2]) == fingerprint_numbers([1.0, 2.0]) != fingerprint_numbers([2, 1])
    True
    """
    digest = hashlib.sha256()
    for array in arrays:
        values = np.ascontiguousarray(array, dtype=np.float64)
        digest.update(f"{values.shape}:".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()


def fingerprint_file(path: str | Path) -> str:
    """SHA-256 of a file's bytes; for a folder, of its files and their names."""
    path = Path(path)
    digest = hashlib.sha256()
    if path.is_dir():
        for part in sorted(p for p in path.rglob("*") if p.is_file()):
            digest.update(f"{part.relative_to(path).as_posix()}:{fingerprint_file(part)};".encode())
        return digest.hexdigest()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def fingerprint_plain(data: object) -> str:
    """Sixteen hexadecimal digits that differ when JSON-able `data` does.

    Examples
    --------
    >>> fingerprint_plain({"a": 1, "b": 2}) == fingerprint_plain({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]
