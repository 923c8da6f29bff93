"""The page of an audit, its card for notebooks, and the tables that belong to no section.

They are made from the summary, the sections, and a sample of pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evenhand.report import frame
from evenhand.report.explorer import explorer_data
from evenhand.report.formatting import capital, count, decimal, estimate_interval, is_number, percent, shortened
from evenhand.report.frame import KeyMetric, environment, render
from evenhand.report.section import NO_EVIDENCE, Section, Summary, lacking
from evenhand.report.tables import FLAGGED, NOTE, Column, Record, Table, estimate, flag, text

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
_LIMITS = {
    "No verdict on law or fairness": (
        "The metrics compare explanations. Which differences are acceptable is for people who know the product, "
        "the applicants and the law."
    ),
    "The financial features are a judgment": (
        "They decide who is comparable. With different ones, the audit answers a different question."
    ),
    "Matches are near, not equal": (
        "Other inputs differ, and that alone makes CEC scores large: compare them with placebo pairs, never "
        "with 0 or with a different dataset."
    ),
}
_LIMITS_OF_EVIDENCE = {
    "The excess has assumptions": (
        "It removes the effect of unequal finances by linear regression. It does not remove other inputs that "
        "differ between groups and that the model uses alike for everyone: such a proxy is what it is meant to "
        "notice."
    ),
    "Multiple comparisons": (
        "Splits, features and sensitivity are many estimates, and some differ by chance. The splits have "
        "adjusted p-values."
    ),
}
_LIMITS_WITHOUT_EVIDENCE = {
    "No noise floor": (
        "Without evidence, nothing here shows whether pairs across groups differ more than any two people do."
    ),
}
_LIMITS_OF_ALL = {
    "Attributions are one way to explain": (
        "They describe how the model's output changes between a baseline and a person: not the world, and not a cause."
    ),
    "Labels and groups are taken as true": (
        "Repayment is known only for people who got a loan, and errors in the group blur every difference."
    ),
    "Thresholds are conventions": (
        "The consistency threshold, 0.8 for approval ratios and 0.1 for balance were not chosen for this case."
    ),
}
_LIMITS_WITHOUT_MODEL = {
    "Scores are taken as given": (
        "Whether people were really judged by these scores, and whether the attributions belong to the same model and "
        "one background, cannot be checked here; it was only checked that attributions sum to the scores."
    ),
}
_LIMITS_OF_SCORES = {
    "No verdict on law or fairness": (
        "The metrics compare what people got. Which differences are acceptable is for people who know the product, the "
        "applicants and the law."
    ),
}
_OF_EXPLANATIONS = (
    "Matches are near, not equal",
    "The excess has assumptions",
    "Multiple comparisons",
    "Attributions are one way to explain",
)
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
    sample: Mapping[str, Any],
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
        Pairs for the explorer: `AuditResult.pair_sample().to_dict()`.
    title
        Title of the page; by default it names the model.
    pairs_file
        Name of a file next to the page that has every pair.
    review
        The applicants to look at first.
    """
    heading = title or f"Audit of {shortened(summary['data']['model'])}"
    parts = audit_sections(summary, sections, sample["how"], pairs_file, review)
    pairs = explorer_data(summary, sample) if _has_explorer(summary) else None
    return render("audit report", heading, parts, pairs=pairs)


