"""The page of an audit, its card for notebooks, and the tables that belong to no section.

They are made from the summary, the sections, and a sample of pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from evenhand.report import frame
from evenhand.report.explorer import explorer_data
from evenhand.report.formatting import (
    capital,
    count,
    decimal,
    estimate_interval,
    fewer_or_more,
    interval,
    is_number,
    people_of,
    percent,
    shortened,
)
from evenhand.report.frame import KeyMetric, environment, render
from evenhand.report.section import NO_EVIDENCE, Section, Summary, lacking
from evenhand.report.tables import NOTE, Column, Record, Table, estimate, flag, text

GLOSSARY: dict[str, str] = {
    "group": "The value of the protected attribute, or the combination of several.",
    "financial features": "The features on which people are matched: they decide which applicants are comparable.",
    "lower, upper": "Ends of the 95% confidence interval.",
    "p-value": "How often chance alone would give a result at least as large if there were nothing to find. It is "
    "one-sided for an excess.",
    "adjusted p-value": "A p-value that allows for the number of tests (Holm).",
    "empty cell": "A metric that could not be estimated; the note next to it says why.",
}
"""Terms that belong to no section."""

_DATA_WORDS = {
    "model": "Model",
    "n_people": "People audited",
    "n_reference": "People to match in",
    "n_features": "Features",
    "groups": "Groups",
    "group_columns": "Columns that reveal the group",
    "attribution_method": "Attribution",
    "completeness_gap": "Completeness gap of attributions",
    "attribution_error": "Standard error of attributions",
    "integration_error": "Integration error, at most",
    "n_without_baseline": "Left out, without a baseline",
    "exclusions": "Rows left out before the audit",
}
_SETTING_WORDS = {
    "financial_features": "Financial features",
    "favorable": "Favorable end of the score",
    "decision_threshold": "Decision threshold",
    "consistency_threshold": "Consistency threshold",
    "max_distance": "Largest distance of a match",
    "ties": "Order of equally near people",
    "reference_group": "Reference group",
    "limits": "Limits on findings",
    "attribution": "Attribution method requested",
    "method": "Integration rule",
    "n_steps": "Integration steps",
    "n_permutations": "Permutations",
    "random_state": "Seed",
    "n_reasons": "Largest number of reasons per person",
    "reason_map": "Reason map",
}
_ATTRIBUTION_FACTS = ("attribution_method", "completeness_gap", "attribution_error", "integration_error")
_PRINTS = ("fingerprint", "column_prints", "hashes", "columns", "files")  # shown separately, or of no use to readers
# By name: what must hold, and the words.
_LIMITS = {
    "No verdict on law or fairness": (
        "",
        "The metrics compare {compared}. Which differences are acceptable is for people who know the product, the "
        "applicants and the law.",
    ),
    "The financial features are a judgment": (
        "",
        "They decide who is comparable. With different ones, the audit answers a different question.",
    ),
    "Matches are near, not equal": (
        "explanations",
        "Other inputs differ, and that alone makes CEC scores large: compare them with placebo pairs, never with 0 or "
        "with a different dataset.",
    ),
    "The excess has assumptions": (
        "evidence on explanations",
        "It removes the effect of unequal finances by linear regression. It does not remove other inputs that differ "
        "between groups and that the model uses alike for everyone: such a proxy is what it is meant to notice.",
    ),
    "Multiple comparisons": (
        "evidence on explanations",
        "Splits, features and sensitivity are many estimates, and some differ by chance. The splits have adjusted "
        "p-values.",
    ),
    "No noise floor": (
        "no evidence",
        "Without evidence, nothing here shows whether pairs across groups differ more than any two people do.",
    ),
    "Attributions are one way to explain": (
        "explanations",
        "They describe how the model's output changes between a baseline and a person: not the world, and not a cause.",
    ),
    "Labels and groups are taken as true": (
        "",
        "Repayment is known only for people who got a loan, and errors in the group blur every difference.",
    ),
    "Thresholds are conventions": (
        "",
        "The consistency threshold, 0.8 for approval ratios and 0.1 for balance were not chosen for this case.",
    ),
    "Scores are taken as given": (
        "no model",
        "Whether people were really judged by these scores, and whether the attributions belong to the same model and "
        "one background, cannot be checked here; it was only checked that attributions sum to the scores.",
    ),
}
_READING_LOG_ODDS = (
    "Scores are compared in log-odds, the logarithm of the odds of a favorable outcome: near even odds, 0.1 log-odds "
    "are 2.5 percentage points of probability. "
)
_READING_TESTS = (
    "A 95% interval is the range of values that agree with the data. A p-value says how often chance alone would give "
    "such a result if there were nothing to find; an adjusted p-value allows for the number of questions."
)
_READING_EXPLANATIONS = (
    " An explanation says how much each input moved a score. The CEC score is the distance between the explanations of "
    "two people: 0 is the same reasoning, 1 the opposite."
)


def audit_page(
    summary: Summary,
    sections: Sequence[Section],
    sample: Mapping[str, Any] | None = None,
    *,
    title: str | None = None,
    pairs_file: str | None = None,
    review: Table | None = None,
) -> str:
    """The page of an audit as text; see `evenhand.report.frame.render` for what keeps it safe.

    Parameters
    ----------
    summary
        Output of `AuditResult.to_dict`.
    sections
        The sections of the audit, in order.
    sample
        Pairs for the explorer: `AuditResult.pair_sample().to_dict()`; None if the people are not known.
    title
        Title of the page; by default that of the audit.
    pairs_file
        Name of a file next to the page that has every pair.
    review
        The applicants to look at first.
    """
    if lacking(summary, "regimes", "probability", "labels"):
        sample = None  # without regimes, there is nothing to explore
    how = None if sample is None else sample["how"]
    parts = audit_sections(summary, sections, how, pairs_file, review)
    pairs = None if sample is None else explorer_data(summary, sample)
    return render("audit report", title or title_of(summary), parts, about=about_audit(summary), pairs=pairs)


@dataclass(frozen=True)
class ShownReport:
    """A page inside a notebook: a frame that holds it, which may run its scripts and nothing else."""

    page: str
    height: int

    def _repr_html_(self) -> str:
        frame = Markup(
            '<iframe srcdoc="{}" sandbox="allow-scripts" width="100%" height="{}" style="border:0"></iframe>'
        )
        return str(frame.format(self.page, self.height))


def title_of(summary: Summary) -> str:
    """The title of report and memo."""
    named = summary.get("report", {})
    return str(named.get("title") or f"Audit of {shortened(named.get('model_name') or summary['data']['model'])}")


def about_audit(summary: Summary) -> list[str]:
    """Which model, whose, on whom: in a few words each."""
    data, named = summary["data"], summary.get("report", {})
    kind, name = shortened(data["model"]), shortened(named.get("model_name", ""))
    version = f", version {shortened(named['model_version'])}" if "model_version" in named else ""
    groups = ", ".join(f"{shortened(group, 40)} {count(n)}" for group, n in data["groups"].items())
    return [
        f"{name} ({kind}){version}" if name else f"{kind}{version}",
        *(f"{key}: {shortened(named[key])}" for key in ("owner", "period") if key in named),
        f"{count(data['n_people'])} people: {groups}",
    ]


def audit_sections(
    summary: Summary,
    sections: Sequence[Section],
    sampled: str | None = None,
    pairs_file: str | None = None,
    review: Table | None = None,
) -> list[frame.Section]:
    """The sections of the page; `sampled` describes how the pairs of the explorer were drawn, if there are any."""
    tests = [
        *([finding_table(summary)] if summary["findings"] else []),
        *([scope_table(summary)] if "scope" in summary else []),
    ]
    reading = frame.Section("tests", "How to read this, and the tests behind it", _reading(summary), tables=tests)
    folded = [reading] if reading.paragraphs or tests else []
    verdict = frame.Section("verdict", "Verdict", finding=front_of(summary), folded=folded)
    parts = {section.key: part for section in sections if (part := section.on_page(summary)) is not None}
    for section in sections:
        if section.under in parts and section.key in parts:
            above = parts[section.under]
            parts[section.under] = replace(above, folded=(*above.folded, parts.pop(section.key)))
    beside = f" Every pair is in {pairs_file}, next to this page." if pairs_file else ""
    prose = (
        f"Two applicants side by side: their data, their decisions, and what counted. {sampled}{beside} Use it to "
        "inspect single cases, not as a list of findings."
    )
    explorer = frame.Section("explorer", "Pair explorer", (prose,), is_explorer=True)
    reviewed = [] if review is None or not review.records else [_first_rows(review)]
    return [
        verdict,
        *parts.values(),
        *([frame.Section("review", "Applicants to review", (_REVIEW,), tables=reviewed)] if reviewed else []),
        *([explorer] if sampled is not None else []),
        _about(summary, sections, has_people=review is not None),
    ]


def _first_rows(review: Table) -> Table:
    n = len(review.records)
    if n <= _MOST_REVIEWED:
        return review
    caption = f"{review.caption} The first {_MOST_REVIEWED} of {n}; the workbook has all."
    return replace(review, records=review.records[:_MOST_REVIEWED], caption=caption)


_WITHOUT_PEOPLE = (
    "This was made from the numbers of the audit, which hold no people: applicants to review and single pairs are in "
    "the report that the audit wrote itself."
)


def _about(summary: Summary, sections: Sequence[Section], *, has_people: bool) -> frame.Section:
    """What was audited and how, what it does not show, and the meaning of terms; folded."""
    hidden = (*_PRINTS, *(_ATTRIBUTION_FACTS if lacking(summary, "excess") else ()))
    data = {name: value for name, value in summary["data"].items() if name not in hidden}
    hashes = {"audited people": summary["data"].get("fingerprint"), **summary["data"].get("hashes", {})}
    words = glossary(sections)
    words.pop("empty cell")  # the page has none
    folded = [
        frame.Section("audited", "What was audited", facts=(*named_parts(summary), *_facts(data, _DATA_WORDS))),
        frame.Section("settings", "Settings", facts=_facts(summary["settings"], _SETTING_WORDS)),
        frame.Section(
            "hashes", "Hashes (SHA-256)", facts=[(capital(k), value) for k, value in hashes.items() if value]
        ),
        frame.Section("versions", "Versions", facts=[(str(k), str(value)) for k, value in summary["versions"].items()]),
        frame.Section("limitations", "Limitations", points=tuple(_limits(summary).items())),
        frame.Section("glossary", "Glossary", words=tuple(words.items())),
    ]
    return frame.Section("about", "About this audit", () if has_people else (_WITHOUT_PEOPLE,), folded=folded)


_MOST_REVIEWED = 8
_REVIEW = (
    "Where a reviewer should look first: what explains that one of two comparable applicants was declined and the "
    "other approved? Single pairs are examples, not evidence."
)


def named_parts(summary: Summary) -> list[tuple[str, str]]:
    """The files and the columns of the audit with their roles, and the financial features."""
    data, settings = summary["data"], summary["settings"]
    columns = {role: ", ".join(names) for role, names in data.get("columns", {}).items()}
    named = {**data.get("files", {}), **columns, "financial features": ", ".join(settings["financial_features"])}
    cut_off = settings["decision_threshold"]
    if cut_off is not None and not lacking(summary, "probability"):
        named["cutoff"] = _fact("", cut_off)
    return [(capital(role), str(names)) for role, names in named.items()]


def glossary(sections: Sequence[Section]) -> dict[str, str]:
    """The terms and their meaning, in alphabetical order."""
    words = GLOSSARY | {word: meaning for section in sections for word, meaning in section.words.items()}
    return dict(sorted(words.items(), key=lambda word: word[0].lower()))


def _limits(summary: Summary) -> dict[str, str]:
    """What the metrics do not show, by name."""
    has_explanations, has_evidence = not lacking(summary, "excess"), summary["evidence"] is not None
    holds = {
        "": True,
        "explanations": has_explanations,
        "evidence on explanations": has_evidence and has_explanations,
        "no evidence": not has_evidence,
        "no model": "scope" in summary and "model" not in summary["scope"]["given"],
    }
    compared = "explanations" if has_explanations else "what people got"
    return {name: words.format(compared=compared) for name, (when, words) in _LIMITS.items() if holds[when]}


def _reading(summary: Summary) -> tuple[str, ...]:
    """A paragraph on the terms of the verdict, of which there are none without evidence."""
    if not summary["findings"]:
        return ()
    label = "" if lacking(summary, "labels") else " and the same label"
    is_log_odds = any(found["unit"] == "log-odds" for found in summary["findings"])
    explained = "" if lacking(summary, "excess") else _READING_EXPLANATIONS
    alike = f"Comparable people have similar financial features{label}. "
    return (f"{alike}{_READING_LOG_ODDS if is_log_odds else ''}{_READING_TESTS}{explained}",)


def audit_card(summary: Summary) -> str:
    """A small card for notebooks: the front page, without scripts."""
    return environment().get_template("card.html.jinja").render(front=front_of(summary))


def _facts(found: Mapping[str, Any], words: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Names and values in a known order; a new name is shown unchanged."""
    shown = words | {name: name.replace("_", " ").capitalize() for name in found if name not in words}
    return tuple((word, _fact(name, found[name])) for name, word in shown.items() if name in found)


