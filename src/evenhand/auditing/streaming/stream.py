"""Audits of any number of people, in batches, on one machine or several."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from dataclasses import fields as fields_of
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from numpy.typing import NDArray

from evenhand.auditing.assemble import FINISHING_STEPS, assemble
from evenhand.auditing.audit import options_of
from evenhand.auditing.direction import check_direction, notes_on_label, notes_on_scales
from evenhand.auditing.finished import merge_batches
from evenhand.auditing.fitted import (
    Fitted,
    as_seen_by,
    audited_model,
    check_finances_apart,
    in_units,
    settled_options,
    unit_of_weight,
)
from evenhand.auditing.identity import reference_hash
from evenhand.auditing.options import AuditOptions, StreamOptions
from evenhand.auditing.result import AuditResult
from evenhand.auditing.sections.proxies import PROXY_PEOPLE
from evenhand.auditing.streaming.engines import BatchWork, engine_of
from evenhand.auditing.streaming.engines.local import BatchContext, computes_here
from evenhand.auditing.streaming.engines.spark import at_rest
from evenhand.auditing.streaming.source import (
    GPU_ROWS,
    Source,
    hash_limit,
    lowest_rows,
    open_source,
    read_rows,
    rows_in_batch,
    sample_reference,
)
from evenhand.auditing.streaming.store import Store, check_resumable, model_probe, writing
from evenhand.auditing.streaming.stored import StoredBatches, StoredPairs, save_sample
from evenhand.exceptions import EvenhandError, InvalidInputError, InvalidTypeError, StreamError, first_line
from evenhand.inputs.fingerprints import fingerprint_plain, fingerprint_table
from evenhand.inputs.people import CHECKED_ROWS, Columns, People, check_counted, unasked, without_unfit
from evenhand.inputs.read_options import ColumnOptions, ReadOptions
from evenhand.inputs.tables import open_table, typed
from evenhand.inputs.tables.raw import RawTable, shown
from evenhand.inputs.validation import check_columns, check_group_names
from evenhand.models.introspection import input_columns
from evenhand.system.processes import Processes, Workers
from evenhand.system.terminal import progress
from evenhand.system.terminal import progress as shown_progress
from evenhand.system.threads import MOST_THREADS, Crew, Threads, n_cores, one_thread_each, return_freed_memory


@dataclass(frozen=True, eq=False)
class OpenedPeople:
    """The people to audit, before anything is known about the model.

    Attributes
    ----------
    people, columns
        Their rows in batches, and the roles of the columns; unfit columns are not features.
    reading
        How the files were read.
    batch_rows
        Largest number of people in a batch.
    content, version
        SHA-256 of the files, and a description of their version; empty if there are no versions.
    left_out
        What a reader must know about columns that were left out.
    """

    people: Source
    columns: Columns
    reading: ReadOptions
    batch_rows: int
    content: str
    version: str
    left_out: tuple[str, ...]

    @property
    def versions(self) -> dict[str, str]:
        """The version by name, if there is one."""
        return {"source version": self.version} if self.version else {}


def open_people(
    raw: RawTable,
    columns: Columns,
    reading: ReadOptions,
    how: StreamOptions,
    store: Store,
    *,
    asked: Sequence[str],
    is_named: bool,
) -> OpenedPeople:
    """Read the columns of a table once, and split its people into batches.

    Parameters
    ----------
    raw, columns, reading
        The table as stored, the roles of its columns, and how to read them.
    how, store
        Size of batches, and the folder for what is converted.
    asked, is_named
        Features that the user named, and whether the model names its features.

    Raises
    ------
    InvalidInputError
        If the model needs an id, a date or a saved index that the user did not name.
    DataFileError
        If the rows cannot be read, or a column is invalid or ambiguous.
    StreamError
        If the converted rows cannot be written.
    """
    content, version = raw.fingerprint(), raw.version
    spool = fingerprint_plain([content, asdict(reading), columns.needed])
    file = typed(raw, columns.needed, reading)
    batch_rows = how.batch_rows
    if batch_rows is None and (how.device or "").startswith("cuda"):
        batch_rows = GPU_ROWS
    with writing(store.folder, "nothing has been audited yet"):
        people = open_source(file, batch_rows, store.folder / f"source-{spool}.parquet")
    first = _first_rows(people, unasked(columns, asked))
    columns, left_out = without_unfit(columns, first, asked=asked, is_named=is_named)
    rows = rows_in_batch(people.n_rows, batch_rows)
    return OpenedPeople(people, columns, reading, rows, content, version, left_out)


def _first_rows(source: Source, columns: list[str]) -> pd.DataFrame:
    """The number of rows that an audit in memory checks for ids and dates."""
    rows = np.arange(min(source.n_rows, CHECKED_ROWS))
    table: pd.DataFrame = read_rows(source, rows, columns).to_pandas(use_threads=False) if columns else pd.DataFrame()
    return table


def n_workers(how: StreamOptions) -> int:
    """Batches audited at the same time on this machine."""
    return n_cores() if how.n_jobs is None else how.n_jobs


def run_batches(
    context: BatchContext, source: Source, store: Store, how: StreamOptions, is_shown: bool, pool: Workers
) -> None:
    """Audit the batches that are not finished yet, and record who did.

    Raises
    ------
    EvenhandError
        The error of an engine, extended by the number of batches that are kept.
    """
    left = [batch for batch in source.batches if not store.is_finished(batch.number)]
    if not left:
        return
    n = len(source.batches)
    engine = engine_of(how, pool)
    with progress("batches", n, is_shown=is_shown, done=n - len(left)) as advance:
        try:
            who = engine(BatchWork(context, source, store), left, lambda: advance(""))
        except EvenhandError as error:
            raise type(error)(f"{str(error).rstrip('.')}. {_kept(source, store)}") from error
        except KeyboardInterrupt as interrupt:
            if any(store.is_finished(batch.number) for batch in source.batches):
                interrupt.add_note(f"{_kept(source, store)} Continue with `resume=True` (--resume).")
            raise
    store.write_json("engine.json", {"batches": len(left), "engine": who})


def _kept(source: Source, store: Store) -> str:
    n_done = sum(store.is_finished(batch.number) for batch in source.batches)
    return f"{n_done} of {len(source.batches)} batches are finished and kept in {str(store.folder)!r}."


_MANY_PEOPLE = 500_000  # whose evidence is worth starting processes for, if they do not run yet


@contextmanager
def finishing(how: StreamOptions, pool: Workers, people: Source, reference: Fitted, store: Store) -> Iterator[Crew]:
    """Who works on batches, each of which is read where it is worked on; processes that are not needed are ended.

    Raises
    ------
    StreamError
        If a process is lost.
    """
    is_many = min(pool.n_workers, len(people.batches)) > MOST_THREADS
    is_local = how.engine in ("local", "processes") and computes_here(reference)
    repays = pool.is_started or (reference.evidence is not None and people.n_rows >= _MANY_PEOPLE)
    try:
        if is_many and is_local and repays:
            yield Processes(pool, store.folder)
        else:
            pool.end()
            yield Threads(min(pool.n_workers, MOST_THREADS))
    except BrokenExecutor as lost:
        raise StreamError(
            f"A worker was lost after the last batch ({type(lost).__name__}: {first_line(lost)}); it may have run out "
            f"of memory: all {len(people.batches)} batches are kept, so use fewer workers, and continue with "
            "`resume=True` (--resume)."
        ) from lost


def reference_table(reference: Any, columns: list[str], reading: ReadOptions) -> pa.Table:
    """Columns of the reference, which is a table in memory or anything that `evenhand.read_table` accepts.

    Raises
    ------
    InvalidInputError
        If a column is missing.
    InvalidTypeError
        If the reference is not a table.
    """
    who = "The reference must have the columns of the source, which"
    table = None if isinstance(reference, (str, os.PathLike)) else _in_memory(reference)
    if table is not None:
        return table.select(check_columns(columns, table.column_names, who))
    if not isinstance(reference, (str, os.PathLike)) and not hasattr(reference, "__arrow_c_stream__"):
        raise InvalidTypeError(
            "`reference` must be the path of a file, an address or a pandas, polars or pyarrow table, got "
            f"{type(reference).__name__}."
        )
    raw = open_table(reference, reading)
    return typed(raw, check_columns(columns, raw.schema.names, who), reading).table


def _in_memory(reference: Any) -> pa.Table | None:
    """The table if it is already in memory; None for any other source."""
    if isinstance(reference, pa.Table):
        return reference
    frame = nw.from_native(reference, eager_only=True, pass_through=True)
    return frame.to_arrow() if isinstance(frame, nw.DataFrame) else None


# Each draw has a separate seed, so that draws for different purposes are independent.
_REFERENCE_SEED, _EVIDENCE_SEED = 1_000_003, 2_000_003
_MOST_KNOWN_VALUES = 20_000_000  # attributions of the reference kept in memory: 160 MB in single precision


@dataclass(frozen=True, eq=False)
class StreamPlan:
    """What is determined before the first batch.

    Attributes
    ----------
    context
        What every batch needs.
    reference_hash, how
        SHA-256 of the reference, and a description of how it was chosen.
    is_separate
        Whether the reference is not drawn from the source.
    notes
        What a reader must know about the threshold and about units.
    """

    context: BatchContext
    reference_hash: str
    how: str
    is_separate: bool
    notes: tuple[str, ...]


def plan_stream(
    model: Any,
    opened: OpenedPeople,
    reference: Any,
    options: AuditOptions,
    how: StreamOptions,
) -> StreamPlan:
    """Choose and fit the reference.

    Raises
    ------
    InvalidInputError
        If the people of the reference cannot be used, or the model cannot be audited on them.
    """
    people, columns, seed = opened.people, opened.columns, options.random_state
    financial = check_columns(options.financial_features, columns.features, "`financial_features`")
    chosen_rows, table, words = _reference_rows(opened, reference, how.reference_people, seed)
    pool = columns.people_of(table, "The reference")
    if pool.sample_weight is not None:
        check_counted(pool.sample_weight, columns.sample_weight)
    audited = audited_model(_on_device(model, how.device), _of_probabilities(options), pool.table)
    unit = unit_of_weight(pool)
    try:
        pool = in_units(as_seen_by(audited, pool, options, where="the reference"), unit)
    except (InvalidInputError, InvalidTypeError) as error:
        raise type(error)(f"The reference: {error}") from None
    _check_pool(pool)
    check_finances_apart(pool, financial)
    if options.favorable is None:
        check_direction(audited, pool)
    options, on_threshold = settled_options(model, audited, options, financial)
    notes = (*notes_on_scales(model, audited, pool.table), *on_threshold)
    with one_thread_each():
        fitted = with_known(Fitted.of(audited, options, pool, people.n_rows), people.n_rows)
    n_compared = how.evidence_people
    context = BatchContext(
        reference=fitted,
        columns=columns,
        reference_rows=chosen_rows,
        screened=lowest_rows(people.n_rows, PROXY_PEOPLE, seed) if options.evidence else np.zeros(0, dtype=np.int64),
        evidence_seed=seed + _EVIDENCE_SEED,
        evidence_below=None if n_compared is None else hash_limit(people.n_rows, n_compared, seed + _EVIDENCE_SEED),
        unit_of_weight=unit,
    )
    return StreamPlan(context, fingerprint_table(table.to_pandas()), words, reference is not None, notes)


def _reference_rows(
    opened: OpenedPeople,
    reference: Any,
    n_people: int,
    random_state: int,
) -> tuple[NDArray[np.int64] | None, pa.Table, str]:
    """The reference's rows in the source, if it comes from there; its table; and a description of its origin."""
    source, columns = opened.people, opened.columns
    if reference is None:
        sampled = sample_reference(source, columns, n_people, random_state + _REFERENCE_SEED)
        return sampled.rows, read_rows(source, sampled.rows, columns.needed), sampled.how
    table = reference_table(reference, columns.needed, opened.reading)
    return None, table, f"{len(table):,} people given as the reference"


