"""What the page of a search calls the model of comparison, and the files that it links to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from evenhand.report.frame import Section

__all__ = ["file_links", "rival_words"]


def rival_words(data: Mapping[str, Any]) -> str:
    """The model that candidates are compared with, in a word or two."""
    return "unconstrained" if data["start"] is None else "your model"


def file_links(files: Mapping[str, str]) -> list[Section]:
    """A section of links to files beside the page; empty if there are no files.

    Examples
    --------
    >>> (section,) = file_links({"The chosen model": "model/model.json"})
    >>> print(section.points[0][1])
    <a href="model/model.json">model/model.json</a>
    """
    if not files:
        return []
    points = [(what, Markup('<a href="{0}">{0}</a>').format(path)) for what, path in files.items()]
    return [Section("files", "Files", points=points)]
