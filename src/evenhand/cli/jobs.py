"""Whole jobs: the demonstration, and an audit from files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand import load_model
from evenhand.auditing.audit import audit
from evenhand.datasets import load_dataset
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.fingerprints import fingerprint_file
from evenhand.inputs.splitting import split_people
from evenhand.inputs.tables import Applicants, applicants, read_table
from evenhand.inputs.validation import as_groups, as_labels
from evenhand.training.classifier import CECClassifier

if TYPE_CHECKING:
    from evenhand.auditing.result import AuditResult
    from evenhand.auditing.streaming import StreamedAudit
    from evenhand.searching import SearchResult

__all__ = ["audit_demo", "audit_table", "search_table", "stream_table", "train_table"]

_TRAIN_SHARE = 0.7


def audit_demo(random_state: int = 0) -> AuditResult:
    """A plain network on German Credit, audited on held-out people."""
    import pandas as pd

    data = load_dataset("german")
    people = Applicants(data.X, pd.Series(data.y), pd.DataFrame({data.group_name: data.group}))
    return _fit_and_audit(people, tuple(data.financial_features), random_state, {})


def audit_table(
    path: str | Path,
    *,
    label: str,
    group: Sequence[str],
    financial: Sequence[str],
    model: str | Path | None = None,
    trust_pickle: bool = False,
    reference: str | Path | None = None,
    drop: Sequence[str] = (),
    positive_label: str | None = None,
    keep_group: bool = False,
    drop_missing: bool = False,
    by: Sequence[str] = (),
    random_state: int = 0,
    **settings: Any,  # noqa: ANN401 - passed on to `audit`
) -> AuditResult:
    """Audit the applicants of a file.

    Without a `model` a plain network is fitted on 70 % of the people and audited on the rest, matched in the 70 %.
    A `model` is a file or folder that `evenhand.models.files.load_model` reads. The other parameters are those of
    `evenhand.inputs.tables.applicants` and `evenhand.audit`.
    """
    fitted = None if model is None else load_model(model, trust_pickle=trust_pickle)
    features = None if fitted is None else _input_columns(fitted)

    def people_of(file: str | Path) -> Applicants:
        return applicants(
            read_table(file),
            label=label,
            group=group,
            features=features,
            drop=drop,
            positive_label=positive_label,
            keep_group=keep_group,
            drop_missing=drop_missing,
            by=by,
        )

    people = people_of(path)
    if fitted is None:
        if reference is not None:
            raise InvalidInputError("--reference goes with --model: without a model, people are split by themselves.")
        result = _fit_and_audit(people, financial, random_state, settings)
    else:
        pool = None if reference is None else people_of(reference)
        result = audit(
            fitted,
            people.X,
            people.y,
            sensitive_features=people.group,
            financial_features=financial,
            reference=None if pool is None else (pool.X, pool.y, pool.group),
            by=people.by,
            random_state=random_state,
            **settings,
        )
    files = {"data file": path, "model file": model, "reference file": reference}
    hashes = {what: fingerprint_file(file) for what, file in files.items() if file is not None}
    provenance = replace(result.provenance, exclusions=people.exclusions, hashes={**result.provenance.hashes, **hashes})
    return replace(result, provenance=provenance)


def _input_columns(model: Any) -> list[str] | None:  # noqa: ANN401 - any model
    """Columns that a model names as its inputs; None where it names none."""
    if isinstance(model, CECClassifier):
        return model.encoder_.names
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        names = getattr(model, "feature_names", None)  # of trees
    if names is None:
        names = getattr(model, "column_names", None)  # of ONNX models
    return None if names is None else [str(name) for name in names]


def stream_table(
    path: str | Path,
    model: str | Path,
    *,
    trust_pickle: bool = False,
    **settings: Any,  # noqa: ANN401 - passed on to `audit_stream`
) -> StreamedAudit:
    """Audit a model file on the applicants of files of any size, in batches: see `evenhand.audit_stream`."""
    from evenhand.auditing.streaming import audit_stream

    fitted = load_model(model, trust_pickle=trust_pickle)
    return audit_stream(path, fitted, features=_input_columns(fitted), **settings)


def search_table(
    path: str | Path,
    *,
    label: str,
    group: Sequence[str],
    financial: Sequence[str],
    drop: Sequence[str] = (),
    positive_label: str | None = None,
    keep_group: bool = False,
    drop_missing: bool = False,
    **settings: Any,  # noqa: ANN401 - passed on to `search`
) -> SearchResult:
    """Search for an alternative on the applicants of a file: see `evenhand.search`."""
    from evenhand.searching import search

    people = applicants(
        read_table(path),
        label=label,
        group=group,
        drop=drop,
        positive_label=positive_label,
        keep_group=keep_group,
        drop_missing=drop_missing,
    )
    labels = as_labels(people.y, len(people.X))
    return search(
        people.X,
        labels,
        sensitive_features=people.group,
        financial_features=list(financial),
        verbose=True,
        **settings,
    )


def train_table(
    path: str | Path,
    *,
    label: str,
    group: Sequence[str],
    financial: Sequence[str],
    drop: Sequence[str] = (),
    positive_label: str | None = None,
    keep_group: bool = False,
    drop_missing: bool = False,
    **settings: Any,  # noqa: ANN401 - passed on to `CECClassifier`
) -> tuple[CECClassifier, dict[str, int]]:
    """A classifier fitted on the applicants of a file, and who was left out, by reason."""
    people = applicants(
        read_table(path),
        label=label,
        group=group,
        drop=drop,
        positive_label=positive_label,
        keep_group=keep_group,
        drop_missing=drop_missing,
    )
    labels = as_labels(people.y, len(people.X))
    model = CECClassifier(financial_features=list(financial), verbose=True, **settings)
    return model.fit(people.X, labels, sensitive_features=people.group), people.exclusions


def _fit_and_audit(
    people: Applicants, financial: Sequence[str], random_state: int, settings: dict[str, Any]
) -> AuditResult:
    labels, groups = as_labels(people.y, len(people.X)), as_groups(people.group, len(people.X))
    train, test = split_people(labels, groups.codes, _TRAIN_SHARE, random_state)
    names = np.asarray(groups.names)[groups.codes]
    X_train, X_test = people.X.iloc[train], people.X.iloc[test]
    model = CECClassifier(
        financial_features=list(financial), cec_weight=0.0, equalized_odds_weight=0.0, random_state=random_state
    )
    model.fit(X_train, labels[train], sensitive_features=names[train])
    return audit(
        model,
        X_test,
        labels[test],
        sensitive_features=names[test],
        financial_features=financial,
        reference=(X_train, labels[train], names[train]),
        by=None if people.by is None else people.by.iloc[test],
        random_state=random_state,
        **settings,
    )
