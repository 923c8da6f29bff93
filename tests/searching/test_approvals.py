from __future__ import annotations

import numpy as np
import pytest

from evenhand.searching.confirming import approval_warnings, least_approved

AROUND = np.array([-0.01, 0.0, 0.01])


def metrics(everyone, first, second):
    """Approvals of candidates over three folds: of all, and of two groups."""
    given = {"positive_rate": everyone, "approval_rate[a]": first, "approval_rate[b]": second}
    return {name: np.asarray(values)[:, None] + AROUND * (name != "positive_rate") for name, values in given.items()}


def test_fewer_approvals_of_the_group_with_the_fewest_are_told():
    found = metrics([0.7, 0.7, 0.7], [0.8, 0.85, 0.75], [0.6, 0.55, 0.65])
    assert least_approved(found, 0) == "b"
    (told,) = approval_warnings(found, 1, 0, test_share=0.5)
    assert told == (
        "Candidate 1 approves fewer people of b, the group with the fewest approvals: 55.0% instead of 60.0% "
        "(−5.0 points, 95% interval −5.0 to −5.0)."
    )
    assert approval_warnings(found, 2, 0, test_share=0.5) == ()
    assert approval_warnings(found, 0, 0, test_share=0.5) == ()


def test_a_difference_within_noise_says_so():
    found = metrics([0.7, 0.7], [0.8, 0.8], [0.6, 0.59])
    found["approval_rate[b]"][1] = [0.7, 0.5, 0.57]
    (told,) = approval_warnings(found, 1, 0, test_share=0.5)
    assert told.endswith("; this is within noise).")


@pytest.mark.parametrize(
    ("rate", "start", "words"),
    [
        (1.0, 0.7, "approves everyone (100.0% of the people; the unconstrained one 70.0%)"),
        (0.96, 0.7, "approves nearly everyone (96.0%"),
        (0.0, 0.2, "approves no one (0.0%"),
        (0.02, 0.2, "approves nearly no one (2.0%"),
        (0.95, 0.94, ""),
        (0.995, 0.995, ""),
        (0.6, 0.7, ""),
    ],
)
def test_a_model_that_approves_nearly_everyone_or_no_one_is_named(rate, start, words):
    found = metrics([start, rate], [0.5, 0.5], [0.5, 0.5])
    told = approval_warnings(found, 1, 0, test_share=0.5)
    if words:
        assert words in told[0]
        assert told[0].endswith("its gaps between groups are small for that reason alone.")
    else:
        assert told == ()


def test_a_candidate_without_metrics_has_no_warning():
    found = metrics([0.7, np.nan], [0.5, np.nan], [0.5, np.nan])
    assert approval_warnings(found, 1, 0, test_share=0.5) == ()
