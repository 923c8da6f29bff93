"""HMDA: US mortgage applications as the CFPB publishes them, by state and year.

Every column of a Data Browser export is an input (`HMDA_NUMBERS`, `HMDA_CATEGORIES`), or is left out with the reason
(`HMDA_POST_DECISION`, `HMDA_PROTECTED`, `HMDA_NOT_INPUTS`).
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import math
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pandas import DataFrame, Series
from platformdirs import user_cache_dir
from pyarrow import csv as arrow_csv

from evenhand.datasets.dataset import Dataset, embedded_rows
from evenhand.exceptions import DataFileError, DownloadError, InvalidInputError
from evenhand.system.web import download_file, progress_bar

_COLUMNS = embedded_rows("hmda_columns.csv")


def _columns(*roles: str, kind: str = "") -> dict[str, str]:
    """Columns with one of some roles, each with the reason for it."""
    return {row["column"]: row["why"] for row in _COLUMNS if row["role"] in roles and kind in ("", row["kind"])}


HMDA_FINANCIAL = tuple(_columns("financial"))
"""The paper's financial features; income is in thousands of dollars, the loan term in months."""

HMDA_NUMBERS = tuple(_columns("financial", "input", kind="number"))
"""Numeric inputs. Product features are reported as applied for if no loan was made."""

HMDA_CATEGORIES = tuple(_columns("input", kind="category"))
"""Categorical inputs, with the published codes as values (1111: the lender is exempt from reporting)."""

HMDA_POST_DECISION = _columns("after the decision")
"""Columns set by the decision or after it, each with how it reveals the decision."""

HMDA_PROTECTED = tuple(_columns("protected"))
"""Columns that state race, ethnicity, sex or age, or the racial make-up of the tract.

All are prohibited bases under US law, age with exceptions, so none is an input unless asked for.
"""

HMDA_NOT_INPUTS = _columns("not an input")
"""Columns that are never inputs, each with the reason."""

_OTHER_NUMBERS = _columns("after the decision", "protected", kind="number")

HMDA_ADDRESS = "https://ffiec.cfpb.gov/v2/data-browser-api/view/csv"
_FIRST_YEAR = 2018
_DEFAULT_YEAR = 2024
_DEFAULT_STATES = ("DC",)

_ORIGINATED, _DENIED = "1", "3"
_OTHER_ACTIONS = {
    "2": "approved but not accepted",
    "4": "withdrawn by the applicant",
    "5": "closed as incomplete",
    "6": "purchased loan",
    "7": "preapproval request denied",
    "8": "preapproval request approved but not accepted",
}
_NOT_GIVEN = frozenset({"", "NA"})
_EXEMPT = "Exempt"
_FILE = "evenhand_file"

_DEBT_TO_INCOME_RANGES = {"<20%": 10.0, "20%-<30%": 25.0, "30%-<36%": 33.0, "50%-60%": 55.0, ">60%": 65.0}


class _Grouping(NamedTuple):
    column: str
    left_out: frozenset[str]
    readable: dict[str, str]
    others: str | None = None

    def name(self, value: str) -> str:
        return self.readable.get(value, self.others or value)


_GROUPINGS = {
    "race": _Grouping(
        "derived_race",
        frozenset({"Race Not Available", "Free Form Text Only", "Joint"}),
        {"White": "White"},
        others="non-White",
    ),
    "derived_race": _Grouping("derived_race", frozenset({"Race Not Available", "Free Form Text Only"}), {}),
    "ethnicity": _Grouping(
        "derived_ethnicity", frozenset({"Ethnicity Not Available", "Free Form Text Only", "Joint"}), {}
    ),
    "sex": _Grouping("derived_sex", frozenset({"Sex Not Available", "Joint"}), {}),
    "age": _Grouping("applicant_age_above_62", _NOT_GIVEN, {"Yes": "62 or older", "No": "under 62"}),
}


