"""What changed between audits, and whether by more than noise."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import special, stats

from evenhand.arrays import Bools, Floats, Ints
from evenhand.auditing.evidence import Influences
from evenhand.auditing.findings import NAMES, Answer
from evenhand.auditing.history.metrics import People, audit_metrics, pair_codes, people_of, sorted_pairs
from evenhand.auditing.history.records import Audit, comparable, described, pairs_beside, setting_words, summary_of
from evenhand.auditing.identity import is_same_people
from evenhand.auditing.options import FindingKey
from evenhand.auditing.result import AuditResult
from evenhand.auditing.summary import write_json
from evenhand.exceptions import InvalidInputError, InvalidTypeError, warn_caller
from evenhand.metrics.adjustment import holm
from evenhand.metrics.excess import ROUNDING, excess
from evenhand.metrics.roc import auc_influence
from evenhand.metrics.sharing import standard_error_of_difference
from evenhand.report.formatting import decimal, listed, p_value
from evenhand.report.history import comparison_page
from evenhand.report.section import AuditMetric, Part, Scale
from evenhand.system.files import write_atomically


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
    Empty if the people of the two tables are in a different order: decisions cannot be matched up then.
    """
    first, second = people_of(own_data, own), people_of(new_data, new)
    if len(first) != len(second) or (first.label != second.label).any() or (first.group != second.group).any():
        return {}
    variances = {**_rate_variances(first, second, reference), **_area_variances(first, second)}
    return {key: math.sqrt(variance) for key, variance in variances.items()} | _reasoning_errors(
        own, new, pair_codes(own_data, own), pair_codes(new_data, new)
    )


def _rate_variances(first: People, second: People, reference: str) -> dict[str, float]:
    everyone = np.ones(len(first), dtype=bool)
    parts = {"positive rate": everyone, "true positive rate": first.label == 1, "false positive rate": first.label == 0}
    correct = [(people.decision == people.label).astype(np.int64) for people in (first, second)]
    found = {
        "accuracy": _paired_variance(correct[0], correct[1]),
        "positive rate": _paired_variance(first.decision, second.decision),
    }
    groups = np.unique(first.group).tolist()
    for rate, part in parts.items():
        of_group = {}
        for group in groups:
            inside = part & (first.group == group)
            of_group[group] = _paired_variance(first.decision[inside], second.decision[inside])
            found[f"{rate}: {group}"] = of_group[group]
        for group in groups:
            found[f"gap: {rate}, {group} minus {reference}"] = of_group[group] + of_group[reference]
    logs = {
        g: _paired_log_variance(first.decision[first.group == g], second.decision[first.group == g]) for g in groups
    }
    for group in groups:
        found[f"ratio: approval ratio, {group} over {reference}"] = logs[group] + logs[reference]
    return found


def _paired_variance(first: Ints, second: Ints, scale: tuple[float, float] = (1, 1)) -> float:
    """Variance of the difference of two shares of the same people (Agresti and Min 2005).

    Half a person is added to each of the four combinations, so that decisions that all agree still vary. `scale`
    multiplies the two shares.
    """
    if not len(first):
        return math.nan
    counts = np.bincount(first * 2 + second, minlength=4) + 0.5
    value = np.array([0, scale[1], -scale[0], scale[1] - scale[0]])
    n = counts.sum()
    mean = counts @ value / n
    return float((counts @ value**2 / n - mean**2) / n)


def _paired_log_variance(first: Ints, second: Ints) -> float:
    """The same for the difference of the logarithms of the shares."""
    if not len(first):
        return math.nan
    shares = [(float(decision.sum()) + 0.5) / (len(decision) + 1) for decision in (first, second)]
    return _paired_variance(first, second, (1 / shares[0], 1 / shares[1]))


def _area_variances(first: People, second: People) -> dict[str, float]:
    """DeLong's variance of the difference of two areas of the same people."""
    parts: dict[str, Bools] = {"auc": np.ones(len(first), dtype=bool)}
    parts |= {f"auc: {group}": first.group == group for group in np.unique(first.group)}
    found = {}
    for key, inside in parts.items():
        label = first.label[inside]
        own = auc_influence(label, first.score[inside])
        other = auc_influence(label, second.score[inside])
        found[key] = float(((other - own) ** 2).sum())
    return found


