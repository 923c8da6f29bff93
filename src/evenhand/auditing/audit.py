"""The audit, end to end: takes people and a model; produces pairs, attributions, scores and regimes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from rich.console import Console

from evenhand.arrays import Floats
from evenhand.auditing.assemble import FINISHING_STEPS, assemble, limited, screened_people
from evenhand.auditing.batch import BATCH_STEPS, BatchFindings, audit_batch, explained_by_label
from evenhand.auditing.direction import check_direction, notes_on_label, notes_on_scales, own_score
from evenhand.auditing.draws import grouped, pooled_over_draws, with_first_draw
from evenhand.auditing.evidence import ScoreGap
from evenhand.auditing.finished import BatchOutput, OneBatch, merge_batches
from evenhand.auditing.options import AuditOptions, AuditSettings, Favorable, RegressionOptions, SegmentThresholds
from evenhand.auditing.people import (
    People,
    check_finances_apart,
    check_known_groups,
    in_unit_of,
    reference_hash,
    weight_unit,
    with_cut_offs,
)
from evenhand.auditing.reference import AuditReference, audited_model, settled_options
from evenhand.auditing.regressions import RegressedPeople, RegressionRow, control_sets, further_outcomes, regress
from evenhand.auditing.result import AuditResult
from evenhand.auditing.sample import PairsInMemory
from evenhand.datasets.dataset import reservations_on
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.fingerprints import fingerprint_numbers
from evenhand.inputs.validation import (
    as_clusters,
    as_decisions,
    as_ids,
    as_labels,
    as_splits,
    as_table,
    as_weights,
    check_columns,
    in_row_order,
    is_number_column,
)
from evenhand.matching.placebos import N_NEAR
from evenhand.metrics.regressions import GroupEffect
from evenhand.models.dispatch import AttributionChoice
from evenhand.models.explaining import is_sampled, questions, watched
from evenhand.models.protocol import AuditedModel
from evenhand.system.terminal import PATIENCE
from evenhand.system.terminal import progress as shown_progress
from evenhand.system.threads import MOST_THREADS, Threads, available_memory, one_thread_each

_DECISION, _PROBABILITY, _LOG_ODDS = "decision", "score, probability", "score, log-odds"
_UNITS = {_DECISION: "share", _PROBABILITY: "probability", _LOG_ODDS: "log-odds"}
_VALUE = "outcome"
_PAIRS = "matched pairs"


def wanted_outcomes(
    outcomes: Any,
    X: Any,
    people: People,
    *,
    is_wanted: bool,
) -> dict[str, NDArray[np.float64]] | None:
    """Additional outcomes of the people of `X`; None if no regressions are wanted.

    Raises
    ------
    InvalidInputError
        If an outcome is invalid, or given without `regressions`; or if people have sampling weights.
    """
    if not is_wanted:
        if outcomes is not None:
            raise InvalidInputError(
                "`outcomes` (--outcomes) are only used in regressions: add `regressions=True` (--regressions)."
            )
        return None
    unfit = {"sampling weights": people.sample_weight, "groups known as probabilities": people.probabilities}
    for what, given in unfit.items():
        if given is not None:
            raise InvalidInputError(
                f"`regressions` (--regressions) cannot be combined with {what}: use only one of them."
            )
    found = further_outcomes(outcomes, X, len(people), inputs=[str(name) for name in people.table.columns])
    taken = [name for name in found if name in (*_UNITS, _VALUE)]
    if taken:
        raise InvalidInputError(
            f"{taken} are names that the audit uses for its outcomes; rename these columns of `outcomes`."
        )
    return found


@one_thread_each()
def with_regressions(
    result: AuditResult,
    reference: AuditReference,
    found: BatchFindings,
    by: Mapping[str, NDArray[np.str_]],
    outcomes: Mapping[str, NDArray[np.float64]] | None,
) -> AuditResult:
    """Add regressions of decisions, scores and additional outcomes on the group to the result of an audit.

    Parameters
    ----------
    result, reference, found
        Of the audit.
    by
        Columns for whose values there are separate regressions.
    outcomes
        Additional outcomes by name, NaN if missing; None if no regressions are wanted.
    """
    if outcomes is None:
        return result
    people, model = found.people, reference.model
    audited = _audited_outcomes(reference, found)
    categories = model.category_columns(list(people.table.columns))
    table = people.table.astype({c: "category" for c in categories if is_number_column(people.table[c])})
    sets, left_out = control_sets(table, result.settings["financial_features"], people.groups.codes)
    names, same = people.groups.names, people.identity.first_rows()
    regressed = RegressedPeople(
        {**audited, **outcomes},
        people.groups.codes,
        names,
        names.index(result.outcome.approvals.reference),
        None if len(np.unique(same)) == len(same) else same,
    )
    unit = reference.scope.unit
    units = _UNITS if unit is None else {**_UNITS, _VALUE: unit}
    table_of_all = regress(regressed, sets, left_out, by, units=units)
    gaps = () if result.evidence is None else result.evidence.score_gaps
    is_turned = reference.settings.favorable == "low" and unit is not None
    pairs = _of_matched_pairs(gaps, table_of_all.reference, list(audited), is_turned=is_turned)
    return replace(result, regressions=replace(table_of_all, rows=_beside(table_of_all.rows, pairs)))


def _audited_outcomes(reference: AuditReference, found: BatchFindings) -> dict[str, Floats]:
    """Decisions and scores of an audit, or the given values, by name."""
    scope, settings = reference.scope, reference.settings
    outcomes: dict[str, Floats] = {}
    if scope.decisions:
        outcomes[_DECISION] = found.decision.astype(np.float64)
    if scope.outcome == "score":
        outcomes[_PROBABILITY] = found.score
        if reference.model.output == "log-odds":
            outcomes[_LOG_ODDS] = found.own.logit.double().cpu().numpy()
    if scope.outcome == "value":
        outcomes[_VALUE] = own_score(found.score, settings.favorable or "high", scope.unit)
    return outcomes


def _beside(rows: Sequence[RegressionRow], pairs: Sequence[RegressionRow]) -> tuple[RegressionRow, ...]:
    """Insert the rows of matched pairs after the regressions of the same outcome, group and people."""
    found: dict[tuple[str, ...], list[RegressionRow]] = {}
    for row in (*rows, *pairs):
        found.setdefault((row.column, row.segment, row.outcome, row.group), []).append(row)
    return tuple(row for part in found.values() for row in part)


def _of_matched_pairs(
    gaps: Sequence[ScoreGap], reference: str, outcomes: Sequence[str], *, is_turned: bool
) -> list[RegressionRow]:
    """The same differences according to the matched pairs of the audit.

    If low values are good, the sign of the gap is reversed to match the value.
    """
    rows = []
    for gap in (gap for gap in gaps if gap.reference == reference):
        of_outcome = {_DECISION: gap.decision, _PROBABILITY: gap.probability, _LOG_ODDS: gap.total, _VALUE: gap.total}
        for outcome in outcomes:
            found = of_outcome[outcome].scaled(-1.0 if is_turned and outcome == _VALUE else 1.0)
            effect = GroupEffect(**{**vars(found), "n": gap.n_people})
            rows.append(RegressionRow(outcome, _PAIRS, gap.group, "", "", effect, float("nan")))
    return rows


def audit(
    model: Any,
    X: Any,
    y: Any,
    *,
    sensitive_features: Any,
    financial_features: Sequence[str],
    reference: tuple[Any, Any, Any] | Mapping[str, Any] | None = None,
    decisions: Any = None,
    ids: Any = None,
    favorable: Favorable | None = AuditOptions.favorable,
    decision_threshold: float | SegmentThresholds | None = AuditOptions.decision_threshold,
    consistency_threshold: float = AuditOptions.consistency_threshold,
    max_distance: float | None = AuditOptions.max_distance,
    attribution: AttributionChoice = AuditOptions.attribution,
    by: Any = None,
    clusters: Any = None,
    sample_weight: Any = None,
    evidence: bool = AuditOptions.evidence,
    limits: Mapping[str, float] | None = AuditOptions.limits,
    regressions: bool = RegressionOptions.regressions,
    outcomes: Any = None,
    random_state: int = AuditOptions.random_state,
    reason_map: Any = None,
    settings: AuditSettings | None = None,
    progress: bool = False,
) -> AuditResult:
    """Audit how a model reasons about comparable people of different groups.

    Each person is matched with the nearest person of every other group who has the same label, by the standardized
    financial features. Both are explained, by integrated gradients or Shapley values, from the mean of the person's
    label and group. The distance between the two explanations is the CEC score.

    Parameters
    ----------
    model
        A torch module that maps (n, d) to one logit per row and receives `X` unchanged; a fitted `CECClassifier`; a
        fitted classifier of scikit-learn, XGBoost, LightGBM or CatBoost, alone or at the end of a Pipeline; or any
        function that scores a matrix. Class 1 is the favorable outcome, unless `favorable` says otherwise.
    X
        People to audit: a pandas, polars or pyarrow table, or an array (columns are then named x0, x1, ...).
    y
        True labels, 1 for the favorable outcome; with ``favorable="low"``, 1 for the unfavorable one.
    sensitive_features
        The protected attribute of each person. Several columns are intersected. Pass `GroupProbabilities` if only the
        probabilities of the groups are known.
    financial_features
        Columns of `X` on which people are compared.
    reference
        `(X, y, sensitive_features)` of the people to match in and to take baselines from, usually the training data.
        Or a dictionary with these keys and, optionally, `decisions`, `ids`, `clusters`, `by` and `sample_weight`. By
        default, the audited people themselves.
    decisions
        The actual decisions, 1 for a favorable one, if they also depend on policy rules or a manual review. They
        replace scores at the threshold in regimes, approvals and outcome metrics, for people and for their matches.
    ids
        Your ids of the people, shown in pairs, cases, explorer and workbook; not an input of the model.
    favorable
        Which of the model's scores are good. ``"low"`` for a risk model: its class 1, and 1 in `y`, is the
        unfavorable outcome, such as a default. Metrics, attributions and signs then refer to the favorable outcome;
        scores are shown as the model returns them. None means high, but raises an error if the scores rank people
        against `y` by more than chance.
    decision_threshold
        Decisions are favorable from this probability on; with ``favorable="low"``, up to it. The default is the
        threshold of a `FixedThresholdClassifier` or a `TunedThresholdClassifierCV`, and 0.5 for any other model.
        `SegmentThresholds` holds a cutoff for each value of an input or of a column of `by`.
    consistency_threshold
        CEC score above which the reasoning counts as different.
    max_distance
        Matches farther than this, in standard deviations of the financial features, are left out; None for no limit.
    attribution
        ``"auto"`` for an exact method if the model has one; or one of ``"integrated_gradients"``, ``"linear"``,
        ``"additive"``, ``"tree_shap"`` and ``"sampled_shapley"``. The result's settings say which was used.
    by
        Additional columns of the audited people, such as product or state; the excess is reported for each value.
    clusters
        Identifies the rows of the same applicant or household: one value per row. Such rows are never compared with
        each other, and count as one in every standard error. By default, up to four rows with identical inputs are
        taken for one applicant.
    sample_weight
        How many people of the population each row stands for, up to a common factor, for a survey or for a file that
        oversamples a group. Estimates then refer to the population, and standard errors to the sample. Rows with a
        weight of 0 are not counted. By default, everyone has the same weight.
    evidence
        Whether to compare with placebo pairs and to screen for proxies. Without this, the audit takes less than half
        the time but cannot tell an effect from noise.
    limits
        Sizes below which you regard findings as small, such as ``{"score_gap": 0.1}``. The keys are ``"score_gap"``,
        ``"inputs"``, ``"weighing"`` and ``"excess"``; values are in the unit of the finding. Each finding then says
        whether it is below its limit. None for no limits.
    regressions
        Whether to regress decisions and scores on the group: alone, with the financial features held equal, and with
        all inputs held equal; also within the values of `by`.
    outcomes
        Additional outcomes to regress, by name or as a table, such as a price, a rate spread or an amount; missing for
        people who have none. They are not inputs of the model.
    random_state
        Seed of all random draws.
    reason_map
        The reason of each feature, if several features share one: a mapping of features to reasons or of reasons to
        lists of features, a table of two columns, or the path of either; a TOML file has a table ``[reasons]``. By
        default, each feature is its own reason.
    settings
        Settings that few people change: integration steps, the scale of the model's score, the number of orders and
        the error of sampled Shapley values, the number of reasons.
    progress
        Whether to show the progress of an audit that takes more than two seconds, and to say if memory is too small.

    Returns
    -------
    AuditResult

    Raises
    ------
    InvalidInputError, InvalidTypeError
        If the input cannot be audited. The message says what was expected, what was found and what to do.

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
        reason_map=reason_map,
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
        "sample_weight": sample_weight,
    }
    people, pool = with_first_draw(*checked_people(audited, table, given, reference, options), random_state)
    check_finances_apart(pool, financial)
    if favorable is None:
        check_direction(audited, people)
    options, on_threshold = settled_options(model, audited, options, financial)
    on_scales = notes_on_scales(model, audited, people.table, pool.table)
    on_label = notes_on_label(getattr(y, "name", None), favorable)
    notes = (*on_scales, *on_threshold, *on_label, *reservations_on(X))
    splits = as_splits(in_row_order(by, X, "by"), len(people))
    further = wanted_outcomes(outcomes, X, people, is_wanted=regressions)
    fitted = AuditReference.of(audited, options, pool, len(people))
    with _shown_run(fitted, people, is_shown=progress) as (watched, advance):
        found = audit_batch(watched, people, splits, advance=advance)
        result = with_regressions(assembled(fitted, found, notes, advance), fitted, found, splits, further)
        return pooled_over_draws(result, watched, found, advance)


