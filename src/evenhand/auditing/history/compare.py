"""What changed between audits, and whether by more than noise."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from evenhand.arrays import Bools, Ints
from evenhand.auditing.evidence import Influences
from evenhand.auditing.findings import NAMES, Answer
from evenhand.auditing.history.records import (
    Audit,
    audit_metrics,
    changed_settings,
    described,
    pair_codes,
    pair_columns,
    pairs_beside,
    people_of,
    setting_words,
    sorted_pairs,
    summary_of,
    words_of,
)
from evenhand.auditing.identity import is_same_people
from evenhand.auditing.options import FindingKey
from evenhand.auditing.result import AuditResult
from evenhand.auditing.summary import write_json
from evenhand.exceptions import InvalidInputError, InvalidTypeError, warn_caller
from evenhand.metrics.adjustment import holm
from evenhand.metrics.estimate import Estimate, p_two_sided, size_found
from evenhand.metrics.excess import ROUNDING, excess
from evenhand.metrics.outcomes import auc_influence
from evenhand.metrics.triples import standard_error_of_difference
from evenhand.report.formatting import capital, decimal, listed, p_words
from evenhand.report.history import comparison_page
from evenhand.report.section import AuditMetric
from evenhand.system.files import write_text

LEVEL = 0.05
_MOVED = "more than noise"


@dataclass(frozen=True, kw_only=True)
class Change(AuditMetric):
    """A metric of an audit, and how it differs from that of the base.

    Attributes
    ----------
    audit
        Name of the audit that is compared with the base.
    value, base_value
        The metric in the audit and in the base.
    change, low, high, standard_error, df
        The change with its 95% interval. If `scale` is "difference", it is value minus base value, 0 if nothing
        changed; if "ratio", value over base value, 1 if nothing changed, and the standard error is that of the
        logarithm.
    p_value
        Two-sided, for no change.
    p_adjusted
        For the metrics of the four questions: adjusted over the questions of all audits of the comparison and, if there
        are several score gaps or inputs, over these. For all others: adjusted among themselves (Holm).
    is_paired
        Whether the standard error is of differences within people.
    is_reversed
        Whether both audits find the metric, with opposite signs.
    """

    audit: str
    base_value: float
    change: float
    low: float
    high: float
    p_value: float
    p_adjusted: float = math.nan
    is_paired: bool
    is_reversed: bool = False

    @classmethod
    def of(
        cls, audit: str, base: AuditMetric, other: AuditMetric, within: float | None, *, are_found: bool = False
    ) -> Change:
        """The change of a metric.

        `within` is the standard error for the same people, None for independent people; `are_found` says whether both
        audits answer the metric's question with yes.
        """
        is_log = base.scale == "ratio" and base.value > 0 < other.value
        moved = math.log(other.value / base.value) if is_log else other.value - base.value
        error = math.hypot(base.standard_error, other.standard_error) if within is None else within
        df = min((m.df for m in (base, other) if math.isfinite(m.df)), default=math.inf)
        if within is None:  # Satterthwaite's, of independent metrics
            a, b = base.standard_error**2, other.standard_error**2
            below = sum(v**2 / m.df if m.df > 0 else math.nan for v, m in ((a, base), (b, other)))
            df = (a + b) ** 2 / below if below > 0 else math.inf
        note = "; ".join(dict.fromkeys(n for n in (base.note, other.note) if n))
        if base.unit != other.unit:
            error, note = math.nan, f"in {base.unit} in one of the audits, in {other.unit} in the other"
        if not (base.has_error and other.has_error):
            error, note = math.nan, note or "one of the audits has no standard error for it"
        if error > ROUNDING:
            estimate = Estimate.from_error(moved, error, df)
        elif error <= ROUNDING and abs(moved) <= ROUNDING:
            estimate = Estimate(moved, moved, moved, p_value=1.0)
        else:
            estimate = Estimate(moved)
        shown = math.exp if base.scale == "ratio" else float
        return cls(
            **{**vars(base), "value": other.value, "standard_error": error, "df": df, "note": note},
            audit=audit,
            base_value=base.value,
            change=shown(moved),
            low=shown(estimate.low),
            high=shown(estimate.high),
            p_value=estimate.p_value,
            is_paired=within is not None,
            is_reversed=are_found
            and base.value * other.value < 0
            and all(p_two_sided(m.value, m.standard_error, m.df) <= LEVEL for m in (base, other)),
        )

    @property
    def is_known(self) -> bool:
        """Whether a change can be tested at all."""
        return not math.isnan(self.p_value)

    @property
    def verdict(self) -> str:
        """In a few words: more than noise, within noise, or why neither is known."""
        if not self.is_known:
            return "not known"
        if self.p_adjusted <= LEVEL:
            return _MOVED
        return "within noise" if self.p_value > LEVEL else "not clearly more than noise"

    @property
    def sentence(self) -> str:
        """The change in words."""
        if not self.is_known:
            return f"{capital(self.words)}: whether it changed is not known ({self.note or 'no standard error'})."
        is_ratio = self.scale == "ratio"
        size = f"by a factor of {self.change:.3f}" if is_ratio else f"by {decimal(abs(self.change))}"
        rose = "rose" if self.change > (1 if is_ratio else 0) else "fell"
        moved = f"{rose} from {decimal(self.base_value)} to {decimal(self.value)}, {size}"
        moved = moved if self.p_value < 1 or self.value != self.base_value else f"stayed at {decimal(self.value)}"
        among = " among so many metrics" if self.verdict.startswith("not") else ""
        return f"{capital(self.words)} {moved}: {self.verdict}{among} ({p_words(self.p_adjusted)}, adjusted)."

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        data = {name: value for name, value in vars(self).items() if name not in ("influence", "sign")}
        return {**data, "verdict": self.verdict, "sentence": self.sentence}


# --- the four questions ---

# Each question, asked about two audits.
_QUESTIONS: dict[FindingKey, str] = {
    "score_gap": "Did the difference in scores between comparable people change?",
    "inputs": "Through which inputs?",
    "weighing": "Are the same inputs weighed more, or less, differently?",
    "excess": "Did explanations move farther apart across groups?",
}
_ORDER: dict[Answer, int] = {"yes": 0, "no": 1, "open": 2}


@dataclass(frozen=True)
class ChangedFinding:
    """Whether the answer to one question changed.

    Attributes
    ----------
    audit, key, question
        The audit that is compared with the base, and the question.
    estimate, ci, unit
        The change with its 95% interval; if there are several score gaps or inputs, the one that changed most clearly.
    p_value, p_adjusted
        For no change; adjusted over the questions of all audits of the comparison (Holm).
    answer
        "yes" for a change, "no" if none was found, "open" if it could not be tested.
    headline, sentence
        The answer in a few words, and in a sentence that says what it does not show.
    """

    audit: str
    key: FindingKey
    question: str
    headline: str
    sentence: str
    p_value: float = math.nan
    p_adjusted: float = math.nan
    answer: Answer = "open"
    estimate: float = math.nan
    ci: tuple[float, float] = (math.nan, math.nan)
    unit: str = ""
    is_paired: bool = False


def headline_of(findings: Sequence[ChangedFinding]) -> str:
    """The strongest change in a few words, or a statement that none of the answers changed."""
    if all(one.answer == "open" for one in findings):
        return "Whether the answers to the four questions changed is not known"
    strongest = findings[0]
    return strongest.headline if strongest.answer == "yes" else "None of the four answers changed by more than noise"


def changed_findings(changes: Sequence[Change]) -> tuple[tuple[ChangedFinding, ...], tuple[Change, ...]]:
    """The findings of a comparison, strongest first, and the changes with adjusted p-values.

    A question of an audit has the smallest p-value of its score gaps or inputs, adjusted for their number; these are
    then adjusted over the questions of all audits. A single score gap or input has the larger of its p-value, adjusted
    within the question, and that of the question. The other metrics are adjusted among themselves, and so are the
    features' parts of the excess.
    """
    audits = dict.fromkeys(c.audit for c in changes)
    asked = {(audit, key): _candidates(changes, audit, key) for audit in audits for key in NAMES}
    smallest = [min((p for _, p in pairs if not math.isnan(p)), default=math.nan) for pairs in asked.values()]
    p_adjusted: dict[int, float] = {}
    findings = []
    for (where, pairs), p, overall in zip(asked.items(), smallest, holm(smallest).tolist(), strict=True):
        p_adjusted |= {id(c): max(within, overall) for c, within in pairs}
        findings.append(_finding(*where, pairs, p, overall))
    for is_part in (False, True):
        rest = [c for c in changes if id(c) not in p_adjusted and (c.part == "feature") == is_part]
        p_adjusted |= {id(c): p for c, p in _adjusted(rest)}

    def strength(finding: ChangedFinding) -> tuple[float, ...]:
        p = math.inf if math.isnan(finding.p_adjusted) else finding.p_adjusted
        return _ORDER[finding.answer], p, -abs(finding.estimate) if finding.key == "inputs" else 0

    findings.sort(key=strength)
    return tuple(findings), tuple(replace(c, p_adjusted=p_adjusted[id(c)]) for c in changes)


def _adjusted(changes: Sequence[Change]) -> list[tuple[Change, float]]:
    p_values = holm([change.p_value for change in changes]).tolist() if changes else []
    return list(zip(changes, p_values, strict=True))


def _candidates(changes: Sequence[Change], audit: str, key: FindingKey) -> list[tuple[Change, float]]:
    """The changes that can answer a question, each with its p-value adjusted for their number."""
    candidates = [c for c in changes if c.audit == audit and c.finding == key]
    if key == "score_gap" and not any(c.is_known for c in candidates):
        # Models that are explained in different units still have probabilities.
        gaps = [c for c in changes if c.audit == audit and c.part == "score_gap" and c.unit == "probability"]
        candidates = gaps or candidates
    return _adjusted(candidates)


def _finding(
    audit: str, key: FindingKey, candidates: Sequence[tuple[Change, float]], p_value: float, p_adjusted: float
) -> ChangedFinding:
    known = [(p, c) for c, p in candidates if not math.isnan(p)]
    if not known:
        reason = next((c.note for c, _ in candidates if c.note), "one of the audits has no estimate of it")
        sentence = f"Whether it changed is not known: {reason}."
        return ChangedFinding(audit, key, _QUESTIONS[key], f"{NAMES[key]} not compared", sentence)
    # The largest change that stands out; without one, the change with the smallest p-value.
    clear = [c for p, c in known if p <= LEVEL]
    change = max(clear, key=lambda c: abs(c.change)) if clear else min(known, key=lambda one: one[0])[1]
    return ChangedFinding(
        audit,
        key,
        _QUESTIONS[key],
        *_words(key, change, p_adjusted),
        p_value,
        p_adjusted,
        "yes" if p_adjusted <= LEVEL else "no",
        change.change,
        (change.low, change.high),
        change.unit or "CEC score",
        change.is_paired,
    )


def _words(key: FindingKey, change: Change, p_adjusted: float) -> tuple[str, str]:
    """The headline and the sentence of a finding."""
    unit = f" {change.unit}" if change.unit else ""
    between = f"between {change.groups[0]} and {change.groups[1]}" if change.groups else ""
    size = f"{decimal(abs(change.change))}{unit}"
    from_to = f"from {decimal(change.base_value)} to {decimal(change.value)}{unit}"
    p = f"adjusted {p_words(p_adjusted)}"
    is_other_unit = key == "score_gap" and change.finding is None
    other_unit = " The models are explained in different units, so it is compared in probability." * is_other_unit
    sure = f"95% interval of the change {decimal(change.low)} to {decimal(change.high)}, {p}"
    if p_adjusted > LEVEL and key == "inputs":
        if change.standard_error == 0:
            return "No input's part changed", "Every input's part of the score gap is the same in both audits."
        return (
            "No input's part changed clearly",
            "No single input's part of the score gap was found to have changed; the smallest p-value is that of "
            f"{change.words} ({from_to}, {p}).",
        )
    if p_adjusted > LEVEL:
        name, what = {
            "score_gap": ("the score gap", f"the score gap {between} at equal finances"),
            "weighing": ("weighing", "the difference in how the same inputs are weighed for different groups"),
            "excess": (
                "the excess",
                "the excess, that is, how much farther apart explanations are across groups than within,",
            ),
        }[key]
        same = f"{capital(what)} is the same in both audits: {decimal(change.value)}{unit}.{other_unit}"
        detectable = decimal(size_found(change.standard_error, change.df, LEVEL, sides=2))
        unclear = (
            f"No evidence was found that {what} changed ({from_to}; {sure}). A change of {detectable} would have been "
            f"found in 80% of cases; smaller ones may exist.{other_unit}"
        )
        return f"No change in {name} found", same if change.standard_error == 0 else unclear
    is_larger = change.change > 0
    moved = "grew" if abs(change.value) > abs(change.base_value) else "shrank"
    if change.base_value * change.value < 0:
        moved = "reversed" if change.is_reversed else "moved"
    if key == "score_gap":
        return (
            f"The score gap {between} {moved}, by {size}",
            f"The score gap {between} at equal finances {moved}, {from_to} ({sure}). This does not show "
            f"why.{other_unit}",
        )
    if key == "inputs":
        note = f" ({change.note})" if change.note else ""
        return (
            f"The part of {change.words} in the score gap {moved}, by {size}",
            f"The largest change runs through {change.words}{note}: its part of the score gap {moved}, {from_to} "
            f"({sure}). This does not show whether the input has a business reason.",
        )
    if key == "weighing":
        more = "more" if is_larger else "less"
        return (
            f"The same inputs are weighed {more} differently, by {size}",
            f"The same inputs are weighed {more} differently for comparable people of different groups: weighing went "
            f"{from_to} ({sure}). This does not show which weights are right.",
        )
    where = "farther apart" if is_larger else "closer together"
    return (
        f"Explanations moved {where} across groups, by {size}",
        f"Explanations of comparable people of different groups moved {where}: the excess went {from_to} ({sure}). "
        "This does not show whether inputs or weights make the difference.",
    )


# --- the comparison ---

_SOMETHING_ELSE = "so every metric of reasoning measures something else"
# The meaning of a metric depends on these; the other settings only change how finely it is computed.
_DEFINING = {
    "financial_features": f"people were matched on different features, {_SOMETHING_ELSE}",
    "consistency_threshold": "Regimes B and D have a different threshold",
    "max_distance": "different people have a match",
    "groups": "different groups were compared",
    "attribution": f"people were explained with a different method, {_SOMETHING_ELSE}",
}
_NOTED = {
    "decision_threshold": "decisions have a different threshold, which alone can change rates, gaps and regimes",
    "n_steps": "attributions were integrated with a different number of steps",
    "method": "attributions were integrated with a different method",
    "ties": "of equally near people, a different one is the match",
    "n_permutations": "attributions were averaged over a different number of orders",
    "sample_weight": "people have different weights, which alone can change every metric",
}
_FINE = 0.01  # error of attributions, as a share of their size, that is too small to mention


@dataclass(frozen=True)
class SettingDifference:
    """A setting that differs between two audits."""

    audit: str
    setting: str
    base_value: Any
    value: Any
    consequence: str
    is_defining: bool

    @property
    def sentence(self) -> str:
        """The difference in words."""
        return (
            f"{self.setting}: {setting_words(self.value)} in {self.audit}, {setting_words(self.base_value)} in the "
            f"base; {self.consequence}."
        )


@dataclass(frozen=True)
class Pairing:
    """Whether an audit is of the same people as the base, and what follows for standard errors."""

    audit: str
    is_paired: bool
    sentence: str


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two or more audits; the first or a named one is the base of the others.

    Attributes
    ----------
    names, base
        The audits in the given order, and the name of the base.
    audits
        The plain data of each.
    findings
        Whether the answers to the four questions changed, strongest first.
    metrics, inputs, features
        Changes of the metrics, of each input's part of the score gap, and of each feature's part of the excess.
    differences
        Settings that differ.
    pairings
        For each audit except the base, whether people are the same.
    warnings
        Reservations, in words.
    """

    names: tuple[str, ...]
    base: str
    audits: Mapping[str, Mapping[str, Any]]
    findings: tuple[ChangedFinding, ...]
    metrics: tuple[Change, ...]
    inputs: tuple[Change, ...]
    features: tuple[Change, ...]
    differences: tuple[SettingDifference, ...]
    pairings: tuple[Pairing, ...]
    warnings: tuple[str, ...]

    @property
    def changes(self) -> tuple[Change, ...]:
        """All changes: metrics, inputs and features."""
        return (*self.metrics, *self.inputs, *self.features)

    @property
    def moved(self) -> tuple[Change, ...]:
        """Metrics, inputs and features that changed by more than noise, the most certain first."""
        return tuple(sorted((c for c in self.changes if c.verdict == _MOVED), key=lambda c: c.p_adjusted))

    @property
    def headline(self) -> str:
        """The strongest change of an answer to one of the four questions, in a few words."""
        return headline_of(self.findings)

    @property
    def directions(self) -> tuple[str, ...]:
        """Which sign of a gap is bad, for scores that are risks and for values."""
        said = (audit["verdict"].get("direction", "") for audit in self.audits.values())
        return tuple(dict.fromkeys(direction for direction in said if direction))

    @property
    def sentences(self) -> tuple[str, ...]:
        """The outcome in words: for each audit the four questions, strongest first, and how many metrics changed."""
        lines = list(self.directions)
        for name in (name for name in self.names if name != self.base):
            findings = [finding for finding in self.findings if finding.audit == name]
            lines.append(f"{name} compared with {self.base}: {headline_of(findings)}.")
            lines += [f"{NAMES[finding.key]}: {finding.sentence}" for finding in findings]
            others = [c for c in self.metrics if c.audit == name and c.finding is None and c.is_known]
            n_moved = sum(c.verdict == _MOVED for c in others)
            lines.append(f"Of {len(others)} other metrics, {n_moved} changed by more than noise.")
        return tuple(lines)

    def table(self) -> pd.DataFrame:
        """One row per change: audit, metric, part, unit, base_value, value, change, interval, p-values, verdict."""
        columns = ["audit", "metric", "part", "unit", "base_value", "value", "scale", "change", "standard_error",
                   "low", "high", "df", "p_value", "p_adjusted", "is_paired", "verdict", "note"]  # fmt: skip
        rows = [{**asdict(c), "metric": c.words, "verdict": c.verdict} for c in self.changes]
        return pd.DataFrame(rows, columns=columns)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with a short description of each audit instead of the audits themselves."""
        return {
            "schema": "evenhand.comparison/2",
            "names": list(self.names),
            "base": self.base,
            "headline": self.headline,
            "directions": list(self.directions),
            "findings": [dict(vars(finding)) for finding in self.findings],
            "sentences": list(self.sentences),
            "audits": [described(name, self.audits[name]) for name in self.names],
            "metrics": [c.to_dict() for c in self.metrics],
            "inputs": [c.to_dict() for c in self.inputs],
            "features": [c.to_dict() for c in self.features],
            "differences": [{**asdict(d), "sentence": d.sentence} for d in self.differences],
            "pairings": [asdict(p) for p in self.pairings],
            "warnings": list(self.warnings),
        }

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write `to_dict` as JSON, completely or not at all; a missing number is null."""
        write_json(self.to_dict(), path)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the comparison as one HTML file that needs no network, completely or not at all."""
        labels = words_of(self.audits.values())
        audits = [described(name, self.audits[name], labels) for name in self.names]
        write_text(path, comparison_page({**self.to_dict(), "audits": audits}))


def compare_audits(
    audits: Mapping[str, Audit],
    *,
    base: str | None = None,
    same_people: bool | None = None,
    allow_different_settings: bool = False,
) -> Comparison:
    """Find what changed between audits of model versions, months or methods.

    If the people are different, the two metrics are independent, and the variance of their difference is the sum of the
    two. If the people are the same, in whatever order, the answers to the four questions are compared within people, by
    the influence that each person has on both, which results and their JSON keep. An input that one of the models does
    not have has no part in its score gap. Decisions are compared within people if the pairs are available, in a result
    or in the file or folder `pairs` next to an `audit.json`: rates then have the variance of paired shares, the AUC has
    DeLong's covariance, and the mean CEC score and the regimes have the variance of differences of pairs that share
    people. Each feature's part of the excess is always treated as independent.

    Parameters
    ----------
    audits
        Audits by name: results, the output of `to_dict`, or files that `to_json` wrote. At least two.
    base
        Name of the audit that the others are compared with; by default the first.
    same_people
        Whether all audits are of the same people. None to find out from labels, groups and shared columns: see
        `data.column_prints`.
    allow_different_settings
        Compare even if financial features, groups, `attribution`, `consistency_threshold` or `max_distance` differ.
        By default this is an error, because metrics of the same name are then different quantities.

    Raises
    ------
    InvalidInputError
        If there are fewer than two audits, `base` is not one of them, settings that define metrics differ, or
        `same_people` is True for audits whose people differ.
    InvalidTypeError
        If an audit is neither a result, nor plain data, nor a path.
    DataFileError
        If a file is not an audit.

    Examples
    --------
    >>> import evenhand as eh
    >>> def audited(seed, strength):
    ...     planted = eh.make_planted_bias(300, strength=strength, random_state=seed)
    ...     people = planted.dataset
    ...     return eh.audit(planted.model, people.X, people.y, sensitive_features=people.group,
    ...                     financial_features=people.financial_features)
    >>> comparison = compare_audits({"spring": audited(0, 0.0), "summer": audited(1, 1.0)})
    >>> comparison.findings[0].key, comparison.findings[0].answer
    ('weighing', 'yes')
    """
    if not isinstance(audits, Mapping):
        raise InvalidTypeError(f"`audits` must map names to audits, got {type(audits).__name__}.")
    if len(audits) < 2:
        raise InvalidInputError(
            f"`audits` must hold at least two audits to compare, got {listed([str(name) for name in audits])}."
        )
    names = tuple(str(name) for name in audits)
    chosen = names[0] if base is None else base
    if chosen not in names:
        raise InvalidInputError(f"`base` must be one of the audits, {listed(list(names), 8)}, got {chosen!r}.")
    sources = {name: _Source.of(name, audit) for name, audit in zip(names, audits.values(), strict=True)}
    first = sources[chosen]
    others = [sources[name] for name in names if name != chosen]
    differences = tuple(d for other in others for d in _setting_differences(first, other))
    defining = [d.sentence for d in differences if d.is_defining]
    if defining and not allow_different_settings:
        raise InvalidInputError(
            f"The audits have different settings. {' '.join(defining)} Run the audit again with the same settings, "
            "or compare anyway with `allow_different_settings=True`."
        )
    labels = words_of(source.data for source in sources.values())
    changes: list[Change] = []
    pairings: list[Pairing] = []
    for other in others:
        is_same = is_same_people(first.data["data"], other.data["data"])
        if same_people and is_same is False:
            raise InvalidInputError(
                f"`same_people=True`, but {chosen} and {other.name} differ in the number, labels, groups or features "
                "of their people: give audits of the same people, or leave `same_people` out."
            )
        is_same = is_same if same_people is None else same_people
        own = _changes(first, other, labels, is_same=bool(is_same))
        pairings.append(_pairing(first, other, own, is_same))
        changes += own
    findings, adjusted = changed_findings(changes)
    for difference in differences:
        warn_caller(difference.sentence)
    return Comparison(
        names=names,
        base=chosen,
        audits={name: source.data for name, source in sources.items()},
        findings=findings,
        metrics=tuple(c for c in adjusted if c.part not in ("inputs", "feature")),
        inputs=tuple(c for c in adjusted if c.part == "inputs"),
        features=tuple(c for c in adjusted if c.part == "feature"),
        differences=differences,
        pairings=tuple(pairings),
        warnings=tuple(_reservations(first, others, differences, labels)),
    )


# --- what was given ---


@dataclass(frozen=True, eq=False)
class _Source:
    """An audit that is compared, with its pairs where people can be compared one by one."""

    name: str
    data: Mapping[str, Any]
    pairs: pd.DataFrame | None

    @classmethod
    def of(cls, name: str, audit: Audit) -> _Source:
        data = summary_of(name, audit)
        scope = data.get("scope") or {"has_labels": True, "has_decisions": True, "outcome": "score"}
        has_people = scope["has_labels"] and scope["has_decisions"] and scope["outcome"] == "score"
        pairs = None
        if has_people and "weighting" not in data:  # changes within people require equal weights
            if isinstance(audit, AuditResult):
                pairs = audit.pairs
            elif isinstance(audit, (str, os.PathLike)):
                pairs = pairs_beside(audit, data)
        return cls(name, data, None if pairs is None else sorted_pairs(pairs))

    @property
    def settings(self) -> dict[str, Any]:
        """Settings, and what else defines metrics."""
        weights = "given" if "weighting" in self.data else None
        return {**self.data["settings"], "groups": list(self.data["data"]["groups"]), "sample_weight": weights}


def _setting_differences(base: _Source, other: _Source) -> list[SettingDifference]:
    # A network has as many steps as it needs to be close to the integral.
    errors = [source.data["data"].get("integration_error") for source in (base, other)]
    is_fine = all(error is not None and error <= _FINE for error in errors)
    consequences = {name: words for name, words in (_DEFINING | _NOTED).items() if name != "n_steps" or not is_fine}
    return [
        SettingDifference(other.name, name, own, value, consequences[name], name in _DEFINING)
        for name, own, value in changed_settings(base.settings, other.settings, consequences)
    ]


def _pairing(base: _Source, other: _Source, changes: Sequence[Change], is_same: bool | None) -> Pairing:
    """What is known about the people, in words."""
    answers = {c.is_paired for c in changes if c.finding is not None}
    decisions = {c.is_paired for c in changes if c.part == "outcome"}
    is_paired = True in answers | decisions
    if not is_paired:
        words = {True: _SAME_PEOPLE_IN_FILES, False: _DIFFERENT_PEOPLE, None: _UNKNOWN_PEOPLE}[is_same]
    elif True not in decisions:
        words = _ANSWERS_WITHIN_PEOPLE
    else:
        words = _WITHIN_PEOPLE if False not in answers | decisions else _SOME_WITHIN_PEOPLE
    return Pairing(other.name, is_paired, words.format(f"{other.name} and {base.name}"))


_WITHIN_PEOPLE = "{} are of the same people: changes are computed within people."
_ANSWERS_WITHIN_PEOPLE = (
    "{} are of the same people: the answers to the four questions are compared within people. Rates and the AUC are "
    "treated as independent, which overstates their noise: to compare them within people too, give the results, or "
    "keep the pairs next to each audit.json, with people in the same order."
)
_SOME_WITHIN_PEOPLE = (
    "{} are of the same people: changes are computed within people, except for metrics for which an audit does not "
    "keep each person's contribution; these are assumed to be independent, which overstates noise if both err alike."
)
_DIFFERENT_PEOPLE = "{} are of different people: independence was assumed."
_SAME_PEOPLE_IN_FILES = (
    "{} are of the same people, but each person's contribution was not kept: independence was assumed, which "
    "overstates the noise if the two models score people alike."
)
_UNKNOWN_PEOPLE = (
    "Whether {} share people is not known: independence was assumed, which is right for different people and usually "
    "overstates the noise for the same people."
)


def _reservations(
    base: _Source, others: Sequence[_Source], differences: Sequence[SettingDifference], labels: Mapping[str, str]
) -> Iterable[str]:
    yield from (d.sentence for d in differences)
    for source in (base, *others):
        if source.data["evidence"] is None:
            yield f"{source.name} was audited without evidence, so the four questions cannot be compared."
    columns = {source.name: {row["feature"] for row in source.data["features"]} for source in (base, *others)}
    for other in others:
        for one, two in ((base.name, other.name), (other.name, base.name)):
            only = sorted(columns[one] - columns[two])
            if only:
                yield f"Features in {one} but not in {two}: {listed([labels.get(name, name) for name in only], 8)}."
    if any(source.data["versions"].get("evenhand") != base.data["versions"].get("evenhand") for source in others):
        yield "The audits were made with different versions of evenhand."


# --- changes ---


def _changes(base: _Source, other: _Source, labels: Mapping[str, str], *, is_same: bool) -> list[Change]:
    """Changes of every metric in both audits, and of the inputs in either."""
    reference = base.data["outcome"]["approvals"]["reference"]
    reference = reference if reference in other.data["data"]["groups"] else None
    own, new = (audit_metrics(source.data, reference, source.pairs, labels) for source in (base, other))
    ours, theirs = _with_inputs(own, new, base.name), _with_inputs(new, own, other.name)
    within = _errors_within(base, other, ours, theirs) if is_same else {}
    yes = [{f["key"] for f in source.data["findings"] if f["answer"] == "yes"} for source in (base, other)]
    found = set.intersection(*yes)
    return [
        Change.of(other.name, ours[key], theirs[key], within.get(key), are_found=ours[key].finding in found)
        for key in ours
        if key in theirs
    ]


def _with_inputs(
    metrics: Mapping[str, AuditMetric], others: Mapping[str, AuditMetric], name: str
) -> dict[str, AuditMetric]:
    """The metrics, with a part of 0 in the score gap for each input that only the other model has."""
    known = {metric.groups for metric in metrics.values() if metric.part == "inputs"}
    nothing: dict[str, Any] = {"value": 0.0, "standard_error": 0.0, "df": math.inf, "influence": None}
    absent = {
        key: replace(metric, **nothing, note=f"{name} does not have this input")
        for key, metric in others.items()
        if metric.part == "inputs" and key not in metrics and metric.groups in known
    }
    return {**metrics, **absent}


def _errors_within(
    base: _Source, other: _Source, ours: Mapping[str, AuditMetric], theirs: Mapping[str, AuditMetric]
) -> dict[str, float]:
    """Standard errors of changes for the same people, by key of the metric, for the metrics that allow it."""
    own, new = (Influences.from_dict(source.data.get("influences", {})) for source in (base, other))
    within: dict[str, float] = {}
    # Buckets depend on finances, so different financial features give different buckets for the same people.
    differ = list(changed_settings(base.settings, other.settings, ["financial_features"]))
    is_kept = bool(own.columns and new.columns) and not differ
    for key in (key for key in ours if key in theirs and is_kept):
        errors = ours[key].standard_error, theirs[key].standard_error
        first, second = own.on(ours[key].influence, ours[key].sign), new.on(theirs[key].influence, theirs[key].sign)
        if 0 in errors:
            within[key] = math.hypot(*errors)  # a constant is uncorrelated with everything
        elif first is not None and second is not None:
            within[key] = standard_error_of_difference(*errors, first, second)
    if base.pairs is not None and other.pairs is not None:
        reference = base.data["outcome"]["approvals"]["reference"]
        within |= errors_within_people(base.pairs, other.pairs, reference, base.data, other.data)
    return within


def errors_within_people(
    own: pd.DataFrame, new: pd.DataFrame, reference: str, own_data: Mapping[str, Any], new_data: Mapping[str, Any]
) -> dict[str, float]:
    """Standard errors of changes in decisions, the AUC and CEC scores for the same people, by key of the metric.

    Parameters
    ----------
    own, new
        Pairs of both audits, as `sorted_pairs` orders them.
    reference
        The group that the others are compared with.
    own_data, new_data
        Summaries of both.

    Returns
    -------
    Empty if the people of the two tables are in a different order: decisions cannot be matched up then. Without CEC
    scores and regimes if people have different matches.
    """
    first, second = people_of(own_data, own), people_of(new_data, new)
    label, group = first.label, first.group
    if len(label) != len(second.label) or (label != second.label).any() or (group != second.group).any():
        return {}

    def variance(inside: Bools) -> float:
        return _paired_variance(first.decision[inside], second.decision[inside])

    everyone = np.ones(len(label), dtype=bool)
    in_group = {name: group == name for name in np.unique(group).tolist()}
    correct = [(people.decision == label).astype(np.int64) for people in (first, second)]
    variances = {"accuracy": _paired_variance(*correct), "positive rate": variance(everyone)}
    rates = {"positive rate": everyone, "true positive rate": label == 1, "false positive rate": label == 0}
    for rate, counted in rates.items():
        of_group = {name: variance(counted & inside) for name, inside in in_group.items()}
        for name in of_group:
            variances[f"{rate}: {name}"] = of_group[name]
            variances[f"gap: {rate}, {name} minus {reference}"] = of_group[name] + of_group[reference]
    logs = {n: _paired_log_variance(first.decision[inside], second.decision[inside]) for n, inside in in_group.items()}
    for name in in_group:
        variances[f"ratio: approval ratio, {name} over {reference}"] = logs[name] + logs[reference]
    for key, inside in {"auc": everyone, **{f"auc: {name}": inside for name, inside in in_group.items()}}.items():
        # DeLong's variance of the difference of two areas of the same people.
        one, two = (auc_influence(label[inside], people.score[inside]) for people in (first, second))
        variances[key] = float(((two - one) ** 2).sum())
    errors = {key: math.sqrt(value) for key, value in variances.items()}
    codes, new_codes = pair_codes(own_data, own), pair_codes(new_data, new)
    # People matched on the same features in the same reference have the same pairs; others cannot be subtracted.
    if codes.shape == new_codes.shape and (codes == new_codes).all():
        scored = (own["cec"].notna() & new["cec"].notna()).to_numpy()
        before, after = pair_columns(own[scored]), pair_columns(new[scored])
        errors |= {key: excess(after[key], before[key], codes[scored]).standard_error for key in before}
    return errors


def _paired_variance(first: Ints, second: Ints, scale: tuple[float, float] = (1, 1)) -> float:
    """Variance of the difference of two shares of the same people (Agresti and Min 2005).

    Half a person is added to each of the four combinations, so that decisions that all agree still vary. `scale`
    multiplies the two shares.
    """
    if not len(first):
        return math.nan
    counts = np.bincount(first * 2 + second, minlength=4) + 0.5
    value = np.array([0, scale[1], -scale[0], scale[1] - scale[0]])
    mean = np.average(value, weights=counts)
    return float(np.average((value - mean) ** 2, weights=counts) / counts.sum())


def _paired_log_variance(first: Ints, second: Ints) -> float:
    """The same for the difference of the logarithms of the shares."""
    before, after = ((float(decision.sum()) + 0.5) / (len(decision) + 1) for decision in (first, second))
    return _paired_variance(first, second, (1 / before, 1 / after))