def _reasoning_errors(own: pd.DataFrame, new: pd.DataFrame, codes: Ints, new_codes: Ints) -> dict[str, float]:
    """Standard errors of changes in the mean CEC score and the regimes.

    The same people have the same pairs if they were matched on the same features in the same reference. Otherwise
    nothing can be subtracted, and the audits are treated as independent.
    """
    if codes.shape != new_codes.shape or (codes != new_codes).any():
        return {}
    scored = (own["cec"].notna() & new["cec"].notna()).to_numpy()
    return {
        key: excess(_column(new, key)[scored], _column(own, key)[scored], codes[scored]).standard_error
        for key in ("cec", "regime B", "regime D")
    }


def _column(pairs: pd.DataFrame, key: str) -> Floats:
    if key == "cec":
        return pairs["cec"].to_numpy(dtype=np.float64)
    return np.asarray(pairs["regime"] == key.removeprefix("regime "), dtype=np.float64)


LEVEL = 0.05
_CONFIDENCE = 0.95
_NORMAL_HALF = float(special.ndtri((1 + _CONFIDENCE) / 2))


@dataclass(frozen=True)
class Change:
    """How one metric of an audit differs from that of the base.

    Attributes
    ----------
    audit
        Name of the audit that is compared with the base.
    scale
        "difference": `change` is value minus base value, 0 if nothing changed. "ratio": value over base value, 1 if
        nothing changed; the standard error is then that of the logarithm.
    p_value
        Two-sided, for no change.
    p_adjusted
        For the metrics of the four questions: adjusted over the questions of all audits of the comparison and, if there
        are several score gaps or inputs, over these. For all others: adjusted among themselves (Holm).
    is_paired
        Whether the standard error is of differences within people.
    finding
        The question it helps answer; None for other metrics.
    unit, groups
        For score gaps: log-odds or probability, and the group and the one it is compared with.
    """

    audit: str
    key: str
    part: Part
    words: str
    base_value: float
    value: float
    scale: Scale
    change: float
    standard_error: float
    low: float
    high: float
    df: float
    p_value: float
    p_adjusted: float
    is_paired: bool
    note: str = ""
    finding: FindingKey | None = None
    unit: str = ""
    groups: tuple[str, str] | None = None

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
            return "more than noise"
        return "within noise" if self.p_value > LEVEL else "not clearly more than noise"

    @property
    def sentence(self) -> str:
        """The change in words."""
        if not self.is_known:
            return f"{_capital(self.words)}: whether it changed is not known ({self.note or 'no standard error'})."
        size = f"by {decimal(abs(self.change))}" if self.scale == "difference" else f"by a factor of {self.change:.3f}"
        rose = self.change > (0 if self.scale == "difference" else 1)
        moved = f"{'rose' if rose else 'fell'} from {decimal(self.base_value)} to {decimal(self.value)}, {size}"
        moved = moved if self.p_value < 1 or self.value != self.base_value else f"stayed at {decimal(self.value)}"
        shown = p_value(self.p_adjusted)
        p = f"p {shown if shown[0] in '<>' else f'= {shown}'}"
        ending = {
            "more than noise": f"more than noise ({p}, adjusted)",
            "within noise": f"within noise ({p}, adjusted)",
            "not clearly more than noise": f"not clearly more than noise among so many metrics ({p}, adjusted)",
        }[self.verdict]
        return f"{_capital(self.words)} {moved}: {ending}."

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**vars(self), "groups": self.groups, "verdict": self.verdict, "sentence": self.sentence}


