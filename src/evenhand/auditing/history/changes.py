"""What changed between audits, and whether by more than noise."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd

from evenhand.auditing.findings import NAMES
from evenhand.auditing.history.answers import ChangedFinding, changed_findings, headline_of
from evenhand.auditing.history.change import Change, change_of
from evenhand.auditing.history.metrics import AuditMetric, audit_metrics, sorted_pairs
from evenhand.auditing.history.records import Audit, comparable, described, pairs_beside, setting_words, summary_of
from evenhand.auditing.history.within_people import errors_within_people
from evenhand.auditing.identities import is_same_people
from evenhand.auditing.influences import Influences
from evenhand.auditing.result import AuditResult
from evenhand.auditing.summary import write_json
from evenhand.exceptions import InvalidInputError, InvalidTypeError, warn_caller
from evenhand.metrics.influence import standard_error_of_difference
from evenhand.report.formatting import listed
from evenhand.report.history_page import comparison_page
from evenhand.system.files import write_atomically

__all__ = ["COMPARISON_SCHEMA", "Change", "Comparison", "Pairing", "SettingDifference", "compare_audits"]

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
                   "ci_low", "ci_high", "df", "p_value", "p_adjusted", "is_paired", "verdict", "note"]  # fmt: skip
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
        first, second = own.of_metric(ours[key].influence), new.of_metric(theirs[key].influence)
        if 0 in errors:
            found[key] = math.hypot(*errors)  # a constant is uncorrelated with everything
        elif first is not None and second is not None:
            found[key] = standard_error_of_difference(*errors, first, second)
    if base.pairs is not None and other.pairs is not None:
        reference = base.data["outcome"]["approvals"]["reference"]
        found |= errors_within_people(base.pairs, other.pairs, reference, base.data, other.data)
    return found