def _fact(name: str, value: Any) -> str:
    if name == "n_reference" and value is None:
        return "the audited people themselves"
    if name == "max_distance" and value is None:
        return "no limit"
    if name == "attribution_error":
        return "none: nothing is sampled" if value is None else f"{percent(value, 1)} of their size"
    if name == "integration_error":
        return "none: no path is split into segments" if value is None else f"{percent(value, 2)} of their size"
    if name == "completeness_gap":
        return f"{percent(value, 2)} of the change in the model's output"
    if isinstance(value, Mapping):
        shown = ", ".join(f"{key}: {_fact('', item)}" for key, item in value.items() if item != 0)
        return shown or "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, int) and name != "random_state":
        return count(value)
    return f"{value:g}" if is_number(value) else str(value)


_QUESTIONS = ("score_gap", "inputs", "weighing", "excess")


def front_of(summary: Summary) -> frame.Finding:
    """The answer of an audit on one page: headline, the four questions, approvals, reservations, what is not shown."""
    found = summary["verdict"]
    findings = sorted(summary["findings"], key=lambda one: _QUESTIONS.index(one["key"]))
    sentences = [] if findings else list(found["sentences"])
    if approvals := _approval_words(summary):
        sentences.append(("Approval ratio", approvals))
    if found.get("direction"):
        sentences.append(("Signs", found["direction"]))
    cards = [_question_card(one) for one in findings] or _plain_cards(summary)
    return frame.Finding(found["headline"], sentences, cards, summary["warnings"], found["limits"])


