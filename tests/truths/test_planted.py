"""Planted models: what an audit must say where the truth is known by hand.

In every table, the favorable score is a sum `finances + sum(inputs)` of columns that the test itself made, or it is
given. The truth is arithmetic on these columns: a gap is a difference of two means, and what is decided about a person
with the inputs of j and the finances of i follows from `finances[i] + inputs[j]`. Nothing of the package computes it.

Tolerances: four standard errors, as the table gives them by hand; where an input is a function of the group alone,
there is nothing random in its gap, and what is left is the rounding of single precision, 1e-6.
"""

import json
import re
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from typer.testing import CliRunner

import evenhand as eh
from evenhand import cli
from evenhand.inputs import people as eh_people

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore::evenhand.EvenhandWarning")]

ROUNDING = 1e-6
FINANCES = ["income", "debt"]


# --- tables and models ---


def applicants(n=800, seed=0, share=0.45):
    """People whose groups say nothing about finances."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"income": rng.normal(size=n), "debt": rng.normal(size=n), "tenure": rng.normal(size=n)})
    table["sex"] = np.where(rng.permutation(n) < round(share * n), "f", "m")
    table["female"] = (table["sex"] == "f").astype(float)
    table["good"] = (table["income"] - table["debt"] + rng.logistic(size=n) > 0).astype(int)
    return table, rng


def linear(table, weights, label="good", intercept=0.0, kind=LogisticRegression):
    """A fitted model with the weights that are planted."""
    names = list(weights)
    target = table[label] if kind is LogisticRegression else table[names[0]]
    model = kind().fit(table[names], target)
    model.coef_ = np.array(list(weights.values()), dtype=float).reshape(model.coef_.shape)
    model.intercept_ = np.full_like(model.intercept_, intercept)
    return model


def behind_a_function(X):
    """Probabilities of a model that nobody sees: income, debt, tenure, female."""
    X = np.asarray(X, dtype=float)
    return expit(0.2 + X[:, 0] - X[:, 1] + 0.2 * X[:, 2] - 0.4 * X[:, 3])


# --- truths ---


@dataclass
class Planted:
    """A model with what is known of it.

    `finances` and `inputs` sum to the favorable score; `cut_off` is the score from which on people are approved, None
    if there are no decisions, or they are `approved`, which are then actual ones. `told` is the sentence about the gap.
    """

    table: pd.DataFrame
    told: str
    model: Any = None
    finances: Any = 0.0
    inputs: dict[str, Any] = field(default_factory=dict)
    features: list[str] | None = None
    group: list[str] = field(default_factory=lambda: ["sex"])
    label: str | None = "good"
    weight: Any = None
    applicant: Any = None
    cut_off: float | None = 0.0
    approved: Any = None
    truths: dict[str, tuple[float, float]] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    segments: dict[str, float] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def groups(self):
        return self.table[self.group].astype(str).agg(" & ".join, axis=1).to_numpy()

    @property
    def names(self):
        """The groups, and of several attributes also the values of each: whoever is compared."""
        alone = [sorted(set(self.table[column])) for column in self.group] if len(self.group) > 1 else []
        return [sorted(set(self.groups)), *alone]

    def members(self, name):
        """Whether each person is in a group, or has the value of one of several attributes."""
        return (self.groups == name) | (self.table[self.group] == name).any(axis=1).to_numpy()

    def people(self, values, name):
        """Values of one row per applicant, whether they are in a group, and their weights."""
        frame = pd.DataFrame({"v": np.broadcast_to(values, len(self.table)), "g": self.members(name)})
        frame["w"] = 1.0 if self.weight is None else np.asarray(self.weight)
        if self.applicant is not None:
            frame = frame.groupby(np.asarray(self.applicant)).agg({"v": "mean", "g": "first", "w": "mean"})
        return frame

    def difference(self, values, group, reference):
        """The difference of two means, and its standard error."""
        mean, variance = {}, {}
        for name in (group, reference):
            frame = self.people(values, name)
            own = frame[frame["g"]]
            w = own["w"] / own["w"].sum()
            mean[name] = (w * own["v"]).sum()
            variance[name] = (w**2 * (own["v"] - mean[name]) ** 2).sum()
        return mean[group] - mean[reference], np.sqrt(variance[group] + variance[reference])

    def difference_of(self, answer, group, reference):
        """The gap in what a score leads to: everyone's finances with the inputs of everyone of a group."""
        finances, total = np.broadcast_to(self.finances, len(self.table)), sum(self.inputs.values())
        weight = np.ones(len(self.table)) if self.weight is None else np.asarray(self.weight)
        means, variance = [], 0.0
        for name in (group, reference):
            own = self.members(name)
            inside = answer(finances[:, None] + np.broadcast_to(total, len(finances))[own])
            w = weight[own] / weight[own].sum()
            means.append(inside @ w)
            variance += np.average((inside - means[-1][:, None]) ** 2 @ w, weights=weight) * (w**2).sum()
        effect, spread = means[0] - means[1], weight / weight.sum()
        value = spread @ effect
        return value, np.sqrt(variance + spread**2 @ (effect - value) ** 2)

    def known(self, group, reference):
        """By part of the gap: its truth and the standard error of an estimate."""
        if not self.inputs:
            return self.truths
        parts = {name: self.difference(values, group, reference) for name, values in self.inputs.items()}
        known = {**parts, "total": self.difference(sum(self.inputs.values()), group, reference)}
        if "unit" not in self.options and self.applicant is None:
            known["probability"] = self.difference_of(expit, group, reference)
            if self.cut_off is not None and self.approved is None:
                known["decision"] = self.difference_of(lambda s: s >= self.cut_off, group, reference)
        return known | self.truths


