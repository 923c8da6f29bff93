"""What the evidence costs: the audit with placebo pairs against the plain audit, and how both grow with the people."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from bench_attribution import least_seconds
from bench_audit import FINANCIAL, people
from torch import nn

import evenhand as eh
from evenhand.attribution.feed_forward import feed_forward
from evenhand.attribution.gradients import attribute, integrate_paths
from evenhand.auditing import fitted

SIZES = (10_000, 30_000, 100_000, 300_000)
COMPARED = 100_000  # people of the audit with targets

# Explanations of a person in an audit of two groups. Before: the person and the match for the pair; for the triples the
# person twice, the match twice and the placebo; and the person with both sets of finances in each of four triples.
PLAIN_SEGMENTS, PLAIN_EXPLANATIONS = 8, 2 + 5 + 2 * 4
TRIPLES = 4  # of more than 5,000 people
EXPLANATIONS = 2 + 4 + 2 * TRIPLES


@contextmanager
def many_triples() -> Iterator[None]:
    """As many triples a person as in audits of few people, 12, in audits of any size."""
    usual = fitted._REACH
    fitted._REACH = {np.inf: usual[min(usual)]}
    try:
        yield
    finally:
        fitted._REACH = usual


def trained(n: int):
    """Applicants, and a network of the same shape that learned their labels, because its segments matter."""
    model, X, y, group = people(n)
    with torch.no_grad():
        model[-1].weight /= 10
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, labels = torch.from_numpy(X[:20_000]), torch.from_numpy(y[:20_000]).float()
    for _ in range(4):
        for rows in torch.randperm(len(x)).split(128):
            optimizer.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(model(x[rows]).squeeze(-1), labels[rows]).backward()
            optimizer.step()
    return model.eval(), X, y, group


def audited(arguments, evidence: bool):
    model, X, y, group = arguments
    financial = [f"x{j}" for j in range(FINANCIAL)]
    start = time.perf_counter()
    result = eh.audit(model, X, y, sensitive_features=group, financial_features=financial, evidence=evidence)
    return time.perf_counter() - start, result


def explanations(n: int = 4096) -> dict:
    """The explanations of an audit, against a plain implementation of those that four triples a person took before."""
    model, X, y, group = trained(20_000)
    n_steps = audited((model, X[:5000], y[:5000], group[:5000]), evidence=False)[1].settings["n_steps"]
    network, x = feed_forward(model), torch.from_numpy(X[:n])
    start = x.mean(0).expand_as(x)

    def ours():
        for _ in range(EXPLANATIONS):
            attribute(network, x, start, n_steps)

    def plain():
        for _ in range(PLAIN_EXPLANATIONS):  # each passes over all segments of all people; the two logits are separate
            integrate_paths(network, x, start, PLAIN_SEGMENTS, "segments")
            network(x)
            network(start)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            ours_s, plain_s = least_seconds(ours, plain, repeats=3)
    finally:
        torch.set_num_threads(threads)
    return {
        "what": f"explanations of {n:,} people, {TRIPLES} triples each, {n_steps} segments, one core, against a plain "
        f"implementation with 4 triples and {PLAIN_SEGMENTS} segments",
        "ours_s": ours_s,
        "theirs_s": plain_s,
        "ratio": plain_s / ours_s,
        "target": 1,
    }


def run() -> list[dict]:
    torch.set_num_threads(2)
    audited(trained(2000), evidence=True)  # warm up
    rows = [explanations()]
    for n in SIZES:
        arguments = trained(n)
        (plain, _), (full, _) = audited(arguments, evidence=False), audited(arguments, evidence=True)
        rows.append(
            {
                "what": f"audit of {n:,} x 20 with evidence, against without",
                "ours_s": full,
                "theirs_s": plain,
                "ratio": f"{full / plain:.1f}x the time",
                "target": "at most 6.5x the time (what four triples took before)" if n == COMPARED else None,
            }
        )
    arguments = trained(COMPARED)
    with many_triples():
        seconds, result = audited(arguments, evidence=True)
    n_triples = result.to_dict()["evidence"]["n_triples"] / COMPARED
    what = f"audit of {COMPARED:,} x 20 with evidence, {n_triples:.0f} triples a person"
    rows.append({"what": what, "ours_s": seconds, "target": 20, "better": "lower"})
    return rows


if __name__ == "__main__":
    from run import show

    show(run())
