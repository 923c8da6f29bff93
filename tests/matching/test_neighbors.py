import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evenhand.exceptions import InvalidInputError
from evenhand.matching import neighbors as cells
from evenhand.matching import neighbors as screening
from evenhand.matching.neighbors import TIE_TOLERANCE, NeighborIndex

ENGINES = ("tree", "product")


def brute_force(points, labels, groups, queries, asked_labels, asked_groups, k, own=None):
    """The definition, one person at a time."""
    distance, row = np.full((len(queries), k), np.inf), np.full((len(queries), k), -1)
    for i, query in enumerate(queries):
        at_point = {}
        for r in np.flatnonzero((labels == asked_labels[i]) & (groups == asked_groups[i])):
            if own is None or r != own[i]:
                at_point.setdefault(tuple(points[r] + 0.0), []).append(int(r))
        ranked, first = [], None
        for d, rows in sorted((float(np.sqrt(((np.array(p) - query) ** 2).sum())), v) for p, v in at_point.items()):
            first = d if first is None or d > first * (1 + TIE_TOLERANCE) else first
            ranked.append((first, rows))
        people = [(d, r) for d, rows in sorted(ranked) for r in rows][:k]
        for j, (d, r) in enumerate(people):
            distance[i, j], row[i, j] = d, r
    return distance, row


def lattice(seed, n, dimensions, n_levels):
    """People on a grid of unequal steps: many twins and many tied distances."""
    rng = np.random.default_rng(seed)
    points = rng.integers(0, n_levels, (n, dimensions)) * 0.1 * rng.normal(size=dimensions)
    return points, rng.integers(0, 2, n), rng.integers(0, 3, n)


def assert_same(got, expected):
    np.testing.assert_array_equal(got[1], expected[1])
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-9)


@pytest.mark.parametrize("engine", ENGINES)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 90),
    dimensions=st.integers(1, 4),
    n_levels=st.integers(1, 9),
    k=st.sampled_from([1, 2, 5]),
)
def test_neighbors_of_others_equal_brute_force_under_ties(engine, seed, n, dimensions, n_levels, k):
    points, labels, groups = lattice(seed, n, dimensions, n_levels)
    queries, asked_labels, asked_groups = points[::2] + 0.05, labels[::2], (groups[::2] + 1) % 3
    got = NeighborIndex.build(points, labels, groups, engine=engine).query(queries, asked_labels, asked_groups, k)
    assert_same(got, brute_force(points, labels, groups, queries, asked_labels, asked_groups, k))


@pytest.mark.parametrize("engine", ENGINES)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 90), n_levels=st.integers(1, 9), k=st.sampled_from([1, 3]))
def test_neighbors_in_the_own_group_leave_the_person_out(engine, seed, n, n_levels, k):
    points, labels, groups = lattice(seed, n, 2, n_levels)
    index = NeighborIndex.build(points, labels, groups, engine=engine)
    got = index.query(points, labels, groups, k, exclude_self_rows=np.arange(n))
    assert_same(got, brute_force(points, labels, groups, points, labels, groups, k, own=np.arange(n)))
    assert not (got[1] == np.arange(n)[:, None]).any()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("k", [1, 4])
def test_members_query_equals_the_general_one(engine, k):
    points, labels, groups = lattice(1, 400, 3, 8)
    index = NeighborIndex.build(points, labels, groups, engine=engine)
    for target in range(3):
        target_of_all = np.full(400, target)
        expected = index.query(points, labels, target_of_all, k, exclude_self_rows=np.arange(400))
        got = index.query_members(target, k)
        assert_same(got, expected)
        others_only = index.query_members(target, k, of={0, 1, 2} - {target})
        assert (others_only[1][groups == target] == -1).all()
        np.testing.assert_array_equal(others_only[1][groups != target], expected[1][groups != target])


@pytest.mark.parametrize("k", [1, 16])
@pytest.mark.parametrize(("dimensions", "n_levels"), [(2, 90), (6, 6), (5, 200), (14, 2)])
def test_both_engines_give_the_same_people_and_distances_to_the_last_bit(k, dimensions, n_levels):
    points, labels, groups = lattice(2, 5_000, dimensions, n_levels)
    by_tree, by_product = (
        NeighborIndex.build(points, labels, groups, engine=engine).query(points, labels, (groups + 1) % 3, k)
        for engine in ENGINES
    )
    np.testing.assert_array_equal(by_tree[1], by_product[1])
    np.testing.assert_array_equal(by_tree[0], by_product[0])


