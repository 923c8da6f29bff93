"""Functions compiled with numba, which belongs to an extra: only modules of compiled functions import this one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

__all__ = ["Array", "Function", "Scalar", "compiled", "compiled_in_order"]

Function = TypeVar("Function", bound=Callable[..., Any])
Array = np.ndarray[Any, Any]
Scalar = Any  # a number of the compiled code


def compiled(function: Function) -> Function:
    """Compile `function` for vectors, and cache it on disk if possible.

    Sums may be taken in any order and fused with products, in the same way in every call on a machine; NaN and infinity
    are preserved.
    """
    return _cached(function, fastmath={"contract", "reassoc", "nsz"})


def compiled_in_order(function: Function) -> Function:
    """Compile `function` with every operation in the order in which it is written, and cache it on disk if possible."""
    return _cached(function)


def _cached(function: Function, **options: Any) -> Function:  # noqa: ANN401 - options of numba
    try:
        return cast(Function, numba.njit(function, nogil=True, error_model="numpy", cache=True, **options))
    except RuntimeError:  # neither the package's folder nor the user's cache can be written to
        return cast(Function, numba.njit(function, nogil=True, error_model="numpy", **options))
