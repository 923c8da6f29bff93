"""Files in object stores, with `pyarrow.fs` if it knows the scheme and otherwise with fsspec, and on web servers.

fsspec alone would not do: it neither says in words what a store answers, nor limits redirects of web servers to https,
nor refuses a file that changes while it is read.

The libraries find credentials themselves, in the environment and in the usual places of each cloud.
"""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError

import pyarrow as pa
from pyarrow import fs

from evenhand.exceptions import DataFileError, DownloadError, EvenhandError, MissingExtraError, first_line
from evenhand.inputs.tables.raw import Address, DataFile, LocalFile, on_full_disk
from evenhand.system.files import PrivateFolder, space_in
from evenhand.system.web import download_file, is_secure, open_url, reason_of

_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a role",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or `gcloud auth application-default login`",
    "gcs": "GOOGLE_APPLICATION_CREDENTIALS, or `gcloud auth application-default login`",
    "abfs": "AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET, or `az login`",
    "abfss": "AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET, or `az login`",
}
_BUCKET = {"s3": "bucket", "gs": "bucket", "gcs": "bucket", "abfs": "container", "abfss": "container"}
_RETRY_SECONDS = 30  # for Google's client, which otherwise retries for a quarter of an hour
# Arrow raises one type of error for all answers of a store; the answer's name is in the message.
_ANSWER = re.compile(r"AWS Error (\w+)|status code: (\d+)|\b(PERMISSION_DENIED|UNAUTHENTICATED|UNAVAILABLE)\b|(\d{3}) ")
_DENIED = {
    "ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "EXPIRED_TOKEN", "INVALID_CLIENT_TOKEN_ID",
    "PERMISSION_DENIED", "UNAUTHENTICATED", "UNRECOGNIZED_CLIENT", "401", "403",
}  # fmt: skip
_UNREACHED = {"NETWORK_CONNECTION", "UNAVAILABLE"}


@dataclass(frozen=True)
class Store(DataFile):
    """A place in a remote file system: a file, or a folder of them.

    Attributes
    ----------
    address
        As given by the user.
    filesystem
        The file system.
    path
        Path inside the file system.
    below
        The last part of the path, for a file below the place that the user gave.
    """

    address: Address
    filesystem: fs.FileSystem = field(repr=False)
    path: str
    below: str = ""

    @classmethod
    def at(cls, address: Address) -> Store:
        """The place of an address; the store is not contacted yet, except perhaps for its region.

        Raises
        ------
        DataFileError
            If no library knows the scheme, or the address is invalid.
        MissingExtraError
            If the library for the scheme is not installed.
        """
        scheme, text = address.scheme, "".join(address.text.partition("://")[1:])
        if scheme in ("gs", "gcs") and "retry_limit_seconds" not in text:
            text += f"{'&' if '?' in text else '?'}retry_limit_seconds={_RETRY_SECONDS}"
        with _asking_store(address):
            if scheme in _CREDENTIALS or scheme in ("hdfs", "viewfs"):
                filesystem, path = fs.FileSystem.from_uri(scheme + text)
            else:
                filesystem, path = _by_fsspec(address)
        return cls(address, filesystem, path.rstrip("/"))

    @property
    def name(self) -> str:  # type: ignore[override] # no one sets it
        if not self.below:
            return self.address.name
        base, mark, query = self.address.name.partition("?")
        return f"{base.rstrip('/')}/{self.below}{mark}{query}"

    @property
    def is_folder(self) -> bool:
        """Whether there are files below the place.

        Raises
        ------
        DataFileError
            If nothing is there, or the store does not answer.
        """
        with _asking_store(self.address):
            kind = self.filesystem.get_file_info(self.path).type
            if kind == fs.FileType.NotFound:
                bucket, _, rest = self.path.partition("/")
                what = _BUCKET.get(self.address.scheme)
                if what and (not rest or self.filesystem.get_file_info(bucket).type == fs.FileType.NotFound):
                    raise DataFileError(
                        f"There is no {what} {bucket!r}, as named in {self.address.name!r}; check its name, the region "
                        "and the endpoint."
                    )
                raise DataFileError(f"There is no file or folder {self.address.name!r}; check its name.")
        return bool(kind == fs.FileType.Directory)

    def files(self) -> list[Store]:
        """The files below the place, sorted by name."""
        with _asking_store(self.address):
            below = self.filesystem.get_file_info(fs.FileSelector(self.path, recursive=True))
        paths = sorted(info.path for info in below if info.is_file)
        return [replace(self, path=path, below=path.removeprefix(self.path).lstrip("/")) for path in paths]

    def copied(self) -> LocalFile:
        """The file at the place, copied to the local disk for as long as it is used."""
        folder = PrivateFolder()
        target = folder.path / self.address.last_part
        with _asking_store(self.address), self.filesystem.open_input_stream(self.path) as source:
            size = self.filesystem.get_file_info(self.path).size
            space_in(folder.path)(size or 0)
            with target.open("wb") as file:
                shutil.copyfileobj(source, file, 1 << 22)
        return LocalFile(target, self.address.name, folder=folder)

    def open(self) -> pa.NativeFile:
        with _asking_store(self.address):
            return self.filesystem.open_input_file(self.path)

    def state(self) -> bytes:
        """Name, size, and the store's version: its ETag, or when it was written."""
        with self.open() as file, _asking_store(self.address):
            told = {str(key).lower(): value for key, value in (file.metadata() or {}).items()}
            size = file.size()
        version = told.get("etag")
        if version is None:
            with _asking_store(self.address):
                version = str(self.filesystem.get_file_info(self.path).mtime_ns).encode()
        return f"{self.path.rpartition('/')[2]}:{size}:".encode() + bytes(version) + b";"


