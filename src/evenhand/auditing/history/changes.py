"""What moved between audits, and whether by more than noise."""

from __future__ import annotations

import math
import os
import warnings as python_warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd
from scipy import special

from evenhand.auditing.history.metrics import AuditMetric, Scale, audit_metrics
from evenhand.auditing.history.records import Audit, comparable, described, summary_of
from evenhand.auditing.history.within_people import errors_within_people, is_same_people
from evenhand.auditing.result import AuditResult
from evenhand.auditing.summary import write_json
from evenhand.exceptions import EvenhandWarning, InvalidInputError, InvalidTypeError
from evenhand.metrics.adjustment import holm
from evenhand.metrics.excess import ROUNDING
from evenhand.report.history_page import comparison_page
from evenhand.system.files import write_atomically

__all__ = ["COMPARISON_SCHEMA", "Change", "Comparison", "Pairing", "SettingDifference", "compare_audits"]

COMPARISON_SCHEMA = "evenhand.comparison/2"

_LEVEL = 0.05
_CONFIDENCE = 0.95
_NORMAL_HALF = float(special.ndtri((1 + _CONFIDENCE) / 2))

# What a metric means depends on these; the others change only how finely it is computed.
_DEFINING = {
    "financial_features": "people were matched on other features, so every metric of reasoning measures something else",
    "consistency_threshold": "Regimes B and D are cut elsewhere",
    "max_distance": "other people have a match",
    "groups": "other groups were compared",
    "attribution": "people were explained in another way, so every metric of reasoning measures something else",
}
_NOTED = {
    "decision_threshold": "decisions are cut elsewhere, which alone can move rates, gaps and regimes",
    "n_steps": "attributions were integrated in other steps",
    "method": "attributions were integrated in another way",
    "n_permutations": "attributions were averaged over another number of orders",
}


@dataclass(frozen=True)
class SettingDifference:
    """A setting that is not the same in two audits."""

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
            f"{self.setting} is {self.value!r} in {self.audit!r} and {self.base_value!r} in the base: "
            f"{self.consequence}."
        )


@dataclass(frozen=True)
class Pairing:
    """Whether an audit is of the same people as the base, and what that does to standard errors."""

    audit: str
    is_paired: bool
    sentence: str


