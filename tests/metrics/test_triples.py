"""Triples by ranges of the reference are those that a search through all of them finds."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from evenhand.metrics.triples import range_limits, smallest_row, triples_by_range


@pytest.mark.parametrize("share_outside", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("n", "n_reference"), [(1, 5), (400, 12), (3_000, 400)])
def test_triples_by_range(n, n_reference, share_outside):
    rng = np.random.default_rng(n)
    person, other, own = np.array([rng.choice(n_reference, 3, replace=False) for _ in range(n)], dtype=np.int32).T
    person = np.where(rng.random(n) < share_outside, -1, person)
    part = SimpleNamespace(person_row=person, other=other, own=own)
    limits = range_limits(np.bincount(smallest_row(part), minlength=n_reference), 64)
    found = triples_by_range(part, limits)
    for (low, high), places in zip(pairwise(limits), found, strict=True):
        lower = [np.minimum(a, b) for a, b in ((other, own), (person, other), (person, own))]
        expected = np.flatnonzero(np.any([(low <= row) & (row < high) for row in lower], axis=0))
        assert np.array_equal(places, expected)