def test_large_offsets_do_not_lose_ties_in_the_product():
    points = 1e4 + np.arange(2_000.0)[:, None] * np.ones(15)
    queries = points[1:-1:7] + 0.0
    zeros = np.zeros(len(queries), dtype=int)
    own = np.arange(1, 1_999, 7)
    index = NeighborIndex.build(points, np.zeros(2_000), np.zeros(2_000), engine="product")
    _, row = index.query(queries, zeros, zeros, 2, exclude_self_rows=own)
    np.testing.assert_array_equal(row, np.column_stack([own - 1, own + 1]))


@pytest.mark.parametrize("engine", ENGINES)
def test_heavy_ties_go_to_the_lowest_row(engine):
    # Everyone at a corner of a 10-cube; from its center all 1,024 corners are equally far.
    corners = (np.arange(1024)[:, None] >> np.arange(10)) & 1
    points = np.random.default_rng(3).permutation(np.repeat(corners, 4, axis=0)).astype(float)
    zeros = np.zeros(len(points), dtype=int)
    index = NeighborIndex.build(points, zeros, zeros, engine=engine)
    distance, row = index.query(np.full((3, 10), 0.5), zeros[:3], zeros[:3], 2)
    twin = np.flatnonzero((points[1:] == points[0]).all(axis=1))[0] + 1
    assert row.tolist() == [[0, twin]] * 3  # people at the first point come before people at the next
    np.testing.assert_allclose(distance, np.sqrt(10) / 2)


@pytest.mark.parametrize("engine", ENGINES)
def test_rounding_does_not_break_a_tie(engine):
    points = np.array([[0.1 + 0.2], [-0.3], [0.3]])  # three distances that are 0.3 up to rounding
    index = NeighborIndex.build(points[::-1], [0, 0, 0], [0, 0, 0], engine=engine)
    assert index.query([[0.0]], [0], [0], 3)[1].tolist() == [[0, 1, 2]]


def test_short_and_absent_cells_are_padded():
    index = NeighborIndex.build([[0.0], [1.0]], [0, 0], [0, 1])
    distance, row = index.query([[0.0], [0.0]], [0, 1], [0, 0], 3)
    assert row.tolist() == [[0, -1, -1], [-1, -1, -1]]
    assert distance[0].tolist() == [0.0, np.inf, np.inf]


def test_minus_zero_is_zero():
    index = NeighborIndex.build([[0.0], [-0.0], [0.0]], [0, 0, 0], [0, 0, 0])
    assert index.query([[-0.0]], [0], [0], 3)[1].tolist() == [[0, 1, 2]]


def test_equal_hashes_of_different_rows_are_told_apart(monkeypatch):
    points, labels, groups = lattice(4, 200, 3, 4)
    expected = NeighborIndex.build(points, labels, groups).query(points, labels, (groups + 1) % 3, 3)
    monkeypatch.setattr(cells, "_row_hash", lambda rows: np.zeros(len(rows), dtype=np.uint64))
    assert_same(NeighborIndex.build(points, labels, groups).query(points, labels, (groups + 1) % 3, 3), expected)


def test_answers_do_not_depend_on_blocks_or_cores(monkeypatch):
    points, labels, groups = lattice(5, 3_000, 4, 5)
    index = {engine: NeighborIndex.build(points, labels, groups, engine=engine) for engine in ENGINES}
    expected = {e: i.query(points, labels, groups, 5, np.arange(3_000)) for e, i in index.items()}
    monkeypatch.setattr(cells, "_TREE_BLOCK", 50)
    monkeypatch.setitem(screening._BLOCK, "cpu", 7)
    monkeypatch.setitem(screening._MOST_CANDIDATES, "cpu", 64)
    monkeypatch.setattr(cells, "n_cores", lambda: 1)
    for engine in ENGINES:
        assert_same(index[engine].query(points, labels, groups, 5, np.arange(3_000)), expected[engine])


@pytest.mark.parametrize(("dimensions", "n", "is_tree"), [(12, 2_000, True), (13, 2_000, False), (2, 50, False)])
def test_the_engine_follows_dimension_and_size(dimensions, n, is_tree):
    points = np.random.default_rng(6).normal(size=(n, dimensions))
    for constant in (0, 3):  # coordinates that do not vary do not count
        extended = np.hstack([points, np.zeros((n, constant))])
        cell = NeighborIndex.build(extended, np.zeros(n), np.zeros(n)).cells[0, 0]
        assert (cell.tree is not None) == is_tree


def test_a_one_hot_block_counts_as_two_dimensions():
    rng = np.random.default_rng(7)
    one_hot = [np.eye(12)[rng.integers(0, 12, 2_000)] for _ in range(5)]
    numbers = rng.normal(size=(2_000, 4))
    zeros = np.zeros(2_000)
    assert NeighborIndex.build(np.hstack([*one_hot[:4], numbers]), zeros, zeros).cells[0, 0].tree is not None
    assert NeighborIndex.build(np.hstack([*one_hot, numbers]), zeros, zeros).cells[0, 0].tree is None


