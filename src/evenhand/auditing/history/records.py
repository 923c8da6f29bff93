"""Audits written as JSON: one file, or a folder of them in chronological order."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from evenhand.arrays import Floats, Ints
from evenhand.auditing.findings import with_words
from evenhand.auditing.fitted import own_score
from evenhand.auditing.options import ReportOptions
from evenhand.auditing.result import AuditReport
from evenhand.auditing.sections import SECTIONS, load_schema
from evenhand.auditing.sections.evidence import excess_metric
from evenhand.auditing.summary import SCHEMA, upgraded
from evenhand.exceptions import DataFileError, InvalidInputError, InvalidTypeError
from evenhand.metrics.excess import excess
from evenhand.metrics.outcomes import auc_influence
from evenhand.report.formatting import listed
from evenhand.report.labels import Labels
from evenhand.report.schema import first_fault
from evenhand.report.section import AuditMetric

Audit: TypeAlias = "AuditReport | Mapping[str, Any] | str | os.PathLike[str]"

_PAIR_COLUMNS = ["person", "match", "group", "other_group", "label", "score", "decision", "cec", "regime"]
# A year, with a month or a quarter, and with a day.
_PERIOD = re.compile(
    r"(?<!\d)((?:19|20)\d\d)(?:[-_. ]?(?:(0[1-9]|1[0-2])|[qQ]([1-4])))?(?:[-_. ]?(0[1-9]|[12]\d|3[01]))?(?!\d)"
)
_MOST_PAIRS = 5_000_000  # read into memory to compare decisions within people


@dataclass(frozen=True, eq=False)
class RecordedAudit:
    """An audit read from a file.

    Attributes
    ----------
    name
        The file's name without its extension; for an `audit.json`, the name of its folder.
    created
        When it was made, according to the file; None if unknown.
    period
        Year, and month, quarter or day if known, that the name says it is about; None if it names none.
    data
        The output of `AuditResult.to_dict`, with None for NaN.
    """

    name: str
    path: Path
    created: datetime | None
    data: Mapping[str, Any]

    @property
    def period(self) -> tuple[int, ...] | None:
        match = _PERIOD.search(self.name)
        if match is None:
            return None
        year, month, quarter, day = (int(part) if part else 0 for part in match.groups())
        return year, 3 * quarter or month, day


@dataclass(frozen=True, eq=False)
class History:
    """Audits in chronological order.

    Attributes
    ----------
    audits
        Oldest first.
    ordered_by
        "period" if every name has a period of its own, "created" if every file records when it was made, else "name";
        "order given" without files.
    skipped
        A sentence for each file that is not an audit.
    """

    audits: tuple[RecordedAudit, ...]
    ordered_by: str
    skipped: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.audits)


class _OtherVersionError(DataFileError):
    """An audit in a different version of the format: complete, but its metrics may have a different meaning."""


def read_audit(path: str | os.PathLike[str], name: str = "") -> dict[str, Any]:
    """Read what `AuditResult.to_json` wrote; `name` is that of the file in messages, by default its path.

    Raises
    ------
    DataFileError
        If the file cannot be read, is not JSON, is not an audit, or has a different version of the format.
    """
    file = name or str(path)
    try:
        data = upgraded(json.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise DataFileError(f"{file} cannot be read ({error.strerror}): give a file written by to_json.") from error
    except (ValueError, RecursionError) as error:
        raise DataFileError(f"{file} is not valid JSON ({error}): write it again with to_json.") from error
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema is None:
        raise DataFileError(
            f"{file} is JSON but not an audit, because it has no key 'schema': give a file written by to_json."
        )
    if schema != SCHEMA:
        raise _OtherVersionError(
            f"{file} has the schema {schema!r}, but this version of evenhand reads {SCHEMA!r}: "
            "run the audit again, or use the version of evenhand that wrote it."
        )
    # When it was made only orders a history, which can do without.
    fault = first_fault({name: value for name, value in data.items() if name != "created"}, load_schema())
    if fault:
        raise DataFileError(f"{file} is an audit that was cut or edited ({fault}): write it again with to_json.")
    return dict(data)


@dataclass(frozen=True, eq=False, repr=False)
class ReadReport(AuditReport):
    """An audit as a file has it; see `read_result`."""

    document: Mapping[str, Any]

    @cached_property
    def _summary(self) -> Mapping[str, Any]:
        return self.document


def read_result(path: str | os.PathLike[str], **report: Any) -> AuditReport:
    """Read what `AuditResult.to_json` or `evenhand audit` wrote, to show it and to write it anew without an audit.

    Parameters
    ----------
    path
        A JSON file such as audit.json.
    **report
        Fields of `ReportOptions` to use instead of those in the file, such as `title` and `labels`.

    Returns
    -------
    Everything that the file has: `summary`, `findings`, `tables`, `plot`, `show`, `to_dict`, `to_html`, `to_excel`,
    `to_word`, `to_markdown` and `to_json`. It has no people: page and workbook lack applicants and pairs, and say so.

    Raises
    ------
    DataFileError
        If the file cannot be read, or is not an audit in the format of this version.

    Examples
    --------
    >>> import evenhand as eh, pathlib, tempfile
    >>> planted = eh.make_planted_bias(200, strength=1.0)
    >>> people = planted.dataset
    >>> result = eh.audit(planted.model, people.X, people.y, sensitive_features=people.group,
    ...                   financial_features=people.financial_features, evidence=False)
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "audit.json"
    >>> result.to_json(file)
    >>> eh.read_result(file, title="Q3 review").to_markdown().splitlines()[0]
    '# Q3 review'
    """
    document = read_audit(path)
    given = ReportOptions(**report).report
    named = {**document.get("report", {}), **given}
    if "labels" in given:
        return ReadReport(with_words(_with_numbers(document), named))
    return ReadReport({**document, **({"report": named} if named else {})})


_NUMBERS = {"value", "low", "high", "standard_error", "p_value", "p_adjusted", "smallest_p", "n_effective", "auc"}


def _with_numbers(part: Any) -> Any:
    """A part of a summary with NaN where the file has null for a number; degrees of freedom are then infinite."""
    if isinstance(part, Mapping):
        found = {name: _with_numbers(value) for name, value in part.items()}
        found |= {name: math.nan for name in _NUMBERS if name in found and found[name] is None}
        return {**found, "df": math.inf} if "df" in found and found["df"] is None else found
    return [_with_numbers(item) for item in part] if isinstance(part, list) else part


def pairs_beside(path: str | os.PathLike[str], summary: Mapping[str, Any]) -> pd.DataFrame | None:
    """The pairs that `evenhand audit` wrote next to an `audit.json`; None if there are none, or not of this audit."""
    file = Path(path)
    places = [file.parent / name for name in ("pairs.parquet", "pairs")] if file.name == "audit.json" else []
    pairs = next((place for place in places if place.exists()), None)
    if pairs is None:
        return None
    files = sorted(pairs.glob("*.parquet")) if pairs.is_dir() else [pairs]
    try:
        if sum(pq.read_metadata(part).num_rows for part in files) > _MOST_PAIRS:
            return None
        table = pd.concat([pd.read_parquet(part, columns=_PAIR_COLUMNS) for part in files], ignore_index=True)
    except (OSError, ValueError, pa.ArrowException):
        return None
    decided = table.drop_duplicates("person")
    counts = {row["group"]: (row["n"], row["positive_rate"]) for row in summary["outcome"]["groups"]}
    by_group = decided.groupby(decided["group"].astype(str))["decision"].agg(["size", "mean"])
    is_of_audit = len(by_group) == len(counts) and all(
        counts.get(group, (0, 0))[0] == n and abs(counts[group][1] - rate) < 1e-9
        for group, n, rate in by_group.itertuples()
    )
    return table if is_of_audit else None


def read_history(folder: str | os.PathLike[str]) -> History:
    """The audits of a folder, oldest first.

    Reads every `*.json` in the folder and the `audit.json` of every subfolder. They are ordered by the periods in their
    names, such as 2024, 2024-Q3, 2024-07 or 2024-07-31, because an old period may be audited late. If a name has no
    period, or two have the same, they are ordered by the time recorded under `created`; if any lacks it, by name, with
    digits compared as numbers. A file that is damaged or not an audit is skipped with a sentence.

    Raises
    ------
    DataFileError
        If the folder does not exist, has no audit, or has one with a different version of the format.

    Examples
    --------
    >>> import evenhand as eh, tempfile
    >>> folder, planted = Path(tempfile.mkdtemp()), eh.make_planted_bias(60, random_state=0)
    >>> people = planted.dataset
    >>> result = eh.audit(planted.model, people.X, people.y, sensitive_features=people.group,
    ...                   financial_features=people.financial_features, evidence=False)
    >>> for month in ("2024-01", "2024-02"):
    ...     result.to_json(folder / f"{month}.json")
    >>> [audit.name for audit in read_history(folder).audits]
    ['2024-01', '2024-02']
    """
    root = Path(folder)
    if not root.is_dir():
        raise DataFileError(f"The history must be a folder of audits written by to_json, got {root}.")
    audits, skipped = [], []
    for file in sorted([*root.glob("*.json"), *root.glob("*/audit.json")]):
        name = file.stem if file.parent == root else file.parent.name
        try:
            # The sentences are shown on pages, which should not reveal the folder.
            data = read_audit(file, str(file.relative_to(root)))
        except _OtherVersionError:
            raise
        except DataFileError as error:
            skipped.append(str(error))
            continue
        audits.append(RecordedAudit(name, file, _created(data), data))
    if not audits:
        reason = f" {len(skipped)} files were skipped, the first because: {skipped[0]}" if skipped else ""
        raise DataFileError(f"No audit was found in {root}: write some there with to_json.{reason}")
    periods = {audit.period for audit in audits}
    if None not in periods and len(periods) == len(audits):
        return History(tuple(sorted(audits, key=lambda audit: audit.period or ())), "period", tuple(skipped))
    has_times = all(audit.created is not None for audit in audits)
    audits.sort(key=lambda audit: (audit.created, audit.name) if has_times else _place(audit))
    return History(tuple(audits), "created" if has_times else "name", tuple(skipped))


def summary_of(name: object, audit: Audit) -> Mapping[str, Any]:
    """The summary of an audit: from a result, as given, or read from a file.

    Raises
    ------
    InvalidTypeError
        If the audit is none of these.
    DataFileError
        If the file is not an audit.
    """
    if isinstance(audit, AuditReport):
        return audit.to_dict()
    if isinstance(audit, Mapping):
        return dict(upgraded(audit))
    if isinstance(audit, (str, os.PathLike)):
        return read_audit(audit)
    raise InvalidTypeError(
        f"The audit {name!r} must be an AuditResult, its to_dict or the path of its JSON, got a {type(audit).__name__}."
    )


def history_of(audits: History | Mapping[str, Audit] | str | os.PathLike[str]) -> History:
    """A history: as given, read from its folder, or made from audits by name in the given order."""
    if isinstance(audits, History):
        return audits
    if isinstance(audits, (str, os.PathLike)):
        return read_history(audits)
    if not isinstance(audits, Mapping) or not audits:
        raise InvalidTypeError(f"`history` must be a folder, or audits by name, got {type(audits).__name__}.")
    summaries = {str(name): summary_of(name, audit) for name, audit in audits.items()}
    recorded = (RecordedAudit(name, Path(name), _created(data), data) for name, data in summaries.items())
    return History(tuple(recorded), "order given", ())


def words_of(summaries: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The labels of several audits; if two differ, that of the later audit."""
    return {name: label for one in summaries for name, label in one.get("report", {}).get("labels", {}).items()}


