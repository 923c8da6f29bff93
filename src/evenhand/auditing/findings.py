"""Four questions about a model, each answered with an estimate, an interval, a p-value and a sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from scipy import stats

from evenhand.auditing.options import FindingKey
from evenhand.metrics.adjustment import holm
from evenhand.metrics.estimate import Plain, size_found
from evenhand.metrics.proxies import PERFECT_PROXY
from evenhand.report.formatting import count, decimal, is_number, listed, p_value, percent

Data = Mapping[str, Any]

_LEVEL = 0.05


def within_limit(limit: float, estimates: Sequence[Data], *, has_side: bool) -> Literal["yes", "no", "open"]:
    """Whether all estimates are smaller than a limit: "no" if one is clearly larger, "open" if neither is clear.

    Parameters
    ----------
    limit
        A size above 0.
    estimates
        Each with `value`, `low`, `high`, `p_value`, `standard_error` and `df`.
    has_side
        Whether an estimate below 0 is as large as one above; if not, negative estimates are below any limit.

    Examples
    --------
    >>> gap = {"value": -0.04, "low": -0.08, "high": 0.0, "p_value": 0.05, "standard_error": 0.02, "df": 500.0}
    >>> [within_limit(limit, [gap], has_side=True) for limit in (0.1, 0.05)]
    ['yes', 'open']
    """
    # All are smaller only if each one is, which needs no adjustment for their number.
    if all(
        is_number(one["low"])
        and is_number(one["high"])
        and one["high"] < limit
        and (one["low"] > -limit or not has_side)
        for one in estimates
    ):
        return "yes"
    return "no" if beyond_limit(limit, estimates, has_side=has_side) else "open"


def beyond_limit(limit: float, estimates: Sequence[Data], *, has_side: bool) -> list[Data]:
    """The estimates that are clearly larger, by intervals that allow for their number (Bonferroni)."""
    level = 1 - _LEVEL / (2 * len(estimates))
    return [
        one
        for one in estimates
        if is_number(one["p_value"])
        and (abs(one["value"]) if has_side else one["value"])
        - float(stats.t.ppf(level, one["df"])) * one["standard_error"]
        > limit
    ]


Answer = Literal["yes", "no", "open", "not possible"]

_SIGNED: tuple[FindingKey, ...] = ("score_gap", "inputs")  # either group may be worse off
_ORDER = {"yes": 0, "no": 1, "open": 2, "not possible": 3}
NAMES: dict[FindingKey, str] = {
    "score_gap": "Score gap",
    "inputs": "Inputs",
    "weighing": "Weighing",
    "excess": "Excess",
}
"""A name for each question."""


@dataclass(frozen=True)
class Finding(Plain):
    """The answer to one question.

    Attributes
    ----------
    key, question
        Which of the four questions it is.
    estimate, ci, unit
        The statistic with its 95% interval.
    p_value, p_adjusted
        For the null hypothesis of no effect; adjusted over the four questions (Holm).
    answer
        "yes", "no", "open" if it could not be tested, or "not possible" if the inputs do not allow an answer.
    headline, sentence
        The answer in a few words, and in a sentence that says what it does not show.
    limit, within_limit
        The size below which the user regards it as small, and whether it is: "yes" if the interval lies within the
        limit, "no" if it lies beyond, "open" otherwise; None without a limit. For "inputs", every input counts, and
        with several groups every two of them. `answer` does not depend on it: `answer` is about evidence, the limit
        about size.
    features
        For "inputs": each input's part of the score gap, and how well it predicts the group. They sum to the gap.
    """

    key: FindingKey
    question: str
    estimate: float
    ci: tuple[float, float]
    unit: str
    p_value: float
    p_adjusted: float
    answer: Answer
    headline: str
    sentence: str
    limit: float | None = None
    within_limit: Answer | None = None
    features: tuple[Mapping[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the summary."""
        plain = super().to_dict()
        if self.key != "inputs":
            del plain["features"]
        return plain


