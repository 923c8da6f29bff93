"""The metrics of one audit that have a standard error, from its plain data and, if available, its people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from evenhand.arrays import Floats
from evenhand.auditing.direction import own_score
from evenhand.auditing.evidence import Influence, gap_key, input_key
from evenhand.auditing.options import FindingKey
from evenhand.exceptions import InvalidInputError
from evenhand.metrics.excess import excess
from evenhand.metrics.roc import auc_influence, hanley_mcneil
from evenhand.metrics.score_gap import FEW_DEGREES
from evenhand.report.formatting import listed

Part: TypeAlias = Literal["score_gap", "inputs", "weighing", "excess", "outcome", "feature"]
Scale: TypeAlias = Literal["difference", "ratio"]

_EXCESSES: dict[str, tuple[str, str, Part]] = {
    "weighing": ("reasoning_gap", "weighing", "weighing"),
    "excess": ("cec", "excess", "excess"),
    "excess_balanced": ("balanced", "excess, groups weighted equally", "excess"),
    "excess: input gap": ("input_gap", "excess, input gap", "excess"),
    "excess: regime B": ("regime_b", "excess, share in Regime B", "excess"),
    "excess: shared reasons": ("reason_overlap", "excess, shared principal reasons", "excess"),
}
_ANSWERS: dict[str, FindingKey] = {"weighing": "weighing", "excess": "excess"}
_GAPS = {"total": "", "probability": "probability", "decision": "decision"}
_RATES = {
    "positive rate": "positive_rate",
    "true positive rate": "true_positive_rate",
    "false positive rate": "false_positive_rate",
}


@dataclass(frozen=True)
class AuditMetric:
    """A metric of an audit and its uncertainty.

    Attributes
    ----------
    key
        The same in every audit: "excess", "score_gap: female minus male", "auc".
    part
        What it is about: one of the four questions, decisions, or one feature's part of the excess.
    words
        The metric for a reader.
    standard_error
        Standard error of the value, or of its logarithm if `scale` is "ratio". NaN if there is none.
    df
        Degrees of freedom; infinite for a normal approximation.
    scale
        "difference": two of them are compared by subtraction; "ratio": by division.
    finding
        The question that it answers; None for all other metrics.
    unit, groups
        For score gaps: log-odds or probability, and the group and the one it is compared with.
    influence
        Influences of people on it; None if they are not kept.
    """

    key: str
    part: Part
    words: str
    value: float
    standard_error: float
    df: float = math.inf
    scale: Scale = "difference"
    note: str = ""
    finding: FindingKey | None = None
    unit: str = ""
    groups: tuple[str, str] | None = None
    influence: Influence | None = None

    @property
    def has_error(self) -> bool:
        """Whether there is a value with a standard error."""
        return math.isfinite(self.value) and math.isfinite(self.standard_error)


def audit_metrics(
    data: Mapping[str, Any], reference: str | None = None, pairs: pd.DataFrame | None = None
) -> dict[str, AuditMetric]:
    """Metrics of an audit by key.

    The metrics of the four questions come first: score gaps and inputs, weighing, excess. Rates are shares of counted
    people, with the standard error of a share of n + 2 people, one more of whom was approved and one more declined, so
    that a rate of 0 or 1 still varies. Gaps are signed here, a group's rate minus the reference group's: the size of a
    gap is not smooth near 0, but its signed form is.

    Parameters
    ----------
    data
        The summary: the output of `AuditResult.to_dict`, or the same read from JSON.
    reference
        The group that the others are compared with; by default the audit's reference group.
    pairs
        All pairs: adds the mean CEC score and the regimes, and DeLong's standard error of the AUC. From `data` alone,
        the AUC has that of Hanley and McNeil.

    Raises
    ------
    InvalidInputError
        If `reference` is not a group of the audit.

    Examples
    --------
    >>> import evenhand as eh
    >>> planted = eh.make_planted_bias(80, random_state=0)
    >>> people = planted.dataset
    >>> result = eh.audit(planted.model, people.X, people.y, sensitive_features=people.group,
    ...                   financial_features=people.financial_features, evidence=False)
    >>> metrics = audit_metrics(result.to_dict())
    >>> metrics["auc"].value == result.to_dict()["outcome"]["auc"]
    True
    """
    groups = {row["group"]: {**row, **_worth(row, data.get("weighting"))} for row in data["outcome"]["groups"]}
    chosen = data["outcome"]["approvals"]["reference"] if reference is None else reference
    if chosen not in groups:
        raise InvalidInputError(f"`reference` must be a group of the audit, {listed(list(groups), 8)}, got {chosen!r}.")
    found = [
        *_score_gaps(data, chosen),
        *_excesses(data["evidence"]),
        *_features(data["evidence"]),
        *_utility(data["outcome"], groups),
        *_rates(groups, chosen),
        *_ratios(groups, chosen),
        *_areas(data["outcome"]),
    ]
    metrics = {metric.key: metric for metric in found}
    return metrics if pairs is None else metrics | _from_people(data, sorted_pairs(pairs), metrics)


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _excess_metric(key: str, part: Part, words: str, estimate: Mapping[str, Any]) -> AuditMetric:
    value, error, df = (_number(estimate[name]) for name in ("value", "standard_error", "df"))
    return AuditMetric(key, part, words, value, error, df, note=estimate["note"])


def _excesses(evidence: Mapping[str, Any] | None) -> list[AuditMetric]:
    if evidence is None:
        return []
    of_questions = [
        replace(
            _excess_metric(key, part, words, evidence[name]),
            finding=_ANSWERS.get(key),
            influence=Influence(key),
        )
        for key, (name, words, part) in _EXCESSES.items()
    ]
    return of_questions + [
        _excess_metric(f"excess: {s['split']} {s['value']}", "excess", f"excess, {s['value']}", s["estimate"])
        for s in evidence["splits"]
        if s["split"] in ("group", "groups compared")
    ]


def _features(evidence: Mapping[str, Any] | None) -> list[AuditMetric]:
    rows = [] if evidence is None else evidence["features"]
    return [_excess_metric(f"feature: {r['feature']}", "feature", r["feature"], r["estimate"]) for r in rows]


# --- score gaps ---


def _score_gaps(data: Mapping[str, Any], reference: str) -> list[AuditMetric]:
    """Score gaps of every two groups, in total and by input, with the same sign in every audit."""
    gaps = data.get("score_gaps", ())
    found: list[AuditMetric] = []
    for gap in gaps:
        group, other = gap["group"], gap["reference"]
        # Relative to the reference group; other pairs in the order of their names.
        is_turned = group == reference or (other != reference and group < other)
        groups = (other, group) if is_turned else (group, other)
        sign = -1.0 if is_turned else 1.0
        of_groups = f", {groups[0]} minus {groups[1]}"
        for name, unit in _GAPS.items():
            metric = AuditMetric(
                gap_key(*groups, unit),
                "score_gap",
                f"score gap in {_unit_words(unit or gap['unit'])}{of_groups}",
                *_gap_numbers(gap[name], sign),
                note=gap[name]["note"],
                finding=None if unit else "score_gap",
                unit=unit or gap["unit"],
                groups=groups,
                influence=Influence(gap_key(group, other, unit), sign),
            )
            found.append(metric)
        for row in gap["features"]:
            metric = AuditMetric(
                input_key(row["feature"], *groups),
                "inputs",
                row["feature"] + (of_groups if len(gaps) > 1 else ""),
                *_gap_numbers(row, sign),
                note=row["note"],
                finding="inputs",
                unit=gap["unit"],
                groups=groups,
                influence=Influence(input_key(row["feature"], group, other), sign),
            )
            found.append(metric)
    return found


def _unit_words(unit: str) -> str:
    return "favorable decisions" if unit == "decision" else unit


def _gap_numbers(estimate: Mapping[str, Any], sign: float) -> tuple[float, float, float]:
    """Value, standard error and degrees of freedom; no standard error if the audit did not test it."""
    value, error, df = (_number(estimate[name]) for name in ("value", "standard_error", "df"))
    if error == 0:
        return value * sign, 0.0, math.inf
    return value * sign, error if df >= FEW_DEGREES else math.nan, df


# --- decisions, from counts ---


def _share_error(value: float, n: float) -> float:
    """Standard error of a share, as if there were one more success and one more failure among n + 2."""
    if not math.isfinite(value) or n <= 0:
        return math.nan
    share = (value * n + 1) / (n + 2)
    return math.sqrt(share * (1 - share) / (n + 2))


def _n_of(row: Mapping[str, Any], rate: str) -> float:
    n, n_positive = float(row["n"]), float(row["n_positive_label"] or 0)
    return {"positive rate": n, "true positive rate": n_positive, "false positive rate": n - n_positive}[rate]


def _rate(row: Mapping[str, Any], rate: str) -> tuple[float, float]:
    value = _number(row[_RATES[rate]])
    return value, _share_error(value, _n_of(row, rate))


def _worth(row: Mapping[str, Any], weighting: Mapping[str, Any] | None) -> dict[str, float]:
    """Effective numbers of people of a group (Kish), if people have sampling weights."""
    found = () if weighting is None else weighting["groups"]
    share = {of["group"]: of["n_effective"] / of["n_counted"] for of in found if of["n_counted"]}
    # Without labels, the number of favorable ones is unknown.
    return {name: (row[name] or 0) * share.get(row["group"], 1.0) for name in ("n", "n_positive_label")}


def _utility(outcome: Mapping[str, Any], groups: Mapping[str, Any]) -> list[AuditMetric]:
    n = sum(row["n"] for row in groups.values())
    n_positive = sum(row["n_positive_label"] for row in groups.values())
    area, accuracy, rate = (_number(outcome[name]) for name in ("auc", "accuracy", "positive_rate"))
    return [
        AuditMetric("auc", "outcome", "AUC", area, hanley_mcneil(area, n_positive, n - n_positive)),
        AuditMetric("accuracy", "outcome", "accuracy", accuracy, _share_error(accuracy, n)),
        AuditMetric("positive rate", "outcome", "positive rate", rate, _share_error(rate, n)),
    ]


def _rates(groups: Mapping[str, Any], reference: str) -> list[AuditMetric]:
    """Rates of each group, and their signed gaps to the reference group."""
    rates = {(rate, group): _rate(row, rate) for rate in _RATES for group, row in groups.items()}
    found = [AuditMetric(f"{r}: {group}", "outcome", f"{r}, {group}", *rates[r, group]) for r, group in rates]
    for rate, group in rates:
        if group != reference:
            (value, error), (base, base_error) = rates[rate, group], rates[rate, reference]
            words = f"{rate}, {group} minus {reference}"
            found.append(AuditMetric(f"gap: {words}", "outcome", words, value - base, math.hypot(error, base_error)))
    return found


def _ratios(groups: Mapping[str, Any], reference: str) -> list[AuditMetric]:
    base, base_error = _log_rate(groups[reference])
    found = []
    for group, row in groups.items():
        if group != reference:
            value, error = _log_rate(row)
            words = f"approval ratio, {group} over {reference}"
            note = "half an approval added: no one was approved" if not row["positive_rate"] else ""
            ratio, error = math.exp(value - base), math.hypot(error, base_error)
            found.append(AuditMetric(f"ratio: {words}", "outcome", words, ratio, error, scale="ratio", note=note))
    return found


def _log_rate(row: Mapping[str, Any]) -> tuple[float, float]:
    """Logarithm of the positive rate, and its standard error; half an approval is added if there are none."""
    n, rate = float(row["n"]), _number(row["positive_rate"])
    if n == 0 or not math.isfinite(rate):
        return math.nan, math.nan
    approved = max(rate * n, 0.5)
    return math.log(approved / n), math.sqrt(max(1 / (approved + 0.5) - 1 / (n + 0.5), 0.0))


def _areas(outcome: Mapping[str, Any]) -> list[AuditMetric]:
    """AUC of each group; DeLong's interval is formed on the logit scale."""
    z = float(special.ndtri((1 + outcome["approvals"]["confidence"]) / 2))
    found = []
    for row in outcome["error_rates"]:
        area, low, high = (_number(row["auc"][end]) for end in ("value", "low", "high"))
        half = float(special.logit(high) - special.logit(low)) / 2
        error = half / z * area * (1 - area)
        words = f"AUC, {row['group']}"
        found.append(AuditMetric(f"auc: {row['group']}", "outcome", words, area, error, note=row["auc"]["note"]))
    return found


