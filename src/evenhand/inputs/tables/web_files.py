"""Files on web servers: Parquet is read in ranges if the server supports them, everything else is downloaded once."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError

import pyarrow as pa

from evenhand.exceptions import DataFileError, DownloadError
from evenhand.inputs.tables.addresses import Address
from evenhand.inputs.tables.data_files import LocalFile, on_full_disk
from evenhand.system.download import download_file
from evenhand.system.files import PrivateFolder
from evenhand.system.web import check_secure, open_url, reason_of

__all__ = ["WebFile", "downloaded"]

_BUFFER = 1 << 20
_OF_ALL = re.compile(r"bytes \d+-\d+/(\d+)")


@dataclass(frozen=True)
class WebFile:
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
    is_near = False

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
    def name(self) -> str:
        """Name shown to users."""
        return self.address.name

    def open(self) -> pa.NativeFile:
        """Open the file, which is read in ranges."""
        return pa.PythonFile(io.BufferedReader(_Ranges(self), _BUFFER), mode="r")

    def absolute(self) -> WebFile:
        """The same: an address does not depend on the folder."""
        return self

    def state(self) -> Iterable[bytes]:
        """Name, size and version."""
        yield f"{self.address.last_part}:{self.size}:{self.version};".encode()

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
    return LocalFile(target, address.name, folder)


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

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - a writable buffer
        n = min(len(buffer), self._file.size - self._place)
        if n <= 0:
            return 0
        buffer[:n] = self._file.part(self._place, n)
        self._place += n
        return n


def _check_readable(address: Address) -> None:
    """Reject plain http, which anyone on the network can read and change, except for this machine itself."""
    if address.scheme == "http":
        try:
            check_secure(address.text)
        except ValueError:
            raise DataFileError(
                f"{address.name!r} is a plain http address, so anyone on the network could read and change the "
                "data; use https. Plain http is only allowed for this machine itself."
            ) from None


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