@dataclass(frozen=True)
class Change:
    """How one metric of an audit differs from that of the base.

    Attributes
    ----------
    audit
        Name of the audit that is compared with the base.
    scale
        "difference": `change` is value minus base value, 0 when nothing moved. "ratio": value over base value, 1 when
        nothing moved; the standard error is then that of the logarithm.
    p_value
        Two-sided, of no change.
    p_adjusted
        Holm's adjustment over all metrics of all audits of the comparison; features are adjusted among themselves.
    is_paired
        Whether the standard error is of differences within people.
    """

    audit: str
    key: str
    part: str
    words: str
    base_value: float
    value: float
    scale: Scale
    change: float
    standard_error: float
    ci_low: float
    ci_high: float
    df: float
    p_value: float
    p_adjusted: float
    is_paired: bool
    note: str = ""

    @property
    def verdict(self) -> str:
        """In a few words: more than noise, within noise, or why neither can be said."""
        if math.isnan(self.p_value):
            return "cannot be said"
        if self.p_adjusted <= _LEVEL:
            return "more than noise"
        return "within noise" if self.p_value > _LEVEL else "not clearly more than noise"

    @property
    def sentence(self) -> str:
        """The change in words."""
        if math.isnan(self.p_value):
            return f"{_capital(self.words)}: whether it moved cannot be said ({self.note or 'no standard error'})."
        size = f"by {abs(self.change):.3f}" if self.scale == "difference" else f"by a factor of {self.change:.3f}"
        rose = self.change > (0 if self.scale == "difference" else 1)
        moved = f"{'rose' if rose else 'fell'} from {self.base_value:.3f} to {self.value:.3f}, {size}"
        moved = moved if self.p_value < 1 or self.value != self.base_value else f"stayed at {self.value:.3f}"
        p = "p < 0.001" if self.p_adjusted < 0.001 else f"p = {self.p_adjusted:.3f}"
        ending = {
            "more than noise": f"more than noise ({p}, adjusted)",
            "within noise": f"within noise ({p}, adjusted)",
            "not clearly more than noise": f"not clearly more than noise among so many metrics ({p}, adjusted)",
        }[self.verdict]
        return f"{_capital(self.words)} {moved}: {ending}."


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two or more audits, the first or a named one being the base of the others.

    Attributes
    ----------
    names, base
        The audits in the order given, and which of them is the base.
    audits
        The plain data of each.
    metrics, features
        Changes of the metrics, and of each feature's part of the excess.
    differences
        Settings that are not the same.
    pairings
        For each audit but the base, whether people are the same.
    warnings
        Reservations, in words.
    """

    names: tuple[str, ...]
    base: str
    audits: Mapping[str, Mapping[str, Any]]
    metrics: tuple[Change, ...]
    features: tuple[Change, ...]
    differences: tuple[SettingDifference, ...]
    pairings: tuple[Pairing, ...]
    warnings: tuple[str, ...]

    @property
    def moved(self) -> tuple[Change, ...]:
        """Metrics and features that moved by more than noise, surest first."""
        found = [c for c in (*self.metrics, *self.features) if c.verdict == "more than noise"]
        return tuple(sorted(found, key=lambda c: c.p_adjusted))

    @property
    def sentences(self) -> tuple[str, ...]:
        """The outcome in words: for each audit, how many metrics moved and what became of the excess."""
        lines = []
        for name in self.names:
            changes = [c for c in self.metrics if c.audit == name]
            if changes:
                moved = [c for c in changes if c.verdict == "more than noise"]
                tested = [c for c in changes if not math.isnan(c.p_value)]
                lines.append(
                    f"{name} against {self.base}: {len(moved)} of {len(tested)} metrics moved by more than noise."
                )
                lines += [c.sentence for c in changes if c.key == "excess"]
        return tuple(lines)

    def table(self) -> pd.DataFrame:
        """A row for each change: audit, metric, part, base_value, value, change, interval, p-values, verdict."""
        columns = ["audit", "metric", "part", "base_value", "value", "scale", "change", "standard_error", "ci_low",
                   "ci_high", "df", "p_value", "p_adjusted", "is_paired", "verdict", "note"]  # fmt: skip
        rows = [{**asdict(c), "metric": c.words, "verdict": c.verdict} for c in (*self.metrics, *self.features)]
        return pd.DataFrame(rows, columns=columns)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with a few words on each audit instead of the audits themselves."""
        return {
            "schema": COMPARISON_SCHEMA,
            "names": list(self.names),
            "base": self.base,
            "sentences": list(self.sentences),
            "audits": [described(name, self.audits[name]) for name in self.names],
            "metrics": [_plain(c) for c in self.metrics],
            "features": [_plain(c) for c in self.features],
            "differences": [{**asdict(d), "sentence": d.sentence} for d in self.differences],
            "pairings": [asdict(p) for p in self.pairings],
            "warnings": list(self.warnings),
        }

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write `to_dict` as JSON, whole or not at all; a missing number is null."""
        write_json(self.to_dict(), path)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the comparison as one HTML file that needs no network, whole or not at all."""
        with write_atomically(path) as temporary:
            temporary.write_text(comparison_page(self.to_dict()), encoding="utf-8")


