"""Optional libraries, imported when a method needs them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from evenhand.exceptions import MissingExtraError

__all__ = ["optional_module"]


def optional_module(module: str, what: str, package: str, extra: str) -> Any:  # noqa: ANN401
    """Import a module of an optional library, or name the extra that installs it.

    Parameters
    ----------
    module
        The module to import.
    what
        What needs it, for the start of the message.
    package, extra
        The package of the module, and the extra of evenhand that installs it.

    Raises
    ------
    MissingExtraError
        If it is not installed.

    Examples
    --------
    >>> optional_module("no_such_module", "The workbook", "xlsxwriter", "excel")
    Traceback (most recent call last):
    evenhand.exceptions.MissingExtraError: The workbook needs xlsxwriter, which is not installed: pip install ...
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{what} needs {package}, which is not installed: pip install 'evenhand[{extra}]'."
        ) from error
