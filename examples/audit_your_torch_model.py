"""Audit a torch model that you trained yourself.

    python examples/audit_your_torch_model.py

The model takes a matrix of numbers and returns one logit per row. The audit needs nothing else: the model can be of any
class, and the training code does not use evenhand. Here the data are generated, and the labels depend only on the
financial features, but the model also sees proxies for the group and noise.
"""

import argparse

import torch
from rich.console import Console
from sklearn.model_selection import train_test_split

import evenhand as eh


def train_plainly(X, y, epochs):
    """An ordinary network, trained in the usual way."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(X.shape[1], 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    inputs, labels = torch.tensor(X.to_numpy(), dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(inputs)).split(128):
            optimizer.zero_grad()
            logits = model(inputs[rows]).squeeze(-1)
            torch.nn.functional.binary_cross_entropy_with_logits(logits, labels[rows]).backward()
            optimizer.step()
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--people", type=int, default=6_000)
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()

    data = eh.load_dataset("synthetic", n=options.people)
    X, X_test, y, y_test, group, group_test = train_test_split(
        data.X, data.y, data.group, test_size=0.3, random_state=0
    )
    model = train_plainly(X, y, options.epochs)

    result = eh.audit(
        model,
        X_test,
        y_test,
        sensitive_features=group_test,
        financial_features=data.financial_features,
        reference=(X, y, group),  # matches and baselines come from the people the model learned from
    )
    console = Console(width=110)
    console.print(result)

    console.print("\nThe three pairs with the same decision and the least similar reasoning:")
    same_decision = result.pairs[result.pairs["regime"] == "B"].nlargest(3, "cec")
    columns = ["person", "match", "group", "other_group", "distance", "score", "match_score", "cec", "reasoning_gap"]
    console.print(same_decision[columns].round(3).to_string(index=False))


if __name__ == "__main__":
    main()
