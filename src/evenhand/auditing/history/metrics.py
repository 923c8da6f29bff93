"""The metrics of one audit that have a standard error, from its plain data and, if available, its people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.arrays import Floats
from evenhand.auditing.direction import own_score
from evenhand.auditing.sections import SECTIONS
from evenhand.auditing.sections.evidence import excess_metric
from evenhand.exceptions import InvalidInputError
from evenhand.metrics.excess import excess
from evenhand.metrics.roc import auc_influence
from evenhand.report.formatting import listed
from evenhand.report.section import AuditMetric


def audit_metrics(
    data: Mapping[str, Any], reference: str | None = None, pairs: pd.DataFrame | None = None
) -> dict[str, AuditMetric]:
    """Metrics of an audit by key.

    They are those of the sections, in their order.

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
    groups = [row["group"] for row in data["outcome"]["groups"]]
    chosen = data["outcome"]["approvals"]["reference"] if reference is None else reference
    if chosen not in groups:
        raise InvalidInputError(f"`reference` must be a group of the audit, {listed(groups, 8)}, got {chosen!r}.")
    metrics = {metric.key: metric for section in SECTIONS for metric in section.metrics(data, chosen)}
    return metrics if pairs is None else metrics | _from_people(data, sorted_pairs(pairs), metrics)


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
        found.append(excess_metric(key, "excess", words, asdict(estimate)))
    return {metric.key: metric for metric in found}
