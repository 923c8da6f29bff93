"""The Spark session of an audit, and the reasons for Spark's errors."""

from __future__ import annotations

import os
import re
import socket
import sys
from typing import Any
from urllib.parse import urlsplit

from evenhand.exceptions import InvalidInputError, first_line
from evenhand.system.optional import optional_module

__all__ = ["is_spark_frame", "reason", "spark_session"]

_LEAST_VERSION = 4  # earlier classic sessions had no artifacts
_CONNECT_PORT = 15002
_CONNECT_SECONDS = 10.0
_CALLED = re.compile(r"^An error occurred while calling .+\n: (.+)$", re.MULTILINE)  # of a bridge to Java
# The last line of a Python traceback, in which Spark may quote a Java one.
_RAISED = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit): .+$", re.MULTILINE)


def is_spark_frame(source: object) -> bool:
    """Whether a source is a DataFrame of Spark, classic or Connect."""
    kinds = type(source).__mro__
    return any(kind.__module__.startswith("pyspark.sql") and kind.__name__ == "DataFrame" for kind in kinds)


def spark_session(address: str | None) -> Any:  # noqa: ANN401
    """The active session, or else a new one.

    Parameters
    ----------
    address
        Where to start a new session: ``sc://host:port`` of a Spark Connect server, or a master such as ``local[4]``;
        None for Spark's configuration, which is this machine by default.

    Raises
    ------
    MissingExtraError
        If PySpark is not installed.
    InvalidInputError
        If no session can be started, or its Spark is too old.
    """
    sql = optional_module("pyspark.sql", "`engine='spark'`", "PySpark", "spark")
    session = sql.SparkSession.getActiveSession()
    return _checked(_started(sql.SparkSession.builder, address) if session is None else session)


def _checked(session: Any) -> Any:  # noqa: ANN401
    if int(session.version.split(".")[0]) < _LEAST_VERSION:
        raise InvalidInputError(
            f"`engine='spark'` needs Spark {_LEAST_VERSION} or newer, got {session.version}; audit files with "
            '`engine="local"`, or use a newer cluster.'
        )
    return session


def _started(builder: Any, address: str | None) -> Any:  # noqa: ANN401
    if address is not None and address.startswith("sc://"):
        _check_answers(address)
        builder = builder.remote(address)
    elif address is not None:
        builder = builder.master(address)
    # The executors must use this process's Python; Spark would take the first one on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        return builder.getOrCreate()
    except Exception as error:  # of PySpark, Java and gRPC alike
        where = "" if address is None else f" at {address!r}"
        raise InvalidInputError(
            f"No Spark session could be started{where} ({reason(error)}); Spark needs Java 17 or newer on this "
            "machine, or set `scheduler` (--scheduler) to the address of a server, sc://host:port, or of a master."
        ) from error


def reason(error: BaseException) -> str:
    r"""The error in one line; for an error on an executor, what was raised there.

    Examples
    --------
    >>> reason(RuntimeError("Job aborted.\nTraceback (most recent):\n  ...\nOSError: no space\n\tat java.A.b"))
    'OSError: no space'
    >>> reason(RuntimeError("An error occurred while calling o1.collect.\n: java.A: Job aborted.\n\tat java.A.b"))
    'java.A: Job aborted'
    >>> reason(RuntimeError("[CANNOT_PARSE] The name is empty. SQLSTATE: 42000\nmore"))
    '[CANNOT_PARSE] The name is empty. SQLSTATE: 42000'
    """
    found = _RAISED.findall(str(error)) or _CALLED.findall(str(error))
    return found[-1].rstrip(".") if found else first_line(error)


def _check_answers(address: str) -> None:
    """Reject an address where nothing listens, because Spark would wait for minutes.

    Raises
    ------
    InvalidInputError
        If nothing listens.
    """
    parts = urlsplit(address)
    try:
        socket.create_connection((parts.hostname or "", parts.port or _CONNECT_PORT), _CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"No Spark Connect server answers at {address!r} ({first_line(error)}); start one, or drop `scheduler` "
            "(--scheduler) to use this machine."
        ) from error
