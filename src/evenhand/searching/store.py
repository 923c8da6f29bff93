"""Finished blocks of a search on disk, so that a stopped search can continue and end with the same result."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evenhand.exceptions import DataFileError
from evenhand.system.files import json_ready, write_text

_FORMAT = "evenhand-search-block"


@dataclass(frozen=True)
class Scored:
    """Metrics of one candidate, trained with one seed, on one fold; NaN if a metric could not be estimated.

    Attributes
    ----------
    candidate
        Its key.
    fold, seed
        Numbers of the fold and the seed.
    metrics
        By name; empty if training failed.
    note
        Why training failed, if it did.
    """

    candidate: str
    fold: int
    seed: int
    metrics: dict[str, float]
    note: str = ""


class BlockStore:
    """A folder with one file for each finished block; without a folder, nothing is kept.

    Parameters
    ----------
    folder
        The folder; None to keep nothing.
    run
        Fingerprint of data and settings. Blocks of other runs may be in the same folder and are left alone.

    Examples
    --------
    >>> import tempfile
    >>> store = BlockStore(tempfile.mkdtemp(), "run")
    >>> store.write("first", [Scored("a", 0, 0, {"auc": 0.8})])
    >>> store.read("first")[0].metrics
    {'auc': 0.8}
    >>> store.read("second") is None
    True
    """

    def __init__(self, folder: str | os.PathLike[str] | None, run: str) -> None:
        self._folder = None if folder is None else Path(folder)
        self._run = run

    def read(self, block: str) -> list[Scored] | None:
        """Results of a block, or None if it is not finished.

        Raises
        ------
        DataFileError
            If the file cannot be read.
        """
        path = self._path(block)
        if path is None or not path.is_file():
            return None
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            if data["format"] != _FORMAT or data["run"] != self._run or data["block"] != block:
                raise ValueError("it contains a different block")
            return [_scored(row) for row in data["results"]]
        except (ValueError, KeyError, TypeError) as error:
            raise DataFileError(f"{path} is not a block of this search ({error}): remove the file.") from error

    def write(self, block: str, results: list[Scored]) -> None:
        """Keep a finished block, whole or not at all."""
        path = self._path(block)
        if path is None:
            return
        rows = [json_ready(asdict(row)) for row in results]
        content = json.dumps({"format": _FORMAT, "run": self._run, "block": block, "results": rows}, allow_nan=False)
        write_text(path, content)

    def _path(self, block: str) -> Path | None:
        return None if self._folder is None else self._folder / f"search-{self._run}-{block}.json"


def _scored(row: dict[str, Any]) -> Scored:
    metrics = {name: math.nan if value is None else float(value) for name, value in row["metrics"].items()}
    return Scored(row["candidate"], int(row["fold"]), int(row["seed"]), metrics, row["note"])