def change_of(audit: str, base: AuditMetric, other: AuditMetric, within: float | None) -> Change:
    """The change of a metric.

    Parameters
    ----------
    audit
        Name of the audit that is compared with the base.
    base, other
        The metric in both.
    within
        Standard error of the difference for the same people; None for independent people.
    """
    is_ratio = base.scale == "ratio"
    moved = (
        math.log(other.value / base.value) if is_ratio and base.value > 0 < other.value else other.value - base.value
    )
    error = math.hypot(base.standard_error, other.standard_error) if within is None else within
    df = _satterthwaite(base, other) if within is None else min(base.df, other.df)
    note = "; ".join(dict.fromkeys(n for n in (base.note, other.note) if n))
    if base.unit != other.unit:
        error, note = math.nan, f"in {base.unit} in one of the audits, in {other.unit} in the other"
    if not (base.has_error and other.has_error):
        error = math.nan
        note = note or "one of the audits has no standard error for it"
    p, half = _test(moved, error, df)
    low, high = moved - half, moved + half
    if is_ratio:
        moved, low, high = math.exp(moved), math.exp(low), math.exp(high)
    return Change(
        audit=audit,
        key=base.key,
        part=base.part,
        words=base.words,
        base_value=base.value,
        value=other.value,
        scale=base.scale,
        change=moved,
        standard_error=error,
        low=low,
        high=high,
        df=df,
        p_value=p,
        p_adjusted=math.nan,
        is_paired=within is not None,
        note=note,
        finding=base.finding,
        unit=base.unit,
        groups=base.groups,
    )


def _satterthwaite(first: AuditMetric, second: AuditMetric) -> float:
    """Degrees of freedom of a difference of two independent metrics."""
    a, b = first.standard_error**2, second.standard_error**2
    below = (a**2 / first.df if first.df > 0 else math.nan) + (b**2 / second.df if second.df > 0 else math.nan)
    return (a + b) ** 2 / below if below > 0 else math.inf


def _test(moved: float, error: float, df: float) -> tuple[float, float]:
    """Two-sided p-value of no change, and half the interval."""
    if math.isnan(moved) or math.isnan(error):
        return math.nan, math.nan
    if error <= ROUNDING:
        return (1.0, 0.0) if abs(moved) <= ROUNDING else (math.nan, math.nan)
    size = abs(moved) / error
    if not math.isfinite(df):
        return float(2 * special.ndtr(-size)), _NORMAL_HALF * error
    return float(2 * special.stdtr(df, -size)), float(special.stdtrit(df, (1 + _CONFIDENCE) / 2)) * error


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


# Each question, asked about two audits.
_QUESTIONS: dict[FindingKey, str] = {
    "score_gap": "Did the difference in scores between comparable people change?",
    "inputs": "Through which inputs?",
    "weighing": "Are the same inputs weighed more, or less, differently?",
    "excess": "Did explanations move farther apart across groups?",
}

_POWER = 0.8
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
    estimate: float
    ci: tuple[float, float]
    unit: str
    p_value: float
    p_adjusted: float
    is_paired: bool
    answer: Answer
    headline: str
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return dict(vars(self))


def headline_of(findings: Sequence[ChangedFinding]) -> str:
    """The strongest change in a few words, or a statement that none of the answers changed."""
    if not any(one.answer != "open" for one in findings):
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
    asked = [_Asked.of(audit, key, changes) for audit in dict.fromkeys(c.audit for c in changes) for key in NAMES]
    overall = holm([one.p_value for one in asked])
    p_adjusted: dict[int, float] = {}
    findings = []
    for one, p in zip(asked, overall.tolist(), strict=True):
        p_adjusted |= {id(c): max(within, p) for c, within in zip(one.candidates, one.within, strict=True)}
        findings.append(one.finding(p))
    for is_part in (False, True):
        rest = [c for c in changes if id(c) not in p_adjusted and (c.part == "feature") == is_part]
        p_adjusted |= {id(c): p for c, p in zip(rest, _adjusted(rest), strict=True)}
    findings.sort(key=lambda f: (_ORDER[f.answer], _last(f.p_adjusted), -abs(f.estimate) if f.key == "inputs" else 0))
    return tuple(findings), tuple(replace(c, p_adjusted=p_adjusted[id(c)]) for c in changes)


def _last(p: float) -> float:
    return math.inf if math.isnan(p) else p


def _adjusted(changes: Sequence[Change]) -> list[float]:
    found: list[float] = holm([change.p_value for change in changes]).tolist() if changes else []
    return found


