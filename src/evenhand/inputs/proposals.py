"""Which columns of a table may be the label, the group and the finances, and why, as a file of settings."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from evenhand.inputs.checking import ColumnCheck
from evenhand.inputs.names import (
    PROTECTED,
    known_after,
    label_rank,
    outcome_senses,
    plain,
    protected_characteristic,
    suggests,
)
from evenhand.inputs.validation import category_text
from evenhand.system.files import toml_value

_YES_AND_NO = {"1": "0", "yes": "no", "y": "n", "true": "false", "t": "f"}
_MOST_GROUPS, _MOST_FINANCIAL = 12, 6
_FEWEST_AMOUNTS = 4
_AGES = (25, 62)  # the young, and the elderly of US law (12 CFR 1002.2)


@dataclass(frozen=True)
class Proposal:
    """Columns proposed for one role, why, and which alternatives were considered."""

    columns: tuple[str, ...]
    reason: str
    others: tuple[str, ...] = ()


def propose_label(columns: Sequence[ColumnCheck]) -> Proposal | None:
    """The column that may be the outcome: two values and a suitable name; else the code of a decision."""
    unprotected = [c for c in columns if protected_characteristic(c.name) is None]
    ranks = {c.name: rank for c in unprotected if c.n_distinct == 2 and (rank := label_rank(c.name)) is not None}
    if ranks:
        first, *others = sorted(ranks, key=lambda name: (ranks[name], len(plain(name).split("_"))))
        holds = next(c.holds for c in columns if c.name == first)
        return Proposal((first,), f"it has two values ({holds}) and a name that suggests an outcome", tuple(others))
    codes = [c for c in columns if suggests(c.name, "decision code") and c.n_distinct > 2]
    if codes:
        reason = f"its name suggests a decision; it has {codes[0].n_distinct} values, one of which must be favorable"
        return Proposal((codes[0].name,), reason)
    last = columns[-1]
    if last.n_distinct == 2 and last in unprotected:
        return Proposal((last.name,), f"it is the last column and has two values ({last.holds})")
    return None


def favorable_value(label: pd.Series[Any], name: str) -> tuple[str | None, str]:
    """The value of a label that may be the favorable outcome, and why; None with a question if it is not clear.

    Values such as "approved" say it themselves. Values such as 1 or yes affirm the name, which then decides.

    Examples
    --------
    >>> favorable_value(pd.Series([0, 1, 0]), "default_flag")
    ('0', 'by the name of the column, 1 is the unfavorable outcome')
    >>> favorable_value(pd.Series(["Approved", "Denied"]), "result")
    ('Approved', 'its name suggests it')
    >>> favorable_value(pd.Series([0, 1]), "good_bad")[0] is None
    True
    """
    counts = label.dropna().map(category_text).astype(str).str.strip().value_counts()
    texts = [str(text) for text in counts.index]
    folded = {text.casefold(): text for text in texts}
    senses = outcome_senses(name)
    good, bad = ([text for text in texts if outcome_senses(text) == {sense}] for sense in (True, False))
    good += [folded[">50k"]] if ">50k" in folded else []
    if good and len(good) < len(texts):
        return good[0], "its name suggests it"
    if len(texts) == 2 and len(bad) == 1:
        return next(text for text in texts if text not in bad), f"{bad[0]!r} suggests the unfavorable outcome"
    if plain(name) == "action_taken" and "1" in texts:
        return "1", "in HMDA files, 1 is a loan that was originated"
    yes = next((yes for yes, no in _YES_AND_NO.items() if set(folded) <= {yes, no}), None)
    if yes is None or len(senses) == 2:
        shown = ", ".join(map(repr, texts[:6])) + (", ..." if len(texts) > 6 else "")
        why = "name speaks of both outcomes" if len(senses) == 2 else "name and values do not say it"
        return None, f"Which value of {name!r} is good for the applicant: {shown}? Its {why}."
    affirmed, denied = folded.get(yes, yes), folded.get(_YES_AND_NO[yes], _YES_AND_NO[yes])
    if senses == {False}:
        return denied, f"by the name of the column, {affirmed} is the unfavorable outcome"
    if senses == {True}:
        return affirmed, "the name of the column suggests it"
    return affirmed, f"a guess: the name of the column does not say whether {affirmed} is good for the applicant"


def propose_group(columns: Sequence[ColumnCheck]) -> Proposal | None:
    """The column that may be the protected attribute: a suitable name, and few values."""
    order = list(PROTECTED.values())
    ranks = {
        c: (
            needs_bands(c),
            suggests(c.name, "second person"),
            order.index(characteristic),
            len(plain(c.name).split("_")),
        )
        for c in columns
        if (characteristic := protected_characteristic(c.name)) is not None
        and c.n_distinct >= 2
        and (c.n_distinct <= _MOST_GROUPS or needs_bands(c))
        and not c.is_unfit
        and not c.has("mostly missing")
    }
    if not ranks:
        return None
    # The person comes before a second person and how it was observed.
    first, *others = sorted(ranks, key=lambda c: ranks[c])
    reason = f"its name suggests a protected characteristic, and it has {first.n_distinct} values"
    return Proposal((first.name,), reason, tuple(c.name for c in others))


def needs_bands(column: ColumnCheck) -> bool:
    """Whether a column holds too many numbers to be a group each, such as ages."""
    return "number" in column.kind and column.n_distinct > _MOST_GROUPS


def propose_bands(values: pd.Series[Any], name: str) -> list[float]:
    """Where to cut the numbers of a group into bands.

    The ages from which lenders may ask whether somebody is of age to contract, or elderly; of any other number, thirds.

    Examples
    --------
    >>> propose_bands(pd.Series(range(20, 80)), "AGE"), propose_bands(pd.Series(range(300)), "score")
    ([25, 62], [100.0, 199.0])
    """
    if protected_characteristic(name) == "age" and values.min() < _AGES[0] and values.max() >= _AGES[-1]:
        return [*_AGES]
    thirds = values.quantile([1 / 3, 2 / 3]).round().tolist()
    return sorted({edge for edge in thirds if edge > values.min()})


def propose_clusters(columns: Sequence[ColumnCheck]) -> Proposal | None:
    """The column that may say which rows are the same applicant's."""
    ids = [c for c in columns if c.has("repeated id")]
    if not ids:
        return None
    sign = next(sign for sign in ids[0].signs if sign.kind == "repeated id")
    return Proposal((ids[0].name,), f"it {sign.clause}", tuple(c.name for c in ids[1:]))


