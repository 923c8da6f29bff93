"""Whether the metrics of a history of audits departed from their past, with a known rate of false alarms."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import special
from scipy.optimize import brentq

from evenhand.auditing.history.records import (
    Audit,
    History,
    audit_metrics,
    changed_settings,
    described,
    history_of,
    setting_words,
    words_of,
)
from evenhand.auditing.summary import write_json
from evenhand.exceptions import InvalidInputError
from evenhand.metrics.estimate import normal_quantile, size_found
from evenhand.metrics.excess import ROUNDING
from evenhand.report.formatting import capital, decimal, listed
from evenhand.report.history import monitoring_page
from evenhand.report.section import AuditMetric, Part
from evenhand.system.files import write_text

_SLACK = 0.5  # the CUSUM is tuned to drifts of one standard error
_STATES = 160
_CONSTANT = 1e-6  # a metric that is the same in all audits has no noise
_DEFINING = ("financial_features", "attribution", "consistency_threshold", "max_distance", "decision_threshold")


@dataclass(frozen=True)
class TrendPoint:
    """One metric of one audit next to its past.

    Attributes
    ----------
    value, low, high
        The metric and its 95% interval.
    expected, limit_low, limit_high
        What the previous audits lead one to expect, and the limits beyond which the metric alone raises an alarm. NaN
        for the first audit, which has no past.
    z
        The distance of the metric from what was expected, in standard errors.
    cusum_high, cusum_low
        Sums of the part of `z` above, and below, what chance often gives; they start at 0 and never fall below it.
    detectable
        The smallest change from what was expected that this audit alone would have noticed in 80% of cases; of a ratio,
        the factor. NaN for the first audit.
    """

    audit: str
    value: float = math.nan
    standard_error: float = math.nan
    low: float = math.nan
    high: float = math.nan
    expected: float = math.nan
    limit_low: float = math.nan
    limit_high: float = math.nan
    z: float = math.nan
    cusum_high: float = math.nan
    cusum_low: float = math.nan
    detectable: float = math.nan


@dataclass(frozen=True)
class Departure:
    """The first audit at which a metric departed from its past.

    Attributes
    ----------
    rule
        "single": this audit alone is beyond its limits. "drift": a sum over several audits is.
    began
        The audit at which the departure seems to have started.
    """

    key: str
    words: str
    audit: str
    rule: str
    began: str
    direction: str

    @property
    def sentence(self) -> str:
        """The departure in words."""
        how = {
            ("single", True): "in one audit alone",
            ("drift", True): "by drift, which seems to have started with that audit",
            ("drift", False): f"by drift that seems to have started with {self.began}",
        }[self.rule, self.began == self.audit]
        return f"{capital(self.words)} departed from its past {self.direction} at {self.audit}, {how}."

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "sentence": self.sentence}


@dataclass(frozen=True)
class Trend:
    """A metric over the history."""

    key: str
    part: Part
    words: str
    scale: str
    is_monitored: bool
    points: tuple[TrendPoint, ...]
    departure: Departure | None


@dataclass(frozen=True, eq=False)
class Monitoring:
    """A history of audits and its departures.

    Attributes
    ----------
    trends
        Every metric that at least two audits have; those with `is_monitored` can raise an alarm.
    false_alarm_rate
        The chance that a history of this length raises any alarm if nothing changed.
    single_limit, cusum_limit
        The resulting limits, in standard errors.
    warnings
        Reservations, in words.
    """

    history: History
    trends: tuple[Trend, ...]
    false_alarm_rate: float
    single_limit: float
    cusum_limit: float
    warnings: tuple[str, ...]

    @property
    def departures(self) -> tuple[Departure, ...]:
        """The departures, earliest first."""
        place = {audit.name: k for k, audit in enumerate(self.history.audits)}
        departures = (trend.departure for trend in self.trends if trend.departure is not None)
        return tuple(sorted(departures, key=lambda departure: place[departure.audit]))

    @property
    def sentences(self) -> tuple[str, ...]:
        """The outcome in words."""
        n = len(self.history)
        if n < 2:
            return ("A single audit has no past to depart from.",)
        if self.departures:
            return tuple(departure.sentence for departure in self.departures)
        # Inputs are many; the page has those.
        last = {t.words: t.points[-1].detectable for t in self.trends if t.is_monitored and t.part != "inputs"}
        sizes = [f"{decimal(size)} in {words}" for words, size in last.items() if size > _CONSTANT]
        noticed = f"The last audit would have noticed these changes in 80% of cases: {'; '.join(sizes)}."
        quiet = f"In {n} audits, no monitored metric departed from its past by more than noise."
        return (quiet, noticed) if sizes else (quiet,)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "schema": "evenhand.monitoring/2",
            "audits": [described(audit.name, audit.data) for audit in self.history.audits],
            "ordered_by": self.history.ordered_by,
            "sentences": list(self.sentences),
            "false_alarm_rate": self.false_alarm_rate,
            "single_limit": self.single_limit,
            "cusum_limit": self.cusum_limit,
            "trends": [{**asdict(t), "departure": t.departure and t.departure.to_dict()} for t in self.trends],
            "departures": [departure.to_dict() for departure in self.departures],
            "skipped": list(self.history.skipped),
            "warnings": list(self.warnings),
        }

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write `to_dict` as JSON, completely or not at all; a missing number is null."""
        write_json(self.to_dict(), path)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the history as one HTML file that needs no network, completely or not at all."""
        labels = words_of(audit.data for audit in self.history.audits)
        audits = [described(audit.name, audit.data, labels) for audit in self.history.audits]
        write_text(path, monitoring_page({**self.to_dict(), "audits": audits}))


def monitor(
    history: History | Mapping[str, Audit] | str | os.PathLike[str], *, false_alarm_rate: float = 0.05
) -> Monitoring:
    r"""Monitor a history of audits: which metrics departed from their past, and when.

    Every audit is compared with the precision-weighted mean of all previous ones,

    .. math:: z_t = \frac{x_t - \bar x_{t-1}}{\sqrt{s_t^2 + 1 / \sum_{i<t} s_i^{-2}}}

    As long as nothing changes, these are independent standard normal numbers. An alarm is raised by a single
    :math:`|z_t|` beyond its limit, or by a CUSUM, :math:`C_t = \max(0, C_{t-1} + z_t - 1/2)`, beyond its limit, up or
    down. After a metric raises an alarm, its past is no longer updated. The false alarm rate applies to the whole
    history: it is divided equally over the monitored metrics, and for each metric over the two rules.

    The monitored metrics are the answers to the four questions (score gaps in the unit of the explanations, every
    input's part of them, weighing, and the excess), the signed gaps in positive, true positive and false positive
    rates, and the AUC. Other metrics are shown without limits.

    The limits only account for sampling noise. If people change from month to month for other reasons, metrics change
    with them, and rightly raise alarms.

    Parameters
    ----------
    history
        The output of `read_history`, or the folder that it reads; or audits by name, oldest first: results, the output
        of `to_dict`, or files that `to_json` wrote.
    false_alarm_rate
        Chance of any alarm in a history of this length in which nothing changed.

    Raises
    ------
    InvalidInputError
        If `false_alarm_rate` is not between 0 and 1.

    Examples
    --------
    >>> import evenhand as eh, pathlib, tempfile
    >>> from evenhand.auditing.history.records import read_history
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for month in range(3):
    ...     planted = eh.make_planted_bias(80, random_state=month)
    ...     people = planted.dataset
    ...     eh.audit(planted.model, people.X, people.y, sensitive_features=people.group,
    ...              financial_features=people.financial_features, evidence=False).to_json(folder / f"{month}.json")
    >>> monitor(read_history(folder)).sentences[0]
    'In 3 audits, no monitored metric departed from its past by more than noise.'
    """
    if not 0 < false_alarm_rate < 1:
        raise InvalidInputError(f"`false_alarm_rate` must lie strictly between 0 and 1, got {false_alarm_rate}.")
    history = history_of(history)
    names = [audit.name for audit in history.audits]
    common = set.intersection(*(set(audit.data["data"]["groups"]) for audit in history.audits))
    own = history.audits[0].data["outcome"]["approvals"]["reference"]
    reference = own if own in common else min(common, default=None)
    labels = words_of(audit.data for audit in history.audits)
    tables = [audit_metrics(audit.data, reference, labels=labels) for audit in history.audits]
    first: dict[str, AuditMetric] = {}
    for table in tables:
        first |= {key: metric for key, metric in table.items() if key not in first and metric.part != "feature"}
    # Missing for audits that have no standard error, or whose model is explained in a different unit.
    series = {
        key: [m if (m := table.get(key)) and m.has_error and m.unit == first[key].unit else None for table in tables]
        for key in first
    }
    series = {key: metrics for key, metrics in series.items() if sum(metric is not None for metric in metrics) >= 2}
    monitored = [key for key in series if first[key].finding or key == "auc" or key.startswith("gap: ")]
    n_tests = max(len(names) - 1, 1)
    share = false_alarm_rate / max(len(monitored), 1) / 2
    limits = single_limit(share, n_tests), cusum_limit(share, n_tests)
    trends = tuple(_trend(first[key], s, names, *limits, key in monitored) for key, s in series.items())
    return Monitoring(history, trends, false_alarm_rate, *limits, tuple(_reservations(history, common)))


def single_limit(rate: float, n_tests: int) -> float:
    """The limit that the largest of `n_tests` absolute standard normal numbers exceeds with probability `rate`.

    Examples
    --------
    >>> round(single_limit(0.05, 1), 2), round(single_limit(0.05, 12), 2)
    (1.96, 2.86)
    """
    return -float(special.ndtri(-math.expm1(math.log1p(-rate) / n_tests) / 2))


@lru_cache(maxsize=64)
def cusum_limit(rate: float, n_tests: int) -> float:
    """The limit that either of the two CUSUMs exceeds within `n_tests` steps with probability at most `rate`.

    The probability for one of them is that of a Markov chain on a grid (Brook and Evans 1972); for either, it is at
    most twice as large.

    Examples
    --------
    >>> round(cusum_limit(0.05, 12), 1)
    3.9
    """
    # One step has a closed form, and all limits are at least as large.
    lowest = -float(special.ndtri(rate / 2)) - _SLACK
    if n_tests == 1:
        return max(lowest, 0.0)

    ends = max(lowest, 0.05), lowest + 3 * math.sqrt(n_tests) + 3
    return float(brentq(lambda limit: _crossing_chance(limit, n_tests) - rate / 2, *ends, xtol=1e-4))


def _crossing_chance(limit: float, n_tests: int) -> float:
    """Probability that a CUSUM of standard normal numbers, started at 0, exceeds `limit` within `n_tests` steps."""
    width = 2 * limit / (2 * _STATES - 1)  # the state at 0 is a point, with half a cell above it
    center = np.arange(_STATES) * width
    upper = special.ndtr(center[None, :] + width / 2 - center[:, None] + _SLACK)
    move = np.diff(upper, axis=1, prepend=0.0)
    return float(1 - np.linalg.matrix_power(move, n_tests)[0].sum())


def _trend(
    known: AuditMetric,
    metrics: Sequence[AuditMetric | None],
    names: Sequence[str],
    single: float,
    drift: float,
    is_monitored: bool,
) -> Trend:
    # Inputs appear next to other metrics.
    words = f"part of {known.words} in the score gap" if known.part == "inputs" else known.words
    is_ratio = known.scale == "ratio"
    shown = math.exp if is_ratio else float
    points: list[TrendPoint] = []
    departure: Departure | None = None
    precision = total = high = low = 0.0
    rose = fell = 0  # where the current climb of each CUSUM started
    for place, (name, metric) in enumerate(zip(names, metrics, strict=True)):
        if metric is None:
            points.append(TrendPoint(name))
            continue
        value = math.log(metric.value) if is_ratio else metric.value
        error = max(metric.standard_error, ROUNDING)
        expected = limit = z = detectable = math.nan
        if precision > 0:
            expected = total / precision
            spread = math.hypot(error, precision**-0.5)
            z, limit = _normal(value - expected, spread, metric.df), single * spread
            df = metric.df if math.isfinite(metric.df) else math.inf
            detectable = shown(size_found(spread, df, 2 * float(special.ndtr(-single)), sides=2))
            rose, fell = (place if high == 0 else rose), (place if low == 0 else fell)
            high, low = max(0.0, high + z - _SLACK), max(0.0, low - z - _SLACK)
        half = normal_quantile(0.95) * error
        ends = (shown(value - half), shown(value + half), shown(expected))
        limits = (shown(expected - limit), shown(expected + limit))
        points.append(TrendPoint(name, metric.value, metric.standard_error, *ends, *limits, z, high, low, detectable))
        if is_monitored and departure is None and (abs(z) > single or max(high, low) > drift):
            rule = "single" if abs(z) > single else "drift"
            is_up = z > 0 if rule == "single" else high > low
            began = names[place if rule == "single" else rose if is_up else fell]
            departure = Departure(known.key, words, name, rule, began, "upwards" if is_up else "downwards")
        if departure is None:
            precision += error**-2
            total += value * error**-2
    return Trend(known.key, known.part, words, known.scale, is_monitored, tuple(points), departure)


def _normal(deviation: float, spread: float, df: float) -> float:
    """The standard normal number as rare as this deviation, whose spread is known up to `df` degrees of freedom."""
    ratio = deviation / spread
    if not math.isfinite(df):
        return ratio
    # Use the smaller tail, which keeps its digits.
    return math.copysign(-float(special.ndtri(max(special.stdtr(df, -abs(ratio)), 1e-300))), ratio)


def _reservations(history: History, common: set[str]) -> Iterator[str]:
    yield from history.skipped
    for before, after in pairwise(history.audits):
        for name, own, value in changed_settings(before.data["settings"], after.data["settings"], _DEFINING):
            yield (
                f"{name} changed at {after.name}, from {setting_words(own)} to {setting_words(value)}: this alone may "
                "make metrics before and after differ."
            )
    if any(set(audit.data["data"]["groups"]) != common for audit in history.audits):
        yield f"The audits do not all have the same groups; these are in all of them: {listed(sorted(common), 8)}."
    if history.ordered_by == "name" and len(history) > 1:
        yield "Not every file records when it was made, so the audits are ordered by name."
    if history.ordered_by == "created" and len(history) > 1:
        yield (
            "The audits are ordered by the time they were made, because not every name has a period of its own: name "
            "them by period, such as 2024-07, if some were made late."
        )
    without = [audit.name for audit in history.audits if audit.data["evidence"] is None]
    if without:
        yield f"Audited without evidence, so the four questions were not asked: {listed(without, 8)}."