@dataclass(frozen=True)
class _Asked:
    """A question of an audit, the changes that can answer it, and their p-values adjusted for their number."""

    audit: str
    key: FindingKey
    candidates: tuple[Change, ...]
    within: tuple[float, ...]

    @classmethod
    def of(cls, audit: str, key: FindingKey, changes: Sequence[Change]) -> _Asked:
        candidates = tuple(c for c in changes if c.audit == audit and c.finding == key)
        if key == "score_gap" and not any(c.is_known for c in candidates):
            # Models that are explained in different units still have probabilities.
            in_probability = (c for c in changes if c.audit == audit and c.part == "score_gap")
            candidates = tuple(c for c in in_probability if c.unit == "probability") or candidates
        return cls(audit, key, candidates, tuple(_adjusted(candidates)))

    @property
    def p_value(self) -> float:
        """The smallest p-value; NaN if there is none."""
        return min((p for p in self.within if not math.isnan(p)), default=math.nan)

    @property
    def strongest(self) -> Change | None:
        """The largest change that stands out; without one, the change with the smallest p-value."""
        known = [(p, c) for p, c in zip(self.within, self.candidates, strict=True) if not math.isnan(p)]
        clear = [c for p, c in known if p <= LEVEL]
        if clear:
            return max(clear, key=lambda c: abs(c.change))
        return min(known, key=lambda one: one[0])[1] if known else None

    def finding(self, p_adjusted: float) -> ChangedFinding:
        change = self.strongest
        nan = math.nan
        if change is None:
            headline = f"{NAMES[self.key]} not compared"
            notes = [c.note for c in self.candidates if c.note]
            reason = notes[0] if notes else "one of the audits has no estimate of it"
            sentence = f"Whether it changed is not known: {reason}."
            return self._answered(nan, (nan, nan), "", nan, False, "open", headline, sentence)
        answer: Answer = "yes" if p_adjusted <= LEVEL else "no"
        headline, sentence = _WORDS[self.key](change, p_adjusted, answer)
        ends = (change.low, change.high)
        return self._answered(
            change.change, ends, change.unit or "CEC score", p_adjusted, change.is_paired, answer, headline, sentence
        )

    def _answered(
        self,
        estimate: float,
        ci: tuple[float, float],
        unit: str,
        p_adjusted: float,
        is_paired: bool,
        answer: Answer,
        headline: str,
        sentence: str,
    ) -> ChangedFinding:
        return ChangedFinding(
            audit=self.audit,
            key=self.key,
            question=_QUESTIONS[self.key],
            estimate=estimate,
            ci=ci,
            unit=unit,
            p_value=self.p_value,
            p_adjusted=p_adjusted,
            is_paired=is_paired,
            answer=answer,
            headline=headline,
            sentence=sentence,
        )


# --- sentences ---


def _sure(change: Change, p_adjusted: float) -> str:
    return f"95% interval of the change {decimal(change.low)} to {decimal(change.high)}, {_p(p_adjusted)}"


def _p(p_adjusted: float) -> str:
    shown = p_value(p_adjusted)
    return f"adjusted p {shown if shown[0] in '<>' else f'= {shown}'}"


def _detectable(change: Change) -> str:
    """The size of change that would have been found."""
    quantile = stats.norm.ppf if not math.isfinite(change.df) else lambda share: stats.t.ppf(share, change.df)
    size = float(quantile(1 - LEVEL / 2) + quantile(_POWER)) * change.standard_error
    return f"A change of {decimal(size)} would have been found in 80% of cases; smaller ones may exist."


def _from_to(change: Change) -> str:
    return f"from {decimal(change.base_value)} to {decimal(change.value)}{_unit(change)}"


def _unit(change: Change) -> str:
    return f" {change.unit}" if change.unit else ""


def _size_moved(change: Change) -> str:
    """How the size of something signed changed."""
    if change.base_value * change.value < 0:
        return "reversed"
    return "grew" if abs(change.value) > abs(change.base_value) else "shrank"


def _not_found(what: str, change: Change, p_adjusted: float) -> str:
    if change.standard_error == 0:
        return f"{what} is the same in both audits: {decimal(change.value)}{_unit(change)}."
    found = f"{_from_to(change)}; {_sure(change, p_adjusted)}"
    return f"No evidence was found that {what[:1].lower()}{what[1:]} changed ({found}). {_detectable(change)}"


