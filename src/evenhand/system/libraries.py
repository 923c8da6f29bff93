"""Libraries: optional ones, imported when a method needs them; versions of all; and functions compiled by numba."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from importlib import import_module, metadata
from typing import Any, TypeVar, cast

import numpy as np

from evenhand.exceptions import MissingExtraError
from evenhand.system import __version__


def optional_module(module: str, what: str, package: str, extra: str) -> Any:
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
    >>> optional_module("no_such_module", "The memory", "cobweb", "attic")
    Traceback (most recent call last):
    evenhand.exceptions.MissingExtraError: The memory needs cobweb, which is not installed: pip install ...
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{what} needs {package}, which is not installed: pip install 'evenhand[{extra}]'."
        ) from error


_REQUIRED = (
    "numpy", "scipy", "scikit-learn", "pandas", "pyarrow", "narwhals", "statsmodels", "altair", "skops",
)  # fmt: skip
_OPTIONAL = (
    "torch", "numba", "xgboost", "xgboost-cpu", "lightgbm", "catboost", "onnxruntime", "dask", "pyspark", "duckdb",
    "deltalake", "fairlearn", "shap",
)  # fmt: skip


def versions() -> dict[str, str]:
    """The versions of evenhand, Python, the system and each installed library.

    Examples
    --------
    >>> from evenhand import __version__
    >>> versions()["evenhand"] == __version__
    True
    """
    found = {
        "evenhand": __version__,
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}, {os.cpu_count()} cores",
    }
    for name in (*_REQUIRED, *_OPTIONAL):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            if name in _REQUIRED:
                found[name] = "not installed"
    return found


def show_versions() -> None:
    """Print the versions that a bug report should include."""
    found = versions()
    width = max(map(len, found))
    for name, version in found.items():
        print(f"{name:<{width}}  {version}")


Function = TypeVar("Function", bound=Callable[..., Any])
Array = np.ndarray[Any, Any]
Scalar = Any  # a number of the compiled code


def compiled_in_order(function: Function) -> Function:
    """Compile `function` with every operation in the order in which it is written, and cache it on disk if possible."""
    import numba  # an optional library

    try:
        return cast(Function, numba.njit(function, nogil=True, error_model="numpy", cache=True))
    except RuntimeError:  # neither the package's folder nor the user's cache can be written to
        return cast(Function, numba.njit(function, nogil=True, error_model="numpy"))
