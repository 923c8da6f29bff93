"""A commented TOML file for `evenhand audit`, ready to be edited."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evenhand.system.toml import toml_value

__all__ = ["Choice", "config_text"]

_WIDTH = 110


@dataclass(frozen=True)
class Choice:
    """A key of the file.

    Attributes
    ----------
    heading
        What the key is about.
    value
        A string, strings, strings with a reason each, or yes; None if nothing can be proposed.
    reason
        Why this value was chosen.
    """

    heading: str
    key: str
    value: str | bool | Sequence[str] | Mapping[str, str] | None
    reason: str = ""


def config_text(source: str, choices: Sequence[Choice], looks: Sequence[str]) -> str:
    """The text of the file.

    Parameters
    ----------
    source
        What was checked, for the first line.
    choices
        In order.
    looks
        Sentences on what to check before the audit.

    Examples
    --------
    >>> choices = [Choice("The column of the outcome.", "label", "paid", "it has two values")]
    >>> print(config_text("loans.csv", choices, []))
    # Settings of an audit of loans.csv, proposed by `evenhand check`. Read each one and correct it.
    <BLANKLINE>
    # The column of the outcome.
    # Proposed: it has two values.
    label = "paid"
    <BLANKLINE>
    """
    lines = [
        f"# Settings of an audit of {_comment(source)}, proposed by `evenhand check`. Read each one and correct it."
    ]
    for choice in choices:
        lines += ["", *_comment_lines(choice.heading), *_lines_of(choice)]
    if looks:
        lines += ["", "# Check these before the audit:"]
        lines += [line for sentence in looks for line in _comment_lines(f"- {sentence}")]
    return "\n".join(lines) + "\n"


def _lines_of(choice: Choice) -> list[str]:
    value = choice.value
    if value is None:
        return ["# No column in the table looks suitable: write the value after the equals sign.", f"# {choice.key} ="]
    reason = _comment_lines(f"Proposed: {choice.reason}.") if choice.reason else []
    if not isinstance(value, Mapping) or not value:
        return [*reason, f"{choice.key} = {toml_value([] if isinstance(value, Mapping) else value)}"]
    cells = {f"{toml_value(name)},": _comment(why) for name, why in value.items()}
    width = max(map(len, cells), default=0)
    return [*reason, f"{choice.key} = [", *(f"  {cell:<{width}}  # {why}" for cell, why in cells.items()), "]"]


def _comment_lines(text: str) -> list[str]:
    """A text as comments of limited width."""
    return textwrap.wrap(_comment(text), _WIDTH, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False)


def _comment(text: str) -> str:
    """A text without anything that would end the line, or that TOML forbids in comments."""
    return "".join(character if character.isprintable() else " " for character in text)
