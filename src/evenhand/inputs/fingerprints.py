"""Short names of data and models that change when they do, so that a document says what it speaks of."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from evenhand.inputs.validation import is_number_column

__all__ = ["fingerprint_file", "fingerprint_numbers", "fingerprint_plain", "fingerprint_table"]

_CHUNK = 1 << 20


def fingerprint_table(table: pd.DataFrame) -> str:
    """SHA-256 of a table's column names and values, in order; its index and the types that hold them play no part.

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
    """SHA-256 of a file's bytes; of a folder's files, their names included."""
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
