"""Runs one streamed audit in a process of its own, to be stopped by a test at any moment."""

import sys

import torch
from torch import nn

from evenhand.auditing.streaming import audit_stream


def main(source, out, *flags):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1)).double().eval()
    audit_stream(
        model,
        source,
        label="y",
        group="sex",
        financial_features=["f0", "f1", "f2"],
        features=["f0", "f1", "f2", "z0", "z1", "z2"],
        by=["state"],
        reference_people=1500,
        out=out,
        batch_rows=200,
        resume="resume" in flags,
        engine=next((name for name in ("processes", "spark") if name in flags), "local"),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
