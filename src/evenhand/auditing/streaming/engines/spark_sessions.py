"""The Spark session of an audit, and why Spark did not do as asked."""

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

_LEAST_VERSION = 4  # before, classic sessions had no artifacts
_CONNECT_PORT = 15002
_CONNECT_SECONDS = 10.0
_CALLED = re.compile(r"^An error occurred while calling .+\n: (.+)$", re.MULTILINE)  # of a bridge to Java
# The last line of a traceback in Python, within which Spark may quote another of Java.
_RAISED = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit): .+$", re.MULTILINE)


def is_spark_frame(source: object) -> bool:
    """Whether a source is a DataFrame of Spark, classic or Connect."""
    kinds = type(source).__mro__
    return any(kind.__module__.startswith("pyspark.sql") and kind.__name__ == "DataFrame" for kind in kinds)


def spark_session(address: str | None) -> Any:  # noqa: ANN401
    """The session that is active, else a new one.

    Parameters
    ----------
    address
        Where a new session is started: ``sc://host:port`` of a Spark Connect server, or a master such as ``local[4]``;
        None for what Spark is set up for, which is this machine unless it is told otherwise.

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
    # Python of the executors must be that of this process; Spark would take whichever comes first on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        return builder.getOrCreate()
    except Exception as error:  # of PySpark, Java and gRPC alike
        where = "" if address is None else f" at {address!r}"
        raise InvalidInputError(
            f"No Spark session could be started{where} ({reason(error)}); Spark needs Java 17 or newer on this "
            "machine, or `scheduler` (--scheduler) as the address of a server, sc://host:port, or of a master."
        ) from error


def reason(error: BaseException) -> str:
    r"""What went wrong, in one line: of an error on an executor, what was raised there.

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
    """Refuse an address where nothing listens, for which Spark would wait many minutes.

    Raises
    ------
    InvalidInputError
        If nothing does.
    """
    parts = urlsplit(address)
    try:
        socket.create_connection((parts.hostname or "", parts.port or _CONNECT_PORT), _CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"No Spark Connect server answers at {address!r} ({first_line(error)}); start one, or leave `scheduler` "
            "(--scheduler) out to use this machine."
        ) from error
