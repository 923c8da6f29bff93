"""Four questions about a model, each answered with an estimate, an interval, a p-value and a sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from scipy import stats

from evenhand.auditing.options import FindingKey
from evenhand.auditing.scope import DECISION_UNIT
from evenhand.metrics.adjustment import holm
from evenhand.metrics.estimate import Plain, size_found
from evenhand.metrics.proxies import PERFECT_PROXY, predicted_group
from evenhand.report.formatting import (
    capital,
    count,
    decimal,
    estimate_interval,
    fewer_or_more,
    is_number,
    listed,
    p_words,
    people_of,
    percent,
)
from evenhand.report.labels import Labels
from evenhand.report.section import number

Data = Mapping[str, Any]

_LEVEL = 0.05
_DETERMINES = 0.995  # area under the ROC curve from which it is 1.00 in two digits
_ROUNDING = 1e-6  # attributions are computed in single precision
APPROVALS, POINTS = "approvals per 1,000", "points of probability"
"""Plain units of a score gap."""


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
_OPTIONAL = {"is_optional": True}  # in the schema of the JSON


@dataclass(frozen=True)
class Size(Plain):
    """A finding in one unit.

    Attributes
    ----------
    value, low, high
        The estimate with its 95% interval; below 0, the group is worse off, unless the unit is that of a value.
    detectable
        The smallest size that would have been found in 80% of audits.
    """

    unit: str
    value: float
    low: float
    high: float
    detectable: float


@dataclass(frozen=True)
class InputPart(Plain):
    """The part of a score gap that runs through an input, and how well the input alone predicts the group."""

    feature: str
    estimate: float
    ci: tuple[float, float]
    p_adjusted: float
    tells_group_auc: float


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
    group, reference, feature
        Whom a score gap or an input is about, and which input; else empty.
    sizes
        The estimate in every unit that is known, the plainest first: approvals per 1,000 people, points of probability,
        and its own unit.
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
    features: tuple[InputPart, ...] = field(default=(), metadata=_OPTIONAL)
    group: str = field(default="", metadata=_OPTIONAL)
    reference: str = field(default="", metadata=_OPTIONAL)
    feature: str = field(default="", metadata=_OPTIONAL)
    sizes: tuple[Size, ...] = field(default=(), metadata=_OPTIONAL)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the summary."""
        plain = super().to_dict()
        if self.key != "inputs":
            del plain["features"]
        return plain


def findings_of(summary: Data) -> tuple[Finding, ...]:
    """The four findings of an audit's summary; empty if the audit was run without evidence.

    Answers with "yes" come first: a direct use of the group, the score gap, then the others, strongest first.
    """
    if summary["evidence"] is None:
        return ()
    scope = summary.get("scope") or _WITH_MODEL
    impossible, limits = scope["not_possible"], summary["settings"].get("limits") or {}
    bases = [_basis(key, summary) for key in NAMES if key not in impossible]
    # What is 0 without any error, such as the difference in weights of a linear model, is known, not tested.
    tested = [math.nan if _is_known_zero(basis["of"]) else basis["p_value"] for basis in bases]
    adjusted = [1.0 if _is_known_zero(b["of"]) else p for b, p in zip(bases, holm(tested).tolist(), strict=True)]
    is_low = summary["settings"]["favorable"] == "low"
    shared = {"n_asked": sum(map(is_number, tested)) or 1, "scope": scope, "is_low": is_low, "slope": _slope(summary)}
    answered = [
        _answered({**basis, **shared, "p_adjusted": p}, limits.get(basis["key"]))
        for basis, p in zip(bases, adjusted, strict=True)
    ]
    direct = [] if "inputs" in impossible else used_directly(summary)
    if direct:
        fact = _fact(summary, direct[0])
        gap, inputs = (next(one for one in answered if one.key == key) for key in ("score_gap", "inputs"))
        size = gap.headline if gap.answer == "yes" else inputs.headline
        headline = f"{fact}: {size.replace('Of 1,000', 'of 1,000')}" if size else fact
        answered = [replace(one, headline=headline) if one is inputs else one for one in answered]
    nan = math.nan
    for key in (key for key in NAMES if key in impossible):
        headline = f"{NAMES[key]}: not possible with the given inputs"
        answered.append(
            Finding(key, _QUESTIONS[key], nan, (nan, nan), "", nan, nan, "not possible", headline, impossible[key])
        )

    def place(one: Finding) -> tuple[Any, ...]:
        is_first = one.key == "inputs" and bool(direct)
        return _ORDER[one.answer], not is_first, one.key != "score_gap" or one.answer != "yes", _last(one.p_adjusted)

    return tuple(sorted(answered, key=place))


