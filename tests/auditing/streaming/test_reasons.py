"""Reasons of declined people, of a streamed audit."""

import pandas as pd
import pytest

from evenhand.exceptions import InvalidInputError

MAP = {"Money": ["f0", "f1"], "f2": "Years", "*": "Other"}

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning"),
]


def test_reasons_are_those_of_the_audit_in_memory(tmp_path, model, applicants, in_memory, streamed, assert_same):
    table = applicants(500)
    found = streamed(model, table, tmp_path, reason_map=MAP)
    memory = in_memory(model, table, reason_map=MAP)
    assert_same(found, memory)
    pd.testing.assert_frame_equal(
        *(r.reasons().astype(object).where(lambda t: t.notna(), None) for r in (found, memory))
    )
    assert len(list((found.folder / "reasons").glob("*.parquet"))) == found.stream["n_batches"] > 3
    first, second = found.pairs_sample, memory.pairs_sample
    assert (first.reasons == second.reasons).all()
    assert (first.match_reasons == second.match_reasons).all()
    assert (first.reasons >= 0).any()
    pd.testing.assert_frame_equal(
        found.cases(5)[["reason", "match_reason"]], memory.cases(5)[["reason", "match_reason"]], check_dtype=False
    )


def test_a_batch_in_which_no_one_is_declined_has_a_table_of_the_same_kind(tmp_path, model, applicants, streamed):
    table = applicants(300)
    decisions = (table.index >= 130).astype(int)  # in the last batch no one is declined
    found = streamed(model, table.assign(decided=decisions), tmp_path, decisions="decided")
    reasons = found.reasons()
    assert reasons["person"].tolist() == list(range(130))
    assert reasons["share_1"].dtype == float


def test_a_different_map_cannot_be_resumed_with(tmp_path, model, applicants, streamed):
    table = applicants(300)
    streamed(model, table, tmp_path, reason_map=MAP)
    streamed(model, table, tmp_path, reason_map={**MAP, "z0": "Other"}, resume=True)  # the same in other words
    with pytest.raises(InvalidInputError, match="cannot be resumed because reason_map was"):
        streamed(model, table, tmp_path, reason_map={"*": "All"}, resume=True)
