"""Whole jobs: the demonstration, and audits, searches and trainings from files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from evenhand import load_model
from evenhand.auditing.audit import audit
from evenhand.auditing.direction import notes_on_label
from evenhand.auditing.options import AuditOptions, AuditSettings, GivenOptions, RoleOptions, StreamOptions
from evenhand.cli.options import AuditPlan, TablePlan, opened_table
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.checking import without_unfit
from evenhand.inputs.given import GivenColumns, attribution_columns, rows_by_id, rows_in_order
from evenhand.inputs.group_probabilities import GroupProbabilities
from evenhand.inputs.read_options import ReadOptions
from evenhand.inputs.reason_maps import ReasonMap
from evenhand.inputs.roles import Columns, Rows
from evenhand.inputs.splitting import sample_people, split_people
from evenhand.inputs.tables import open_table, typed
from evenhand.inputs.tables.open import fingerprint_input
from evenhand.inputs.validation import as_groups, as_labels, check_columns
from evenhand.models.introspection import input_columns
from evenhand.system.terminal import PATIENCE, progress

_SHOWN = 8


@dataclass(frozen=True, eq=False)
class ReadColumns:
    """What was read from a file about everyone in it.

    Attributes
    ----------
    columns
        The role of each column.
    frame
        The columns of the applicants' file, one row for each of its rows.
    second, ids, base_values
        Attributions by feature from a second file, and its columns of ids and base values; None if absent.
    where
        The second file, for messages.
    """

    columns: GivenColumns
    frame: pd.DataFrame
    second: pd.DataFrame | None = None
    ids: str | None = None
    base_values: str | None = None
    where: str = ""

    def of(self, people: Rows) -> dict[str, Any]:
        """The columns of some people, as `audit_given` takes them."""
        columns, own = self.columns, self.frame.iloc[people.kept].reset_index(drop=True)
        base = columns.base_values
        found = {
            "scores": None if columns.scores is None else own[columns.scores],
            "base_values": own[base] if isinstance(base, str) else base,
            "reason_codes": own[list(columns.reason_codes)] if columns.reason_codes else None,
        }
        if self.second is not None:
            beside = self._of_second(people)
            if self.base_values is not None:
                found["base_values"] = beside.pop(self.base_values)
            return {**found, "attributions": beside}
        named = columns.attributions
        shap = None if named is None else own[list(named.values())].set_axis(list(named), axis=1)
        return {**found, "attributions": shap}

    def _of_second(self, people: Rows) -> pd.DataFrame:
        assert self.second is not None
        if self.ids is None:
            return rows_in_order(self.second, len(self.frame), people.kept, self.where)
        assert people.ids is not None
        return rows_by_id(self.second, self.ids, people.ids, self.where).drop(columns=self.ids)


def read_given(
    path: Any,
    plan: AuditPlan,
    applicants: Callable[[AuditPlan, list[str] | None], tuple[Rows, tuple[str, ...]]],
) -> tuple[Rows, ReadColumns, tuple[str, ...]]:
    """Read the people of a file, the columns that replace a model, and notes on the reading.

    If there are attributions, the model's inputs are the columns that have them.

    Parameters
    ----------
    path
        File of the applicants.
    plan
        The options.
    applicants
        Function that reads the people of the file, with the named features or with all columns that have no other role.
    """
    reading = ReadOptions(**{option.name: getattr(plan, option.name) for option in fields(ReadOptions)})
    raw = open_table(path, reading)
    names = list(raw.schema.names)
    beside = None if plan.attributions_file is None else _SecondFile.of(plan, reading)
    base = None if beside is None else beside.base_values
    columns = GivenColumns.among(
        names,
        scores=plan.scores,
        base_values=plan.base_values if base is None else None,
        reason_codes=plan.reason_codes,
        attributions=plan.attributions if beside is None else (),
    )
    features = columns.attributions if beside is None else beside.features
    inputs = None if features is None else _inputs(list(features), names, plan)
    people, notes = applicants(replace(plan, drop=(*plan.drop, *columns.needed)), inputs)
    frame = typed(raw, columns.needed or names[:1], reading).table.to_pandas()
    read = ReadColumns(columns, frame)
    if beside is not None:
        read = ReadColumns(columns, frame, beside.frame, beside.ids, base, beside.where)
    return people, read, (*notes, *_unused_columns(inputs, names, plan, columns))


@dataclass(frozen=True, eq=False)
class _SecondFile:
    """Attributions by feature from a second file, its columns of ids and base values, and its name."""

    frame: pd.DataFrame
    features: tuple[str, ...]
    ids: str | None
    base_values: str | None
    where: str

    @classmethod
    def of(cls, plan: AuditPlan, reading: ReadOptions) -> _SecondFile:
        assert plan.attributions_file is not None
        raw = open_table(plan.attributions_file, reading)
        names = list(raw.schema.names)
        ids = None
        if plan.ids is not None:
            (ids,) = check_columns([plan.ids], names, "`ids` (--id), in the attributions file,")
        base = plan.base_values if plan.base_values in names else None
        beside = [name for name in (ids, base) if name is not None]
        named = attribution_columns(plan.attributions or ("*",), [name for name in names if name not in beside])
        table = typed(raw, [*named.values(), *beside], reading).table.to_pandas()
        return cls(table.set_axis([*named, *beside], axis=1), tuple(named), ids, base, raw.where)


def _inputs(features: Sequence[str], names: Sequence[str], plan: AuditPlan) -> list[str]:
    """The columns that have attributions, in the order of the file."""
    absent = [feature for feature in features if feature not in names]
    if absent:
        raise InvalidInputError(
            f"There are attributions for {absent[:_SHOWN]}, which are not columns of the applicants' file; map a "
            "feature to its column with --attributions feature=column."
        )
    lacking = [name for name in plan.financial_features if name not in features]
    if lacking:
        raise InvalidInputError(
            f"Attributions are missing for the financial features {lacking}; pass them, with 0 for a feature that the "
            "model does not use."
        )
    return [name for name in names if name in features]


def _unused_columns(
    inputs: Sequence[str] | None, names: Sequence[str], plan: AuditPlan, columns: GivenColumns
) -> tuple[str, ...]:
    """A note on the columns that are not inputs because they have no attributions."""
    if inputs is None:
        return ()
    roles = {plan.label, plan.ids, plan.clusters, plan.decisions, *plan.group, *plan.by, *plan.drop, *columns.needed}
    rest = [name for name in names if name not in roles and name not in inputs]
    if not rest:
        return ()
    return (
        f"Not used as inputs, because they have no attributions: {', '.join(map(repr, rest[:_SHOWN]))}{_more(rest)}.",
    )


def _more(names: Sequence[str]) -> str:
    return f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""


if TYPE_CHECKING:
    from evenhand.auditing.result import AuditResult
    from evenhand.searching import SearchResult
    from evenhand.training.classifier import CECClassifier


_TRAIN_SHARE = 0.7
_QUICK_PEOPLE = 2_000
_DEMO_PEOPLE = 12_000  # out of 30,000, for an answer within seconds


def audit_demo(random_state: int = 0) -> AuditResult:
    """Audit a plain network on Taiwan's credit cards, which does not see sex, on held-out people."""
    from evenhand.datasets import load_dataset

    data = load_dataset("taiwan")
    drawn = sample_people(data.y, as_groups(data.group, len(data)).codes, _DEMO_PEOPLE, random_state)
    return _fit_and_audit(
        data.X.iloc[drawn],
        data.y[drawn],
        data.group[drawn],
        data.financial_features,
        {"random_state": random_state},
    )


