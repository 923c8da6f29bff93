"""The time that files carry."""

from datetime import UTC, datetime

import pytest

from evenhand.exceptions import InvalidInputError
from evenhand.system.files import time_of_writing


def test_the_time_is_now_or_the_one_that_is_given(monkeypatch):
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert abs((datetime.now(UTC) - time_of_writing()).total_seconds()) < 5
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert time_of_writing() == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("given", ["soon", "1e400", "9" * 30])
def test_what_is_no_time_is_refused(given, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", given)
    with pytest.raises(InvalidInputError, match="SOURCE_DATE_EPOCH must be a whole number of seconds"):
        time_of_writing()
