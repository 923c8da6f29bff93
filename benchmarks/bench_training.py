"""Time of training with the CEC objective, against cross-entropy alone, one by one, and on a GPU.

Both sides of a ratio take turns in one run, so that a busy machine slows them alike. Epochs on one core are measured in
CPU time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from evenhand.training import Trainer, TrainingData, TrainingSettings, cec_loss


def make_tables(n_tables: int, n_rows: int, n_columns: int, seed: int = 0) -> TrainingData:
    """Random people of two groups; matches are random people of the other group with the same label."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n_tables, n_rows, n_columns, generator=generator)
    y = (X[..., :3].sum(-1) > 0).long()
    group = torch.randint(0, 2, (n_tables, n_rows), generator=generator)
    match = torch.full((n_tables, n_rows, 1), -1)
    baselines = torch.zeros(n_tables, 2, 2, n_columns)
    for table in range(n_tables):
        for label in range(2):
            for g in range(2):
                own = ((y[table] == label) & (group[table] == g)).nonzero().flatten()
                other = ((y[table] == label) & (group[table] != g)).nonzero().flatten()
                match[table, own, 0] = other[torch.randint(len(other), (len(own),), generator=generator)]
                baselines[table, label, g] = X[table, own].mean(0)
    return TrainingData(X, y, group, match, baselines)