def findings_of(summary: Data) -> tuple[Finding, ...]:
    """The four findings of an audit's summary, strongest first; empty if the audit was run without evidence."""
    if summary["evidence"] is None:
        return ()
    scope = summary.get("scope") or _WITH_MODEL
    impossible, limits = scope["not_possible"], summary["settings"].get("limits") or {}
    bases = [_basis(key, summary) for key in NAMES if key not in impossible]
    adjusted = holm([basis["p_value"] for basis in bases]).tolist()
    shared = {"n_asked": sum(is_number(basis["p_value"]) for basis in bases), "scope": scope}
    answered = [
        _answered({**basis, **shared, "p_adjusted": p}, limits.get(basis["key"]))
        for basis, p in zip(bases, adjusted, strict=True)
    ]
    nan = math.nan
    for key in (key for key in NAMES if key in impossible):
        headline = f"{NAMES[key]}: not possible with the given inputs"
        answered.append(
            Finding(key, _QUESTIONS[key], nan, (nan, nan), "", nan, nan, "not possible", headline, impossible[key])
        )
    return tuple(sorted(answered, key=lambda one: (_ORDER[one.answer], _last(one.p_adjusted), one.key != "inputs")))


_WITH_MODEL: Data = {"outcome": "score", "has_labels": True, "has_decisions": True, "not_possible": {}}


def headline_of(findings: Sequence[Finding]) -> str:
    """The strongest finding in a few words, or a statement that nothing was found."""
    strongest = next((one for one in findings if one.answer == "yes"), None)
    if strongest is not None:
        return strongest.headline
    n = sum(one.answer != "not possible" for one in findings)
    if n == len(findings):
        return "None of the four questions was answered with yes"
    if n == 1:
        return "The one question that could be asked was not answered with yes"
    return f"None of the {'two' if n == 2 else 'three'} questions that could be asked was answered with yes"


def _last(p: float | None) -> float:
    return math.inf if p is None or not is_number(p) else p


def _basis(key: FindingKey, summary: Data) -> dict[str, Any]:
    """What a question is answered from: its estimate (`of`), and all `estimates` that a limit is compared with."""
    if key == "inputs":
        return _basis_of_inputs(summary)
    if key == "score_gap":
        gaps, named = summary["score_gaps"], summary["score_gap"]
        gap = next(gap for gap in gaps if all(gap[side] == named[side] for side in ("group", "reference")))
        basis = {"of": gap["total"], "unit": gap["unit"], "p_value": gap["p_adjusted"], "gap": gap}
        return {"key": key, **basis, "estimates": [gap["total"] for gap in gaps]}
    of = summary["evidence"]["reasoning_gap" if key == "weighing" else "cec"]
    return {"key": key, "of": of, "unit": "CEC score", "p_value": of["p_value"], "estimates": [of]}


def _basis_of_inputs(summary: Data) -> dict[str, Any]:
    """The largest input that stands out, for the two groups where one stands out most clearly.

    An input that nearly identifies the group and moves scores stands out whatever its p-value.
    """
    gaps, proxies = summary["score_gaps"], summary["proxies"]
    gap = min(gaps, key=lambda gap: _last(gap["smallest_p"]))
    auc = {} if proxies is None else {row["feature"]: row["auc"] for row in proxies["features"]}
    features = [
        {
            "feature": row["feature"],
            "estimate": row["value"],
            "ci": (row["low"], row["high"]),
            "p_adjusted": row["p_adjusted"],
            "tells_group_auc": auc.get(row["feature"], math.nan),
        }
        for row in gap["features"]
    ]
    telling = [
        row
        for row in features
        if _tells_group(row) and is_number(row["ci"][0]) and (row["ci"][0] > 0 or row["ci"][1] < 0)
    ]
    clear = [row for row in features if row in telling or _last(row["p_adjusted"]) <= _LEVEL]
    clear.sort(key=lambda row: (row not in telling, -abs(row["estimate"])))
    first = clear[0] if clear else min(features, key=lambda row: _last(row["p_adjusted"]))
    p = gap["smallest_p"]
    return {
        "key": "inputs",
        "of": next(row for row in gap["features"] if row["feature"] == first["feature"]),
        "unit": gap["unit"],
        # The groups were selected for their input: apply Bonferroni over the pairs of groups.
        "p_value": min(1.0, p * len(gaps)) if is_number(p) else p,
        "gap": gap,
        "estimates": [row for gap in gaps for row in gap["features"]],
        "features": features,
        "clear": clear,
        "telling": telling,
    }


