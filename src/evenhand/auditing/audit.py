"""The audit, end to end: takes people and a model; produces pairs, attributions, scores and regimes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields as fields_of
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from evenhand.arrays import Ints
from evenhand.auditing.batch import BATCH_STEPS, audit_batch
from evenhand.auditing.batches import AuditSums, BatchOutput, OneBatch
from evenhand.auditing.draws import pooled_over_draws, with_first_draw
from evenhand.auditing.fitted import (
    Fitted,
    as_seen_by,
    audited_model,
    check_direction,
    check_finances_apart,
    in_units,
    notes_on_label,
    notes_on_scales,
    settled_options,
    unit_of_weight,
)
from evenhand.auditing.identity import fingerprint_of, reference_hash, shown_prints
from evenhand.auditing.options import AuditOptions
from evenhand.auditing.regressions import wanted_outcomes
from evenhand.auditing.reservations import reservations_of
from evenhand.auditing.result import AuditResult
from evenhand.auditing.sample import PairsInMemory, PairSource
from evenhand.auditing.scope import Scope
from evenhand.auditing.sections import SECTIONS
from evenhand.auditing.sections.proxies import screened_people
from evenhand.auditing.sections.reasons import given_to_declined
from evenhand.auditing.summary import Provenance
from evenhand.auditing.totals import Totals
from evenhand.datasets.dataset import reservations_on
from evenhand.exceptions import InvalidInputError, InvalidTypeError, warn_caller
from evenhand.inputs.identity import fingerprint_numbers
from evenhand.inputs.people import People
from evenhand.inputs.validation import as_table, check_columns, in_row_order, moved_keywords
from evenhand.matching.placebos import N_NEAR
from evenhand.metrics.estimate import Estimate
from evenhand.models.explaining import is_sampled, questions, watched
from evenhand.models.protocol import AuditedModel
from evenhand.system.terminal import PATIENCE
from evenhand.system.terminal import progress as shown_progress
from evenhand.system.threads import MOST_THREADS, Threads, available_memory, n_cores, one_thread_each


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
    by: Any = None,
    clusters: Any = None,
    sample_weight: Any = None,
    outcomes: Any = None,
    options: AuditOptions | None = None,
    progress: bool = False,
    **fields: Any,
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
        function that scores a matrix. Class 1 is the favorable outcome, unless the option `favorable` says otherwise.
    X
        People to audit: a pandas, polars or pyarrow table, or an array (columns are then named x0, x1, ...).
    y
        True labels, 1 for the favorable outcome; with ``favorable="low"``, 1 for the unfavorable one. None if no
        outcome is known yet: people are then matched on finances alone, and what needs labels is left out.
    sensitive_features
        The protected attribute of each person. Several columns are crossed, and score gaps and approvals are also
        reported for each of them alone. Pass `GroupProbabilities` if only the
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
    by
        Additional columns of the audited people, such as product or state; the excess is reported for each value.
    clusters
        Identifies the rows of the same applicant or household: one value per row. Such rows are never compared with
        each other, and count as one in every standard error. By default, up to four
        rows with identical inputs are taken for one applicant in pairs and score gaps.
    sample_weight
        How many people of the population each row stands for, up to a common factor, for a survey or for a file that
        oversamples a group. Estimates then refer to the population, and standard errors to the sample. Rows with a
        weight of 0 are not counted. By default, everyone has the same weight.
    outcomes
        Additional outcomes to regress, by name or as a table, such as a price, a rate spread or an amount; missing for
        people who have none. They are not inputs of the model.
    options
        Everything else, such as `AuditOptions(decision_threshold=0.8, regressions=True)`.
    progress
        Whether to show the progress of an audit that takes more than two seconds.
    **fields
        Fields of `AuditOptions`, given directly: `decision_threshold=0.8` is `options=AuditOptions(
        decision_threshold=0.8)`.

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
    options = options_of("eh.audit", options, fields, financial_features, audit)
    people = People.of(
        X,
        y,
        sensitive_features,
        decisions=decisions,
        ids=ids,
        clusters=clusters,
        sample_weight=sample_weight,
        by=by,
    )
    pool = None if reference is None else People.of(**_parts_of(reference), prefix="reference ")
    notes = (*notes_on_label(getattr(y, "name", None), options.favorable), *reservations_on(X))
    outcomes = in_row_order(outcomes, X, "outcomes")
    return audit_people(model, people, pool, options, outcomes=outcomes, notes=notes, progress=progress)


def audit_people(
    model: Any,
    people: People,
    pool: People | None,
    options: AuditOptions,
    *,
    outcomes: Any = None,
    notes: Sequence[str] = (),
    progress: bool = False,
) -> AuditResult:
    """Audit a model on checked people, whom Python or a file gave.

    Parameters
    ----------
    model, people, pool, options
        The model as the user gave it, the audited people, the people to match in, or None for the same, and options.
    outcomes
        Additional outcomes in the order of the people; by default those that came with them.
    notes
        Reservations about the data, which come last in the result.
    progress
        Whether to show progress.
    """
    audited = audited_model(model, options, people.table)
    people, pool = seen_by(audited, people, pool, options)
    if people.probabilities is not None or pool.probabilities is not None:
        if not people.has_labels and options.unit is None:
            raise InvalidInputError(
                "An audit without labels needs known groups, but only probabilities of groups were given: pass `y` "
                "(--label), or the group of each person."
            )
        people, pool = with_first_draw(people, pool, options.random_state)
    options, on_model = settled(model, audited, people, pool, options)
    notes = (*on_model, *notes)
    return audit_seen(audited, people, pool, options, outcomes=outcomes, notes=notes, progress=progress)


def settled(
    model: Any, audited: AuditedModel, people: People, pool: People, options: AuditOptions
) -> tuple[AuditOptions, tuple[str, ...]]:
    """Options with unset ones filled in, and what a reader must know, from a model and people as it sees them.

    Raises
    ------
    InvalidInputError
        If a financial feature is not a column or is the group, or scores rank people against their labels.
    """
    financial = check_columns(options.financial_features, list(people.table.columns), "`financial_features`")
    check_finances_apart(pool, financial)
    if options.favorable is None:
        check_direction(audited, people)
    options, on_threshold = settled_options(model, audited, options, financial)
    return options, (*notes_on_scales(model, audited, people.table, pool.table), *on_threshold)


def audit_seen(
    model: AuditedModel,
    people: People,
    pool: People,
    options: AuditOptions,
    *,
    scope: Scope | None = None,
    outcomes: Any = None,
    notes: Sequence[str] = (),
    progress: bool = False,
    codes: tuple[tuple[str, ...], Ints] | None = None,
) -> AuditResult:
    """The walk of every audit in memory: fit once, audit one batch, finish.

    Parameters
    ----------
    model, people, pool, options
        As the audit sees them; everything is settled.
    scope
        What can be found; by default all that a model allows.
    outcomes, notes, progress
        As in `audit_people`.
    codes
        Given reasons, by name and as places among the names: see `auditing.totals.Totals`.
    """
    outcomes = people.outcomes if outcomes is None else outcomes
    further = None
    if options.regressions or outcomes is not None:
        further = wanted_outcomes(outcomes, people, is_wanted=options.regressions)
    fitted = Fitted.of(model, options, pool, len(people), scope)
    with _shown_run(fitted, people, is_shown=progress) as (watching, advance):
        batch = audit_batch(watching, people, advance=advance)
        screened = screened_people(np.arange(len(people)), options.random_state)
        output = BatchOutput.of(batch, AuditSums.of(batch, SECTIONS), screened=screened)
        batches = OneBatch(output, Threads(min(n_cores(), MOST_THREADS)))
        assert output.pairs is not None
        # The last digits of a score may depend on the place of its row.
        hashes = {"scores": fingerprint_numbers(np.sort(output.pairs["score"].round(9)))}
        attributions = batch.attributions, batch.scored.match_attributions
        if not fitted.scope.attributions:  # a score alone was put where attributions are
            attributions = np.full_like(attributions[0], np.nan), np.full_like(attributions[1], np.nan)
        reason_table, reasons = output.reasons, (batch.reasons.people.codes, batch.reasons.source.pool.codes)
        if codes is not None:
            given = given_to_declined(codes[1], batch.decision)
            reason_table, reasons = given.table(codes[0], people), (given.codes, given.codes)
        result = finish(
            Totals(fitted, batches, output.record, batch, further, codes),
            PairsInMemory(output.pairs, people.table, pool.table, *attributions, reason_table, reasons),
            n_reference=None if pool is people else len(pool),
            hashes=hashes if pool is people else {**hashes, "reference": reference_hash(pool)},
            notes=notes,
            advance=advance,
        )
        return result if people.probabilities is None else pooled_over_draws(result, watching, batch, advance)


# Bytes at the peak of an audit in memory, for each pair and each of its values: see docs/growth.md.
_BYTES_PER_PAIR, _BYTES_PER_VALUE, _BYTES_PER_VALUE_COMPARED = 1_500, 50, 165


@contextmanager
def _shown_run(fitted: Fitted, people: People, *, is_shown: bool) -> Iterator[tuple[Fitted, Callable[[str], None]]]:
    """The reference, and what to call after each step; sampled attributions show the evaluations of the model."""
    n_draws = 1 if people.probabilities is None else people.probabilities.n_draws
    n_people = len(people) * n_draws
    if not is_shown or not is_sampled(fitted.explainer):
        if is_shown:
            _warn_of_memory(fitted, n_people)
        n_steps = BATCH_STEPS + FINISHING_STEPS + n_draws - 1
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


def n_evaluations(fitted: Fitted, n_people: int) -> int:
    """About how many evaluations an audit needs from a sampled model."""
    own, moved = (questions(fitted.explainer, is_own=is_own) for is_own in (True, False))
    n_pairs = n_people * (len(fitted.pool.groups.names) - 1)
    # People and matches, each also with the other's inputs. For triples, people from both halves of a cell and others
    # from one, with steps of one standard deviation; and for each triple, people with the others' finances and inputs,
    # and the others with the person's finances.
    of_triples = 0 if fitted.evidence is None else 3 * (own + moved) + N_NEAR * (4 * own + 4 * moved)
    return n_people * own + n_pairs * (own + 2 * moved + of_triples)


def _warn_of_memory(fitted: Fitted, n_people: int) -> None:
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


def options_of(
    called: str,
    options: AuditOptions | None,
    fields: dict[str, Any],
    financial_features: Sequence[str],
    function: Callable[..., Any],
) -> AuditOptions:
    """Options from the dataclass and from its fields as keywords of a function that a user calls.

    Raises
    ------
    InvalidInputError, InvalidTypeError
        If a keyword is unknown, or differs from the options.
    """
    if (settings := fields.pop("settings", None)) is not None:
        warn_caller(
            f"`{called}(settings=...)` is now `options=AuditOptions(...)`; the old keyword goes in the next release.",
            FutureWarning,
        )
        if not isinstance(settings, AuditOptions):
            raise InvalidTypeError(f"`settings` must be AuditOptions(...), got {type(settings).__name__}.")
        changed = [f.name for f in fields_of(AuditOptions) if getattr(settings, f.name) != f.default]
        fields = {**{name: getattr(settings, name) for name in changed}, **fields}
    own = [name for name in signature(function).parameters if name != "fields"]
    options = moved_keywords(called, fields, options, AuditOptions, own=own, are_moved=False)
    names = (financial_features,) if isinstance(financial_features, str) else tuple(financial_features)
    return replace(options, financial_features=names)


def seen_by(model: AuditedModel, people: People, pool: People | None, options: AuditOptions) -> tuple[People, People]:
    """The audited people and the people they are matched in, as the model sees them, with the same group codes.

    Raises
    ------
    InvalidInputError
        If something that both need was given for one of them only.
    """
    if pool is None:
        people = as_seen_by(model, people, options)
        people = in_units(people, unit_of_weight(people))
        return people, people
    if people.has_labels != pool.has_labels:
        raise InvalidInputError(
            "Labels, `y` (--label), are needed for both the audited people and the reference, or for neither: people "
            "are matched within a label."
        )
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
    pool = as_seen_by(model, replace(pool, columns=people.columns), options, prefix="reference ", where="the reference")
    people = as_seen_by(model, people, options, pool=pool)
    unit = unit_of_weight(pool)
    return in_units(people, unit), in_units(pool, unit)


_OF_REFERENCE = ("X", "y", "sensitive_features", "decisions", "ids", "clusters", "sample_weight", "by")


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


FINISHING_STEPS = len(SECTIONS)
"""Number of steps that `finish` reports."""


@one_thread_each()
def finish(
    totals: Totals,
    source: PairSource,
    *,
    n_reference: int | None,
    hashes: Mapping[str, str],
    files: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    stream: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    advance: Callable[[str], None] = lambda step: None,
) -> AuditResult:
    """The result of an audit: what each section computes from all batches, and what was audited.

    Parameters
    ----------
    totals
        What the batches add up to.
    source
        Where the pairs and their people are stored.
    n_reference
        Number of people in the reference; None if the audited people are the reference.
    hashes
        SHA-256 of what was read besides the audited people.
    files
        Names of the files that were read.
    notes
        Reservations about the data, which come last in the result.
    stream, folder
        Details of a streamed audit.
    advance
        Called with a short text after each of the `FINISHING_STEPS` steps.
    """
    settings, scope, sections = totals.fitted.settings, totals.fitted.scope, {}
    for section in SECTIONS:
        sections[section.key] = totals.part(section)
        advance(section.title)
    provenance = _provenance(totals, n_reference, hashes, files or {})
    return AuditResult(
        settings=settings.of_metrics,
        report=settings.report,
        provenance=provenance,
        warnings=(*reservations_of(totals, provenance), *notes),
        source=source,
        stream=stream,
        folder=folder,
        sections=sections,
        scope=None if scope.is_whole else scope,
    )


def _provenance(
    totals: Totals, n_reference: int | None, hashes: Mapping[str, str], files: Mapping[str, str]
) -> Provenance:
    """What was audited."""
    sums, fitted = totals.sums, totals.fitted
    pool, scope, n_people = fitted.pool, fitted.scope, int(sums.n_people.sum())
    prints = shown_prints(sums.prints, [str(column) for column in pool.table.columns])
    is_bad = fitted.settings.favorable == "low" and fitted.settings.unit is None
    favorable = ["0" if is_bad else "1"] if scope.labels else []
    columns = {"label": [], "favorable label": favorable, **pool.columns}
    return Provenance(
        model=fitted.model.kind,
        n_people=n_people,
        n_reference=n_reference,
        n_features=len(pool.table.columns),
        groups={name: int(n) for name, n in zip(pool.groups.names, sums.n_people, strict=True)},
        group_columns=_columns_that_reveal_the_group(sums, n_people),
        attribution_method=next(iter(sums.methods)) if scope.model else "as given" if scope.attributions else "none",
        completeness_gap=sums.completeness_gap / sums.moved if sums.moved > 0 else 0.0,
        attribution_error=_sampling_error(sums),
        integration_error=fitted.integration_error,
        n_without_baseline=sums.n_without_baseline,
        exclusions=dict(totals.merged.exclusions),
        fingerprint=fingerprint_of(prints, n_people),
        column_prints=prints,
        hashes=dict(hashes),
        columns={role: names for role, names in columns.items() if names},
        files=dict(files),
    )


def _sampling_error(sums: AuditSums) -> float | None:
    """Standard error of attributions as a share of their size; None if nothing is sampled."""
    if sums.error_squares is None:
        return None
    return math.sqrt(sums.error_squares / sums.value_squares) if sums.value_squares > 0 else 0.0


def _columns_that_reveal_the_group(sums: AuditSums, n_people: int) -> list[str]:
    """Discrete columns in which each value occurs in only one group."""
    return [
        name
        for name, values in sums.values.items()
        if values.groups is not None
        and 1 < len(values.groups) <= n_people // 10
        and all(len(groups) == 1 for groups in values.groups.values())
    ]


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
    Table with columns left_out ("none" first), group, reference, score_gap, score_gap_low, score_gap_high,
    score_gap_p_value (of the two groups that differ most clearly with all features), cec, excess, low, high, p_value
    (of the excess), regime_b, regime_b_excess, median_distance.

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
    return sensitivity_of(features, lambda kept: audit(model, X, y, financial_features=kept, **settings))


def sensitivity_of(features: Sequence[str], audited: Callable[[list[str]], AuditResult]) -> pd.DataFrame:
    """The table of `sensitivity`, from a function that runs the audit with some of the financial features."""
    if len(features) < 2:
        raise InvalidInputError(
            f"At least two financial features are needed so that one can be left out, got {list(features)}."
        )
    sides: tuple[str, str] | None = None
    rows = []
    for left_out in ("none", *features):
        result = audited([feature for feature in features if feature != left_out])
        summary, evidence = result.to_dict(), result.evidence
        gap = None
        if evidence is not None:
            sides = sides or (evidence.largest_score_gap.group, evidence.largest_score_gap.reference)
            gap = next((gap for gap in evidence.score_gaps if (gap.group, gap.reference) == sides), None)
        total = Estimate(np.nan) if gap is None else gap.total
        cec, (group, reference) = summary["cec"], sides or (None, None)
        low, high = cec.get("excess_ci", (np.nan, np.nan))
        rows.append(
            {
                "left_out": left_out,
                "group": group,
                "reference": reference,
                "score_gap": total.value,
                "score_gap_low": total.low,
                "score_gap_high": total.high,
                "score_gap_p_value": total.p_value,
                "cec": cec["mean"],
                "excess": cec.get("excess", np.nan),
                "low": low,
                "high": high,
                "p_value": cec.get("p_value", np.nan),
                "regime_b": summary["regimes"]["B"],
                "regime_b_excess": cec.get("regime_b_excess", np.nan),
                "median_distance": result.matching.distance_quantiles[0.5],
            }
        )
    return pd.DataFrame(rows)
