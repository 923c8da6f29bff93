"""What a finished batch leaves on disk, made where the batch is audited and written where the audit is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from evenhand.auditing.finished import BatchOutput, BatchRecord, PairNulls
from evenhand.auditing.streaming import codec
from evenhand.auditing.streaming.triple_files import by_smallest_row, encode_index, encode_triples

__all__ = ["BatchFiles", "batch_file", "encode_batch", "pairs_file"]


@dataclass(frozen=True, eq=False)
class BatchFiles:
    """Files of a batch by their paths in the folder of the audit; the last one marks the batch as finished."""

    number: int
    contents: Mapping[str, pa.Buffer]


def pairs_file(number: int) -> str:
    """Path of the pair table of a batch."""
    return f"pairs/part-{number:06d}.parquet"


def batch_file(number: int, ending: str) -> str:
    """Path of another file of a batch."""
    return f"batches/{number:06d}.{ending}"


def encode_batch(output: BatchOutput) -> BatchFiles:
    """The files of a batch."""
    record = output.record
    number, n_outside = record.number, 0
    contents: dict[str, pa.Buffer] = {}
    if output.pairs is not None:
        table = pa.Table.from_pandas(output.pairs, _pair_schema(), preserve_index=False, nthreads=1)
        contents[pairs_file(number)] = _parquet(table)
    if output.screened is not None and output.screened_groups is not None and len(output.screened):
        contents[batch_file(number, "screened.parquet")] = _screened(output.screened, pa.array(output.screened_groups))
    if output.triples is not None and output.nulls is not None:
        ordered, n_outside = by_smallest_row(output.triples)
        contents[batch_file(number, "triples.npy")] = pa.py_buffer(encode_triples(ordered))
        contents[batch_file(number, "index.npy")] = pa.py_buffer(encode_index(ordered))
        nulls = {f.name: getattr(output.nulls, f.name) for f in fields(PairNulls)}
        contents[batch_file(number, "nulls.npz")] = pa.py_buffer(codec.encode(nulls))
    kept = {f.name: getattr(record, f.name) for f in fields(BatchRecord)} | {"n_outside": n_outside}
    contents[batch_file(number, "npz")] = pa.py_buffer(codec.encode(kept))
    return BatchFiles(number, contents)


def _screened(people: pd.DataFrame, groups: pa.Array) -> pa.Buffer:
    table = pa.Table.from_pandas(people, preserve_index=False, nthreads=1)
    return _parquet(table.append_column("", groups))


def _parquet(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue()


def _pair_schema() -> pa.Schema:
    kinds = {
        **dict.fromkeys(("person", "match"), pa.int64()),
        "distance": pa.float64(),
        **dict.fromkeys(("group", "other_group"), pa.string()),
        "label": pa.int64(),
        **dict.fromkeys(("score", "match_score"), pa.float64()),
        **dict.fromkeys(("decision", "match_decision"), pa.int64()),
        **dict.fromkeys(("cec", "placebo_cec", "input_gap", "reasoning_gap"), pa.float64()),
        "regime": pa.string(),
        **dict.fromkeys(("shared_reasons", "q_value"), pa.float64()),
        "is_negligible": pa.bool_(),
    }
    return pa.schema(list(kinds.items()))
