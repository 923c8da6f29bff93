"""Docstrings as the reference shows them: formulas as MathML, returned values in prose, a row for every name."""

from __future__ import annotations

import re
from textwrap import indent
from typing import Any

import griffe
from latex2mathml.converter import convert

# A directive: the rest of its line and the lines below that are indented further.
BLOCK = re.compile(r"^(?P<margin> *)\.\. math::(?P<tex>.*\n?(?:(?:\s*\n)?(?P=margin) +\S.*\n?)*)", re.MULTILINE)
INLINE = re.compile(r":math:`([^`]+)`")
# Markdown would take these for its own where they stand in the text of a formula.
MARKED = {ord(character): f"&#{ord(character)};" for character in "*_`\\[]"}
NAMES = re.compile(r"^(\w+(?:, \w+)+)\n((?:(?:\s*\n)? +\S.*\n?)+)", re.MULTILINE)
RETURNS = re.compile(r"^(Returns|Yields)\n-{3,}\n((?:\S.*(?:\n|\Z))+)(?=\n|\Z)", re.MULTILINE)


def with_mathml(text: str) -> str:
    """Docstring with each ``.. math::`` block and ``:math:`` role as MathML, which browsers draw without a script."""
    text = BLOCK.sub(_block, text)
    return INLINE.sub(lambda found: _mathml(found[1], "inline"), text)


def _block(found: re.Match[str]) -> str:
    return f'{found["margin"]}<div class="formula">{_mathml(found["tex"], "block")}</div>\n'


def _mathml(tex: str, display: str) -> str:
    return convert(" ".join(tex.split()), display=display).translate(MARKED)


def with_returned_prose(text: str) -> str:
    """Docstring whose section on returned values is a description; the type is the signature's.

    numpydoc takes a line at the margin for a type.
    """
    return RETURNS.sub(lambda found: f"{found[1]}\n{'-' * len(found[1])}\n:\n{indent(found[2], '    ')}", text)


def with_names_apart(text: str) -> str:
    """Docstring in which names that share a description have it each: griffe gives them all the type of the first."""
    return NAMES.sub(lambda found: "".join(f"{name}\n{found[2].rstrip()}\n" for name in found[1].split(", ")), text)


class ReferenceDocstrings(griffe.Extension):
    """Rewrites the docstring of every object that is collected."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called once for each object, with a docstring or without."""
        if obj.docstring:
            obj.docstring.value = with_names_apart(with_returned_prose(with_mathml(obj.docstring.value)))