def load_hmda(
    *,
    states: str | Sequence[str] | None = None,
    year: int | None = None,
    group: str = "race",
    include_post_decision: bool = False,
    include_protected: bool = False,
    path: str | Path | None = None,
) -> Dataset:
    """Originated and denied mortgage applications; ``y == 1`` is an originated loan.

    Exports are read from `path`; else from the folder ``hmda`` inside the folder of the environment variable
    ``EVENHAND_DATA``, if it has any; else from the user's cache, into which they are downloaded if necessary (by
    default the District of Columbia, 2024).

    A person is kept if the loan was originated or denied, the group is known and no financial feature is missing.
    Other missing values stay missing; a column without values is left out and noted. Each range of the debt-to-income
    ratio becomes its midpoint, see `parse_debt_to_income`. The group is not among the inputs.

    Parameters
    ----------
    states
        Two-letter codes; None for all in the files.
    year
        Year of the applications; None for all in the files.
    group
        ``"race"``: White against non-White, without joint applications of both;
        ``"derived_race"``: all values of that column, including joint ones; ``"sex"`` and ``"ethnicity"``:
        two values, without joint ones; ``"age"``: 62 or older against under 62.
    include_post_decision
        Keep the columns of `HMDA_POST_DECISION`, to see how much they reveal.
    include_protected
        Keep the columns of `HMDA_PROTECTED`.
    path
        A Data Browser export, plain or gzip, or a folder of them.

    Raises
    ------
    InvalidInputError
        If `group`, `states` or `year` is invalid.
    DataFileError
        If a file is missing, damaged or not such an export, or no application is left.
    DownloadError
        If there is nothing to read and the download fails.

    Examples
    --------
    >>> data = load_hmda(path="hmda/", group="sex")  # doctest: +SKIP
    >>> data.n_read == len(data) + sum(data.exclusions.values())  # doctest: +SKIP
    True
    """
    if group not in _GROUPINGS:
        raise InvalidInputError(f"`group` of HMDA must be one of {', '.join(map(repr, _GROUPINGS))}, got {group!r}.")
    grouping = _GROUPINGS[group]
    wanted_states, wanted_year = _checked_states(states), _checked_year(year)
    files = _find_exports(path, wanted_states, wanted_year)
    extra = [*(HMDA_POST_DECISION if include_post_decision else ()), *(HMDA_PROTECTED if include_protected else ())]
    numbers = (*HMDA_NUMBERS, *(column for column in extra if column in _OTHER_NUMBERS))
    categories = (*HMDA_CATEGORIES, *(column for column in extra if column not in _OTHER_NUMBERS))
    columns = (*numbers, *categories, "action_taken", "activity_year", "state_code", grouping.column)
    raw = _read_exports(files, list(dict.fromkeys(columns)))
    is_kept, exclusions = np.ones(len(raw), dtype=np.bool_), {}
    for reason, applies in _exclusion_rules(raw, grouping, wanted_states, wanted_year):
        if count := int((is_kept & applies).sum()):
            exclusions[reason] = count
            is_kept &= ~applies
    shown = files[0].name if len(files) == 1 else f"{len(files)} files in {files[0].parent.name}"
    if not is_kept.any():
        reasons = "; ".join(f"{reason} {count:,}" for reason, count in exclusions.items())
        raise DataFileError(
            f"No application is left of the {len(raw):,} rows in {shown} ({reasons or 'the files are empty'}): choose "
            "different files, states or year."
        )
    kept = raw[is_kept].reset_index(drop=True)
    parsed = {column: _parse_column(kept[column], kept[_FILE]) for column in numbers}
    coded = {column: _order_by_code(kept[column]) for column in categories}
    inputs = pd.DataFrame({**parsed, **coded})
    X = inputs.dropna(axis="columns", how="all")
    return Dataset(
        name="hmda",
        X=X,
        y=(kept["action_taken"] == _ORIGINATED).to_numpy().astype(np.int64),
        group=kept[grouping.column].map(grouping.name).to_numpy(dtype=object),
        group_name=group,
        financial_features=HMDA_FINANCIAL,
        positive_label="loan originated",
        source=f"CFPB/FFIEC HMDA Data Browser: {', '.join(f'{p.name} (SHA-256 {_sha256(p)[:16]})' for p in files)}",
        license="US government public data",
        exclusions=exclusions,
        notes=_notes([*inputs.columns.difference(X.columns)], include_post_decision, include_protected),
    )


