"""Files of people, and both readings of them: in memory, and in batches."""

import pyarrow as pa
import pytest

from evenhand.auditing.streaming.source import open_source
from evenhand.inputs.read_options import ReadOptions
from evenhand.inputs.tables import open_table, typed


def in_memory(path, **options):
    raw = open_table(path, ReadOptions(**options))
    return typed(raw, raw.schema.names, ReadOptions(**options))


def in_batches(path, batch_rows=1000, **options):
    file = in_memory(path, **options)
    spool = path.parent / f"spool-{batch_rows}.parquet"
    spool.unlink(missing_ok=True)
    source = open_source(file, batch_rows, spool)
    parts = [source.read(batch, list(source.columns.readings)) for batch in source.batches]
    return pa.concat_tables(parts, promote_options="permissive")


@pytest.fixture
def read():
    """The table of a file and what is said of it, after checking that batches hold the same."""

    def both(path, batch_rows=2, **options):
        file = in_memory(path, **options)
        assert in_batches(path, batch_rows, **options).to_pydict() == file.table.to_pydict()
        return file.table, file.notes

    return both
