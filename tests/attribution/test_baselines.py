import numpy as np
import pandas as pd
import pytest

from evenhand.attribution import label_group_baselines
from evenhand.exceptions import InvalidInputError


def test_baselines_are_the_means_of_each_cell(rng):
    X, y, group = rng.normal(size=(200, 4)), rng.integers(0, 2, 200), rng.integers(0, 3, 200)
    means = pd.DataFrame(X).groupby([y, group]).mean().to_numpy().reshape(2, 3, 4)
    np.testing.assert_allclose(label_group_baselines(X, y, group), means)


def test_an_empty_cell_is_nan_never_zero():
    baselines = label_group_baselines([[1.0], [2.0]], [1, 1], [0, 1])
    assert np.isnan(baselines[0]).all()
    assert not np.isnan(baselines[1]).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1.0]], [0, 1], [0]), "same number of rows"),
        (([[1.0], [2.0]], [0, 2], [0, 1]), "`y` must be 0 or 1"),
        (([[1.0], [2.0]], [0, 1], [-1, 1]), "codes 0..G-1"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        label_group_baselines(*arguments)
