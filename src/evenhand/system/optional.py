"""Optional libraries, imported when a method needs them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from evenhand.exceptions import MissingExtraError

__all__ = ["cooper_module", "fairlearn_module"]


def fairlearn_module(name: str) -> Any:  # noqa: ANN401
    """Part `name` of fairlearn."""
    return _imported(f"fairlearn.{name}", "fairlearn")


def cooper_module() -> Any:  # noqa: ANN401
    """The cooper library."""
    return _imported("cooper", "cooper-optim")


def _imported(module: str, package: str) -> Any:  # noqa: ANN401
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"This method needs {package}, which is not installed: pip install 'evenhand[methods]'."
        ) from error
