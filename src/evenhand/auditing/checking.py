"""Check a table before it is audited: its columns, its groups, and a proposed role for each column."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import RenderableType

from evenhand.auditing.reservations import with_associations
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.checking import (
    MATCHED_ON_DECISION,
    ColumnCheck,
    GroupCheck,
    Severity,
    check_groups,
    check_table,
    closing_rows,
)
from evenhand.inputs.names import (
    PROTECTED,
    known_after,
    label_rank,
    names_a_decision,
    outcome_senses,
    plain,
    protected_characteristic,
    suggests,
)
from evenhand.inputs.validation import as_columns, as_table, category_text, check_columns, plain_name
from evenhand.report.check_page import check_page, terminal_check
from evenhand.report.terminal import as_text
from evenhand.system.files import toml_value, write_text

# --- proposals from names and values, and the configuration ---

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
    ranks = {c: rank for c in unprotected if c.n_distinct == 2 and (rank := label_rank(c.name)) is not None}
    if ranks:
        first, *others = sorted(ranks, key=lambda c: (ranks[c], len(plain(c.name).split("_"))))
        reason = f"it has two values ({first.holds}) and a name that suggests an outcome"
        return Proposal((first.name,), reason, tuple(c.name for c in others))
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


def _setting(key: str, value: Any, reason: str) -> list[str]:
    """The lines of a setting in TOML, proposed or to be filled in; a mapping is a list with a comment on each item."""
    if value is None:
        question = reason or "No column in the table looks suitable"
        return [*_comment_lines(f"{question.rstrip('.')}: write the value after the equals sign."), f"# {key} ="]
    proposed = _comment_lines(f"Proposed: {reason}.") if reason else []
    if not isinstance(value, Mapping) or not value:
        return [*proposed, f"{key} = {toml_value([] if isinstance(value, Mapping) else value)}"]
    cells = {f"{toml_value(name)},": _plain(why) for name, why in value.items()}
    width = max(map(len, cells))
    return [*proposed, f"{key} = [", *(f"  {cell:<{width}}  # {why}" for cell, why in cells.items()), "]"]


def _comment_lines(text: str) -> list[str]:
    """A text as comments of limited width."""
    return textwrap.wrap(_plain(text), _WIDTH, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False)


def _plain(text: str) -> str:
    """A text without anything that would end the line, or that TOML forbids in comments."""
    return "".join(character if character.isprintable() else " " for character in text)


# --- the check ---

_DROPPED = (
    "saved index",
    "id",
    "repeated id",
    "date",
    "free text",
    "constant",
    "known after the decision",
    "leaks the label",
)
_GIVEN = "you named it"


@dataclass(frozen=True)
class Problem:
    """Something suspicious about a table.

    Attributes
    ----------
    column
        The column or columns concerned.
    kind
        The problem in a few words.
    severity
        ``"refuse"``: an audit leaves the column out or rejects it; ``"warn"``: it warns; ``"note"``: information only.
    sentence
        What was seen, and what to do.
    """

    column: str
    kind: str
    severity: Severity
    sentence: str


@dataclass(frozen=True, eq=False, repr=False)
class CheckResult:
    """Result of `check`.

    Attributes
    ----------
    checks
        Each column: type, missing and distinct values, range, and what is suspicious.
    groups
        Sizes of the groups and similar names; None if no group is named or found.
    label, group, financial, clusters
        The columns given or proposed for each role, and why; None if there are none.
    positive_label
        The value of the label that is favorable, and why; None without a label, or if it must be asked.
    question
        What must be asked about the favorable value of the label; empty if it is clear.
    dropped
        Columns that were not checked.
    closing
        Last rows that are not people, such as totals and sources, by their texts.
    n_without_label
        People without a label.
    spellings, bands
        Other spellings of groups, each with one to read it as, and where to cut groups that are numbers.
    reading
        What the user said about the cells of the file, which an audit of it needs as well.
    source
        What was checked, in words.
    """

    checks: tuple[ColumnCheck, ...]
    groups: GroupCheck | None
    label: Proposal | None
    group: Proposal | None
    financial: Proposal | None
    clusters: Proposal | None
    positive_label: tuple[str, str] | None
    question: str
    closing: tuple[str, ...]
    dropped: tuple[str, ...]
    n_without_label: int
    spellings: Mapping[str, str]
    bands: Mapping[str, Sequence[float]]
    source: str
    reading: Mapping[str, Any] = field(default_factory=dict)

    @property
    def columns(self) -> pd.DataFrame:
        """One row per column: column, part, type, missing, distinct, holds, suspicious."""
        return pd.DataFrame(self.to_dict()["columns"])

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Everything suspicious, the most serious first."""
        parts = {*_names(self.label), *_names(self.group), *_names(self.clusters)}
        problems = [
            Problem(column.name, sign.kind, sign.severity, sign.sentence(column.name))
            for column in self.checks
            for sign in column.signs
            if column.name not in parts or sign.kind in ("constant", "date", "saved index", "repeated id")
        ]
        if self.groups is not None:
            severities: dict[str, Severity] = {"small groups": "note", "missing group": "warn"}
            for kind, sentence in self.groups.sentences():
                problems.append(Problem(self.groups.name, kind, severities.get(kind, "refuse"), sentence))
        if self.n_without_label and self.label is not None:
            sentence = f"{self.n_without_label:,} people have no label; `drop_missing` leaves them out and counts them."
            problems.append(Problem(self.label.columns[0], "missing label", "warn", sentence))
        label = " & ".join(_names(self.label))
        if self.question:
            sentence = f"{self.question} Say it with `positive_label` (--positive-label)."
            problems.append(Problem(label, "favorable value", "refuse", sentence))
        if names_a_decision(label):
            problems.append(Problem(label, "label is a decision", "warn", f"The label {label!r} {MATCHED_ON_DECISION}"))
        if self.closing:
            shown = ", ".join(map(repr, self.closing))
            sentence = f"The last rows are not applicants: {shown}. Remove them, or they count as people."
            problems.append(Problem("", "closing rows", "refuse", sentence))
        order = ("refuse", "warn", "note")
        return tuple(sorted(problems, key=lambda problem: order.index(problem.severity)))

    @property
    def clean(self) -> dict[str, Any]:
        """The table ``[clean]`` of the configuration: other spellings, values that may mean missing, and bands."""
        left_out = {*self._dropped(), *_names(self.label)}
        signs = [(column.name, sign) for column in self.checks if column.name not in left_out for sign in column.signs]
        missing = [f"{name}={value}" for name, sign in signs for value in sign.missing]
        return {"groups": dict(self.spellings), "missing": missing, "bands": dict(self.bands)}

    @property
    def steps(self) -> tuple[str, ...]:
        """What must be settled in the configuration before an audit can run; empty if nothing must."""
        roles = {"label": self.label, "group": self.group, "financial_features": self.financial}
        steps = [f"Remove the # before {key} =, and write a column." for key, role in roles.items() if role is None]
        if self.question:
            steps.append("Remove the # before positive_label =, and write the value that is good for the applicant.")
        steps += [f"Remove the # before {key} =, in [clean]." for key in ("groups", "bands") if self.clean[key]]
        if self.groups is not None:
            grave = ["one group", *([] if self.bands else ["many groups"])]
            steps += [sentence for kind, sentence in self.groups.sentences() if kind in grave]
        return tuple(steps)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data, from which page, terminal output and JSON are made."""
        roles = {"clusters": self.clusters, "financial": self.financial, "group": self.group, "label": self.label}
        parts = dict.fromkeys(self._dropped(), "left out")
        parts |= {name: role for role, proposal in roles.items() for name in _names(proposal)}
        return {
            "source": self.source,
            "n_rows": self.checks[0].n_rows,
            "columns": [
                {
                    "column": column.name,
                    "part": parts.get(column.name, ""),
                    "type": column.kind,
                    "missing": column.n_missing,
                    "distinct": column.n_distinct,
                    "holds": column.holds,
                    "suspicious": ", ".join(
                        sign.kind
                        for sign in column.signs
                        if column.name not in _names(self.label)
                        and not (column.name in _names(self.group) and sign.kind == "protected characteristic")
                    ),
                }
                for column in self.checks
            ],
            "problems": [asdict(problem) for problem in self.problems],
            "groups": None if self.groups is None else {"name": self.groups.name, "counts": dict(self.groups.counts)},
            "proposals": {role: one and asdict(one) for role, one in reversed(roles.items())},
            "positive_label": None if self.positive_label is None else self.positive_label[0],
            "question": self.question,
            "clean": self.clean,
            "steps": list(self.steps),
            "config": self.config(),
        }

    def config(self) -> str:
        """The text of a TOML file for `evenhand audit --config`, with a comment on every setting."""
        source, dropped = _plain(self.source), self._dropped()
        lines = [f"# Settings of an audit of {source}, proposed by `evenhand check`. Read each one and correct it."]

        def choose(heading: str, key: str, value: Any, reason: str = "") -> None:
            lines.extend(["", *_comment_lines(heading), *_setting(key, value, reason)])

        label = next(iter(_names(self.label)), None)
        choose("The column of the true outcome.", "label", label, _reason(self.label))
        if self.positive_label is not None or self.question:
            value, reason = self.positive_label or (None, self.question)
            choose("The value of the label that is good for the applicant.", "positive_label", value, reason)
        choose("The column of the protected attribute.", "group", _names(self.group) or None, _reason(self.group))
        about = "Columns on which two people must be similar to be comparable: the choice that matters most."
        choose(about, "financial_features", _names(self.financial) or None, _reason(self.financial))
        choose("Columns that are not inputs. If the model names its inputs, those are used.", "drop", dropped)
        if self.clusters is not None:
            about = "The column that says which rows are the same applicant's, who counts once."
            choose(about, "clusters", self.clusters.columns[0], _reason(self.clusters))
        n_groupless = 0 if self.groups is None else self.groups.n_missing
        if n_groupless or self.n_without_label:
            reason = f"{self.n_without_label:,} people have no label and {n_groupless:,} no group"
            choose("Leave out people without a label or group; the report counts them.", "drop_missing", True, reason)
        for key, value in self.reading.items():
            choose("How you said to read the file.", key, value)
        looks = [p.sentence for p in self.problems if p.column not in dropped and p.severity != "note"]
        if looks:
            lines += ["", "# Check these before the audit:"]
            lines += [line for sentence in looks for line in _comment_lines(f"- {sentence}")]
        about = (
            "# The saved model. Without one, a plain network is fitted on 70% of the people and audited on the rest."
        )
        return "\n".join([*lines, "", about, '# model = "model.skops"', clean_text(self.clean)])

    def _dropped(self) -> dict[str, str]:
        """Columns that should not be inputs, and why."""
        parts = {*_names(self.label), *_names(self.group), *_names(self.financial), *_names(self.clusters)}
        signs = {
            column.name: next(sign.clause for sign in column.signs if sign.kind in _DROPPED)
            for column in self.checks
            if column.name not in parts and column.has(*_DROPPED)
        }
        return {**dict.fromkeys(self.dropped, _GIVEN), **signs}

    def write_config(self, path: str | os.PathLike[str]) -> Path:
        """Write `config` to a file, completely or not at all."""
        return write_text(path, self.config())

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write a page that needs no network, completely or not at all."""
        return write_text(path, check_page(self.to_dict()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.source}: {len(self.checks)} columns, {len(self.problems)} problems)"

    def __str__(self) -> str:
        """The table of columns, the problems and the proposals as plain text."""
        return as_text(self)

    def __rich__(self) -> RenderableType:
        """The same, formatted for a terminal."""
        return terminal_check(self.to_dict())


