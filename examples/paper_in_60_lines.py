"""Popoola and Sheppard's paper in sixty lines of NumPy and torch, in its notation; a test compares it with `eh.audit`.

    python examples/paper_in_60_lines.py 30

It trains a network on German Credit for 30 epochs as in Algorithm 2, and prints CEC(f; D), the regimes and PFR of
held-out people. docs/reproduction.md translates the notation. What the paper does not say is marked with (*).
"""

import sys

import numpy as np
import torch
from torch import nn

import evenhand as eh


def counterfactuals(x_F, y, a, D_F, D_y, D_a, tau=0.0):  # Definition 2 and Algorithm 1: rows of D; -1 is unmatched
    mu, sigma = D_F.mean(0), D_F.std(0)
    C = np.full(len(y), -1)
    for i, x_std in enumerate((x_F - mu) / sigma):
        D_ya = np.flatnonzero((D_y == y[i]) & (D_a == 1 - a[i]))
        d = np.linalg.norm((D_F[D_ya] - mu) / sigma - x_std, axis=1)
        if len(d) and not (tau > 0 and d.min() > tau):  # tau = 0: no limit
            C[i] = D_ya[d.argmin()]  # the lowest of equally near rows (*)
    return C


def baselines(D, y, a):  # Principle 1: b[y, a]
    return torch.stack([torch.stack([D[(y == v) & (a == g)].mean(0) for g in (0, 1)]) for v in (0, 1)])


def IG(f, x, b, T=32):
    alpha = (torch.arange(T, dtype=x.dtype) + 0.5) / T  # midpoints (*)
    path = (b + alpha[:, None, None] * (x - b)).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(f(path).sum(), path, create_graph=True)  # of the log-odds (*)
    return (x - b) * gradient.mean(0)


def IG_norm(f, x, b):
    g = IG(f, x, b)
    return g / (g.norm(dim=1, keepdim=True) + 1e-8)


def delta_CEC(f, x, x_cf, b):  # Definition 3: x and its counterfactual from the same baseline
    return (IG_norm(f, x, b) - IG_norm(f, x_cf, b)).norm(dim=1) / 2


def regimes(f, x, x_cf, delta, threshold=0.3):  # Table 1; the threshold (*), and decisions at a probability of 0.5 (*)
    same, alike = (f(x) >= 0).flatten() == (f(x_cf) >= 0).flatten(), delta <= threshold
    return np.where(same, np.where(alike, "A", "B"), np.where(alike, "C", "D"))


def loss(f, x, y, a, x_cf, b, lambda_EO=1.0, lambda_CEC=1.0):  # Algorithm 2, one batch
    p = torch.sigmoid(f.train()(x).flatten())
    rates = [[p[(y == v) & (a == g)].mean() for g in (0, 1)] for v in (0, 1)]  # FPR and TPR of both groups
    L_EO = sum((rate_0 - rate_1).nan_to_num() ** 2 for rate_0, rate_1 in rates)  # without rates of nobody (*)
    L_pred = nn.functional.binary_cross_entropy(p, y.to(p.dtype))
    return L_pred + lambda_EO * L_EO + lambda_CEC * (delta_CEC(f.eval(), x, x_cf, b) ** 2).mean()  # no dropout (*)


def main():
    epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    torch.manual_seed(0)
    data = eh.load_dataset("german")
    y, a, x_F = data.y, (data.group == "male").astype(int), data.X[list(data.financial_features)].to_numpy(float)
    test, train = np.split(np.random.default_rng(0).permutation(len(y)), [200])
    codes = data.X.apply(lambda column: column.cat.codes if column.dtype == "category" else column)  # integers (*)
    x = torch.tensor(((codes - codes.iloc[train].mean()) / codes.iloc[train].std(ddof=0)).to_numpy(np.float32))
    x_cf = x[train][counterfactuals(x_F, y, a, x_F[train], y[train], a[train])]
    b = baselines(x[train], y[train], a[train])[y, a]
    f = nn.Sequential(
        nn.Linear(20, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 1)
    )
    optimizer = torch.optim.Adam(f.parameters(), lr=3e-4)
    for _ in range(epochs):
        for B in torch.tensor(train)[torch.randperm(len(train))].split(64):
            optimizer.zero_grad()
            loss(f, x[B], torch.tensor(y)[B], torch.tensor(a)[B], x_cf[B], b[B]).backward()
            optimizer.step()
    delta = delta_CEC(f, x[test], x_cf[test], b[test]).detach()
    regime = regimes(f, x[test], x_cf[test], delta)
    shares = ", ".join(f"{r} {np.mean(regime == r):.1%}" for r in "ABCD")
    print(f"CEC(f; D) {delta.mean():.3f}, regimes {shares}, PFR {np.isin(regime, ['C', 'D']).mean():.1%}")


if __name__ == "__main__":
    main()
