"""What is noticed about one column, and what is not: false alarms cost as much as misses."""

import numpy as np
import pandas as pd
import pytest

from evenhand.exceptions import EvenhandWarning, InvalidInputError
from evenhand.inputs.checking import check_column
from evenhand.inputs.people import Columns, without_unfit


def kinds(values, name="column"):
    return [sign.kind for sign in check_column(pd.Series(values), name).signs]


N = 200
RNG = np.random.default_rng(0)
DAYS = pd.date_range("2019-01-31", periods=N, freq="D")


@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("Unnamed: 0", np.arange(N), "saved index"),
        ("Unnamed: 0", RNG.permutation(10 * N)[:N], "saved index"),  # a part of a shuffled table
        ("anything", np.arange(1, N + 1), "saved index"),
        ("application_id", RNG.permutation(10**6)[:N], "id"),
        ("loanNumber", RNG.permutation(10**6)[:N] + 0.0, "id"),
        ("anything", RNG.permutation(N) + 7, "id"),
        ("customer", [f"C-{k:05}" for k in range(N)], "id"),
        ("mail", [f"p{k}@example.org" for k in range(N)], "id"),
        ("opened", DAYS, "date"),
        ("opened", DAYS.strftime("%Y-%m-%d"), "date"),
        ("opened", DAYS.strftime("%m/%d/%Y"), "date"),
        ("opened", DAYS.strftime("%d.%m.%y"), "date"),
        ("opened", DAYS.strftime("%b-%Y"), "date"),
        ("opened", DAYS.strftime("%Y-%m-%d %H:%M:%S"), "date"),
        ("opened", DAYS.strftime("%Y%m%d").astype(int), "date"),
        ("date_opened", np.arange(43_000, 43_000 + N) + RNG.integers(0, 2, N), "date"),  # of a spreadsheet
        ("balance", [f"${k},{k:03}" for k in range(1, N + 1)], "text number"),
        ("ltv", [*(f"{k / 7:.2f}" for k in range(N)), "Exempt", "Exempt"], "text number"),
        ("remarks", [f"asks for more time, {'abcdefghij'[k % 10]} {k}" for k in range(N)], "free text"),
        ("flag", np.zeros(N), "constant"),
        ("flag", [None] * N, "constant"),
        ("flag", np.r_[np.zeros(999), 1], "almost constant"),
        ("flag", [1.0, 2.0, *[np.nan] * N], "mostly missing"),
        ("denial_reason-1", RNG.integers(1, 9, N), "known after the decision"),
        ("rate_spread", RNG.normal(size=N), "known after the decision"),
        ("TotalPymnt", RNG.normal(size=N), "known after the decision"),
    ],
)  # fmt: skip
def test_what_is_no_plain_input_is_noticed(name, values, kind):
    assert kinds(values, name) == [kind]


@pytest.mark.parametrize("code", [-999, -1, -9, 9_999_999, 999_999, -99_999])
def test_codes_among_amounts_are_noticed(code):
    amounts = RNG.lognormal(10, 0.5, 1_000).round()
    amounts[::50] = code
    (sign,) = check_column(pd.Series(amounts), "income").signs
    assert sign.kind == "sentinel"
    assert f"{code} in 20 rows" in sign.clause


def test_codes_at_both_ends_and_next_to_each_other_are_all_noticed():
    scores = np.r_[RNG.integers(300, 850, 500), [-999] * 10, [9_999] * 7, [9_998] * 4]
    (sign,) = check_column(pd.Series(scores), "score").signs
    assert all(f"{code} in {n} rows" in sign.clause for code, n in ((-999, 10), (9_999, 7), (9_998, 4)))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("income", RNG.lognormal(10, 1.5, 5_000).round(-2)),  # a long tail is no code
        ("income", np.r_[np.zeros(4_000), RNG.lognormal(10, 0.3, 1_000).round()]),  # zero is an amount
        ("hours", np.r_[RNG.integers(1, 99, 1_000), [99] * 30]),
        ("account_age", RNG.integers(18, 100, 1_000)),
        ("change", RNG.integers(-3, 9, 1_000)),
        ("months_late", RNG.choice([-2, -1, 0, 1, 2, 8], 1_000)),
        ("rate", RNG.normal(size=N)),  # every value occurs once
        ("loan_amount", RNG.permutation(10**6)[:N]),
        ("account_balance", RNG.permutation(10**6)[:N]),
        ("year", RNG.integers(1990, 2024, N)),
        ("paid_amount", RNG.integers(1, 500, N)),
        ("postal_code", [f"0{k}" for k in range(1000, 1000 + N)] * 2),
        ("range", RNG.choice(["25-34", "35-44", "45-54", ">74"], N)),
        ("grade", pd.Categorical([str(k) for k in RNG.integers(0, 20, N)])),
        ("purpose", RNG.choice(["car", "home", "1-4 units"], N)),
        ("interest_rate", RNG.normal(5, 1, N)),  # an input of many models of default
        ("update_count", RNG.integers(0, 30_000, N)),
    ],
)
def test_plain_inputs_are_left_in_peace(name, values):
    assert kinds(values, name) == []


def test_a_few_rows_tell_nothing():
    assert kinds([1, 2, 3, 4, 5], "amount") == []


def test_the_type_the_range_and_the_common_values_are_told():
    found = check_column(pd.Series(["b", "a", "b", None]), "housing")
    assert (found.kind, found.n_missing, found.n_distinct, found.holds) == ("text", 1, 2, "b, a")
    found = check_column(pd.Series([1.5, -1200.0, 3]), "balance")
    assert (found.kind, found.holds) == ("number", "-1,200 to 3")
    assert check_column(pd.Series([True, False]), "flag").kind == "yes or no"
    assert check_column(pd.Series([1, None], dtype="Int64"), "n").kind == "whole number"


TABLE = pd.DataFrame(
    {
        "Unnamed: 0": np.arange(60),
        "loan_id": np.arange(60) * 7 % 61 + 1000,
        "opened": pd.date_range("2020-01-01", periods=60).strftime("%Y-%m-%d"),
        " income ": np.arange(60) % 13 + 0.5,
    }
)
COLUMNS = Columns(label="paid", group=("sex",), features=tuple(TABLE.columns))


def test_they_are_left_out_with_a_sentence():
    with pytest.warns(EvenhandWarning, match="Left out of the inputs: 'Unnamed: 0' .*'loan_id' .*'opened'") as caught:
        columns, sentences = without_unfit(COLUMNS, TABLE, asked=(), is_named=False)
    assert columns.features == (" income ",)
    assert sentences == (str(caught[0].message),)


def test_what_is_asked_for_by_name_stays():
    columns, sentences = without_unfit(COLUMNS, TABLE, asked=("Unnamed: 0", "loan_id", "opened"), is_named=True)
    assert columns == COLUMNS
    assert sentences == ()


def test_a_model_that_needs_one_is_refused():
    with pytest.raises(InvalidInputError, match=r"The model uses .*'opened' \(date: .*`keep_inputs` \(--keep-inputs\)"):
        without_unfit(COLUMNS, TABLE, asked=("Unnamed: 0",), is_named=True)
