"""Histograms that can be added."""

import json

import numpy as np
import pytest

from evenhand.auditing.sections.pairs import CEC_EDGES, DISTANCE_EDGES, Histogram
from evenhand.system.files import json_ready


def test_every_scored_pair_is_counted_once(result):
    found, pairs = result.to_dict()["distributions"], result.pairs
    by_group = pairs["group"].value_counts()
    for name in ("cec", "distance"):
        assert {g: sum(c) for g, c in found[name]["counts"].items()} == by_group.to_dict()
    assert sum(n for *_, n in found["plane"]["cells"]) == len(pairs)
    expected = pairs.groupby(["group", "regime"]).size()
    assert all(found["regimes"][g][r] == n for (g, r), n in expected.items())
    assert sum(map(sum, found["score"]["counts"].values())) == pairs["person"].nunique()


def test_counts_are_numpys(result):
    found, pairs = result.to_dict()["distributions"], result.pairs
    for name in ("cec", "placebo_cec", "distance"):
        for group, rows in pairs.groupby("group"):
            values = np.minimum(rows[name].dropna(), found[name]["edges"][-1])
            assert found[name]["counts"][group] == np.histogram(values, found[name]["edges"])[0].tolist()
    edges = found["plane"]["difference_edges"], found["plane"]["cec_edges"]
    plane = np.histogram2d(pairs["match_score"] - pairs["score"], pairs["cec"], edges)[0]
    assert {(i, j): n for i, j, n in found["plane"]["cells"]} == {
        (i, j): plane[i, j] for i, j in np.argwhere(plane).tolist()
    }


@pytest.mark.parametrize("weight", [None, np.random.default_rng(1).uniform(size=500)])
def test_parts_add_up_to_the_whole_and_unknown_values_are_left_out(weight):
    rng = np.random.default_rng(0)
    values, group = rng.uniform(size=500), rng.integers(3, size=500)
    values[:20] = np.nan
    whole = Histogram.of(values, group, 3, CEC_EDGES, weight)
    parts = [
        Histogram.of(values[part], group[part], 3, CEC_EDGES, None if weight is None else weight[part])
        for part in (slice(0, 211), slice(211, None))
    ]
    np.testing.assert_allclose((parts[0] + parts[1]).counts, whole.counts, rtol=1e-12)
    assert whole.counts.sum() == pytest.approx(480 if weight is None else weight[20:].sum())


def test_distances_beyond_the_last_bin_count_in_it():
    far = Histogram.of(np.full(7, 1e9), np.zeros(7, dtype=np.int64), 2, DISTANCE_EDGES, None)
    assert far.counts[0, -1] == 7 == far.counts.sum()


def test_they_are_plain_and_small(result):
    text = json.dumps(json_ready(result.to_dict()["distributions"]), allow_nan=False)
    assert len(text) < 30_000