def _tells_group(row: Data) -> bool:
    return is_number(row["tells_group_auc"]) and row["tells_group_auc"] > PERFECT_PROXY


_QUESTIONS: dict[FindingKey, str] = {
    "score_gap": "Do comparable people of different groups get different scores?",
    "inputs": "Through which inputs?",
    "weighing": "Are the same inputs weighed differently?",
    "excess": "Are explanations farther apart across groups than within?",
}
_OF_DECISIONS = "Do comparable people of different groups get different decisions?"


def _answered(basis: Data, limit: float | None) -> Finding:
    key, of, p_adjusted = basis["key"], basis["of"], basis["p_adjusted"]
    is_clear = is_number(p_adjusted) and p_adjusted <= _LEVEL
    answer: Answer = "yes" if is_clear or basis.get("telling") else "no" if is_number(p_adjusted) else "open"
    words = {"score_gap": _score_words, "inputs": _input_words, "weighing": _weighing_words, "excess": _excess_words}
    headline, sentence = words[key](basis, answer)
    within: Answer | None = None
    if limit is not None:
        within = within_limit(limit, basis["estimates"], has_side=key in _SIGNED)
        subject = _limited_size(key, limit, basis["estimates"])
        shown = f"{limit:g}, the limit you set"
        sentence += (
            f" Whether {subject} is below {shown}, is open."
            if within == "open"
            else f" {subject[:1].upper()}{subject[1:]} is {'below' if within == 'yes' else 'above'} {shown}."
        )
    is_of_decisions = key == "score_gap" and basis["scope"]["outcome"] == "decision"
    return Finding(
        key=key,
        question=_OF_DECISIONS if is_of_decisions else _QUESTIONS[key],
        estimate=of["value"],
        ci=(of["low"], of["high"]),
        unit=basis["unit"],
        p_value=basis["p_value"],
        p_adjusted=p_adjusted,
        answer=answer,
        headline=headline,
        sentence=sentence,
        limit=limit,
        within_limit=within,
        features=tuple(basis.get("features", ())),
    )


def _limited_size(key: FindingKey, limit: float, estimates: Sequence[Data]) -> str:
    """What is compared with a limit: all estimates, or those beyond it."""
    if key not in _SIGNED:
        return "the difference in weights" if key == "weighing" else "the excess"
    beyond = beyond_limit(limit, estimates, has_side=True)
    if key == "score_gap":
        one_of_many = "a gap between two groups" if beyond else "the gap between every two groups"
        return "the gap" if len(estimates) == 1 else one_of_many
    names = list(dict.fromkeys(row["feature"] for row in beyond))
    return f"the effect through {'each of ' if len(names) > 1 else ''}{listed(names) if names else 'every input'}"


def _sure(basis: Data) -> str:
    low, high = basis["of"]["low"], basis["of"]["high"]
    shown = p_value(basis["p_adjusted"])
    return f"95% interval {decimal(low)} to {decimal(high)}, adjusted p {shown if shown[0] in '<>' else f'= {shown}'}"


def _size_found(basis: Data) -> str:
    """The smallest size that would have been found in 80% of audits.

    If it were the only effect, Holm would compare it with the level divided by the number of questions and, for a score
    gap, of pairs of groups.
    """
    level, sides = _LEVEL / (basis["n_asked"] * len(basis["estimates"])), 2 if basis["key"] in _SIGNED else 1
    size = decimal(size_found(basis["of"]["standard_error"], basis["of"]["df"], level, sides=sides))
    return f"of {size} would have been found in 80% of audits; smaller ones may exist"


