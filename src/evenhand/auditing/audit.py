"""The audit, end to end: people and a model in, pairs, attributions, scores and regimes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from evenhand.auditing.assemble import FINISHING_STEPS, assemble, screened_people
from evenhand.auditing.batch import BATCH_STEPS, BatchFindings, audit_batch, explained_by_label
from evenhand.auditing.cut_offs import SegmentThresholds
from evenhand.auditing.direction import check_direction, notes_on_label
from evenhand.auditing.finished import BatchOutput, OneBatch, merge_batches
from evenhand.auditing.identities import reference_hash
from evenhand.auditing.options import AuditOptions, AuditSettings, Favorable
from evenhand.auditing.people import People, check_finances_apart, check_known_groups, with_cut_offs
from evenhand.auditing.reference import AuditReference, audited_model, settled_options
from evenhand.auditing.result import AuditResult
from evenhand.auditing.sample import PairsInMemory
from evenhand.auditing.sampling_progress import shown_sampling
from evenhand.auditing.scales import notes_on_scales
from evenhand.datasets.dataset import reservations_on
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.alignment import in_row_order
from evenhand.inputs.fingerprints import fingerprint_numbers
from evenhand.inputs.roles import MISSING
from evenhand.inputs.validation import (
    as_clusters,
    as_decisions,
    as_groups,
    as_ids,
    as_labels,
    as_table,
    check_columns,
)
from evenhand.models.dispatch import AttributionChoice
from evenhand.models.protocol import AuditedModel
from evenhand.system.progress import PATIENCE
from evenhand.system.progress import progress as shown_progress

__all__ = ["audit", "sensitivity"]


def audit(
    model: Any,  # noqa: ANN401 - any model that `as_audited_model` takes
    X: Any,  # noqa: ANN401 - any table
    y: Any,  # noqa: ANN401 - any column
    *,
    sensitive_features: Any,  # noqa: ANN401 - any column or table
    financial_features: Sequence[str],
    reference: tuple[Any, Any, Any] | Mapping[str, Any] | None = None,
    decisions: Any = None,  # noqa: ANN401 - any column
    ids: Any = None,  # noqa: ANN401 - any column
    favorable: Favorable | None = AuditOptions.favorable,
    decision_threshold: float | SegmentThresholds | None = AuditOptions.decision_threshold,
    consistency_threshold: float = AuditOptions.consistency_threshold,
    max_distance: float | None = AuditOptions.max_distance,
    attribution: AttributionChoice = AuditOptions.attribution,
    by: Any = None,  # noqa: ANN401 - any column or table
    clusters: Any = None,  # noqa: ANN401 - any column
    evidence: bool = AuditOptions.evidence,
    limits: Mapping[str, float] | None = AuditOptions.limits,
    random_state: int = AuditOptions.random_state,
    settings: AuditSettings | None = None,
    progress: bool = False,
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
        that scores a matrix. Class 1 is the favorable outcome, unless `favorable` says otherwise.
    X
        People to audit: a pandas, polars or pyarrow table, or an array (columns are then named x0, x1, ...).
    y
        True labels, 1 for the favorable outcome; with ``favorable="low"``, 1 for the unfavorable one.
    sensitive_features
        The protected attribute of each person. Several columns: their intersection.
    financial_features
        Columns of `X` on which people are comparable.
    reference
        `(X, y, sensitive_features)` of the people to match in and to take baselines from, usually the training data, or
        the same by name, with `decisions`, `ids`, `clusters` and `by` if there are; by default the audited people
        themselves.
    decisions
        Decisions that were made, 1 for a favorable one: for policy rules, or a manual review. They take the place of
        scores at the threshold in regimes, approvals and outcome metrics, of people and of their matches.
    ids
        The user's own ids, which pairs, cases, explorer and workbook then show; no input of the model.
    favorable
        Which of the model's scores are good. ``"low"`` for a model of risk: its class 1, and 1 in `y`, is the
        unfavorable outcome, such as a default. Metrics, attributions and signs are then those of the favorable
        outcome; scores are shown as the model gives them. None for high, and for a refusal where the scores rank people
        against `y` beyond chance.
    decision_threshold
        Probability from which the decision is favorable; with ``favorable="low"``, up to which it is. By default the
        model's own, of a `FixedThresholdClassifier` or a `TunedThresholdClassifierCV`; of any other model 0.5.
        `SegmentThresholds` has a cut-off for each value of an input or of a column of `by`.
    consistency_threshold
        CEC score above which the reasoning counts as different.
    max_distance
        Matches farther than this, in standard deviations of the financial features, are left out; None for no limit.
    attribution
        ``"auto"`` for the exact way where the model has one; or one of ``"integrated_gradients"``, ``"linear"``,
        ``"additive"``, ``"tree_shap"`` and ``"sampled_shapley"``. The result's settings say which was used.
    by
        Further columns of the audited people within whose values the excess is wanted, such as product or state.
    clusters
        Which rows are the same applicant, or the same household: one value per row. They are never compared with each
        other, and count as one in every standard error. By default rows alike in all inputs are taken for one
        applicant, up to four of them.
    evidence
        Whether to compare with placebo pairs and to screen for proxies. Without, the audit takes less than half the
        time and says nothing of noise.
    limits
        Sizes up to which findings are small to you, such as ``{"score_gap": 0.1}``: of ``"score_gap"``, ``"inputs"``,
        ``"weighing"`` and ``"excess"``, in the unit of the finding. Each finding then says whether it is below. None
        for no limits.
    random_state
        Seed of everything drawn at random.
    settings
        Further choices: steps of integration, what the model's score is, orders and error of sampled Shapley values.
    progress
        Whether to show how far the audit is, once it takes more than two seconds, and how long attributions that are
        sampled will take.

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
        favorable=favorable,
        decision_threshold=decision_threshold,
        consistency_threshold=consistency_threshold,
        max_distance=max_distance,
        attribution=attribution,
        evidence=evidence,
        limits=limits,
        random_state=random_state,
    )
    audited = audited_model(model, options, table)
    table = audited.aligned(table)
    financial = check_columns(financial_features, list(table.columns), "`financial_features`")
    given = {
        "X": X,
        "y": y,
        "sensitive_features": sensitive_features,
        "decisions": decisions,
        "ids": ids,
        "clusters": clusters,
        "by": by,
    }
    people, pool = _checked_people(audited, table, given, reference, options)
    check_finances_apart(pool, financial)
    if favorable is None:
        check_direction(audited, people)
    options, on_threshold = settled_options(model, audited, options, financial)
    on_scales = notes_on_scales(model, audited, people.table, pool.table)
    on_label = notes_on_label(getattr(y, "name", None), favorable)
    notes = (*on_scales, *on_threshold, *on_label, *reservations_on(X))
    fitted = AuditReference.of(audited, options, pool, len(people))
    with shown_sampling(fitted, len(people), is_shown=progress) as watched:
        is_shown = progress and watched is fitted  # otherwise sampling shows how far it is
        with shown_progress("audit", BATCH_STEPS + FINISHING_STEPS, is_shown=is_shown, after=PATIENCE) as advance:
            found = audit_batch(watched, people, _by_columns(in_row_order(by, X, "by"), len(people)), advance=advance)
            return _assembled(fitted, found, notes, advance)


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


_OF_REFERENCE = ("X", "y", "sensitive_features", "decisions", "ids", "clusters", "by")


def _checked_people(
    model: AuditedModel,
    table: pd.DataFrame,
    given: Mapping[str, Any],
    reference: tuple[Any, Any, Any] | Mapping[str, Any] | None,
    options: AuditOptions,
) -> tuple[People, People]:
    """The audited people and the pool they are matched in, with one coding of the groups."""
    people = _people(model, table, given, options)
    if reference is None:
        return people, people
    parts = _parts_of(reference)
    pool_table = model.aligned(as_table(parts["X"], "reference X"), "reference X")
    if list(pool_table.columns) != list(table.columns):
        missing = [c for c in table.columns if c not in pool_table.columns]
        extra = [c for c in pool_table.columns if c not in table.columns]
        raise InvalidInputError(
            "The reference's columns must be those of `X`, in the same order: "
            + (f"missing {missing}, unexpected {extra}." if missing or extra else "the order differs.")
        )
    pool = _people(model, pool_table, parts, options, "reference ")
    for name, what, why in (
        ("decisions", "`decisions` are", "since matches come from there"),
        ("clusters", "`clusters` are", "since the same applicants may be in both"),
    ):
        if (getattr(people, name) is None) != (getattr(pool, name) is None):
            raise InvalidInputError(
                f"{what} needed of the audited people and of the reference alike, {why}: pass "
                f'`reference={{"X": ..., "y": ..., "sensitive_features": ..., "{name}": ...}}` with `{name}`.'
            )
    check_known_groups(people.groups, pool.groups.names)
    return replace(people, groups=people.groups.recoded(pool.groups.names)), pool


def _people(
    model: AuditedModel, table: pd.DataFrame, given: Mapping[str, Any], options: AuditOptions, of: str = ""
) -> People:
    """People from what a user gave of them."""
    n = len(table)
    rows = {name: in_row_order(values, given["X"], f"{of}{name}") for name, values in given.items() if name != "X"}
    decisions, ids, clusters = (rows.get(name) for name in ("decisions", "ids", "clusters"))
    people = People(
        table,
        model.encode(table, f"{of}X"),
        model.favorable_labels(as_labels(rows["y"], n, f"{of}y")),
        as_groups(rows["sensitive_features"], n, f"{of}sensitive_features"),
        decisions=None if decisions is None else as_decisions(decisions, n, f"{of}decisions"),
        ids=None if ids is None else as_ids(ids, n, f"{of}ids"),
        clusters=None if clusters is None else as_clusters(clusters, n, f"{of}clusters"),
    )
    return with_cut_offs(people, options, _by_columns(rows.get("by"), n), "the reference" if of else "`X`")


def _parts_of(reference: tuple[Any, Any, Any] | Mapping[str, Any]) -> Mapping[str, Any]:
    """A reference by the names of its parts."""
    if isinstance(reference, Mapping):
        absent, extra = set(_OF_REFERENCE[:3]) - set(reference), set(reference) - set(_OF_REFERENCE)
        if not absent and not extra:
            return reference
        raise InvalidInputError(
            "`reference` by name must have 'X', 'y' and 'sensitive_features', and may have 'decisions', 'ids', "
            f"'clusters' and 'by', got {sorted(map(str, reference))}."
        )
    if not isinstance(reference, (tuple, list)) or len(reference) != 3:
        raise InvalidInputError("`reference` must be (X, y, sensitive_features) of the people to match in.")
    return dict(zip(_OF_REFERENCE, reference, strict=False))


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
        name: table.iloc[:, k].astype(object).where(table.iloc[:, k].notna(), MISSING).map(str).to_numpy(dtype=str)
        for k, name in enumerate(names)
    }


def _assembled(
    reference: AuditReference, found: BatchFindings, notes: Sequence[str], advance: Callable[[str], None]
) -> AuditResult:
    """The result of people who were audited in one batch, with the reservations on their dataset."""
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
        PairsInMemory(
            output.pairs,
            people.table,
            pool.table,
            found.attributions,
            found.scored.match_attributions,
            explained_by_label(reference, people),
        ),
        n_reference=None if pool is people else len(pool),
        hashes=hashes if pool is people else {**hashes, "reference": reference_hash(pool)},
        notes=notes,
        stacklevel=5,
        advance=advance,
    )
