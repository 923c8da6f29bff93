"""The front page of an audit as Markdown, with its main tables, for model cards and pull requests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from evenhand.report.formatting import capital, count
from evenhand.report.page import about_audit, front_of, title_of
from evenhand.report.section import Section, Summary, sheets_of
from evenhand.report.tables import INTERVAL, Table, name_in_code, shown

_TABLES = ("score_gap", "approvals")
_MOST_ROWS = 30
_ACTIVE = re.compile(r"[\\`*_{}\[\]<>()#|~!&$@]|(?<=:)/|(?<=www)\.")


def plain(text: str) -> str:
    r"""A text in which nothing is Markdown, HTML, a link or a mention.

    Examples
    --------
    >>> plain("PAY_0 <b> @all [x](https://a.b)")
    'PAY\\_0 \\<b\\> &#64;all \\[x\\]\\(https:\\//a.b\\)'
    """
    return _ACTIVE.sub(lambda found: "&#64;" if found[0] == "@" else f"\\{found[0]}", " ".join(text.split()))


def audit_markdown(summary: Summary, sections: Sequence[Section]) -> str:
    """The front page, the score gap by input and the approvals, as GitHub-flavored Markdown.

    Parameters
    ----------
    summary
        Output of `AuditResult.to_dict`.
    sections
        The sections of the audit, in order.
    """
    return "\n".join(_lines(summary, sections)).rstrip() + "\n"


def _lines(summary: Summary, sections: Sequence[Section]) -> Iterator[str]:
    front = front_of(summary)
    yield from (f"# {plain(title_of(summary))}", "", plain(" · ".join(about_audit(summary))), "")
    yield from (f"**{plain(front.headline)}.**", "")
    rows = [(card.name, capital(card.answer), "; ".join(card.texts)) for card in front.metrics]
    yield from _grid(("question", "answer", "size, with 95% interval"), rows)
    for name, sentence in front.sentences:
        yield from (f"**{plain(name)}.** {plain(sentence)}", "")
    if front.warnings:
        yield from ("**Read with care:**", "", *(f"- {plain(warning)}" for warning in front.warnings), "")
    yield from (f"**What this does not show.** {plain(front.limits)}", "")
    for table in sheets_of(summary, sections):
        if (table.key or name_in_code(table.name)) in _TABLES and table.records:
            yield from _table(table)


def _table(table: Table) -> Iterator[str]:
    found = shown(table)
    n = len(found.rows)
    first = f" The first {_MOST_ROWS} of {count(n)} rows." if n > _MOST_ROWS else ""
    yield from (f"## {plain(table.name)}", "", f"{plain(table.caption.rstrip('.'))}.{first}", "")
    heads = [
        head if head != INTERVAL else f"{found.columns[place - 1]}, {INTERVAL}"
        for place, head in enumerate(found.columns)
    ]
    yield from _grid(heads, found.rows[:_MOST_ROWS], found.is_number)


def _grid(heads: Sequence[str], rows: Sequence[Sequence[str]], is_number: Sequence[bool] = ()) -> Iterator[str]:
    yield f"| {' | '.join(map(plain, heads))} |"
    yield f"| {' | '.join('--:' if is_one else '---' for is_one in is_number or [False] * len(heads))} |"
    yield from (f"| {' | '.join(map(plain, row))} |" for row in rows)
    yield ""