def compare_audits(
    audits: Mapping[str, Audit],
    *,
    base: str | None = None,
    same_people: bool | None = None,
    allow_different_settings: bool = False,
) -> Comparison:
    """What moved between audits: model versions, months, methods.

    Different people: the two metrics are independent, and the variance of their difference is the sum of the two.
    The same people, with both audits given as `AuditResult`: differences are taken within people. Rates then have the
    variance of paired shares, the AUC DeLong's covariance, the mean CEC score and the regimes that of differences of
    pairs who share people. The excess and its parts are not kept by person; for them the two audits are treated as
    independent, which overstates the noise when both models err alike on the same people.

    Parameters
    ----------
    audits
        By name: results, what `to_dict` returns, or files that `to_json` wrote. At least two.
    base
        Name of the audit that the others are compared with; by default the first.
    same_people
        Whether all audits are of the same people in the same order. None to find out: from results by their tables,
        from files by `data.fingerprint` where they have one.
    allow_different_settings
        Compare also when financial features, groups, `attribution`, `consistency_threshold` or `max_distance` differ.
        Without, that is refused, as metrics of the same name are then different quantities.

    Raises
    ------
    InvalidInputError
        If there are fewer than two audits, `base` is none of them, settings that define metrics differ, or
        `same_people` is True of audits whose people differ.
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
    >>> [change.verdict for change in found.metrics if change.key == "excess"]
    ['more than noise']
    """
    if not isinstance(audits, Mapping):
        raise InvalidTypeError(f"`audits` must map names to audits, got {type(audits).__name__}.")
    if len(audits) < 2:
        raise InvalidInputError(f"`audits` must hold at least two audits to compare, got {list(audits)}.")
    names = tuple(str(name) for name in audits)
    chosen = names[0] if base is None else base
    if chosen not in names:
        raise InvalidInputError(f"`base` must be one of the audits, {list(names)}, got {chosen!r}.")
    sources = dict(zip(names, (_Source.of(name, audit) for name, audit in audits.items()), strict=True))
    first = sources[chosen]
    others = [sources[name] for name in names if name != chosen]
    differences = tuple(d for other in others for d in _setting_differences(first, other))
    _check_settings(differences, allow_different_settings)
    metrics: list[Change] = []
    pairings: list[Pairing] = []
    for other in others:
        pairing = _pairing(first, other, same_people)
        pairings.append(pairing)
        metrics += _changes(first, other, pairing.is_paired)
    reservations = tuple(_reservations(first, others, differences))
    for difference in differences:
        python_warnings.warn(difference.sentence, EvenhandWarning, stacklevel=2)
    return Comparison(
        names=names,
        base=chosen,
        audits={name: source.data for name, source in sources.items()},
        metrics=_adjusted(c for c in metrics if c.part != "feature"),
        features=_adjusted(c for c in metrics if c.part == "feature"),
        differences=differences,
        pairings=tuple(pairings),
        warnings=reservations,
    )


# --- what was given ---


@dataclass(frozen=True, eq=False)
class _Source:
    name: str
    data: Mapping[str, Any]
    result: AuditResult | None

    @classmethod
    def of(cls, name: object, audit: Audit) -> _Source:
        return cls(str(name), summary_of(name, audit), audit if isinstance(audit, AuditResult) else None)

    @property
    def groups(self) -> list[str]:
        return sorted(self.data["data"]["groups"])


def _setting_differences(base: _Source, other: _Source) -> list[SettingDifference]:
    ours = {**base.data["settings"], "groups": base.groups}
    theirs = {**other.data["settings"], "groups": other.groups}
    found = []
    for setting, consequence in (_DEFINING | _NOTED).items():
        if setting not in ours or setting not in theirs:
            continue  # one of the audits is older than the setting
        own, value = comparable(ours[setting]), comparable(theirs[setting])
        if own != value:
            found.append(SettingDifference(other.name, setting, own, value, consequence, setting in _DEFINING))
    return found


def _check_settings(differences: Sequence[SettingDifference], allow: bool) -> None:
    defining = [d.sentence for d in differences if d.is_defining]
    if defining and not allow:
        raise InvalidInputError(
            f"The audits were made with different settings. {' '.join(defining)} Audit again with the same settings, "
            "or compare nonetheless with `allow_different_settings=True`."
        )