# --- metrics that need the people ---


@dataclass(frozen=True, eq=False)
class People:
    """Label, group, score and decision of every audited person, in the order of the audited table."""

    label: NDArray[np.int64]
    group: NDArray[np.str_]
    score: Floats
    decision: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.label)


def sorted_pairs(pairs: pd.DataFrame) -> pd.DataFrame:
    """Pairs sorted by person and by the group they are compared with."""
    names = pairs["other_group"].astype(str)
    return pairs.iloc[np.lexsort((names.to_numpy(dtype=str), pairs["person"].to_numpy()))].reset_index(drop=True)


def people_of(data: Mapping[str, Any], pairs: pd.DataFrame) -> People:
    """The people of an audit's pairs, matched or not; scores refer to the favorable outcome."""
    rows = pairs.drop_duplicates("person").sort_values("person")
    return People(
        label=rows["label"].to_numpy(dtype=np.int64),
        group=rows["group"].to_numpy(dtype=str),
        score=own_score(
            rows["score"].to_numpy(dtype=np.float64), data["settings"]["favorable"], data["settings"].get("unit")
        ),
        decision=rows["decision"].to_numpy(dtype=np.int64),
    )


def pair_codes(data: Mapping[str, Any], pairs: pd.DataFrame) -> NDArray[np.int64]:
    """The two people of every pair as codes, of shape (n_pairs, 2); those of the reference follow the audited."""
    person = pairs["person"].to_numpy(dtype=np.int64)
    match = pairs["match"].to_numpy(dtype=np.int64)
    shift = 0 if data["data"]["n_reference"] is None else int(person.max(initial=-1)) + 1
    return np.column_stack([person, match + shift])


def _from_people(
    data: Mapping[str, Any], pairs: pd.DataFrame, metrics: Mapping[str, AuditMetric]
) -> dict[str, AuditMetric]:
    people = people_of(data, pairs)
    influence = auc_influence(people.label, people.score)
    error = float(np.sqrt((influence**2).sum()))
    found = [replace(metrics["auc"], standard_error=error)]
    scored = pairs["cec"].notna().to_numpy()
    codes = pair_codes(data, pairs)[scored]
    table = pairs[scored]
    columns = {"cec": ("CEC score, mean", table["cec"].to_numpy(dtype=np.float64))}
    for regime in ("B", "D"):
        values = (table["regime"] == regime).to_numpy(dtype=np.float64)
        columns[f"regime {regime}"] = (f"regime {regime}, share", values)
    for key, (words, values) in columns.items():
        # Weighting people equally is weighting pairs equally if everyone has the same number of pairs.
        estimate = excess(values, np.zeros(len(values)), codes)
        found.append(_excess_metric(key, "excess", words, asdict(estimate)))
    return {metric.key: metric for metric in found}