def _plain_cards(summary: Summary) -> list[KeyMetric]:
    """The key metrics of an audit without evidence."""
    gap = summary["outcome"]["gaps"]["eo_gap"]
    return [
        KeyMetric("Mean CEC score", decimal(summary["cec"]["mean"]), "not compared with placebo pairs"),
        KeyMetric("AUC", decimal(summary["outcome"]["auc"]), "of all audited people"),
        KeyMetric("Equalized odds gap", decimal(gap["value"]), estimate_interval(gap) or gap["note"]),
        KeyMetric("Coverage", percent(summary["matching"]["coverage"]), "people with a match in a different group"),
    ]


def _question_card(one: Mapping[str, Any]) -> KeyMetric:
    """One of the four questions: its answer, the size in the plainest unit, and what could have been found."""
    sizes = [size for size in one.get("sizes", ()) if is_number(size["value"])]
    if not sizes or one["answer"] in ("open", "not possible"):
        return KeyMetric(one["question"], "", one["sentence"], one["answer"])
    first, *rest = sizes
    group, reference = (people_of(shortened(one[side], 40)) for side in ("group", "reference"))
    sides, ends = f"{one['group']} minus {one['reference']}", _ends(first)
    if first["unit"] == "approvals per 1,000":
        value, ends = fewer_or_more(*(first[end] for end in ("value", "low", "high")))
        than = "as" if value == "as many" else "than"
        beside = f"of 1,000 {group} approved {than} of comparable {reference} ({ends})"
    elif one["key"] == "inputs":
        value = shortened(one["feature"], 40) if one["answer"] == "yes" else "None stands out"
        named = "" if one["answer"] == "yes" else f"clearest is {shortened(one['feature'], 40)}, "
        beside = f"{named}by {'about ' if rest else ''}{_size_words(first)}, {sides}"
    elif first["low"] == first["high"]:
        value, beside = "None", one["sentence"]
    elif one["key"] == "score_gap":
        value, beside = decimal(first["value"]), f"{first['unit']}, {sides} ({ends})"
    else:
        apart = "explanations" if one["key"] == "excess" else "weights"
        value = decimal(first["value"])
        beside = f"more distance between {apart} across groups than within, on a scale of 0 to 1 ({ends})"
    lines = [_size_words(size) for size in rest]
    found = [_with_unit(size["detectable"], size) for size in sizes[:2] if size["detectable"]]
    if found and is_number(first["detectable"]):
        lines.append(f"Could have been found (in 80% of audits): {' or '.join(found)}")
    if one["within_limit"]:
        within = {"yes": "Below", "no": "Above", "open": "Not clearly below"}[one["within_limit"]]
        lines.append(f"{within} {one['limit']:g}, the limit you set")
    return KeyMetric(one["question"], value, beside, one["answer"], lines)


