"""Python compiled by numba, which belongs to an extra: only modules of compiled functions import this one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

__all__ = ["Array", "Scalar", "compiled"]

Function = TypeVar("Function", bound=Callable[..., Any])
Array = np.ndarray[Any, Any]
Scalar = Any  # a number of the compiled code


def compiled(function: Function) -> Function:
    """`function` compiled for vectors, and kept on disk where there is a place to keep it.

    Sums may be taken in any order and products fused with them, the same way in every call on a machine; what is not a
    number stays so.
    """
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "reassoc", "nsz"}}
    try:
        return cast(Function, numba.njit(function, cache=True, **options))
    except RuntimeError:  # neither the package's folder nor the user's cache can be written to
        return cast(Function, numba.njit(function, **options))
