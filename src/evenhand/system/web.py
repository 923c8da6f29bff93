"""Answers of web servers over private connections.

Uses the standard library, which trusts the system's certificates and takes proxies from the environment.
"""

from __future__ import annotations

import base64
import http.client
from collections.abc import Mapping
from typing import IO, Any
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from evenhand.exceptions import InvalidInputError

__all__ = ["BrokenDownloadError", "announced_size", "check_secure", "open_url", "reason_of"]

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_SECRET_HEADERS = ("Authorization", "Cookie")


class BrokenDownloadError(OSError):
    """What arrived is not what was announced; a second attempt may succeed."""


def open_url(url: str, headers: Mapping[str, str] | None = None, *, timeout: float = 60.0) -> Any:  # noqa: ANN401
    """The answer to a GET request, as `urllib.request.urlopen` returns it.

    Parameters
    ----------
    url
        An https address; http only for this machine itself. A user and a password in it are sent as a header.
    headers
        Headers in addition to the usual ones.
    timeout
        Seconds without a byte after which the request fails.

    Raises
    ------
    InvalidInputError
        If `url` is not https.
    OSError
        If there is no answer, or an error (`urllib.error.HTTPError`).
    """
    check_secure(url)
    address, login = _without_login(url)
    sent = {"User-Agent": "evenhand", "Accept-Encoding": "identity", **login, **(headers or {})}
    return build_opener(_CheckedRedirects).open(Request(address, headers=sent), timeout=timeout)


def check_secure(url: str) -> None:
    """Reject an address that others could read or change.

    Raises
    ------
    InvalidInputError
        If `url` is not https, or http of this machine itself.
    """
    if not _is_secure(url):
        raise InvalidInputError(f"`url` must be an https address, got {url!r}.")


def announced_size(headers: Mapping[str, str]) -> int | None:
    """Number of bytes that an answer announces; None if it does not."""
    announced = headers.get("Content-Length")
    return int(announced) if announced and announced.isdigit() else None


def reason_of(error: BaseException | None) -> str:
    """Why there is no content, in words."""
    if isinstance(error, HTTPError):
        return f"the server answered {error.code} {error.reason}"
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        return error.strerror
    return str(getattr(error, "reason", None) or error)


def _is_secure(url: str) -> bool:
    """Whether `url` is https, or http that never leaves this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)


def _without_login(url: str) -> tuple[str, dict[str, str]]:
    """An address without user and password, and the header that sends them."""
    parts = urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, {}
    user, _, password = login.partition(":")
    code = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
    return urlunsplit(parts._replace(netloc=host)), {"Authorization": f"Basic {code}"}


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
        if not _is_secure(newurl):
            fp.close()
            parts = urlsplit(newurl)
            raise BrokenDownloadError(f"it redirects to {parts.scheme}://{parts.hostname}, which is not https")
        followed = super().redirect_request(req, fp, code, msg, headers, newurl)
        if followed is not None and urlsplit(newurl).netloc != urlsplit(req.full_url).netloc:
            for name in _SECRET_HEADERS:
                followed.remove_header(name)
        return followed