# --- fronts ---


def audited(case, front, folder):
    """The JSON that a front writes."""
    table, out = case.table, folder / front
    features = case.features or [*FINANCES, *case.inputs]
    options = {"financial_features": FINANCES, **case.options}
    roles = {"sample_weight", "decisions", "clusters", "scores", "by"} & set(options)
    if front == "memory":
        positive = options.pop("positive_label", None)
        y = None if case.label is None else table[case.label]
        if positive is not None:
            y = (y.astype(str) == positive).astype(int)
        options |= {name: table[options[name]] for name in roles}
        audit = eh.audit_given if case.model is None else lambda *a, **o: eh.audit(case.model, *a, **o)
        audit(table[features], y, sensitive_features=table[case.group], **options).to_json(out / "audit.json")
    else:
        people = folder / "people.parquet"
        table.to_parquet(people, row_group_size=200)
        if front == "stream":
            options |= {"label": case.label, "group": case.group, "features": features}
            eh.audit_stream(case.model, people, out=out, batch_rows=200, n_jobs=1, **options)
        else:
            used = {*features, *case.group, case.label, *(options[name] for name in roles - {"by"})}
            words = ["--group", ",".join(case.group), "--out", str(out)]
            words += ["--drop", ",".join(set(table) - used - set(options.get("by", ())))]
            words += [] if case.label is None else ["--label", case.label]
            if case.model is not None:
                joblib.dump(case.model, folder / "model.joblib")
                words += ["--model", str(folder / "model.joblib"), "--trust-pickle"]
                words += ["--columns", ",".join(features)] if case.model is behind_a_function else []
            for name, value in options.items():
                flag = {"financial_features": "financial", "decisions": "decision"}.get(name, name).replace("_", "-")
                words += [f"--{flag}", ",".join(value) if isinstance(value, list) else str(value)]
            done = CliRunner().invoke(cli.app, ["audit", str(people), *words])
            if done.exception is not None:
                raise done.exception
    return json.loads((out / "audit.json").read_text("utf-8"))


