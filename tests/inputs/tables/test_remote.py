"""Tables in stores and on web servers."""

import base64
import io
import pickle
import stat

import fsspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import AzureFileSystem, GcsFileSystem

from evenhand.exceptions import DataFileError, MissingExtraError
from evenhand.inputs.tables import is_folder, open_table, read_table
from evenhand.inputs.tables.open import fingerprint_input, name_of_input
from evenhand.inputs.tables.raw import Address
from evenhand.inputs.tables.remote import Store, WebFile

TABLE = pd.DataFrame({"income": [1.5, 2.5, 3.5], "sex": ["f", "m", "f"], "year": [2023, 2024, 2024]})


def parquet(table):
    buffer = io.BytesIO()
    table.to_parquet(buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("endpoint", ["environment", "address"])
def test_a_parquet_file_is_read_where_it_is(put, object_store, monkeypatch, endpoint):
    address = put("loans.parquet", parquet(TABLE))
    if endpoint == "address":
        monkeypatch.delenv("AWS_ENDPOINT_URL")
        address += f"?endpoint_override={object_store}"
    pd.testing.assert_frame_equal(read_table(address), TABLE)


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_any_other_file_is_copied_to_a_private_folder_and_removed(put, scheme):
    address = put("loans.csv", TABLE.to_csv(index=False).encode()).replace("s3:", f"{scheme}:")
    raw = open_table(address)
    assert raw.name == address
    folder = raw.file.path.parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    pd.testing.assert_frame_equal(read_table(raw), TABLE)
    del raw
    assert not folder.exists()


def test_a_copy_that_the_disk_has_no_room_for_is_refused(put, monkeypatch):
    address = put("loans.csv", TABLE.to_csv(index=False).encode())
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 0}))
    with pytest.raises(
        DataFileError, match=r"cannot be copied: it needs at least \d+ bytes, but the disk of .* space for 0"
    ):
        read_table(address)


def test_partitions_are_columns_and_files_come_in_the_order_of_their_names(put, tmp_path):
    pq.write_to_dataset(pa.Table.from_pandas(TABLE), tmp_path / "local", partition_cols=["year"])
    for number, file in enumerate(sorted((tmp_path / "local").rglob("*.parquet"), reverse=True)):
        put(f"loans/{file.parent.name}/part-{number}.parquet", file.read_bytes())
    put("loans/_SUCCESS", b"")
    put("loans/_temporary/part-9.parquet", b"half a file")
    assert is_folder("s3://lending/loans")
    found = read_table("s3://lending/loans")
    pd.testing.assert_frame_equal(found, TABLE)
    pd.testing.assert_frame_equal(found, read_table(tmp_path / "local"))


def test_only_the_columns_that_are_asked_for_travel(put):
    wide = pa.table({f"x{k}": pa.array(range(k, 20_000 + k)) for k in range(30)})
    buffer = io.BytesIO()
    pq.write_table(wide, buffer, compression="none", use_dictionary=False)
    raw = open_table(put("wide.parquet", buffer.getvalue()))
    (file,) = raw.files
    n_read = 0

    class Counted:
        def open(self):
            handle = file.file.open()

            class Reader(io.RawIOBase):
                def readable(self):
                    return True

                def seekable(self):
                    return True

                def seek(self, *where):
                    return handle.seek(*where)

                def tell(self):
                    return handle.tell()

                def read(self, n=-1):
                    nonlocal n_read
                    content = handle.read(n)
                    n_read += len(content)
                    return content

            return pa.PythonFile(Reader(), mode="r")

        name, is_near = "counted", False

    (piece,) = type(file)(Counted()).pieces(["x3"])
    assert piece.column("x3").to_pylist()[:2] == [3, 4]
    assert n_read < len(buffer.getvalue()) / 4


def test_a_changed_object_has_a_different_fingerprint(put):
    address = put("loans.parquet", parquet(TABLE))
    before = fingerprint_input(address)
    assert fingerprint_input(address) == before
    put("loans.parquet", parquet(TABLE.assign(income=9.0)))
    assert fingerprint_input(address) != before


def test_what_is_read_travels_to_different_processes_without_the_key(put):
    raw = open_table(put("loans.parquet", parquet(TABLE)))
    again = pickle.loads(pickle.dumps(raw))
    assert pa.concat_tables(again.pieces(["income"])).column("income").to_pylist() == TABLE["income"].tolist()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("s3://nobody/loans.parquet", r"There is no bucket 'nobody', as named in 's3://nobody/loans\.parquet'"),
        ("s3://nobody", "There is no bucket 'nobody'"),
        ("s3://lending/none.parquet", r"There is no file or folder 's3://lending/none\.parquet'"),
        ("s3://lending/loans.txt", r"must be one of \.csv"),
        ("nonsense://lending/x.parquet", "begins with nonsense://, which no installed library reads"),
    ],
)
def test_what_is_absent_is_named(put, address, message):
    put("loans.txt", b"x")
    with pytest.raises(DataFileError, match=message):
        read_table(address)


