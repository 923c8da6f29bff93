"""The metrics of one audit that have a standard error, from its plain data and, if available, its people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.arrays import Floats, Ints
from evenhand.auditing.fitted import own_score
from evenhand.auditing.sections import SECTIONS
from evenhand.auditing.sections.evidence import excess_metric
from evenhand.exceptions import InvalidInputError
from evenhand.metrics.excess import excess
from evenhand.metrics.outcomes import auc_influence
from evenhand.report.formatting import listed
from evenhand.report.labels import Labels
from evenhand.report.section import AuditMetric


def audit_metrics(
    data: Mapping[str, Any],
    reference: str | None = None,
    pairs: pd.DataFrame | None = None,
    labels: Mapping[str, str] | None = None,
) -> dict[str, AuditMetric]:
    """Metrics of an audit by key.

    They are those of the sections, in their order. Keys have the names of the data.

    Parameters
    ----------
    data
        The summary: the output of `AuditResult.to_dict`, or the same read from JSON.
    reference
        The group that the others are compared with; by default the audit's reference group.
    pairs
        All pairs: adds the mean CEC score and the regimes, and DeLong's standard error of the AUC. From `data` alone,
        the AUC has that of Hanley and McNeil.
    labels
        The words for columns, values and groups, as in `read_labels`.

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
    groups = [row["group"] for row in data["outcome"]["groups"]]
    chosen = data["outcome"]["approvals"]["reference"] if reference is None else reference
    if chosen not in groups:
        raise InvalidInputError(f"`reference` must be a group of the audit, {listed(groups, 8)}, got {chosen!r}.")
    words = Labels.of(labels or {}, data)
    named, shown = (
        [metric for section in SECTIONS for metric in section.metrics(summary, group)]
        for summary, group in ((data, chosen), (words.summary(data), words.group(chosen)))
    )
    metrics = {metric.key: _in_words(metric, other) for metric, other in zip(named, shown, strict=True)}
    if pairs is not None:
        metrics |= {metric.key: metric for metric in _from_people(data, sorted_pairs(pairs), metrics)}
    return metrics


def _in_words(metric: AuditMetric, shown: AuditMetric) -> AuditMetric:
    """A metric in the words of the same metric with labels, which may have its two groups the other way round."""
    words, groups = shown.words, shown.groups
    if groups is not None and metric.sign != shown.sign:
        words, groups = words.replace(" minus ".join(groups), " minus ".join(groups[::-1])), groups[::-1]
    return replace(metric, words=words, groups=groups)


def sorted_pairs(pairs: pd.DataFrame) -> pd.DataFrame:
    """Pairs sorted by person and by the group they are compared with."""
    names = pairs["other_group"].astype(str)
    return pairs.iloc[np.lexsort((names.to_numpy(dtype=str), pairs["person"].to_numpy()))].reset_index(drop=True)


class People(NamedTuple):
    """Label, group, score and decision of every audited person, in the order of the audited table."""

    label: Ints
    group: NDArray[np.str_]
    score: Floats
    decision: Ints


def people_of(data: Mapping[str, Any], pairs: pd.DataFrame) -> People:
    """The people of an audit's pairs, matched or not; scores refer to the favorable outcome."""
    rows = pairs.drop_duplicates("person").sort_values("person")
    settings = data["settings"]
    score = own_score(rows["score"].to_numpy(dtype=np.float64), settings["favorable"], settings.get("unit"))
    label, decision = (rows[name].to_numpy(dtype=np.int64) for name in ("label", "decision"))
    return People(label, rows["group"].to_numpy(dtype=str), score, decision)


def pair_codes(data: Mapping[str, Any], pairs: pd.DataFrame) -> Ints:
    """The two people of every pair as codes, of shape (n_pairs, 2); those of the reference follow the audited."""
    person, match = (pairs[name].to_numpy(dtype=np.int64) for name in ("person", "match"))
    shift = 0 if data["data"]["n_reference"] is None else int(person.max(initial=-1)) + 1
    return np.column_stack([person, match + shift])


def pair_columns(pairs: pd.DataFrame) -> dict[str, Floats]:
    """The CEC score of each pair, and whether it is in Regime B and D, by key of the metric."""
    regimes = {f"regime {name}": (pairs["regime"] == name).to_numpy(dtype=np.float64) for name in ("B", "D")}
    return {"cec": pairs["cec"].to_numpy(dtype=np.float64), **regimes}


def _from_people(
    data: Mapping[str, Any], pairs: pd.DataFrame, metrics: Mapping[str, AuditMetric]
) -> Iterator[AuditMetric]:
    people = people_of(data, pairs)
    error = float(np.sqrt((auc_influence(people.label, people.score) ** 2).sum()))
    yield replace(metrics["auc"], standard_error=error)
    scored = pairs["cec"].notna().to_numpy()
    codes = pair_codes(data, pairs)[scored]
    for key, values in pair_columns(pairs[scored]).items():
        # Weighting people equally is weighting pairs equally if everyone has the same number of pairs.
        estimate = excess(values, np.zeros(len(values)), codes)
        words = "CEC score, mean" if key == "cec" else f"{key}, share"
        yield excess_metric(key, "excess", words, asdict(estimate))