def check(
    X: Any,
    y: Any = None,
    sensitive_features: Any = None,
    *,
    financial_features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    positive_label: str | None = None,
    source: str = "the table",
) -> CheckResult:
    """Check a table before it is audited.

    Each column is checked for signs of an id, a date, a saved index, numbers stored as text, sentinels such as -999,
    extreme values, names of protected characteristics, and values known only after the decision. If a label and groups
    are known, columns that nearly determine them are found too. Roles that are not given are proposed.

    Parameters
    ----------
    X
        A pandas, polars or pyarrow table, or an array.
    y
        Labels, or the name of their column in `X`; by default a column is proposed.
    sensitive_features
        Groups, or the name or names of their columns in `X`; by default a column is proposed.
    financial_features
        Columns on which people are compared; by default some are proposed.
    drop
        Columns that are not inputs and need no check.
    positive_label
        Value of the label that is the favorable outcome.
    source
        A description of the table, for the page and the configuration.

    Returns
    -------
    CheckResult

    Examples
    --------
    >>> table = pd.DataFrame({"Unnamed: 0": range(60), "income": [10.5, 20, 30, -999, 41] * 12,
    ...                       "sex": ["f", "m"] * 30, "approved": [0, 1, 1] * 20})
    >>> checked = check(table)
    >>> [(problem.column, problem.kind) for problem in checked.problems]
    [('Unnamed: 0', 'saved index'), ('income', 'sentinel'), ('approved', 'label is a decision')]
    >>> checked.label.columns, checked.group.columns, checked.financial.columns
    (('approved',), ('sex',), ('income',))
    """
    table = as_table(X)
    dropped = tuple(check_columns(drop, list(table.columns), "`drop`")) if drop else ()
    table = table.drop(columns=list(dropped))
    checks = check_table(table)
    label, label_columns = _role(table, y, propose_label(checks), "y", "--label")
    group, group_columns = _role(table, sensitive_features, propose_group(checks), "sensitive_features", "--group")
    parts = {*_names(label), *_names(group)}
    favorable, positive, question, n_without_label = pd.Series(np.nan, index=table.index), None, "", 0
    if label is not None and label_columns is not None:
        labels = label_columns.iloc[:, 0]
        texts = labels.astype(object).map(category_text, na_action="ignore").str.strip()
        if positive_label is not None and positive_label not in texts.unique():
            raise InvalidInputError(
                f"`positive_label` {positive_label!r} is not a value of the label {label.columns[0]!r}."
            )
        value, why = favorable_value(labels, label.columns[0]) if positive_label is None else (positive_label, _GIVEN)
        positive, question = ((value, why), "") if value is not None else (None, why)
        # Which of two values is favorable does not matter to how well a column predicts it.
        is_favorable = texts == (texts.dropna().min() if value is None else value)
        favorable, n_without_label = is_favorable.astype(float).mask(labels.isna()), int(labels.isna().sum())
    groups = None if group_columns is None else _joined(group_columns)
    told_apart = None if groups is None else groups.map(plain_name, na_action="ignore")
    checks, strength = with_associations(checks, table, favorable, told_apart, parts)
    if financial_features is None:
        financial = propose_financial(checks, [*parts], strength)
    else:
        names = check_columns(financial_features, list(table.columns), "`financial_features`")
        financial = Proposal(tuple(names), _GIVEN)
    by_column = {} if group_columns is None else {str(name): group_columns[name] for name in group_columns.columns}
    numbers = {column.name for column in checks if needs_bands(column)}
    return CheckResult(
        checks=checks,
        groups=None if groups is None else check_groups(groups, " & ".join(_names(group)) or "sensitive_features"),
        label=label,
        group=group,
        financial=financial,
        clusters=propose_clusters(checks),
        positive_label=positive,
        question=question,
        closing=closing_rows(table),
        dropped=dropped,
        n_without_label=n_without_label,
        spellings={spelling: name for values in by_column.values() for spelling, name in _spellings(values)},
        bands={name: propose_bands(values, name) for name, values in by_column.items() if name in numbers},
        source=source,
    )


