"""Placebo pairs: who is compared with whom, at what distance, and who cannot be."""

import numpy as np
import pytest
import torch

from evenhand.attribution.baselines import label_group_baselines
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.identity import Identity
from evenhand.matching.placebos import (
    N_NEAR,
    NO_ONE_IN_OTHER_GROUP,
    NO_ONE_IN_OWN_GROUP,
    NO_PLACEBO_AT_DISTANCE,
    PlaceboReference,
    placebo_pairs,
)
from evenhand.metrics.cec import cec_scores
from evenhand.metrics.excess import excess


def _people(n=300, n_groups=2, n_features=3, minority=0.3, seed=0):
    rng = np.random.default_rng(seed)
    group = rng.choice(n_groups, size=n, p=[1 - minority] + [minority / (n_groups - 1)] * (n_groups - 1))
    return rng.standard_normal((n, n_features)), rng.integers(0, 2, n), group


@pytest.mark.parametrize("n_groups", [2, 4])
@pytest.mark.parametrize("has_reference", [False, True])
def test_a_triple_is_of_one_label_two_groups_and_two_equal_distances(n_groups, has_reference):
    points, label, group = _people(n_groups=n_groups)
    reference = _people(n_groups=n_groups, seed=1) if has_reference else None
    found = placebo_pairs(points, label, group, reference)
    ref_points, ref_label, ref_group = reference or (points, label, group)
    assert len(found) > 300
    assert (ref_label[found.other] == label[found.person]).all()
    assert (ref_label[found.own] == label[found.person]).all()
    assert (ref_group[found.other] == found.other_group).all()
    assert (found.other_group != group[found.person]).all()
    assert (ref_group[found.own] == group[found.person]).all()
    if not has_reference:
        assert (found.own != found.person).all()
    for rows, distance in ((found.other, found.other_distance), (found.own, found.own_distance)):
        np.testing.assert_allclose(np.linalg.norm(points[found.person] - ref_points[rows], axis=1), distance)
    longer = np.maximum(found.other_distance, found.own_distance)
    assert (np.abs(found.other_distance - found.own_distance) <= 0.05 * longer + 1e-5).all()


def test_triples_are_ordered_and_at_most_as_many_as_asked_and_no_one_serves_twice_for_a_person():
    points, label, group = _people(n_groups=3, n=600)
    found = placebo_pairs(points, label, group, n_pairs=3)
    key = found.person * 3 + found.other_group
    assert (np.diff(key) >= 0).all()
    assert np.bincount(key).max() == 3
    for rows in (found.other, found.own):
        assert len(np.unique(key * 1000 + rows)) == len(found)
    within = np.diff(key) == 0
    assert (np.diff(found.other_distance)[within] > -0.06).all()


def test_pairs_are_mutually_nearest_in_distance_among_the_candidates():
    points, label, group = _people(n=60, minority=0.5)
    label[:] = 1
    found = placebo_pairs(points, label, group, n_neighbors=16, n_pairs=60, tolerance=0.05)
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    for i in range(60):
        others = np.flatnonzero(group != group[i])
        own = np.setdiff1d(np.flatnonzero(group == group[i]), [i])
        others, own = (rows[np.argsort(distance[i, rows])[:16]] for rows in (others, own))
        gap = np.abs(distance[i, others][:, None] - distance[i, own][None])
        expected = {
            (int(others[a]), int(own[b]))
            for a, b in zip(*np.nonzero(gap == np.minimum(gap.min(1)[:, None], gap.min(0)[None])), strict=True)
            if gap[a, b] <= 0.05 * max(distance[i, others[a]], distance[i, own[b]])
        }
        mine = found.person == i
        assert set(zip(found.other[mine].tolist(), found.own[mine].tolist(), strict=True)) == expected


def test_a_large_group_has_placebos_as_far_away_as_a_small_groups_nearest():
    points, label, group = _people(n=4000, minority=0.02)
    found = placebo_pairs(points, label, group)
    assert found.common_support > 0.99
    assert found.without_support[NO_PLACEBO_AT_DISTANCE] == found.n_asked - (found.reason == 0).sum()


