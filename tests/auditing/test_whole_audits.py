"""Whole audits, as JSON: what must not change does not, and extreme tables are answered or refused in a sentence."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import evenhand as eh
from evenhand.exceptions import EvenhandError

pytestmark = pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")

FINANCIAL = ["income", "debt"]
ANSWERS = ("score_gap", "cec", "regimes", "outcome", "findings")


def people(n=200, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(rng.normal(size=(n, 3)), columns=[*FINANCIAL, "age"])
    group = np.where(rng.random(n) < 0.5, "f", "m")
    label = (table["income"] - table["debt"] + 0.5 * (group == "f") + rng.normal(size=n) > 0).astype(int).to_numpy()
    return table, label, group


def fitted(table, label):
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(table, label)


def audited(table, label, group, model=None, **options):
    model = fitted(table, label) if model is None else model
    result = eh.audit(model, table, label, sensitive_features=group, financial_features=FINANCIAL, **options)
    return json.loads(json.dumps(result.to_dict(), default=str))


def streamed(table, label, group, model, folder, batch_rows, engine="threads"):
    table.assign(paid=label, sex=group).to_parquet(folder / "people.parquet")
    result = eh.audit_stream(
        model,
        folder / "people.parquet",
        label="paid",
        group="sex",
        financial_features=FINANCIAL,
        out=folder / "out",
        batch_rows=batch_rows,
        engine=engine,
        n_jobs=2,
    )
    return json.loads(json.dumps(result.to_dict(), default=str))


def numbers(value, path=""):
    """Every number of the answers, by its place."""
    if isinstance(value, dict):
        return {k: v for key, part in value.items() for k, v in numbers(part, f"{path}/{key}").items()}
    if isinstance(value, list):
        return {k: v for key, part in enumerate(value) for k, v in numbers(part, f"{path}/{key}").items()}
    return {path: value} if isinstance(value, float) and not isinstance(value, bool) else {}


def assert_same(first, second):
    one, two = (numbers({key: summary[key] for key in ANSWERS}) for summary in (first, second))
    assert one
    assert one.keys() == two.keys()
    differing = {
        path: (value, two[path])
        for path, value in one.items()
        if not math.isclose(value, two[path], rel_tol=1e-6, abs_tol=1e-9)
        and not (math.isnan(value) and math.isnan(two[path]))
    }
    assert not differing


# What depends on who is drawn: placebo pairs, shuffles and folds are drawn by the content of a row, units and all.
DRAWN = ("probability", "decision", "excess", "placebo", "standard_error", "detectable", "low", "high", "ci")
ERROR = 0.02


def assert_alike(first, second, near=1e-6):
    """The same but for draws, whose numbers are near, and the same answers."""
    places = ("score_gap", "cec", "regimes", "outcome")
    one, two = (numbers({key: summary[key] for key in places}) for summary in (first, second))
    assert one.keys() == two.keys()
    for path, value in one.items():
        if "p_value" in path:  # the answers are compared
            continue
        error = ERROR if any(name in path for name in DRAWN) else near
        assert math.isnan(value) or math.isclose(value, two[path], rel_tol=near, abs_tol=error), path
    answers = [[(finding["key"], finding["answer"]) for finding in summary["findings"]] for summary in (first, second)]
    assert answers[0] == answers[1]


def test_shuffled_rows_change_no_answer():
    table, label, group = people()
    order = np.random.default_rng(1).permutation(len(table))
    model = fitted(table, label)
    first = audited(table, label, group, model)
    assert_same(first, audited(table.iloc[order].reset_index(drop=True), label[order], group[order], model))


def test_other_names_of_groups_change_no_number():
    table, label, group = people()
    renamed = audited(table, label, np.where(group == "f", "ffff", "mmmm"))  # in the same order
    assert_same(audited(table, label, group), json.loads(json.dumps(renamed).replace("ffff", "f").replace("mmmm", "m")))


def without(summary, *names):
    """The answers but for what they say of some columns."""
    if isinstance(summary, dict):
        return {key: without(part, *names) for key, part in summary.items() if key not in names}
    if isinstance(summary, list):
        kept = [part for part in summary if not (isinstance(part, dict) and set(names) & set(map(str, part.values())))]
        return [without(part, *names) for part in kept]
    return summary


@pytest.mark.parametrize(("unit", "other"), [(1000.0, 0.01), (1e-9, 1e12)])
def test_other_units_change_no_answer_of_a_model_fitted_again(unit, other):
    table, label, group = people()
    in_units = table.assign(income=table["income"] * unit, debt=table["debt"] * other, age=table["age"] * 365.25)
    assert_alike(audited(table, label, group), audited(in_units, label, group))


@pytest.mark.parametrize("value", [0.0, 7.5, "EUR"])
def test_a_column_that_says_nothing_changes_no_answer(value):
    table, label, group = people()
    model = fitted(table, label)
    names = list(table)

    def of_these(people):
        return model.predict_proba(people[names])[:, 1]

    first = audited(table, label, group, of_these)
    assert_alike(first, without(audited(table.assign(currency=value), label, group, of_these), "currency"))


def test_a_feature_that_comes_twice_changes_no_answer_but_its_own():
    """Two columns share what one weighed."""
    table, label, group = people()
    alone = make_pipeline(StandardScaler(), LogisticRegression(C=1e9, tol=1e-10)).fit(table, label)
    twice = table.assign(age_again=table["age"])
    both = make_pipeline(StandardScaler(), LogisticRegression(C=1e9, tol=1e-10)).fit(twice, label)
    first, second = (
        without(audited(columns, label, group, model, n_steps=16), "age", "age_again")
        for columns, model in ((table, alone), (twice, both))
    )
    assert_alike(first, second, near=1e-3)


@pytest.mark.parametrize("batch_rows", [37, 100, 1000])
def test_any_size_of_batches_gives_the_same_json(tmp_path, batch_rows):
    table, label, group = people()
    model = fitted(table, label)
    assert_same(audited(table, label, group, model), streamed(table, label, group, model, tmp_path, batch_rows))


@pytest.mark.slow  # Spark, and Dask with files of its own: tests/auditing/streaming/test_spark.py and test_dask.py
@pytest.mark.parametrize("engine", ["processes", "dask"])
def test_any_engine_gives_the_same_json(tmp_path, engine):
    if engine == "dask":
        pytest.importorskip("distributed")
    table, label, group = people()
    model = fitted(table, label)
    found = streamed(table, label, group, model, tmp_path, 60, engine)
    assert_same(audited(table, label, group, model), found)


def score(table):
    return 1 / (1 + np.exp(-np.clip(table["income"].to_numpy(dtype=float), -30, 30)))


EXTREMES = {
    "numbers near the largest": lambda table: table.assign(
        income=table["income"] / table["income"].abs().max() * 1e308
    ),
    "numbers of every size": lambda table: table.assign(income=10.0 ** np.linspace(-300, 140, len(table))),
    "two thousand features": lambda table: pd.concat(
        [table, pd.DataFrame(np.random.default_rng(3).normal(size=(len(table), 2_000))).add_prefix("x")], axis=1
    ),
    "denormal numbers": lambda table: table.assign(income=table["income"] * 5e-310),
    "ten thousand levels": lambda table: table.assign(code=[f"c{k}" for k in range(len(table))]),
    "dates": lambda table: table.assign(day=pd.Timestamp("2024-01-01")),
    "missing booleans": lambda table: table.assign(
        owner=pd.array(np.resize([True, False, None], len(table)), dtype="boolean")
    ),
    "one row": lambda table: table[:1],
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if "features" in name else ()) for name in EXTREMES]
)
def test_extreme_tables_are_answered_or_refused_in_a_sentence(name):
    table, label, group = people(10_000 if "levels" in name else 120)
    table = EXTREMES[name](table)
    try:
        found = audited(table, label[: len(table)], group[: len(table)], score, evidence=False)
    except EvenhandError as error:
        told = str(error)
    else:
        told = f"{found['data']['n_people']} people."
    assert told.endswith((".", "?"))


def test_five_hundred_groups_are_refused():
    table, label, _ = people(1500)
    with pytest.raises(EvenhandError, match="has 500 groups"):
        audited(table, label, [f"g{k % 500}" for k in range(1500)], score, evidence=False)


def test_ids_beyond_the_exact_integers_stay_apart():
    table, label, group = people(120)
    ids = [2**53 + k for k in range(120)]
    result = eh.audit(
        score, table, label, sensitive_features=group, financial_features=FINANCIAL, ids=ids, evidence=False
    )
    assert result.pairs["person_id"].nunique() == 120
