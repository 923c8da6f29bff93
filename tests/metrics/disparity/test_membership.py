import numpy as np
import pytest

from evenhand.exceptions import InvalidInputError
from evenhand.metrics.disparity import (
    approval_disparity,
)

OK = ([0, 1, 0, 1], [0, 0, 1, 1])


@pytest.mark.parametrize("frequency", [[1, 2], [1, 2, 0], [1.0, 2.0, 3.0]])
def test_frequencies_are_whole_numbers_of_people(frequency):
    with pytest.raises(InvalidInputError, match="`frequency` must be a whole number of at least 1 for each of 3 rows"):
        approval_disparity([1, 0, 1], [0, 1, 1], frequency=frequency)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: approval_disparity([0, 1], [0, 1, 1]), "`group` has 3 values for 2 people"),
        (
            lambda: approval_disparity([0, 1], ["a", "b"]),
            "`group` must hold integer codes from 0, got <U1 values; convert",
        ),
        (lambda: approval_disparity([0, 1], [-1, 1]), "got int64 values from -1; convert"),
        (lambda: approval_disparity([0, 1], np.zeros((2, 1, 1))), r"got shape \(2, 1, 1\)"),
        (lambda: approval_disparity(*OK, names=["a"]), "`names` has 1 names for 2 group codes"),
        (lambda: approval_disparity(*OK, reference="x"), r"one of the groups \['0', '1'\], got 'x'"),
        (lambda: approval_disparity(*OK, names=["a", "b", "c"], reference="c"), "'c' has no one in it"),
    ],
)
def test_groups_that_cannot_be_used_are_named(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()
