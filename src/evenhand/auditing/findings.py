"""Four questions about a model, each answered with an estimate, an interval, a p-value and a sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from scipy import stats

from evenhand.auditing.options import FindingKey
from evenhand.metrics.adjustment import holm
from evenhand.metrics.estimate import size_found
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
    if all(_is_inside(limit, one, has_side) for one in estimates):
        return "yes"
    return "no" if beyond_limit(limit, estimates, has_side=has_side) else "open"


def beyond_limit(limit: float, estimates: Sequence[Data], *, has_side: bool) -> list[Data]:
    """The estimates that are clearly larger, by intervals that allow for their number (Bonferroni)."""
    return [one for one in estimates if _is_beyond(limit, one, has_side, len(estimates))]


def _is_inside(limit: float, one: Data, has_side: bool) -> bool:
    low, high = one["low"], one["high"]
    return is_number(low) and is_number(high) and high < limit and (low > -limit or not has_side)


def _is_beyond(limit: float, one: Data, has_side: bool, n: int) -> bool:
    if not is_number(one["p_value"]):
        return False
    size = abs(one["value"]) if has_side else one["value"]
    half = float(stats.t.ppf(1 - _LEVEL / (2 * n), one["df"])) * one["standard_error"]
    return bool(size - half > limit)


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
class Finding:
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
    features: tuple[Mapping[str, Any], ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the summary."""
        plain = asdict(self)
        if self.key != "inputs":
            del plain["features"]
        return plain


def findings_of(summary: Data) -> tuple[Finding, ...]:
    """The four findings of an audit's summary, strongest first; empty if the audit was run without evidence."""
    if summary["evidence"] is None:
        return ()
    scope = summary.get("scope") or _WITH_MODEL
    asked: dict[FindingKey, Callable[[Data], dict[str, Any]]] = {
        "score_gap": _score_gap,
        "inputs": _inputs,
        "weighing": _weighing,
        "excess": _excess,
    }
    found = [ask(summary) for key, ask in asked.items() if key not in scope["not_possible"]]
    adjusted = holm([one["p_value"] for one in found])
    n_asked = sum(is_number(one["p_value"]) for one in found)
    limits = summary["settings"].get("limits") or {}
    answered = [
        _limited(
            _answered({**one, "p_adjusted": float(p), "n_asked": n_asked, "scope": scope}),
            limits.get(one["key"]),
            one["estimates"],
        )
        for one, p in zip(found, adjusted, strict=True)
    ]
    answered += [_not_possible(key, scope["not_possible"][key]) for key in asked if key in scope["not_possible"]]
    return tuple(sorted(answered, key=lambda one: (_ORDER[one.answer], _last(one.p_adjusted), one.key != "inputs")))


_WITH_MODEL: Data = {"outcome": "score", "has_labels": True, "has_decisions": True, "not_possible": {}}


def _not_possible(key: FindingKey, why: str) -> Finding:
    nan = math.nan
    headline = f"{NAMES[key]}: not possible with the given inputs"
    return Finding(key, _QUESTIONS[key], nan, (nan, nan), "", nan, nan, "not possible", headline, why)


def headline_of(findings: Sequence[Finding]) -> str:
    """The strongest finding in a few words, or a statement that nothing was found."""
    found = [one for one in findings if one.answer == "yes"]
    if found:
        return found[0].headline
    n = sum(one.answer != "not possible" for one in findings)
    if n == len(findings):
        return "None of the four questions was answered with yes"
    if n == 1:
        return "The one question that could be asked was not answered with yes"
    return f"None of the {'two' if n == 2 else 'three'} questions that could be asked was answered with yes"


def _last(p: float | None) -> float:
    return math.inf if p is None or not is_number(p) else p


def _estimate(key: FindingKey, estimate: Data, unit: str, p: float) -> dict[str, Any]:
    return {
        "key": key,
        "estimate": estimate["value"],
        "ci": (estimate["low"], estimate["high"]),
        "unit": unit,
        "p_value": p,
        "of": estimate,
        "estimates": [estimate],
    }


def _score_gap(summary: Data) -> dict[str, Any]:
    named = summary["score_gap"]["group"], summary["score_gap"]["reference"]
    gap = next(gap for gap in summary["score_gaps"] if (gap["group"], gap["reference"]) == named)
    every = [gap["total"] for gap in summary["score_gaps"]]
    return {**_estimate("score_gap", gap["total"], gap["unit"], gap["p_adjusted"]), "gap": gap, "estimates": every}