def test_the_two_distances_do_not_differ_on_average():
    points, label, group = _people(n=3000, minority=0.1)
    found = placebo_pairs(points, label, group)
    ratio = np.log(found.other_distance / found.own_distance)
    assert abs(ratio.mean()) < 4 * ratio.std() / np.sqrt(len(ratio)) + 5e-4


def test_among_people_at_one_point_the_choice_is_spread():
    points = np.zeros((2000, 2))
    group = np.arange(2000) % 2
    found = placebo_pairs(points, np.ones(2000, dtype=int), group)
    assert found.common_support == 1
    assert (found.other_distance == 0).all()
    assert np.bincount(found.other).max() < 40
    assert len(np.unique(found.other)) > 1800


def test_the_seed_decides():
    points, label, group = _people()
    points = np.round(points)
    first, again, other = (placebo_pairs(points, label, group, random_state=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.nodes, again.nodes)
    assert first.nodes.shape != other.nodes.shape or (first.nodes != other.nodes).any()


def test_everyone_without_a_triple_has_a_reason():
    points = np.array([[0.0], [1.0], [1.0], [0.0], [1.0], [0.0], [9.0], [0.0]])
    label = np.array([0, 0, 0, 1, 1, 2, 2, 3])
    group = np.array([0, 0, 1, 0, 0, 0, 1, 1])
    found = placebo_pairs(points, label, group)
    # Label 0: persons 0 and 1 have someone of each kind, at unlike distances for 1; person 2 is alone in group 1.
    # Label 1: no one in group 1. Label 2: each is alone in their group. Label 3: no one in group 0.
    texts = [found.reasons[found.reason[i, 1 - group[i]]] for i in range(8)]
    assert texts == [
        "",
        NO_PLACEBO_AT_DISTANCE,
        NO_ONE_IN_OWN_GROUP,
        NO_ONE_IN_OTHER_GROUP,
        NO_ONE_IN_OTHER_GROUP,
        NO_ONE_IN_OWN_GROUP,
        NO_ONE_IN_OWN_GROUP,
        NO_ONE_IN_OTHER_GROUP,
    ]
    assert found.common_support == 1 / 8
    assert found.n_asked == 8
    assert sum(found.without_support.values()) == 7
    assert (found.reason[np.arange(8), group] == -1).all()


def test_no_one_at_all_gives_no_triples():
    found = placebo_pairs(np.zeros((0, 2)), [], [])
    assert len(found) == 0
    assert np.isnan(found.common_support)
    assert found.nodes.shape == (0, 3)


def test_max_distance_keeps_the_nearer_triples():
    points, label, group = _people()
    everyone, near = placebo_pairs(points, label, group), placebo_pairs(points, label, group, max_distance=0.5)
    assert 0 < len(near) < len(everyone)
    assert max(near.other_distance.max(), near.own_distance.max()) <= 0.5 + 1e-5


def test_codes_of_a_separate_reference_are_not_those_of_the_audited_people():
    points, label, group = _people(n=100)
    found = placebo_pairs(points, label, group, _people(n=200, seed=1))
    assert found.nodes[:, 0].max() < 100
    assert found.nodes[:, 1:].min() >= 100
    same = placebo_pairs(points, label, group)
    np.testing.assert_array_equal(same.nodes, np.column_stack([same.person, same.other, same.own]))


def test_person_mean_averages_over_a_persons_triples_with_a_group():
    points, label, group = _people(n_groups=3)
    found = placebo_pairs(points, label, group)
    values = np.random.default_rng(0).random(len(found))
    mean = found.person_mean(values)
    i, h = int(found.person[7]), int(found.other_group[7])
    assert mean[i, h] == pytest.approx(values[(found.person == i) & (found.other_group == h)].mean())
    np.testing.assert_array_equal(np.isnan(mean), found.reason != 0)


def test_a_linear_model_of_financial_features_has_no_excess_at_all():
    points, label, group = _people(n=500, minority=0.1)
    weights = torch.tensor([2.0, -1.0, 0.3], dtype=torch.float64)
    baseline = label_group_baselines(points, label, group)
    found = placebo_pairs(points, label, group)
    own_cell = baseline[label[found.person], group[found.person]]

    def score(rows):
        offset, match_offset = (torch.from_numpy(points[r] - own_cell) for r in (found.person, rows))
        cec = cec_scores(offset * weights, match_offset * weights).numpy()
        return cec, cec  # every feature is financial: the financial gap is the score itself

    (other, other_gap), (own, own_gap) = score(found.other), score(found.own)
    np.testing.assert_array_equal(other, other_gap)
    estimate = excess(other, own, found.nodes, control=other_gap - own_gap)
    assert (estimate.value, estimate.p_value) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [0, 1]}, "`points`, `labels` and `groups` must have one row per person"),
        ({"groups": [0, -1, 1]}, "codes 0..G-1, got -1"),
        ({"reference": (np.zeros((2, 5)), [0, 1], [0, 1])}, "has 1 columns, but the reference has 5"),
        ({"reference": (np.zeros((2, 1)), [0], [0, 1])}, r"must have one row per person, got shapes \(2, 1\)"),
        ({"n_neighbors": 0}, "must be at least 1, got 0 and 4"),
        ({"n_pairs": 0}, "must be at least 1, got 16 and 0"),
        ({"tolerance": 1.0}, "`tolerance` must be at least 0 and below 1"),
        ({"max_distance": -1.0}, "`max_distance` must be 0 or more"),
    ],
)
def test_refusals(change, message):
    arguments = {"points": [[0.0], [1.0], [2.0]], "labels": [0, 0, 0], "groups": [0, 1, 1]} | change
    with pytest.raises(InvalidInputError, match=message):
        placebo_pairs(**arguments)