def _by_fsspec(address: Address) -> tuple[fs.FileSystem, str]:
    import fsspec  # not at the top, because few need it

    if "::" in address.text:  # a file inside a file, or one that points to others
        raise DataFileError(
            f"{address.name!r} chains addresses with '::', which can lead anywhere; copy the file, and name the copy."
        )

    try:
        filesystem, path = fsspec.core.url_to_fs(address.text)
    except ImportError as error:
        raise MissingExtraError(
            f"{address.name!r} needs a library for {address.scheme}:// that is not installed: "
            f"{address.without_secrets(first_line(error))}."
        ) from error
    except ValueError:
        known = ", ".join(f"{scheme}://" for scheme in ("s3", "gs", "abfss", "https", "file", "hdfs"))
        raise DataFileError(
            f"{address.name!r} begins with {address.scheme}://, which no installed library reads; supported are "
            f"{known} and whatever fsspec supports."
        ) from None
    return fs.PyFileSystem(fs.FSSpecHandler(filesystem)), path


@contextmanager
def _asking_store(address: Address) -> Iterator[None]:
    """Turn the answer of a store into a sentence."""
    try:
        yield
    except EvenhandError:
        raise
    except Exception as error:
        message = address.without_secrets(first_line(error))
        match = _ANSWER.search(message)
        answer = next(filter(None, match.groups()), "") if match else ""
        if answer in _DENIED or isinstance(error, PermissionError):
            place = _CREDENTIALS.get(address.scheme)
            sentence = (
                f"The store denies access to {address.name!r} ({answer or message}); check that you may read it"
                + (f", and the credentials, which come from {place}." if place else ".")
            )
        elif answer in _UNREACHED or isinstance(error, ConnectionError):
            sentence = (
                f"The store of {address.name!r} cannot be reached ({message}); check the network and the endpoint."
            )
        elif isinstance(error, FileNotFoundError):
            sentence = f"There is no file {address.name!r}; check its name."
        else:
            sentence = on_full_disk(address.name, error) or f"{address.name!r} cannot be read: {message}."
        raise DataFileError(sentence) from (None if message != first_line(error) else error)


_BUFFER = 1 << 20
_OF_ALL = re.compile(r"bytes \d+-\d+/(\d+)")