def _inputs(summary: Data) -> dict[str, Any]:
    """The largest input that stands out, for the two groups where one stands out most clearly.

    An input that nearly identifies the group and moves scores stands out whatever its p-value.
    """
    gap = min(summary["score_gaps"], key=lambda gap: _last(gap["smallest_p"]))
    proxies = summary["proxies"]
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
    telling = [row for row in features if _last(-_known(row["tells_group_auc"])) < -PERFECT_PROXY and _moves(row)]
    clear = [row for row in features if row in telling or _last(row["p_adjusted"]) <= _LEVEL]
    clear.sort(key=lambda row: (row not in telling, -abs(row["estimate"])))
    first = clear[0] if clear else min(features, key=lambda row: _last(row["p_adjusted"]))
    of = next(row for row in gap["features"] if row["feature"] == first["feature"])
    # The groups were selected for their input: apply Bonferroni over the pairs of groups.
    p = (
        gap["smallest_p"]
        if not is_number(gap["smallest_p"])
        else min(1.0, gap["smallest_p"] * len(summary["score_gaps"]))
    )
    return {
        **_estimate("inputs", of, gap["unit"], p),
        "gap": gap,
        "estimates": [row for gap in summary["score_gaps"] for row in gap["features"]],
        "features": features,
        "clear": clear,
        "telling": telling,
    }


def _known(value: float) -> float:
    return value if is_number(value) else 0.0


def _moves(row: Data) -> bool:
    low, high = row["ci"]
    return is_number(low) and (low > 0 or high < 0)


def _weighing(summary: Data) -> dict[str, Any]:
    estimate = summary["evidence"]["reasoning_gap"]
    return _estimate("weighing", estimate, "CEC score", estimate["p_value"])


def _excess(summary: Data) -> dict[str, Any]:
    estimate = summary["evidence"]["cec"]
    return _estimate("excess", estimate, "CEC score", estimate["p_value"])


_QUESTIONS: dict[FindingKey, str] = {
    "score_gap": "Do comparable people of different groups get different scores?",
    "inputs": "Through which inputs?",
    "weighing": "Are the same inputs weighed differently?",
    "excess": "Are explanations farther apart across groups than within?",
}
_OF_DECISIONS = "Do comparable people of different groups get different decisions?"


def _answered(one: dict[str, Any]) -> Finding:
    key, p_adjusted = one["key"], one["p_adjusted"]
    telling = one.get("telling", [])
    is_found = bool(telling) or (is_number(p_adjusted) and p_adjusted <= _LEVEL)
    answer: Answer = "yes" if is_found else "open" if not is_number(p_adjusted) else "no"
    words = {"score_gap": _score_words, "inputs": _input_words, "weighing": _weighing_words, "excess": _excess_words}
    headline, sentence = words[key](one, answer)
    is_of_decisions = key == "score_gap" and one["scope"]["outcome"] == "decision"
    return Finding(
        key=key,
        question=_OF_DECISIONS if is_of_decisions else _QUESTIONS[key],
        estimate=one["estimate"],
        ci=one["ci"],
        unit=one["unit"],
        p_value=one["p_value"],
        p_adjusted=p_adjusted,
        answer=answer,
        headline=headline,
        sentence=sentence,
        features=tuple(one.get("features", ())),
    )


def _limited(found: Finding, limit: float | None, estimates: Sequence[Data]) -> Finding:
    """The finding, with the size of all its estimates compared with a limit."""
    if limit is None:
        return found
    has_side = found.key in _SIGNED
    within = within_limit(limit, estimates, has_side=has_side)
    beyond = beyond_limit(limit, estimates, has_side=has_side)
    subject = _limited_size(found.key, beyond, n=len(estimates))
    shown = f"{limit:g}, the limit you set"
    words = {
        "yes": f"{subject[:1].upper()}{subject[1:]} is below {shown}.",
        "no": f"{subject[:1].upper()}{subject[1:]} is above {shown}.",
        "open": f"Whether {subject} is below {shown}, is open.",
    }
    return replace(found, limit=limit, within_limit=within, sentence=f"{found.sentence} {words[within]}")


def _limited_size(key: FindingKey, beyond: Sequence[Data], n: int) -> str:
    """What is compared with a limit: all estimates, or those beyond it."""
    if key == "score_gap":
        return "the gap" if n == 1 else "a gap between two groups" if beyond else "the gap between every two groups"
    if key == "inputs":
        names = list(dict.fromkeys(row["feature"] for row in beyond))
        return f"the effect through {'each of ' if len(names) > 1 else ''}{listed(names) if names else 'every input'}"
    return "the difference in weights" if key == "weighing" else "the excess"


