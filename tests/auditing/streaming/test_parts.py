"""What streamed audits are made of: quantiles in parts, files of sums, batches of files, random people."""

import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.arrays import person_hash, quantiles_of_parts
from evenhand.auditing.batches import ScoreCounts
from evenhand.auditing.streaming.source import hash_limit, lowest_rows, open_source
from evenhand.auditing.streaming.store import RowFile, encode, load
from evenhand.exceptions import StreamError
from evenhand.inputs.tables import open_table, typed
from evenhand.system.threads import Threads, in_order, pairwise_sum, sum_in_order

_VALUES = st.floats(allow_nan=False, allow_infinity=False, width=64) | st.sampled_from([0.0, -0.0, 1e-300, 0.1])


@given(st.lists(_VALUES, min_size=1, max_size=40), st.integers(1, 5), st.floats(0, 1), st.sampled_from([5, 1000]))
def test_quantiles_of_parts_are_numpys(values, n_parts, share, most_kept):
    array = np.asarray(values) / 4  # differences of the largest would overflow
    parts = np.array_split(array, n_parts)
    shares = [0.0, 0.25, share, 0.9, 1.0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evenhand.arrays._MOST_KEPT", most_kept)
        found = quantiles_of_parts(lambda: iter(parts), shares)
    np.testing.assert_array_equal(found, np.quantile(array, shares))


def test_quantiles_of_nothing_are_missing():
    assert np.isnan(quantiles_of_parts(lambda: iter([np.zeros(0)]), [0.5])).all()


def test_sums_come_back_as_they_were_saved(tmp_path):
    counts = ScoreCounts(np.array([0.1, 0.2]), *(np.array([0, 1]) for _ in range(6)))
    value = {
        "a": counts,
        "b": {(0, 1): (1, "x"), "y": None},
        "c": [1.5, np.float64(2.0), np.arange(3)],
        "d": float("nan"),
    }
    (tmp_path / "sums.npz").write_bytes(encode(value))
    found = load(tmp_path / "sums.npz", dict)
    assert isinstance(found["a"], ScoreCounts)
    np.testing.assert_array_equal(found["a"].score, counts.score)
    assert found["b"] == value["b"]
    np.testing.assert_array_equal(found["c"][2], np.arange(3))
    assert np.isnan(found["d"])


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80\x04N."])
def test_damaged_or_hostile_sums_are_refused(tmp_path, content):
    (tmp_path / "sums.npz").write_bytes(content)
    with pytest.raises(StreamError, match="cannot be read"):
        load(tmp_path / "sums.npz", dict)


def test_objects_are_never_unpickled(tmp_path):
    np.savez(tmp_path / "sums.npz", header=np.array([{"a": 1}], dtype=object))
    with pytest.raises(StreamError, match="cannot be read"):
        load(tmp_path / "sums.npz", dict)


@pytest.mark.parametrize("batch_rows", [1, 7, 64, 1000])
@pytest.mark.parametrize("row_group_size", [5, 64, 500])
def test_batches_are_the_rows_in_order(tmp_path, batch_rows, row_group_size):
    path = tmp_path / "rows.parquet"
    pq.write_table(
        pa.table({"k": np.arange(200), "t": [str(k) for k in range(200)]}), path, row_group_size=row_group_size
    )
    source = open_source(typed(open_table(path), ["k"]), batch_rows, tmp_path / "spool.parquet")
    assert source.n_rows == 200
    assert max(batch.n_rows for batch in source.batches) <= batch_rows
    read = [source.read(batch, ["k"]).column("k").to_numpy() for batch in source.batches]
    np.testing.assert_array_equal(np.concatenate(read), np.arange(200))
    for batch, rows in zip(source.batches, read, strict=True):
        assert (rows[0], len(rows)) == (batch.first_row, batch.n_rows)


def test_rows_with_the_lowest_hashes(monkeypatch):
    monkeypatch.setattr("evenhand.auditing.streaming.source._ROWS_AT_ONCE", 37)
    hashes = person_hash(np.arange(500), 9)
    expected = np.sort(np.argsort(hashes)[:40])
    np.testing.assert_array_equal(lowest_rows(500, 40, 9), expected)
    assert (hashes <= np.uint64(hash_limit(500, 40, 9))).sum() == 40
    assert hash_limit(500, 500, 9) is None
    assert lowest_rows(3, 40, 9).tolist() == [0, 1, 2]


def test_results_come_in_order_and_only_a_few_wait():
    begun = []

    def late_if_even(number):
        begun.append(number)
        time.sleep(0.02 * (number % 2 == 0))
        return number

    found = in_order(late_if_even, range(40), n_threads=3)
    assert next(found) == 0
    assert len(begun) <= 7
    assert list(found) == list(range(1, 40))


def test_an_error_in_a_thread_is_raised_in_its_turn():
    def inverse(number):
        return 1 / number

    found = in_order(inverse, [1, 0, 2], n_threads=2)
    assert next(found) == 1
    with pytest.raises(ZeroDivisionError):
        next(found)


def test_sums_by_pairs_keep_the_order_of_the_items():
    for n in range(20):
        assert pairwise_sum((number,) for number in range(n)) == (tuple(range(n)) if n else None)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_sums_in_threads_are_those_by_pairs_to_the_last_bit(rng, n_threads):
    for n in (0, 1, 7, 8, 9, 40, 61):
        values = (rng.normal(size=n) * 10.0 ** rng.integers(-8, 8, n)).tolist()
        assert sum_in_order(float, iter(values), Threads(n_threads)) == pairwise_sum(values)


@pytest.mark.parametrize("kind", [np.dtype("i2"), np.dtype([("a", "f8"), ("b", "i1", (3,))])])
def test_slices_of_rows_are_those_of_the_whole_array(tmp_path, rng, kind):
    whole = np.frombuffer(rng.bytes(40 * kind.itemsize), dtype=kind)
    np.save(tmp_path / "rows.npy", whole)
    file = RowFile.open(tmp_path / "rows.npy")
    assert file.n_rows == 40
    for start, stop in [(0, 40), (7, 7), (39, 40), (3, 21)]:
        assert file.rows(start, stop).tobytes() == whole[start:stop].tobytes()


def test_damaged_rows_are_refused(tmp_path):
    np.save(tmp_path / "rows.npy", np.arange(40))
    content = (tmp_path / "rows.npy").read_bytes()
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    objects = (tmp_path / "objects.npy").read_bytes()
    for damaged in (b"", content[:5], content[:60], content[:-1], content + b"0", objects):
        (tmp_path / "rows.npy").write_bytes(damaged)
        with pytest.raises(StreamError, match=r"rows\.npy' cannot be read .*remove the \.npz file next to it"):
            RowFile.open(tmp_path / "rows.npy")