def _score_words(change: Change, p_adjusted: float, answer: Answer) -> tuple[str, str]:
    assert change.groups is not None
    what = f"The score gap between {change.groups[0]} and {change.groups[1]} at equal finances"
    if answer == "no":
        return "No change in the score gap found", _not_found(what, change, p_adjusted)
    moved = _size_moved(change)
    return (
        f"The score gap between {change.groups[0]} and {change.groups[1]} {moved}, by "
        f"{decimal(abs(change.change))}{_unit(change)}",
        f"{what} {moved}, {_from_to(change)} ({_sure(change, p_adjusted)}). This does not show why.",
    )


def _input_words(change: Change, p_adjusted: float, answer: Answer) -> tuple[str, str]:
    if answer == "no":
        if change.standard_error == 0:
            return "No input's part changed", "Every input's part of the score gap is the same in both audits."
        return (
            "No input's part changed clearly",
            "No single input's part of the score gap was found to have changed; the smallest p-value is that of "
            f"{change.words} ({_from_to(change)}, {_p(p_adjusted)}).",
        )
    moved = _size_moved(change)
    note = f" ({change.note})" if change.note else ""
    return (
        f"The part of {change.words} in the score gap {moved}, by {decimal(abs(change.change))}{_unit(change)}",
        f"The largest change runs through {change.words}{note}: its part of the score gap {moved}, {_from_to(change)} "
        f"({_sure(change, p_adjusted)}). This does not show whether the input has a business reason.",
    )


def _weighing_words(change: Change, p_adjusted: float, answer: Answer) -> tuple[str, str]:
    what = "The difference in how the same inputs are weighed for different groups"
    if answer == "no":
        return "No change in weighing found", _not_found(what, change, p_adjusted)
    more = "more" if change.change > 0 else "less"
    return (
        f"The same inputs are weighed {more} differently, by {decimal(abs(change.change))}",
        f"The same inputs are weighed {more} differently for comparable people of different groups: weighing went "
        f"{_from_to(change)} ({_sure(change, p_adjusted)}). This does not show which weights are right.",
    )


def _excess_words(change: Change, p_adjusted: float, answer: Answer) -> tuple[str, str]:
    what = "The excess, that is, how much farther apart explanations are across groups than within,"
    if answer == "no":
        return "No change in the excess found", _not_found(what, change, p_adjusted)
    moved = "farther apart" if change.change > 0 else "closer together"
    return (
        f"Explanations moved {moved} across groups, by {decimal(abs(change.change))}",
        f"Explanations of comparable people of different groups moved {moved}: the excess went {_from_to(change)} "
        f"({_sure(change, p_adjusted)}). This does not show whether inputs or weights make the difference.",
    )


_WORDS: dict[FindingKey, Callable[[Change, float, Answer], tuple[str, str]]] = {
    "score_gap": _score_words,
    "inputs": _input_words,
    "weighing": _weighing_words,
    "excess": _excess_words,
}


COMPARISON_SCHEMA = "evenhand.comparison/2"

# The meaning of a metric depends on these; the other settings only change how finely it is computed.
_DEFINING = {
    "financial_features": "people were matched on different features, so every metric of reasoning measures something "
    "else",
    "consistency_threshold": "Regimes B and D have a different threshold",
    "max_distance": "different people have a match",
    "groups": "different groups were compared",
    "attribution": "people were explained with a different method, so every metric of reasoning measures something else"
    "",
}
_NOTED = {
    "decision_threshold": "decisions have a different threshold, which alone can change rates, gaps and regimes",
    "n_steps": "attributions were integrated with a different number of steps",
    "method": "attributions were integrated with a different method",
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
    def sentences(self) -> tuple[str, ...]:
        """The outcome in words: for each audit the four questions, strongest first, and how many metrics changed."""
        lines = []
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
            "schema": COMPARISON_SCHEMA,
            "names": list(self.names),
            "base": self.base,
            "headline": self.headline,
            "findings": [finding.to_dict() for finding in self.findings],
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
        with write_atomically(path) as temporary:
            temporary.write_text(comparison_page(self.to_dict()), encoding="utf-8")


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
    >>> found = compare_audits({"spring": audited(0, 0.0), "summer": audited(1, 1.0)})
    >>> found.findings[0].key, found.findings[0].answer
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
    sources = dict(zip(names, (_Source.of(name, audit) for name, audit in audits.items()), strict=True))
    first = sources[chosen]
    others = [sources[name] for name in names if name != chosen]
    differences = tuple(d for other in others for d in _setting_differences(first, other))
    _check_settings(differences, allow_different_settings)
    changes: list[Change] = []
    pairings: list[Pairing] = []
    for other in others:
        found = _changes(first, other, is_same=_is_same(first, other, same_people))
        pairings.append(_pairing(first, other, found, same_people))
        changes += found
    findings, adjusted = changed_findings(changes)
    reservations = tuple(_reservations(first, others, differences))
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
        warnings=reservations,
    )


