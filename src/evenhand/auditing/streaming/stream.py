"""Audits of any number of people, in batches, on one machine or several."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import asdict, dataclass, replace
from dataclasses import fields as fields_of
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa

from evenhand.auditing.audit import FINISHING_STEPS, finish, options_of, settled
from evenhand.auditing.batch import audit_batch
from evenhand.auditing.batches import merge_batches
from evenhand.auditing.fitted import Fitted, as_seen_by, audited_model, in_units, notes_on_label, unit_of_weight
from evenhand.auditing.identity import reference_hash
from evenhand.auditing.options import AuditOptions, StreamOptions
from evenhand.auditing.result import AuditResult
from evenhand.auditing.sample import ExplainedPairs
from evenhand.auditing.sections.proxies import PROXY_PEOPLE
from evenhand.auditing.streaming.engines.dask import run_on_dask
from evenhand.auditing.streaming.engines.local import BatchWork, run_locally, run_on_executor
from evenhand.auditing.streaming.engines.spark import at_rest, run_on_spark
from evenhand.auditing.streaming.source import Source, hash_limit, lowest_rows, open_source, read_rows, sample_reference
from evenhand.auditing.streaming.store import Store, StoredBatches, check_resumable, encode, writing
from evenhand.auditing.totals import Totals
from evenhand.exceptions import (
    DataFileError,
    EvenhandError,
    InvalidInputError,
    InvalidTypeError,
    StreamError,
    first_line,
)
from evenhand.inputs.identity import fingerprint_plain, fingerprint_table
from evenhand.inputs.people import CHECKED_ROWS, Columns, check_counted, unasked, without_unfit
from evenhand.inputs.read_options import ColumnOptions, ReadOptions
from evenhand.inputs.tables import open_table, typed
from evenhand.inputs.tables.open import name_of_input
from evenhand.inputs.tables.raw import shown
from evenhand.inputs.validation import check_columns, check_group_names
from evenhand.models.dispatch import input_columns
from evenhand.system.files import only_one, write_atomically
from evenhand.system.processes import Processes, Workers
from evenhand.system.terminal import progress as shown_progress
from evenhand.system.threads import MOST_THREADS, Crew, Threads, n_cores, one_thread_each, return_freed_memory

_GPU_ROWS = 50_000  # in a batch on a GPU, where each batch costs CPU time that does not shrink with its rows
_MANY_PEOPLE = 500_000  # whose evidence is worth starting processes for, if they do not run yet
# Each draw has a separate seed, so that draws for different purposes are independent.
_REFERENCE_SEED, _EVIDENCE_SEED = 1_000_003, 2_000_003
_MOST_KNOWN_VALUES = 20_000_000  # attributions of the reference kept in memory: 160 MB in single precision


def audit_stream(
    model: Any,
    source: Any,
    *,
    label: str | None = None,
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
        Columns of the outcome, None if there is none yet, and of the protected attribute; several are intersected.
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
        If the input cannot be audited, or `out` holds a different audit than the one to resume, or is in use.
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
    if isinstance(model, (str, os.PathLike)):
        raise InvalidTypeError(
            f"`audit_stream` takes the model first and the people second, audit_stream(model, source, ...), got the "
            f"path {shown(os.fspath(model))!r} as the model; `evenhand.load_model` reads a model from a file."
        )
    roles, how, reading = columns or ColumnOptions(), stream or StreamOptions(), reading or ReadOptions()
    rest: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    roles = replace(roles, **{f.name: rest.pop(f.name) for f in fields_of(roles) if f.name in rest})
    how = replace(how, **{f.name: rest.pop(f.name) for f in fields_of(how) if f.name in rest})
    options = options_of("eh.audit_stream", options, rest, financial_features, audit_stream)
    store = Store.prepared(Path(out))
    with only_one(store.folder):
        raw = open_table(at_rest(source, how, store, roles.ids), reading, folder=store.folder)
        named = input_columns(model) if roles.features is None else roles.features
        main = {
            "label": label or "",
            "group": (group,) if isinstance(group, str) else tuple(group),
            "features": None if named is None else tuple(named),
            "financial_features": options.financial_features,
            "favorable": options.favorable,
        }
        used = Columns(**{**vars(roles), **main}).among(raw.schema.names)
        batch_rows = how.batch_rows
        if batch_rows is None and (how.device or "").startswith("cuda"):
            batch_rows = _GPU_ROWS
        content = raw.fingerprint()
        versions = {"source version": raw.version} if raw.version else {}
        spool = store.folder / f"source-{fingerprint_plain([content, asdict(reading), used.needed])}.parquet"
        file = typed(raw, used.needed, reading)
        with writing(store.folder, "nothing has been audited yet"):
            people = open_source(file, batch_rows, spool)
        how = replace(how, batch_rows=people.batch_rows)
        asked = (*options.financial_features, *roles.keep_inputs, *(roles.features or ()))
        first = pd.DataFrame()
        if checked := unasked(used, asked):
            first = read_rows(people, np.arange(min(people.n_rows, CHECKED_ROWS)), checked).to_pandas(use_threads=False)
        used, left_out = without_unfit(used, first, asked=asked, is_named=named is not None)
        on_label = notes_on_label(label, roles.positive_label or options.favorable)
        work, table, origin, notes = _planned(model, used, people, store, reference, reading, options, how)
        check_resumable(
            store,
            work.fitted,
            resume=how.resume,
            source=content,
            reference=fingerprint_table(table.to_pandas()),
            settings={
                # Limits and the reference group do not affect batches.
                **{
                    name: value
                    for name, value in work.fitted.settings.of_metrics.items()
                    if name not in ("limits", "reference_group")
                },
                **asdict(used),
                **asdict(reading),
                "batch_rows": how.batch_rows,
                "reference_people": how.reference_people if reference is None else None,
                "evidence_people": how.evidence_people,
                **versions,
            },
        )
        with Workers(n_cores() if how.n_jobs is None else how.n_jobs) as pool:
            run_batches(work, how, progress, pool)
            if raw.fingerprint() != content:
                raise DataFileError(f"{raw.where} changed while it was audited; audit it again, in a different folder.")
            return_freed_memory()
            hashes, warnings = {"source files": content, **versions}, (*people.columns.notes, *on_label, *left_out)
            try:
                return _finished(work, how, progress, pool, origin, notes, hashes, warnings)
            except BrokenExecutor as lost:
                raise StreamError(
                    f"A worker was lost after the last batch ({type(lost).__name__}: {first_line(lost)}); it may have "
                    f"run out of memory: all {len(people.batches)} batches are kept, so use fewer workers, and "
                    "continue with `resume=True` (--resume)."
                ) from lost


def _planned(
    model: Any,
    columns: Columns,
    people: Source,
    store: Store,
    reference: Any,
    reading: ReadOptions,
    options: AuditOptions,
    how: StreamOptions,
) -> tuple[BatchWork, pa.Table, str, tuple[str, ...]]:
    """What batches need, fitted on the reference; the reference, its origin in words, and notes for a reader.

    Raises
    ------
    InvalidInputError
        If the people of the reference cannot be used, or the model cannot be audited on them.
    """
    seed = options.random_state
    check_columns(options.financial_features, columns.features, "`financial_features`")
    rows = None
    if reference is None:
        rows, origin = sample_reference(people, columns, how.reference_people, seed + _REFERENCE_SEED)
        table = read_rows(people, rows, columns.needed)
    else:
        table = reference_table(reference, columns.needed, reading)
        origin = f"{len(table):,} people given as the reference"
    pool = columns.people_of(table, "The reference")
    if pool.sample_weight is not None:
        check_counted(pool.sample_weight, columns.sample_weight)
    if options.unit is not None:
        raise InvalidInputError(
            f"An outcome in {options.unit!r} is audited in memory: use `audit` or `audit_given`, or drop `unit` "
            "(--unit)."
        )
    if how.device is not None:
        import torch

        if how.device.startswith("cuda") and not torch.cuda.is_available():
            raise InvalidInputError(f"`device` is {how.device!r}, but this machine has no GPU that torch can use.")
        if not isinstance(model, torch.nn.Module):
            kind = type(model).__name__
            raise InvalidInputError(f"`device` only applies to torch modules, got a {kind}; leave it out.")
        model = model.to(how.device)
    audited = audited_model(model, options, pool.table)
    unit = unit_of_weight(pool)
    try:
        pool = in_units(as_seen_by(audited, pool, options, where="the reference"), unit)
    except (InvalidInputError, InvalidTypeError) as error:
        raise type(error)(f"The reference: {error}") from None
    check_group_names(pool.groups.counts, "reference")
    labels = np.unique(pool.labels)
    if pool.has_labels and len(labels) < 2:
        raise InvalidInputError(f"The reference holds only the label {labels[0]}; both 0 and 1 are needed.")
    options, on_model = settled(model, audited, pool, pool, options)
    with one_thread_each():
        fitted = with_known(Fitted.of(audited, options, pool, people.n_rows), people.n_rows)
    n_compared, evidence_seed = how.evidence_people, seed + _EVIDENCE_SEED
    work = BatchWork(
        fitted=fitted,
        columns=columns,
        source=people,
        store=store,
        reference_rows=rows,
        screened=lowest_rows(people.n_rows, PROXY_PEOPLE, seed) if options.evidence else np.zeros(0, dtype=np.int64),
        evidence_seed=evidence_seed,
        evidence_below=None if n_compared is None else hash_limit(people.n_rows, n_compared, evidence_seed),
        unit_of_weight=unit,
    )
    return work, table, origin, on_model


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
    frame = nw.from_native(reference, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        reference = frame.to_arrow()
    if not isinstance(reference, (str, os.PathLike)) and not hasattr(reference, "__arrow_c_stream__"):
        raise InvalidTypeError(
            "`reference` must be the path of a file, an address or a pandas, polars or pyarrow table, got "
            f"{type(reference).__name__}."
        )
    raw = open_table(reference, reading)
    return typed(raw, check_columns(columns, raw.schema.names, who), reading).table


def with_known(reference: Fitted, n_rows: int) -> Fitted:
    """The reference with its people explained beforehand, if memory allows and most are needed repeatedly."""
    pool, evidence = reference.pool, reference.evidence
    n_values = math.prod(pool.x.shape) * len(pool.groups.names)
    if n_values > _MOST_KNOWN_VALUES or n_rows < 2 * len(pool):
        return reference
    if evidence is not None and 3 * n_values <= _MOST_KNOWN_VALUES:
        halved = evidence.explainer
        known = replace(halved, explainer=halved.explainer.knowing(pool.x, pool.labels))
        evidence = replace(evidence, explainer=known)
    return replace(reference, explainer=reference.explainer.knowing(pool.x, pool.labels), evidence=evidence)


def run_batches(work: BatchWork, how: StreamOptions, is_shown: bool, pool: Workers) -> None:
    """Audit the batches that are not finished yet, and record who did.

    Raises
    ------
    EvenhandError
        The error of an engine, extended by the number of batches that are kept.
    """
    store, n, finished = work.store, len(work.source.batches), work.store.finished()
    left = [batch for batch in work.source.batches if batch.number not in finished]
    if not left:
        return

    def kept() -> str:
        return f"{len(store.finished())} of {n} batches are finished and kept in {str(store.folder)!r}."

    with shown_progress("batches", n, is_shown=is_shown, done=n - len(left)) as advance:
        todo = (work, left, lambda: advance(""))
        try:
            if isinstance(how.engine, Executor):
                who = run_on_executor(*todo, how.engine)
            elif how.engine == "dask":
                who = run_on_dask(*todo, how.scheduler, pool.n_workers)
            elif how.engine == "spark":
                who = run_on_spark(*todo, how.scheduler)
            else:
                who = run_locally(*todo, how.engine, pool)
        except EvenhandError as error:
            raise type(error)(f"{str(error).rstrip('.')}. {kept()}") from error
        except KeyboardInterrupt as interrupt:
            if store.finished():
                interrupt.add_note(f"{kept()} Continue with `resume=True` (--resume).")
            raise
    store.write_json("engine.json", {"batches": len(left), "engine": who})


def _finished(
    work: BatchWork,
    how: StreamOptions,
    is_shown: bool,
    processes: Workers,
    origin: str,
    notes: tuple[str, ...],
    hashes: Mapping[str, str],
    warnings: tuple[str, ...],
) -> AuditResult:
    """The result of finished batches, each of which is read where it is worked on."""
    store, people, pool = work.store, work.source, work.fitted.pool
    n = len(people.batches)
    crew: Crew = Threads(min(processes.n_workers, MOST_THREADS))
    is_many = min(processes.n_workers, n) > MOST_THREADS
    is_worthwhile = processes.is_started or (work.fitted.evidence is not None and people.n_rows >= _MANY_PEOPLE)
    if is_many and is_worthwhile and how.engine in ("local", "processes") and work.fitted.model.device is None:
        crew = Processes(processes, store.folder)
    else:
        processes.end()
    with (
        one_thread_each(),
        writing(store.folder, f"all {n} batches are kept: free some space and continue with `resume=True` (--resume)"),
        shown_progress("metrics", FINISHING_STEPS + 1, is_shown=is_shown) as advance,
    ):
        batches = StoredBatches(store.folder.absolute(), [batch.number for batch in people.batches], crew)
        merged = merge_batches(batches)
        if merged is None:
            raise StreamError(f"{people.name!r} has no row with both a label and a group; no one can be audited.")
        check_counted(merged.sums.weights[:, 1], work.columns.sample_weight)
        is_drawn = work.reference_rows is None or len(pool) < int(merged.sums.n_people.sum())
        result = finish(
            Totals(work.fitted, batches, merged),
            StoredPairs(work, merged.numbers),
            n_reference=len(pool) if is_drawn else None,
            notes=notes,
            hashes={**hashes, **({"reference": reference_hash(pool)} if is_drawn else {})},
            files={"data file": name_of_input(people.name)},
            stream={
                "n_batches": n,
                "batch_rows": how.batch_rows,
                "reference": origin,
                "evidence_people": None if work.evidence_below is None else how.evidence_people,
            },
            folder=store.folder,
            advance=advance,
        )
        result = replace(result, warnings=(*warnings, *result.warnings))
        sample, folder = result.pairs_sample.to_dict(), store.folder / "sample"
        for name in ("pairs", "values", "match_values"):
            with write_atomically(folder / f"{name}.parquet") as temporary:
                sample.pop(name).to_parquet(temporary, index=False)
        with write_atomically(folder / "sample.npz") as temporary:
            temporary.write_bytes(encode(sample))
        advance("sample of pairs")
        result.to_json(store.folder / "audit.json")
    return result


@dataclass(frozen=True, eq=False)
class StoredPairs:
    """The pair tables of a folder: a `PairSource`.

    Attributes
    ----------
    work, numbers
        What was audited, and its batches that have people.
    """

    work: BatchWork
    numbers: Sequence[int]

    def parts(self) -> Iterator[pd.DataFrame]:
        """The pair table of each batch."""
        crew = Threads(min(n_cores(), MOST_THREADS))
        return crew.in_order(lambda number: self.work.store.table(number, "pairs"), self.numbers)

    def of_person(self, person: int) -> pd.DataFrame:
        """The pairs of one person."""
        places = self.work.source.batches
        number = next((b.number for b in places if b.first_row <= person < b.first_row + b.n_rows), -1)
        pairs = self.work.store.table(number if number in self.numbers else self.numbers[0], "pairs")
        return pairs[pairs["person"] == person]

    def explained(self, pairs: pd.DataFrame) -> ExplainedPairs:
        """Values and attributions of some pairs, whose people are read and explained again."""
        fitted, columns, source = replace(self.work.fitted, evidence=None), self.work.columns, self.work.source
        match_values = fitted.pool.table.iloc[pairs["match"].to_numpy()].reset_index(drop=True)
        if not len(pairs):
            nothing = np.zeros((0, match_values.shape[1]), dtype=np.float32)
            none = np.zeros((0, fitted.settings.n_reasons), dtype=np.int64)
            return ExplainedPairs(match_values, match_values, nothing, nothing, none, none)
        rows = np.unique(pairs["person"].to_numpy(dtype=np.int64))
        where, names = repr(source.name), fitted.pool.groups.names
        people = columns.people_of(read_rows(source, rows, columns.needed), where)
        people = as_seen_by(fitted.model, people, fitted.settings, pool=fitted.pool, where=where)
        batch = audit_batch(fitted, people)
        person = np.searchsorted(rows, pairs["person"].to_numpy(dtype=np.int64))
        other_group = pairs["other_group"].map({name: code for code, name in enumerate(names)}).to_numpy(dtype=np.int64)
        place = pd.Series(np.arange(len(batch.pairs)), index=[batch.pairs.person, batch.pairs.other_group])
        which = place.loc[list(zip(person, other_group, strict=True))].to_numpy()
        return ExplainedPairs(
            values=people.table.iloc[person].reset_index(drop=True),
            match_values=match_values,
            attributions=batch.attributions[person],
            match_attributions=batch.scored.match_attributions[which],
            reasons=batch.reasons.people.codes[person],
            match_reasons=batch.reasons.source.pool.codes[pairs["match"].to_numpy()],
        )

    def reason_parts(self) -> Iterator[pd.DataFrame]:
        """The table of reasons of each batch."""
        return (self.work.store.table(number, "reasons") for number in self.numbers)