def _sure(one: Data) -> str:
    low, high = one["ci"]
    shown = p_value(one["p_adjusted"])
    return f"95% interval {decimal(low)} to {decimal(high)}, adjusted p {shown if shown[0] in '<>' else f'= {shown}'}"


def _size_found(one: Data) -> str:
    """The smallest size that would have been found in 80% of audits.

    If it were the only effect, Holm would compare it with the level divided by the number of questions and, for a score
    gap, of pairs of groups.
    """
    level, sides = _LEVEL / (one["n_asked"] * len(one["estimates"])), 2 if one["key"] in _SIGNED else 1
    return decimal(size_found(one["of"]["standard_error"], one["of"]["df"], level, sides=sides))


def _score_words(one: Data, answer: Answer) -> tuple[str, str]:
    gap, scope = one["gap"], one["scope"]
    name = "decision gap" if scope["outcome"] == "decision" else "score gap"
    if answer == "open":
        what = _COMPARED[scope["outcome"]]
        return f"{name.capitalize()} not estimated", f"Whether {what} differ is not known: {one['of']['note']}."
    at_equal = "At equal finances and label" if scope["has_labels"] else "At equal finances"
    if one["of"]["standard_error"] == 0:
        return f"No {name}", f"{at_equal}, {_SAME[scope['outcome']]}."
    if answer == "no":
        return (
            f"No {name} found",
            f"No {name} at equal finances was found between {gap['group']} and {gap['reference']} "
            f"({decimal(one['estimate'])} {gap['unit']}; {_sure(one)}). A gap of {_size_found(one)} would have been "
            "found in 80% of audits; smaller ones may exist.",
        )
    told = _told(one, scope["outcome"])
    return (
        f"{told} at equal finances",
        f"{at_equal}, {told} ({_sure(one)}){_beside(gap, scope)}. This does not show why, or that the difference is "
        "unjustified.",
    )


_COMPARED = {"score": "scores", "value": "outcomes", "decision": "decisions"}
_SAME = {
    "score": "the model gives comparable people the same score",
    "value": "comparable people get the same",
    "decision": "comparable people get the same decisions",
}


def _told(one: Data, outcome: str) -> str:
    """Who is worse off, and by how much."""
    gap, value = one["gap"], one["estimate"]
    if outcome == "decision":
        often = f"{decimal(abs(100 * value), 1)} points {'less' if value < 0 else 'more'} often"
        return f"{gap['group']} gets favorable decisions {often} than {gap['reference']}"
    if outcome == "value":
        side = "worse" if value < 0 else "better"
        return f"{gap['group']} is {decimal(abs(value))} {gap['unit']} {side} off than {gap['reference']}"
    side = "lower" if value < 0 else "higher"
    return f"{gap['group']} scores {decimal(abs(value))} {gap['unit']} {side} than {gap['reference']}"


def _beside(gap: Data, scope: Data) -> str:
    """The gap in probability and in decisions, if there are any."""
    points = f", {decimal(abs(100 * gap['probability']['value']), 1)} points of probability"
    favor = (
        f"; of {gap['n_favor_group'] + gap['n_favor_reference']:,} pairs with different decisions, "
        f"{gap['n_favor_reference']:,} favor {gap['reference']}"
        if scope["has_decisions"]
        else ""
    )
    return f"{points if scope['outcome'] == 'score' else ''}{favor}"


def _input_words(one: Data, answer: Answer) -> tuple[str, str]:
    gap = one["gap"]
    if answer == "open":
        return "Inputs not tested", "No input has a value in enough people to be tested."
    if answer == "no":
        return (
            "No input stands out",
            f"No single input makes a difference between {gap['group']} and {gap['reference']} at equal finances that "
            f"chance could not explain (smallest p {p_value(gap['smallest_p'])}, adjusted for {len(one['features'])} "
            "inputs).",
        )
    named = one["clear"][:3]
    shown = [f"{row['feature']} ({decimal(row['estimate'])} {gap['unit']}{_telling(row)})" for row in named]
    first = named[0]
    headline = f"{first['feature']} moves scores by {decimal(abs(first['estimate']))} {gap['unit']} between groups"
    if one["telling"]:
        headline += f", and predicts the group (AUC {decimal(first['tells_group_auc'], 2)})"
    return (
        headline,
        f"The difference between {gap['group']} and {gap['reference']} at equal finances runs through {listed(shown)}. "
        "This does not show whether the input has a business reason.",
    )