def numbers(value, path=""):
    """All numbers of plain data by their place."""
    if isinstance(value, dict):
        value = list(value.items())
    elif isinstance(value, list):
        value = list(enumerate(value))
    else:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return {path: value} if is_number else {}
    return {place: number for key, item in value for place, number in numbers(item, f"{path}/{key}").items()}


@pytest.fixture(autouse=True)
def _pages_take_no_time(monkeypatch):
    monkeypatch.setattr(eh.AuditResult, "to_html", lambda _, path, **_options: Path(path).write_text("<html>"))
    monkeypatch.setattr(eh.AuditResult, "to_excel", lambda _, path: Path(path).write_text("sheets"))


# --- the planted models ---

PLANTED = {}


def planted(make):
    PLANTED[make.__name__.replace("_", " ")] = make
    return make


def of_weights(table, told, weights, *, intercept=0.0, **known):
    """A linear model of the log-odds."""
    inputs = {name: weight * table[name].to_numpy() for name, weight in weights.items() if name not in FINANCES}
    finances = intercept + sum(weights[name] * table[name].to_numpy() for name in FINANCES)
    model = known.pop("model", None)
    model = model or linear(table, weights, intercept=intercept)
    return Planted(table, told, model, finances=finances, inputs=inputs, **known)


@planted
def the_group_read_outright():
    table, _ = applicants()
    weights = {"income": 1.0, "debt": -1.0, "tenure": 0.2, "female": -0.3}
    return of_weights(table, "f scores .* log-odds lower than m", weights, intercept=0.1, answers={"inputs": "yes"})


@planted
def the_small_group_is_better_off():
    table, _ = applicants(share=0.2, seed=1)
    weights = {"income": 1.0, "debt": -1.0, "tenure": 0.2, "female": 0.4}
    return of_weights(table, "m scores .* log-odds lower than f", weights)


@planted
def a_stand_in_right_for_80_percent():
    table, rng = applicants(1_200, seed=31)
    table["zone"] = np.where(rng.random(1_200) < 0.8, table["female"], 1 - table["female"])
    return of_weights(table, "f scores .* lower than m", {"income": 1.0, "debt": -1.0, "zone": -0.5})


@planted
def a_scorecard_of_points():
    table, rng = applicants()
    table["income"], table["debt"] = rng.integers(0, 8, 800), rng.integers(0, 8, 800)
    table["phone"] = rng.integers(0, 2, 800)
    weights = {"income": 15, "debt": -11, "phone": 7, "female": -12}
    return of_weights(
        table, "f is .* points worse off than m", weights, intercept=600, cut_off=None,
        model=linear(table, weights, intercept=600, kind=LinearRegression),
        options={"unit": "points", "favorable": "high"},
    )  # fmt: skip


@planted
def boosted_trees_on_a_step():
    table, rng = applicants(1_000, seed=2)
    table["street"] = rng.uniform(size=1_000) * 0.8 + 0.2 * table["female"]
    step = table["income"] - table["debt"] - 2.0 * (table["street"] > 0.5)
    target = step + rng.logistic(size=1_000) > 0
    features = [*FINANCES, "street"]
    model = GradientBoostingClassifier(n_estimators=40, max_depth=1, random_state=0).fit(table[features], target)
    # Trees of one split add up: what a column adds is the change from a fixed value, at any values of the others.
    fixed = table[features].assign(street=0.0)
    finances = model.decision_function(fixed)
    street = model.decision_function(table[features]) - finances
    return Planted(table, "f scores .* lower than m", model, finances=finances, inputs={"street": street})