def audit_table(path: Any, plan: AuditPlan) -> AuditResult:
    """Audit the applicants of a table.

    Without a model, and without scores or decisions in its place, a plain network is fitted on 70% of the people and
    audited on the rest, who are matched to people in the 70%.
    """
    if is_without_model(plan):
        return _audit_given_table(path, plan)
    with progress("reading", 2, after=PATIENCE) as advance:
        fitted = None if plan.model is None else load_model(plan.model, trust_pickle=plan.trust_pickle)
        advance("model")
        features = None if fitted is None else input_columns(fitted)
        everyone, notes = _applicants(path, plan, features)
        advance("people")
    people = _drawn(everyone, plan.random_state) if plan.quick else everyone
    assert people.table is not None
    reference = None if plan.reference is None else opened_table(plan.reference, plan)
    by = pd.DataFrame(people.by) if people.by else None
    if fitted is None:
        if plan.reference is not None:
            raise InvalidInputError(
                "--reference needs --model: without a model, the people are split into a reference and an audited part."
            )
        result = _fit_and_audit(
            people.table,
            people.labels,
            _sensitive(people, plan),
            plan.financial_features,
            {**_audit_options(plan), "regressions": plan.regressions},
            by,
            people.ids,
            _clusters(people),
            people.outcomes,
            people.sample_weight,
        )
    else:
        columns = [str(name) for name in people.table.columns]
        pool = None if reference is None else _applicants(reference, plan, columns, is_checked=True)[0]
        result = audit(
            fitted,
            people.table,
            people.labels if plan.label else None,
            sensitive_features=_sensitive(people, plan),
            financial_features=plan.financial_features,
            reference=None if pool is None else _as_reference(pool, plan),
            decisions=people.decisions,
            ids=people.ids,
            by=by,
            clusters=_clusters(people),
            regressions=plan.regressions,
            outcomes=people.outcomes,
            sample_weight=people.sample_weight,
            progress=True,
            **_audit_options(plan),
        )
    files = {"data file": path, "model file": plan.model, "reference file": reference}
    return _finished(result, people, len(everyone), notes, files)