def best_times(
    tasks: dict[str, Callable[[], Any]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Shortest time of each task in seconds; tasks take turns."""
    best = dict.fromkeys(tasks, float("inf"))
    for _ in range(rounds):
        for name, task in tasks.items():
            start = clock()
            task()
            best[name] = min(best[name], clock() - start)
    return best


Term = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""What is added to the cross-entropy of a batch, from the model, the batch's rows and their probabilities."""


def plain_epoch(data: TrainingData, term: Term | None = None, batch_size: int = 64) -> Callable[[], None]:
    """A usual epoch: torch layers, autograd, torch's Adam."""
    model = nn.Sequential(
        nn.Linear(data.n_columns, 128),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(64, 1),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    X, y = data.X[0], data.y[0]

    def epoch() -> None:
        for rows in torch.randperm(len(X)).split(batch_size):
            logits = model(X[rows]).squeeze(1)
            loss = functional.binary_cross_entropy_with_logits(logits, y[rows].float())
            if term is not None:
                loss = loss + term(model, rows, torch.sigmoid(logits))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return epoch


def paper_terms(data: TrainingData, n_steps: int = 32) -> Term:
    """Algorithm 2: double backward, 32 points on each path."""
    X, y, group, match = data.X[0], data.y[0], data.group[0], data.match[0, :, 0]
    alphas = ((torch.arange(n_steps) + 0.5) / n_steps).view(-1, 1, 1)

    def attributions(model: nn.Module, x: Tensor, baseline: Tensor) -> Tensor:
        points = (baseline + alphas * (x - baseline)).requires_grad_()
        model.eval()
        (gradient,) = torch.autograd.grad(model(points).sum(), points, create_graph=True)
        model.train()
        ig = (x - baseline) * gradient.mean(0)
        return ig / (ig.norm(dim=1, keepdim=True) + 1e-8)

    def terms(model: nn.Module, rows: Tensor, score: Tensor) -> Tensor:
        loss = torch.zeros(())
        for label in range(2):
            cells = [(y[rows] == label) & (group[rows] == g) for g in range(2)]
            if cells[0].any() and cells[1].any():
                loss = loss + (score[cells[0]].mean() - score[cells[1]].mean()) ** 2
        baseline = data.baselines[0][y[rows], group[rows]]
        gap = attributions(model, X[rows], baseline) - attributions(model, X[match[rows]], baseline)
        return loss + ((gap.norm(dim=1) / 2) ** 2).mean()

    return terms


def default_term(data: TrainingData) -> Term:
    """The pair term of the default objective by `cec_loss` and automatic differentiation."""
    X, y, group, match = data.X[0], data.y[0], data.group[0], data.match[0, :, 0]

    def term(model: nn.Module, rows: Tensor, score: Tensor) -> Tensor:
        baseline = data.baselines[0][y[rows], group[rows]]
        objective = DEFAULT["objective"]
        return DEFAULT["cec_weight"] * cec_loss(
            model, X[rows], X[match[rows]], baseline, n_steps=1, objective=objective
        )

    return term


def epoch_of(data: TrainingData, **changes: Any) -> Callable[[], None]:
    """An epoch of our trainer, one more with each call."""
    trainer = Trainer(data, TrainingSettings(device="cpu", epochs=0, n_threads=1, **changes))

    def epoch() -> None:
        settings = TrainingSettings(**{**trainer.settings.to_dict(), "epochs": trainer.state.epoch + 1})
        trainer.settings = settings
        trainer.run()

    return epoch


def pair_products(n_columns: int, n_steps: int, batch_size: int = 64) -> Callable[[], None]:
    """The matrix products of the pair term in an epoch, and nothing else: people, matches and four baselines.

    Five of them are with the first layer's weights and six with the second's: forward, along the chain that carries the
    slopes back, and the derivatives of both.
    """
    n_rows = 2 * batch_size + 4
    x, on, g = (torch.randn(1, n_rows, width) for width in (n_columns, 128, 64))
    first, second = torch.randn(1, n_columns, 128), torch.randn(1, 128, 64)
    with_first = [(x, first)] * 2 + [(on, first.mT)] + [(x.mT, on)] * 2
    with_second = [(on, second), (g, second.mT), (on.mT, g)] * 2
    products = [(left, right, torch.bmm(left, right)) for left, right in (*with_first, *with_second)]

    def epoch() -> None:
        for _ in range(n_steps):
            for left, right, out in products:
                torch.bmm(left, right, out=out)

    return epoch


BCE_ONLY = {"cec_weight": 0.0, "equalized_odds_weight": 0.0}
DEFAULT: dict[str, Any] = {
    "objective": "reasoning_gap",
    "cec_weight": 2.0,
    "equalized_odds_weight": 0.0,
    "least_explained": 0.1,
}


def objective_rows(n_columns: int, rounds: int) -> list[dict[str, Any]]:
    data = make_tables(1, 3200, n_columns)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    times = best_times(
        {
            "bce": epoch_of(data, **BCE_ONLY),
            "bce, plain": plain_epoch(data),
            "odds": epoch_of(data, cec_weight=0.0),
            "default": epoch_of(data, **DEFAULT),
            "products": pair_products(n_columns, 3200 // 64),
            **{f"every {k}": epoch_of(data, cec_every=k) for k in (1, 2, 4)},
            "plain": plain_epoch(data, paper_terms(data)),
            "differentiated": plain_epoch(data, default_term(data)),
        },
        rounds,
        time.process_time,
    )
    torch.set_num_threads(before)
    what = f"epoch with EO + CEC, {n_columns} inputs, batch 64, one CPU core"
    default = what.replace("EO + CEC", "the default objective")
    target = "at most 2x the time"
    ours, bce = times["every 1"], times["bce"]
    return [
        row(f"{default}: against BCE only", times["default"], bce, target),
        row(f"{default}: against BCE only, if its pair term were only matrix products", bce + times["products"], bce),
        row(f"{default}: against `cec_loss` and automatic differentiation", times["default"], times["differentiated"],
            is_speedup=True),
        row(f"{what.replace(' + CEC', '')}: against BCE only", times["odds"], bce),
        row(f"{what}: against BCE only", ours, bce, target),
        row(f"{what}: against BCE only as a plain torch loop", ours, times["bce, plain"], target),
        row(f"{what}; `cec_every=2`: against BCE only", times["every 2"], bce),
        row(f"{what}; `cec_every=4`: against BCE only", times["every 4"], bce),
        row(f"{what}: against the paper's algorithm as a plain torch loop, 32 midpoints", ours, times["plain"],
            is_speedup=True),
    ]  # fmt: skip


def stack_rows(rounds: int, n_models: int = 20) -> list[dict[str, Any]]:
    data = make_tables(1, 800, 20)

    def one_by_one() -> None:
        for seed in range(n_models):
            Trainer(data, TrainingSettings(seed=seed, epochs=2, device="cpu")).run()

    def stack() -> None:
        Trainer(data, TrainingSettings(seed=tuple(range(n_models)), epochs=2, device="cpu")).run()

    times = best_times({"stack": stack, "one by one": one_by_one}, rounds)
    what = f"{n_models} models as a stack, CPU"
    return [
        row(f"{what}: against one after another", times["stack"], times["one by one"], "at least 1.5x faster",
            is_speedup=True),
    ]  # fmt: skip


PAPER = {"n_steps": 32, "method": "midpoint"}


def gpu_rows() -> list[dict[str, Any]]:
    lambdas = [(cec, odds) for cec in (0.0, 0.1, 0.5, 1.0, 2.0, 5.0) for odds in (0.0, 0.1, 0.5, 1.0, 2.0, 5.0)]
    german = {
        "table": [fold for fold in range(5) for _ in lambdas],
        "cec_weight": [cec for _ in range(5) for cec, _ in lambdas],
        "equalized_odds_weight": [odds for _ in range(5) for _, odds in lambdas],
    }
    cases = (
        ("180 models (36 lambdas x 5 folds) of German's size, 30 epochs", make_tables(5, 800, 20), german, 2.0),
        ("5 models (folds) of Adult's size, 30 epochs", make_tables(5, 36_178, 14), {"table": range(5)}, 15.0),
    )
    rows = []
    for what, data, settings, target in cases:
        Trainer(data, TrainingSettings(device="cuda", epochs=1, **settings)).run()
        for label, changes in (("defaults", {}), ("4 segments", {"n_steps": 4}), ("32 midpoints", PAPER)):
            start = time.perf_counter()
            Trainer(data, TrainingSettings(device="cuda", epochs=30, **settings, **changes)).run()
            torch.cuda.synchronize()
            seconds = time.perf_counter() - start
            rows.append(
                {
                    "what": f"{what}, {torch.cuda.get_device_name()}: {label}",
                    "ours_s": seconds,
                    "target": f"under {target:g} s",
                }
            )
    return rows


def row(
    what: str, ours: float, theirs: float, target: str | None = None, *, is_speedup: bool = False
) -> dict[str, Any]:
    ratio = f"{theirs / ours:.2f}x faster" if is_speedup else f"{ours / theirs:.2f}x the time"
    return {"what": what, "ours_s": ours, "theirs_s": theirs, "ratio": ratio, "target": target}


def run(rounds: int = 15) -> list[dict[str, Any]]:
    """Rows of what, seconds, ratio and target."""
    rows = [*objective_rows(20, rounds), *objective_rows(60, rounds), *stack_rows(max(2, rounds // 5))]
    return [*rows, *gpu_rows()] if torch.cuda.is_available() else rows


if __name__ == "__main__":
    from run import show

    show(run())