@planted
def a_penalty_below_an_income():
    """Not a sum: the group is penalized at low incomes, so that the gap is a mean over finances."""
    table, rng = applicants(1_000, seed=3)
    features = [*FINANCES, "female"]
    low = table["female"] * (table["income"] < 0.3)
    target = (table["debt"] < 0) & (low == 0) | (rng.random(1_000) < 0.2)
    model = GradientBoostingClassifier(n_estimators=30, max_depth=3, random_state=0).fit(table[features], target)
    score = [model.decision_function(table[features].assign(female=code)) for code in (1.0, 0.0)]
    effects = {
        "total": score[0] - score[1],
        "probability": expit(score[0]) - expit(score[1]),
        "decision": (score[0] >= 0).astype(float) - (score[1] >= 0),
    }
    truths = {name: (effect.mean(), effect.std() / np.sqrt(1_000)) for name, effect in effects.items()}
    return Planted(
        table, "f scores .* lower than m", model, features=features, truths=truths,
        approved=model.decision_function(table[features]) >= 0,
    )  # fmt: skip


@planted
def three_groups_with_two_penalties():
    table, rng = applicants(1_200, seed=4)
    table["sex"] = rng.permutation(np.repeat(["a", "b", "c"], [600, 350, 250]))
    table["is_b"], table["is_c"] = (table["sex"] == "b").astype(float), (table["sex"] == "c").astype(float)
    weights = {"income": 1.0, "debt": -1.0, "tenure": 0.2, "is_b": -0.2, "is_c": -0.5}
    return of_weights(table, "c scores .* lower than a", weights)


@planted
def an_intersection_of_two_attributes():
    table, rng = applicants(1_200, seed=5)
    table["race"] = rng.choice(["black", "white"], 1_200)
    table["both"] = ((table["sex"] == "f") & (table["race"] == "black")).astype(float)
    weights = {"income": 1.0, "debt": -1.0, "tenure": 0.2, "both": -0.4}
    return of_weights(table, "black & f scores .* lower than", weights, group=["race", "sex"])


@planted
def two_attributes_of_which_one_is_penalized():
    table, rng = applicants(1_200, seed=28)
    table["married"] = rng.choice(["married", "single"], 1_200)
    weights = {"income": 1.0, "debt": -1.0, "tenure": 0.1, "female": -0.4}
    return of_weights(table, "f.* scores .* lower than .*m", weights, group=["married", "sex"])


@planted
def a_risk_of_default():
    """The score is a risk: what raises it is bad, and up to 0.8 people are approved."""
    table, _ = applicants(seed=6)
    table["default"] = 1 - table["good"]
    risk = {"income": -1.0, "debt": 1.0, "tenure": 0.2, "female": 0.4}
    case = of_weights(
        table,
        "f is rated .* riskier than m",
        {name: -weight for name, weight in risk.items()},
        intercept=-0.9,
    )
    model = linear(table, risk, "default", intercept=0.9)
    options = {"favorable": "low", "decision_threshold": 0.8}
    return replace(case, model=model, label="default", cut_off=-np.log(4), options=options)


@planted
def a_label_called_deny():
    table, _ = applicants(seed=7)
    table["deny"] = 1 - table["good"]
    weights = {"income": 1.0, "debt": -1.0, "tenure": 0.2, "female": -0.3}
    return of_weights(table, "f scores .* lower than m", weights, label="deny", options={"positive_label": "0"})


@planted
def one_dti_of_99999():
    table, rng = applicants(seed=8)
    table["debt"] = rng.normal(35, 10, 800).round(1)
    table.loc[17, "debt"] = 99_999.0
    weights = {"income": 1.0, "debt": -0.05, "tenure": 0.2, "female": -0.3}
    return of_weights(table, "f scores .* lower than m", weights, intercept=1.75)


def repeated(n_rows, seed):
    """Applicants, of whom some women and some men come back; those who do are penalized."""
    table, rng = applicants(500, seed)
    table["often"] = (rng.random(500) < np.where(table["sex"] == "f", 0.4, 0.1)).astype(float)
    table["applicant"] = np.arange(500) + 1_000
    table = table.loc[np.repeat(np.arange(500), np.where(table["often"] == 1, n_rows, 1))].reset_index(drop=True)
    table["income"] += rng.normal(0, 0.1, len(table))
    weights = {"income": 1.0, "debt": -1.0, "tenure": 0.2, "often": -0.8}
    options = {"clusters": "applicant"}
    return of_weights(table, "f scores .* lower than m", weights, applicant=table["applicant"], options=options)


