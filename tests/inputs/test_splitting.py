import numpy as np
import pytest

from evenhand.exceptions import InvalidInputError
from evenhand.inputs.splitting import sample_people, split_people, stratified_folds, units_of


@pytest.fixture
def cells(rng):
    return rng.integers(0, 2, 500), rng.choice(3, 500, p=[0.6, 0.3, 0.1])


def test_every_cell_is_split_in_the_same_proportion(cells):
    y, group = cells
    first, second = split_people(y, group, 0.7, random_state=0)
    assert sorted([*first, *second]) == list(range(500))
    for label in (0, 1):
        for code in range(3):
            cell = (y == label) & (group == code)
            assert abs(cell[first].sum() - 0.7 * cell.sum()) <= 0.5


def test_a_sample_keeps_the_shares_of_the_cells_and_someone_of_each(cells):
    y, group = cells
    y, group = np.append(y, 1), np.append(group, 3)  # a cell of one
    drawn = sample_people(y, group, 100, random_state=0)
    assert len(drawn) == 100
    assert (np.diff(drawn) > 0).all()
    assert drawn[-1] == 500
    for label in (0, 1):
        for code in range(3):
            cell = (y == label) & (group == code)
            assert abs(cell[drawn].sum() - 0.2 * cell.sum()) <= 1
    assert sample_people(y, group, 1000, random_state=0).tolist() == list(range(501))


def test_folds_partition_the_people_and_spread_every_cell(cells):
    y, group = cells
    folds = stratified_folds(y, group, 5, random_state=1)
    assert sorted(np.concatenate([test for _, test in folds])) == list(range(500))
    sizes = [len(test) for _, test in folds]
    assert max(sizes) - min(sizes) <= 1
    for train, test in folds:
        assert not set(train) & set(test)
        for label in (0, 1):
            for code in range(3):
                cell = (y == label) & (group == code)
                assert abs(cell[test].sum() - cell.sum() / 5) < 1


def test_the_seed_decides(cells):
    y, group = cells
    assert np.array_equal(split_people(y, group, 0.5, 3)[0], split_people(y, group, 0.5, 3)[0])
    assert not np.array_equal(split_people(y, group, 0.5, 3)[0], split_people(y, group, 0.5, 4)[0])


def test_other_shares_and_folds_are_refused(cells):
    y, group = cells
    with pytest.raises(InvalidInputError, match="`share` must be between 0 and 1"):
        split_people(y, group, 1.0, 0)
    for n_folds in (1, 400):
        with pytest.raises(InvalidInputError, match="`n_folds` must be at least 2 and at most"):
            stratified_folds(y, group, n_folds, 0)


def test_people_who_are_all_alone_are_split_as_without_units(cells):
    y, group = cells
    alone = np.arange(500)[::-1]
    for with_units, without in zip(split_people(y, group, 0.7, 0, alone), split_people(y, group, 0.7, 0), strict=True):
        assert np.array_equal(with_units, without)
    for ours, plain in zip(stratified_folds(y, group, 4, 0, alone), stratified_folds(y, group, 4, 0), strict=True):
        assert np.array_equal(ours[1], plain[1])


def test_rows_of_a_unit_stay_together(cells, rng):
    y, group = cells
    units = units_of(rng.integers(0, 200, 500).astype(np.uint64))  # those of cluster 0 are alone
    first, second = split_people(y, group, 0.6, 0, units)
    assert sorted([*first, *second]) == list(range(500))
    assert not set(units[first]) & set(units[second])
    assert 0.5 < len(first) / 500 < 0.7
    folds = stratified_folds(y, group, 4, 0, units)
    assert sorted(np.concatenate([test for _, test in folds])) == list(range(500))
    for train, test in folds:
        assert not set(units[train]) & set(units[test])
