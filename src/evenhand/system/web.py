"""Answers of web servers over private connections, and downloads that are complete or absent.

The standard library trusts the system's certificates and takes proxies from the environment. pooch would accept an
empty answer as a file, retry after a refusal, follow redirects to plain http, and trust the certificates of requests
even if a bank's network needs the system's.
"""

from __future__ import annotations

import base64
import errno
import http.client
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from evenhand.exceptions import DownloadError, InvalidInputError
from evenhand.system.files import space_in, write_atomically

_SECONDS = 60.0  # without a byte, after which a request fails
_ATTEMPTS, _WAIT_SECONDS = 3, 1.0  # the wait doubles with every further attempt
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_SECRET_HEADERS = ("Authorization", "Cookie")


class BrokenDownloadError(OSError):
    """What arrived is not what was announced; a second attempt may succeed."""


def open_url(url: str, headers: Mapping[str, str] | None = None) -> Any:
    """The answer to a GET request, as `urllib.request.urlopen` returns it.

    Parameters
    ----------
    url
        An https address; http only for this machine itself. A user and a password in it are sent as a header.
    headers
        Headers in addition to the usual ones.

    Raises
    ------
    InvalidInputError
        If `url` is not https.
    OSError
        If there is no answer, or an error (`urllib.error.HTTPError`).
    """
    _check_secure(url)
    sent = {"User-Agent": "evenhand", "Accept-Encoding": "identity"}
    parts = urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    if at:
        user, _, password = login.partition(":")
        code = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
        sent["Authorization"] = f"Basic {code}"
        url = urlunsplit(parts._replace(netloc=host))
    request = Request(url, headers={**sent, **(headers or {})})
    return build_opener(_CheckedRedirects).open(request, timeout=_SECONDS)


def reason_of(error: BaseException | None) -> str:
    """Why there is no content, in words."""
    if isinstance(error, HTTPError):
        return f"the server answered {error.code} {error.reason}"
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        return error.strerror
    return str(getattr(error, "reason", None) or error)


def is_secure(url: str) -> bool:
    """Whether `url` is https, or http that never leaves this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)


def _check_secure(url: str) -> None:
    if not is_secure(url):
        raise InvalidInputError(f"`url` must be an https address, got {url!r}.")


class _CheckedRedirects(HTTPRedirectHandler):
    """Follow a redirect only to an allowed address, and never send a password to a different host."""

    def redirect_request(
        self,
        req: Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> Request | None:
        if not is_secure(newurl):
            fp.close()
            parts = urlsplit(newurl)
            raise BrokenDownloadError(f"it redirects to {parts.scheme}://{parts.hostname}, which is not https")
        followed = super().redirect_request(req, fp, code, msg, headers, newurl)
        if followed is not None and urlsplit(newurl).netloc != urlsplit(req.full_url).netloc:
            for name in _SECRET_HEADERS:
                followed.remove_header(name)
        return followed


Progress = Callable[[int, "int | None"], None]
"""Called with the bytes received so far and the announced size, None if the server announced none."""

_BLOCK = 1 << 18


def download_file(url: str, target: Path, progress: Progress | None = None) -> Path:
    """Download `url` to `target` and return its path.

    Content goes to a temporary file next to `target`, which is renamed once complete; a failed attempt leaves
    nothing.

    Parameters
    ----------
    url
        An https address; http only for this machine itself.
    target
        Where to store the content; its folder is created if necessary.
    progress
        Called after every block with the progress of the download.

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
    _check_secure(url)
    failure: Exception | None = None
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_WAIT_SECONDS * 2 ** (attempt - 1))
        try:
            with write_atomically(target) as temporary, temporary.open("wb") as stream:
                _receive(url, stream, progress, target.parent)
        except (OSError, http.client.HTTPException) as error:
            failure = error
            if isinstance(error, HTTPError):
                error.close()
                if error.code < 500 and error.code not in (408, 429):  # a refusal, such as 404
                    break
            elif isinstance(error, OSError) and error.errno == errno.ENOSPC:
                break
        else:
            return target
    raise DownloadError(
        f"Could not download {url} ({reason_of(failure)}): check the connection and try again, or download that "
        f"address with a browser and save it as {target}."
    ) from failure


def _receive(url: str, stream: IO[bytes], progress: Progress | None, folder: Path) -> None:
    with open_url(url) as response:
        announced = response.headers.get("Content-Length")
        total = int(announced) if announced and announced.isdigit() else None
        check_space = space_in(folder)
        check_space(total or 0)
        received = 0
        while block := response.read(_BLOCK):
            stream.write(block)
            received += len(block)
            check_space(received)
            if progress is not None:
                progress(received, total)
    if total is not None and received != total:
        raise BrokenDownloadError(f"it ended after {received:,} of {total:,} bytes")
    if not received:
        raise BrokenDownloadError("it is empty")


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

        yield lambda received, total: bar.update(task, completed=received, total=total)