def test_person_mean_refuses_another_number_of_values():
    found = placebo_pairs(*_people(n=50))
    with pytest.raises(InvalidInputError, match="one value per triple"):
        found.person_mean([1.0])


def test_triples_of_a_person_do_not_depend_on_who_else_is_compared():
    points, label, group = _people(n=300, n_groups=3)
    reference = PlaceboReference.of(points[:200], label[:200], group[:200])
    row = np.where(np.arange(300) < 200, np.arange(300), -1)
    whole = reference.compare(points, label, group, row)
    first = 0
    for part in np.array_split(np.arange(300), 7):
        found = reference.compare(points[part], label[part], group[part], row[part])
        inside = (whole.person >= part[0]) & (whole.person <= part[-1])
        np.testing.assert_array_equal(found.person + first, whole.person[inside])
        np.testing.assert_array_equal(found.other, whole.other[inside])
        np.testing.assert_array_equal(found.own, whole.own[inside])
        first += len(part)
    inside = row[whole.person] >= 0
    assert (whole.own[inside] != row[whole.person][inside]).all()
    assert (whole.nodes[inside, 0] == row[whole.person][inside] + 300).all()


def test_people_with_the_same_finances_are_not_all_compared_with_the_same_few():
    rng = np.random.default_rng(0)
    n = 400
    pool = np.zeros((n, 2)), np.ones(n, dtype=int), np.arange(n) % 2
    people = np.zeros((n, 2)), np.ones(n, dtype=int), rng.integers(0, 2, n)
    found = placebo_pairs(*people, pool)
    for used in (found.other, found.own):
        assert len(np.unique(used)) > 0.8 * n
        assert np.bincount(used).max() < 25


def test_whom_a_person_is_compared_with_does_not_depend_on_who_else_is():
    points, label, group = _people(n=200)
    points = points.round(0)
    reference = PlaceboReference.of(*_people(n=300, seed=1))
    everyone = Identity.by_number(200)
    whole = reference.compare(points, label, group, identity=everyone)
    part = reference.compare(points[50:], label[50:], group[50:], identity=everyone.rows(np.arange(50, 200)))
    kept = whole.person >= 50
    np.testing.assert_array_equal(whole.person[kept] - 50, part.person)
    np.testing.assert_array_equal(whole.other[kept], part.other)
    np.testing.assert_array_equal(whole.own[kept], part.own)


def _repeated(n=120, seed=0):
    """Everyone twice, with rounded finances."""
    points, label, group = _people(n=n, seed=seed)
    points = points.round(0)
    return tuple(np.concatenate([column, column]) for column in (points, label, group))