_COMPARED = {"score": "scores", "value": "outcomes", "decision": "decisions"}
_SAME = {
    "score": "the model gives comparable people the same score",
    "value": "comparable people get the same",
    "decision": "comparable people get the same decisions",
}


def _score_words(basis: Data, answer: Answer) -> tuple[str, str]:
    gap, scope, of = basis["gap"], basis["scope"], basis["of"]
    outcome, group, reference, value = scope["outcome"], gap["group"], gap["reference"], of["value"]
    name = "decision gap" if outcome == "decision" else "score gap"
    if answer == "open":
        return f"{name.capitalize()} not estimated", f"Whether {_COMPARED[outcome]} differ is not known: {of['note']}."
    at_equal = "At equal finances and label" if scope["has_labels"] else "At equal finances"
    if of["standard_error"] == 0:
        return f"No {name}", f"{at_equal}, {_SAME[outcome]}."
    if answer == "no":
        return (
            f"No {name} found",
            f"No {name} at equal finances was found between {group} and {reference} ({decimal(value)} {gap['unit']}; "
            f"{_sure(basis)}). A gap {_size_found(basis)}.",
        )
    size = f"{decimal(abs(value))} {gap['unit']}"
    told = {
        "decision": f"{group} gets favorable decisions {decimal(abs(100 * value), 1)} points "
        f"{'less' if value < 0 else 'more'} often than {reference}",
        "value": f"{group} is {size} {'worse' if value < 0 else 'better'} off than {reference}",
        "score": f"{group} scores {size} {'lower' if value < 0 else 'higher'} than {reference}",
    }[outcome]
    beside = ""
    if outcome == "score":
        beside += f", {decimal(abs(100 * gap['probability']['value']), 1)} points of probability"
    if scope["has_decisions"]:
        beside += (
            f"; of {gap['n_favor_group'] + gap['n_favor_reference']:,} pairs with different decisions, "
            f"{gap['n_favor_reference']:,} favor {reference}"
        )
    return (
        f"{told} at equal finances",
        f"{at_equal}, {told} ({_sure(basis)}){beside}. This does not show why, or that the difference is unjustified.",
    )


def _input_words(basis: Data, answer: Answer) -> tuple[str, str]:
    gap = basis["gap"]
    if answer == "open":
        return "Inputs not tested", "No input has a value in enough people to be tested."
    if answer == "no":
        return (
            "No input stands out",
            f"No single input makes a difference between {gap['group']} and {gap['reference']} at equal finances that "
            f"chance could not explain (smallest p {p_value(gap['smallest_p'])}, adjusted for {len(basis['features'])} "
            "inputs).",
        )
    shown = []
    for row in basis["clear"][:3]:
        telling = f", predicts the group with AUC {decimal(row['tells_group_auc'], 2)}" if _tells_group(row) else ""
        shown.append(f"{row['feature']} ({decimal(row['estimate'])} {gap['unit']}{telling})")
    first = basis["clear"][0]
    headline = f"{first['feature']} moves scores by {decimal(abs(first['estimate']))} {gap['unit']} between groups"
    if basis["telling"]:
        headline += f", and predicts the group (AUC {decimal(first['tells_group_auc'], 2)})"
    return (
        headline,
        f"The difference between {gap['group']} and {gap['reference']} at equal finances runs through {listed(shown)}. "
        "This does not show whether the input has a business reason.",
    )