def audit_sections(
    summary: Summary,
    sections: Sequence[Section],
    sampled: str = "",
    pairs_file: str | None = None,
    review: Table | None = None,
) -> list[frame.Section]:
    """The sections of the page; `sampled` describes how the pairs of the explorer were drawn."""
    hidden = (*_PRINTS, *(_ATTRIBUTION_FACTS if lacking(summary, "excess") else ()))
    data = {name: value for name, value in summary["data"].items() if name not in hidden}
    hashes = {"audited people": summary["data"].get("fingerprint"), **summary["data"].get("hashes", {})}
    details = [
        ("Settings", _facts(summary["settings"], _SETTING_WORDS)),
        ("Hashes (SHA-256)", [(capital(name), value) for name, value in hashes.items() if value]),
        ("Versions", [(str(name), str(value)) for name, value in summary["versions"].items()]),
    ]
    audited = frame.Section(
        "audited",
        "What was audited",
        facts=(*named_parts(summary), *_facts(data, _DATA_WORDS)),
        details=[(name, rows) for name, rows in details if rows],
        details_title="Settings, hashes and versions",
    )
    found = summary["verdict"]
    finding = frame.Finding(
        found["headline"],
        [*found["sentences"], ("Not shown", found["limits"])],
        key_metrics(summary),
        summary["warnings"],
    )
    tables = [
        *([finding_table(summary)] if summary["findings"] else []),
        *([scope_table(summary)] if "scope" in summary else []),
    ]
    beside = f" Every pair is in {pairs_file}, next to this page." if pairs_file else ""
    prose = (
        f"Two applicants side by side: their data, their decisions, and what counted. {sampled}{beside} Use it to "
        "inspect single cases, not as a list of findings."
    )
    explorer = frame.Section("explorer", "Pair explorer", (prose,), is_explorer=True)
    reviewed = [review] if review is not None and review.records else []
    words = glossary(sections)
    words.pop("empty cell")  # the page has none
    return [
        audited,
        frame.Section("verdict", "Verdict", _reading(summary), finding=finding, tables=tables),
        *(part for section in sections if (part := section.on_page(summary)) is not None),
        *([frame.Section("review", "Applicants to review", (_REVIEW,), tables=reviewed)] if reviewed else []),
        *([explorer] if _has_explorer(summary) else []),
        frame.Section("limitations", "Limitations", points=tuple(_limits(summary).items())),
        frame.Section("glossary", "Glossary", words=tuple(words.items())),
    ]


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


def _has_explorer(summary: Summary) -> bool:
    """Whether pairs can be shown with decisions, scores and reasons."""
    return not lacking(summary, "regimes", "probability", "labels")


def _limits(summary: Summary) -> dict[str, str]:
    """What the metrics do not show, by name."""
    more = _LIMITS_WITHOUT_EVIDENCE if summary["evidence"] is None else _LIMITS_OF_EVIDENCE
    found = {**_LIMITS, **more, **_LIMITS_OF_ALL}
    if "scope" in summary and "model" not in summary["scope"]["given"]:
        found |= _LIMITS_WITHOUT_MODEL
    if not lacking(summary, "excess"):
        return found
    return {name: words for name, words in {**found, **_LIMITS_OF_SCORES}.items() if name not in _OF_EXPLANATIONS}


def _reading(summary: Summary) -> tuple[str, ...]:
    """Which sign is bad, and a paragraph on the terms of the verdict, of which there are none without evidence."""
    direction = (summary["verdict"]["direction"],) if summary["verdict"].get("direction") else ()
    if not summary["findings"]:
        return direction
    alike = (
        "similar financial features" if lacking(summary, "labels") else "similar financial features and the same label"
    )
    is_log_odds = any(found["unit"] == "log-odds" for found in summary["findings"])
    explained = "" if lacking(summary, "excess") else _READING_EXPLANATIONS
    reading = f"Comparable people have {alike}. {_READING_LOG_ODDS if is_log_odds else ''}{_READING_TESTS}{explained}"
    return (*direction, reading)


def audit_card(summary: Summary) -> str:
    """A small card for notebooks: sentences and key metrics, without scripts."""
    card = environment().get_template("card.html.jinja")
    return card.render(verdict=summary["verdict"], metrics=key_metrics(summary), warnings=summary["warnings"])


