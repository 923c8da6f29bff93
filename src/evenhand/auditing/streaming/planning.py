"""What is determined before the first batch of a streamed audit: the reference, drawn or given, and fitted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from evenhand.auditing.assemble import PROXY_PEOPLE
from evenhand.auditing.direction import check_direction
from evenhand.auditing.options import AuditOptions, StreamOptions
from evenhand.auditing.people import People, check_finances_apart, people_of, weight_unit, with_cut_offs
from evenhand.auditing.reference import AuditReference, audited_model, settled_options
from evenhand.auditing.scales import notes_on_scales
from evenhand.auditing.streaming.batch_audit import BatchContext
from evenhand.auditing.streaming.opening import OpenedPeople
from evenhand.auditing.streaming.reference_table import reference_table
from evenhand.auditing.streaming.sampling import hash_limit, lowest_rows, read_rows, sample_reference
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.fingerprints import fingerprint_table
from evenhand.inputs.group_names import check_group_names
from evenhand.inputs.validation import check_columns
from evenhand.system.threads import one_thread_each

__all__ = ["StreamPlan", "plan_stream", "with_known"]

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
    model: Any,  # noqa: ANN401 - any model that `evenhand.audit` takes
    opened: OpenedPeople,
    reference: Any,  # noqa: ANN401 - as `source`
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
    rows = columns.rows_of(table, "The reference")
    assert rows.table is not None
    assert rows.groups is not None
    audited = audited_model(_on_device(model, how.device), _of_probabilities(options), rows.table)
    unit = weight_unit(rows.sample_weight, columns.sample_weight or "")
    pool = people_of(rows, audited, rows.groups.names, "The reference", unit)
    pool = _checked_pool(with_cut_offs(pool, options, rows.by, "the reference"))
    check_finances_apart(pool, financial)
    if options.favorable is None:
        check_direction(audited, pool)
    options, on_threshold = settled_options(model, audited, options, financial)
    notes = (*notes_on_scales(model, audited, pool.table), *on_threshold)
    with one_thread_each():
        fitted = with_known(AuditReference.of(audited, options, pool, people.n_rows), people.n_rows)
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
    reference: Any,  # noqa: ANN401
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


def with_known(reference: AuditReference, n_rows: int) -> AuditReference:
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


def _checked_pool(pool: People) -> People:
    check_group_names(pool.groups.counts, "reference")
    labels = np.unique(pool.labels)
    if len(labels) < 2:
        raise InvalidInputError(f"The reference holds only the label {labels[0]}; both 0 and 1 are needed.")
    return pool


def _of_probabilities(options: AuditOptions) -> AuditOptions:
    """Reject an outcome that is a value."""
    if options.unit is None:
        return options
    raise InvalidInputError(
        f"An outcome in {options.unit!r} is audited in memory: use `audit` or `audit_given`, or drop `unit` (--unit) "
        "out."
    )


def _on_device(model: Any, device: str | None) -> Any:  # noqa: ANN401
    """Move the model to the device."""
    if device is None:
        return model
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise InvalidInputError(f"`device` is {device!r}, but this machine has no GPU that torch can use.")
    if not isinstance(model, torch.nn.Module):
        raise InvalidInputError(f"`device` only applies to torch modules, got a {type(model).__name__}; leave it out.")
    return model.to(device)
