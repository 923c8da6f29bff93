"""Fingerprints change when the thing does, and only then."""

import hashlib

import numpy as np
import pandas as pd
import pytest

from evenhand.inputs.identity import fingerprint_file, fingerprint_numbers, fingerprint_table, hash_rows

TABLE = pd.DataFrame({"income": [1.0, np.nan, 3.0], "job": ["a", "b", None], "owns": [True, False, True]})


def test_the_same_table_has_the_same_fingerprint_whatever_holds_it():
    other = TABLE.copy(deep=True).set_index(pd.Index([7, 8, 9]))
    other["job"] = other["job"].astype("category")
    assert fingerprint_table(other) == fingerprint_table(TABLE)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.assign(income=[1.0, np.nan, 3.5]),
        lambda t: t.assign(income=[1.0, 0.0, 3.0]),
        lambda t: t.assign(job=["a", "b", "None"]),
        lambda t: t.iloc[::-1],
        lambda t: t.rename(columns={"job": "work"}),
        lambda t: t[["job", "income", "owns"]],
        lambda t: t.iloc[:2],
    ],
    ids=["value", "missing", "missing text", "order", "name", "column order", "rows"],
)
def test_a_changed_table_has_another_fingerprint(change):
    assert fingerprint_table(change(TABLE)) != fingerprint_table(TABLE)


def test_a_file_is_its_sha256_and_a_folder_depends_on_names_and_contents(tmp_path):
    file = tmp_path / "a" / "x.bin"
    file.parent.mkdir()
    file.write_bytes(b"content" * 500_000)
    assert fingerprint_file(file) == hashlib.sha256(file.read_bytes()).hexdigest()
    first = fingerprint_file(tmp_path)
    file.rename(file.with_name("y.bin"))
    second = fingerprint_file(tmp_path)
    (tmp_path / "a" / "y.bin").write_bytes(b"other")
    assert len({first, second, fingerprint_file(tmp_path)}) == 3


def test_shapes_are_part_of_numbers():
    assert fingerprint_numbers([[1, 2]]) != fingerprint_numbers([1, 2])
    assert fingerprint_numbers([1], [2]) != fingerprint_numbers([1, 2])


def test_yes_and_no_have_the_same_bits_beside_a_missing_value():
    whole = hash_rows(pd.DataFrame({"owner": [None, True, False]}))
    np.testing.assert_array_equal(whole[1:], hash_rows(pd.DataFrame({"owner": [True, False]})))
    assert len(set(whole.tolist())) == 3
