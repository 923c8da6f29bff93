"""Audits of any number of people, in batches, on one machine or several."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from evenhand.auditing.assemble import FINISHING_STEPS, assemble
from evenhand.auditing.cut_offs import SegmentThresholds
from evenhand.auditing.direction import notes_on_label
from evenhand.auditing.estimating import RunSize, announce_run
from evenhand.auditing.finished import merge_batches
from evenhand.auditing.identities import reference_hash
from evenhand.auditing.options import AuditOptions, AuditSettings, Engine, Favorable, StreamOptions
from evenhand.auditing.people import check_counted
from evenhand.auditing.result import AuditResult
from evenhand.auditing.streaming.finishing import finishing
from evenhand.auditing.streaming.manifest import check_resumable, model_probe
from evenhand.auditing.streaming.opening import OpenedPeople, open_people
from evenhand.auditing.streaming.planning import StreamPlan, plan_stream, with_known
from evenhand.auditing.streaming.running import n_workers, run_batches
from evenhand.auditing.streaming.source import Source, rows_in_batch
from evenhand.auditing.streaming.spark_tables import at_rest
from evenhand.auditing.streaming.store import Store, writing
from evenhand.auditing.streaming.stored_batches import StoredBatches
from evenhand.auditing.streaming.stored_pairs import StoredPairs, save_sample
from evenhand.exceptions import InvalidTypeError, StreamError
from evenhand.inputs.read_options import ReadOptions
from evenhand.inputs.roles import Columns
from evenhand.inputs.tables import open_table
from evenhand.inputs.tables.addresses import shown
from evenhand.models.dispatch import AttributionChoice
from evenhand.models.input_columns import input_columns
from evenhand.system.memory import return_freed_memory
from evenhand.system.progress import progress as shown_progress
from evenhand.system.threads import one_thread_each
from evenhand.system.workers import Workers

__all__ = ["audit_stream"]


def audit_stream(
    model: Any,  # noqa: ANN401 - any model that `evenhand.audit` takes
    source: Any,  # noqa: ANN401 - a path, an address, or anything that gives Arrow data
    *,
    label: str,
    group: str | Sequence[str],
    financial_features: Sequence[str],
    out: str | os.PathLike[str],
    reference: Any = None,  # noqa: ANN401 - as `source`
    reference_people: int = StreamOptions.reference_people,
    batch_rows: int | None = StreamOptions.batch_rows,
    resume: bool = StreamOptions.resume,
    engine: Engine | Executor = StreamOptions.engine,
    scheduler: str | None = StreamOptions.scheduler,
    n_jobs: int | None = StreamOptions.n_jobs,
    device: str | None = StreamOptions.device,
    progress: bool = False,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    keep_inputs: Sequence[str] = (),
    keep_group: bool = False,
    positive_label: str | None = None,
    decisions: str | None = None,
    ids: str | None = None,
    drop_missing: bool = False,
    clusters: str | None = None,
    sample_weight: str | None = None,
    by: Sequence[str] = (),
    reading: ReadOptions | None = None,
    evidence: bool = AuditOptions.evidence,
    evidence_people: int | None = StreamOptions.evidence_people,
    favorable: Favorable | None = AuditOptions.favorable,
    decision_threshold: float | SegmentThresholds | None = AuditOptions.decision_threshold,
    consistency_threshold: float = AuditOptions.consistency_threshold,
    max_distance: float | None = AuditOptions.max_distance,
    attribution: AttributionChoice = AuditOptions.attribution,
    limits: Mapping[str, float] | None = AuditOptions.limits,
    random_state: int = AuditOptions.random_state,
    reason_map: Any = None,  # noqa: ANN401 - as in `evenhand.audit`
    settings: AuditSettings | None = None,
) -> AuditResult:
    """Audit the people of files of any size, in memory that does not grow with their number.

    Standardization, neighbors and baselines are fitted once, on the reference. The people are then audited batch by
    batch. Each finished batch stores its pairs and sums in `out`, so that an audit that was stopped at any moment can
    be resumed. The metrics are those of `evenhand.audit` for the same people and the same reference.

    Parameters
    ----------
    model
        As in `evenhand.audit`.
    source
        A file, folder, address or table of any kind that `evenhand.read_table` accepts. People are numbered in row
        order. Anything but Parquet is converted to Parquet in `out` once. With ``engine="spark"``, also the name of a
        Spark table, or a DataFrame, whose rows Spark writes to ``out/rows`` in the order of `ids`.
    label, group
        Columns of the outcome, and of the protected attribute; several are intersected.
    financial_features
        Columns on which people are compared.
    out
        Folder to write to.
    reference
        The people to match in and to take baselines from: a table or a file with the same columns, used completely. By
        default, people of the source, drawn at random.
    reference_people
        How many are drawn; everyone, if the source has no more. At least 500 of every label and group are drawn.
    batch_rows
        Largest number of people in a batch: more need more memory. By default 1/128 of everyone, but at least 5,000 and
        at most 25,000; 50,000 if `device` is a GPU.
    resume
        Resume the audit in `out`. The source, the model and the settings must be the same.
    engine
        What runs the batches: ``"local"`` for threads of this process, or for local processes once a first batch shows
        that they are faster; ``"threads"`` or ``"processes"`` for one of them; ``"dask"`` or ``"spark"`` for a cluster;
        or any `concurrent.futures.Executor`, which is left running and whose workers must see `source` and `out` under
        the same paths. The result is the same to the last bit.
    scheduler
        Address of a Dask scheduler; None for processes on this machine. For Spark, where to start a session if none is
        active: ``"sc://host:15002"`` for a Spark Connect server, or a master such as ``"local[4]"``.
    n_jobs
        Batches audited at the same time on this machine; by default one per core. Ignored for an executor, which has
        its workers.
    device
        Where a torch model runs, such as ``"cuda"``; None for where it is.
    progress
        Whether to show the progress of the audit.
    features, drop, keep_group
        Inputs of the model: by default those that the model names, or all columns except the label, those of `drop`
        and, without `keep_group`, those of `group`.
    keep_inputs
        Columns to keep as inputs even if they look like an id, a date or a saved index. Such columns are otherwise left
        out, or rejected if the model names them.
    positive_label
        Value of `label` that is the favorable outcome, whatever `favorable` is; required if the label is not 0 or 1.
    decisions, ids
        Columns of the actual decisions, 1 for a favorable one, and of your ids of the people: see `evenhand.audit`.
    drop_missing
        Leave out rows without a label or a group, and count them; otherwise they are an error.
    clusters
        Column that identifies the rows of the same applicant or household: see `evenhand.audit`. For people outside the
        reference, only rows of the same batch are recognized.
    sample_weight
        Column with the number of people of the population that each row stands for: see `evenhand.audit`.
    by
        Columns for whose values the excess is reported separately.
    reading
        What the files do not specify: encoding, number format, words for missing values, sheet.
    evidence
        Whether to compare with placebo pairs and to screen for proxies.
    evidence_people
        Compare only this many people, drawn at random; None for everyone. Comparing takes about two thirds of the time,
        and a million people determine the excess to the third decimal. The result says how many were compared.
    favorable, decision_threshold, consistency_threshold, max_distance, attribution, limits, random_state, reason_map,
    settings
        As in `evenhand.audit`.

    Returns
    -------
    AuditResult

    Raises
    ------
    InvalidInputError, InvalidTypeError
        If the input cannot be audited, or `out` holds a different audit than the one to resume.
    DataFileError
        If a file cannot be read, or its columns differ from those of the first.
    MissingExtraError
        If `engine` is Dask or PySpark, which is not installed.
    StreamError
        If files cannot be written, a worker or the cluster is lost, or the model cannot be sent to the workers;
        finished batches are kept.

    Examples
    --------
    >>> import tempfile
    >>> import evenhand as eh, torch
    >>> data = eh.load_dataset("synthetic", n=600)
    >>> folder = Path(tempfile.mkdtemp())
    >>> data.X.assign(y=data.y, sex=data.group).to_parquet(folder / "people.parquet")
    >>> _ = torch.manual_seed(0)
    >>> found = audit_stream(torch.nn.Linear(data.X.shape[1], 1), folder / "people.parquet", label="y", group="sex",
    ...                      financial_features=data.financial_features, out=folder / "audit", batch_rows=250)
    >>> found.provenance.n_people, len(list(found.pairs_path.glob("*.parquet")))
    (600, 3)
    """
    _check_order(model)
    options = AuditOptions(
        **vars(settings or AuditSettings()),
        financial_features=tuple(financial_features),
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
    how = StreamOptions(
        resume=resume,
        batch_rows=batch_rows,
        reference_people=reference_people,
        evidence_people=evidence_people,
        engine=engine,
        scheduler=scheduler,
        n_jobs=n_jobs,
        device=device,
    )
    store = Store.prepared(Path(out))
    reading = reading or ReadOptions()
    raw = open_table(at_rest(source, how, store, ids), reading, folder=store.folder)
    named = input_columns(model) if features is None else features
    columns = Columns.among(
        raw.schema.names,
        label=label,
        group=group,
        financial=financial_features,
        features=named,
        drop=drop,
        keep_group=keep_group,
        by=by,
        positive_label=positive_label,
        drop_missing=drop_missing,
        clusters=clusters,
        sample_weight=sample_weight,
        favorable=favorable,
        decisions=decisions,
        ids=ids,
    )
    asked = (*financial_features, *keep_inputs, *(features or ()))
    opened = open_people(raw, columns, reading, how, store, asked=asked, is_named=named is not None)
    how = replace(how, batch_rows=opened.batch_rows)
    on_label = notes_on_label(label, favorable) if positive_label is None else ()
    plan = plan_stream(model, opened, reference, options, how)
    _check_same(plan, opened, store, how)
    if progress:
        _announce(plan, opened.people, store, how)
    with Workers(n_workers(how)) as pool:
        run_batches(plan.context, opened.people, store, how, progress, pool)
        return_freed_memory()
        return _finished(plan, opened, store, how, progress, on_label, pool)


def _check_order(model: Any) -> None:  # noqa: ANN401
    if isinstance(model, (str, os.PathLike)):
        raise InvalidTypeError(
            f"`audit_stream` takes the model first and the people second, audit_stream(model, source, ...), got the "
            f"path {shown(os.fspath(model))!r} as the model; `evenhand.load_model` reads a model from a file."
        )


def _announce(plan: StreamPlan, people: Source, store: Store, how: StreamOptions) -> None:
    """Report how long the unfinished batches will take."""
    fitted = plan.context.reference
    n_left = sum(batch.n_rows for batch in people.batches if not store.is_finished(batch.number))
    is_known = fitted.explainer.known is not None
    compared = min(1.0, (how.evidence_people or people.n_rows) / people.n_rows)
    in_batch = rows_in_batch(people.n_rows, how.batch_rows)
    announce_run(
        fitted,
        RunSize(n_left, in_batch=in_batch, n_workers=n_workers(how), compared=compared),
        (lambda reference: with_known(reference, people.n_rows)) if is_known else (lambda reference: reference),
    )


def _check_same(plan: StreamPlan, opened: OpenedPeople, store: Store, how: StreamOptions) -> None:
    """Reject a folder that holds a different audit, or one that was not to be resumed."""
    fitted = plan.context.reference
    check_resumable(
        store,
        resume=how.resume,
        source=opened.content,
        reference=plan.reference_hash,
        model=model_probe(fitted.model, fitted),
        settings=_decisive(plan, opened, how),
    )


def _decisive(plan: StreamPlan, opened: OpenedPeople, how: StreamOptions) -> dict[str, Any]:
    """All options that must be the same for an audit to be resumed, as plain data; limits do not affect batches."""
    options = plan.context.reference.settings
    return {
        **{name: value for name, value in asdict(options).items() if name != "limits"},
        **asdict(opened.columns),
        **asdict(opened.reading),
        "batch_rows": how.batch_rows,
        "reference_people": None if plan.is_separate else how.reference_people,
        "evidence_people": how.evidence_people,
        **opened.versions,
    }


def _finished(
    plan: StreamPlan,
    opened: OpenedPeople,
    store: Store,
    how: StreamOptions,
    is_shown: bool,
    on_label: tuple[str, ...],
    processes: Workers,
) -> AuditResult:
    """The result of finished batches; `on_label` says what a reader must know about the label."""
    context, people = plan.context, opened.people
    n = len(people.batches)
    pool = context.reference.pool
    with (
        finishing(how, processes, people, context.reference, store) as crew,
        one_thread_each(),
        writing(store.folder, f"all {n} batches are kept: free some space and continue with `resume=True` (--resume)"),
        shown_progress("metrics", FINISHING_STEPS + 1, is_shown=is_shown) as advance,
    ):
        batches = StoredBatches(store.folder.absolute(), [batch.number for batch in people.batches], crew)
        merged = merge_batches(batches)
        if merged is None:
            raise StreamError(f"{people.name!r} has no row with both a label and a group; no one can be audited.")
        check_counted(merged.sums.weights[:, 1], context.columns.sample_weight)
        is_drawn = plan.is_separate or len(pool) < int(merged.sums.n_people.sum())
        result = assemble(
            context.reference,
            batches,
            merged,
            StoredPairs(store, merged.numbers, people, context.columns, context.reference),
            n_reference=len(pool) if is_drawn else None,
            notes=plan.notes,
            hashes={
                "source files": opened.content,
                **opened.versions,
                **({"reference": reference_hash(pool)} if is_drawn else {}),
            },
            stream={
                "n_batches": n,
                "batch_rows": how.batch_rows,
                "reference": plan.how,
                "evidence_people": None if context.evidence_below is None else how.evidence_people,
            },
            folder=store.folder,
            advance=advance,
        )
        result = replace(result, warnings=(*people.columns.notes, *on_label, *opened.left_out, *result.warnings))
        save_sample(store, result.pairs_sample)
        advance("sample of pairs")
        result.to_json(store.folder / "audit.json")
    return result
