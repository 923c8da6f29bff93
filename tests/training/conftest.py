from __future__ import annotations

import torch

from evenhand.training.data import TrainingData, ValidationData


def make_data(
    sizes=(50, 37), n_columns=5, n_groups=2, seed=0, unmatched=0.1, weighted=False, join=None, validation=0
) -> TrainingData:
    """Tables of random people, padded to the same length, with random same-label matches."""
    generator = torch.Generator().manual_seed(seed)
    n_tables, n_max = len(sizes), max(sizes)

    def people(n):
        X = torch.randn(n_tables, n, n_columns, generator=generator)
        group = torch.randint(0, n_groups, (n_tables, n), generator=generator)
        noise = torch.randn(n_tables, n, generator=generator)
        y = (X[..., 0] - X[..., 1] + 0.5 * (group > 0) + 0.5 * noise > 0).long()
        return X, y, group

    def matches(y, group, y_own, group_own):
        match = torch.full((n_tables, y.shape[1], n_groups - 1), -1)
        for d in range(n_tables):
            for i in range(y.shape[1]):
                others = [g for g in range(n_groups) if g != group[d, i]]
                for k, other in enumerate(others):
                    rows = ((y_own[d] == y[d, i]) & (group_own[d] == other)).nonzero().flatten()
                    rows = rows[rows < sizes[d]]
                    if len(rows) and torch.rand((), generator=generator) > unmatched:
                        match[d, i, k] = rows[torch.randint(len(rows), (), generator=generator)]
        return match

    X, y, group = people(n_max)
    weight = torch.rand(n_tables, n_max, generator=generator) + 0.5 if weighted else torch.ones(n_tables, n_max)
    baselines = torch.full((n_tables, 2, n_groups, n_columns), float("nan"))
    for d, size in enumerate(sizes):
        weight[d, size:] = 0
        X[d, size:] = 0
        for label in range(2):
            for g in range(n_groups):
                cell = (y[d, :size] == label) & (group[d, :size] == g)
                if cell.any():
                    baselines[d, label, g] = X[d, :size][cell].mean(0)
    held_out = None
    if validation:
        X_val, y_val, group_val = people(validation)
        held_out = ValidationData(X_val, y_val, group_val, matches(y_val, group_val, y, group))
    return TrainingData(X, y, group, matches(y, group, y, group), baselines, weight, join, held_out)
