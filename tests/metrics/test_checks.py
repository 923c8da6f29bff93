import numpy as np
import pytest

from evenhand.exceptions import InvalidInputError
from evenhand.metrics.disparity import approval_disparity, approval_disparity_by_cutoff, error_rates

OK = ([0, 1, 0, 1], [0, 0, 1, 1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: approval_disparity([0, 2], [0, 1]), r"`decision` must be 0 or 1 .* got \['0', '2'\]"),
        (lambda: approval_disparity(["yes", "no"], [0, 1]), "`decision` must be 0 or 1"),
        (lambda: approval_disparity([[0, 1]], [0, 1]), r"`decision` must be one value per person, got shape \(1, 2\)"),
        (lambda: approval_disparity([], []), r"got shape \(0,\)"),
        (lambda: approval_disparity(*OK, confidence=95), "`confidence` must be a number between 0 and 1, got 95"),
        (lambda: approval_disparity(*OK, four_fifths_threshold=0), "`four_fifths_threshold` must be"),
        (lambda: approval_disparity_by_cutoff([0.1, np.nan], [0, 1]), "`score` must be finite, got 1 missing"),
        (lambda: approval_disparity_by_cutoff([[0.1]], [0]), "`score` must be one number per person"),
        (lambda: error_rates([0, 1], [0, 1, 1], [0.1, 0.2], [0, 1]), "got lengths {'y': 2, 'decision': 3, 'score': 2}"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()