@dataclass(frozen=True)
class WebFile(DataFile):
    """A file on a server that supports range requests.

    Attributes
    ----------
    address
        Address of the file.
    size
        In bytes.
    version
        Its ETag, or when it was last modified: a part of a different version is rejected.
    """

    address: Address
    size: int
    version: str = field(repr=False)

    @classmethod
    def at(cls, address: Address) -> WebFile | None:
        """The file at an address; None if the server does not support ranges or does not identify versions.

        Raises
        ------
        DataFileError
            If the server has no such file, denies access, or cannot be reached.
        """
        _check_readable(address)
        with _asking(address), open_url(address.text, {"Range": "bytes=0-0"}) as answer:
            whole = _OF_ALL.fullmatch(answer.headers.get("Content-Range", ""))
            tag = answer.headers.get("ETag", "")
            version = tag if tag and not tag.startswith("W/") else answer.headers.get("Last-Modified", "")
            if answer.status != 206 or whole is None or not version:
                return None
        return cls(address, int(whole[1]), version)

    @property
    def name(self) -> str:  # type: ignore[override] # no one sets it
        return self.address.name

    def open(self) -> pa.NativeFile:
        return pa.PythonFile(io.BufferedReader(_Ranges(self), _BUFFER), mode="r")

    def state(self) -> bytes:
        """Name, size and version."""
        return f"{self.address.last_part}:{self.size}:{self.version};".encode()

    def part(self, first: int, n: int) -> bytes:
        """Some of the bytes.

        Raises
        ------
        DataFileError
            If the server does not send them, or the file has changed.
        """
        asked = {"Range": f"bytes={first}-{first + n - 1}", "If-Range": self.version}
        with _asking(self.address), open_url(self.address.text, asked) as answer:
            if answer.status != 206:
                raise DataFileError(f"{self.name!r} changed while it was read; start again.")
            content: bytes = answer.read()
        if len(content) != n:
            raise DataFileError(f"{self.name!r} cannot be read: the server sent {len(content):,} of {n:,} bytes.")
        return content


def downloaded(address: Address) -> LocalFile:
    """The file at an address, on the local disk for as long as it is used.

    Raises
    ------
    DataFileError
        If the server has no such file, denies access, or cannot be reached, or the disk is full.
    """
    _check_readable(address)
    folder = PrivateFolder()
    target = folder.path / address.last_part
    with _asking(address):
        try:
            download_file(address.text, target)
        except DownloadError as error:
            if isinstance(error.__cause__, OSError):
                raise error.__cause__ from None
            raise DataFileError(f"{address.name!r} cannot be read: {reason_of(error.__cause__)}.") from None
    return LocalFile(target, address.name, folder=folder)


class _Ranges(io.RawIOBase):
    """Read the bytes of a file on a server."""

    def __init__(self, file: WebFile) -> None:
        self._file, self._place = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._file.size}[whence]
        return self._place

    def readinto(self, buffer: Any) -> int:
        n = min(len(buffer), self._file.size - self._place)
        if n <= 0:
            return 0
        buffer[:n] = self._file.part(self._place, n)
        self._place += n
        return n


def _check_readable(address: Address) -> None:
    """Reject plain http, which anyone on the network can read and change, except for this machine itself."""
    if not is_secure(address.text):
        raise DataFileError(
            f"{address.name!r} is a plain http address, so anyone on the network could read and change the data; use "
            "https. Plain http is only allowed for this machine itself."
        )


@contextmanager
def _asking(address: Address) -> Iterator[None]:
    """Turn the answer of a server into a sentence."""
    try:
        yield
    except HTTPError as error:
        error.close()
        why = reason_of(error)
        if error.code in (404, 410):
            raise DataFileError(f"There is no file {address.name!r}: {why}; check the address.") from None
        if error.code in (401, 403):
            raise DataFileError(
                f"The server denies access to {address.name!r}: {why}; check the user, the password or the token in "
                "the address, and that it has not expired."
            ) from None
        raise DataFileError(f"{address.name!r} cannot be read: {why}.") from None
    except (DataFileError, DownloadError):
        raise
    except (OSError, HTTPException) as error:
        why = address.without_secrets(reason_of(error))
        raise DataFileError(
            on_full_disk(address.name, error)
            or f"{address.name!r} cannot be read: {why}; check the network and the address."
        ) from None