def described(name: str, summary: Mapping[str, Any], labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What a page on several audits says about each: its people, its date and versions, and its features.

    With `labels`, in the user's words, the model included.
    """
    created, report = summary.get("created"), summary.get("report", {})
    model = [summary["data"]["model"]]
    if labels is not None:
        summary = Labels.of(labels, summary).summary(summary)
        model = [report[key] for key in ("model_name", "model_version") if report.get(key)] or model
    return {
        "name": name,
        "model": " ".join(map(str, model)),
        "n_people": summary["data"]["n_people"],
        "groups": dict(summary["data"]["groups"]),
        "created": created if isinstance(created, str) else "",
        "evenhand": str(summary["versions"].get("evenhand", "")),
        "shares": {str(row["feature"]): row["share"] for row in summary["features"]},
    }


def changed_settings(
    before: Mapping[str, Any], after: Mapping[str, Any], names: Iterable[str]
) -> Iterator[tuple[str, Any, Any]]:
    """Settings that differ, with both values; lists are unordered. One that an audit is older than does not differ."""
    for name in (name for name in names if name in before and name in after):
        own, value = (sorted(v) if isinstance(v, (list, tuple)) else v for v in (before[name], after[name]))
        if own != value:
            yield name, own, value


def setting_words(value: Any) -> str:
    """A setting in a sentence.

    Examples
    --------
    >>> setting_words(["age", "income"]), setting_words(None), setting_words(0.3)
    ('age and income', 'none', '0.3')
    """
    if isinstance(value, (list, tuple)):
        return listed([str(item) for item in value], 12)
    return "none" if value is None else str(value)


def _created(data: Mapping[str, Any]) -> datetime | None:
    """When the audit was made; a time without a zone is taken as UTC."""
    try:
        created = datetime.fromisoformat(data["created"])
    except (KeyError, TypeError, ValueError):
        return None
    return created if created.tzinfo else created.replace(tzinfo=UTC)


def _place(audit: RecordedAudit) -> tuple[Any, ...]:
    """By name, with runs of digits as numbers, so that audit-10 follows audit-9."""
    parts = (part for part in re.split(r"(\d+)", audit.name) if part)
    return tuple((not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts)


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