def _places(size: Mapping[str, Any]) -> int:
    return {"approvals per 1,000": 0, "points of probability": 1}.get(size["unit"], 3)


def _ends(size: Mapping[str, Any]) -> str:
    return interval(size["low"], size["high"], _places(size))


def _size_words(size: Mapping[str, Any]) -> str:
    return f"{_with_unit(size['value'], size)} ({_ends(size)})"


def _with_unit(value: float, size: Mapping[str, Any]) -> str:
    unit = "" if size["unit"] == "CEC score" else f" {size['unit']}"
    return f"{decimal(value, _places(size))}{unit}"


def _approval_words(summary: Summary) -> str:
    """The lowest approval ratio to the reference group; empty if there are no decisions."""
    table = summary["outcome"]["approvals"]
    key = "approval_ratio_group_over_reference"
    rows = [row for row in table["groups"] if not row["is_reference"] and is_number(row[key]["value"])]
    if lacking(summary, "decisions") or not rows:
        return ""
    lowest = min(rows, key=lambda row: row[key]["value"])
    reference = next(row for row in table["groups"] if row["is_reference"])
    group, other = (people_of(shortened(row["group"], 40)) for row in (lowest, reference))
    limit = table["four_fifths_threshold"]
    return (
        f"{percent(lowest['approval_rate']['value'])} of all {group} are approved, and "
        f"{percent(reference['approval_rate']['value'])} of all {other}, whatever their finances: a ratio of "
        f"{decimal(lowest[key]['value'], 2)} ({estimate_interval(lowest[key], 2)})"
        + (f", the lowest of {len(rows)}" if len(rows) > 1 else "")
        + (f". A ratio below {limit:g} is flagged by a rule of thumb." if lowest[key]["value"] < limit else ".")
    )


