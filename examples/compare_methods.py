"""Audit three ways to train on the same people: a plain network and two of the methods that the paper compares.

    python examples/compare_methods.py

All three are trained on the same people and audited on the same held-out pairs, so you can compare their metrics.
Differences between rows that are smaller than the width of the intervals are noise. A single training run of each is
only an illustration; `evenhand reproduce` repeats folds and seeds. The Lagrangian needs the extra `methods`.
"""

import argparse
import warnings

from sklearn.model_selection import train_test_split

import evenhand as eh
from evenhand.research.methods import NetworkSettings, make_method


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--methods", nargs="+", default=["unconstrained", "lagrangian", "adversarial"])
    options = parser.parse_args()

    data = eh.load_dataset("german")
    X, X_test, y, y_test, sex, sex_test = train_test_split(data.X, data.y, data.group, test_size=0.3, random_state=0)
    settings = NetworkSettings(epochs=options.epochs, encoding="onehot")

    print(f"German Credit, {len(X_test)} held-out people")
    print(f"{'method':14}    CEC  excess  95% interval      EO gap    AUC  positive rate")
    for name in options.methods:
        method = make_method(name, settings, data.financial_features)
        method.fit(X, y, sensitive_features=sex)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", eh.EvenhandWarning)  # (almost) constant decisions show in the last column
            result = eh.audit(
                method,
                X_test,
                y_test,
                sensitive_features=sex_test,
                financial_features=data.financial_features,
                reference=(X, y, sex),
            )
        found = result.to_dict()
        cec, outcome = found["cec"], found["outcome"]
        low, high = cec["excess_ci"]
        print(
            f"{name:14}  {cec['mean']:.3f}  {cec['excess']:6.3f}  {low:6.3f} to {high:5.3f}  "
            f"{outcome['eo_gap']:10.3f}  {outcome['auc']:.3f}  {outcome['positive_rate']:13.1%}"
        )
    print("Methods that act on decisions may leave the reasons as they were: compare the columns, not one of them.")


if __name__ == "__main__":
    main()
