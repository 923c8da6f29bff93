"""What a search found: candidates, front, choice, reasons, cost and gain; its outputs."""

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

from evenhand.arrays import Floats
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.validation import check_columns
from evenhand.searching.choice import (
    Choice,
    ChoiceRule,
    Collated,
    Difference,
    Frontier,
    check_metric,
    front,
    honest_differences,
    mean_interval,
    paired_difference,
    reasons_of,
)
from evenhand.searching.confirming import Confirmation, approval_warnings, confirmation_sentences
from evenhand.searching.families import ESTIMATORS, FamilyName
from evenhand.searching.metrics import AXES, DIRECTIONS, asked_of, axis_of, direction_of
from evenhand.searching.people import EvaluationSettings, SearchPeople
from evenhand.searching.scoring import GAPS, gap_name
from evenhand.searching.space import Candidate, in_a_cell
from evenhand.searching.start import Start, audit_model, compare_models
from evenhand.searching.stopping import Stopping
from evenhand.system.files import json_ready, write_text

if TYPE_CHECKING:
    from evenhand.auditing.history import Comparison
    from evenhand.auditing.result import AuditResult


@dataclass(frozen=True, eq=False)
class SearchResult:
    """A finished search.

    Attributes
    ----------
    collated
        Every metric of every candidate in every fold, averaged over seeds.
    tried
        The candidates, in the order of the rows.
    rule
        Constraints and what is minimized.
    settings, families, people
        How candidates were judged, what they are, and on whom.
    confirmation
        The best candidates, refitted, on the people held out of the search; None if no one was held out, or if no
        candidate is better than the unconstrained one.
    fit
        Trains a candidate on all people searched on.
    stopping
        How much candidates that were not tried could still gain.
    start
        The model that the search started from, which is then the unconstrained candidate.

    Examples
    --------
    >>> import evenhand as eh
    >>> from evenhand.searching import search
    >>> data = eh.load_dataset("synthetic", n=300)
    >>> result = search(data.X, data.y, sensitive_features=data.group, financial_features=data.financial_features,
    ...                 space={"cec_weight": [1.0], "epochs": [2]}, folds=2, keep=[], device="cpu")
    >>> result.chosen in result.candidates["candidate"].tolist()
    True
    """

    collated: Collated
    tried: tuple[Candidate, ...]
    rule: ChoiceRule
    settings: EvaluationSettings
    families: tuple[FamilyName, ...]
    people: SearchPeople
    confirmation: Confirmation | None
    fit: Callable[[Candidate], Any]
    stopping: Stopping
    start: Start | None = None

    @property
    def metrics(self) -> Mapping[str, Floats]:
        """Every metric by name, of shape (n_candidates, n_folds), averaged over seeds."""
        return self.collated.metrics

    @property
    def notes(self) -> Mapping[int, str]:
        """Why a candidate has no metrics, by its number."""
        return self.collated.notes

    @cached_property
    def told(self) -> dict[str, Floats]:
        """Metrics in the tables: all, but of inputs and columns only those that the search was asked for."""
        asked = {self.rule.minimize, *(constraint.metric for constraint in self.rule.constraints)}
        shown = {name for name in self.metrics if name in DIRECTIONS or asked_of(name)[0] == "approval_rate"} | asked
        return {name: values for name, values in self.metrics.items() if name in shown}

    @property
    def test_share(self) -> float:
        """Test people over training people in a fold."""
        return self.rule.test_share

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
        told = reasons_of(self.choice, self.metrics, self.rule)
        return tuple(self.notes.get(k, reason) for k, reason in enumerate(told))

    @cached_property
    def front(self) -> tuple[int, ...]:
        """Candidates that no other dominates beyond noise on AUC, EO gap and the metric that is minimized."""
        axes = dict.fromkeys(("auc", "eo_gap", self.rule.minimize))
        of_axes = {name: (self.metrics[name], direction_of(name)) for name in axes}
        return tuple(np.flatnonzero(front(of_axes, self.test_share)).tolist())

    @cached_property
    def frontier(self) -> Frontier:
        """The best value of what is minimized at each level of utility, by means over folds."""
        return Frontier.of(self.metrics, self.rule.minimize, [c.metric for c in self.rule.constraints])

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Sentences on how the search changes your model before retraining it, and how candidates change approvals."""
        reported = self.choice.alternatives(self.n_reported)
        of_start = () if self.start is None else self.start.warnings
        return (*of_start, *(told for k in reported for told in self._warnings(k)))

    @property
    def n_reported(self) -> int:
        """How many candidates are confirmed; one if no one is held out."""
        return 1 if self.confirmation is None else len(self.confirmation.candidates)

    def _warnings(self, k: int) -> tuple[str, ...]:
        return approval_warnings(self.metrics, k, self.unconstrained, self.test_share)

    @cached_property
    def score_gaps(self) -> pd.DataFrame:
        """Signed score gaps of the unconstrained and the chosen candidate, group minus reference group.

        Rows for each group: the total, in probability, in decisions, and the part through each input, largest first;
        the parts add up to the total. Intervals are over folds.
        """
        chosen, names, columns = self._need_chosen(), self.people.groups.names, list(self.people.table.columns)
        rows = []
        for group in (code for code in range(len(names)) if code != self.people.reference_group):
            kinds = [("in all", gap_name(kind, group), kind) for kind in GAPS]
            parts = [(str(column), gap_name("score_gap", group, str(column)), "score_gap") for column in columns]
            parts.sort(key=lambda part: -abs(np.nan_to_num(self.collated.gaps[part[1]][self.unconstrained].mean())))
            for through, name, kind in (*kinds, *parts):
                values = self.collated.gaps[name]
                row: dict[str, Any] = {"group": names[group], "metric": kind, "through": through}
                for who, k in (("unconstrained", self.unconstrained), ("chosen", chosen)):
                    found = mean_interval(values[k], self.test_share)
                    row |= {who: found.value, f"{who}_low": found.low, f"{who}_high": found.high}
                rows.append(row)
        return pd.DataFrame(rows)

    @cached_property
    def candidates(self) -> pd.DataFrame:
        """A row for each candidate: parameters, metrics with 95% intervals, whether on the front, and the reason."""
        rows = []
        for candidate in self.tried:
            k = candidate.number
            row: dict[str, Any] = {"candidate": k, "status": self._status(k), "is_on_front": k in self.front}
            row |= {"family": candidate.family} if len(self.families) > 1 else {}
            row |= {name: in_a_cell(value) for name, value in candidate.parameters.items()}
            for name, values in self.told.items():
                found = mean_interval(values[k], self.test_share)
                row |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
            rows.append({**row, "reason": self.reasons[k], "warning": " ".join(self._warnings(k))})
        return pd.DataFrame(rows)

    @cached_property
    def cost_and_gain(self) -> pd.DataFrame:
        """What the chosen candidate costs and gains against the unconstrained one, a row for each metric.

        Intervals are of differences on the same folds. Quote the ``honest`` columns, in which each fold judges a choice
        made without it, or the ``confirmed`` ones, which are of people held out of the search.
        """
        chosen = self._need_chosen()
        honest = honest_differences(self.metrics, self.rule)
        confirmed = None if self.confirmation is None else self.confirmation.candidates[0]
        rows: list[dict[str, Any]] = []
        order = list(AXES)
        for name in sorted(self.told, key=lambda name: order.index(axis_of(name))):
            mine, theirs = self.metrics[name][chosen], self.metrics[name][self.unconstrained]
            difference = paired_difference(mine, theirs, self.test_share)
            row = {
                "axis": axis_of(name),
                "metric": name,
                "unconstrained": float(theirs.mean()),
                "chosen": float(mine.mean()),
                "difference": difference.value,
                "low": difference.low,
                "high": difference.high,
                "honest_difference": honest[name].value,
                "honest_low": honest[name].low,
                "honest_high": honest[name].high,
                "reading": _reading(name, difference),
                "honest_reading": _reading(name, honest[name]),
            }
            if self.confirmation is not None and confirmed is not None:
                held_out = confirmed.differences[name]
                row |= {
                    "confirmed_unconstrained": self.confirmation.unconstrained[name],
                    "confirmed_chosen": confirmed.metrics[name],
                    "confirmed_difference": held_out.value,
                    "confirmed_low": held_out.low,
                    "confirmed_high": held_out.high,
                    "confirmed_reading": _reading(name, Difference(held_out.value, held_out.low, held_out.high)),
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
        check_metric(metric, "`metric`")
        check_columns((rows, columns), list(self.tried[0].parameters), "`rows` and `columns`")
        table = self.candidates
        return table.pivot_table(index=rows, columns=columns, values=metric, aggfunc="mean")

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
        MissingExtraError
            If the model is of scikit-learn and skops is not installed.
        """
        family = self.tried[self._need_chosen()].family
        if family == "network":
            saved: Path = self.best_model.save(path)
            return saved
        return ESTIMATORS[family].save(self.best_model, Path(path))

    def audit(self, **options: Any) -> AuditResult:
        """Audit the chosen model on the people held out of the search or, without any, on those it learned from.

        Parameters
        ----------
        options
            Of `evenhand.audit`.
        """
        return audit_model(self.best_model, self.people, self.settings, options)

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
            return audit_model(self.unconstrained_model, self.people, self.settings, options)
        is_risk = self.start.favorable == "low"
        return audit_model(self.start.model, self.people, self.settings, options, is_risk=is_risk)

    def compare(self, **options: Any) -> Comparison:
        """The audits of both models side by side: what changes from `audit_start` to `audit`.

        Parameters
        ----------
        options
            Of `evenhand.audit`.
        """
        names = ("unconstrained" if self.start is None else "your model", "alternative")
        return compare_models(self.audit_start(**options), self.audit(**options), names)

    def to_dict(self) -> dict[str, Any]:
        """Plain data of the JSON, the page and the workbook."""
        has_choice = self.chosen is not None
        return {
            "format": "evenhand-search",
            "version": 3,
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
            "settings": asdict(self.settings),
            "candidates": [_record(self, candidate) for candidate in self.tried],
            "cost_and_gain": _records(self.cost_and_gain) if has_choice else [],
            "score_gaps": _records(self.score_gaps) if has_choice else [],
            "confirmation": None if self.confirmation is None else self.confirmation.to_dict(),
            "frontier": self.frontier.to_dict(),
            "sentences": list(self.sentences),
            "warnings": list(self.warnings),
            "stopping": self.stopping.to_dict(),
            "start": None if self.start is None else self.start.to_dict(),
            "limits": list(self.limits),
        }

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """What the people held out say about each reported candidate."""
        if self.confirmation is None:
            return ()
        return confirmation_sentences(self.confirmation, self.rule.minimize)

    @property
    def limits(self) -> tuple[str, ...]:
        """What a reader must know before using the choice."""
        said = [
            f"The search compared {len(self.tried)} candidates and kept the best. The best of many looks better than "
            "it is: quote the honest differences, in which each fold judges a choice made without it, or those on "
            "people held out of the search.",
            "Intervals are over folds of one dataset and do not cover a change of applicants.",
            "An excess near 0 means that the search found no difference in reasoning between groups at this sample "
            "size, not that there is none.",
        ]
        if self.settings.folds < 5:
            said.append(
                f"With {self.settings.folds} folds, intervals have {self.settings.folds - 1} degrees of freedom."
            )
        if not len(self.people.confirming):
            said.append("No one was held out of the search to confirm the choice; `confirmation` sets a share aside.")
        if self.start is not None:
            said.append(
                f"Your model ({self.start.kind}) is judged like every candidate: retrained in each fold with its "
                "parameters. The audit of the model itself flatters it if it learned from the same people."
            )
            said += self.start.notes
        failed = sorted(self.notes)
        if failed:
            said.append(f"Candidates without metrics: {', '.join(str(name) for name in failed)}.")
        return tuple(said)

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


def _record(result: SearchResult, candidate: Candidate) -> dict[str, Any]:
    k = candidate.number
    return {
        "candidate": k,
        "status": result._status(k),
        "is_on_front": k in result.front,
        "is_unconstrained": candidate.is_unconstrained,
        "is_start": candidate.is_start,
        "family": candidate.family,
        "words": candidate.words(result.tried),
        "parameters": dict(candidate.parameters),
        "metrics": {name: asdict(mean_interval(v[k], result.test_share)) for name, v in result.told.items()},
        "folds": {name: values[k].tolist() for name, values in result.told.items()},
        "reason": result.reasons[k],
        "warnings": list(result._warnings(k)),
    }


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _reading(name: str, difference: Difference) -> str:
    """Gain or cost, in one word."""
    direction = direction_of(name)
    if not math.isfinite(difference.low):
        return "not estimated"
    if not difference.is_beyond_noise:
        return "within noise"
    if direction == 0:
        return "higher" if difference.value > 0 else "lower"
    return "gain" if difference.value * direction > 0 else "cost"
