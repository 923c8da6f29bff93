"""Sampling weights in batches: the metrics are those of the audit in memory."""

import numpy as np
import pytest

import evenhand as eh
from evenhand.exceptions import InvalidInputError

FINANCIAL = ["f0", "f1", "f2"]
FEATURES = [*FINANCIAL, "z0", "z1", "z2"]

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning"),
]


def weighed(table, seed=5):
    weights = np.random.default_rng(seed).uniform(0.2, 5.0, len(table)) * np.where(table["sex"] == "a", 1, 3)
    weights[:20] = 0
    return table.assign(weight=weights)


@pytest.mark.parametrize(("groups", "is_separate"), [(("a", "b"), True), (("a", "b", "c"), False)])
def test_weighted_metrics_and_pairs_are_those_of_the_audit_in_memory(
    tmp_path, model, groups, is_separate, applicants, streamed, assert_same
):
    table = weighed(applicants(groups=groups))
    reference = weighed(applicants(400, groups=groups, seed=1), seed=6) if is_separate else None
    by = ["state", "branch"]
    found = streamed(model, table, tmp_path, reference=reference, by=by, sample_weight="weight")
    named = {"X": FEATURES, "y": "y", "sensitive_features": "sex", "sample_weight": "weight"}
    memory = eh.audit(
        model,
        table[FEATURES],
        table["y"],
        sensitive_features=table["sex"],
        financial_features=FINANCIAL,
        sample_weight=table["weight"],
        by=table[by],
        reference=None if reference is None else {part: reference[columns] for part, columns in named.items()},
    )
    assert_same(found, memory)
    assert found.weighting.n_counted == len(table) - 20


@pytest.mark.slow
def test_equal_weights_in_batches_are_no_weights(tmp_path, model, applicants, streamed, differences):
    table = applicants().assign(weight=0.3)
    summaries = []
    for name, settings in (("with", {"sample_weight": "weight"}), ("without", {})):
        (tmp_path / name).mkdir()
        summaries.append(streamed(model, table, tmp_path / name, **settings).to_dict())
    summaries[0].pop("weighting")
    for summary in summaries:
        summary["data"].pop("hashes")
        summary["data"].pop("files")
    assert differences(*summaries, rel=1e-12) == []


def test_wrong_weights_are_refused_with_the_file(tmp_path, model, applicants, streamed):
    table = weighed(applicants())
    with pytest.raises(InvalidInputError, match=r"`sample_weight` \(--sample-weight\) names columns absent .*weight"):
        streamed(model, table, tmp_path, sample_weight="wight")
    negative = table.assign(weight=np.where(np.arange(len(table)) == 7, -1.0, table["weight"]))
    with pytest.raises(InvalidInputError, match="`weight` must be 0 or more people per row, got 1 negative values"):
        streamed(model, negative, tmp_path, sample_weight="weight")
    with pytest.raises(InvalidInputError, match=r"`state` must hold numbers, one weight per row, got .* such as 'NY'"):
        streamed(model, table, tmp_path, sample_weight="state")
    nothing = table.assign(weight=0.0)
    with pytest.raises(InvalidInputError, match="`weight` is 0 for everyone, so no one is counted"):
        streamed(model, nothing, tmp_path, sample_weight="weight")
    with pytest.raises(InvalidInputError, match="`weight` is 0 for everyone, so no one is counted"):
        streamed(model, nothing, tmp_path, sample_weight="weight", reference=table)
