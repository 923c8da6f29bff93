"""The people of a streamed audit: a table of any kind, read once, typed, and split into batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from evenhand.auditing.options import StreamOptions
from evenhand.auditing.streaming.sampling import read_rows
from evenhand.auditing.streaming.source import GPU_ROWS, Source, open_source, rows_in_batch
from evenhand.auditing.streaming.store import Store, writing
from evenhand.inputs.checking.unfit import CHECKED_ROWS, unasked, without_unfit
from evenhand.inputs.fingerprints import fingerprint_plain
from evenhand.inputs.read_options import ReadOptions
from evenhand.inputs.roles import Columns
from evenhand.inputs.tables import typed
from evenhand.inputs.tables.raw import RawTable

__all__ = ["OpenedPeople", "open_people"]


@dataclass(frozen=True, eq=False)
class OpenedPeople:
    """The people to audit, before anything is known about the model.

    Attributes
    ----------
    people, columns
        Their rows in batches, and the roles of the columns; unfit columns are not features.
    reading
        How the files were read.
    batch_rows
        Largest number of people in a batch.
    content, version
        SHA-256 of the files, and a description of their version; empty if there are no versions.
    left_out
        What a reader must know about columns that were left out.
    """

    people: Source
    columns: Columns
    reading: ReadOptions
    batch_rows: int
    content: str
    version: str
    left_out: tuple[str, ...]

    @property
    def versions(self) -> dict[str, str]:
        """The version by name, if there is one."""
        return {"source version": self.version} if self.version else {}


def open_people(
    raw: RawTable,
    columns: Columns,
    reading: ReadOptions,
    how: StreamOptions,
    store: Store,
    *,
    asked: Sequence[str],
    is_named: bool,
) -> OpenedPeople:
    """Read the columns of a table once, and split its people into batches.

    Parameters
    ----------
    raw, columns, reading
        The table as stored, the roles of its columns, and how to read them.
    how, store
        Size of batches, and the folder for what is converted.
    asked, is_named
        Features that the user named, and whether the model names its features.

    Raises
    ------
    InvalidInputError
        If the model needs an id, a date or a saved index that the user did not name.
    DataFileError
        If the rows cannot be read, or a column is invalid or ambiguous.
    StreamError
        If the converted rows cannot be written.
    """
    content, version = raw.fingerprint(), raw.version
    spool = fingerprint_plain([content, asdict(reading), columns.needed])
    file = typed(raw, columns.needed, reading)
    batch_rows = how.batch_rows
    if batch_rows is None and (how.device or "").startswith("cuda"):
        batch_rows = GPU_ROWS
    with writing(store.folder, "nothing has been audited yet"):
        people = open_source(file, batch_rows, store.folder / f"source-{spool}.parquet")
    first = _first_rows(people, unasked(columns, asked))
    columns, left_out = without_unfit(columns, first, asked=asked, is_named=is_named)
    rows = rows_in_batch(people.n_rows, batch_rows)
    return OpenedPeople(people, columns, reading, rows, content, version, left_out)


def _first_rows(source: Source, columns: list[str]) -> pd.DataFrame:
    """The number of rows that an audit in memory checks for ids and dates."""
    rows = np.arange(min(source.n_rows, CHECKED_ROWS))
    table: pd.DataFrame = read_rows(source, rows, columns).to_pandas(use_threads=False) if columns else pd.DataFrame()
    return table