def _spellings(values: pd.Series[Any]) -> Iterator[tuple[str, str]]:
    """Names of groups that differ only in typing from a more frequent one, and that one, without outer spaces."""
    counts = check_groups(values.astype(object).map(category_text, na_action="ignore"), "")
    for alike in counts.alike:
        name = max(alike, key=lambda name: counts.counts[name]).strip()
        yield from ((spelling, name) for spelling in alike if spelling != name)


def _role(
    table: pd.DataFrame, given: Any, proposed: Proposal | None, what: str, option: str
) -> tuple[Proposal | None, pd.DataFrame | None]:
    """The columns of the label or the group, and their values."""
    if given is None:
        return proposed, None if proposed is None else table[list(proposed.columns)]
    is_list_of_names = isinstance(given, (list, tuple)) and set(map(str, given)) <= set(table.columns)
    if isinstance(given, str) or (what != "y" and is_list_of_names):
        columns = table[check_columns(given, list(table.columns), f"`{what}` ({option})")]
    else:
        columns = as_columns(given, len(table), what)
    return Proposal(tuple(map(str, columns.columns)), _GIVEN), columns


def _joined(columns: pd.DataFrame) -> pd.Series[str]:
    """The values of several columns as one text, missing if one of them is missing."""
    texts = [columns[name].astype(object).map(category_text, na_action="ignore") for name in columns.columns]
    return reduce(lambda joined, part: joined + " & " + part, texts)


def _names(proposal: Proposal | None) -> tuple[str, ...]:
    return () if proposal is None else proposal.columns


def _reason(proposal: Proposal | None) -> str:
    if proposal is None or proposal.reason == _GIVEN:
        return ""
    others = f". Alternatives: {', '.join(proposal.others)}" if proposal.others else ""
    return f"{proposal.reason}{others}"