@planted
def people_who_applied_twice():
    return repeated(2, seed=9)


@planted
def people_who_applied_ten_times():
    return repeated(10, seed=10)


@planted
def a_group_of_40():
    table, _ = applicants(900, seed=11, share=40 / 900)
    weights = {"income": 1.0, "debt": -1.0, "tenure": 0.05, "female": -0.3}
    return of_weights(table, "f scores .* lower than m", weights, answers={"inputs": "yes"})


@planted
def sampling_weights():
    """Branches with a penalty are four fifths of the sample, and half of the population."""
    table, rng = applicants(1_200, seed=12)
    in_branch = rng.random(1_200) < 0.8
    table["flag"] = table["female"] * in_branch
    table["weight"] = np.where(in_branch, 1.0, 4.0)
    weights = {"income": 1.0, "debt": -1.0, "tenure": 0.2, "flag": -0.6}
    options = {"sample_weight": "weight"}
    return of_weights(table, "f scores .* lower than m", weights, weight=table["weight"], options=options)


@planted
def given_scores():
    table, _ = applicants(seed=13)
    finances, female = (table["income"] - table["debt"]).to_numpy(), -0.3 * table["female"].to_numpy()
    table["score"] = expit(finances + female)
    truths = {"total": (-0.3, 0.0)}  # scores are a sum of finances and the group: nothing is random
    return Planted(
        table, "f scores 0.300 log-odds lower than m", features=FINANCES, truths=truths,
        approved=table["score"] >= 0.5, options={"scores": "score"},
    )  # fmt: skip


@planted
def given_scores_at_the_cut_off():
    """A third of the people are exactly at the cutoff, which is still favorable."""
    table, rng = applicants(900, seed=14)
    table["score"] = np.array([0.29, 0.3, 0.31])[rng.integers(0, 3, 900)]
    table["default"] = rng.integers(0, 2, 900)
    table.loc[table["sex"] == "f", "score"] = 0.3
    other = table.loc[table["sex"] == "m", "score"].to_numpy()
    truth = -np.log(0.3 / 0.7) + np.log(other / (1 - other)).mean()
    error = np.log(other / (1 - other)).std() / np.sqrt(len(other))
    rate = (other <= 0.3).mean()
    truths = {"total": (truth, error), "decision": (1 - rate, np.sqrt(rate * (1 - rate) / len(other)))}
    return Planted(
        table, "No score gap at equal finances was found", features=FINANCES, label="default", truths=truths,
        approved=table["score"] <= 0.3,
        answers={"score_gap": "no"}, options={"scores": "score", "favorable": "low", "decision_threshold": 0.3},
    )  # fmt: skip


@planted
def given_decisions():
    table, rng = applicants(1_500, seed=15)
    rate = np.clip(0.6 + 0.1 * table["income"] - 0.15 * table["female"], 0, 1)
    table["decided"] = (rng.random(1_500) < rate).astype(int)
    n = table["sex"].value_counts()
    truths = {"total": (-0.15, np.sqrt((rate * (1 - rate)).mean() * (1 / n["f"] + 1 / n["m"])))}
    return Planted(
        table, "f gets favorable decisions .* points less often than m", features=FINANCES, label=None, truths=truths,
        approved=table["decided"] == 1, options={"decisions": "decided"},
    )  # fmt: skip


@planted
def prices():
    table, rng = applicants(seed=16)
    noise = rng.normal(0, 0.2, 800)
    table["rate"] = 5 - 0.8 * table["income"] + 0.5 * table["debt"] + 0.25 * table["female"] + noise
    n = table["sex"].value_counts()
    truths = {"total": (0.25, 0.2 * np.sqrt(1 / n["f"] + 1 / n["m"]))}
    return Planted(
        table, "f is .* percentage points worse off than m", features=FINANCES, label=None, truths=truths, cut_off=None,
        options={"scores": "rate", "unit": "percentage points", "favorable": "low"},
    )  # fmt: skip


