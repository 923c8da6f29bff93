"""Integrated gradients against captum, and against their matrix products alone: a [128, 64] network, one core."""

import time

import torch
from captum.attr import IntegratedGradients
from torch import nn

from evenhand.attribution.gradients import attribute, integrated_gradients


def trained_network(d: int = 60, n: int = 4000) -> tuple[nn.Sequential, torch.Tensor, torch.Tensor]:
    """A network trained on a noisy nonlinear rule, people, and a baseline for each."""
    torch.manual_seed(0)
    x = torch.randn(n, d)
    rule = x[:, :10].sum(-1) + x[:, 10] * x[:, 11] + x[:, 12].abs() + torch.randn(n)
    y = (rule > rule.median()).float()
    layers = [nn.Linear(d, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 64), nn.ReLU(), nn.Dropout(0.2)]
    model = nn.Sequential(*layers, nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    for _ in range(30):
        for rows in torch.randperm(n).split(64):
            optimizer.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(model(x[rows]).squeeze(-1), y[rows]).backward()
            optimizer.step()
    people = x[:2000]
    means = torch.stack([x[y == 0].mean(0), x[y == 1].mean(0)])
    return model.eval(), people, means[y[:2000].long()]


def median_seconds(job, repeats: int) -> float:
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        job()
        times.append(time.perf_counter() - start)
    return sorted(times[1:])[repeats // 2]  # the first run warms up


def least_seconds(*jobs, repeats: int = 9) -> list[float]:
    """Least CPU time of each job; the jobs take turns."""
    times = [[] for _ in jobs]
    for _ in range(repeats):
        for job, found in zip(jobs, times, strict=True):
            start = time.process_time()
            job()
            found.append(time.process_time() - start)
    return [min(found) for found in times]


def products_alone(n: int, n_steps: int, d: int = 0, rows: int = 256):
    """Only the matrix products that the paths of n people through [128, 64] cannot avoid.

    Those of the path are two. With `d` inputs, those at its ends are added: person and baseline times the first
    weights, and the averaged slopes times their transpose.
    """
    values, slopes = torch.randn((n_steps + 1) * rows, 128), torch.randn(n_steps * rows, 64)
    weight, first = torch.randn(128, 64), torch.randn(d, 128)
    forward, backward = torch.empty(len(values), 64), torch.empty(len(slopes), 128)
    people, hidden = torch.randn(rows, d), torch.randn(rows, 128)
    ends, inputs = torch.empty(rows, 128), torch.empty(rows, d)
    for _ in range(-(-n // rows)):
        if d:
            torch.mm(people, first, out=ends)
            torch.mm(people, first, out=ends)
            torch.mm(hidden, first.T, out=inputs)
        torch.mm(values, weight, out=forward)
        torch.mm(slopes, weight.T, out=backward)


def against_products(n_steps: int, n: int = 16_384, d: int = 20) -> dict:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(d, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))
    x, b = torch.randn(n, d), torch.randn(4, d)[torch.arange(n) % 4]
    with torch.no_grad():
        ours, products = least_seconds(lambda: attribute(model, x, b, n_steps), lambda: products_alone(n, n_steps))
    return {
        "what": f"{n_steps} segments of {n:,} x {d}, logits included, against their two matrix products alone",
        "ours_s": ours,
        "theirs_s": products,
        "ratio": f"{ours / products:.2f}x the time",
        "target": "at most 2x the time",
    }


def run() -> list[dict]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _rows()
    finally:
        torch.set_num_threads(threads)


def _rows() -> list[dict]:
    model, x, b = trained_network()
    explainer = IntegratedGradients(lambda z: model(z).squeeze(-1))

    def theirs(method):
        return explainer.attribute(x, b, n_steps=32, method=method)

    def ours(n_steps, method):
        with torch.no_grad():
            return integrated_gradients(model, x, b, n_steps, method)

    with torch.no_grad():
        reference = integrated_gradients(model.double(), x.double(), b.double(), 8192, "midpoint").float()
        model.float()

    def error(values):
        return float((values - reference).norm() / reference.norm())

    equal = float((ours(32, "midpoint") - theirs("riemann_middle")).abs().max())
    middle_s = median_seconds(lambda: theirs("riemann_middle"), 3)
    default_s = median_seconds(lambda: theirs("gausslegendre"), 3)
    rows = [
        {
            "what": f"IG 2,000 x 60, 32 midpoints, equal to {equal:.0e}",
            "ours_s": median_seconds(lambda: ours(32, "midpoint"), 7),
            "theirs_s": middle_s,
            "target": 10,
        },
        {
            "what": f"4 segments (error {error(ours(4, 'segments')):.2%}) against captum's default rule at 32 "
            f"(error {error(theirs('gausslegendre')):.2%}; its midpoint rule {error(theirs('riemann_middle')):.2%})",
            "ours_s": median_seconds(lambda: ours(4, "segments"), 7),
            "theirs_s": default_s,
            "target": 120,
        },
    ]
    rows.append(
        {
            "what": "4 segments, if they were only their matrix products, against captum's default rule at 32",
            "ours_s": median_seconds(lambda: products_alone(2000, 4, d=60), 7),
            "theirs_s": default_s,
            "target": None,
        }
    )
    rows += [
        {
            "what": f"{n} segments (error {error(ours(n, 'segments')):.3%}) against captum's midpoint rule at 32",
            "ours_s": median_seconds(lambda n=n: ours(n, "segments"), 7),
            "theirs_s": middle_s,
            "target": None,
        }
        for n in (5, 8)
    ]
    rows.append(
        {
            "what": f"exact (error {error(ours(1, 'exact')):.4%}) against captum's midpoint rule at 32",
            "ours_s": median_seconds(lambda: ours(1, "exact"), 3),
            "theirs_s": middle_s,
            "target": None,
        }
    )
    rows = [{**row, "ratio": row["theirs_s"] / row["ours_s"]} for row in rows]
    return [*rows, *(against_products(n) for n in (8, 4))]


if __name__ == "__main__":
    from run import show

    show(run())
