"""People of several groups with decisions, labels and scores, and one group beside a reference."""

import numpy as np
import pytest

from evenhand.metrics.disparity import approval_disparity


def from_counts(*counts):
    """Decisions and codes from (approved, people) of each group."""
    decision = np.concatenate([np.repeat([1, 0], [approved, people - approved]) for approved, people in counts])
    return decision, np.repeat(np.arange(len(counts)), [people for _, people in counts])


def beside_reference(approved, people, reference_approved, reference_people, **options):
    """The row of a group of which so many are approved, beside a reference of which so many are."""
    decision, group = from_counts((reference_approved, reference_people), (approved, people))
    return approval_disparity(decision, group, names=["ref", "g"], reference="ref", **options).groups[1]


def drawn(seed, n=400, n_groups=3):
    """Labels, decisions, scores and codes of random people."""
    rng = np.random.default_rng(seed)
    y, group = rng.integers(0, 2, n), rng.integers(0, n_groups, n)
    score = np.round(np.clip(0.4 * y + rng.normal(0.3, 0.25, n), 0, 1), 2)  # with ties
    return y, (score >= 0.5).astype(np.int64), score, group


def value_and_ends(estimate):
    return [estimate.value, estimate.low, estimate.high]


@pytest.fixture(scope="session")
def people_of():
    return from_counts


@pytest.fixture(scope="session")
def compared():
    return beside_reference


@pytest.fixture(scope="session")
def draw():
    return drawn


@pytest.fixture(scope="session")
def numbers():
    return value_and_ends