@planted
def a_function_of_probabilities():
    table, _ = applicants(600, seed=17)
    weights = {"income": 1.0, "debt": -1.0, "tenure": 0.2, "female": -0.4}
    return of_weights(table, "f scores .* log-odds lower than m", weights, intercept=0.2, model=behind_a_function)


@planted
def one_segment_of_two():
    table, rng = applicants(1_000, seed=18)
    table["product"] = rng.choice(["card", "loan"], 1_000)
    table["flag"] = table["female"] * (table["product"] == "loan")
    weights = {"income": 1.0, "debt": -1.0, "flag": -0.5}
    segments = {"card": 0.0, "loan": -0.5}
    return of_weights(table, "f scores .* lower than m", weights, segments=segments, options={"by": ["product"]})


@planted
def no_gap_at_equal_finances():
    """The groups differ in finances alone: approvals are far apart, and there is no gap."""
    table, _ = applicants(seed=19)
    table["income"] -= 0.8 * table["female"]
    weights = {"income": 1.0, "debt": -1.0, "tenure": 0.2}
    error = 0.2 * np.sqrt(1 / 360 + 1 / 440)
    truths = dict.fromkeys(("total", "tenure", "probability", "decision"), (0.0, error))
    case = of_weights(table, "No score gap at equal finances was found between f and m", weights, truths=truths)
    return replace(case, answers={"score_gap": "no", "inputs": "no"})


@planted
def two_stand_ins_that_cancel():
    table, rng = applicants(1_000, seed=32)
    for name in ("school", "club"):
        table[name] = np.where(rng.random(1_000) < 0.9, table["female"], 1 - table["female"])
    weights = {"income": 1.0, "debt": -1.0, "school": -0.5, "club": 0.5}
    case = of_weights(table, "No score gap at equal finances was found between f and m", weights)
    return replace(case, answers={"score_gap": "no", "inputs": "yes"})


@planted
def officers_who_overrule_the_model():
    """Scores are alike; of the women whom the model approves, a quarter is declined."""
    table, rng = applicants(1_200, seed=23)
    weights = {"income": 1.0, "debt": -1.0, "tenure": 0.2}
    score = sum(weight * table[name] for name, weight in weights.items()).to_numpy()
    is_declined = (rng.random(1_200) < 0.25) & (table["sex"] == "f")
    table["decided"] = ((score >= 0) & ~is_declined).astype(int)
    n, approved = table["sex"].value_counts(), (score >= 0).mean()
    error = np.sqrt(0.25 * 0.75 * approved / n["f"] + 0.02 / n["m"])
    truths = {"decision": (-0.25 * approved, error)}
    case = of_weights(table, "No score gap at equal finances", weights, truths=truths, approved=table["decided"] == 1)
    return replace(case, options={"decisions": "decided"}, answers={"score_gap": "no"})


@planted
def a_category_behind_a_pipeline():
    table, rng = applicants(seed=22)
    is_south = rng.random(800) < np.where(table["sex"] == "f", 0.7, 0.3)
    table["branch"] = np.where(is_south, "south", np.where(rng.random(800) < 0.5, "north", "west"))
    features = [*FINANCES, "branch"]
    encoder = make_column_transformer((OneHotEncoder(sparse_output=False), ["branch"]), remainder="passthrough")
    model = make_pipeline(encoder, LogisticRegression()).fit(table[features], table["good"])
    model[-1].coef_ = np.array([[0.2, -0.3, 0.0, 1.0, -1.0]])  # north, south, west, income, debt
    model[-1].intercept_ = np.zeros(1)
    branch = table["branch"].map({"north": 0.2, "south": -0.3, "west": 0.0}).to_numpy()
    finances = (table["income"] - table["debt"]).to_numpy()
    return Planted(table, "f scores .* lower than m", model, finances=finances, inputs={"branch": branch})


