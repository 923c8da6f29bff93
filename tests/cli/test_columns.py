"""`--columns`: the order of a model's inputs, where the model has no names for them."""

import json

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

pytestmark = pytest.mark.filterwarnings("ignore::evenhand.EvenhandWarning")
ROLES = ("--label", "paid", "--group", "sex", "--financial", "income", "--trust-pickle", "--no-evidence")


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {"Loan amount": rng.normal(size=300), "income": rng.normal(size=300), "age": rng.normal(40, 9, 300)}
    )
    paid = (X["income"] - X["Loan amount"] + rng.normal(size=300) > 0).astype(int)
    return X, paid, X.assign(paid=paid, sex=rng.choice(["f", "m"], 300))


@pytest.fixture
def saved(tmp_path, people):
    """A table, and a model that was fitted on an array of its columns in the given order."""
    X, paid, table = people
    table.to_csv(tmp_path / "people.csv", index=False)

    def save(model, order=("income", "age", "Loan amount")):
        joblib.dump(model.fit(X[list(order)].to_numpy(), paid), tmp_path / "model.pkl")
        return (str(tmp_path / "people.csv"), *ROLES, "--model", str(tmp_path / "model.pkl"), "--out", str(tmp_path))

    return save


@pytest.fixture
def run(evenhand):
    """Runs an audit; returns its exit code, and all it printed on one line."""

    def asked(*arguments):
        code, out, err = evenhand("audit", *arguments)
        return code, " ".join((out + err).split())

    return asked


def auc_in(folder):
    return json.loads((folder / "audit.json").read_text())["outcome"]["auc"]


def test_a_model_without_names_needs_the_order(saved, run, tmp_path):
    asked = saved(LogisticRegression())
    code, said = run(*asked)
    assert code == 2
    assert "no names for its inputs" in said
    assert "--columns as-is" in said
    assert run(*asked, "--columns", "income,age,Loan amount")[0] == 0
    right = auc_in(tmp_path)
    code, said = run(*asked, "--columns", "as-is", "--favorable", "high")
    assert code == 0
    assert auc_in(tmp_path) != right
    assert "in the order of the columns: 'Loan amount', 'income', 'age'" in said


def test_an_order_that_statistics_settle_is_not_asked_for(saved, run):
    scaled = make_pipeline(StandardScaler(), LogisticRegression())
    code, said = run(*saved(scaled, ("income", "Loan amount", "age")))
    assert code == 2
    assert "tells 'Loan amount', 'income' apart" in said
    code, said = run(*saved(scaled, ("income", "age")), "--drop", "Loan amount")
    assert code == 0, said


def test_fewer_inputs_than_columns_are_one_sentence(saved, run):
    code, said = run(*saved(LogisticRegression(), ("income", "age")))
    assert code == 2
    assert "takes 2 inputs and has no names for them, but the table has 3 columns" in said
    assert run(*saved(LogisticRegression(), ("income", "age")), "--columns", "income,age")[0] == 0


def test_batches_need_the_order_too(saved, run, tmp_path):
    asked = (*saved(LogisticRegression()), "--stream")
    assert "--columns as-is" in run(*asked)[1]
    assert run(*asked, "--columns", "income,age,Loan amount")[0] == 0


def test_underscores_of_a_lightgbm_file_stand_for_spaces(people, run, tmp_path):
    lightgbm = pytest.importorskip("lightgbm")
    X, paid, table = people
    table.to_csv(tmp_path / "people.csv", index=False)
    model = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1).fit(
        X.rename(columns={"Loan amount": "Loan_amount"}), paid
    )
    model.booster_.save_model(tmp_path / "model.txt")
    files = ("--model", str(tmp_path / "model.txt"), "--out", str(tmp_path / "audit"))
    code, said = run(str(tmp_path / "people.csv"), *ROLES, *files)
    assert code == 0, said