def _weighing_words(basis: Data, answer: Answer) -> tuple[str, str]:
    value = basis["of"]["value"]
    if answer == "open":
        return "Weights not compared", f"Whether weights differ is not known: {basis['of']['note']}."
    if answer == "no" and basis["of"]["standard_error"] == 0:
        return "The same weights for everyone", "The model weighs the same inputs the same way for everyone."
    if answer == "no":
        return (
            "No difference in weights found",
            f"No evidence was found that the same inputs are weighed differently between groups ({decimal(value)}; "
            f"{_sure(basis)}). A difference {_size_found(basis)}.",
        )
    angle = math.degrees(2 * math.asin(min(max(value, 0.0), 1.0)))
    return (
        "The model weighs the same inputs differently for different groups",
        f"The same inputs are weighed differently for comparable people of different groups: by {decimal(value)} more "
        f"than within a group ({_sure(basis)}), as if explanations were rotated by {decimal(angle, 1)} degrees. This "
        "does not show which weights are right.",
    )


def _excess_words(basis: Data, answer: Answer) -> tuple[str, str]:
    value, high = basis["of"]["value"], basis["of"]["high"]
    if answer == "open":
        return "Explanations not compared", f"Whether explanations differ is not known: {basis['of']['note']}."
    if answer == "no":
        is_spread = is_number(high) and high < 0
        spread = " Explanations vary less across groups than within: the groups' explanations differ in spread."
        return (
            "No excess over placebo pairs was found",
            f"No evidence was found that explanations are farther apart across groups than within ({decimal(value)}; "
            f"{_sure(basis)}).{spread if is_spread else ''}",
        )
    return (
        f"Explanations are {decimal(value)} farther apart across groups than within",
        f"The CEC score of comparable people of different groups is {decimal(value)} higher than that of equally "
        f"distant people of the same group ({_sure(basis)}). This does not show whether inputs or weights make the "
        "difference.",
    )


@dataclass(frozen=True)
class Verdict(Plain):
    """The conclusion of an audit, in words.

    Attributes
    ----------
    headline
        The strongest finding in a few words.
    sentences
        A name and a sentence for each of the four questions, the strongest finding first; without evidence, what was
        measured and how certain it is.
    limits
        What the audit does not show.
    is_constant
        Whether decisions are (almost) the same for everyone, so that agreement says little.
    """

    headline: str
    sentences: tuple[tuple[str, str], ...]
    limits: str
    is_constant: bool


def verdict(summary: Mapping[str, Any], findings: Sequence[Finding]) -> Verdict:
    """The verdict on the summary of an audit (`AuditResult.to_dict`) and its findings.

    Decisions that hardly vary are mentioned in the headline and the last sentence, whatever was found.
    """
    outcome = summary["outcome"]
    is_constant = is_number(outcome["positive_rate"]) and bool(outcome["notes"].get("positive_rate"))
    headline = headline_of(findings) if findings else "Not compared with noise"
    sentences = [(NAMES[one.key], one.sentence) for one in findings] or [
        (
            "Measured",
            f"Over {count(summary['cec']['n_pairs'])} pairs of comparable people from different groups, the mean CEC "
            f"score is {decimal(summary['cec']['mean'])} (0: identical reasoning, 1: opposed), and "
            f"{percent(summary['regimes']['B'])} of pairs get the same decision for different reasons.",
        ),
        (
            "Certainty",
            "How much of this is matching noise is not known: the audit was run without evidence, so there are no "
            "placebo pairs to compare with.",
        ),
    ]
    n = len(summary["settings"]["financial_features"])
    label = " and the label" if (summary.get("scope") or _WITH_MODEL)["has_labels"] else ""
    scope = f"people are compared here by {n} financial feature{'' if n == 1 else 's'}{label}, and nothing else"
    limits = f"None of this shows that anyone was treated lawfully or unlawfully: {scope}."
    if is_constant:
        limits = (
            f"Decisions hardly vary ({percent(outcome['positive_rate'])} are favorable), so agreement between people "
            "follows from that alone and does not speak for the model."
        )
    elif not findings:
        limits = f"This is a description and supports no conclusion about groups: {scope}."
    return Verdict(
        headline=headline + ("; decisions hardly vary" if is_constant else ""),
        sentences=tuple(sentences),
        limits=limits,
        is_constant=is_constant,
    )