# --- what an audit says ---


def test_attributes_with_the_same_values_are_told_apart():
    table = pd.DataFrame({"veteran": ["yes", "no", "yes"], "married": ["yes", "single & free", "single & free"]})
    people = eh_people.People.of(pd.DataFrame({"income": [1.0, 2.0, 3.0]}), [0, 1, 1], table)
    assert people.groups.names == ("no & single and free", "yes & single and free", "yes & yes")
    veteran, married = people.attributes.values()
    assert (veteran.names, veteran.codes.tolist()) == (("veteran: no", "veteran: yes"), [0, 1, 1])
    assert (married.names, married.codes.tolist()) == (("single and free", "married: yes"), [0, 0, 1])


@pytest.mark.parametrize("name", PLANTED)
def test_every_front_finds_what_was_planted(name, tmp_path):
    case = PLANTED[name]()
    is_streamed = case.model is not None and "unit" not in case.options
    fronts = ["memory", "stream", "command"] if is_streamed else ["memory", "command"]
    found, *others = (audited(case, front, tmp_path) for front in fronts)
    keys = {"score_gaps", "score_gap", "segment_gaps", "findings", "outcome", "cec", "regimes"} & set(found)
    expected = numbers({key: found[key] for key in keys})
    for other in others:
        assert numbers({key: other[key] for key in keys}) == pytest.approx(expected, rel=1e-6, abs=ROUNDING)
        assert [one["sentence"] for one in other["findings"]] == [one["sentence"] for one in found["findings"]]

    gaps = {(gap["group"], gap["reference"]): gap for gap in found["score_gaps"]}
    compared = [two for names in case.names for two in combinations(names, 2)]
    assert sorted(map(sorted, gaps)) == sorted(map(sorted, compared))
    for groups, gap in gaps.items():
        estimates = {**{row["feature"]: row for row in gap["features"]}, **gap}
        if gap["features"]:
            assert sum(row["value"] for row in gap["features"]) == pytest.approx(gap["total"]["value"], abs=1e-5)
        for part, (truth, error) in case.known(*groups).items():
            estimate, where = estimates[part], f"{part} of {groups}"
            assert estimate["value"] == pytest.approx(truth, abs=4 * error + ROUNDING), where
            assert estimate["low"] - ROUNDING <= truth <= estimate["high"] + ROUNDING, where

    findings = {one["key"]: one for one in found["findings"]}
    assert re.search(case.told, findings["score_gap"]["sentence"]), findings["score_gap"]["sentence"]
    for key, answer in {"score_gap": "yes", **case.answers}.items():
        assert findings[key]["answer"] == answer

    by_segment = found.get("segment_gaps", [])
    for gap in by_segment:
        assert gap["total"]["value"] == pytest.approx(case.segments[gap["value"]], abs=ROUNDING)
        assert (gap["p_adjusted"] < 0.05) == (case.segments[gap["value"]] != 0)
        (through,) = (row for row in gap["features"] if row["feature"] == "flag")
        assert through["value"] == pytest.approx(case.segments[gap["value"]], abs=ROUNDING)
        assert (through["p_adjusted"] < 0.05) == (case.segments[gap["value"]] != 0)
    assert len(by_segment) == len(case.segments)

    approved = case.approved
    if approved is None and case.cut_off is not None:
        approved = case.finances + sum(case.inputs.values()) >= case.cut_off
    if approved is not None:
        weight = pd.Series(1.0, case.table.index) if case.weight is None else case.weight
        members = {name: case.members(name) for names in case.names for name in names}
        rates = {name: np.average(np.asarray(approved)[own], weights=weight[own]) for name, own in members.items()}
        tables = [found["outcome"]["approvals"], *found["outcome"]["attributes"].values()]
        shown = {row["group"]: row["approval_rate"]["value"] for table in tables for row in table["groups"]}
        assert shown == pytest.approx(rates, abs=1e-9)
