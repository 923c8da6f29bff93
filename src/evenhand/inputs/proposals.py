"""Which columns of a table may be the label, the group and the finances, and why, as a file of settings."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from evenhand.inputs.checking import GROUP_WORDS, ColumnCheck, known_after, names_a_group, words_of
from evenhand.inputs.validation import category_text
from evenhand.system.files import toml_value

_LABEL_WORDS = (
    "label", "target", "outcome", "default", "defaulted", "approved", "approval", "accepted", "denied", "rejected",
    "decision", "repaid", "paid", "delinquent", "good", "bad", "class", "risk", "income", "y",
)  # fmt: skip
_DECISIONS = ("action_taken", "loan_status", "decision", "final_status", "status")
_BAD_WORDS = frozenset({"default", "defaulted", "denied", "rejected", "delinquent", "bad", "declined", "fraud", "risk"})
_GOOD_VALUES = (
    "approved", "accepted", "good", "paid", "repaid", "fully paid", "originated", "yes", "y", "true", ">50k",
)  # fmt: skip
_FINANCIAL_WORDS = frozenset(
    {
        "income", "salary", "wage", "amount", "amt", "debt", "dti", "ltv", "loan", "balance", "bal", "score", "fico",
        "limit", "payment", "installment", "instalment", "duration", "term", "maturity", "savings", "assets", "value",
        "credit", "utilization", "capital", "bill", "revenue", "collateral",
    }
)  # fmt: skip
_NOT_FINANCIAL = frozenset({"tract", "msa", "count", "type", "code", "existing", "penalty", "intro", "purpose"})
_MOST_GROUPS, _MOST_FINANCIAL = 12, 6
_FEWEST_AMOUNTS = 4


@dataclass(frozen=True)
class Proposal:
    """Columns proposed for one role, why, and which alternatives were considered."""

    columns: tuple[str, ...]
    reason: str
    others: tuple[str, ...] = ()


def propose_label(columns: Sequence[ColumnCheck]) -> Proposal | None:
    """The column that may be the outcome: two values and a suitable name; else the code of a decision."""
    named = [c for c in columns if c.n_distinct == 2 and _label_rank(c.name) < len(_LABEL_WORDS)]
    named = [c for c in named if not names_a_group(c.name)]
    if named:
        ranked = sorted(named, key=lambda c: _label_rank(c.name))
        others = tuple(c.name for c in ranked[1:])
        return Proposal(
            (ranked[0].name,), f"it has two values ({ranked[0].holds}) and a name that suggests an outcome", others
        )
    codes = [c for c in columns if "_".join(words_of(c.name)) in _DECISIONS and c.n_distinct > 2]
    if codes:
        reason = f"its name suggests a decision; it has {codes[0].n_distinct} values, one of which must be favorable"
        return Proposal((codes[0].name,), reason)
    last = columns[-1]
    if last.n_distinct == 2 and not names_a_group(last.name):
        return Proposal((last.name,), f"it is the last column and has two values ({last.holds})")
    return None


def favorable_value(label: pd.Series[Any], name: str) -> tuple[str, str] | None:
    """The value of a label that may be the favorable outcome, and why; None if it is 1 (of 0 and 1).

    Examples
    --------
    >>> favorable_value(pd.Series([0, 1, 0]), "default_flag")
    ('0', 'the name suggests that 1 is the unfavorable outcome')
    >>> favorable_value(pd.Series(["Approved", "Denied"]), "result")
    ('Approved', 'its name suggests it')
    """
    texts = [category_text(value) for value in label.dropna().unique().tolist()]
    is_bad = bool(_BAD_WORDS & set(words_of(name)))
    if set(texts) <= {"0", "1"}:
        return ("0", "the name suggests that 1 is the unfavorable outcome") if is_bad else None
    plain = {text.strip().casefold(): text.strip() for text in texts}
    if is_bad and "no" in plain:
        return plain["no"], "the name of the column suggests the unfavorable outcome"
    good = next((plain[value] for value in _GOOD_VALUES if value in plain), None)
    if good is not None:
        return good, "its name suggests it"
    first = min(texts)
    return first.strip(), "a guess: the first of its values. Correct it if a different one is favorable"


def propose_group(columns: Sequence[ColumnCheck]) -> Proposal | None:
    """The column that may be the protected attribute: a suitable name, and few values."""
    named = [c for c in columns if names_a_group(c.name) and 2 <= c.n_distinct <= _MOST_GROUPS and not c.is_unfit]
    named = [c for c in named if not c.has("mostly missing")]
    if not named:
        return None
    ranked = sorted(named, key=_group_rank)
    reason = f"its name suggests a protected characteristic, and it has {ranked[0].n_distinct} values"
    return Proposal((ranked[0].name,), reason, tuple(c.name for c in ranked[1:]))


def propose_financial(
    columns: Sequence[ColumnCheck], taken: Sequence[str], strength: Mapping[str, float]
) -> Proposal | None:
    """Columns that may be finances: amounts, durations and scores by name, with nothing against them.

    `taken` are the label and the group. If there are many columns, those that predict the label best, by the area under
    the ROC curve in `strength`, are proposed.
    """
    suitable = [
        c
        for c in columns
        if c.name not in taken
        and "number" in c.kind
        and c.n_distinct >= _FEWEST_AMOUNTS
        and _FINANCIAL_WORDS & set(words_of(c.name))
        and not _NOT_FINANCIAL & set(words_of(c.name))
        and known_after(c.name) is None
        and not any(sign.kind != "sentinel" for sign in c.signs)
    ]
    if not suitable:
        return None
    ranked = sorted(suitable, key=lambda c: -strength.get(c.name, 0.5))
    chosen = {c.name for c in ranked[:_MOST_FINANCIAL]}
    reason = "their names suggest amounts, durations or scores known before the decision"
    if len(ranked) > len(chosen):
        reason += f"; of {len(ranked)} such columns, those that predict the label best"
    others = tuple(c.name for c in suitable if c.name not in chosen)
    return Proposal(tuple(c.name for c in suitable if c.name in chosen), reason, others)


def _label_rank(name: str) -> int:
    words = words_of(name)
    return min((_LABEL_WORDS.index(word) for word in words if word in _LABEL_WORDS), default=len(_LABEL_WORDS))


def _group_rank(column: ColumnCheck) -> tuple[bool, int, int]:
    """Names of the person before those of a second person or of how it was observed; then the order of the words."""
    words = words_of(column.name)
    place = min(GROUP_WORDS.index(word) for word in words if word in GROUP_WORDS)
    return bool({"co", "observed", "tract"} & set(words)), place, len(words)


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
        return ["# No column in the table looks suitable: write the value after the equals sign.", f"# {choice.key} ="]
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