def _telling(row: Data) -> str:
    auc = row["tells_group_auc"]
    return f", predicts the group with AUC {decimal(auc, 2)}" if is_number(auc) and auc > PERFECT_PROXY else ""


def _weighing_words(one: Data, answer: Answer) -> tuple[str, str]:
    if answer == "open":
        return "Weights not compared", f"Whether weights differ is not known: {one['of']['note']}."
    value, error = one["estimate"], one["of"]["standard_error"]
    if answer == "no":
        if error == 0:
            return "The same weights for everyone", "The model weighs the same inputs the same way for everyone."
        return (
            "No difference in weights found",
            f"No evidence was found that the same inputs are weighed differently between groups ({decimal(value)}; "
            f"{_sure(one)}). A difference of {_size_found(one)} would have been found in 80% of audits; smaller ones "
            "may exist.",
        )
    angle = math.degrees(2 * math.asin(min(max(value, 0.0), 1.0)))
    return (
        "The model weighs the same inputs differently for different groups",
        f"The same inputs are weighed differently for comparable people of different groups: by {decimal(value)} more "
        f"than within a group ({_sure(one)}), as if explanations were rotated by {decimal(angle, 1)} degrees. This "
        "does not show which weights are right.",
    )


def _excess_words(one: Data, answer: Answer) -> tuple[str, str]:
    if answer == "open":
        return "Explanations not compared", f"Whether explanations differ is not known: {one['of']['note']}."
    value = one["estimate"]
    if answer == "no":
        high = one["ci"][1]
        spread = (
            " Explanations vary less across groups than within: the groups' explanations differ in spread."
            if is_number(high) and high < 0
            else ""
        )
        return (
            "No excess over placebo pairs was found",
            f"No evidence was found that explanations are farther apart across groups than within ({decimal(value)}; "
            f"{_sure(one)}).{spread}",
        )
    return (
        f"Explanations are {decimal(value)} farther apart across groups than within",
        f"The CEC score of comparable people of different groups is {decimal(value)} higher than that of equally "
        f"distant people of the same group ({_sure(one)}). This does not show whether inputs or weights make the "
        "difference.",
    )


@dataclass(frozen=True)
class Verdict:
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

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the summary."""
        return asdict(self)


def verdict(summary: Mapping[str, Any], findings: Sequence[Finding]) -> Verdict:
    """The verdict on the summary of an audit (`AuditResult.to_dict`) and its findings.

    Decisions that hardly vary are mentioned in the headline and the last sentence, whatever was found.
    """
    outcome = summary["outcome"]
    is_constant = is_number(outcome["positive_rate"]) and bool(outcome["notes"].get("positive_rate"))
    headline = headline_of(findings) if findings else "Not compared with noise"
    return Verdict(
        headline=headline + ("; decisions hardly vary" if is_constant else ""),
        sentences=tuple((NAMES[one.key], one.sentence) for one in findings) or _without_evidence(summary),
        limits=_limits(summary, has_findings=bool(findings), is_constant=is_constant),
        is_constant=is_constant,
    )


def _without_evidence(summary: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    cec = summary["cec"]
    return (
        (
            "Measured",
            f"Over {count(cec['n_pairs'])} pairs of comparable people from different groups, the mean CEC score is "
            f"{decimal(cec['mean'])} (0: identical reasoning, 1: opposed), and {percent(summary['regimes']['B'])} of "
            "pairs get the same decision for different reasons.",
        ),
        (
            "Certainty",
            "How much of this is matching noise is not known: the audit was run without evidence, so there are no "
            "placebo pairs to compare with.",
        ),
    )


def _limits(summary: Mapping[str, Any], *, has_findings: bool, is_constant: bool) -> str:
    if is_constant:
        return (
            f"Decisions hardly vary ({percent(summary['outcome']['positive_rate'])} are favorable), so agreement "
            "between people follows from that alone and does not speak for the model."
        )
    n = len(summary["settings"]["financial_features"])
    has_labels = "scope" not in summary or summary["scope"]["has_labels"]
    label = " and the label, and nothing else" if has_labels else ", and nothing else"
    scope = f"people are compared here by {n} financial feature{'' if n == 1 else 's'}{label}"
    if not has_findings:
        return f"This is a description and supports no conclusion about groups: {scope}."
    return f"None of this shows that anyone was treated lawfully or unlawfully: {scope}."
