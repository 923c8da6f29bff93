import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.exceptions import InvalidInputError
from evenhand.metrics.cec import assign_regimes, regime_shares

cases = st.lists(st.tuples(st.booleans(), st.booleans(), st.floats(0, 1)), min_size=1, max_size=40)


@given(cases, st.floats(0, 1))
def test_shares_sum_to_one_and_c_plus_d_is_the_flip_rate(rows, threshold):
    own, other, delta = map(np.array, zip(*rows, strict=True))
    shares = regime_shares(assign_regimes(own, other, delta, threshold))
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["C"] + shares["D"] == pytest.approx(np.mean(own != other))
    assert shares["B"] + shares["D"] == pytest.approx(np.mean(delta > threshold))


@given(cases, st.floats(0, 1), st.floats(0, 1))
def test_a_higher_threshold_only_moves_b_to_a_and_d_to_c(rows, first, second):
    own, other, delta = map(np.array, zip(*rows, strict=True))
    low, high = sorted((first, second))
    moves = set(zip(assign_regimes(own, other, delta, low), assign_regimes(own, other, delta, high), strict=True))
    assert moves <= {("A", "A"), ("B", "B"), ("C", "C"), ("D", "D"), ("B", "A"), ("D", "C")}


def test_a_score_at_the_threshold_counts_as_the_same_reasoning():
    assert assign_regimes([1], [1], [0.3], 0.3)[0] == "A"


def test_no_pairs_have_no_shares_rather_than_zero():
    assert all(np.isnan(share) for share in regime_shares([]).values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1], [1, 0], [0.1]), "same length"),
        (([1], [1], [0.1], 1.5), "`consistency_threshold` must be in"),
        (([1], [1], [1.5]), "`delta` must hold CEC scores"),
        (([1], [1], [np.nan]), "`delta` must hold CEC scores"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        assign_regimes(*arguments)