def test_rows_of_the_same_person_are_never_compared_with_each_other():
    points, label, group = _repeated()
    person = np.tile(np.arange(120), 2).astype(np.uint64)
    who = Identity(person, Identity.by_number(240).content, is_given=True)
    alone = placebo_pairs(points, label, group)
    assert (alone.own % 120 == alone.person % 120).any()
    reference = PlaceboReference.of(points, label, group, identity=who)
    found = reference.compare(points, label, group, np.arange(240), identity=who)
    assert len(found) > 400
    assert not (found.own % 120 == found.person % 120).any()
    assert not (found.other % 120 == found.person % 120).any()
    assert set(np.unique(found.nodes)) <= set(range(120))
    outside = reference.compare(points[:5], label[:5], group[:5], identity=who.rows(np.arange(5)))
    assert outside.person_unit.tolist() == [0, 1, 2, 3, 4]
    assert not (outside.own % 120 == outside.person).any()


def test_a_household_larger_than_the_number_of_neighbors_is_left_out_whole():
    points, label, group = _people(n=300)
    household = np.where(np.arange(300) < 60, 0, np.arange(300)).astype(np.uint64)
    points[:60] = 0.0
    who = Identity(household, Identity.by_number(300).content, is_given=True)
    reference = PlaceboReference.of(points, label, group, identity=who)
    found = reference.compare(points, label, group, np.arange(300), identity=who)
    inside = found.person < 60
    assert inside.any()
    assert found.other[inside].min() >= 60
    assert found.own[inside].min() >= 60


def test_triples_do_not_depend_on_the_order_of_rows():
    points, label, group = _people(n=300)
    points = points.round(0)  # ties
    content = np.random.default_rng(1).normal(size=(300, 2))
    order = np.random.default_rng(2).permutation(300)

    def found(rows):
        who = Identity.of(content[rows], label[rows], group[rows], None)
        reference = PlaceboReference.of(points[rows], label[rows], group[rows], 0, identity=who)
        pairs = reference.compare(points[rows], label[rows], group[rows], np.arange(300), identity=who, n_pairs=6)
        columns = (rows[pairs.person], pairs.other_group, pairs.rank, rows[pairs.other], rows[pairs.own])
        return sorted(zip(*(column.tolist() for column in columns), strict=True))

    assert found(np.arange(300)) == found(order)


def test_near_triples_are_those_of_few_neighbors_and_come_first():
    points, label, group = _people(n=2000)
    near = placebo_pairs(points, label, group)
    wide = placebo_pairs(points, label, group, n_neighbors=64, n_pairs=12)
    assert near.rank.max() == N_NEAR
    assert wide.rank.max() > N_NEAR
    first = wide.where(wide.rank <= N_NEAR)
    triples = [set(zip(p.person.tolist(), p.other.tolist(), p.own.tolist(), strict=True)) for p in (near, first)]
    assert triples[0] == triples[1]
    assert np.bincount(wide.person).max() <= 12
    ordered = np.lexsort((wide.rank, wide.other_group, wide.person))
    assert (ordered == np.arange(len(wide))).all()


def _found_there(device, n=6000):
    """Triples of people in and outside the reference, ties and small groups among them, by the tree and on a device."""
    rng = np.random.default_rng(8)
    points = np.round(rng.normal(size=(n, 4)) * 2) / 2
    label, group = rng.integers(0, 2, n), rng.choice(3, n, p=[0.7, 0.2, 0.1])
    asked = np.round(rng.normal(size=(500, 4)) * 2) / 2, rng.integers(0, 2, 500), rng.integers(0, 3, 500)
    for reach in ({}, {"n_neighbors": 40, "n_pairs": 12, "max_distance": 1.0}):
        found = [
            PlaceboReference.of(points, label, group, 1, device=d).compare(*asked, **reach) for d in (None, device)
        ]
        yield found
        rows = np.arange(500)
        yield [
            PlaceboReference.of(points, label, group, 1, device=d).compare(
                points[rows], label[rows], group[rows], rows, **reach
            )
            for d in (None, device)
        ]


@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda",
            marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")],
        ),
    ],
)
def test_a_device_finds_the_same_triples_to_the_last_bit(device):
    for here, there in _found_there(device):
        assert len(here) > 500
        for name in ("person", "other", "own", "other_distance", "own_distance", "other_group", "rank", "reason"):
            np.testing.assert_array_equal(getattr(there, name), getattr(here, name), err_msg=name)
