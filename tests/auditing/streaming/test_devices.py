"""A streamed audit on a GPU finds what the CPU finds."""

import pytest
import torch
from torch import nn

import evenhand as eh


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_an_audit_on_a_gpu_is_that_of_the_cpu_and_the_same_each_time(tmp_path):
    data = eh.load_dataset("synthetic", n=6000)
    data.X.assign(y=data.y, sex=data.group).to_parquet(tmp_path / "people.parquet")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(data.X.shape[1], 16), nn.ReLU(), nn.Linear(16, 1))

    def audited(device, out):
        found = eh.audit_stream(
            model,
            tmp_path / "people.parquet",
            label="y",
            group="sex",
            financial_features=data.financial_features[:6],
            out=tmp_path / out,
            batch_rows=2000,
            reference_people=3000,
            device=device,
        )
        return found.pairs, found.to_dict()

    pairs, here = audited("cpu", "cpu")
    there_pairs, there = audited("cuda", "first")
    again_pairs, again = audited("cuda", "second")
    assert there_pairs.equals(again_pairs)
    assert there["cec"] == again["cec"]
    assert there["score_gap"] == again["score_gap"]
    for name in ("person", "match", "distance"):
        assert there_pairs[name].equals(pairs[name]), name
    for name in ("cec", "placebo_cec", "score", "match_score", "input_gap", "reasoning_gap"):
        torch.testing.assert_close(
            torch.tensor(there_pairs[name].to_numpy()), torch.tensor(pairs[name].to_numpy()), rtol=0, atol=1e-5
        )
    for name in ("mean", "placebo", "excess", "weighing_excess"):
        assert there["cec"][name] == pytest.approx(here["cec"][name], abs=1e-6), name