def _fact(summary: Data, feature: str) -> str:
    """That the model uses an input that determines the group."""
    is_group = feature in summary["data"].get("columns", {}).get("group", ())
    return f"The model uses {feature} directly" if is_group else f"The model uses the group directly, through {feature}"


_WITH_MODEL: Data = {"outcome": "score", "has_labels": True, "has_decisions": True, "not_possible": {}}


def headline_of(findings: Sequence[Finding]) -> str:
    """The first answer with "yes" in a few words, or what would have been found."""
    first = next((one for one in findings if one.answer == "yes"), None)
    if first is not None:
        return first.headline
    n = sum(one.answer != "not possible" for one in findings)
    nothing = f"None of the {'two' if n == 2 else 'three'} questions that could be asked was answered with yes"
    if n == len(findings):
        nothing = "None of the four questions was answered with yes"
    elif n == 1:
        nothing = "The one question that could be asked was not answered with yes"
    gap = next(one for one in findings if one.key == "score_gap")
    return nothing if gap.answer == "open" else gap.headline


def used_directly(summary: Data) -> list[str]:
    """Inputs that determine the group and move the score, the strongest first: a fact that no test decides."""
    proxies, finances = summary["proxies"], summary["settings"]["financial_features"]
    screened = () if proxies is None else proxies["features"]
    telling = {row["feature"] for row in screened if row["auc"] >= _DETERMINES and row["feature"] not in finances}
    telling |= set(summary["data"]["group_columns"])
    parts = {
        row["feature"]: abs(row["value"])
        for gap in summary.get("score_gaps", ())
        for row in gap["features"]
        if is_number(row["value"]) and abs(row["value"]) > _ROUNDING
    }
    # Without evidence: people of two groups differ in it, and so do their explanations.
    explaining = {row["feature"] for row in summary["features"] if (row["contribution"] or 0.0) > _ROUNDING}
    return sorted(telling & {*parts, *explaining}, key=lambda name: (-parts.get(name, 0.0), name))


