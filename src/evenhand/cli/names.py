"""Texts of the command line as what they mean."""

from __future__ import annotations

__all__ = ["names_in"]


def names_in(text: str | None) -> tuple[str, ...] | None:
    """Column names from a,b,c."""
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text is not None else None
