"""The pairs to look at."""

import numpy as np
import pandas as pd
import pytest

from evenhand.auditing.sample import PairsInMemory, cases_of, draw_pair_sample, strongest_pairs
from evenhand.exceptions import InvalidInputError


def many_pairs(n=5000, seed=0):
    rng = np.random.default_rng(seed)
    pairs = pd.DataFrame(
        {
            "person": np.arange(n),
            "match": rng.permutation(n),
            "group": np.where(rng.random(n) < 0.02, "few", "many"),
            "other_group": "other",
            "regime": rng.choice(list("ABCD"), n, p=[0.6, 0.3, 0.09, 0.01]),
            "cec": rng.random(n),
            "placebo_cec": rng.random(n),
            "q_value": np.round(rng.random(n), 2),
        }
    )
    pairs.loc[:19, ["cec", "placebo_cec", "q_value"]] = np.nan
    pairs.loc[:19, "match"] = -1
    table = pd.DataFrame({"row": np.arange(n)})
    attributions = np.arange(n, dtype=np.float32)[:, None]
    return pairs, table, attributions


def drawn(max_pairs, random_state=0):
    pairs, table, attributions = many_pairs()
    return pairs, draw_pair_sample(
        PairsInMemory(pairs, table, table, attributions, -attributions), max_pairs, random_state
    )


def test_the_strongest_cases_are_always_there_and_first():
    pairs, sample = drawn(500)
    known = pairs[pairs["cec"].notna()].assign(over=lambda p: p["cec"] - p["placebo_cec"])
    expected = known.sort_values(["q_value", "over"], ascending=[True, False])["person"].head(100)
    assert sample.n_strongest == 100
    assert sample.pairs["person"].head(100).tolist() == expected.tolist()


def test_no_pair_is_drawn_twice_and_unscored_ones_never():
    _, sample = drawn(500)
    assert len(sample) == 500 == sample.pairs["person"].nunique()
    assert sample.pairs["person"].min() >= 20
    assert (sample.n_pairs, sample.n_scored) == (5000, 4980)


def test_rare_regimes_and_groups_are_seen():
    pairs, sample = drawn(500)
    scored = pairs[pairs["cec"].notna()]
    at_random = sample.pairs.iloc[sample.n_strongest :].groupby(["regime", "group"]).size()
    in_all = scored.groupby(["regime", "group"]).size()
    strongest = sample.pairs.iloc[: sample.n_strongest].groupby(["regime", "group"]).size()
    left = in_all.sub(strongest, fill_value=0)
    most = at_random.max()
    # As evenly as possible: a stratum has fewer than the fullest only where it is used up.
    for stratum, n in left.items():
        assert at_random.get(stratum, 0) >= min(n, most - 1)


def test_people_and_attributions_are_those_of_the_pair():
    _, sample = drawn(300)
    assert (sample.values["row"] == sample.pairs["person"]).all()
    assert (sample.match_values["row"] == sample.pairs["match"]).all()
    assert (sample.attributions[:, 0] == sample.pairs["person"]).all()
    assert (sample.match_attributions[:, 0] == -sample.pairs["person"]).all()


def test_the_seed_decides_the_random_part_only():
    first, again, other = (drawn(300, seed)[1].pairs["person"] for seed in (0, 0, 1))
    assert first.equals(again)
    assert not first.equals(other)
    assert first.head(60).equals(other.head(60))


def test_all_are_taken_where_there_are_no_more(result):
    sample = result.pair_sample()
    assert len(sample) == len(result.pairs) == sample.n_strongest
    assert sample.how == f"All {len(result.pairs)} scored pairs."


def test_how_it_was_drawn_is_said():
    assert drawn(500)[1].how == (
        "500 of 4,980 scored pairs: the 100 with the strongest evidence, and 400 at random, as evenly as possible over "
        "regimes and groups (seed 0)."
    )


def test_without_evidence_the_highest_scores_come_first(without_evidence):
    sample = without_evidence.pair_sample(50)
    assert sample.pairs["cec"].head(10).tolist() == without_evidence.pairs["cec"].nlargest(10).tolist()


def test_a_sample_of_nothing_is_refused(result):
    with pytest.raises(InvalidInputError, match="`max_pairs` must be at least 1, got 0"):
        result.pair_sample(0)


class InParts(PairsInMemory):
    """Pairs that come in parts, as those of a streamed audit do."""

    def parts(self):
        for rows in np.array_split(np.arange(len(self.pairs)), 7):
            yield self.pairs.iloc[rows]


@pytest.mark.parametrize("max_pairs", [30, 500, 2000, 6000])
@pytest.mark.parametrize("random_state", [0, 5])
def test_pairs_in_parts_give_the_same_sample_and_cases(max_pairs, random_state):
    pairs, table, attributions = many_pairs()
    whole, parts = (kind(pairs, table, table, attributions, -attributions) for kind in (PairsInMemory, InParts))
    first, second = (draw_pair_sample(source, max_pairs, random_state) for source in (whole, parts))
    pd.testing.assert_frame_equal(first.pairs, second.pairs)
    np.testing.assert_array_equal(first.match_attributions, second.match_attributions)
    assert (first.n_pairs, first.n_scored, first.n_strongest, first.how) == (
        second.n_pairs,
        second.n_scored,
        second.n_strongest,
        second.how,
    )
    pd.testing.assert_frame_equal(strongest_pairs(whole, max_pairs), strongest_pairs(parts, max_pairs))


def test_cases_are_those_of_all_pairs(result):
    strongest = result.pairs.assign(over=result.pairs["cec"] - result.pairs["placebo_cec"])
    strongest = strongest.sort_values(["q_value", "over"], ascending=[True, False])["person"].head(3)
    assert cases_of(result.source, 3)["person"].unique().tolist() == strongest.tolist()