def _finished(
    result: AuditResult,
    people: Rows,
    n_everyone: int,
    notes: Sequence[str],
    files: Mapping[str, Any],
) -> AuditResult:
    """Add to a result its source files, the rows left out of them, and the notes on them."""
    hashes = {what: fingerprint_input(file) for what, file in files.items() if file is not None}
    versions = {what.replace(" file", " version"): getattr(file, "version", "") for what, file in files.items()}
    hashes |= {what: version for what, version in versions.items() if version}
    provenance = replace(result.provenance, exclusions=people.exclusions, hashes={**result.provenance.hashes, **hashes})
    looked = (
        f"This is a quick look at {len(people):,} of {n_everyone:,} people, drawn at random with the same shares "
        "of label and group: audit everyone before you base a decision on it.",
    )
    is_part = len(people) < n_everyone
    return replace(result, provenance=provenance, warnings=(*(looked if is_part else ()), *notes, *result.warnings))


def is_without_model(plan: AuditPlan) -> bool:
    """Whether scores, attributions, reasons or decisions take the place of a model.

    Raises
    ------
    InvalidInputError
        If there is a model as well.
    """
    given = [name for name in _values(plan, GivenOptions) if getattr(plan, name)]
    if plan.model is not None and given:
        shown = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise InvalidInputError(f"{shown} take the place of a model, but --model names one too: use only one of them.")
    return plan.model is None and (bool(given) or plan.decisions is not None)


def _audit_given_table(path: Any, plan: AuditPlan) -> AuditResult:
    """Audit the scores, decisions and attributions that a file holds."""
    from evenhand.auditing.given import audit_given

    if plan.reference is not None:
        raise InvalidInputError("--reference needs --model: without a model, people are matched with each other.")
    if not plan.evidence:
        raise InvalidInputError(
            "--no-evidence needs --model: without a model, an audit consists of the evidence alone."
        )
    with progress("reading", 2, after=PATIENCE) as advance:
        everyone, given, notes = read_given(path, plan, partial(_applicants, path))
        advance("people")
        people = _drawn(everyone, plan.random_state) if plan.quick else everyone
        columns = given.of(people)
        advance("columns")
    options = _audit_options(plan)
    settings = options.pop("settings")
    for name in ("attribution", "evidence"):
        del options[name]
    result = audit_given(
        people.table,
        people.labels if plan.label else None,
        sensitive_features=_names(people),
        financial_features=plan.financial_features,
        decisions=people.decisions,
        ids=people.ids,
        by=pd.DataFrame(people.by) if people.by else None,
        clusters=_clusters(people),
        unit=settings.unit,
        output=settings.output,
        n_reasons=settings.n_reasons,
        regressions=plan.regressions,
        outcomes=people.outcomes,
        progress=True,
        **columns,
        **options,
    )
    files = {"data file": path, "attributions file": plan.attributions_file}
    return _finished(result, people, len(everyone), notes, files)


