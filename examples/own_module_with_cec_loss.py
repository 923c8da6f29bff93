"""Train your own torch module with the CEC term.

    python examples/own_module_with_cec_loss.py

The module below has a skip connection, so it is not a plain chain of layers. `evenhand.cec_loss` takes any module that
maps (n, d) to one logit per row: it differentiates the module along each path and keeps the graph to the parameters.
You write the loop; evenhand provides the matches, the baselines and one more term for the loss.
"""

import argparse

import numpy as np
import pandas as pd
import torch
from sklearn.model_selection import train_test_split
from torch import nn

import evenhand as eh


class SkipNetwork(nn.Module):
    """One hidden layer beside a straight path from the inputs to the logit."""

    def __init__(self, n_inputs, n_hidden=32):
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(n_inputs, n_hidden), nn.Softplus(), nn.Dropout(0.1))
        self.output = nn.Linear(n_hidden, 1)
        self.straight = nn.Linear(n_inputs, 1)

    def forward(self, x):
        """Logits, one per row."""
        return (self.output(self.hidden(x)) + self.straight(x)).squeeze(-1)


def train(X, y, codes, financial, cec_weight, epochs):
    torch.manual_seed(0)
    pairs = eh.match_pairs(X[list(financial)], y, codes)  # with two groups: one row per person, in order
    cells = eh.label_group_baselines(X, y, codes)  # (labels, groups, columns)

    inputs = torch.tensor(X.to_numpy(), dtype=torch.float32)
    matches = inputs[torch.as_tensor(pairs.match.clip(min=0))]
    is_matched = torch.as_tensor(pairs.is_matched, dtype=torch.float32)
    baselines = torch.tensor(cells[y, codes], dtype=torch.float32)
    labels = torch.tensor(y, dtype=torch.float32)

    model = SkipNetwork(inputs.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(inputs)).split(128):
            optimizer.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(model(inputs[rows]), labels[rows])
            if cec_weight:
                term = eh.cec_loss(
                    model, inputs[rows], matches[rows], baselines[rows], n_steps=4, weight=is_matched[rows]
                )
                loss = loss + cec_weight * term
            loss.backward()
            optimizer.step()
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--weights", type=float, nargs="+", default=[0.0, 0.1, 0.3])
    options = parser.parse_args()

    torch.set_num_threads(1)  # operations this small are slower when shared between cores
    data = eh.load_dataset("german")
    codes = (data.group == "male").astype(int)
    rows, left = train_test_split(np.arange(len(data)), test_size=0.3, random_state=0)
    # A bare module takes numbers: categories become standardized integer codes, column by column.
    encoder = eh.TableEncoder.fit(data.X.iloc[rows], "ordinal")
    X = pd.DataFrame(encoder.transform(data.X), columns=encoder.encoded_names)

    print("CEC weight    CEC  input gap  reasoning gap    AUC  positive rate")
    for weight in options.weights:
        model = train(X.iloc[rows], data.y[rows], codes[rows], data.financial_features, weight, options.epochs)
        found = eh.audit(
            model,
            X.iloc[left],
            data.y[left],
            sensitive_features=data.group[left],
            financial_features=data.financial_features,
            reference=(X.iloc[rows], data.y[rows], data.group[rows]),
            options=eh.AuditOptions(n_steps=16),
            evidence=False,
        ).to_dict()
        cec, outcome = found["cec"], found["outcome"]
        print(
            f"{weight:10g}  {cec['mean']:.3f}  {cec['input_gap']:9.3f}  {cec['reasoning_gap']:13.3f}  "
            f"{outcome['auc']:.3f}  {outcome['positive_rate']:13.1%}"
        )
    print(f"Attributions of this module: {found['data']['attribution_method']}, by automatic differentiation.")


if __name__ == "__main__":
    main()
