"""Audit more than two groups at once: the intersection of sex and race in Adult.

    python examples/many_groups.py

Each person is compared with the nearest person from every other group, so nine other groups make nine pairs per person.
Small groups are the point and the problem: a match in a group of thirty people is far away and serves many others.
That is why the table shows distances and sizes beside the scores.
"""

import argparse
import warnings

import numpy as np

import evenhand as eh


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--people", type=int, default=3_000)
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()

    data = eh.load_dataset("adult")
    rows = np.random.default_rng(0).permutation(len(data))[: 2 * options.people]
    train, test = rows[: options.people], rows[options.people :]
    protected = data.X[["sex", "race"]].astype(str)
    X = data.X.drop(columns=["sex", "race", "fnlwgt"])  # the model sees neither; fnlwgt is a survey weight

    model = eh.CECClassifier(
        financial_features=data.financial_features, cec_weight=0, equalized_odds_weight=0, epochs=options.epochs
    )
    model.fit(X.iloc[train], data.y[train], sensitive_features=protected.iloc[train])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", eh.EvenhandWarning)  # printed below with the others
        result = eh.audit(
            model,
            X.iloc[test],
            data.y[test],
            sensitive_features=protected.iloc[test],  # two columns: their intersection
            financial_features=data.financial_features,
            reference=(X.iloc[train], data.y[train], protected.iloc[train]),
        )

    by_group = result.pairs.groupby("group").agg(
        people=("person", "nunique"),
        pairs=("cec", "count"),
        median_distance=("distance", "median"),
        cec=("cec", "mean"),
        reasoning_gap=("reasoning_gap", "mean"),
        flips=("regime", lambda regimes: regimes.isin(["C", "D"]).mean()),
    )
    print(by_group.sort_values("people", ascending=False).round(3).to_string())
    pairs = result.pairs[result.pairs["match"] >= 0]
    reuse = pairs.groupby("other_group")["match"].agg(lambda rows: len(rows) / rows.nunique())
    print("\nHow many people each match serves, on average, by the group it comes from:")
    print(reuse.sort_values(ascending=False).round(1).to_string())
    worst = result.evidence.worst_pair
    if worst is not None:
        found = worst.estimate
        print(
            f"\nStrongest evidence of an excess: {worst.value}, {found.value:.3f} ({found.low:.3f} to "
            f"{found.high:.3f}), p = {worst.p_adjusted:.3f} after adjusting for the number of pairs of groups."
        )
    for warning in result.warnings:
        print(f"! {warning}")


if __name__ == "__main__":
    main()
