import csv
import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from evenhand.datasets.hmda import (
    HMDA_CATEGORIES,
    HMDA_NOT_INPUTS,
    HMDA_NUMBERS,
    HMDA_POST_DECISION,
    HMDA_PROTECTED,
)

HMDA_HEADER = (*HMDA_NUMBERS, *HMDA_CATEGORIES, *HMDA_POST_DECISION, *HMDA_PROTECTED, *HMDA_NOT_INPUTS)

APPLICATION = dict.fromkeys(HMDA_HEADER, "1") | {
    "activity_year": "2024",
    "state_code": "DC",
    "derived_race": "White",
    "derived_sex": "Female",
    "debt_to_income_ratio": "36",
    "loan_amount": "105000.0",
}


def _raw_folder(name: str) -> Path:
    root = os.environ.get("EVENHAND_DATA")
    if not root:
        pytest.skip(f"EVENHAND_DATA is not set: the raw {name} files are not at hand")
    folder = Path(root) / name
    if not folder.is_dir():
        pytest.skip(f"EVENHAND_DATA has no folder {name}")
    return folder


@pytest.fixture(scope="session")
def hmda_dir() -> Path:
    return _raw_folder("hmda")


@pytest.fixture(scope="session")
def german_dir() -> Path:
    return _raw_folder("german")


@pytest.fixture(scope="session")
def taiwan_dir() -> Path:
    return _raw_folder("taiwan")


@pytest.fixture(scope="session")
def adult_dir() -> Path:
    return _raw_folder("adult")


@pytest.fixture
def write_export() -> Callable[..., Path]:
    """Write a small export; each row names the fields in which it differs from `APPLICATION`."""

    def write(path: Path, *rows: dict[str, str]) -> Path:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "wt", newline="") as stream:
            writer = csv.DictWriter(stream, HMDA_HEADER)
            writer.writeheader()
            writer.writerows(APPLICATION | row for row in rows)
        return path

    return write
