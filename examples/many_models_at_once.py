"""Train folds x weights x seeds as one stack: many small models in one set of batched products.

    python examples/many_models_at_once.py

The trainer works on stacks; a single model is a stack of one. The members of a stack share only their shape. Each
member uses one table (here a fold), has its own seed and weights, and gives the same result as alone.
"""

import argparse
import time

import numpy as np
import torch
from sklearn.model_selection import StratifiedKFold

import evenhand as eh
from evenhand.training import TrainingData, TrainingSettings, ValidationData, train


def folds_as_tables(data, n_folds):
    """Every fold as one table of the stack, padded to the same length with rows of weight 0."""
    codes = np.unique(data.group.astype(str), return_inverse=True)[1]
    strata = 2 * data.y + codes  # folds are balanced over labels and groups
    folds = list(StratifiedKFold(n_folds, shuffle=True, random_state=0).split(strata, strata))
    n_train, n_test = (max(len(part) for part in parts) for parts in zip(*folds, strict=True))
    tables, held_out = [], []
    for learned, left in folds:
        encoder = eh.TableEncoder.fit(data.X.iloc[learned], "ordinal")
        x = encoder.transform(data.X)
        F = data.X[list(data.financial_features)]
        own = eh.match_pairs(F.iloc[learned], data.y[learned], codes[learned])
        other = eh.match_pairs(
            F.iloc[left], data.y[left], codes[left], reference=(F.iloc[learned], data.y[learned], codes[learned])
        )
        cells = eh.label_group_baselines(x[learned], data.y[learned], codes[learned])
        tables.append((x[learned], data.y[learned], codes[learned], own.match[:, None], cells))
        held_out.append((x[left], data.y[left], codes[left], other.match[:, None]))

    def padded(values, n_rows):
        first = values[0]
        full = np.zeros((len(values), n_rows, *first.shape[1:]), first.dtype)
        for table, value in enumerate(values):
            full[table, : len(value)] = value
        return torch.as_tensor(full)

    X, y, group, match, cells = zip(*tables, strict=True)
    X_left, y_left, group_left, match_left = zip(*held_out, strict=True)
    return TrainingData(
        X=padded(X, n_train),
        y=padded(y, n_train),
        group=padded(group, n_train),
        match=padded(match, n_train),
        baselines=torch.as_tensor(np.stack(cells)),
        weight=padded([np.ones(len(values), np.float32) for values in y], n_train),
        validation=ValidationData(
            X=padded(X_left, n_test),
            y=padded(y_left, n_test),
            group=padded(group_left, n_test),
            match=padded(match_left, n_test),
            weight=padded([np.ones(len(values), np.float32) for values in y_left], n_test),
        ),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--weights", type=float, nargs="+", default=[0.0, 0.1, 0.3, 1.0])
    options = parser.parse_args()

    data = folds_as_tables(eh.load_dataset("german"), options.folds)
    members = [(fold, weight) for weight in options.weights for fold in range(options.folds)]
    settings = TrainingSettings(
        table=[fold for fold, _ in members],
        cec_weight=[weight for _, weight in members],
        equalized_odds_weight=[weight for _, weight in members],
        seed=0,
        epochs=options.epochs,
    )
    start = time.perf_counter()
    state = train(data, settings)
    seconds = time.perf_counter() - start
    print(f"{settings.n_members} models of {options.epochs} epochs in {seconds:.1f} s, metrics on held-out people:")

    last = {name: rows[-1].numpy() for name, rows in state.history.items()}
    weights = np.array([weight for _, weight in members])
    print("weight  root of mean squared CEC    AUC  positive rate")
    for weight in options.weights:
        mine = weights == weight
        cec, auc, rate = (last[f"validation_{name}"][mine].mean() for name in ("cec", "auc", "positive_rate"))
        print(f"{weight:6g}  {np.sqrt(cec):24.3f}  {auc:.3f}  {rate:13.1%}")
    print(f"Member 0 as a plain module: {[type(layer).__name__ for layer in state.network().member(0)]}")


if __name__ == "__main__":
    main()
