import numpy as np
import pandas as pd
import pytest

from evenhand.attribution.baselines import label_group_baselines
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


def cells_of_codes(rng):
    """Codes of few and of many categories, unknown ones among them, in cells of different size."""
    X = np.column_stack([rng.integers(0, 3, 60), rng.integers(-1, 9, 60)]).astype(float)
    X[rng.random(X.shape) < 0.1] = np.nan
    y, group = rng.integers(0, 2, 60), rng.choice(3, 60, p=[0.7, 0.2, 0.1])
    return X, y, group


def mode(values):
    """The most common known code, by pandas, which sorts those that are equally common."""
    known = pd.Series(values)[lambda codes: codes >= 0].mode()
    return known.iloc[0] if len(known) else np.nan


@pytest.mark.parametrize("seed", range(5))
def test_the_baseline_of_a_category_is_the_most_common_of_the_cell(seed):
    X, y, group = cells_of_codes(np.random.default_rng(seed))
    numbers = np.random.default_rng(seed).normal(size=(60, 1))
    found = label_group_baselines(np.hstack([X, numbers]), y, group, categorical=[0, 1])
    plain = label_group_baselines(numbers, y, group)
    for label in (0, 1):
        for code in range(group.max() + 1):
            inside = X[(y == label) & (group == code)]
            np.testing.assert_array_equal(found[label, code, :2], [mode(inside[:, 0]), mode(inside[:, 1])])
    np.testing.assert_allclose(found[:, :, 2:], plain, rtol=1e-12)


def test_unknown_categories_are_no_categories():
    X = [[np.nan], [-1.0], [-1.0], [2.0], [np.nan], [-1.0]]
    y, group = [0, 0, 0, 0, 1, 1], [0] * 6
    np.testing.assert_array_equal(label_group_baselines(X, y, group, categorical=[0]), [[[2.0]], [[np.nan]]])


def test_categories_that_are_no_columns_are_refused():
    with pytest.raises(InvalidInputError, match=r"`categorical` must name columns 0..0 of `X`, got \[1\]"):
        label_group_baselines([[1.0]], [1], [0], categorical=[0, 1])
