"""The result of a search: candidates, front, choice, reasons, cost and gain; its outputs."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from evenhand.arrays import Floats, Ints
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.validation import check_columns
from evenhand.metrics.estimate import Estimate, Plain
from evenhand.metrics.names import AXES, METRICS, metric_of
from evenhand.metrics.outcomes import auc
from evenhand.report.formatting import count, decimal
from evenhand.searching.choice import Choice, ChoiceRule, Frontier, front, honest_metrics, mean_interval, reasons_of
from evenhand.searching.confirming import Confirmation, approval_warnings, confirmation_sentences
from evenhand.searching.families import FAMILIES, FamilyName
from evenhand.searching.options import SearchSettings
from evenhand.searching.people import SearchPeople
from evenhand.searching.scoring import GAPS, Metrics, gap_name
from evenhand.searching.space import Candidate, Start, favorable_probability, in_a_cell, spelled_columns
from evenhand.searching.stopping import Stopping
from evenhand.system.files import json_ready, write_text

if TYPE_CHECKING:
    from evenhand.auditing.history.compare import Comparison
    from evenhand.auditing.result import AuditResult


@dataclass(frozen=True)
class StartCopy(Plain):
    """How far the retrained copy of the starting model is from the model itself, on the same people.

    Attributes
    ----------
    n_people, are_held_out
        The people, and whether they are those held out of the search; without any, those searched on.
    auc, copy_auc
        Of your model and of its copy.
    mean_difference, largest_difference
        Between the probabilities of the favorable outcome that both give to a person, without sign.
    """

    n_people: int
    are_held_out: bool
    auc: float
    copy_auc: float
    mean_difference: float
    largest_difference: float

    @property
    def sentence(self) -> str:
        """The same in words."""
        who = "held out" if self.are_held_out else "searched on"
        return (
            "Where the search says your model, it means a copy: retrained with your model's parameters, as every "
            f"candidate is. On {count(self.n_people)} people {who}, the copy has an AUC of {decimal(self.copy_auc)} "
            f"and your model {decimal(self.auc)}; their probabilities differ by {decimal(self.mean_difference)} on "
            f"average and by {decimal(self.largest_difference)} at most. The comparison of audits is about your model "
            "itself, which looks better on people it learned from."
        )


@dataclass(frozen=True, eq=False)
class SearchResult:
    """A finished search.

    Attributes
    ----------
    metrics
        Every metric by name, of shape (n_candidates, n_folds), averaged over seeds.
    gaps
        Signed gaps of scores, by names of `gap_name`, of the same shape.
    notes
        Why a candidate has no metrics, by its number.
    tried
        The candidates, in the order of the rows.
    rule
        Constraints and what is minimized.
    settings, people
        How candidates were judged, and on whom.
    confirmation
        The best candidates, refitted, on the people held out of the search; None if no one was held out, or if no
        candidate is better than the unconstrained one.
    fit
        Trains a candidate on all people searched on.
    stopping
        How much candidates that were not tried could still gain.
    start
        The model that the search started from; a retrained copy of it is then the unconstrained candidate.

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.load_dataset("synthetic", n=300)
    >>> result = eh.search(data.X, data.y, sensitive_features=data.group, financial_features=data.financial_features,
    ...                    space={"cec_weight": [1.0], "epochs": [2]}, keep=[], options=eh.SearchOptions(folds=2))
    >>> result.chosen in result.candidates["candidate"].tolist()
    True
    """

    metrics: Metrics
    gaps: Metrics
    notes: Mapping[int, str]
    tried: tuple[Candidate, ...]
    rule: ChoiceRule
    settings: SearchSettings
    people: SearchPeople
    confirmation: Confirmation | None
    fit: Callable[[Candidate], Any]
    stopping: Stopping
    start: Start | None = None

    @cached_property
    def shown(self) -> dict[str, Floats]:
        """Metrics in the tables: all, but of inputs and columns only those that the search was asked for."""
        asked = {self.rule.minimize, *(constraint.metric for constraint in self.rule.constraints)}
        return {
            name: values
            for name, values in self.metrics.items()
            if name in METRICS or name in asked or name.startswith("approval_rate[")
        }

    @property
    def families(self) -> tuple[FamilyName, ...]:
        """What was tried."""
        return tuple(dict.fromkeys(candidate.family for candidate in self.tried))

    def _mean(self, values: Floats) -> Estimate:
        return mean_interval(values, self.rule.test_share)

    @cached_property
    def choice(self) -> Choice:
        """The rule applied to all folds."""
        return self.rule.choose(self.metrics)

    @property
    def chosen(self) -> int | None:
        """Number of the chosen candidate; None if no candidate meets the constraints."""
        return self.choice.chosen

    @property
    def unconstrained(self) -> int:
        """Number of the most accurate unconstrained candidate, with which others are compared."""
        return self.choice.unconstrained

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """Why each candidate was chosen or passed over."""
        reasons = reasons_of(self.choice, self.metrics, self.rule)
        return tuple(self.notes.get(k, reason) for k, reason in enumerate(reasons))

    @cached_property
    def front(self) -> tuple[int, ...]:
        """Candidates that no other dominates beyond noise on AUC, EO gap and the metric that is minimized."""
        axes = dict.fromkeys(("auc", "eo_gap", self.rule.minimize))
        of_axes = {name: (self.metrics[name], metric_of(name).direction) for name in axes}
        return tuple(np.flatnonzero(front(of_axes, self.rule.test_share)).tolist())

    @cached_property
    def frontier(self) -> Frontier:
        """The best value of what is minimized at each level of utility, by means over folds."""
        return Frontier.of(self.metrics, self.rule.minimize, [c.metric for c in self.rule.constraints])

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Sentences on how the search changes your model before retraining it, and how candidates change approvals."""
        n_reported = 1 if self.confirmation is None else len(self.confirmation.candidates)
        of_start = () if self.start is None else self.start.warnings
        return (*of_start, *(text for k in self.choice.alternatives(n_reported) for text in self._warnings(k)))

    def _warnings(self, k: int) -> tuple[str, ...]:
        return approval_warnings(self.metrics, k, self.unconstrained, self.rule.test_share)

    @cached_property
    def score_gaps(self) -> pd.DataFrame:
        """Signed score gaps of the unconstrained and the chosen candidate, group minus reference group.

        Rows for each group: the total, in probability, in decisions, and the part through each input, largest first;
        the parts add up to the total. Intervals are over folds.
        """
        chosen, names = self._need_chosen(), self.people.groups.names
        rows = []
        for group in (code for code in range(len(names)) if code != self.people.reference_group):
            kinds = [("in all", gap_name(kind, group), kind) for kind in GAPS]
            parts = [(name, gap_name("score_gap", group, name), "score_gap") for name in self.people.columns]
            parts.sort(key=lambda part: -abs(np.nan_to_num(self.gaps[part[1]][self.unconstrained].mean())))
            for through, name, kind in (*kinds, *parts):
                values = self.gaps[name]
                row: dict[str, Any] = {"group": names[group], "metric": kind, "through": through}
                for who, k in (("unconstrained", self.unconstrained), ("chosen", chosen)):
                    mean = self._mean(values[k])
                    row |= {who: mean.value, f"{who}_low": mean.low, f"{who}_high": mean.high}
                rows.append(row)
        return pd.DataFrame(rows)

    @cached_property
    def candidates(self) -> pd.DataFrame:
        """A row for each candidate: parameters, metrics with 95% intervals, whether on the front, and the reason."""
        rows = []
        for record in map(self._record, self.tried):
            row = {name: record[name] for name in ("candidate", "status", "is_on_front")}
            row |= {"family": record["family"]} if len(self.families) > 1 else {}
            row |= {name: in_a_cell(value) for name, value in record["parameters"].items()}
            for name, mean in record["metrics"].items():
                row |= {name: mean["value"], f"{name}_low": mean["low"], f"{name}_high": mean["high"]}
            rows.append({**row, "reason": record["reason"], "warning": " ".join(record["warnings"])})
        return pd.DataFrame(rows)

    @cached_property
    def cost_and_gain(self) -> pd.DataFrame:
        """What the chosen candidate costs and gains against the unconstrained one, a row for each metric.

        Metrics of both, their difference, its interval and a reading: by the folds of the search; with ``honest_``, by
        folds that judge a choice made without them; with ``confirmed_``, on people held out of the search. Quote one of
        the last two. A difference belongs to the two metrics with the same prefix.
        """
        chosen = self._need_chosen()
        honest = honest_metrics(self.metrics, self.rule)
        rows: list[dict[str, Any]] = []
        for name in sorted(self.shown, key=lambda name: AXES.index(metric_of(name).axis)):
            values, rival = self.metrics[name][chosen], self.metrics[name][self.unconstrained]
            compared: dict[str, tuple[float, float, Estimate]] = {
                "": (float(rival.mean()), float(values.mean()), self._mean(values - rival)),
                "honest_": honest[name],
            }
            if self.confirmation is not None:
                of = self.confirmation.candidates[0]
                compared["confirmed_"] = self.confirmation.unconstrained[name], of.metrics[name], of.differences[name]
            row: dict[str, Any] = {"axis": metric_of(name).axis, "metric": name}
            for prefix, (before, after, difference) in compared.items():
                row |= {
                    f"{prefix}unconstrained": before,
                    f"{prefix}chosen": after,
                    f"{prefix}difference": difference.value,
                    f"{prefix}low": difference.low,
                    f"{prefix}high": difference.high,
                    f"{prefix}reading": _reading(name, difference),
                }
            rows.append(row)
        return pd.DataFrame(rows)

    def grid(self, rows: str, columns: str, metric: str) -> pd.DataFrame:
        """Mean of a metric for each value of two parameters, averaged over the others: a heatmap's numbers.

        Raises
        ------
        InvalidInputError
            If a name is neither a parameter nor a metric.
        """
        check_columns((rows, columns), list(self.tried[0].parameters), "`rows` and `columns`")
        name = metric_of(metric, "`metric`").name
        return self.candidates.pivot_table(index=rows, columns=columns, values=name, aggfunc="mean")

    @cached_property
    def best_model(self) -> Any:
        """The chosen candidate fitted on everyone searched on.

        Raises
        ------
        InvalidInputError
            If no candidate meets the constraints.
        """
        return self.fit(self.tried[self._need_chosen()])

    @cached_property
    def unconstrained_model(self) -> Any:
        """The unconstrained candidate fitted on everyone searched on."""
        return self.fit(self.tried[self.unconstrained])

    def save_model(self, path: str | os.PathLike[str]) -> Path:
        """Write `best_model` as a file that `evenhand.load_model` and ``evenhand audit --model`` read; return its path.

        Parameters
        ----------
        path
            A folder, in which the file is called ``model.safetensors`` (networks), ``model.json`` (XGBoost),
            ``model.txt`` (LightGBM) or ``model.skops`` (all others); or a file with that extension.

        Raises
        ------
        InvalidInputError
            If no candidate meets the constraints.
        """
        return FAMILIES[self.tried[self._need_chosen()].family].save(self.best_model, Path(path))

    def audit(self, **options: Any) -> AuditResult:
        """Audit the chosen model on the people held out of the search or, without any, on those it learned from.

        Parameters
        ----------
        options
            Of `evenhand.audit`.
        """
        return self._audit(self.best_model, options)

    def audit_start(self, **options: Any) -> AuditResult:
        """Audit the model that the search started from, as given, on the same people as `audit`.

        Without one, the unconstrained model is audited. A model that learned from these people looks better on them
        than it is.

        Parameters
        ----------
        options
            Of `evenhand.audit`.
        """
        if self.start is None:
            return self._audit(self.unconstrained_model, options)
        # In the unit of the candidates: some pipelines would be explained in probability.
        return self._audit(self.start.model, {"output": "log-odds", **options}, is_risk=self.start.favorable == "low")

    @cached_property
    def start_copy(self) -> StartCopy | None:
        """How far the copy of your model with which the search compares is from your model; None without a start."""
        if self.start is None:
            return None
        people = self.people
        rows = people.confirming if len(people.confirming) else people.searched
        own, copy = (
            favorable_probability(model, people, rows) for model in (self.start.model, self.fit(self.tried[0]))
        )
        own = 1 - own if self.start.favorable == "low" else own
        apart, labels = np.abs(own - copy), people.labels[rows]
        return StartCopy(
            n_people=len(rows),
            are_held_out=bool(len(people.confirming)),
            auc=auc(labels, own),
            copy_auc=auc(labels, copy),
            mean_difference=float(apart.mean()),
            largest_difference=float(apart.max()),
        )

    def compare(self, **options: Any) -> Comparison:
        """The audits of both models side by side: what changes from `audit_start` to `audit`.

        Parameters
        ----------
        options
            Of `evenhand.audit`.
        """
        before = "unconstrained" if self.start is None else "your model"
        return compare_models({before: self.audit_start(**options), "alternative": self.audit(**options)})

    def _audit(self, model: Any, options: Mapping[str, Any], *, is_risk: bool = False) -> AuditResult:
        """Audit a model, which may score the unfavorable outcome, on the people held out or, without any, on all."""
        from evenhand.auditing.audit import audit

        people, settings = self.people, self.settings
        labels = 1 - people.labels if is_risk else people.labels
        columns = spelled_columns(model, people)

        def part(rows: Ints) -> tuple[pd.DataFrame, Ints, Any]:
            return people.table[columns].iloc[rows].reset_index(drop=True), labels[rows], people.group_names[rows]

        searched = part(people.searched)
        (X, y, groups), reference = (part(people.confirming), searched) if len(people.confirming) else (searched, None)
        threshold = settings.decision_threshold
        given = {
            "financial_features": list(people.financial_features),
            "decision_threshold": 1 - threshold if is_risk else threshold,
            "consistency_threshold": settings.consistency_threshold,
            "max_distance": settings.max_distance,
            "random_state": settings.random_state,
            "favorable": "low" if is_risk else None,
        }
        return audit(model, X, y, sensitive_features=groups, reference=reference, **{**given, **options})

    def to_dict(self) -> dict[str, Any]:
        """Plain data of the JSON, the page and the workbook."""
        has_choice = self.chosen is not None
        return {
            "format": "evenhand-search",
            "version": 4,
            "families": list(self.families),
            "chosen": self.chosen,
            "unconstrained": self.unconstrained,
            "front": list(self.front),
            "keep": [constraint.text for constraint in self.rule.constraints],
            "minimize": self.rule.minimize,
            "people": {
                "searched": len(self.people.searched),
                "confirming": len(self.people.confirming),
                "groups": self.people.groups.counts,
                "reference_group": self.people.groups.names[self.people.reference_group],
                "financial_features": list(self.people.financial_features),
            },
            "settings": self.settings.to_dict(),
            "candidates": [self._record(candidate) for candidate in self.tried],
            "cost_and_gain": _records(self.cost_and_gain) if has_choice else [],
            "score_gaps": _records(self.score_gaps) if has_choice else [],
            "confirmation": None if self.confirmation is None else self.confirmation.to_dict(),
            "frontier": {**asdict(self.frontier), "candidates": list(self.frontier.candidates)},
            "sentences": list(self.sentences),
            "warnings": list(self.warnings),
            "stopping": self.stopping.to_dict(),
            "start": self.start and {**self.start.to_dict(), "copy": self.start_copy and self.start_copy.to_dict()},
            "limits": list(self.limits),
        }

    def _record(self, candidate: Candidate) -> dict[str, Any]:
        k = candidate.number
        means = {name: self._mean(values[k]) for name, values in self.shown.items()}
        return {
            "candidate": k,
            "status": self._status(k),
            "is_on_front": k in self.front,
            "is_unconstrained": candidate.is_unconstrained,
            "is_start": candidate.is_start,
            "family": candidate.family,
            "words": candidate.words(self.tried),
            "parameters": dict(candidate.parameters),
            "metrics": {name: {"value": m.value, "low": m.low, "high": m.high} for name, m in means.items()},
            "folds": {name: values[k].tolist() for name, values in self.shown.items()},
            "reason": self.reasons[k],
            "warnings": list(self._warnings(k)),
        }

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """What the people held out say about each reported candidate, and how your model was copied."""
        of_copy = () if self.start_copy is None else (self.start_copy.sentence,)
        if self.confirmation is None:
            return of_copy
        return (*confirmation_sentences(self.confirmation, self.rule.minimize), *of_copy)

    @property
    def limits(self) -> tuple[str, ...]:
        """What a reader must know before using the choice."""
        texts = [
            f"The search compared {len(self.tried)} candidates and kept the best. The best of many looks better than "
            "it is: quote the honest differences, in which each fold judges a choice made without it, or those on "
            "people held out of the search.",
            "Intervals are over folds of one dataset and do not cover a change of applicants.",
            "An excess near 0 means that the search found no difference in reasoning between groups at this sample "
            "size, not that there is none.",
        ]
        if self.settings.folds < 5:
            texts.append(
                f"With {self.settings.folds} folds, intervals have {self.settings.folds - 1} degrees of freedom."
            )
        if not len(self.people.confirming):
            texts.append("No one was held out of the search to confirm the choice; `confirmation` sets a share aside.")
        if self.start is not None:
            texts.append(
                f"Your model ({self.start.kind}) is judged like every candidate: copies of it are retrained with its "
                "parameters in each fold. The audit of the model itself flatters it if it learned from the same people."
            )
            texts += self.start.notes
        failed = sorted(self.notes)
        if failed:
            texts.append(f"Candidates without metrics: {', '.join(str(name) for name in failed)}.")
        return tuple(texts)

    def to_json(self, path: str | os.PathLike[str]) -> Path:
        """Write `to_dict` as JSON; NaN as null."""
        return write_text(path, json.dumps(json_ready(self.to_dict()), allow_nan=False, indent=1))

    def to_html(self, path: str | os.PathLike[str], files: Mapping[str, str] | None = None) -> Path:
        """Write one self-contained page that documents the search.

        Parameters
        ----------
        path
            Where.
        files
            Files that it links to: paths relative to the page, by description.
        """
        from evenhand.searching.page import search_page

        return write_text(path, search_page(self.to_dict(), files))

    def to_excel(self, path: str | os.PathLike[str]) -> Path:
        """Write a workbook that documents the search."""
        from evenhand.report.workbook import sheet_of, write_sheets
        from evenhand.searching.page import workbook_tables

        write_sheets(map(sheet_of, workbook_tables(self.to_dict())), Path(path), title="evenhand search")
        return Path(path)

    def _status(self, k: int) -> str:
        if k == self.chosen:
            return "chosen"
        if k in self.notes:
            return "failed"
        if self.choice.complaints[k]:
            return "does not meet the constraints"
        return "passed over"

    def _need_chosen(self) -> int:
        if self.chosen is None:
            asked = [constraint.text for constraint in self.rule.constraints]
            raise InvalidInputError(
                f"None of the {len(self.tried)} candidates meets the constraints {asked}; `reasons` says why. "
                "Loosen `keep`, or widen `space`."
            )
        return self.chosen

    def __repr__(self) -> str:
        chosen = "none" if self.chosen is None else self.tried[self.chosen].words(self.tried)
        return f"SearchResult({len(self.tried)} candidates, {self.settings.folds} folds; chosen: {chosen})"


def compare_models(audits: Mapping[str, AuditResult]) -> Comparison:
    """Audits of two models on the same people compared, within people."""
    from evenhand.auditing.history.compare import compare_audits

    kinds = {audit.settings["attribution"] for audit in audits.values()}
    return compare_audits(dict(audits), same_people=True, allow_different_settings=len(kinds) > 1)


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _reading(name: str, difference: Estimate) -> str:
    """Gain or cost, in one word."""
    direction = metric_of(name).direction
    if not math.isfinite(difference.low):
        return "not estimated"
    if not difference.excludes_zero:
        return "within noise"
    if direction == 0:
        return "higher" if difference.value > 0 else "lower"
    return "gain" if difference.value * direction > 0 else "cost"