def _drawn(everyone: Rows, random_state: int) -> Rows:
    """The people drawn for a quick look."""
    assert everyone.groups is not None
    if len(everyone) <= _QUICK_PEOPLE:
        return everyone
    rows = sample_people(everyone.labels, everyone.groups.codes, _QUICK_PEOPLE, random_state)
    return everyone.drawn(rows, "not drawn for a quick look")


def stream_table(path: Any, plan: AuditPlan, out: Path) -> AuditResult:
    """Audit a model file on the applicants of files of any size, in batches: see `evenhand.audit_stream`."""
    from evenhand.auditing.streaming import audit_stream

    if plan.quick:
        raise InvalidInputError("--quick draws people from a table in memory: drop --quick or --stream.")
    if is_without_model(plan):
        raise InvalidInputError(
            "An audit without a model runs in memory: drop --stream, and pass one file rather than a folder."
        )
    if plan.model is None:
        raise InvalidInputError(
            "An audit in batches needs --model: train one first, for example with `evenhand train`."
        )
    if plan.regressions or plan.outcomes:
        raise InvalidInputError(
            "--regressions needs the people in memory: drop it and --outcomes from an audit in batches, or pass one "
            "file without --stream."
        )
    fitted = load_model(plan.model, trust_pickle=plan.trust_pickle)
    return audit_stream(
        fitted,
        path,
        financial_features=plan.financial_features,
        out=out,
        reference=plan.reference,
        progress=True,
        by=plan.by,
        reading=ReadOptions(**_values(plan, ReadOptions)),
        **_values(plan, RoleOptions),
        **_values(plan, StreamOptions),
        **_audit_options(plan),
    )


def search_table(
    path: Any,
    plan: TablePlan,
    **settings: Any,
) -> tuple[SearchResult, list[str]]:
    """Search for an alternative on the applicants of a file; return it and the notes on how cells were read."""
    from evenhand.searching import search

    people, notes = _applicants(path, plan)
    found = search(
        people.table,
        people.labels,
        sensitive_features=_names(people),
        financial_features=list(plan.financial_features),
        clusters=_clusters(people),
        progress=True,
        **settings,
    )
    return found, [*notes, *_left_out(people)]


def _clusters(people: Rows) -> np.ndarray[Any, Any] | None:
    """Which applicant or household each row belongs to; None for a row whose value is missing, which is alone."""
    if people.clusters is None:
        return None
    clusters = people.clusters.astype(object)
    clusters[people.clusters == 0] = None
    return clusters


def train_table(
    path: Any,
    plan: TablePlan,
    **settings: Any,
) -> tuple[CECClassifier, list[str]]:
    """Fit a classifier on the applicants of a file; return it with notes on rows left out and how cells were read."""
    from evenhand.training.classifier import CECClassifier

    people, notes = _applicants(path, plan)
    model = CECClassifier(financial_features=list(plan.financial_features), progress=True, **settings)
    return model.fit(people.table, people.labels, sensitive_features=_names(people)), [*notes, *_left_out(people)]


def _left_out(people: Rows) -> list[str]:
    return [f"Left out {count:,} rows: {reason}." for reason, count in people.exclusions.items()]


def _values(plan: object, kind: type) -> dict[str, Any]:
    """The options of a plan that a dataclass defines."""
    return {option.name: getattr(plan, option.name) for option in fields(kind)}


def _audit_options(plan: AuditPlan) -> dict[str, Any]:
    """The choices of a plan as `audit` and `audit_stream` take them."""
    further = _values(plan, AuditSettings)
    direct = {name: value for name, value in _values(plan, AuditOptions).items() if name not in further}
    del direct["financial_features"]
    return {**direct, "settings": AuditSettings(**further)}


