"""The search for an alternative model: candidates, constraints, the choice and its reasons."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evenhand.searching.choice import Constraint, parse_constraint
    from evenhand.searching.confirming import Confirmation
    from evenhand.searching.options import SearchOptions
    from evenhand.searching.result import SearchResult
    from evenhand.searching.run import search
    from evenhand.searching.space import Candidate, default_space

__all__ = [
    "Candidate", "Confirmation", "Constraint", "SearchOptions", "SearchResult", "default_space", "parse_constraint",
    "search",
]  # fmt: skip

# Loaded on first use: the command line, which needs the options, must not wait for torch.
_HOME = {
    "Candidate": "space", "Confirmation": "confirming", "Constraint": "choice", "SearchOptions": "options",
    "SearchResult": "result", "default_space": "space", "parse_constraint": "choice", "search": "run",
}  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'evenhand.searching' has no attribute {name!r}")
    value = getattr(import_module(f"evenhand.searching.{_HOME[name]}"), name)
    globals()[name] = value
    return value
