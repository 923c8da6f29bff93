"""The audit, end to end: people and a model in, pairs, attributions, scores and regimes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from evenhand.auditing.assemble import assemble, screened_people
from evenhand.auditing.batch import BatchFindings, audit_batch
from evenhand.auditing.finished import BatchOutput, OneBatch, merge_batches
from evenhand.auditing.options import AuditOptions, AuditSettings
from evenhand.auditing.people import People, check_known_groups
from evenhand.auditing.reference import AuditReference, audited_model
from evenhand.auditing.result import AuditResult
from evenhand.auditing.sample import PairsInMemory
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.alignment import in_row_order
from evenhand.inputs.fingerprints import fingerprint_numbers, fingerprint_table
from evenhand.inputs.validation import as_groups, as_labels, as_table, check_columns
from evenhand.models.dispatch import AttributionChoice
from evenhand.models.protocol import AuditedModel

__all__ = ["audit", "sensitivity"]


def audit(
    model: Any,  # noqa: ANN401 - any model that `as_audited_model` takes
    X: Any,  # noqa: ANN401 - any table
    y: Any,  # noqa: ANN401 - any column
    *,
    sensitive_features: Any,  # noqa: ANN401 - any column or table
    financial_features: Sequence[str],
    reference: tuple[Any, Any, Any] | None = None,
    decision_threshold: float = AuditOptions.decision_threshold,
    consistency_threshold: float = AuditOptions.consistency_threshold,
    max_distance: float | None = AuditOptions.max_distance,
    attribution: AttributionChoice = AuditOptions.attribution,
    by: Any = None,  # noqa: ANN401 - any column or table
    evidence: bool = AuditOptions.evidence,
    random_state: int = AuditOptions.random_state,
    settings: AuditSettings | None = None,
) -> AuditResult:
    """Audit how a model reasons about comparable people of different groups.

    Each person is matched with the nearest person of every other group who has the same label, by the standardized
    financial features; both are explained, by integrated gradients or Shapley values, from the person's own (label,
    group) mean; the distance between the two explanations is the CEC score.

    Parameters
    ----------
    model
        A torch module mapping (n, d) to one logit per row, fed `X` as it is; a fitted `CECClassifier`; a fitted
        classifier of scikit-learn, XGBoost, LightGBM or CatBoost, alone or at the end of a Pipeline; or any function
        that scores a matrix. Class 1 is the favorable outcome.
    X
        People to audit: a pandas, polars or pyarrow table, or an array (columns are then named x0, x1, ...).
    y
        True labels, 1 for the favorable outcome.
    sensitive_features
        The protected attribute of each person. Several columns: their intersection.
    financial_features
        Columns of `X` on which people are comparable.
    reference
        `(X, y, sensitive_features)` of the people to match in and to take baselines from, usually the training data;
        by default the audited people themselves.
    decision_threshold
        Probability from which the decision is favorable.
    consistency_threshold
        CEC score above which the reasoning counts as different.
    max_distance
        Matches farther than this, in standard deviations of the financial features, are left out; None for no limit.
    attribution
        ``"auto"`` for the exact way where the model has one; or one of ``"integrated_gradients"``, ``"linear"``,
        ``"tree_shap"`` and ``"sampled_shapley"``. The result's settings say which was used.
    by
        Further columns of the audited people within whose values the excess is wanted, such as product or state.
    evidence
        Whether to compare with placebo pairs and to screen for proxies. Without, the audit takes less than half the
        time and says nothing of noise.
    random_state
        Seed of everything drawn at random.
    settings
        Further choices: steps of integration, what the model's score is, permutations of sampled Shapley values.

    Returns
    -------
    AuditResult

    Raises
    ------
    InvalidInputError, InvalidTypeError
        If the input cannot be audited; the message says what was expected, what came and what to do.

    Examples
    --------
    >>> import evenhand as eh, torch
    >>> data = eh.load_dataset("synthetic", n=500)
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Linear(data.X.shape[1], 1)
    >>> result = eh.audit(model, data.X, data.y, sensitive_features=data.group,
    ...                   financial_features=data.financial_features)
    >>> bool(result.to_dict()["cec"]["reasoning_gap"] < 1e-6)  # a linear model reasons alike about everyone
    True
    """
    table = as_table(X)
    options = AuditOptions(
        **vars(settings or AuditSettings()),
        decision_threshold=decision_threshold,
        consistency_threshold=consistency_threshold,
        max_distance=max_distance,
        attribution=attribution,
        evidence=evidence,
        random_state=random_state,
    )
    audited = audited_model(model, options, table)
    table = audited.aligned(table)
    financial = check_columns(financial_features, list(table.columns), "financial_features")
    options = replace(options, financial_features=tuple(financial), attribution=audited.attribution)
    y, sensitive_features = in_row_order(y, X, "y"), in_row_order(sensitive_features, X, "sensitive_features")
    people, pool = _checked_people(audited, table, y, sensitive_features, reference)
    fitted = AuditReference.of(audited, options, pool)
    found = audit_batch(fitted, people, _by_columns(in_row_order(by, X, "by"), len(people)))
    return _assembled(fitted, found)


def sensitivity(
    model: Any,  # noqa: ANN401
    X: Any,  # noqa: ANN401
    y: Any,  # noqa: ANN401
    *,
    financial_features: Sequence[str],
    **settings: Any,  # noqa: ANN401 - passed on to `audit`
) -> pd.DataFrame:
    """How the metrics move when each financial feature is left out of the matching.

    Parameters
    ----------
    model, X, y, financial_features, **settings
        As in `audit`; one audit is made for each of at least two financial features, and one with all.

    Returns
    -------
    Table with columns left_out ("none" first), cec, excess, ci_low, ci_high, p_value, regime_b, regime_b_excess,
    median_distance.

    Examples
    --------
    >>> import evenhand as eh
    >>> planted = eh.make_planted_bias(300, strength=1.0)
    >>> data = planted.dataset
    >>> table = sensitivity(planted.model, data.X, data.y, sensitive_features=data.group,
    ...                     financial_features=["income", "credit_score"])
    >>> table["left_out"].tolist()
    ['none', 'income', 'credit_score']
    """
    features = check_columns(financial_features, list(as_table(X).columns), "financial_features")
    if len(features) < 2:
        raise InvalidInputError(f"At least two financial features are needed to leave one out, got {features}.")

    def row(left_out: str) -> dict[str, Any]:
        kept = [feature for feature in features if feature != left_out]
        result = audit(model, X, y, financial_features=kept, **settings)
        found = result.to_dict()
        low, high = found["cec"].get("excess_ci", (np.nan, np.nan))
        return {
            "left_out": left_out,
            "cec": found["cec"]["mean"],
            "excess": found["cec"].get("excess", np.nan),
            "ci_low": low,
            "ci_high": high,
            "p_value": found["cec"].get("p_value", np.nan),
            "regime_b": found["regimes"]["B"],
            "regime_b_excess": found["cec"].get("regime_b_excess", np.nan),
            "median_distance": result.matching.distance_quantiles[0.5],
        }

    return pd.DataFrame([row(left_out) for left_out in ("none", *features)])


def _checked_people(
    model: AuditedModel,
    table: pd.DataFrame,
    y: Any,  # noqa: ANN401
    sensitive_features: Any,  # noqa: ANN401
    reference: tuple[Any, Any, Any] | None,
) -> tuple[People, People]:
    """The audited people and the pool they are matched in, with one coding of the groups."""
    labels, groups = as_labels(y, len(table)), as_groups(sensitive_features, len(table))
    if reference is None:
        people = People(table, model.encode(table), labels, groups)
        return people, people
    if not isinstance(reference, (tuple, list)) or len(reference) != 3:
        raise InvalidInputError("`reference` must be (X, y, sensitive_features) of the people to match in.")
    pool_table = model.aligned(as_table(reference[0], "reference X"), "reference X")
    if list(pool_table.columns) != list(table.columns):
        missing = [c for c in table.columns if c not in pool_table.columns]
        extra = [c for c in pool_table.columns if c not in table.columns]
        raise InvalidInputError(
            "The reference's columns must be those of `X`, in the same order: "
            + (f"missing {missing}, unexpected {extra}." if missing or extra else "the order differs.")
        )
    names = "reference y", "reference sensitive_features"
    pool_y, pool_group = (
        in_row_order(values, reference[0], name) for values, name in zip(reference[1:], names, strict=True)
    )
    pool_labels, pool_groups = (
        as_labels(pool_y, len(pool_table), names[0]),
        as_groups(pool_group, len(pool_table), names[1]),
    )
    check_known_groups(groups, pool_groups.names)
    people = People(table, model.encode(table), labels, groups.recoded(pool_groups.names))
    return people, People(pool_table, model.encode(pool_table, "reference X"), pool_labels, pool_groups)


def _by_columns(by: Any, n: int) -> dict[str, NDArray[np.str_]]:  # noqa: ANN401
    """User columns as text, one value per audited person; a missing value is a value of its own."""
    if by is None:
        return {}
    if isinstance(by, Mapping):
        by = pd.DataFrame({str(name): list(values) for name, values in by.items()})
    is_column = getattr(by, "ndim", 2) == 1 or isinstance(by, list)
    table = as_table(np.asarray(by, dtype=object)[:, None] if is_column else by, "by")
    if len(table) != n:
        raise InvalidInputError(f"`by` has {len(table)} values for {n} rows.")
    names = [str(getattr(by, "name", None) or "by")] if is_column else list(table.columns)
    return {
        name: table.iloc[:, k].astype(object).where(table.iloc[:, k].notna(), "(missing)").map(str).to_numpy(dtype=str)
        for k, name in enumerate(names)
    }


def _assembled(reference: AuditReference, found: BatchFindings) -> AuditResult:
    """The result of people who were audited in one batch."""
    people, pool = found.people, reference.pool
    screened = screened_people(np.arange(len(people)), reference.settings.random_state)
    output = BatchOutput.of(found, screened=screened)
    batches = OneBatch(output, n_threads=torch.get_num_threads())
    merged = merge_batches(batches)
    assert merged is not None
    assert output.pairs is not None
    hashes = {"scores": fingerprint_numbers(output.pairs["person"], output.pairs["score"])}
    return assemble(
        reference,
        batches,
        merged,
        PairsInMemory(output.pairs, people.table, pool.table, found.attributions, found.scored.match_attributions),
        n_reference=None if pool is people else len(pool),
        fingerprint=_fingerprint(people),
        hashes=hashes if pool is people else {**hashes, "reference": _fingerprint(pool)},
        stacklevel=5,
    )


def _fingerprint(people: People) -> str:
    """SHA-256 of people's columns, labels and groups."""
    names = np.asarray(people.groups.names, dtype=object)
    return fingerprint_table(people.table.assign(**{"(label)": people.labels, "(group)": names[people.groups.codes]}))
