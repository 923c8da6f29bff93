"""A messy export of loan applications and a saved model: what `evenhand check` says about them before an audit.

    python examples/messy_spreadsheet.py
    python examples/messy_spreadsheet.py --out messy   # also keeps the files, for the page "Your first audit"

The export was saved with its index. It has an id, a date, -999 for missing credit scores, a group spelled in two ways,
and a fee that is known only after a loan has failed.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import evenhand as eh

NUMBERS = ["income", "loan_amount", "credit_score", "months_employed"]


def applications(n, seed):
    """Clean applications, before anyone typed them into a spreadsheet."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["Female", "Male"], n)
    income = rng.lognormal(10.5, 0.4, n).round(-2)
    loan = (income * rng.uniform(0.1, 0.8, n)).round(-2)
    score = np.clip(rng.normal(680, 60, n), 300, 850).round()
    months = rng.gamma(2, np.where(sex == "Female", 20, 30)).round()
    home = rng.choice(["own", "rent", "other"], n, p=[0.4, 0.5, 0.1])
    logit = 0.9 * np.log(income / loan) + (score - 680) / 50 + months / 60 - 1.2
    repaid = rng.random(n) < 1 / (1 + np.exp(-logit))
    return pd.DataFrame(
        {
            "income": income,
            "loan_amount": loan,
            "credit_score": score,
            "months_employed": months,
            "home": home,
            "sex": sex,
            "repaid": np.where(repaid, "yes", "no"),
        }
    )


def messy(people, seed):
    """The same people as a spreadsheet has them."""
    rng = np.random.default_rng(seed)
    n = len(people)
    table = people.copy()
    table.insert(0, "application_id", rng.permutation(900_000)[:n] + 100_000)
    table.insert(1, "received", pd.date_range("2025-01-02", periods=n, freq="4h").strftime("%d/%m/%Y"))
    table["collection_fee"] = np.where(people["repaid"] == "yes", 0.0, rng.uniform(20, 400, n).round(2))
    table.loc[rng.choice(n, n // 40, replace=False), "credit_score"] = -999
    table.loc[rng.choice(n, n // 30, replace=False), "sex"] = "female "
    table.loc[rng.choice(n, n // 100, replace=False), "sex"] = None
    return table


def fitted_model():
    """What the lender uses: a logistic regression that was fitted on past applications."""
    past = applications(4_000, seed=1)
    encoder = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), NUMBERS), (OneHotEncoder(), ["home"])
    )
    return make_pipeline(encoder, LogisticRegression()).fit(past[[*NUMBERS, "home"]], past["repaid"] == "yes")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--people", type=int, default=1_200)
    parser.add_argument("--out", type=Path, default=None, help="folder that keeps applications.csv and model.skops")
    options = parser.parse_args()

    table = messy(applications(options.people, seed=0), seed=0)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if options.out is None else options.out
        folder.mkdir(parents=True, exist_ok=True)
        table.to_csv(folder / "applications.csv", index_label="Unnamed: 0")
        found = eh.check(pd.read_csv(folder / "applications.csv"), source="applications.csv")
        print(found)
        if options.out is not None:
            import skops.io

            skops.io.dump(fitted_model(), folder / "model.skops")
            print(f"\nKept: {folder / 'applications.csv'}, {folder / 'model.skops'}")


if __name__ == "__main__":
    main()