def _is_known_zero(of: Data) -> bool:
    return bool(of["value"] == 0 and of["standard_error"] == 0)


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
    """The inputs that stand out, for the two groups of the score gap or, if none does there, where the largest does.

    An input that nearly identifies the group and clearly moves scores stands out whatever its p-value; one that
    determines the group, if it moves scores at all.
    """
    gaps, proxies = summary["score_gaps"], summary["proxies"]
    screened = {} if proxies is None else {row["feature"]: row for row in proxies["features"]}
    direct = used_directly(summary)

    def is_telling(row: Data) -> bool:
        if row["feature"] in direct:
            return is_number(row["value"]) and abs(row["value"]) > _ROUNDING
        return (
            screened.get(row["feature"], {"auc": 0.0})["auc"] > PERFECT_PROXY
            and is_number(row["low"])
            and (row["low"] > 0 or row["high"] < 0)
        )

    def clear_rows(gap: Data, level: float) -> list[Data]:
        return [row for row in gap["features"] if is_telling(row) or _last(row["p_adjusted"]) <= level]

    def place(gap: Data) -> tuple[Any, ...]:
        # Bonferroni over pairs of groups and questions: what is this clear is clear after any adjustment.
        rows = clear_rows(gap, _LEVEL / (len(gaps) * len(NAMES)))
        largest = max((abs(row["value"]) for row in rows), default=0.0)
        is_named = all(gap[side] == summary["score_gap"][side] for side in ("group", "reference"))
        return not any(map(is_telling, rows)), not (rows and is_named), -round(largest, 6), _last(gap["smallest_p"])

    gap = min(gaps, key=place)
    parts = {
        row["feature"]: InputPart(
            row["feature"],
            row["value"],
            (row["low"], row["high"]),
            row["p_adjusted"],
            screened.get(row["feature"], {"auc": math.nan})["auc"],
        )
        for row in gap["features"]
    }
    telling = [row["feature"] for row in gap["features"] if is_telling(row)]
    clear = [parts[row["feature"]] for row in clear_rows(gap, _LEVEL)]
    clear.sort(key=lambda part: (part.feature not in direct, part.feature not in telling, -abs(part.estimate)))
    first = clear[0] if clear else min(parts.values(), key=lambda part: _last(part.p_adjusted))
    p = gap["smallest_p"]
    return {
        "key": "inputs",
        "of": next(row for row in gap["features"] if row["feature"] == first.feature),
        "unit": gap["unit"],
        # The groups were selected for their input: apply Bonferroni over the pairs of groups.
        "p_value": min(1.0, p * len(gaps)) if is_number(p) else p,
        "gap": gap,
        "n_gaps": len(gaps),
        "estimates": [row for gap in gaps for row in gap["features"]],
        "features": tuple(parts.values()),
        "clear": clear,
        "telling": telling,
        "direct": direct,
        "predicted": {name: predicted_group(screened[name]["auc_by_group"]) for name in telling if name in screened},
    }


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
    answer: Answer = (
        "yes" if is_clear or basis.get("telling") or basis.get("direct") else "no" if is_number(p_adjusted) else "open"
    )
    sizes = _sizes(basis)
    basis = {**basis, "sizes": sizes}
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
        features=basis.get("features", ()),
        **{side: basis["gap"][side] for side in ("group", "reference") if "gap" in basis},
        feature=of["feature"] if key == "inputs" else "",
        sizes=sizes,
    )


def _sizes(basis: Data) -> tuple[Size, ...]:
    """The estimate in approvals, in points of probability and in its own unit, where there are such."""
    of, gap, scope = basis["of"], basis.get("gap"), basis["scope"]
    estimates: list[tuple[str, Data, float]] = []
    if basis["key"] == "score_gap" and gap is not None:
        if scope["has_decisions"]:
            estimates.append((APPROVALS, gap["decision"], 1000.0))
        if scope["outcome"] == "score":
            estimates.append((POINTS, gap["probability"], 100.0))
    elif basis["key"] == "inputs":
        slope = {"log-odds": basis["slope"], "probability": 1.0}.get(basis["unit"], math.nan)
        estimates += [(POINTS, of, 100.0 * slope)] if is_number(slope) else []
    if basis["unit"] not in ("probability", DECISION_UNIT):
        estimates.append((basis["unit"], of, 1.0))
    sizes = []
    for unit, one, scale in estimates:
        value, low, high = (scale * number(one[end]) for end in ("value", "low", "high"))
        sizes.append(Size(unit, value, low, high, _detectable(basis, one, scale)))
    return tuple(sizes)


def _slope(summary: Data) -> float:
    """Points of probability for each unit of log-odds, on average over people: p (1 - p); NaN without scores."""
    found = summary["distributions"]["score"]
    counts = np.sum([np.zeros(len(found["edges"]) - 1), *found["counts"].values()], axis=0)
    middle = (np.asarray(found["edges"][1:]) + np.asarray(found["edges"][:-1])) / 2
    return float(counts @ (middle * (1 - middle)) / counts.sum()) if counts.sum() else math.nan