def _facts(found: Mapping[str, Any], words: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Names and values in a known order; a new name is shown unchanged."""
    known = [name for name in words if name in found]
    return tuple(
        (words.get(name, name.replace("_", " ").capitalize()), _fact(name, found[name]))
        for name in (*known, *(n for n in found if n not in words))
    )


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


def key_metrics(data: Mapping[str, Any]) -> tuple[KeyMetric, ...]:
    """The six key metrics."""
    cec, found = data["cec"], data["evidence"]
    flips = KeyMetric(
        "Prediction flip rate", percent(data["outcome"]["pfr"]), "matched people with different decisions"
    )
    regime_b = KeyMetric("Regime B", percent(data["regimes"]["B"]), "same decision, different reasoning")
    gap = data["outcome"]["gaps"]["eo_gap"]
    outcome = (
        KeyMetric("AUC", decimal(data["outcome"]["auc"]), "of all audited people"),
        KeyMetric("Equalized odds gap", decimal(gap["value"]), estimate_interval(gap) or gap["note"]),
        KeyMetric("Coverage", percent(data["matching"]["coverage"]), "people with a match in a different group"),
    )
    if found is None:
        mean = KeyMetric("Mean CEC score", decimal(cec["mean"]), "not compared with placebo pairs")
        return (mean, regime_b, flips, *outcome)
    over = found["regime_b"]["value"]
    if is_number(over):
        beside = f"{decimal(abs(100 * over), 1)} points {'above' if over >= 0 else 'below'} placebo pairs"
        regime_b = KeyMetric(regime_b.name, regime_b.value, beside)
    asked = tuple(_finding_metric(one) for one in data["findings"] if one["answer"] != "not possible")
    more = ((regime_b, "regimes"), (flips, "decisions"))
    return (*asked, *(metric for metric, need in more if not lacking(data, need)))


def _finding_metric(found: Mapping[str, Any]) -> KeyMetric:
    """A card for one of the four questions."""
    names = {"score_gap": "Score gap", "inputs": "Largest input", "weighing": "Weighing", "excess": "Excess"}
    low, high = found["ci"]
    beside = estimate_interval({"value": found["estimate"], "low": low, "high": high}) or "not estimated"
    if found["key"] == "inputs":
        named = next((row["feature"] for row in found["features"] if row["estimate"] == found["estimate"]), "")
        beside = f"{shortened(named, 24)}, {beside}" if named else beside
    return KeyMetric(names[found["key"]], decimal(found["estimate"]), beside)


def _flat(found: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and values; those of a nested mapping next to the rest."""
    for key, value in found.items():
        yield from _flat(value) if isinstance(value, Mapping) else [(key, value)]


def audited_table(summary: Summary) -> Table:
    """What was audited, all options that change a metric, and versions."""
    records: list[Record] = [{"part": "schema", "item": "schema", "value": summary["schema"]}]
    for part in ("data", "settings", "versions"):
        for item, value in summary[part].items():
            if isinstance(value, Mapping):
                records += [
                    {"part": part, "item": f"{item}: {key}", "value": ", ".join(v) if isinstance(v, list) else v}
                    for key, v in _flat(value)
                ]
            elif isinstance(value, (list, tuple)):
                records += [{"part": part, "item": item, "value": v} for v in value]
            else:
                records.append({"part": part, "item": item, "value": value})
    columns = (
        text("part"),
        text("item"),
        Column("value", "any"),
        Column("note", "long text", lambda r: "none" if r["value"] is None else ""),
    )
    return Table("Audited", "What was audited, all settings that change a metric, and versions.", columns, records)


def verdict_table(summary: Summary, left_out: str = "") -> Table:
    """The findings in words, and reservations; `left_out` says which pairs are not shown."""
    found = summary["verdict"]
    sentences = [("verdict", text) for text in (found["headline"], found.get("direction")) if text]
    sentences += [("verdict", f"{name}: {sentence}") for name, sentence in found["sentences"]]
    sentences += [("verdict", found["limits"])]
    sentences += [("warning", warning) for warning in summary["warnings"]]
    sentences += [("left out", left_out)] if left_out else []
    columns = (
        flag(lambda r: "warning" if r["kind"] != "verdict" else ""),
        text("kind"),
        Column("sentence", "long text"),
    )
    records = [{"kind": kind, "sentence": sentence} for kind, sentence in sentences]
    caption = "The findings in words, and reservations."
    return Table("Verdict and warnings", caption, columns, records, [FLAGGED])


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
