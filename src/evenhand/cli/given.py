"""Columns of files that take the place of a model, read for `evenhand audit`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import pandas as pd

from evenhand.cli.options import AuditPlan
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.given_columns import GivenColumns, attribution_columns, rows_by_id, rows_in_order
from evenhand.inputs.read_options import ReadOptions
from evenhand.inputs.roles import Rows
from evenhand.inputs.tables import open_table, typed
from evenhand.inputs.validation import check_columns

__all__ = ["ReadColumns", "read_given"]

_SHOWN = 8


@dataclass(frozen=True, eq=False)
class ReadColumns:
    """What was read from a file about everyone in it.

    Attributes
    ----------
    columns
        The role of each column.
    frame
        The columns of the applicants' file, one row for each of its rows.
    second, ids, base_values
        Attributions by feature from a second file, and its columns of ids and base values; None if absent.
    where
        The second file, for messages.
    """

    columns: GivenColumns
    frame: pd.DataFrame
    second: pd.DataFrame | None = None
    ids: str | None = None
    base_values: str | None = None
    where: str = ""

    def of(self, people: Rows) -> dict[str, Any]:
        """The columns of some people, as `audit_given` takes them."""
        columns, own = self.columns, self.frame.iloc[people.kept].reset_index(drop=True)
        base = columns.base_values
        found = {
            "scores": None if columns.scores is None else own[columns.scores],
            "base_values": own[base] if isinstance(base, str) else base,
            "reason_codes": own[list(columns.reason_codes)] if columns.reason_codes else None,
        }
        if self.second is not None:
            beside = self._of_second(people)
            if self.base_values is not None:
                found["base_values"] = beside.pop(self.base_values)
            return {**found, "attributions": beside}
        named = columns.attributions
        shap = None if named is None else own[list(named.values())].set_axis(list(named), axis=1)
        return {**found, "attributions": shap}

    def _of_second(self, people: Rows) -> pd.DataFrame:
        assert self.second is not None
        if self.ids is None:
            return rows_in_order(self.second, len(self.frame), people.kept, self.where)
        assert people.ids is not None
        return rows_by_id(self.second, self.ids, people.ids, self.where).drop(columns=self.ids)


def read_given(
    path: Any,  # noqa: ANN401 - what `open_table` takes
    plan: AuditPlan,
    applicants: Callable[[AuditPlan, list[str] | None], tuple[Rows, tuple[str, ...]]],
) -> tuple[Rows, ReadColumns, tuple[str, ...]]:
    """Read the people of a file, the columns that replace a model, and notes on the reading.

    If there are attributions, the model's inputs are the columns that have them.

    Parameters
    ----------
    path
        File of the applicants.
    plan
        The options.
    applicants
        Function that reads the people of the file, with the named features or with all columns that have no other role.
    """
    reading = ReadOptions(**{option.name: getattr(plan, option.name) for option in fields(ReadOptions)})
    raw = open_table(path, reading)
    names = list(raw.schema.names)
    beside = None if plan.attributions_file is None else _SecondFile.of(plan, reading)
    base = None if beside is None else beside.base_values
    columns = GivenColumns.among(
        names,
        scores=plan.scores,
        base_values=plan.base_values if base is None else None,
        reason_codes=plan.reason_codes,
        attributions=plan.attributions if beside is None else (),
    )
    features = columns.attributions if beside is None else beside.features
    inputs = None if features is None else _inputs(list(features), names, plan)
    people, notes = applicants(replace(plan, drop=(*plan.drop, *columns.needed)), inputs)
    frame = typed(raw, columns.needed or names[:1], reading).table.to_pandas()
    read = ReadColumns(columns, frame)
    if beside is not None:
        read = ReadColumns(columns, frame, beside.frame, beside.ids, base, beside.where)
    return people, read, (*notes, *_left_out(inputs, names, plan, columns))


@dataclass(frozen=True, eq=False)
class _SecondFile:
    """Attributions by feature from a second file, its columns of ids and base values, and its name."""

    frame: pd.DataFrame
    features: tuple[str, ...]
    ids: str | None
    base_values: str | None
    where: str

    @classmethod
    def of(cls, plan: AuditPlan, reading: ReadOptions) -> _SecondFile:
        assert plan.attributions_file is not None
        raw = open_table(plan.attributions_file, reading)
        names = list(raw.schema.names)
        ids = None
        if plan.ids is not None:
            (ids,) = check_columns([plan.ids], names, "`ids` (--id), in the attributions file,")
        base = plan.base_values if plan.base_values in names else None
        beside = [name for name in (ids, base) if name is not None]
        named = attribution_columns(plan.attributions or ("*",), [name for name in names if name not in beside])
        table = typed(raw, [*named.values(), *beside], reading).table.to_pandas()
        return cls(table.set_axis([*named, *beside], axis=1), tuple(named), ids, base, raw.where)


def _inputs(features: Sequence[str], names: Sequence[str], plan: AuditPlan) -> list[str]:
    """The columns that have attributions, in the order of the file."""
    absent = [feature for feature in features if feature not in names]
    if absent:
        raise InvalidInputError(
            f"There are attributions for {absent[:_SHOWN]}, which are not columns of the applicants' file; map a "
            "feature to its column with --attributions feature=column."
        )
    lacking = [name for name in plan.financial_features if name not in features]
    if lacking:
        raise InvalidInputError(
            f"Attributions are missing for the financial features {lacking}; pass them, with 0 for a feature that the "
            "model does not use."
        )
    return [name for name in names if name in features]


def _left_out(
    inputs: Sequence[str] | None, names: Sequence[str], plan: AuditPlan, columns: GivenColumns
) -> tuple[str, ...]:
    """A note on the columns that are not inputs because they have no attributions."""
    if inputs is None:
        return ()
    roles = {plan.label, plan.ids, plan.clusters, plan.decisions, *plan.group, *plan.by, *plan.drop, *columns.needed}
    rest = [name for name in names if name not in roles and name not in inputs]
    if not rest:
        return ()
    return (
        f"Not used as inputs, because they have no attributions: {', '.join(map(repr, rest[:_SHOWN]))}{_more(rest)}.",
    )


def _more(names: Sequence[str]) -> str:
    return f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