def with_known(reference: Fitted, n_rows: int) -> Fitted:
    """The reference with its people explained beforehand, if memory allows and most are needed repeatedly."""
    pool, evidence = reference.pool, reference.evidence
    n_values = pool.x.numel() * len(pool.groups.names)
    if n_values > _MOST_KNOWN_VALUES or n_rows < 2 * len(pool):
        return reference
    if evidence is not None and 3 * n_values <= _MOST_KNOWN_VALUES:
        halved = evidence.explainer
        known = replace(halved, explainer=halved.explainer.knowing(pool.x, pool.labels))
        evidence = replace(evidence, explainer=known)
    return replace(reference, explainer=reference.explainer.knowing(pool.x, pool.labels), evidence=evidence)


def _check_pool(pool: People) -> None:
    check_group_names(pool.groups.counts, "reference")
    labels = np.unique(pool.labels)
    if len(labels) < 2:
        raise InvalidInputError(f"The reference holds only the label {labels[0]}; both 0 and 1 are needed.")


def _of_probabilities(options: AuditOptions) -> AuditOptions:
    """Reject an outcome that is a value."""
    if options.unit is None:
        return options
    raise InvalidInputError(
        f"An outcome in {options.unit!r} is audited in memory: use `audit` or `audit_given`, or drop `unit` (--unit) "
        "out."
    )