def sensitivity(
    model: Any,
    X: Any,
    y: Any,
    *,
    financial_features: Sequence[str],
    **settings: Any,
) -> pd.DataFrame:
    """Show how the metrics change when each financial feature is left out of the matching.

    Parameters
    ----------
    model, X, y, financial_features, **settings
        As in `audit`. The model is audited once without each financial feature, at least two, and once with all.

    Returns
    -------
    Table with columns left_out ("none" first), cec, excess, low, high, p_value, regime_b, regime_b_excess,
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
        raise InvalidInputError(
            f"At least two financial features are needed so that one can be left out, got {features}."
        )

    def row(left_out: str) -> dict[str, Any]:
        kept = [feature for feature in features if feature != left_out]
        result = audit(model, X, y, financial_features=kept, **settings)
        found = result.to_dict()
        low, high = found["cec"].get("excess_ci", (np.nan, np.nan))
        return {
            "left_out": left_out,
            "cec": found["cec"]["mean"],
            "excess": found["cec"].get("excess", np.nan),
            "low": low,
            "high": high,
            "p_value": found["cec"].get("p_value", np.nan),
            "regime_b": found["regimes"]["B"],
            "regime_b_excess": found["cec"].get("regime_b_excess", np.nan),
            "median_distance": result.matching.distance_quantiles[0.5],
        }

    return pd.DataFrame([row(left_out) for left_out in ("none", *features)])


def _n_draws(people: People) -> int:
    """How many times people are audited: once, unless their groups are drawn."""
    return 1 if people.probabilities is None else people.probabilities.n_draws


# Bytes at the peak of an audit in memory, for each pair and each of its values: see docs/growth.md.
_BYTES_PER_PAIR, _BYTES_PER_VALUE, _BYTES_PER_VALUE_COMPARED = 1_500, 50, 165


@contextmanager
def _shown_run(
    fitted: AuditReference, people: People, *, is_shown: bool
) -> Iterator[tuple[AuditReference, Callable[[str], None]]]:
    """The reference, and what to call after each step; sampled attributions show the evaluations of the model."""
    n_people = len(people) * _n_draws(people)
    if not is_shown or not is_sampled(fitted.explainer):
        if is_shown:
            _warn_of_memory(fitted, n_people)
        n_steps = BATCH_STEPS + FINISHING_STEPS + _n_draws(people) - 1
        with shown_progress("audit", n_steps, is_shown=is_shown, after=PATIENCE) as advance:
            yield fitted, advance
        return
    expected = max(1, n_evaluations(fitted, n_people))
    with shown_progress("attributions, %", 100, after=PATIENCE) as advance:
        n_asked, percent = 0, 0

        def show(n: int) -> None:
            nonlocal n_asked, percent
            n_asked += n
            while percent < min(100, 100 * n_asked // expected):
                percent += 1
                advance("")

        explainer, evidence = watched(fitted.explainer, show), fitted.evidence
        if evidence is not None:
            halved = evidence.explainer
            evidence = replace(evidence, explainer=replace(halved, explainer=watched(halved.explainer, show)))
        yield replace(fitted, explainer=explainer, model=explainer.model, evidence=evidence), lambda status: None
        show(expected)  # people without a match or a placebo were expected, too


def n_evaluations(fitted: AuditReference, n_people: int) -> int:
    """About how many evaluations an audit needs from a sampled model."""
    own, moved = (questions(fitted.explainer, is_own=is_own) for is_own in (True, False))
    n_pairs = n_people * (len(fitted.pool.groups.names) - 1)
    # People and matches, each also with the other's inputs. For triples, people from both halves of a cell and others
    # from one, with steps of one standard deviation; and for each triple, people with the others' finances and inputs.
    of_triples = 0 if fitted.evidence is None else 3 * (own + moved) + N_NEAR * (2 * own + 4 * moved)
    return n_people * own + n_pairs * (own + 2 * moved + of_triples)


def _warn_of_memory(fitted: AuditReference, n_people: int) -> None:
    n_pairs = n_people * (len(fitted.pool.groups.names) - 1)
    each = _BYTES_PER_VALUE if fitted.evidence is None else _BYTES_PER_VALUE_COMPARED
    needed, free = n_pairs * (_BYTES_PER_PAIR + each * fitted.pool.x.shape[1]), available_memory()
    if free is not None and needed > free:
        Console(stderr=True).print(
            f"This needs about {needed / 2**30:.0f} GB of memory, but only {free / 2**30:.0f} GB are free: use "
            "--stream (`evenhand.audit_stream`) to audit in batches, in memory that does not grow with their number.",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


_OF_REFERENCE = ("X", "y", "sensitive_features", "decisions", "ids", "clusters", "sample_weight", "by")


def checked_people(
    model: AuditedModel,
    table: pd.DataFrame,
    given: Mapping[str, Any],
    reference: tuple[Any, Any, Any] | Mapping[str, Any] | None,
    options: AuditOptions,
) -> tuple[People, People]:
    """The audited people and the people they are matched with, with the same group codes."""
    people = _people(model, table, given, options)
    if reference is None:
        people = in_unit_of(people, people.sample_weight)
        return people, people
    parts = _parts_of(reference)
    pool_table = model.aligned(as_table(parts["X"], "reference X"), "reference X")
    if list(pool_table.columns) != list(table.columns):
        missing = [c for c in table.columns if c not in pool_table.columns]
        extra = [c for c in pool_table.columns if c not in table.columns]
        raise InvalidInputError(
            "The reference must have the columns of `X`, in the same order: "
            + (f"missing {missing}, unexpected {extra}." if missing or extra else "the order differs.")
        )
    pool = _people(model, pool_table, parts, options, "reference ")
    for name, what, why in (
        ("decisions", "`decisions` are", "because matches come from there"),
        ("clusters", "`clusters` are", "because the same applicants may be in both"),
        ("sample_weight", "`sample_weight` is", "because matches and baselines come from there"),
    ):
        if (getattr(people, name) is None) != (getattr(pool, name) is None):
            raise InvalidInputError(
                f"{what} needed for both the audited people and the reference, {why}: pass "
                f'`reference={{"X": ..., "y": ..., "sensitive_features": ..., "{name}": ...}}` with `{name}`.'
            )
    check_known_groups(people.groups, pool.groups.names)
    people = replace(people, groups=people.groups.recoded(pool.groups.names))
    return in_unit_of(people, pool.sample_weight), in_unit_of(pool, pool.sample_weight)


def _people(
    model: AuditedModel, table: pd.DataFrame, given: Mapping[str, Any], options: AuditOptions, of: str = ""
) -> People:
    """Check the people that a user gave."""
    n = len(table)
    rows = {name: in_row_order(values, given["X"], f"{of}{name}") for name, values in given.items() if name != "X"}
    decisions, ids, clusters, weights = (rows.get(name) for name in _OF_REFERENCE[3:7])
    has_labels = rows["y"] is not None or model.needs_labels
    weights = None if weights is None else as_weights(weights, n, f"{of}sample_weight")
    weight_unit(weights, f"{of}sample_weight")  # rejects weights that are all 0
    fields = {
        "table": table,
        "x": model.encode(table, f"{of}X"),
        "labels": model.favorable_labels(as_labels(rows["y"], n, f"{of}y")) if has_labels else np.ones(n, np.int64),
        "decisions": None if decisions is None else as_decisions(decisions, n, f"{of}decisions"),
        "ids": None if ids is None else as_ids(ids, n, f"{of}ids"),
        "clusters": None if clusters is None else as_clusters(clusters, n, f"{of}clusters"),
        "known_by": model.identifying(table),
        "has_labels": has_labels,
        "sample_weight": weights,
    }
    people = grouped(fields, rows["sensitive_features"], given["X"], f"{of}sensitive_features")
    return with_cut_offs(people, options, as_splits(rows.get("by"), n), "the reference" if of else "`X`")


def _parts_of(reference: tuple[Any, Any, Any] | Mapping[str, Any]) -> Mapping[str, Any]:
    """The parts of a reference, by name."""
    if isinstance(reference, Mapping):
        absent, extra = set(_OF_REFERENCE[:3]) - set(reference), set(reference) - set(_OF_REFERENCE)
        if not absent and not extra:
            return reference
        raise InvalidInputError(
            "`reference` given by name must have 'X', 'y' and 'sensitive_features', and may have 'decisions', 'ids', "
            f"'clusters', 'sample_weight' and 'by', got {sorted(map(str, reference))}."
        )
    if not isinstance(reference, (tuple, list)) or len(reference) != 3:
        raise InvalidInputError("`reference` must be (X, y, sensitive_features) of the people to match in.")
    return dict(zip(_OF_REFERENCE, reference, strict=False))


def assembled(
    reference: AuditReference, found: BatchFindings, notes: Sequence[str], advance: Callable[[str], None]
) -> AuditResult:
    """The result of an audit in one batch, with the reservations about its data."""
    people, pool = found.people, reference.pool
    screened = screened_people(np.arange(len(people)), reference.settings.random_state)
    output = BatchOutput.of(found, screened=screened)
    batches = OneBatch(output, Threads(min(torch.get_num_threads(), MOST_THREADS)))
    merged = merge_batches(batches)
    assert merged is not None
    assert output.pairs is not None
    hashes = {"scores": fingerprint_numbers(output.pairs["person"], output.pairs["score"])}
    result = assemble(
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
            reason_table=output.reasons,
            reason_codes=(found.reasons.people.codes, found.reasons.pool.codes),
        ),
        n_reference=None if pool is people else len(pool),
        hashes=hashes if pool is people else {**hashes, "reference": reference_hash(pool)},
        notes=notes,
        advance=advance,
    )
    return limited(result, reference.scope)
