import numpy as np
import pytest
from scipy import stats

from evenhand.arrays import person_hash
from evenhand.exceptions import InvalidInputError


def test_person_hashes_depend_on_the_key_and_the_seed_alone_and_look_random():
    at_once = person_hash(np.arange(100_000))
    np.testing.assert_array_equal(person_hash(np.arange(50, 60)), at_once[50:60])
    assert (person_hash(np.arange(100_000), 1) != at_once).all()
    assert len(np.unique(at_once)) == 100_000
    assert stats.kstest(at_once / 2.0**64, "uniform").pvalue > 0.01
    for shift in range(0, 64, 8):
        counts = np.bincount((at_once >> np.uint64(shift)).astype(np.int64) & 255, minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-4
    assert person_hash(np.array([-3]), -1).shape == (1,)
    with pytest.raises(InvalidInputError, match="must be one integer per person"):
        person_hash([0.5])