def test_an_empty_reference_and_an_empty_query_have_no_neighbors():
    empty = NeighborIndex.build(np.empty((0, 2)), [], [])
    assert empty.query([[0.0, 0.0]], [0], [0])[1].tolist() == [[-1]]
    index = NeighborIndex.build([[0.0, 0.0]], [0], [0])
    assert index.query(np.empty((0, 2)), [], [], 2)[1].shape == (0, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"points": [[0.0, 1.0]]}, "`points` has 2 coordinates, but the reference has 1"),
        ({"points": [0.0]}, r"`points` must be of shape \(n, n_coordinates\); got shape \(1,\)"),
        ({"points": [[np.nan]]}, "`points` has 1 rows with a missing or infinite coordinate"),
        ({"labels": [0, 1]}, r"one code for each of the 1 points; got shapes \(2,\) and \(1,\)"),
        ({"k": 0}, "`k` must be at least 1; got 0"),
        ({"exclude_self_rows": [0, 1]}, r"one row for each of the 1 points; got shape \(2,\)"),
        ({"exclude_self_rows": [2]}, "must lie between -1 and 1; got 2 to 2"),
        ({"exclude_self_rows": [1]}, "different coordinates from the query point, 1 times"),
    ],
)
def test_bad_queries_are_refused(arguments, message):
    index = NeighborIndex.build([[0.0], [1.0]], [0, 0], [0, 0])
    with pytest.raises(InvalidInputError, match=message):
        index.query(**{"points": [[0.0]], "labels": [0], "groups": [0], **arguments})


def test_an_unknown_engine_is_refused():
    with pytest.raises(InvalidInputError, match="`engine` must be 'auto', 'tree' or 'product'; got 'ball'"):
        NeighborIndex.build([[0.0]], [0], [0], engine="ball")
    with pytest.raises(InvalidInputError, match="`k` must be at least 1; got 0"):
        NeighborIndex.build([[0.0]], [0], [0]).query_members(0, 0)


@pytest.mark.parametrize("k", [1, 5])
def test_products_on_a_device_find_what_products_here_find(k):
    """The device's own products and minima; torch's CPU stands in for a GPU, whose own test needs one."""
    rng = np.random.default_rng(3)
    points = np.round(rng.normal(size=(3000, 15)), 1)
    labels, groups = rng.integers(0, 2, 3000), rng.integers(0, 2, 3000)
    here = NeighborIndex.build(points, labels, groups, engine="product")
    there = NeighborIndex.build(points, labels, groups, engine="product", device="cpu")
    for found, expected in zip(there.query_members(1, k), here.query_members(1, k), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dimensions", [6, 20])
def test_a_gpu_finds_the_same_neighbors_to_the_last_bit(dimensions):
    rng = np.random.default_rng(4)
    points = np.round(rng.normal(size=(20_000, dimensions)), 1)
    labels, groups = rng.integers(0, 2, 20_000), rng.integers(0, 2, 20_000)
    here = NeighborIndex.build(points, labels, groups)
    there = NeighborIndex.build(points, labels, groups, device="cuda")
    for found, expected in zip(there.query_members(1, 16), here.query_members(1, 16), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("dimensions", "device", "has_tree"), [(6, "cpu", False), (9, None, True), (13, None, False)])
def test_a_device_takes_over_from_the_tree(dimensions, device, has_tree):
    points = np.random.default_rng(5).normal(size=(2000, dimensions))
    index = NeighborIndex.build(points, np.zeros(2000, dtype=int), np.arange(2000) % 2, device=device)
    assert all((cell.tree is not None) == has_tree for cell in index.cells.values())


@pytest.mark.parametrize("k", [1, 3])
def test_a_chain_of_ties_breaks_where_it_leaves_the_first(k):
    """Each distance ties with the one before, and the fourth no longer with the first."""
    steps = np.arange(40) * 0.4 * TIE_TOLERANCE
    points = np.column_stack([1 + steps, np.zeros(40)])[::-1]
    for device in (None, "cpu"):
        index = NeighborIndex.build(points, np.zeros(40), np.zeros(40), device=device)
        distance, row = index.query([[0.0, 0.0]], [0], [0], k=40)
        first, expected = None, []
        for place in range(40):
            here = points[39 - place, 0]
            first = here if first is None or here > first * (1 + TIE_TOLERANCE) else first
            expected.append((first, 39 - place))
        expected = sorted(expected)[:k]
        assert distance[0, :k].tolist() == [near for near, _ in expected]
        assert row[0, :k].tolist() == [who for _, who in expected]
