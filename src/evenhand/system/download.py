"""Downloads that are complete or absent.

Not pooch: it accepts an empty answer as a file, retries after a refusal, follows redirects to plain http, and trusts
the certificates of requests even if a bank's network needs the system's.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.error import HTTPError

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from evenhand.exceptions import DownloadError
from evenhand.system.files import Room, write_atomically
from evenhand.system.web import BrokenDownloadError, announced_size, check_secure, open_url, reason_of

__all__ = ["Progress", "download_file", "progress_bar"]

Progress = Callable[[int, "int | None"], None]
"""Called with the bytes received so far and the announced size, None if the server announced none."""

_BLOCK = 1 << 18


def download_file(
    url: str,
    target: Path,
    *,
    sha256: str | None = None,
    progress: Progress | None = None,
    attempts: int = 3,
    timeout: float = 60.0,
    wait: float = 1.0,
) -> Path:
    """Download `url` to `target` and return its path.

    Content goes to a temporary file next to `target`, which is renamed once complete; a failed attempt leaves
    nothing.

    Parameters
    ----------
    url
        An https address; http only for this machine itself.
    target
        Where to store the content; its folder is created if necessary.
    sha256
        Expected digest of the content, if known.
    progress
        Called after every block with the progress of the download.
    attempts
        Total number of attempts.
    timeout
        Seconds without a byte after which an attempt fails.
    wait
        Seconds before the second attempt; twice that before the third, and so on.

    Raises
    ------
    InvalidInputError
        If `url` is not https.
    DownloadError
        If every attempt failed.

    Examples
    --------
    >>> download_file("http://example.org/a.csv", Path("a.csv"))
    Traceback (most recent call last):
    evenhand.exceptions.InvalidInputError: `url` must be an https address, got 'http://example.org/a.csv'.
    """
    check_secure(url)
    failure: Exception | None = None
    for attempt in range(attempts):
        if attempt:
            time.sleep(wait * 2 ** (attempt - 1))
        try:
            with write_atomically(target) as temporary, temporary.open("wb") as stream:
                _receive(url, stream, sha256, progress, timeout, target.parent)
        except (OSError, http.client.HTTPException) as error:
            failure = error
            if isinstance(error, HTTPError):
                error.close()
            if not _may_pass(error):
                break
        else:
            return target
    raise DownloadError(
        f"Could not download {url} ({reason_of(failure)}): check the connection and try again, or download that "
        f"address with a browser and save it as {target}."
    ) from failure


def _receive(
    url: str, stream: IO[bytes], sha256: str | None, progress: Progress | None, timeout: float, folder: Path
) -> None:
    with open_url(url, timeout=timeout) as response:
        total = announced_size(response.headers)
        room = Room.of(folder)
        room.check(total or 0)
        digest, received = hashlib.sha256(), 0
        while block := response.read(_BLOCK):
            stream.write(block)
            digest.update(block)
            received += len(block)
            room.check(received)
            if progress is not None:
                progress(received, total)
    if total is not None and received != total:
        raise BrokenDownloadError(f"it ended after {received:,} of {total:,} bytes")
    if not received:
        raise BrokenDownloadError("it is empty")
    if sha256 is not None and digest.hexdigest() != sha256:
        raise BrokenDownloadError(f"its sha256 is {digest.hexdigest()}, not {sha256}")


def _may_pass(error: Exception) -> bool:
    """Whether to try again: not after a refusal such as 404, and not on a full disk."""
    if isinstance(error, HTTPError):
        return error.code >= 500 or error.code in (408, 429)
    return not (isinstance(error, OSError) and error.errno == errno.ENOSPC)


@contextmanager
def progress_bar(description: str) -> Iterator[Progress]:
    """Yield a callback for `download_file` that draws a bar on a terminal and nothing elsewhere.

    Examples
    --------
    >>> with progress_bar("file.csv") as progress:
    ...     progress(10, 20)
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(description, total=None)

        def update(received: int, total: int | None) -> None:
            bar.update(task, completed=received, total=total)

        yield update
