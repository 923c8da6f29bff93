"""Tables on a real web server of this machine."""

import base64

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenhand.exceptions import DataFileError
from evenhand.inputs.tables import open_table, read_table
from evenhand.inputs.tables.remote import WebFile

TABLE = pd.DataFrame({"income": [1.5, 2.5, 3.5], "sex": ["f", "m", "f"]})


def wide_file(path):
    table = pa.table({f"x{k}": pa.array([i * 31 % 997 + k for i in range(200_000)]) for k in range(20)})
    pq.write_table(table, path, compression="none", use_dictionary=False)
    return table


def test_parquet_is_read_in_ranges(web):
    table = wide_file(web.folder / "wide.parquet")
    raw = open_table(f"{web.url}/wide.parquet")
    assert isinstance(raw.files[0].file, WebFile)
    found = pa.concat_tables(raw.pieces(["x3"])).column("x3")
    assert found.equals(table.column("x3"))
    assert web.n_sent < (web.folder / "wide.parquet").stat().st_size / 3


@pytest.mark.parametrize("name", ["loans.parquet", "loans.csv"])
def test_without_ranges_the_file_is_downloaded_once_and_removed(web, name):
    web.has_ranges = False
    path = web.folder / name
    TABLE.to_parquet(path) if name.endswith("parquet") else TABLE.to_csv(path, index=False)
    raw = open_table(f"{web.url}/{name}")
    pd.testing.assert_frame_equal(read_table(raw), TABLE)
    assert sum("Range" not in headers for _, headers in web.requests) == 1
    file = raw.files[0].file if name.endswith("parquet") else raw.file
    folder = file.path.parent
    assert folder.exists()
    del raw, file
    assert not folder.exists()


def test_a_file_that_changes_while_it_is_read_is_refused(web):
    wide_file(web.folder / "wide.parquet")
    raw = open_table(f"{web.url}/wide.parquet")
    TABLE.to_parquet(web.folder / "wide.parquet")
    with pytest.raises(DataFileError, match=r"wide\.parquet' changed while it was read"):
        list(raw.pieces(["x3"]))


def test_a_version_of_the_server_is_the_fingerprint(web):
    path = web.folder / "loans.parquet"
    TABLE.to_parquet(path)
    before = open_table(f"{web.url}/loans.parquet").fingerprint()
    assert open_table(f"{web.url}/loans.parquet").fingerprint() == before
    TABLE.assign(income=9.0).to_parquet(path)
    assert open_table(f"{web.url}/loans.parquet").fingerprint() != before


def test_a_user_and_a_password_are_sent_and_not_shown(web):
    TABLE.to_csv(web.folder / "loans.csv", index=False)
    web.user = "Basic " + base64.b64encode(b"ann:hush hush").decode()
    address = web.url.replace("http://", "http://ann:hush%20hush@") + "/loans.csv?token=abcdef"
    raw = open_table(address)
    assert raw.name == f"{web.url}/loans.csv?..."
    pd.testing.assert_frame_equal(read_table(raw), TABLE)
    with pytest.raises(DataFileError, match=r"denies access to .*401 Unauthorized") as refused:
        read_table(address.replace("ann", "bob"))
    assert not any(secret in str(refused.value) for secret in ("hush", "bob", "abcdef"))


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("{url}/none.csv", r"There is no file .*none\.csv': the server answered 404 Not Found; check the address"),
        ("{url}/none.parquet", r"There is no file .*none\.parquet'"),
        ("http://127.0.0.1:9/loans.parquet", "cannot be read: .*refused.*; check the network and the address"),
        ("http://bank.example/loans.parquet", "is a plain http address, .*; use https"),
        ("http://bank.example/loans.csv", "is a plain http address, .*; use https"),
        ("{url}/loans", r"must be one of \.csv"),
    ],
)
def test_what_cannot_be_had_is_said(web, address, message):
    with pytest.raises(DataFileError, match=message):
        read_table(address.format(url=web.url))


def test_a_download_that_the_disk_has_no_room_for_is_refused(web, monkeypatch):
    TABLE.to_csv(web.folder / "loans.csv", index=False)
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 0}))
    with pytest.raises(DataFileError, match=r"cannot be copied: it needs at least \d+ bytes"):
        read_table(f"{web.url}/loans.csv")
