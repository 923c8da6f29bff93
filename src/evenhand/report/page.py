"""The page of an audit, and its card for notebooks, from the summary and a sample of pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evenhand.report import audit_tables, outcome_tables
from evenhand.report.audit_tables import WEIGHTING_PROSE, is_shown, lacking, scope_table, weighting_tables
from evenhand.report.explorer import explorer_data
from evenhand.report.formatting import count, decimal, estimate_interval, is_number, percent, shortened
from evenhand.report.frame import Finding, KeyMetric, Section, environment, render
from evenhand.report.registry import panels_of
from evenhand.report.tables import Table

GLOSSARY: dict[str, str] = {
    "group": "The value of the protected attribute, or the combination of several.",
    "financial features": "The features on which people are matched: they decide which applicants are comparable.",
    "match, pair": "A person and the nearest person of a different group with the same label, by financial features.",
    "attribution": "How far a feature moved a person's score away from the score of the average person with their "
    "label and group.",
    "CEC score": "How differently the model reasons about the two people of a pair: 0 identical reasoning, 1 opposed.",
    "input gap": "The part of the CEC score that comes from different inputs under the same weights.",
    "reasoning gap": "The part of the CEC score that comes from different weights on the same inputs.",
    "regime": "A: same decision, same reasoning. B: same decision, different reasoning. C: different decision, same "
    "reasoning. D: both differ.",
    "placebo pair": "A person and someone of the same group and label who is as far away as the match. It shows what "
    "the CEC score is when the group plays no role.",
    "excess": "The CEC score of pairs minus that of placebo pairs, adjusted for unequal finances: the evidence.",
    "score gap": "Difference in score between comparable people of two groups at equal finances and label, group minus "
    "reference group.",
    "weighing": "Whether the same inputs count alike for both groups: the reasoning gap of pairs minus that of placebo "
    "pairs.",
    "log-odds": "The logarithm of the odds of the favorable outcome; near even odds, 0.1 is 2.5 points of probability.",
    "lower, upper": "Ends of the 95% confidence interval.",
    "p-value": "How often chance alone would give a result at least as large if there were nothing to find. It is "
    "one-sided for an excess.",
    "adjusted p-value": "A p-value that allows for the number of tests (Holm).",
    "q-value": "Expected share of false alarms in a list of people that ends with this one.",
    "people, effective": "Number of equally used people who would be as informative as those compared.",
    "positive rate, approval rate": "Share of people whose decision is favorable.",
    "true positive rate": "Share of favorable decisions among people with label 1.",
    "false positive rate": "Share of favorable decisions among people with label 0.",
    "false discovery rate": "Share of label 0 among people with a favorable decision.",
    "statistical parity gap": "Largest difference in approval rates between groups.",
    "equalized odds gap": "Largest difference between groups in the true or the false positive rate.",
    "approval ratio": "The group's approval rate divided by that of the reference group (adverse impact ratio). A "
    "ratio below 0.8 is flagged: a rule of thumb from US employment guidance, not a rule for lending.",
    "odds ratio": "Odds of approval in the group divided by those in the reference group; 1 means equal odds.",
    "shortfall of approvals": "Additional approvals with which the group's rate would reach that of the reference "
    "group.",
    "AUC": "How often the score ranks a person with label 1 above one with label 0: 0.5 is chance, 1 is always.",
    "F1": "Harmonic mean of two shares: of label 1 among those approved, and of those approved among label 1.",
    "Brier score": "Mean squared difference between score and label; 0 is perfect.",
    "calibration error": "Mean distance between score and observed rate over bins of the score. Chance alone makes it "
    "positive, by the amount in the next column.",
    "intercept": "Log-odds to add to everyone's score so that predicted and observed rates agree; below 0, the score "
    "predicts too much.",
    "slope": "Factor of the log-odds that fits the labels best; below 1, scores are too extreme.",
    "held equal": "What a regression controls for.",
    "average marginal effect": "How much the share of favorable decisions would change if everyone were in the group "
    "rather than in the reference group, all else being equal.",
    "KS distance": "Largest difference between two cumulative score distributions: 0 identical, 1 disjoint.",
    "standardized difference": "A difference of means in units of the standard deviation.",
    "coverage": "How many people have a match in a different group.",
    "overlap": "How many people have a match and, at the same distance, a placebo (common support).",
    "principal reasons": (
        "What lowers the score of a declined person the most, measured from the mean of approved people; features "
        "that share a reason are added up."
    ),
    "rank-biased overlap": "How alike two ordered lists of reasons are, where the first reasons count most: 0 nothing "
    "in common, 1 identical.",
    "empty cell": "A metric that could not be estimated; the note next to it says why.",
}


_MORE_WORDS = {
    "baseline": "The mean of the people with the person's label and group; both people of a pair are explained from it."
    "",
    "consistency threshold": "The CEC score above which reasoning counts as different.",
    "prediction flip rate": "The share of pairs whose two people get different decisions: regimes C and D.",
}
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
_PRINTS = ("fingerprint", "column_prints", "hashes")  # shown separately, or of no use to readers

_PROSE = {
    "score-gap": (
        "Each person is given the finances of a comparable person of the other group, and the two scores are compared. "
        "What remains is a difference between groups at equal finances. It is the sum of the parts that run through "
        "each input. An input that predicts the group can carry the gap even if the model does not see the group."
    ),
    "regimes": (
        "Each person is paired with the nearest person of a different group who has the same label. Two questions are "
        "asked about a pair: do both get the same decision, and does the model weigh their features alike? The "
        "answers define four regimes. Regime B is the one that outcome metrics cannot see."
    ),
    "excess": (
        "Two people are never quite alike, so explanations differ even if the group plays no role. A "
        "placebo pair is a person and someone of the same group and label who is as far away as the match. The CEC "
        "score of pairs across groups minus that of placebo pairs is the excess: the evidence of this audit."
    ),
    "drivers": (
        "Which features the excess comes from, which ones the model weighs differently for comparable people, and "
        "which ones predict the group. A feature that predicts the group can stand in for it; whether it does is a "
        "question for someone who knows the product."
    ),
    "matching": (
        "Every metric of pairs is about matched people. If matches are far or few, or if the groups still differ after "
        "matching, the metrics mean less."
    ),
    "outcome": (
        "The model's decisions by group, without matching: the tables of a fair-lending file. Differences in "
        "outcomes can have many reasons. They say nothing about reasoning, and reasoning says nothing about them."
    ),
    "regressions": (
        "The same outcomes by regression, as in a fair-lending file: on the group alone, with the financial "
        "features held equal, and with all inputs held equal except those that reveal the group. What remains with all "
        "inputs held equal does not run through them one by one; if decisions follow from the inputs by a linear "
        "score, nothing remains to be estimated. Matched pairs hold finances and label equal."
    ),
    "reasons-given": (
        "The reason codes that declined applicants would be given: up to {n_reasons} principal reasons each. "
        "They are {source}. Shares by group do not hold finances equal, but the comparison of comparable people with "
        "placebo pairs does. Whether a notice is right or complete is not judged here."
    ),
    "sensitivity": (
        "The same question with different settings. A verdict that changes with an arbitrary setting is not reliable."
    ),
}

_WITHOUT_ATTRIBUTIONS = {
    "score-gap": (
        "Each person is compared with the nearest people of a different group. The remaining difference in finances "
        "between them is held equal by a regression; the rest is a difference between groups at equal finances."
    ),
    "drivers": (
        "Which features predict the group. A feature that does can stand in for it; whether it does is a question for "
        "someone who knows the product."
    ),
}

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


def audit_page(
    summary: Mapping[str, Any], sample: Mapping[str, Any], *, title: str | None = None, pairs_file: str | None = None
) -> str:
    """The page of an audit as text; see `evenhand.report.frame.render` for what keeps it safe.

    Parameters
    ----------
    summary
        Output of `AuditResult.to_dict`.
    sample
        Pairs for the explorer: `AuditResult.pair_sample().to_dict()`.
    title
        Title of the page; by default it names the model.
    pairs_file
        Name of a file next to the page that has every pair.
    """
    heading = title or f"Audit of {shortened(summary['data']['model'])}"
    sections = audit_sections(summary, sample["how"], pairs_file)
    pairs = explorer_data(summary, sample) if _has_explorer(summary) else None
    return render("audit report", heading, sections, pairs=pairs)


def audit_sections(summary: Mapping[str, Any], sampled: str, pairs_file: str | None = None) -> list[Section]:
    """The sections of the page; `sampled` describes how the pairs of the explorer were drawn."""
    hidden = (*_PRINTS, *(_ATTRIBUTION_FACTS if lacking(summary, "excess") else ()))
    data = {name: value for name, value in summary["data"].items() if name not in hidden}
    details = [
        ("Settings", _facts(summary["settings"], _SETTING_WORDS)),
        ("Hashes (SHA-256)", _hashes(summary["data"])),
        ("Versions", tuple((str(name), str(value)) for name, value in summary["versions"].items())),
    ]
    beside = f" Every pair is in {pairs_file}, next to this page." if pairs_file else ""
    explorer = (
        f"Two applicants side by side: their data, their decisions, and what counted. {sampled}{beside} Use it to "
        "inspect single cases, not as a list of findings."
    )
    outcome = (
        outcome_tables.approval_table,
        outcome_tables.score_table,
        outcome_tables.error_table,
        outcome_tables.utility_table,
        outcome_tables.gap_table,
        outcome_tables.calibration_table,
    )
    segments = [outcome_tables.segment_table(summary, column) for column in summary["outcome"]["segments"]]
    outcomes = [table for table in (*(table(summary) for table in outcome), *segments) if is_shown(summary, table)]
    sections = [
        Section(
            "audited",
            "What was audited",
            facts=_facts(data, _DATA_WORDS),
            details=[(name, rows) for name, rows in details if rows],
            details_title="Settings, hashes and versions",
        ),
        *_weighting(summary),
        Section("verdict", "Verdict", _reading(summary), finding=_finding(summary), tables=_finding_tables(summary)),
        *_drawn_groups(summary),
        _charts(summary, "score-gap", "Score gap at equal finances"),
        _charts(summary, "regimes", "Decisions and reasoning"),
        _charts(summary, "excess", "Excess over placebo pairs"),
        _charts(summary, "drivers", "Feature drivers"),
        _charts(
            summary,
            "matching",
            "Match quality",
            facts=_matching(summary),
            tables=[audit_tables.coverage_table(summary)],
        ),
        _charts(summary, "outcome", "Outcomes", tables=outcomes),
        *_reasons(summary),
        *_regressions(summary),
        _charts(summary, "sensitivity", "Sensitivity"),
        Section("explorer", "Pair explorer", (explorer, *_of_one_draw(summary)), is_explorer=True),
        Section("limitations", "Limitations", points=tuple(_limits(summary).items())),
        Section("glossary", "Glossary", words=_glossary()),
    ]
    return [section for section in sections if _is_possible(section, summary)]


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

_OF_CHARTS = ("regimes", "excess", "drivers", "sensitivity")  # left out if none of them is possible


def _is_possible(section: Section, summary: Mapping[str, Any]) -> bool:
    if section.is_explorer:
        return _has_explorer(summary)
    return section.id not in _OF_CHARTS or bool(section.panels)


def _has_explorer(summary: Mapping[str, Any]) -> bool:
    """Whether pairs can be shown with decisions, scores and reasons."""
    return not lacking(summary, "regimes", "probability", "labels")


def _limits(summary: Mapping[str, Any]) -> dict[str, str]:
    """What the metrics do not show, by name."""
    more = _LIMITS_WITHOUT_EVIDENCE if summary["evidence"] is None else _LIMITS_OF_EVIDENCE
    found = {**_LIMITS, **more, **_LIMITS_OF_ALL}
    if "scope" in summary and "model" not in summary["scope"]["given"]:
        found |= _LIMITS_WITHOUT_MODEL
    if not lacking(summary, "excess"):
        return found
    return {name: words for name, words in {**found, **_LIMITS_OF_SCORES}.items() if name not in _OF_EXPLANATIONS}


def _weighting(summary: Mapping[str, Any]) -> list[Section]:
    """The section on sampling weights, if people have them."""
    tables = weighting_tables(summary)
    return [Section("weights", "Sampling weights", (WEIGHTING_PROSE,), tables=tables)] if tables else []


def _reasons(summary: Mapping[str, Any]) -> list[Section]:
    found = summary["reasons"]
    if found is None:
        return []
    prose = _PROSE["reasons-given"].format(n_reasons=found["n_reasons"], source=found["source"])
    tables = [audit_tables.agreement_table(summary), audit_tables.declined_table(summary)]
    panels = panels_of(summary, "reasons-given")
    return [Section("reasons-given", "Reason codes", (prose,), panels=panels, tables=tables)]


def _charts(summary: Mapping[str, Any], section: str, title: str, **more: Any) -> Section:
    prose = (_WITHOUT_ATTRIBUTIONS if lacking(summary, "inputs") else {}).get(section, _PROSE[section])
    more_prose = () if section in ("score-gap", "regressions") else _of_one_draw(summary)
    return Section(section, title, (prose, *more_prose), panels=panels_of(summary, section), **more)


def _of_one_draw(summary: Mapping[str, Any]) -> tuple[str, ...]:
    """A note that not all of a section is pooled, if groups are drawn."""
    return (audit_tables.OF_ONE_DRAW,) if "drawn_groups" in summary else ()


def _drawn_groups(summary: Mapping[str, Any]) -> tuple[Section, ...]:
    """A section on groups known as probabilities, if they are."""
    tables = audit_tables.drawn_tables(summary)
    if not tables:
        return ()
    prose = (audit_tables.DRAWN_PROSE, *summary["drawn_groups"]["sentences"])
    return (Section("drawn-groups", "Groups known as probabilities", prose, tables=tables),)


def _regressions(summary: Mapping[str, Any]) -> tuple[Section, ...]:
    """The section on regressions, if there are any."""
    if "regressions" not in summary:
        return ()
    columns = dict.fromkeys(row["column"] for row in summary["regressions"]["rows"])  # "" for everyone first
    tables = [outcome_tables.regression_table(summary, column) for column in columns]
    notes = outcome_tables.regression_notes(summary)
    return (_charts(summary, "regressions", "Regressions", tables=tables, notes=notes),)


def _reading(summary: Mapping[str, Any]) -> tuple[str, ...]:
    """A paragraph that explains the terms of the verdict; none without evidence, whose verdict has no such terms."""
    if not summary["findings"]:
        return ()
    alike = (
        "similar financial features" if lacking(summary, "labels") else "similar financial features and the same label"
    )
    is_log_odds = any(found["unit"] == "log-odds" for found in summary["findings"])
    explained = "" if lacking(summary, "excess") else _READING_EXPLANATIONS
    return (f"Comparable people have {alike}. {_READING_LOG_ODDS if is_log_odds else ''}{_READING_TESTS}{explained}",)


def _finding(summary: Mapping[str, Any]) -> Finding:
    found = summary["verdict"]
    sentences = [*found["sentences"], ("Not shown", found["limits"])]
    return Finding(found["headline"], sentences, key_metrics(summary), summary["warnings"])


def _finding_tables(summary: Mapping[str, Any]) -> tuple[Table, ...]:
    found = (audit_tables.finding_table(summary),) if summary["findings"] else ()
    return (*found, scope_table(summary)) if "scope" in summary else found


def audit_card(summary: Mapping[str, Any]) -> str:
    """A small card for notebooks: sentences and key metrics, without scripts."""
    card = environment().get_template("card.html.jinja")
    return card.render(verdict=summary["verdict"], metrics=key_metrics(summary), warnings=summary["warnings"])


def _glossary() -> tuple[tuple[str, str], ...]:
    """The terms in alphabetical order; the page has no empty cells."""
    words = {**GLOSSARY, **_MORE_WORDS}
    words.pop("empty cell", None)
    return tuple(sorted(words.items(), key=lambda word: word[0].lower()))


def _hashes(data: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """SHA-256 of what was audited, by name."""
    named = {"audited people": data.get("fingerprint"), **data.get("hashes", {})}
    return tuple((f"{name[:1].upper()}{name[1:]}", value) for name, value in named.items() if value)


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


def _matching(data: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    found, reuse = data["matching"], data["matching"]["reuse"]
    rows = [
        (
            "Coverage",
            f"{percent(found['coverage'])}: {count(found['n_matched'])} of {count(found['n_pairs'])}, counting a "
            "person once for each other group",
        ),
        ("Exact financial twins", percent(found["twin_share"])),
        (
            "Reuse of matches",
            f"{count(reuse['n_distinct'])} people serve as matches, one of them {count(reuse['max'])} times; their "
            f"effective number is {count(reuse['effective_n'])}",
        ),
    ]
    rows += [("Without a match", f"{count(n)}: {why}") for why, n in found["unmatched"].items() if n]
    if data["evidence"] is not None:
        rows.append(("With a placebo pair", percent(data["evidence"]["common_support"])))
        rows += [
            ("Without a placebo pair", f"{count(n)}: {why}")
            for why, n in data["evidence"]["without_support"].items()
            if n
        ]
    return tuple(rows)
