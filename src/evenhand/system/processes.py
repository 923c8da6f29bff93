"""Modules of the package run as processes with limits, for work that may crash, hang or exhaust memory."""

from __future__ import annotations

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


def limit_resources(memory: int) -> None:
    """Limit the address space of this process, where the system can, and leave no core file."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    for what, limit in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(what)[1]
        resource.setrlimit(what, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
