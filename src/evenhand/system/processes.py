"""Modules of the package run as processes with limits, for work that may crash, hang or exhaust memory."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

__all__ = ["limit_resources", "module_command", "module_environment"]

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module without importing anything from the working folder."""
    return [sys.executable, "-P", "-m", module, *arguments]


def module_environment() -> dict[str, str]:
    """The environment of such a process: this package is found, and libraries use one thread."""
    known = [str(Path(__file__).parents[2]), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return os.environ | _ONE_THREAD | {"PYTHONPATH": os.pathsep.join(known)}


def limit_resources(memory: int, seconds: float | None = None) -> None:
    """Limit the address space and the computing time of this process, where the system can; leave no core file.

    Time spent waiting for a busy machine does not count. A process whose time is over ends by the signal SIGXCPU.
    """
    try:
        import resource
    except ImportError:  # not on Windows
        return
    limits = {resource.RLIMIT_AS: memory, resource.RLIMIT_CORE: 0}
    if seconds is not None:
        limits[resource.RLIMIT_CPU] = math.ceil(seconds)
    for what, limit in limits.items():
        hard = resource.getrlimit(what)[1]
        resource.setrlimit(what, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