def fetch_hmda(
    states: str | Sequence[str] = _DEFAULT_STATES,
    year: int = _DEFAULT_YEAR,
    *,
    folder: str | Path | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> list[Path]:
    """Paths of the Data Browser exports of `states` and `year`, downloaded if necessary.

    The exports only have originated and denied applications.

    Parameters
    ----------
    states
        Two-letter codes.
    year
        Year of the applications, 2018 or later.
    folder
        Where to keep the files; None for the user's cache, where `load_hmda` finds them.
    overwrite
        Download existing files again.
    progress
        Draw a bar on a terminal.

    Raises
    ------
    InvalidInputError
        If `states` or `year` is invalid.
    DownloadError
        If a file could not be downloaded; the message says how to get it manually.

    Examples
    --------
    >>> fetch_hmda("NY", 2024)  # doctest: +SKIP
    [PosixPath('.../evenhand/hmda/hmda_2024_NY.csv')]
    """
    codes, checked_year = _checked_states(states), _checked_year(year)
    target_folder = _cache_folder() if folder is None else Path(folder)
    paths = []
    for state in codes or ():
        target = target_folder / f"hmda_{checked_year}_{state}.csv"
        if overwrite or not target.exists():
            url = f"{HMDA_ADDRESS}?states={state}&years={checked_year}&actions_taken={_ORIGINATED},{_DENIED}"
            _fetch_export(url, target, progress)
        paths.append(target)
    return paths


def parse_debt_to_income(text: str) -> float:
    """Debt-to-income ratio in percent; NaN if not given or exempt.

    Published whole percentages are unchanged, a range becomes its midpoint; the open ones, below 20 and above 60,
    become 10 and 65.

    Raises
    ------
    ValueError
        If `text` has none of the published forms.

    Examples
    --------
    >>> [parse_debt_to_income(text) for text in ("36", "20%-<30%", ">60%", "NA")]
    [36.0, 25.0, 65.0, nan]
    """
    return _DEBT_TO_INCOME_RANGES[text] if text in _DEBT_TO_INCOME_RANGES else _parse_number(text)


def _parse_number(text: str) -> float:
    if text in _NOT_GIVEN or text == _EXEMPT:
        return math.nan
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"expected a finite number, got {text!r}")
    return number