def _pairing(base: _Source, other: _Source, same_people: bool | None) -> Pairing:
    both = f"{other.name} and {base.name}"
    if base.result is not None and other.result is not None:
        is_same = is_same_people(base.result, other.result)
        if same_people and not is_same:
            raise InvalidInputError(
                f"`same_people=True`, but {base.name!r} and {other.name!r} differ in number, label, group or features "
                "of the people: give audits of the same people in the same order, or leave `same_people` out."
            )
        is_paired = is_same and same_people is not False
        words = _WITHIN_PEOPLE if is_paired else _DIFFERENT_PEOPLE
        return Pairing(other.name, is_paired, words.format(both))
    prints = [source.data["data"].get("fingerprint") for source in (base, other)]
    if same_people or (same_people is None and prints[0] is not None and prints[0] == prints[1]):
        words = _SAME_PEOPLE_IN_FILES
    elif same_people is False or None not in prints:
        words = _DIFFERENT_PEOPLE
    else:
        words = _UNKNOWN_PEOPLE
    return Pairing(other.name, False, words.format(both))


_WITHIN_PEOPLE = (
    "{} are of the same people: differences are taken within people. Only the excess and its parts are not kept by "
    "person; for them independence was assumed, which overstates the noise when both models err alike."
)
_DIFFERENT_PEOPLE = "{} are of different people: independence was assumed."
_SAME_PEOPLE_IN_FILES = (
    "{} are of the same people, but files hold no metrics by person: independence was assumed, which overstates the "
    "noise when the two models score people alike. Give the results themselves to compare within people."
)
_UNKNOWN_PEOPLE = (
    "Whether {} share people is not known: independence was assumed, which is right for different people and usually "
    "overstates the noise for the same."
)


def _reservations(base: _Source, others: Sequence[_Source], differences: Sequence[SettingDifference]) -> Iterable[str]:
    yield from (d.sentence for d in differences)
    for source in (base, *others):
        if source.data["evidence"] is None:
            yield f"{source.name} was audited without evidence, so its excess cannot be compared."
    columns = {source.name: {row["feature"] for row in source.data["features"]} for source in (base, *others)}
    for other in others:
        for one, two in ((base.name, other.name), (other.name, base.name)):
            only = sorted(columns[one] - columns[two])
            if only:
                yield f"Features of {one} that {two} does not have: {only}."
    if any(source.data["versions"].get("evenhand") != base.data["versions"].get("evenhand") for source in others):
        yield "The audits were made with different versions of evenhand."


# --- changes ---


def _changes(base: _Source, other: _Source, is_paired: bool) -> list[Change]:
    reference = base.data["outcome"]["approvals"]["reference"]
    reference = reference if reference in other.groups else None
    ours = audit_metrics(base.data, reference, base.result)
    theirs = audit_metrics(other.data, reference, other.result)
    within: dict[str, float] = {}
    if is_paired and base.result is not None and other.result is not None:
        within = errors_within_people(base.result, other.result)
    return [_change(other.name, metric, theirs[key], within.get(key)) for key, metric in ours.items() if key in theirs]


def _change(audit: str, base: AuditMetric, other: AuditMetric, within: float | None) -> Change:
    """The change of a metric; `within` is the standard error of differences within people."""
    is_ratio = base.scale == "ratio"
    moved = (
        math.log(other.value / base.value) if is_ratio and base.value > 0 < other.value else other.value - base.value
    )
    error = math.hypot(base.standard_error, other.standard_error) if within is None else within
    df = _satterthwaite(base, other) if within is None else min(base.df, other.df)
    note = "; ".join(dict.fromkeys(n for n in (base.note, other.note) if n))
    if not (base.has_error and other.has_error):
        error = math.nan
        note = note or "one of the audits has no standard error for it"
    p_value, half = _test(moved, error, df)
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
        ci_low=low,
        ci_high=high,
        df=df,
        p_value=p_value,
        p_adjusted=math.nan,
        is_paired=within is not None,
        note=note,
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


def _adjusted(changes: Iterable[Change]) -> tuple[Change, ...]:
    found = list(changes)
    p_values = holm([change.p_value for change in found]).tolist() if found else []
    return tuple(replace(change, p_adjusted=p) for change, p in zip(found, p_values, strict=True))


# --- plain data ---


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _plain(change: Change) -> dict[str, Any]:
    return {**asdict(change), "verdict": change.verdict, "sentence": change.sentence}
