"""What the evidence costs: the audit with placebo pairs against the plain audit, and how both grow with the people."""

import time

import torch
from bench_audit import FINANCIAL, people

import evenhand as eh

SIZES = (10_000, 30_000, 100_000, 300_000)


def seconds(n: int, evidence: bool) -> float:
    model, X, y, group = people(n)
    start = time.perf_counter()
    eh.audit(
        model,
        X,
        y,
        sensitive_features=group,
        financial_features=[f"x{j}" for j in range(FINANCIAL)],
        evidence=evidence,
    )
    return time.perf_counter() - start


def run() -> list[dict]:
    torch.set_num_threads(2)
    seconds(2000, evidence=True)  # warm up
    rows = []
    for n in SIZES:
        plain, full = seconds(n, evidence=False), seconds(n, evidence=True)
        rows.append(
            {
                "what": f"audit of {n:,} x 20 with evidence, against without",
                "ours_s": full,
                "theirs_s": plain,
                "ratio": f"{full / plain:.1f}x the time",
                "target": f"at most {2 * plain + 20:.0f} s (twice the plain audit plus 20 s)" if n == 100_000 else None,
            }
        )
    return rows


if __name__ == "__main__":
    from run import show

    show(run())