def propose_financial(
    columns: Sequence[ColumnCheck], taken: Sequence[str], strength: Mapping[str, float]
) -> Proposal | None:
    """Columns that may be finances: amounts, durations and scores by name, with nothing against them.

    `taken` are the label and the group. Of columns that repeat a measurement, such as BILL_AMT1 to BILL_AMT6, the first
    is taken. If there are still many, those that predict the label best, by the area under the ROC curve in `strength`,
    are proposed.
    """
    suitable = [
        c
        for c in columns
        if c.name not in taken
        and "number" in c.kind
        and c.n_distinct >= _FEWEST_AMOUNTS
        and suggests(c.name, "financial")
        and not suggests(c.name, "not financial")
        and known_after(c.name) is None
        and all(sign.kind in ("sentinel", "extreme value") for sign in c.signs)
    ]
    if not suitable:
        return None
    first: dict[str, ColumnCheck] = {}
    for c in sorted(suitable, key=lambda c: (len(c.name), c.name)):
        first.setdefault(c.name.rstrip("0123456789"), c)
    ranked = sorted(first.values(), key=lambda c: -strength.get(c.name, 0.5))
    chosen = {c.name for c in ranked[:_MOST_FINANCIAL]}
    reason = "their names suggest amounts, durations or scores known before the decision"
    if len(ranked) > len(chosen):
        reason += f"; of {len(ranked)} such columns, those that predict the label best"
    elif len(suitable) > len(chosen):
        reason += ", the first of each that repeats"
    others = tuple(c.name for c in suitable if c.name not in chosen)
    return Proposal(tuple(c.name for c in suitable if c.name in chosen), reason, others)


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
        Why this value was chosen; without a value, a question.
    """

    heading: str
    key: str
    value: str | bool | Sequence[str] | Mapping[str, str] | None
    reason: str = ""


def clean_text(cleaning: Mapping[str, object]) -> str:
    """The table [clean] of the file, with every line commented out; empty if there is nothing to clean.

    Examples
    --------
    >>> print(clean_text({"groups": {"female ": "Female"}, "missing": [], "bands": {}}))
    <BLANKLINE>
    # How to read what is not as it should be. To use a line, remove the # before it.
    [clean]
    # One name for groups that differ only in typing:
    # groups = {"female " = "Female"}
    <BLANKLINE>
    """
    about = {
        "groups": "One name for groups that differ only in typing:",
        "missing": "Values that may mean a missing one, each with its column:",
        "bands": "Bands of numbers that would each be a group: under the first, between two, from the last:",
    }
    used = {key: cleaning[key] for key in about if cleaning[key]}
    lines = [line for key, value in used.items() for line in (f"# {about[key]}", f"# {key} = {toml_value(value)}")]
    head = ["", "# How to read what is not as it should be. To use a line, remove the # before it.", "[clean]"]
    return "\n".join([*head, *lines]) + "\n" if lines else ""


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
    lines = [f"# Settings of an audit of {_plain(source)}, proposed by `evenhand check`. Read each one and correct it."]
    for choice in choices:
        lines += ["", *_comment_lines(choice.heading), *_lines_of(choice)]
    if looks:
        lines += ["", "# Check these before the audit:"]
        lines += [line for sentence in looks for line in _comment_lines(f"- {sentence}")]
    return "\n".join(lines) + "\n"


def _lines_of(choice: Choice) -> list[str]:
    value = choice.value
    if value is None:
        question = choice.reason or "No column in the table looks suitable"
        return [*_comment_lines(f"{question.rstrip('.')}: write the value after the equals sign."), f"# {choice.key} ="]
    reason = _comment_lines(f"Proposed: {choice.reason}.") if choice.reason else []
    if not isinstance(value, Mapping) or not value:
        return [*reason, f"{choice.key} = {toml_value([] if isinstance(value, Mapping) else value)}"]
    cells = {f"{toml_value(name)},": _plain(why) for name, why in value.items()}
    width = max(map(len, cells), default=0)
    return [*reason, f"{choice.key} = [", *(f"  {cell:<{width}}  # {why}" for cell, why in cells.items()), "]"]


def _comment_lines(text: str) -> list[str]:
    """A text as comments of limited width."""
    return textwrap.wrap(_plain(text), _WIDTH, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False)


def _plain(text: str) -> str:
    """A text without anything that would end the line, or that TOML forbids in comments."""
    return "".join(character if character.isprintable() else " " for character in text)