def _flat(found: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and values; those of a nested mapping next to the rest."""
    for key, value in found.items():
        yield from _flat(value) if isinstance(value, Mapping) else [(key, value)]


def audited_table(summary: Summary) -> Table:
    """What was audited, all options that change a metric, and versions."""
    items = [("schema", "schema", summary["schema"])]
    for part in ("report", "data", "settings", "versions"):
        for item, value in summary.get(part, {}).items():
            if isinstance(value, Mapping):
                nested = ((key, ", ".join(v) if isinstance(v, list) else v) for key, v in _flat(value))
                items += [(part, f"{item}: {key}", v) for key, v in nested]
            else:
                items += [(part, item, v) for v in (value if isinstance(value, (list, tuple)) else [value])]
    records = [dict(zip(("part", "item", "value"), values, strict=True)) for values in items]
    columns = (
        text("part"),
        text("item"),
        Column("value", "any"),
        Column("note", "long text", lambda r: "none" if r["value"] is None else ""),
    )
    return Table("Audited", "What was audited, all settings that change a metric, and versions.", columns, records)


def verdict_table(summary: Summary, left_out: str = "") -> Table:
    """The findings in words, and reservations; `left_out` says which pairs are not shown."""
    front = front_of(summary)
    sentences = [("verdict", front.headline)]
    for card in front.metrics:
        asked = f"{card.name} {capital(card.answer)}".strip()
        sentences.append(("answer", f"{asked}: {'; '.join(card.texts)}"))
    sentences += [("verdict", f"{name}: {sentence}") for name, sentence in front.sentences]
    sentences += [("verdict", f"{name}: {sentence}") for name, sentence in summary["verdict"]["sentences"]]
    sentences += [("not shown", front.limits)]
    sentences += [("warning", warning) for warning in front.warnings]
    sentences += [("left out", left_out)] if left_out else []
    columns = (
        flag(lambda r: "warning" if r["kind"] in ("warning", "left out") else ""),
        text("kind"),
        Column("sentence", "long text"),
    )
    records = [{"kind": kind, "sentence": sentence} for kind, sentence in sentences]
    caption = "The findings in words, and reservations."
    return Table("Verdict and warnings", caption, columns, records)


_NAMES = {
    "inputs": "Inputs",
    "weighing": "Weighing",
    "excess": "Excess",
    "regimes": "Regimes",
    "decisions": "Decisions",
    "errors": "AUC and error rates",
}


def scope_table(summary: Summary) -> Table:
    """What could not be found, and why; empty if everything could."""
    scope = summary.get("scope") or {"given": (), "not_possible": {}}
    records = [{"what": _NAMES[key], "why": why} for key, why in scope["not_possible"].items()]
    columns = (text("not possible", "what"), Column("why", "long text", "why"))
    caption = f"What cannot be found with the given inputs: {', '.join(scope['given'])}"
    return Table("Not possible", caption, columns, records)


_SIDES = {"score_gap": "two-sided", "inputs": "two-sided", "weighing": "one-sided", "excess": "one-sided"}


def finding_table(summary: Summary) -> Table:
    """The four questions, strongest finding first."""
    limits = (
        Column("limit", "number", lambda r: "" if r["limit"] is None else r["limit"]),
        Column("within the limit", "text", lambda r: r["within_limit"] or ""),
    )
    columns = (
        text("question"),
        text("answer"),
        estimate("estimate", lambda r: {"value": r["estimate"], "low": r["ci"][0], "high": r["ci"][1]}),
        text("unit"),
        Column("p-value", "p", "p_value"),
        Column("p-value, adjusted", "p", "p_adjusted"),
        Column("test", "text", lambda r: _SIDES[r["key"]]),
        *(limits if summary["settings"]["limits"] else ()),
        Column("sentence", "long text", where="workbook"),
    )
    asked = [one for one in summary["findings"] if one["answer"] != "not possible"]
    is_whole = len(asked) == len(summary["findings"])
    what, tested = (
        ("Four questions about the model", "the four") if is_whole else ("What could be asked", "those asked")
    )
    caption = f"{what}, with 95% intervals; p-values are adjusted over {tested} (Holm)."
    return Table("Findings", caption, columns, asked, if_empty=NO_EVIDENCE)


def summary_records(summary: Summary, sections: Sequence[Section]) -> list[Record]:
    """The rows of `AuditResult.summary`: metric, value, ends of its interval, note."""
    return [
        {
            **(value if isinstance(value, Mapping) else {"value": value, "low": None, "high": None}),
            "metric": metric,
            "note": note,
        }
        for section in sections
        for metric, value, note, *needs in section.summary_rows(summary)
        if not lacking(summary, *needs)
    ]


def summary_table(summary: Summary, sections: Sequence[Section]) -> Table:
    """The metrics of the audit, as in `AuditResult.summary`."""
    columns = (text("metric"), estimate("value", lambda r: r), NOTE)
    return Table("Summary", "The metrics of the audit with 95% intervals.", columns, summary_records(summary, sections))