def _limited_size(key: FindingKey, limit: float, estimates: Sequence[Data]) -> str:
    """What is compared with a limit: all estimates, or those beyond it."""
    if key not in _SIGNED:
        return "the difference in weights" if key == "weighing" else "the excess"
    beyond = beyond_limit(limit, estimates, has_side=True)
    if key == "score_gap":
        one_of_many = "a gap between two groups" if beyond else f"each of the {len(estimates)} gaps between groups"
        return "the gap" if len(estimates) == 1 else one_of_many
    names = list(dict.fromkeys(row["feature"] for row in beyond))
    return f"the effect through {'each of ' if len(names) > 1 else ''}{listed(names) if names else 'every input'}"


def _sure(basis: Data) -> str:
    low, high = basis["of"]["low"], basis["of"]["high"]
    return f"95% interval {decimal(low)} to {decimal(high)}, adjusted {p_words(basis['p_adjusted'])}"


def _detectable(basis: Data, of: Data, scale: float) -> float:
    """The smallest size that would have been found in 80% of audits.

    If it were the only effect, Holm would compare it with the level divided by the number of questions and, for a score
    gap, of pairs of groups.
    """
    level, error = _LEVEL / (basis["n_asked"] * len(basis["estimates"])), number(of["standard_error"])
    if "detectable" in of:  # by a single test of a gap, from its shuffles
        further = stats.norm.isf(level / 2) - stats.norm.isf(_LEVEL / 2)
        return scale * (number(of["detectable"]) + float(further) * error)
    return scale * size_found(error, number(of["df"]), level, sides=2 if basis["key"] in _SIGNED else 1)


_FOUND = "would have been found in 80% of audits"
_COMPARED = {"score": "scores", "value": "outcomes", "decision": "decisions"}
_SAME = {
    "score": "comparable people get the same score",
    "value": "comparable people get the same",
    "decision": "comparable people get the same decisions",
}


def _sides(basis: Data, value: float) -> tuple[str, str]:
    """The group that is worse off, and the other one: values are in the unit as given, scores in favorable ones."""
    group, reference = basis["gap"]["group"], basis["gap"]["reference"]
    is_worse = value > 0 if basis["is_low"] and basis["scope"]["outcome"] == "value" else value < 0
    return (group, reference) if is_worse else (reference, group)


def _compared(basis: Data, size: str) -> str:
    """How the group that is worse off compares with the other, between their names."""
    outcome = basis["scope"]["outcome"]
    if outcome == "value":
        return f"is {size} worse off than"
    if outcome == "decision":
        return f"gets favorable decisions {size} less often than"
    return f"is rated {size} riskier than" if basis["is_low"] else f"scores {size} lower than"


def _gap_found(basis: Data) -> str:
    size = _detectable(basis, basis["of"], 1.0)
    if not math.isfinite(size):
        return "So few people can be compared that no gap would have been found."
    return f"A gap of {decimal(size)} {_FOUND}; smaller ones may exist."


def _score_words(basis: Data, answer: Answer) -> tuple[str, str]:
    gap, scope, of = basis["gap"], basis["scope"], basis["of"]
    outcome, group, reference, value = scope["outcome"], gap["group"], gap["reference"], of["value"]
    name, minus = "decision gap" if outcome == "decision" else "score gap", f"{group} minus {reference}:"
    if answer == "open":
        return f"{name.capitalize()} not estimated", f"Whether {_COMPARED[outcome]} differ is not known: {of['note']}."
    at_equal = "At equal finances and label" if scope["has_labels"] else "At equal finances"
    if of["standard_error"] == 0:
        return capital(_SAME[outcome]), f"{at_equal}, {_SAME[outcome]}."
    if answer == "no":
        return (
            _no_gap_headline(basis),
            f"No {name} at equal finances was found between {group} and {reference} ({minus} {decimal(value)} "
            f"{gap['unit']}, {_sure(basis)}). {_gap_found(basis)}",
        )
    size = f"{decimal(abs(value))} {gap['unit']}"
    if outcome == "decision":
        size = f"{decimal(abs(100 * value), 1)} points"
    worse, better = _sides(basis, value)
    told = f"{worse} {_compared(basis, size)} {better} ({minus} {decimal(value)}, {_sure(basis)})"
    kinds = ("probability",) * (outcome == "score") + ("decision",) * (scope["has_decisions"] and outcome != "decision")
    points = [
        f"{decimal(100 * gap[kind]['value'], 1)} points in {_POINTS[kind]} ({estimate_interval(gap[kind], 1, 100)})"
        for kind in kinds
        if is_number(gap[kind]["value"])
    ]
    also = f" The gap is {listed(points)}." if points else ""
    return (
        _score_headline(basis, size),
        f"{at_equal}, {told}.{also} This does not show why, or that the difference is unjustified.",
    )