def _checked_states(states: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if states is None:
        return None
    codes = (states,) if isinstance(states, str) else tuple(states)
    if not codes or not all(isinstance(code, str) and re.fullmatch("[A-Za-z]{2}", code) for code in codes):
        raise InvalidInputError(f"`states` must be two-letter codes such as 'NY', got {states!r}.")
    return tuple(dict.fromkeys(code.upper() for code in codes))


def _checked_year(year: int | None) -> int | None:
    if year is not None and not (isinstance(year, int) and _FIRST_YEAR <= year < 2100):
        raise InvalidInputError(f"`year` must be {_FIRST_YEAR} or later, when the current columns began, got {year!r}.")
    return year


def _find_exports(path: str | Path | None, states: tuple[str, ...] | None, year: int | None) -> list[Path]:
    """Files to read: the user's, else the environment's, else the cache's, else downloaded ones."""
    if path is not None:
        given = Path(path)
        if not given.exists():
            raise DataFileError(f"{given} does not exist: set `path` to a Data Browser export or a folder of them.")
        exports = [given] if given.is_file() else _exports_in(given)
        if not exports:
            raise DataFileError(f"{given} has no .csv or .csv.gz file: put Data Browser exports there.")
        return exports
    root = os.environ.get("EVENHAND_DATA")
    if root and (exports := _exports_in(Path(root) / "hmda")):
        return exports
    cached = [p for p in _exports_in(_cache_folder()) if year is None or p.name.startswith(f"hmda_{year}_")]
    if states is None and cached:
        return cached
    return fetch_hmda(states or _DEFAULT_STATES, year or _DEFAULT_YEAR, progress=True)


def _exports_in(folder: Path) -> list[Path]:
    """Exports sorted by name; a compressed copy next to a file is not read twice."""
    if not folder.is_dir():
        return []
    names = {path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")}
    plain = {name for name in names if name.lower().endswith(".csv")}
    packed = {name for name in names if name.lower().endswith(".csv.gz") and name[:-3] not in plain}
    return [folder / name for name in sorted(plain | packed)]


def _cache_folder() -> Path:
    return Path(user_cache_dir("evenhand", appauthor=False)) / "hmda"


def _fetch_export(url: str, target: Path, is_shown: bool) -> None:
    with progress_bar(target.name) if is_shown else nullcontext() as progress:
        download_file(url, target, progress=progress)
    try:
        _check_columns(target, ["action_taken", *HMDA_FINANCIAL])
    except DataFileError as error:
        target.unlink()
        raise DownloadError(
            f"{url} answered with something other than a Data Browser export: try again later, or export the "
            f"file at https://ffiec.cfpb.gov/data-browser/ and save it as {target}."
        ) from error


def _sha256(path: Path) -> str:
    """The hash of an export's content, whether it is compressed or not."""
    opener: Any = gzip.open if path.name.lower().endswith(".gz") else open
    with opener(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _check_columns(path: Path, columns: Sequence[str]) -> None:
    """Reject a file whose header lacks any of `columns`."""
    opener: Any = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as stream:
            header = next(csv.reader(stream), [])
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise DataFileError(f"{path} cannot be read ({error}): export or copy it again.") from error
    missing = [column for column in columns if column not in header]
    if missing:
        shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise DataFileError(
            f"{path} is not an HMDA Data Browser export: it lacks {len(missing)} of {len(columns)} "
            f"required columns ({shown}); export it from https://ffiec.cfpb.gov/data-browser/."
        )


def _read_exports(files: Sequence[Path], columns: list[str]) -> DataFrame:
    """Columns of all files and the file's name, every value as published, as categories."""
    text = pa.dictionary(pa.int32(), pa.string())
    options = arrow_csv.ConvertOptions(include_columns=columns, column_types=dict.fromkeys(columns, text))
    tables = []
    for path in files:
        _check_columns(path, columns)
        try:
            table = arrow_csv.read_csv(path, convert_options=options)
        except (pa.ArrowInvalid, OSError) as error:
            reason = str(error).splitlines()[0]
            raise DataFileError(f"{path} is damaged ({reason}): export or copy it again.") from error
        name = pa.DictionaryArray.from_arrays(np.zeros(len(table), dtype=np.int32), [str(path)])
        tables.append(table.append_column(_FILE, name))
    frame: DataFrame = pa.concat_tables(tables).unify_dictionaries().to_pandas()
    return frame


def _exclusion_rules(
    raw: DataFrame, grouping: _Grouping, states: tuple[str, ...] | None, year: int | None
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Reasons to leave a person out, in the order in which they apply."""
    if states is not None:
        yield f"state other than {', '.join(states)}", ~raw["state_code"].isin(states).to_numpy()
    if year is not None:
        yield f"year other than {year}", (raw["activity_year"] != str(year)).to_numpy()
    for code in sorted(raw["action_taken"].cat.categories):
        if code not in (_ORIGINATED, _DENIED):
            reason = _OTHER_ACTIONS.get(code, f"action_taken is {code!r}")
            yield reason, (raw["action_taken"] == code).to_numpy()
    for value in sorted(grouping.left_out | _NOT_GIVEN):
        yield f"{grouping.column} is {value!r}", (raw[grouping.column] == value).to_numpy()
    for column in HMDA_FINANCIAL:
        yield f"{column} exempt from reporting", (raw[column] == _EXEMPT).to_numpy()
        yield f"{column} missing", raw[column].isin(_NOT_GIVEN).to_numpy()


def _parse_column(raw: Series[Any], file: Series[Any]) -> NDArray[np.float64]:
    """Numbers of a column, parsing each distinct text once."""
    parse = parse_debt_to_income if raw.name == "debt_to_income_ratio" else _parse_number
    texts = raw.cat.remove_unused_categories()
    values = []
    for text in texts.cat.categories:
        try:
            values.append(parse(text))
        except ValueError as error:
            raise DataFileError(
                f"{file[raw == text].iloc[0]} has {text!r} in column {raw.name}, where a number was expected: "
                "export it again."
            ) from error
    return np.array(values, dtype=np.float64)[texts.cat.codes.to_numpy()]


def _order_by_code(raw: Series[Any]) -> Series[Any]:
    """The categories that occur in code order, 2 before 10; what was not given is missing."""

    def order(value: str) -> tuple[float, str]:
        digits = re.match(r"\d+", value)
        return (float(digits[0]) if digits else -1.0, value)

    given = set(raw.cat.remove_unused_categories().cat.categories) - _NOT_GIVEN
    return raw.cat.set_categories(sorted(given, key=order))


def _notes(empty: list[str], include_post_decision: bool, include_protected: bool) -> tuple[str, ...]:
    notes = [
        "Ranges of debt_to_income_ratio are replaced by their midpoints; loan_amount and property_value are rounded."
    ]
    if empty:
        notes.append(f"Left out, because no one has a value: {', '.join(empty)}.")
    if include_post_decision:
        notes.append("The inputs include columns known only after the decision: good metrics mean nothing here.")
    if include_protected:
        notes.append("The inputs include race, ethnicity, sex and age.")
    return tuple(notes)
