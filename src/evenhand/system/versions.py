"""Versions of everything that a number may depend on, for bug reports."""

from __future__ import annotations

import os
import platform
from importlib import metadata

from evenhand._version import __version__

__all__ = ["show_versions", "versions"]

_REQUIRED = ("torch", "numpy", "scipy", "scikit-learn", "pandas", "pyarrow", "narwhals", "statsmodels", "altair")
_OPTIONAL = (
    "numba",
    "xgboost",
    "xgboost-cpu",
    "lightgbm",
    "catboost",
    "onnxruntime",
    "skops",
    "dask",
    "pyspark",
    "duckdb",
    "deltalake",
    "xlsxwriter",
    "python-docx",
    "fairlearn",
    "shap",
)


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
