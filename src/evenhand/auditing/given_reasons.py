"""Reasons given by a lender, which replace those derived from attributions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from evenhand.auditing.batch import BatchFindings
from evenhand.auditing.compared import compared_people
from evenhand.auditing.options import ReasonMapLike
from evenhand.auditing.reason_codes import PeopleReasons, reason_table, reasons_of_codes
from evenhand.auditing.reference import AuditReference
from evenhand.auditing.result import AuditResult
from evenhand.auditing.sample import PairsInMemory
from evenhand.inputs.reason_maps import given_reasons

__all__ = ["with_given_reasons"]

_SOURCE = "the given codes, first reason first"


def with_given_reasons(
    result: AuditResult,
    reference: AuditReference,
    found: BatchFindings,
    codes: pd.DataFrame,
    reason_map: ReasonMapLike | None,
) -> AuditResult:
    """Add the frequency of given reasons, and what pairs have in common, to the result of an audit without a model.

    Parameters
    ----------
    result, reference, found
        From the audit, whose people are matched with each other.
    codes
        Reasons of everyone, one column per rank.
    reason_map
        The meaning of the codes; None if the codes are the reasons.

    Raises
    ------
    InvalidInputError
        If a code is not in the map.
    """
    names, places = given_reasons(codes, reason_map)
    people = found.people
    triples = None
    if reference.evidence is not None:
        rows, distance = np.arange(len(people)), reference.settings.max_distance
        triples = compared_people(reference.evidence, people, reference.matcher.points, rows, None, distance)
    reasons = reasons_of_codes(
        places,
        names,
        people.groups.codes,
        people.groups.names,
        found.decision,
        pairs=found.pairs,
        triples=triples,
        reference=result.outcome.approvals.reference or None,
        source=_SOURCE,
    )
    is_declined = found.decision == 0
    declined = PeopleReasons(np.where(is_declined[:, None], places, -1), is_declined)
    groups = np.asarray(people.groups.names, dtype=object)[people.groups.codes]
    assert isinstance(result.source, PairsInMemory)
    source = replace(
        result.source,
        reason_table=reason_table(declined, names, np.arange(len(people)), groups, people.ids),
        reason_codes=(declined.codes, declined.codes),
    )
    return replace(result, source=source, reason_codes=reasons)
