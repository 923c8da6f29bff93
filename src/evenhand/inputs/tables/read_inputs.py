"""Inputs as documents name them: without their folder, and with a hash."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from evenhand.inputs.fingerprints import fingerprint_file
from evenhand.inputs.tables.addresses import shown
from evenhand.inputs.tables.files import is_near, open_table

__all__ = ["fingerprint_input", "name_of_input"]


def fingerprint_input(given: Any) -> str:  # noqa: ANN401 - what `open_table` takes
    """SHA-256 of a table that was read: of its bytes if it is local, otherwise of its rows or versions."""
    if isinstance(given, (str, os.PathLike)) and is_near(given):
        return fingerprint_file(Path(given))
    return open_table(given).fingerprint()


def name_of_input(given: Any) -> str:  # noqa: ANN401 - a path, an address, or a table that is open
    """The last part of the path or address of a table.

    Examples
    --------
    >>> name_of_input("s3://KEY:SECRET@bank/loans/2024.parquet?region=eu-west-1"), name_of_input("loans/2024.csv")
    ('2024.parquet', '2024.csv')
    """
    if isinstance(given, (str, os.PathLike)):
        if is_near(given):
            return Path(given).resolve().name
        given = shown(os.fspath(given))
    name: str = given if isinstance(given, str) else given.name
    return name.partition("?")[0].rstrip("/").rpartition("/")[2] or name
