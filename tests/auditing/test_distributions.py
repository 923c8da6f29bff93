"""Histograms that can be added."""

import json

import numpy as np
import pytest

from evenhand.auditing.summary import merge_distributions, pair_distributions
from evenhand.exceptions import InvalidInputError
from evenhand.system.files import json_ready


def test_every_scored_pair_is_counted_once(result):
    found, pairs = pair_distributions(result.pairs), result.pairs
    by_group = pairs["group"].value_counts()
    for name in ("cec", "distance"):
        assert {g: sum(c) for g, c in found[name]["counts"].items()} == by_group.to_dict()
    assert sum(n for *_, n in found["plane"]["cells"]) == len(pairs)
    expected = pairs.groupby(["group", "regime"]).size()
    assert all(found["regimes"][g][r] == n for (g, r), n in expected.items())
    assert sum(map(sum, found["score"]["counts"].values())) == pairs["person"].nunique()


def test_unmatched_pairs_and_unknown_placebo_scores_are_left_out(result):
    pairs = result.pairs.copy()
    pairs.loc[:9, ["cec", "placebo_cec", "match_score"]] = np.nan
    pairs.loc[10:19, "placebo_cec"] = np.nan
    found = pair_distributions(pairs)
    known = int(pairs["placebo_cec"].notna().sum())
    assert sum(map(sum, found["cec"]["counts"].values())) == len(pairs) - 10
    assert sum(map(sum, found["placebo_cec"]["counts"].values())) == known <= len(pairs) - 20


def test_parts_add_up_to_the_whole(result):
    half = len(result.pairs) // 2
    parts = [pair_distributions(part) for part in (result.pairs.iloc[:half], result.pairs.iloc[half:])]
    assert merge_distributions(*parts) == pair_distributions(result.pairs)


def test_a_group_that_only_one_part_has_is_kept(result):
    parts = [pair_distributions(part) for _, part in result.pairs.groupby("group")]
    assert merge_distributions(*parts) == pair_distributions(result.pairs)


def test_distances_beyond_the_last_bin_count_in_it(result):
    far = pair_distributions(result.pairs.assign(distance=1e9))["distance"]["counts"]
    assert all(sum(counts) == counts[-1] > 0 for counts in far.values())


@pytest.mark.parametrize("name", ["cec", "plane"])
def test_other_bins_are_refused(result, name):
    first, second = (pair_distributions(result.pairs) for _ in range(2))
    edges = "cec_edges" if name == "plane" else "edges"
    second[name] = {**second[name], edges: [0.0, 1.0]}
    with pytest.raises(InvalidInputError, match=f"distributions of '{name}' have different bins"):
        merge_distributions(first, second)


def test_they_are_plain_and_small(result):
    text = json.dumps(json_ready(result.to_dict()["distributions"]), allow_nan=False)
    assert len(text) < 30_000
