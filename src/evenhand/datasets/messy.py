"""A spreadsheet of loan applications as somebody might export it, and the model of its lender, to try an audit on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from evenhand.system.files import write_atomically

_NUMBERS = ["income", "loan_amount", "debt_ratio", "credit_score", "months_employed"]


def save_messy(folder: Path, n_people: int = 1_200) -> tuple[Path, Path]:
    """Write ``applications.csv`` and ``model.skops`` to a folder, and return their paths.

    The table was saved with its index. It has an id, a date, amounts with a dollar sign, ratios with a percent sign,
    -999 for unknown credit scores, a group spelled in two ways, ages, and a fee that is known only after a loan has
    failed. The model, a logistic regression fitted on other applications, sees neither sex nor age.

    Examples
    --------
    >>> import tempfile
    >>> table, model = save_messy(Path(tempfile.mkdtemp()), 300)
    >>> sorted(pd.read_csv(table)["sex"].dropna().unique()), model.name
    (['Female', 'Male', 'female '], 'model.skops')
    """
    from skops import io as skops_io

    table, model = folder / "applications.csv", folder / "model.skops"
    with write_atomically(table) as temporary:
        _messy(_applications(n_people, seed=0), seed=0).to_csv(temporary)
    with write_atomically(model) as temporary:
        skops_io.dump(_fitted_model(), temporary)
    return table, model


def _applications(n: int, seed: int) -> pd.DataFrame:
    """Clean applications, before anyone typed them into a spreadsheet."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["Female", "Male"], n)
    income = rng.lognormal(10.5, 0.4, n).round(-2)
    loan = (income * rng.uniform(0.1, 0.8, n)).round(-2)
    debt = rng.uniform(2, 55, n).round(1)
    score = np.clip(rng.normal(680, 60, n), 300, 850).round()
    months = rng.gamma(2, np.where(sex == "Female", 20, 30)).round()
    logit = 0.9 * np.log(income / loan) - debt / 30 + (score - 680) / 50 + months / 60 - 0.3
    columns = {"income": income, "loan_amount": loan, "debt_ratio": debt, "credit_score": score.astype(int)}
    return pd.DataFrame(
        {
            **columns,
            "months_employed": months.astype(int),
            "home": rng.choice(["own", "rent", "other"], n, p=[0.4, 0.5, 0.1]),
            "age": np.clip(rng.normal(42, 14, n), 19, 80).astype(int),
            "sex": sex,
            "repaid": np.where(rng.random(n) < 1 / (1 + np.exp(-logit)), "yes", "no"),
        }
    )


def _messy(people: pd.DataFrame, seed: int) -> pd.DataFrame:
    """The same people as a spreadsheet has them."""
    rng = np.random.default_rng(seed)
    n = len(people)
    table = people.copy()
    table.insert(0, "application_id", rng.permutation(900_000)[:n] + 100_000)
    table.insert(1, "received", pd.date_range("2025-01-02", periods=n, freq="4h").strftime("%d/%m/%Y"))
    table["collection_fee"] = np.where(people["repaid"] == "yes", 0.0, rng.uniform(20, 400, n).round(2))
    table.loc[rng.choice(n, n // 40, replace=False), "credit_score"] = -999
    women = np.flatnonzero(people["sex"] == "Female")
    table.loc[rng.choice(women, n // 30, replace=False), "sex"] = "female "
    table.loc[rng.choice(n, n // 100, replace=False), "sex"] = None
    for name in ("income", "loan_amount"):
        table[name] = [f"${value:,.0f}" for value in people[name]]
    table["debt_ratio"] = [f"{value}%" for value in people["debt_ratio"]]
    return table


def _fitted_model() -> Pipeline:
    """What the lender uses: a logistic regression that was fitted on past applications."""
    past = _applications(4_000, seed=1)
    encoder = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), _NUMBERS), (OneHotEncoder(), ["home"])
    )
    model: Pipeline = make_pipeline(encoder, LogisticRegression())
    return model.fit(past[[*_NUMBERS, "home"]], past["repaid"] == "yes")
