"""Nested results as files of arrays and plain JSON, which can be read without running code."""

from __future__ import annotations

import json
import os
from dataclasses import fields, is_dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from evenhand.auditing.finished import BatchRecord, PairNulls
from evenhand.auditing.reason_codes import ReasonSums
from evenhand.auditing.sums import AuditSums, ScoreCounts
from evenhand.auditing.triples import EvidenceSums
from evenhand.exceptions import StreamError
from evenhand.matching.diagnostics import MatchSums, Moments
from evenhand.metrics.reason_codes import ReasonCounts
from evenhand.system.files import write_atomically

__all__ = ["encode", "load", "save"]

_KNOWN = {
    kind.__name__: kind
    for kind in (
        AuditSums,
        BatchRecord,
        EvidenceSums,
        MatchSums,
        Moments,
        PairNulls,
        ReasonCounts,
        ReasonSums,
        ScoreCounts,
    )
}


def encode(value: Any) -> bytes:  # noqa: ANN401 - sums and plain data
    """The content of a file of sums, arrays and plain data."""
    arrays: list[np.ndarray[Any, Any]] = []
    text = json.dumps(_plain(value, arrays))
    named: dict[str, Any] = {f"a{k}": array for k, array in enumerate(arrays)}
    file = BytesIO()
    np.savez(file, header=np.frombuffer(text.encode(), dtype=np.uint8), **named)
    return file.getvalue()


def save(path: str | os.PathLike[str], value: Any) -> None:  # noqa: ANN401
    """Write such a file, completely or not at all."""
    with write_atomically(path) as temporary:
        temporary.write_bytes(encode(value))


def load(path: str | os.PathLike[str]) -> Any:  # noqa: ANN401
    """Read what `save` wrote.

    Raises
    ------
    StreamError
        If the file is damaged.
    """
    try:
        with Path(path).open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            header = json.loads(file["header"].tobytes().decode())
            return _restored(header, {name: file[name] for name in file.files if name != "header"})
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
        raise StreamError(
            f"{os.fspath(path)!r} cannot be read ({error}); remove it to have its batch audited again."
        ) from error


def _plain(value: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:  # noqa: ANN401
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if is_dataclass(value) and not isinstance(value, type):
        return {"kind": type(value).__name__, "fields": [_plain(getattr(value, f.name), arrays) for f in fields(value)]}
    if isinstance(value, dict):
        return {"items": [[_plain(k, arrays), _plain(v, arrays)] for k, v in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [_plain(item, arrays) for item in value]}
    if isinstance(value, list):
        return [_plain(item, arrays) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def _restored(value: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:  # noqa: ANN401
    if isinstance(value, list):
        return [_restored(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[f"a{value['array']}"]
    if "tuple" in value:
        return tuple(_restored(item, arrays) for item in value["tuple"])
    if "items" in value:
        return {_restored(k, arrays): _restored(v, arrays) for k, v in value["items"]}
    kind: Any = _KNOWN[value["kind"]]
    return kind(*(_restored(item, arrays) for item in value["fields"]))