_POINTS = {"probability": "probability", "decision": "approvals"}


def _no_gap_headline(basis: Data) -> str:
    """How far apart approvals are, or else scores, and that chance explains it."""
    size, of = basis["sizes"][0], basis["of"]
    group, reference = (people_of(basis["gap"][side]) for side in ("group", "reference"))
    is_chance = size.low <= 0 <= size.high  # approvals may differ clearly where scores do not
    chance = ": not more than chance" if is_chance else "; their scores differ by no more than chance"
    if size.unit == APPROVALS:
        n, between = fewer_or_more(size.value, size.low, size.high)
        than = "as" if n == "as many" else "than"
        return f"Of 1,000 {group}, about {n} would be approved {than} of comparable {reference} ({between}){chance}"
    worse, better = _sides(basis, of["value"])
    told = _compared(basis, f"{decimal(abs(of['value']))} {basis['unit']}")
    minus = f"{basis['gap']['group']} minus {basis['gap']['reference']}: {estimate_interval(of)}"
    return f"{worse} {told} comparable {people_of(better)} ({minus}){chance}"


def _score_headline(basis: Data, size: str) -> str:
    """Who is worse off, in approvals if they clearly go the same way, and in points of probability."""
    gap, outcome, value = basis["gap"], basis["scope"]["outcome"], basis["of"]["value"]
    worse, better = _sides(basis, value)
    toward = 1 if worse == gap["group"] else -1
    likely = gap["probability"]
    if outcome == "score" and _last(likely["p_value"]) <= _LEVEL and likely["value"] * toward < 0:
        size = f"{decimal(abs(100 * likely['value']), 1)} points"
    decided = gap["decision"]
    n_fewer = round(-1000 * toward * decided["value"]) if is_number(decided["value"]) else 0
    if n_fewer < 1 or (outcome != "decision" and _last(decided["p_value"]) > _LEVEL):
        return f"{worse} {_compared(basis, size)} {better} at equal finances"
    beside = _compared(basis, size).removeprefix("is ").removesuffix(" than")
    return (
        f"Of 1,000 {people_of(worse)}, about {count(n_fewer)} fewer are approved than of comparable "
        f"{people_of(better)}" + ("" if outcome == "decision" else f"; {beside}")
    )