def _on_device(model: Any, device: str | None) -> Any:
    """Move the model to the device."""
    if device is None:
        return model
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise InvalidInputError(f"`device` is {device!r}, but this machine has no GPU that torch can use.")
    if not isinstance(model, torch.nn.Module):
        raise InvalidInputError(f"`device` only applies to torch modules, got a {type(model).__name__}; leave it out.")
    return model.to(device)


def audit_stream(
    model: Any,
    source: Any,
    *,
    label: str,
    group: str | Sequence[str],
    financial_features: Sequence[str],
    out: str | os.PathLike[str],
    reference: Any = None,
    columns: ColumnOptions | None = None,
    reading: ReadOptions | None = None,
    stream: StreamOptions | None = None,
    options: AuditOptions | None = None,
    progress: bool = False,
    **fields: Any,
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
    columns
        Roles of further columns, such as `ColumnOptions(by=("state",), ids="loan")`.
    reading
        What the files do not specify: encoding, number format, words for missing values, sheet.
    stream
        Size of batches, what runs them and whether to resume, such as `StreamOptions(engine="dask", resume=True)`.
    options
        Options of the audit, such as `AuditOptions(decision_threshold=0.8)`.
    progress
        Whether to show the progress of the audit.
    **fields
        Fields of `ColumnOptions`, `StreamOptions` and `AuditOptions`, given directly: `resume=True` is
        `stream=StreamOptions(resume=True)`.

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
    roles, how, rest = columns or ColumnOptions(), stream or StreamOptions(), dict(fields)
    roles = replace(roles, **{f.name: _tuple(rest.pop(f.name)) for f in fields_of(roles) if f.name in rest})
    how = replace(how, **{f.name: rest.pop(f.name) for f in fields_of(how) if f.name in rest})
    options = options_of("eh.audit_stream", options, rest, financial_features, audit_stream)
    store = Store.prepared(Path(out))
    reading = reading or ReadOptions()
    raw = open_table(at_rest(source, how, store, roles.ids), reading, folder=store.folder)
    named = input_columns(model) if roles.features is None else roles.features
    table_columns = Columns.among(
        raw.schema.names,
        label,
        group,
        replace(roles, features=None if named is None else tuple(named)),
        financial=options.financial_features,
        favorable=options.favorable,
    )
    asked = (*options.financial_features, *roles.keep_inputs, *(roles.features or ()))
    opened = open_people(raw, table_columns, reading, how, store, asked=asked, is_named=named is not None)
    how = replace(how, batch_rows=opened.batch_rows)
    on_label = notes_on_label(label, options.favorable) if roles.positive_label is None else ()
    plan = plan_stream(model, opened, reference, options, how)
    _check_same(plan, opened, store, how)
    with Workers(n_workers(how)) as pool:
        run_batches(plan.context, opened.people, store, how, progress, pool)
        return_freed_memory()
        return _finished(plan, opened, store, how, progress, on_label, pool)


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _check_order(model: Any) -> None:
    if isinstance(model, (str, os.PathLike)):
        raise InvalidTypeError(
            f"`audit_stream` takes the model first and the people second, audit_stream(model, source, ...), got the "
            f"path {shown(os.fspath(model))!r} as the model; `evenhand.load_model` reads a model from a file."
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