def _applicants(
    path: Any,
    plan: AuditPlan | TablePlan,
    features: list[str] | None = None,
    *,
    is_checked: bool = False,
) -> tuple[Rows, tuple[str, ...]]:
    """Read the people of a file, with notes on how cells were read and on columns that are not inputs.

    `is_checked` says that the columns were checked before.
    """
    reading = ReadOptions(**_values(plan, ReadOptions))
    raw = open_table(path, reading)
    roles = _values(plan, RoleOptions)
    asked = (*plan.financial_features, *roles.pop("keep_inputs"))
    columns = Columns.among(
        raw.schema.names,
        features=features,
        by=getattr(plan, "by", ()),
        outcomes=getattr(plan, "outcomes", ()),
        financial=plan.financial_features,
        favorable=None if getattr(plan, "unit", None) else getattr(plan, "favorable", None),
        probabilities=getattr(plan, "group_probabilities", ()),
        **roles,
    )
    file = typed(raw, columns.needed, reading)
    notes = tuple(file.notes)
    if not is_checked:
        if plan.positive_label is None and plan.label:
            notes = (*notes_on_label(plan.label, getattr(plan, "favorable", None)), *notes)
        inputs = file.table.select(list(columns.features)).to_pandas()
        columns, left_out = without_unfit(columns, inputs, asked=asked, is_named=features is not None)
        notes += left_out
    rows = columns.rows_of(file.table, raw.where)
    if rows.table is None:
        raise InvalidInputError(f"{raw.where} has no row with both a label and a group.")
    absent = 1 if columns.favorable == "low" else 0
    if columns.positive_label is not None and (rows.labels == absent).all():
        labels = file.table.column(columns.label).drop_null().unique().to_pylist()
        seen = sorted({str(value).strip() for value in labels})[:6]
        raise InvalidInputError(
            f"--positive-label {columns.positive_label!r} is not a value of the label, which has {seen}."
        )
    return rows, notes


def _as_reference(pool: Rows, plan: AuditPlan) -> dict[str, Any]:
    """The people of a file in the form that `audit` takes as a reference."""
    return {
        "X": pool.table,
        "y": pool.labels,
        "sensitive_features": _sensitive(pool, plan),
        "decisions": pool.decisions,
        "ids": pool.ids,
        "clusters": _clusters(pool),
        "by": pd.DataFrame(pool.by) if pool.by else None,
        "sample_weight": pool.sample_weight,
    }


def _names(people: Rows) -> np.ndarray[Any, Any]:
    """The group of each person by name."""
    assert people.groups is not None
    return np.asarray(people.groups.names)[people.groups.codes]


def _sensitive(people: Rows, plan: AuditPlan) -> np.ndarray[Any, Any] | GroupProbabilities:
    """Each person's group, or group probabilities."""
    if people.probabilities is None:
        return _names(people)
    return GroupProbabilities(people.probabilities, n_draws=plan.draws, threshold=plan.group_threshold)


def _fit_and_audit(
    X: pd.DataFrame,
    y: Any,
    group: Any,
    financial: tuple[str, ...],
    options: dict[str, Any],
    by: pd.DataFrame | None = None,
    ids: Any = None,
    clusters: np.ndarray[Any, Any] | None = None,
    outcomes: pd.DataFrame | None = None,
    sample_weight: np.ndarray[Any, Any] | None = None,
) -> AuditResult:
    from evenhand.training.classifier import CECClassifier

    ReasonMap.of(options.get("reason_map"), [str(name) for name in X.columns])  # rejected before a network is fitted
    is_probable = isinstance(group, GroupProbabilities)
    labels, groups = as_labels(y, len(X)), group.likeliest if is_probable else as_groups(group, len(X))
    random_state = options["random_state"]
    train, test = split_people(labels, groups.codes, _TRAIN_SHARE, random_state)
    names = np.asarray(groups.names)[groups.codes]
    X_train, X_test = X.iloc[train], X.iloc[test]
    model = CECClassifier(
        financial_features=list(financial),
        cec_weight=0.0,
        equalized_odds_weight=0.0,
        random_state=random_state,
        progress=True,
    )
    model.fit(X_train, labels[train], sensitive_features=names[train])
    return audit(
        model,
        X_test,
        labels[test],
        sensitive_features=group.rows(test) if is_probable else names[test],
        financial_features=financial,
        reference={
            "X": X_train,
            "y": labels[train],
            "sensitive_features": group.rows(train) if is_probable else names[train],
            "ids": None if ids is None else ids[train],
            "clusters": None if clusters is None else clusters[train],
            "by": None if by is None else by.iloc[train],
            "sample_weight": None if sample_weight is None else sample_weight[train],
        },
        ids=None if ids is None else ids[test],
        by=None if by is None else by.iloc[test],
        clusters=None if clusters is None else clusters[test],
        outcomes=None if outcomes is None else outcomes.iloc[test],
        sample_weight=None if sample_weight is None else sample_weight[test],
        progress=True,
        **options,
    )