def _input_words(basis: Data, answer: Answer) -> tuple[str, str]:
    gap = basis["gap"]
    between = f"between {gap['group']} and {gap['reference']} at equal finances"
    if answer == "open":
        note = gap["total"]["note"]
        return "Inputs not tested", f"Whether an input makes a difference {between} is not known: {note}."
    if answer == "no":
        pairs = f", {basis['n_gaps']} pairs of groups" if basis["n_gaps"] > 1 else ""
        return (
            "No input stands out",
            f"No single input makes a difference {between} that chance could not explain (adjusted "
            f"{p_words(basis['p_adjusted'])}, for {len(basis['features'])} inputs{pairs} and the number of questions).",
        )
    if not basis["clear"]:
        names = listed(basis["direct"])
        return "", f"The model uses {names}, which determines the group. Its part of a gap {between} is not known."
    shown = []
    for part in basis["clear"][:3]:
        predicted = basis["predicted"].get(part.feature)
        telling = f", predicts {predicted} with AUC {decimal(part.tells_group_auc, 2)}" if predicted else ""
        against = _sides(basis, part.estimate)[0]
        shown.append(f"{part.feature} ({decimal(part.estimate)} {gap['unit']}, against {against}{telling})")
    first = basis["clear"][0]
    worse, better = _sides(basis, first.estimate)
    subject = "it" if first.feature in basis["direct"] else first.feature
    size = f"{decimal(abs(first.estimate))} {gap['unit']}"
    if basis["sizes"][0].unit == POINTS and abs(basis["sizes"][0].value) >= 0.05:
        size = f"about {decimal(abs(basis['sizes'][0].value), 1)} {POINTS}"
    moved = "outcomes" if basis["scope"]["outcome"] == "value" else "scores"
    compared = f"compared with {people_of(better)} of equal finances"
    headline = f"{subject} moves {moved} by {size} against {people_of(worse)}, {compared}"
    if basis["is_low"] and moved == "scores":
        headline = f"{subject} makes {people_of(worse)} riskier by {size}, {compared}"
    if basis["telling"] and subject != "it":
        headline += f", and predicts {basis['predicted'][subject]} (AUC {decimal(first.tells_group_auc, 2)})"
    return (
        headline,
        f"The difference {between} runs through {listed(shown)}. This does not show whether the input has a business "
        "reason.",
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
            f"{_sure(basis)}). A difference of {decimal(basis['sizes'][-1].detectable)} {_FOUND}; smaller ones may "
            "exist.",
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
    direction
        Which sign of a gap is bad, for a score that is a risk and for values; else empty.
    limits
        What the audit does not show.
    is_constant
        Whether decisions are (almost) the same for everyone, so that agreement says little.
    """

    headline: str
    sentences: tuple[tuple[str, str], ...]
    direction: str
    limits: str
    is_constant: bool


def _direction(summary: Data) -> str:
    """Which sign of a gap is bad for the group, if it is not plain that a low score is."""
    settings, outcome = summary["settings"], (summary.get("scope") or _WITH_MODEL)["outcome"]
    if outcome == "value":
        low, side = ("low", "above") if settings["favorable"] == "low" else ("high", "below")
        return (
            f"A {low} value is favorable. Gaps are in {settings['unit']} as given, group minus reference group: {side} "
            "0, the group is worse off."
        )
    if outcome == "decision" or settings["favorable"] != "low":
        return ""
    return (
        "The score is a risk: a high one is unfavorable. Score gaps, parts of inputs and attributions are those of the "
        "favorable outcome: below 0, the group is rated riskier."
    )


def verdict(summary: Mapping[str, Any], findings: Sequence[Finding]) -> Verdict:
    """The verdict on the summary of an audit (`AuditResult.to_dict`) and its findings.

    Decisions that hardly vary are mentioned in the headline and the last sentence, whatever was found.
    """
    outcome = summary["outcome"]
    is_constant = is_number(outcome["positive_rate"]) and bool(outcome["notes"].get("positive_rate"))
    direct = [] if findings else used_directly(summary)
    headline = f"{_fact(summary, direct[0])}; not compared with noise" if direct else "Not compared with noise"
    headline = headline_of(findings) if findings else headline
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
        direction=_direction(summary),
        limits=limits,
        is_constant=is_constant,
    )


def with_words(summary: Data, report: Data) -> dict[str, Any]:
    """A summary and its findings with the verdict and all sentences in the words of a report (`ReportOptions`).

    Names in the data stay as they are.
    """
    labels = report.get("labels", {})
    shown = Labels.of(labels, summary).summary(summary)
    found = findings_of(shown)
    words = {one.key: {"headline": one.headline, "sentence": one.sentence} for one in found}
    return {
        **summary,
        **({"report": dict(report)} if report else {}),
        "findings": [{**one, **words[one["key"]]} for one in summary["findings"]],
        "verdict": verdict(shown, found).to_dict(),
    }