# --- what was given ---


def _lacks_people(data: Mapping[str, Any]) -> bool:
    """Whether an audit has no labels, decisions or probabilities with which people could be compared one by one."""
    scope = data.get("scope")
    if scope is None:
        return False
    return not (scope["has_labels"] and scope["has_decisions"] and scope["outcome"] == "score")


@dataclass(frozen=True, eq=False)
class _Source:
    name: str
    data: Mapping[str, Any]
    pairs: pd.DataFrame | None

    @classmethod
    def of(cls, name: object, audit: Audit) -> _Source:
        data = summary_of(name, audit)
        if _lacks_people(data) or "weighting" in data:
            return cls(str(name), data, None)  # changes within people require equal weights
        if isinstance(audit, AuditResult):
            return cls(str(name), data, sorted_pairs(audit.pairs))
        pairs = None if isinstance(audit, Mapping) else pairs_beside(audit, data)
        return cls(str(name), data, None if pairs is None else sorted_pairs(pairs))

    @property
    def financial_features(self) -> list[str]:
        return sorted(self.data["settings"]["financial_features"])

    @property
    def influences(self) -> Influences:
        return Influences.from_dict(self.data.get("influences", {}))

    @property
    def groups(self) -> list[str]:
        return sorted(self.data["data"]["groups"])


def _weights(source: _Source) -> str | None:
    return "given" if "weighting" in source.data else None


def _is_finely_integrated(source: _Source) -> bool:
    """Whether an audit reports that its attributions are close to the integral, in any number of steps."""
    error = source.data["data"].get("integration_error")
    return error is not None and error <= _FINE


def _setting_differences(base: _Source, other: _Source) -> list[SettingDifference]:
    ours, theirs = (
        {**source.data["settings"], "groups": source.groups, "sample_weight": _weights(source)}
        for source in (base, other)
    )
    found = []
    is_fine = _is_finely_integrated(base) and _is_finely_integrated(other)
    for setting, consequence in (_DEFINING | _NOTED).items():
        if setting not in ours or setting not in theirs:
            continue  # one of the audits is older than the setting
        if setting == "n_steps" and is_fine:
            continue  # each network has as many as it needs
        own, value = comparable(ours[setting]), comparable(theirs[setting])
        if own != value:
            found.append(SettingDifference(other.name, setting, own, value, consequence, setting in _DEFINING))
    return found


def _check_settings(differences: Sequence[SettingDifference], allow: bool) -> None:
    defining = [d.sentence for d in differences if d.is_defining]
    if defining and not allow:
        raise InvalidInputError(
            f"The audits have different settings. {' '.join(defining)} Run the audit again with the same settings, "
            "or compare anyway with `allow_different_settings=True`."
        )


def _is_same(base: _Source, other: _Source, same_people: bool | None) -> bool:
    """Whether two audits are treated as audits of the same people."""
    found = is_same_people(base.data["data"], other.data["data"])
    if same_people and found is False:
        raise InvalidInputError(
            f"`same_people=True`, but {base.name} and {other.name} differ in the number, labels, groups or features of "
            "their people: give audits of the same people, or leave `same_people` out."
        )
    return bool(found) if same_people is None else same_people


