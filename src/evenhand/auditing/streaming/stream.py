"""Audits of any number of people, in batches, on one machine or several."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import narwhals as nw
import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from evenhand.attribution.gradients import Method
from evenhand.auditing.assemble import PROXY_PEOPLE
from evenhand.auditing.people import People, people_of
from evenhand.auditing.reference import AuditReference
from evenhand.auditing.settings import AuditSettings
from evenhand.auditing.streaming.batches import BatchContext
from evenhand.auditing.streaming.engines import BatchWork, run_on_dask, run_on_threads
from evenhand.auditing.streaming.finishing import finish
from evenhand.auditing.streaming.manifest import check_resumable, model_probe
from evenhand.auditing.streaming.pair_choice import save_sample
from evenhand.auditing.streaming.sampling import hash_limit, lowest_rows, read_rows, sample_reference
from evenhand.auditing.streaming.source import Source, fingerprint, open_source
from evenhand.auditing.streaming.store import Store, writing
from evenhand.exceptions import EvenhandError, InvalidInputError, InvalidTypeError
from evenhand.inputs.roles import Columns
from evenhand.inputs.validation import check_columns, check_fraction
from evenhand.models.dispatch import AttributionChoice, as_audited_model
from evenhand.models.protocol import AuditedModel, Output
from evenhand.system.memory import return_freed_memory
from evenhand.system.progress import progress as shown_progress
from evenhand.system.threads import n_cores, one_blas_thread, one_torch_thread

if TYPE_CHECKING:
    from evenhand.auditing.streaming.result import StreamedAudit

__all__ = ["audit_stream"]

Engine = Literal["local", "dask"]

# Each draw has a seed of its own, so that being drawn for one thing says nothing about another.
_REFERENCE_SEED, _EVIDENCE_SEED = 1_000_003, 2_000_003
_FINISHING_STEPS = 6
_MOST_KNOWN_VALUES = 20_000_000  # attributions of the reference kept in memory: 160 MB in single precision


def audit_stream(
    source: str | os.PathLike[str],
    model: Any,  # noqa: ANN401 - any model that `evenhand.audit` takes
    *,
    label: str,
    group: str | Sequence[str],
    financial_features: Sequence[str],
    out: str | os.PathLike[str],
    reference: str | os.PathLike[str] | Any = None,  # noqa: ANN401 - a path or any table
    reference_people: int = 200_000,
    batch_rows: int = 25_000,
    resume: bool = False,
    engine: Engine = "local",
    scheduler: str | None = None,
    workers: int | None = None,
    device: str | None = None,
    progress: bool = False,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    keep_group: bool = False,
    positive_label: str | None = None,
    drop_missing: bool = False,
    by: Sequence[str] = (),
    evidence: bool = True,
    evidence_people: int | None = None,
    decision_threshold: float = 0.5,
    consistency_threshold: float = 0.3,
    max_distance: float | None = None,
    random_state: int = 0,
    n_steps: int = 8,
    method: Method = "segments",
    attribution: AttributionChoice = "auto",
    output: Output | None = None,
    n_permutations: int = 32,
) -> StreamedAudit:
    """Audit the people of files of any size, in memory that does not grow with their number.

    Standardization, neighbors and baselines are fitted once, on the reference. The people are then audited batch by
    batch; each finished batch leaves its pairs and its sums in `out`, so that an audit that was stopped at any moment
    can go on. The figures are those of `evenhand.audit` for the same people and the same reference.

    Parameters
    ----------
    source
        A Parquet file, a folder of Parquet files, or a CSV file (plain or gzip). The order of the rows numbers people.
    model
        As in `evenhand.audit`.
    label, group
        Columns of the outcome, and of the protected attribute; several are intersected.
    financial_features
        Columns on which people are comparable.
    out
        Folder to write to.
    reference
        The people to match in and to take baselines from: a table or a file with the same columns, used whole. By
        default people of the source, drawn at random.
    reference_people
        How many are drawn; all, where the source has no more. Of every label and group at least 500 are.
    batch_rows
        Most people in a batch: more need more memory.
    resume
        Go on with what is in `out`. The source, the model and the settings must be the same.
    engine
        ``"local"``, or ``"dask"`` for several processes or machines.
    scheduler
        Address of a Dask scheduler; None for processes on this machine.
    workers
        Batches audited at the same time on this machine; by default one for each core.
    device
        Where a torch model computes, such as ``"cuda"``; None for where it is.
    progress
        Whether to show how far the audit is.
    features, drop, keep_group
        Columns the model takes: by default what the model names, or all but the label, those of `drop` and, without
        `keep_group`, those of `group`.
    positive_label
        Value of `label` that is the favorable outcome; needed where it is not 0 or 1.
    drop_missing
        Leave out, and count, rows without a label or a group; otherwise they are refused.
    by
        Columns within whose values the excess is wanted.
    evidence
        Whether to compare with placebo pairs and to screen for proxies.
    evidence_people
        Compare so many people only, drawn at random; None for everyone. Comparing takes about two thirds of the time,
        and a million people give the excess to the third decimal and beyond. The result says how many were compared.
    decision_threshold, consistency_threshold, max_distance, random_state, n_steps, method
        As in `evenhand.audit`.
    attribution, output, n_permutations
        As in `evenhand.audit`.

    Returns
    -------
    StreamedAudit

    Raises
    ------
    InvalidInputError, InvalidTypeError
        If the input cannot be audited, or `resume` finds another audit in `out`.
    DataFileError
        If a file cannot be read, or its columns differ from those of the first.
    StreamError
        If files cannot be written, or the cluster is lost; what was finished is kept.

    Examples
    --------
    >>> import tempfile
    >>> import evenhand as eh, torch
    >>> data = eh.load_dataset("synthetic", n=600)
    >>> folder = Path(tempfile.mkdtemp())
    >>> data.X.assign(y=data.y, sex=data.group).to_parquet(folder / "people.parquet")
    >>> _ = torch.manual_seed(0)
    >>> found = audit_stream(folder / "people.parquet", torch.nn.Linear(data.X.shape[1], 1), label="y", group="sex",
    ...                      financial_features=data.financial_features, out=folder / "audit", batch_rows=250)
    >>> found.provenance.n_people, len(list(found.pairs_path.glob("*.parquet")))
    (600, 3)
    """
    _check_numbers(batch_rows, workers, evidence_people, engine)
    if scheduler is not None and engine != "dask":
        raise InvalidInputError(
            f'A scheduler, {scheduler!r}, is only used by Dask: pass `engine="dask"` (--engine dask) with it.'
        )
    store = Store(Path(out))
    store.check_writable()
    n_workers = n_cores() if workers is None else workers
    content = fingerprint(Path(source))
    with writing(store.folder, "nothing was audited yet"):
        people = open_source(Path(source), batch_rows, store.folder / f"source-{content[:16]}.parquet")
    columns = Columns.among(
        list(people.kinds),
        label=label,
        group=group,
        features=_features(model, features),
        drop=drop,
        keep_group=keep_group,
        by=by,
        positive_label=positive_label,
        drop_missing=drop_missing,
    )
    financial = check_columns(financial_features, columns.features, "financial_features")
    chosen_rows, pool_table, how = _reference_rows(people, columns, reference, reference_people, random_state)
    where = "The reference"
    rows = columns.rows_of(pool_table, where)
    assert rows.table is not None
    assert rows.groups is not None
    audited = as_audited_model(
        _on_device(model, device),
        attribution=attribution,
        output=output,
        n_permutations=n_permutations,
        random_state=random_state,
        table=rows.table,
    )
    settings = AuditSettings(
        financial_features=tuple(financial),
        decision_threshold=check_fraction(decision_threshold, "decision_threshold"),
        consistency_threshold=check_fraction(consistency_threshold, "consistency_threshold"),
        max_distance=max_distance,
        n_steps=n_steps,
        method=method,
        random_state=random_state,
        attribution=audited.attribution,
        n_permutations=n_permutations,
    )
    pool = _checked_pool(people_of(rows, audited, rows.groups.names, where))
    with one_torch_thread(), one_blas_thread():
        fitted = _with_known(AuditReference.of(audited, settings, pool, evidence=evidence), people.n_rows)
    limit = (
        None if evidence_people is None else hash_limit(people.n_rows, evidence_people, random_state + _EVIDENCE_SEED)
    )
    choices = {
        **asdict(settings),
        "label": label,
        "group": list(columns.group),
        "features": list(columns.features),
        "by": list(columns.by),
        "positive_label": positive_label,
        "drop_missing": drop_missing,
        "batch_rows": batch_rows,
        "reference_people": None if reference is not None else reference_people,
        "evidence": evidence,
        "evidence_people": evidence_people,
    }
    choices["financial_features"] = list(settings.financial_features)
    reference_hash = _table_fingerprint(pool_table)
    check_resumable(
        store,
        resume=resume,
        source=content,
        reference=reference_hash,
        model=model_probe(audited, fitted),
        settings=choices,
    )
    context = BatchContext(
        reference=fitted,
        columns=columns,
        reference_rows=chosen_rows,
        screened=lowest_rows(people.n_rows, PROXY_PEOPLE, random_state) if evidence else np.zeros(0, dtype=np.int64),
        evidence_seed=random_state + _EVIDENCE_SEED,
        evidence_below=limit,
    )
    _run(context, people, store, engine, scheduler, n_workers, progress)
    return_freed_memory()
    stream = {
        "n_batches": len(people.batches),
        "batch_rows": batch_rows,
        "reference": how,
        "evidence_people": evidence_people if limit is not None else None,
    }
    n = len(people.batches)
    with (
        one_blas_thread(),
        writing(store.folder, f"all {n} batches are kept: free space and go on with `resume=True` (--resume)"),
        shown_progress("figures", _FINISHING_STEPS, is_shown=progress) as advance,
    ):
        result = finish(
            store,
            people,
            columns,
            fitted,
            asdict(settings),
            stream,
            is_separate=reference is not None,
            fingerprint=content,
            hashes={"reference": reference_hash},
            n_threads=n_workers,
            advance=advance,
        )
        save_sample(store, result.sample)
        result.to_json(store.folder / "audit.json")
    return result


def _run(
    context: BatchContext,
    source: Source,
    store: Store,
    engine: Engine,
    scheduler: str | None,
    n_workers: int,
    is_shown: bool,
) -> None:
    """Audit the batches that are not finished yet."""
    left = [batch for batch in source.batches if not store.is_finished(batch.number)]
    if not left:
        return
    n = len(source.batches)
    work = BatchWork(context, source, store)
    with shown_progress("batches", n, is_shown=is_shown, done=n - len(left)) as advance:
        try:
            if engine == "dask":
                run_on_dask(work, left, lambda: advance(""), scheduler, n_workers)
            else:
                run_on_threads(work, left, lambda: advance(""), n_workers)
        except EvenhandError as error:
            n_done = sum(store.is_finished(batch.number) for batch in source.batches)
            kept = f"{n_done} of {n} batches are finished and kept in {str(store.folder)!r}."
            raise type(error)(f"{str(error).rstrip('.')}. {kept}") from error


def _features(model: Any, features: Sequence[str] | None) -> Sequence[str] | None:  # noqa: ANN401
    """Columns that the model names, where it does and the user does not."""
    if features is not None:
        return features
    encoder = getattr(model, "encoder_", None) or (model.encoder if isinstance(model, AuditedModel) else None)
    if encoder is not None:
        return list(encoder.names)
    named = getattr(model, "feature_names_in_", None)
    return None if named is None else [str(name) for name in named]


def _reference_rows(
    source: Source,
    columns: Columns,
    reference: Any,  # noqa: ANN401
    n_people: int,
    random_state: int,
) -> tuple[NDArray[np.int64] | None, pa.Table, str]:
    """Rows of the source that the reference is, if it is of the source; its table; and where it comes from."""
    if reference is None:
        sampled = sample_reference(source, columns, n_people, random_state + _REFERENCE_SEED)
        return sampled.rows, read_rows(source, sampled.rows, columns.needed), sampled.how
    table = _reference_table(reference)
    check_columns(columns.needed, table.column_names, "The reference must have the columns of the source, which")
    return None, table.select(columns.needed), f"{len(table):,} people given as the reference"


def _reference_table(reference: Any) -> pa.Table:  # noqa: ANN401

    from evenhand.inputs.tables import read_table

    if isinstance(reference, (str, os.PathLike)):
        return pa.Table.from_pandas(read_table(Path(reference)), preserve_index=False)
    if isinstance(reference, pa.Table):
        return reference

    try:
        return nw.from_native(reference, eager_only=True).to_arrow()
    except TypeError:
        raise InvalidTypeError(
            f"`reference` must be the path of a file or a pandas, polars or pyarrow table, got "
            f"{type(reference).__name__}."
        ) from None


def _with_known(reference: AuditReference, n_rows: int) -> AuditReference:
    """The reference with its people explained beforehand, where there is room and most are asked for repeatedly."""
    pool = reference.pool
    n_values = pool.x.numel() * len(pool.groups.names)
    if n_values > _MOST_KNOWN_VALUES or n_rows < 2 * len(pool):
        return reference
    return replace(reference, explainer=reference.explainer.knowing(pool.x, pool.labels))


def _checked_pool(pool: People) -> People:
    labels = np.unique(pool.labels)
    if len(labels) < 2:
        raise InvalidInputError(f"The reference holds only the label {labels[0]}; both 0 and 1 are needed.")
    return pool


def _on_device(model: Any, device: str | None) -> Any:  # noqa: ANN401
    """The model where it is to compute."""
    if device is None:
        return model
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise InvalidInputError(f"`device` is {device!r}, but this machine has no GPU that torch can use.")
    if not isinstance(model, torch.nn.Module):
        raise InvalidInputError(f"`device` is for torch modules, got a {type(model).__name__}; leave it out.")
    return model.to(device)


def _table_fingerprint(table: pa.Table) -> str:
    from evenhand.inputs.fingerprints import fingerprint_table

    return fingerprint_table(table.to_pandas())


def _check_numbers(batch_rows: int, workers: int | None, evidence_people: int | None, engine: str) -> None:
    for name, value in (("batch_rows", batch_rows), ("workers", workers), ("evidence_people", evidence_people)):
        if value is not None and value < 1:
            raise InvalidInputError(f"`{name}` must be at least 1, got {value}.")
    if engine not in ("local", "dask"):
        raise InvalidInputError(f"`engine` must be 'local' or 'dask', got {engine!r}.")
