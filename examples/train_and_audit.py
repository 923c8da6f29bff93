"""Train with and without the paper's CEC term, audit both on held-out people, and look at what it cost.

    python examples/train_and_audit.py

On German Credit, a large weight on the term makes the decisions (almost) constant; the defaults of `CECClassifier` do
not. Always read the positive rate and the AUC together with the other metrics.
"""

import argparse
import tempfile
import warnings
from pathlib import Path

from sklearn.model_selection import train_test_split

import evenhand as eh


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--weights", type=float, nargs="+", default=[0.0, 0.1, 0.3, 1.0])
    options = parser.parse_args()

    data = eh.load_dataset("german")
    financial = data.financial_features
    X, X_test, y, y_test, sex, sex_test = train_test_split(data.X, data.y, data.group, test_size=0.3, random_state=0)

    print(f"German Credit: {len(X)} people to learn from, {len(X_test)} to audit; {y_test.mean():.1%} are good credit.")
    print("weight    CEC  reasoning gap  regime B    AUC  positive rate  EO gap")
    remarks = []
    for weight in options.weights:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", eh.EvenhandWarning)
            model = eh.CECClassifier(
                financial_features=financial,
                objective="cec",
                cec_weight=weight,
                equalized_odds_weight=weight,
                least_explained=0,
                epochs=options.epochs,
            )
            model.fit(X, y, sensitive_features=sex)
        remarks += [f"weight {weight:g}: {warning.message}" for warning in caught]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", eh.EvenhandWarning)  # the fit has said it already
            found = eh.audit(
                model,
                X_test,
                y_test,
                sensitive_features=sex_test,
                financial_features=financial,
                reference=(X, y, sex),
                evidence=False,  # no noise floor is needed to compare models on the same pairs
            ).to_dict()
        cec, outcome = found["cec"], found["outcome"]
        print(
            f"{weight:6g}  {cec['mean']:.3f}  {cec['reasoning_gap']:13.3f}  {found['regimes']['B']:8.1%}  "
            f"{outcome['auc']:.3f}  {outcome['positive_rate']:13.1%}  {outcome['eo_gap']:6.3f}"
        )
    for remark in remarks:
        print(f"! {remark}")

    with tempfile.TemporaryDirectory() as folder:
        path = model.save(Path(folder) / "model")
        again = eh.CECClassifier.load(path)
        same = bool((again.predict_proba(X_test) == model.predict_proba(X_test)).all())
        print(f"The last model, saved ({path.stat().st_size:,} bytes) and loaded again, gives the same scores: {same}.")


if __name__ == "__main__":
    main()