def test_refused_access_names_where_credentials_come_from(put, deny_access):
    address = put("loans.parquet", parquet(TABLE))
    deny_access()
    with pytest.raises(DataFileError, match=r"denies access to 's3://lending/loans\.parquet' .*AWS_ACCESS_KEY_ID"):
        read_table(address)


@pytest.mark.integration  # the client asks again for some seconds
@pytest.mark.slow
def test_a_store_that_cannot_be_reached_is_said_so(object_store):
    with pytest.raises(DataFileError, match=r"The store of .* cannot be reached .*; check the network"):
        read_table("s3://lending/loans.parquet?endpoint_override=http://127.0.0.1:9")


def test_a_secret_of_an_address_is_in_no_name_and_no_message(put, object_store, deny_access):
    put("loans.parquet", parquet(TABLE))
    address = f"s3://AKIATOPSECRET:hushhush@lending/loans.parquet?endpoint_override={object_store}"
    raw = open_table(address)
    shown = [raw.name, raw.where, repr(raw), name_of_input(address), *(file.name for file in raw.files)]
    deny_access()
    with pytest.raises(DataFileError) as refused:
        open_table(address)
    for text in (*shown, str(refused.value)):
        assert "TOPSECRET" not in text
        assert "hushhush" not in text


def test_a_delta_table_in_a_store_is_no_folder_of_files(put):
    put("loans/_delta_log/00000000000000000000.json", b"{}")
    put("loans/a.parquet", parquet(TABLE))
    with pytest.raises(DataFileError, match="is a Delta table, not a folder of files: write delta:s3://lending/loans"):
        open_table("s3://lending/loans")


def test_other_schemes_go_through_fsspec():
    with fsspec.open("memory://bank/loans.parquet", "wb") as file:
        file.write(parquet(TABLE))
    pd.testing.assert_frame_equal(read_table("memory://bank/loans.parquet"), TABLE)
    with pytest.raises(MissingExtraError, match=r"needs a library for sftp:// that is not installed"):
        read_table("sftp://bank/loans.parquet")


def test_a_file_address_is_a_path(tmp_path):
    path = tmp_path / "my loans.parquet"
    TABLE.to_parquet(path)
    pd.testing.assert_frame_equal(read_table(path.as_uri()), TABLE)


@pytest.mark.parametrize(
    ("address", "kind", "path"),
    [
        ("gs://bank/loans/a.parquet", GcsFileSystem, "bank/loans/a.parquet"),
        ("abfss://loans@bank.dfs.core.windows.net/2024/a.parquet", AzureFileSystem, "loans/2024/a.parquet"),
        ("abfs://loans@bank.dfs.core.windows.net/a.parquet", AzureFileSystem, "loans/a.parquet"),
    ],
)
def test_addresses_of_google_and_azure_lead_to_their_file_systems(address, kind, path):
    """The services themselves are out of reach: nothing is asked of them."""
    store = Store.at(Address.of(address))
    assert isinstance(store.filesystem, kind)
    assert store.path == path


PEOPLE = pd.DataFrame({"income": [1.5, 2.5, 3.5], "sex": ["f", "m", "f"]})


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
    PEOPLE.to_parquet(path) if name.endswith("parquet") else PEOPLE.to_csv(path, index=False)
    raw = open_table(f"{web.url}/{name}")
    pd.testing.assert_frame_equal(read_table(raw), PEOPLE)
    assert sum("Range" not in headers for _, headers in web.requests) == 1
    file = raw.files[0].file if name.endswith("parquet") else raw.file
    folder = file.path.parent
    assert folder.exists()
    del raw, file
    assert not folder.exists()


def test_a_file_that_changes_while_it_is_read_is_refused(web):
    wide_file(web.folder / "wide.parquet")
    raw = open_table(f"{web.url}/wide.parquet")
    PEOPLE.to_parquet(web.folder / "wide.parquet")
    with pytest.raises(DataFileError, match=r"wide\.parquet' changed while it was read"):
        list(raw.pieces(["x3"]))


def test_a_version_of_the_server_is_the_fingerprint(web):
    path = web.folder / "loans.parquet"
    PEOPLE.to_parquet(path)
    before = open_table(f"{web.url}/loans.parquet").fingerprint()
    assert open_table(f"{web.url}/loans.parquet").fingerprint() == before
    PEOPLE.assign(income=9.0).to_parquet(path)
    assert open_table(f"{web.url}/loans.parquet").fingerprint() != before


def test_a_user_and_a_password_are_sent_and_not_shown(web):
    PEOPLE.to_csv(web.folder / "loans.csv", index=False)
    web.user = "Basic " + base64.b64encode(b"ann:hush hush").decode()
    address = web.url.replace("http://", "http://ann:hush%20hush@") + "/loans.csv?token=abcdef"
    raw = open_table(address)
    assert raw.name == f"{web.url}/loans.csv?..."
    pd.testing.assert_frame_equal(read_table(raw), PEOPLE)
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
    PEOPLE.to_csv(web.folder / "loans.csv", index=False)
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 0}))
    with pytest.raises(DataFileError, match=r"cannot be copied: it needs at least \d+ bytes"):
        read_table(f"{web.url}/loans.csv")
