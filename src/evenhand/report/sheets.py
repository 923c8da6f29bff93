"""What the sheets of the workbook hold: plain columns and rows, made from an audit's result."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pandas as pd

from evenhand.metrics.regimes import REGIMES
from evenhand.report.glossary import GLOSSARY

if TYPE_CHECKING:
    from evenhand.auditing.result import AuditResult

__all__ = ["Column", "Highlight", "Sheet", "audit_sheets"]

Kind: TypeAlias = Literal["text", "long text", "whole", "number", "share", "p", "any"]
Tone: TypeAlias = Literal["notice", "strong", "evidence"]
Rule: TypeAlias = Literal["equals", "at most", "below", "filled"]
Record: TypeAlias = Mapping[str, Any]

SIGNIFICANT = 0.05
_BALANCED = 0.1  # a standardized mean difference below this is commonly read as balanced
_ROWS_AT_ONCE = 8192
_NO_EVIDENCE = "Not there: the audit was made with evidence=False."


@dataclass(frozen=True)
class Column:
    """A column of a sheet.

    Attributes
    ----------
    kind
        How its numbers are shown; "any" shows each value by its own type.
    """

    heading: str
    kind: Kind = "number"


@dataclass(frozen=True)
class Highlight:
    """Cells of one column that are colored; what the color says is also readable in the column "flag"."""

    heading: str
    rule: Rule
    value: float | str = ""
    tone: Tone = "notice"


@dataclass(frozen=True, eq=False)
class Sheet:
    """A table with a heading row.

    Attributes
    ----------
    about
        One sentence for the glossary.
    rows
        Values in the order of `columns`; NaN and None are empty cells.
    """

    name: str
    about: str
    columns: tuple[Column, ...]
    rows: Iterable[Sequence[Any]]
    highlights: tuple[Highlight, ...] = ()


def audit_sheets(result: AuditResult, max_pairs: int, n_cases: int = 50) -> list[Sheet]:
    """The sheets of an audit, in order.

    Parameters
    ----------
    result
        The audit.
    max_pairs
        Most rows of the sheet of pairs; the strongest are kept.
    n_cases
        Number of people shown feature by feature.
    """
    data = result.to_dict()
    sheets = [
        _summary(result),
        _audited(data),
        _verdict(data, len(result.pairs), max_pairs),
        _regimes(result.pairs, data),
        _excess(data),
        _splits(data),
        _features(data),
        _weights(data),
        _proxies(data),
        _matching(data),
        _balance(data),
        _groups(data),
        _gaps(data),
        _approvals(data),
        _scores(data),
        _error_rates(data),
        _cutoffs(data),
        _segments(data),
        _cases(result, n_cases),
        _pairs(result.pairs, max_pairs),
    ]
    return [*sheets, _glossary(sheets)]


# --- tables from records ---

Field: TypeAlias = tuple[str, Kind, "str | Callable[[Record], Any]"]


def _table(
    name: str,
    about: str,
    fields: Sequence[Field],
    records: Iterable[Record],
    highlights: Sequence[Highlight] = (),
    if_empty: str = "",
) -> Sheet:
    """A sheet of records; `if_empty` stands in the first column when there is none."""
    rows = [tuple(_value(record, get) for _, _, get in fields) for record in records]
    if not rows and if_empty:
        rows = [(if_empty, *(None for _ in fields[1:]))]
    columns = tuple(Column(heading, kind) for heading, kind, _ in fields)
    return Sheet(name, about, columns, rows, tuple(highlights))


def _value(record: Record, get: str | Callable[[Record], Any]) -> Any:  # noqa: ANN401 - a cell holds any plain value
    if callable(get):
        return get(record)
    found: Any = record
    for key in get.split("/"):
        found = found[key]
    return found


def _with_interval(heading: str, path: str, kind: Kind = "number") -> list[Field]:
    return [
        (heading, kind, f"{path}/value"),
        (f"{heading}, lower", kind, f"{path}/low"),
        (f"{heading}, upper", kind, f"{path}/high"),
    ]


def _estimate_fields(path: str = "estimate/") -> list[Field]:
    return [
        ("excess", "number", f"{path}value"),
        ("lower", "number", f"{path}ci_low"),
        ("upper", "number", f"{path}ci_high"),
        ("standard error", "number", f"{path}standard_error"),
        ("p-value, one-sided", "p", f"{path}p_value"),
        ("people", "whole", f"{path}n"),
        ("people, effective", "number", f"{path}n_effective"),
        ("degrees of freedom", "number", f"{path}df"),
    ]


def _records(table: pd.DataFrame) -> list[Record]:
    return [dict(zip(map(str, table.columns), row, strict=True)) for row in _plain_rows(table)]


def _joined(*notes: str) -> str:
    return "; ".join(dict.fromkeys(note for note in notes if note))


def _is_at_most(value: float | None, limit: float) -> bool:
    return value is not None and value <= limit


def _significant(value: float | None, word: str) -> str:
    return f"{word} at most {SIGNIFICANT:g}" if _is_at_most(value, SIGNIFICANT) else ""


_FLAGGED = Highlight("flag", "filled")


# --- what was audited, and the verdict ---


def _summary(result: AuditResult) -> Sheet:
    fields: list[Field] = [
        ("figure", "text", "metric"),
        ("value", "number", "value"),
        ("lower", "number", "ci_low"),
        ("upper", "number", "ci_high"),
        ("note", "long text", "note"),
    ]
    return _table("Summary", "The figures of the audit with 95 % intervals.", fields, _records(result.summary()))


def _audited(data: Record) -> Sheet:
    records: list[Record] = [{"part": "schema", "item": "schema", "value": data["schema"]}]
    for part in ("data", "settings", "versions"):
        for item, value in data[part].items():
            if isinstance(value, Mapping):
                records += [{"part": part, "item": f"{item}: {key}", "value": v} for key, v in value.items()]
            elif isinstance(value, (list, tuple)):
                records += [{"part": part, "item": item, "value": v} for v in value]
            else:
                records.append({"part": part, "item": item, "value": value})
    fields: list[Field] = [
        ("part", "text", "part"),
        ("item", "text", "item"),
        ("value", "any", "value"),
        ("note", "long text", lambda r: "none" if r["value"] is None else ""),
    ]
    return _table("Audited", "What was audited, every choice that moves a figure, and versions.", fields, records)


def _verdict(data: Record, n_pairs: int, max_pairs: int) -> Sheet:
    evidence = data["evidence"]
    sentences = [("verdict", s) for s in evidence["sentences"]] if evidence else [("verdict", _NO_EVIDENCE)]
    if evidence:
        hangs_on = evidence["sensitivity"]["hangs_on"]
        sentences += [("hangs on", f"The verdict would be another with {choice}.") for choice in hangs_on]
    sentences += [("warning", warning) for warning in data["warnings"]]
    if n_pairs > max_pairs:
        sentences.append(("left out", _left_out(n_pairs, max_pairs)))
    fields: list[Field] = [
        ("flag", "text", lambda r: "warning" if r["kind"] != "verdict" else ""),
        ("kind", "text", "kind"),
        ("sentence", "long text", "sentence"),
    ]
    records = [{"kind": kind, "sentence": sentence} for kind, sentence in sentences]
    about = "The evidence in words, what it hangs on, and reservations."
    return _table("Verdict and warnings", about, fields, records, [_FLAGGED])


# --- reasoning ---

_REGIME_WORDS = {
    "A": "same decision, same reasoning",
    "B": "same decision, different reasoning",
    "C": "different decision, same reasoning",
    "D": "different decision, different reasoning",
}


def _regimes(pairs: pd.DataFrame, data: Record) -> Sheet:
    scored = pairs[pairs["regime"].notna()]
    parts = [("everyone", scored), *((str(name), part) for name, part in scored.groupby("group", sort=True))]
    records = [
        {
            "group": group,
            "regime": regime,
            "pairs": int((part["regime"] == regime).sum()),
            "share": float((part["regime"] == regime).mean()) if len(part) else math.nan,
        }
        for group, part in parts
        for regime in REGIMES
    ]
    threshold = data["settings"]["consistency_threshold"]

    def meaning(record: Record) -> str:
        side = "above" if record["regime"] in "BD" else "up to"
        return f"{_REGIME_WORDS[record['regime']]} (CEC {side} {threshold:g})"

    fields: list[Field] = [
        ("person's group", "text", "group"),
        ("regime", "text", "regime"),
        ("pairs", "whole", "pairs"),
        ("share", "share", "share"),
        ("flag", "text", lambda r: "different reasoning" if r["regime"] in "BD" else ""),
        ("meaning", "long text", meaning),
    ]
    highlights = [Highlight("regime", "equals", "B"), Highlight("regime", "equals", "D", "strong")]
    return _table("Regimes", "Shares of pairs by decision and reasoning.", fields, records, highlights)


_EXCESS_WORDS = {
    "cec": "CEC score",
    "input_gap": "input gap",
    "reasoning_gap": "reasoning gap",
    "regime_b": "share in Regime B",
    "reason_overlap": "shared principal reasons",
}
_VARIANTS = {
    "max_distance": ("CEC score", "comparisons within this distance"),
    "n_matches": ("CEC score", "nearest comparisons of each person"),
    "consistency_threshold": ("share in Regime B", "at this consistency threshold"),
}


def _excess(data: Record) -> Sheet:
    evidence, records = data["evidence"], []
    if evidence:
        records = [
            {"figure": words, "variant": "as audited", "at": None, **evidence[name]}
            for name, words in _EXCESS_WORDS.items()
        ]
        records += [
            {"figure": figure, "variant": variant, "at": row[name], **row}
            for name, (figure, variant) in _VARIANTS.items()
            for row in evidence["sensitivity"][name]
        ]
    fields: list[Field] = [
        ("figure", "text", "figure"),
        ("variant", "text", "variant"),
        ("at", "number", "at"),
        *_estimate_fields(""),
        ("flag", "text", lambda r: _significant(r["p_value"], "p-value")),
        ("note", "long text", "note"),
    ]
    about = "Excess over placebo pairs with intervals, as audited and with other choices."
    return _table("Excess", about, fields, records, [_FLAGGED], _NO_EVIDENCE)


def _splits(data: Record) -> Sheet:
    fields: list[Field] = [
        ("column", "text", "split"),
        ("value", "text", "value"),
        *_estimate_fields(),
        ("p-value, adjusted", "p", "p_adjusted"),
        ("flag", "text", lambda r: _significant(r["p_adjusted"], "adjusted p-value")),
        ("note", "long text", "estimate/note"),
    ]
    records = data["evidence"]["splits"] if data["evidence"] else []
    about = "The excess within each value of a column; p-values adjusted (Holm) over the values of a column."
    return _table("Splits", about, fields, records, [_FLAGGED], _NO_EVIDENCE)


def _features(data: Record) -> Sheet:
    evidence = {e["feature"]: e["estimate"] for e in data["evidence"]["features"]} if data["evidence"] else {}
    records = [{**row, "p_value": evidence.get(row["feature"], {}).get("p_value")} for row in data["features"]]
    means = [key for key in (records[0] if records else {}) if str(key).startswith("mean attribution: ")]

    def note(record: Record) -> str:
        reason = evidence[record["feature"]]["note"] if evidence else _NO_EVIDENCE
        return _joined(reason, "no score to share" if _is_missing(record["share"]) else "")

    fields: list[Field] = [
        ("feature", "text", "feature"),
        ("contribution to CEC", "number", "contribution"),
        ("share of CEC", "share", "share"),
        ("contribution to excess", "number", lambda r: r.get("excess")),
        ("lower", "number", lambda r: r.get("excess_ci_low")),
        ("upper", "number", lambda r: r.get("excess_ci_high")),
        ("p-value, one-sided", "p", "p_value"),
        *((str(key), "number", _key(key)) for key in means),
        ("flag", "text", lambda r: _significant(r["p_value"], "p-value, not adjusted,")),
        ("note", "long text", note),
    ]
    about = "Each feature's part of the CEC score and of the excess, and its mean attribution in each group."
    return _table("Features", about, fields, records, [_FLAGGED])


def _weights(data: Record) -> Sheet:
    (_, kind, path), *rest = _estimate_fields()
    fields: list[Field] = [
        ("feature", "text", "feature"),
        ("group", "text", "group"),
        ("other group", "text", "other_group"),
        ("weight, group minus other", kind, path),
        *rest,
        ("note", "long text", "estimate/note"),
    ]
    records = data["evidence"]["weights"] if data["evidence"] else []
    about = "How differently a feature is weighed in comparable people of two groups, over placebo pairs."
    missing = "No feature has a weight: the model takes all as categories." if data["evidence"] else _NO_EVIDENCE
    return _table("Weights", about, fields, records, if_empty=missing)


def _proxies(data: Record) -> Sheet:
    screen = data["proxies"]
    records = [screen["all_features"], *screen["features"]] if screen else []
    groups = list(records[0]["auc_by_group"]) if records else []
    fields: list[Field] = [
        ("feature", "text", "feature"),
        ("kind", "text", "kind"),
        ("AUC for the group", "number", "auc"),
        ("lower", "number", "low"),
        ("upper", "number", "high"),
        *((f"AUC: {group}", "number", _nested("auc_by_group", group)) for group in groups),
        ("distinct values", "whole", "n_values"),
        ("people without a value", "whole", "n_missing"),
        ("note", "long text", lambda r: _joined(r["note"], screen["note"])),
    ]
    about = "How well each feature, and all together, tell the group: 0.5 not at all, 1 entirely."
    missing = "Not there: the audit was made with evidence=False, or a group is too small to hold people out of."
    return _table("Proxies", about, fields, records, if_empty=missing)


def _key(key: str) -> Callable[[Record], Any]:
    # Group names may hold the separator of paths.
    return lambda record: record[key]


def _nested(outer: str, inner: str) -> Callable[[Record], Any]:
    return lambda record: record[outer].get(inner)


# --- matching ---


def _matching(data: Record) -> Sheet:
    found = data["matching"]
    single = ("n_persons", "n_pairs", "n_matched", "coverage", "twin_share", "worst_balance")
    records: list[Record] = [{"figure": _words(name), "value": found[name]} for name in single]
    records += [
        {
            "figure": "coverage",
            "group": row["group"],
            "other": row["other_group"],
            "value": row["coverage"],
            "note": f"{row['n_matched']:,} of {row['n_pairs']:,} have a match",
        }
        for row in found["coverage_by_group"]
    ]
    records += [{"figure": "unmatched", "value": n, "note": reason} for reason, n in found["unmatched"].items()]
    records += [
        {"figure": f"distance, quantile {q}", "value": d, "note": "in standard deviations"}
        for q, d in found["distance_quantiles"].items()
    ]
    records += [{"figure": f"reuse of matches: {_words(name)}", "value": v} for name, v in found["reuse"].items()]
    records += [{"figure": "constant feature", "note": name} for name in found["constant_features"]]
    if data["evidence"]:
        evidence = data["evidence"]
        records += [
            {"figure": "comparisons with a placebo", "value": evidence["n_triples"]},
            {"figure": "common support", "value": evidence["common_support"], "note": "people who have a comparison"},
        ]
        records += [
            {"figure": "without a comparison", "value": n, "note": reason}
            for reason, n in evidence["without_support"].items()
        ]
    fields: list[Field] = [
        ("figure", "text", "figure"),
        ("group", "text", lambda r: r.get("group")),
        ("other group", "text", lambda r: r.get("other")),
        ("value", "any", lambda r: r.get("value")),
        ("note", "long text", lambda r: r.get("note", "")),
    ]
    return _table("Matching", "Who was matched, how closely, and how often a match serves.", fields, records)


def _balance(data: Record) -> Sheet:
    fields: list[Field] = [
        ("feature", "text", "feature"),
        ("group", "text", "group"),
        ("other group", "text", "other_group"),
        ("before matching", "number", "before"),
        ("after matching", "number", "after"),
        ("flag", "text", lambda r: "" if _is_balanced(r["after"]) else f"beyond {_BALANCED:g} after matching"),
        ("note", "long text", lambda r: "not estimable" if _is_missing(r["after"]) else ""),
    ]
    about = "Standardized mean differences of the financial features before and after matching."
    return _table("Balance", about, fields, data["matching"]["balance"], [_FLAGGED])


def _is_balanced(value: float | None) -> bool:
    return value is None or _is_missing(value) or abs(value) <= _BALANCED


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def _words(name: str) -> str:
    return name.removeprefix("n_").replace("_", " ") if not name.startswith("n_") else f"number of {name[2:]}"


# --- decisions ---


def _groups(data: Record) -> Sheet:
    fields: list[Field] = [
        ("group", "text", "group"),
        ("people", "whole", "n"),
        ("label 1", "whole", "n_positive_label"),
        ("positive rate", "share", "positive_rate"),
        ("true positive rate", "share", "true_positive_rate"),
        ("false positive rate", "share", "false_positive_rate"),
        ("AUC", "number", "auc"),
        ("CEC score, mean", "number", lambda r: data["cec"]["by_group"].get(r["group"])),
        ("shared reasons, mean", "share", lambda r: data["reasons"]["by_group"].get(r["group"])),
        ("note", "long text", _lacks_a_label),
    ]
    return _table("Groups", "Decisions, errors and reasoning of each group.", fields, data["outcome"]["groups"])


def _lacks_a_label(record: Record) -> str:
    absent = [label for label, n in ((1, "n_positive_label"), (0, "")) if _n_of(record, n) == 0]
    return _joined(*(f"no one with label {label}" for label in absent))


def _n_of(record: Record, key: str) -> int:
    return int(record[key]) if key else int(record["n"]) - int(record["n_positive_label"])


def _gaps(data: Record) -> Sheet:
    fields: list[Field] = [
        ("gap", "text", lambda r: _GAP_WORDS.get(r["name"], r["name"])),
        ("value", "share", "value"),
        ("lower", "share", "low"),
        ("upper", "share", "high"),
        ("rate", "text", "rate"),
        ("lowest in", "text", "group_low"),
        ("highest in", "text", "group_high"),
        ("note", "long text", "note"),
    ]
    about = "The widest spread of a rate over groups."
    return _table("Gaps", about, fields, data["outcome"]["gaps"].values())


_GAP_WORDS = {
    "sp_gap": "statistical parity gap",
    "tpr_gap": "true positive rate gap",
    "fpr_gap": "false positive rate gap",
    "eo_gap": "equalized odds gap",
}


def _approval_fields(prefix: str = "") -> list[Field]:
    difference, ratio = "rate_difference_group_minus_reference_pp", "approval_ratio_group_over_reference"
    return [
        ("group", "text", f"{prefix}group"),
        ("is reference", "any", f"{prefix}is_reference"),
        ("people", "number", f"{prefix}n_people"),
        ("approved", "number", f"{prefix}n_approved"),
        *_with_interval("approval rate", f"{prefix}approval_rate", "share"),
        *_with_interval("difference, percentage points", f"{prefix}{difference}"),
        *_with_interval("approval ratio", f"{prefix}{ratio}"),
        *_with_interval("odds ratio", f"{prefix}odds_ratio_group_over_reference"),
        ("p-value", "p", f"{prefix}p_value"),
        ("p-value, adjusted", "p", f"{prefix}p_value_holm"),
        ("test", "text", f"{prefix}test"),
        ("standard deviations", "number", f"{prefix}n_standard_deviations"),
        ("shortfall of approvals", "number", f"{prefix}shortfall"),
    ]


def _approval_flags(row: Record, table: Record) -> str:
    return _joined(
        f"ratio below {table['four_fifths_threshold']:g}" if row["is_below_practical_threshold"] else "",
        _significant(row["p_value_holm"], "adjusted p-value"),
        "small group" if row["is_small_group"] else "",
    )


def _approvals(data: Record) -> Sheet:
    table = data["outcome"]["approvals"]
    fields: list[Field] = [
        *_approval_fields(),
        ("flag", "text", lambda r: _approval_flags(r, table)),
        ("note", "long text", lambda r: _joined(r["note"], table["note"])),
    ]
    about = f"Approvals of each group beside the reference group, {table['reference']}."
    highlights = [
        Highlight("approval ratio", "below", table["four_fifths_threshold"]),
        Highlight("p-value, adjusted", "at most", SIGNIFICANT, "evidence"),
        _FLAGGED,
    ]
    return _table("Approvals", about, fields, table["groups"], highlights)


def _scores(data: Record) -> Sheet:
    difference = "standardized_mean_difference_group_minus_reference"
    fields: list[Field] = [
        ("group", "text", "group"),
        ("is reference", "any", "is_reference"),
        ("people", "number", "n_people"),
        *_with_interval("mean score", "mean_score"),
        ("standard deviation", "number", "standard_deviation"),
        *_with_interval("standardized difference", difference),
        ("KS distance", "number", "ks_distance"),
        ("KS p-value", "p", "ks_p_value"),
        ("flag", "text", lambda r: "small group" if r["is_small_group"] else ""),
        ("note", "long text", lambda r: _joined(r["note"], r["mean_score"]["note"], r[difference]["note"])),
    ]
    return _table("Scores", "Scores of each group beside the reference.", fields, data["outcome"]["scores"], [_FLAGGED])


_ERROR_RATES: tuple[tuple[str, str, Kind], ...] = (
    ("positive_rate", "positive rate", "share"),
    ("true_positive_rate", "true positive rate", "share"),
    ("false_positive_rate", "false positive rate", "share"),
    ("false_discovery_rate", "false discovery rate", "share"),
    ("auc", "AUC", "number"),
    ("mean_score_minus_observed_rate", "mean score minus observed rate", "number"),
    ("brier_score", "Brier score", "number"),
)


def _error_rates(data: Record) -> Sheet:
    fields: list[Field] = [
        ("group", "text", "group"),
        ("people", "number", "n_people"),
        ("label 1", "number", "n_positive_label"),
        *(field for name, words, kind in _ERROR_RATES for field in _with_interval(words, name, kind)),
        ("flag", "text", lambda r: "small group" if r["is_small_group"] else ""),
        (
            "note",
            "long text",
            lambda r: _joined(*(f"{words}: {r[name]['note']}" for name, words, _ in _ERROR_RATES if r[name]["note"])),
        ),
    ]
    about = "Decisions and errors of each group with intervals."
    return _table("Error rates", about, fields, data["outcome"]["error_rates"], [_FLAGGED])


def _cutoffs(data: Record) -> Sheet:
    records = [
        {**row, "row": group, "flag": _approval_flags(group, row["table"])}
        for row in data["outcome"]["cutoffs"]
        for group in row["table"]["groups"]
    ]
    fields: list[Field] = [
        ("quantile of scores", "share", "quantile"),
        ("cut-off", "number", "cutoff"),
        ("overall approval rate", "share", "overall_approval_rate"),
        *_approval_fields("row/"),
        ("flag", "text", "flag"),
        ("note", "long text", "row/note"),
    ]
    about = "Approvals as they would be with the cut-off at each decile of the score; p-values not adjusted over rows."
    highlights = [
        Highlight("approval ratio", "below", data["outcome"]["approvals"]["four_fifths_threshold"]),
        Highlight("p-value, adjusted", "at most", SIGNIFICANT, "evidence"),
        _FLAGGED,
    ]
    return _table("Cutoffs", about, fields, records, highlights)


def _segments(data: Record) -> Sheet:
    records = [
        {"column": column, "whole": whole, "part": part}
        for column, comparisons in data["outcome"]["segments"].items()
        for whole in comparisons
        for part in whole["segments"]
    ]
    fields: list[Field] = [
        ("column", "text", "column"),
        ("segment", "text", "part/segment"),
        ("group", "text", "whole/group"),
        ("reference", "text", "whole/reference"),
        ("people, group", "whole", "part/n_people_group"),
        ("approved, group", "whole", "part/n_approved_group"),
        ("people, reference", "whole", "part/n_people_reference"),
        ("approved, reference", "whole", "part/n_approved_reference"),
        *_with_interval("approval rate, group", "part/approval_rate_group", "share"),
        *_with_interval("approval rate, reference", "part/approval_rate_reference", "share"),
        *_with_interval("approval ratio", "part/approval_ratio_group_over_reference"),
        *_with_interval("odds ratio", "part/odds_ratio_group_over_reference"),
        *_with_interval("common odds ratio of the column", "whole/common_odds_ratio_group_over_reference"),
        ("p-value of the column, adjusted", "p", "whole/p_value_holm"),
        ("p-value of homogeneity", "p", "whole/homogeneity_p_value"),
        ("is informative", "any", "part/is_informative"),
        ("note", "long text", lambda r: _joined(r["part"]["note"], r["whole"]["note"])),
    ]
    about = "Approvals within the values of each column of `by`, and their common odds ratio."
    highlights = [Highlight("p-value of the column, adjusted", "at most", SIGNIFICANT, "evidence")]
    missing = "Not there: no column was named in `by`."
    return _table("Segments", about, fields, records, highlights, missing)


# --- people ---


def _cases(result: AuditResult, n_cases: int) -> Sheet:
    table = result.cases(n_cases)
    kinds: dict[str, Kind] = dict.fromkeys(("person", "match", "reason", "match_reason"), "whole")
    kinds |= dict.fromkeys(("group", "other_group", "feature"), "text")
    kinds |= dict.fromkeys(("value", "match_value"), "any")
    kinds["q_value"] = "p"
    names = [str(name) for name in table.columns]
    columns = (*(Column(_heading(n), kinds.get(n, "number")) for n in names), Column("flag", "text"))
    flags = [_significant(None if q != q else q, "q-value") for q in table.get("q_value", ())]
    rows = ((*row, flag) for row, flag in zip(_plain_rows(table), flags, strict=True))
    about = (
        "The people with the strongest evidence beside their matches, feature by feature: files to look at, "
        "not findings."
    )
    highlights = (Highlight("q value", "at most", SIGNIFICANT, "evidence"),)
    return Sheet("Cases", about, columns, rows, highlights)


def _pairs(pairs: pd.DataFrame, max_pairs: int) -> Sheet:
    names = [str(name) for name in pairs.columns]
    kinds: dict[str, Kind] = {
        **dict.fromkeys(("person", "match", "label", "decision", "match_decision"), "whole"),
        **dict.fromkeys(("group", "other_group", "regime"), "text"),
        "shared_reasons": "share",
        "q_value": "p",
        "is_negligible": "any",
    }
    columns = (
        *(Column(_heading(name), kinds.get(name, "number")) for name in names),
        Column("flag", "text"),
        Column("note", "long text"),
    )
    shown = pairs if len(pairs) <= max_pairs else _strongest(pairs, max_pairs)
    sentence = "" if len(pairs) <= max_pairs else _left_out(len(pairs), max_pairs)
    where = {name: names.index(name) for name in ("match", "cec", "regime", "q_value")}

    def rows() -> Iterator[tuple[Any, ...]]:
        note = sentence  # the first row carries it
        for row in _plain_rows(shown):
            regime, q = row[where["regime"]], row[where["q_value"]]
            flag = _joined(
                f"Regime {regime}" if regime in ("B", "D") else "",
                _significant(None if q is None or q != q else q, "q-value"),
            )
            yield (*row, flag, _joined(note, _why_not_scored(row[where["match"]], row[where["cec"]])))
            note = ""

    highlights = (
        Highlight("regime", "equals", "B"),
        Highlight("regime", "equals", "D", "strong"),
        Highlight("q value", "at most", SIGNIFICANT, "evidence"),
    )
    about = "A row for each person and other group; `person` and `match` are row numbers from 0."
    return Sheet("Pairs", about, columns, rows(), highlights)


def _why_not_scored(match: int, cec: float) -> str:
    if cec == cec:
        return ""
    return "no match" if match < 0 else "not scored"


def _strongest(pairs: pd.DataFrame, n: int) -> pd.DataFrame:
    over = pairs["cec"] - pairs["placebo_cec"].fillna(0)
    order = pairs.assign(_over=over).sort_values(["q_value", "_over"], ascending=[True, False], kind="stable")
    return pairs.loc[order.index[:n]]


def _left_out(n_pairs: int, max_pairs: int) -> str:
    return (
        f"The {max_pairs:,} pairs with the strongest evidence are shown; {n_pairs - max_pairs:,} of {n_pairs:,} "
        "were left out, and the Parquet file (result.to_parquet) has all."
    )


def _plain_rows(table: pd.DataFrame) -> Iterator[tuple[Any, ...]]:
    """Rows of Python values, some thousands at a time."""
    for start in range(0, len(table), _ROWS_AT_ONCE):
        part = table.iloc[start : start + _ROWS_AT_ONCE]
        yield from zip(*(part[name].tolist() for name in part.columns), strict=True)


def _heading(name: str) -> str:
    return name.replace("_", " ")


# --- words ---


def _glossary(sheets: Sequence[Sheet]) -> Sheet:
    rows = [("sheet", sheet.name, sheet.about) for sheet in sheets]
    rows += [("word", word, meaning) for word, meaning in GLOSSARY.items()]
    columns = (Column("kind", "text"), Column("name", "text"), Column("meaning", "long text"))
    return Sheet("Glossary", "What the sheets hold and what the words mean.", columns, rows)
