"""Addresses of tables as users type them, and as they may be shown: without passwords, keys and tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

__all__ = ["Address", "shown"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")  # a single letter is a Windows drive
_OPEN_QUERY = ("endpoint_override", "region", "scheme")  # settings that are not secret
_CONTAINER_FIRST = ("abfs", "abfss")  # container@account: the first part is a place, not a user


@dataclass(frozen=True)
class Address:
    """The location of a table outside the local folders.

    Attributes
    ----------
    text
        As typed; may contain a password, so never show it.
    scheme
        In lower case, such as "s3".
    name
        The part that may be shown.
    """

    text: str = field(repr=False)
    scheme: str
    name: str

    @classmethod
    def of(cls, text: str) -> Address | None:
        """Parse an address; None for a path.

        Examples
        --------
        >>> Address.of("s3://KEY:SECRET@loans/2024.parquet?region=eu-west-1")
        Address(scheme='s3', name='s3://loans/2024.parquet?region=eu-west-1')
        >>> print(Address.of("loans/2024.parquet"))
        None
        """
        found = _SCHEME.match(text)
        return None if found is None else cls(text, found[1].lower(), shown(text))

    @property
    def last_part(self) -> str:
        """The name of the file, or of the folder."""
        return unquote(urlsplit(self.text).path.rstrip("/").rpartition("/")[2]) or self.name

    def without_secrets(self, message: str) -> str:
        """Redact the secrets of the address in a library's message.

        Examples
        --------
        >>> Address.of("s3://KEY:SECRET@loans/x").without_secrets("no user 'KEY', key 'SECRET'")
        "no user '***', key '***'"
        """
        for secret in sorted(_secrets(self.text), key=len, reverse=True):
            message = message.replace(secret, "***")
        return message


def shown(text: str) -> str:
    """An address without user, password, and anything but settings in the query; a path unchanged.

    Examples
    --------
    >>> shown("https://ann:pw@bank.example/loans.csv?sv=2024&sig=abc")
    'https://bank.example/loans.csv?...'
    >>> shown("abfss://loans:key@bank.dfs.core.windows.net/2024")
    'abfss://loans@bank.dfs.core.windows.net/2024'
    """
    if _SCHEME.match(text) is None:
        return text
    parts = urlsplit(text)
    user, _, host = parts.netloc.rpartition("@")
    place = user.partition(":")[0] if parts.scheme.lower() in _CONTAINER_FIRST else ""
    query = parse_qsl(parts.query)
    kept = urlencode([(name, value) for name, value in query if name in _OPEN_QUERY], safe=":/")
    hidden = "..." if parts.query and any(name not in _OPEN_QUERY for name, _ in query or [("", "")]) else ""
    return urlunsplit(
        parts._replace(
            netloc=f"{place}@{host}" if place else host, query="&".join(filter(None, (kept, hidden))), fragment=""
        )
    )


def _secrets(text: str) -> set[str]:
    parts = urlsplit(text)
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    names = () if parts.scheme.lower() in _CONTAINER_FIRST else (user,)
    query = [value for name, value in parse_qsl(parts.query) if name not in _OPEN_QUERY and len(value) > 3]
    hidden = {*names, password, *query, parts.query if query else ""}
    return {form for value in hidden if value for form in (value, unquote(value))}