def _pairing(base: _Source, other: _Source, changes: Sequence[Change], same_people: bool | None) -> Pairing:
    """What is known about the people, in words."""
    answers = {c.is_paired for c in changes if c.finding is not None}
    decisions = {c.is_paired for c in changes if c.part == "outcome"}
    if True in answers | decisions:
        words = _WITHIN_PEOPLE if answers <= {True} and decisions <= {True} else _SOME_WITHIN_PEOPLE
        words = _ANSWERS_WITHIN_PEOPLE if True in answers and True not in decisions else words
    elif _is_same(base, other, same_people):
        words = _SAME_PEOPLE_IN_FILES
    elif same_people is None and is_same_people(base.data["data"], other.data["data"]) is None:
        words = _UNKNOWN_PEOPLE
    else:
        words = _DIFFERENT_PEOPLE
    return Pairing(other.name, True in answers | decisions, words.format(f"{other.name} and {base.name}"))


_MOVED = "more than noise"
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


def _reservations(base: _Source, others: Sequence[_Source], differences: Sequence[SettingDifference]) -> Iterable[str]:
    yield from (d.sentence for d in differences)
    for source in (base, *others):
        if source.data["evidence"] is None:
            yield f"{source.name} was audited without evidence, so the four questions cannot be compared."
    columns = {source.name: {row["feature"] for row in source.data["features"]} for source in (base, *others)}
    for other in others:
        for one, two in ((base.name, other.name), (other.name, base.name)):
            only = sorted(columns[one] - columns[two])
            if only:
                yield f"Features in {one} but not in {two}: {listed(only, 8)}."
    if any(source.data["versions"].get("evenhand") != base.data["versions"].get("evenhand") for source in others):
        yield "The audits were made with different versions of evenhand."


# --- changes ---


def _changes(base: _Source, other: _Source, *, is_same: bool) -> list[Change]:
    """Changes of every metric in both audits, and of the inputs in either."""
    reference = base.data["outcome"]["approvals"]["reference"]
    reference = reference if reference in other.groups else None
    ours = audit_metrics(base.data, reference, base.pairs)
    theirs = audit_metrics(other.data, reference, other.pairs)
    ours, theirs = _with_inputs(ours, theirs, base.name), _with_inputs(theirs, ours, other.name)
    within = _errors_within(base, other, ours, theirs) if is_same else {}
    return [
        change_of(other.name, metric, theirs[key], within.get(key)) for key, metric in ours.items() if key in theirs
    ]


def _with_inputs(
    metrics: Mapping[str, AuditMetric], others: Mapping[str, AuditMetric], name: str
) -> dict[str, AuditMetric]:
    """The metrics, with a part of 0 in the score gap for each input that only the other model has."""
    known = {metric.groups for metric in metrics.values() if metric.part == "inputs"}
    absent = {
        key: replace(
            metric, value=0.0, standard_error=0.0, df=math.inf, influence=None, note=f"{name} does not have this input"
        )
        for key, metric in others.items()
        if metric.part == "inputs" and key not in metrics and metric.groups in known
    }
    return {**metrics, **absent}


def _errors_within(
    base: _Source, other: _Source, ours: Mapping[str, AuditMetric], theirs: Mapping[str, AuditMetric]
) -> dict[str, float]:
    """Standard errors of changes for the same people, by key of the metric, for the metrics that allow it."""
    own, new = base.influences, other.influences
    found: dict[str, float] = {}
    # Buckets depend on finances, so different financial features give different buckets for the same people.
    is_kept = bool(own.columns and new.columns) and base.financial_features == other.financial_features
    for key in (key for key in ours if key in theirs and is_kept):
        errors = ours[key].standard_error, theirs[key].standard_error
        first, second = own.on(ours[key].influence, ours[key].sign), new.on(theirs[key].influence, theirs[key].sign)
        if 0 in errors:
            found[key] = math.hypot(*errors)  # a constant is uncorrelated with everything
        elif first is not None and second is not None:
            found[key] = standard_error_of_difference(*errors, first, second)
    if base.pairs is not None and other.pairs is not None:
        reference = base.data["outcome"]["approvals"]["reference"]
        found |= errors_within_people(base.pairs, other.pairs, reference, base.data, other.data)
    return found
