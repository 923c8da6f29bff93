"""Whether the answers to the four questions changed: which leads, what is said, and of the same people how surely."""

import copy
import math
import re

import numpy as np
import pandas as pd
import pytest
import torch

import evenhand as eh
from evenhand.auditing.evidence import Influences
from evenhand.auditing.history.compare import compare_audits
from evenhand.exceptions import EvenhandWarning

COLUMNS = ["income", "debt", "street", "proxy"]


def network(weights, seed=0, noise=0.0):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(len(weights), 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))
    with torch.no_grad():
        model[0].weight.copy_(torch.outer(torch.linspace(0.5, 1.5, 6), torch.tensor(weights)))
        model[2].weight.fill_(0.5)
        for p in model.parameters():
            p += noise * torch.randn_like(p)
    return model


def draw_people(rng, n=240, share=0.35, proxy=1.0):
    X = rng.normal(size=(n, 4))
    y = (rng.random(n) < 1 / (1 + np.exp(-X[:, :3].sum(axis=1)))).astype(int)
    is_b = rng.random(n) < share
    X[:, 3] += proxy * is_b
    return pd.DataFrame(X, columns=COLUMNS), y, np.where(is_b, "b", "a")


def audited(people, model, drop=()):
    X, y, group = people
    return eh.audit(
        model, X.drop(columns=list(drop)), y, sensitive_features=group, financial_features=["income", "debt"]
    )


@pytest.fixture(scope="module")
def people():
    return draw_people(np.random.default_rng(3), n=400)


@pytest.fixture(scope="module")
def with_proxy(people):
    return audited(people, network([0.6, -0.4, 0.5, -0.6]))


@pytest.fixture(scope="module")
def without_proxy(people):
    return audited(people, network([0.6, -0.4, 0.5]), drop=["proxy"])


@pytest.fixture(scope="module")
def dropped(with_proxy, without_proxy):
    return compare_audits({"all inputs": with_proxy, "without proxy": without_proxy})


def of_key(comparison, key):
    (found,) = [finding for finding in comparison.findings if finding.key == key]
    return found


def test_the_same_people_without_one_input_are_the_same_people(dropped):
    assert dropped.pairings[0].is_paired
    assert all(finding.is_paired for finding in dropped.findings)


def test_an_input_that_was_dropped_leads_and_is_said_to_be_gone(dropped):
    found = of_key(dropped, "inputs")
    assert found.answer == "yes"
    assert "runs through proxy (without proxy does not have this input): its part of the score gap shrank" in (
        found.sentence
    )
    assert "to 0.000 log-odds" in found.sentence
    (part,) = [c for c in dropped.inputs if c.words == "proxy"]
    assert (part.value, part.is_paired) == (0.0, True)
    assert dropped.headline in {f.headline for f in dropped.findings if f.answer == "yes"}


def test_changes_of_the_inputs_add_up_to_that_of_the_gap(dropped):
    (gap,) = [c for c in dropped.metrics if c.finding == "score_gap"]
    assert sum(c.change for c in dropped.inputs) == pytest.approx(gap.change, abs=1e-5)


def test_the_other_way_round_changes_have_the_other_sign(with_proxy, without_proxy, dropped):
    back = compare_audits({"without proxy": without_proxy, "all inputs": with_proxy})
    for finding in dropped.findings:
        assert of_key(back, finding.key).estimate == pytest.approx(-finding.estimate)
        assert of_key(back, finding.key).p_value == pytest.approx(finding.p_value)
    assert "grew" in of_key(back, "inputs").sentence


def test_findings_and_sentences_are_in_order_of_strength(dropped):
    order = {"yes": 0, "no": 1, "open": 2}
    ranks = [(order[f.answer], f.p_adjusted) for f in dropped.findings]
    assert ranks == sorted(ranks)
    assert dropped.sentences[0] == f"without proxy compared with all inputs: {dropped.findings[0].headline}."
    names = [sentence.split(":")[0] for sentence in dropped.sentences[1:5]]
    assert sorted(names) == ["Excess", "Inputs", "Score gap", "Weighing"]
    assert re.fullmatch(r"Of \d+ other metrics, \d+ changed by more than noise\.", dropped.sentences[5])


def test_no_text_of_a_comparison_shows_a_python_list(dropped):
    texts = [*dropped.sentences, *dropped.warnings, *(p.sentence for p in dropped.pairings)]
    assert "Features in all inputs but not in without proxy: proxy." in texts
    assert not [text for text in texts if re.search(r"[\[\]]|'\w+'", text)]


def test_what_was_not_found_says_what_would_have_been(with_proxy, people):
    alike = audited(people, network([0.6, -0.4, 0.5, -0.6], noise=0.05))
    found = [f for f in compare_audits({"one": with_proxy, "two": alike}).findings if f.key != "inputs"]
    open_or_no = [f for f in found if f.answer == "no"]
    assert open_or_no
    assert all("would have been found in 80% of cases" in f.sentence for f in open_or_no)


def test_a_gap_that_another_reference_group_turns_is_compared_with_the_sign_of_the_base(with_proxy):
    turned = copy.deepcopy(with_proxy.to_dict())
    turned["outcome"]["approvals"]["reference"] = "b" if turned["outcome"]["approvals"]["reference"] == "a" else "a"
    for gap in turned["score_gaps"]:
        gap["group"], gap["reference"] = gap["reference"], gap["group"]
        for estimate in (gap["total"], gap["probability"], gap["decision"], *gap["features"]):
            estimate["value"] = -estimate["value"]

    def renamed(name):
        return re.sub(r"(\w+) minus (\w+)$", r"\2 minus \1", name)

    kept = Influences.from_dict(turned["influences"])
    turned["influences"] = Influences(
        {renamed(name): -values if "minus" in name else values for name, values in kept.columns.items()}
    ).to_dict()
    found = compare_audits({"one": with_proxy, "turned": turned})
    changes = [c for c in found.changes if c.finding]
    assert all(c.change == 0 for c in changes)
    untested = {c.key for c in changes if c.standard_error != 0}
    assert all(key.startswith("input: ") for key in untested)  # parts of finances
    assert len(untested) < len(changes) - 3


def test_models_explained_in_different_units_are_compared_in_probability(with_proxy):
    other = copy.deepcopy(with_proxy.to_dict())
    other["score_gaps"][0]["unit"] = "probability"
    found = of_key(compare_audits({"one": with_proxy, "two": other}), "score_gap")
    assert (found.unit, found.answer) == ("probability", "no")
    assert found.sentence.endswith("explained in different units, so it is compared in probability.")
    assert of_key(compare_audits({"one": with_proxy, "two": other}), "inputs").answer == "open"


def test_of_many_groups_the_pair_that_changed_most_clearly_is_named(people):
    X, y, _ = people
    groups = np.array(["a", "b", "c"])[np.arange(len(y)) % 3]
    shifted = X.assign(proxy=X["proxy"] + 2.0 * (groups == "c"))
    found = compare_audits(
        {
            "weak": audited((shifted, y, groups), network([0.6, -0.4, 0.5, -0.05])),
            "strong": audited((shifted, y, groups), network([0.6, -0.4, 0.5, -0.6])),
        }
    )
    gap = of_key(found, "score_gap")
    assert gap.answer == "yes"
    assert re.search(r"score gap between (c and [ab]|[ab] and c)", gap.sentence)
    gaps = [c for c in found.metrics if c.finding == "score_gap"]
    assert len(gaps) == 3
    assert gap.p_value == pytest.approx(min(1.0, 3 * min(c.p_value for c in gaps)))


def test_audits_without_evidence_leave_the_questions_open(people):
    X, y, group = people
    audits = {
        name: eh.audit(
            network(w), X, y, sensitive_features=group, financial_features=["income", "debt"], evidence=False
        )
        for name, w in {"one": [0.6, -0.4, 0.5, -0.6], "two": [0.5, -0.4, 0.5, -0.2]}.items()
    }
    found = compare_audits(audits)
    assert {f.answer for f in found.findings} == {"open"}
    assert found.headline == "Whether the answers to the four questions changed is not known"
    assert all(math.isnan(f.p_adjusted) for f in found.findings)
    assert found.pairings[0].is_paired  # decisions are compared within people nonetheless


def test_people_matched_on_other_features_are_not_compared_by_influences(people, with_proxy):
    X, y, group = people
    other = eh.audit(network([0.6, -0.4, 0.5, -0.6]), X, y, sensitive_features=group, financial_features=["income"])
    with pytest.warns(EvenhandWarning, match="financial_features: income in other, debt and income in the base"):
        found = compare_audits({"one": with_proxy, "other": other}, allow_different_settings=True)
    assert not any(f.is_paired for f in found.findings)
    assert "changes are computed within people, except for metrics" in found.pairings[0].sentence


def intervals_of_changes(n_repetitions, n):
    """Intervals of changes, paired and independent; groups are drawn at random, so that nothing changes in truth."""
    rng = np.random.default_rng(8)
    models = [network([0.6, -0.4, 0.5, 0.3], noise=0.15, seed=seed) for seed in (1, 2)]
    rows = []
    for _ in range(n_repetitions):
        people = draw_people(rng, n, proxy=0.0)
        audits = dict(zip(("one", "two"), (audited(people, model) for model in models), strict=True))
        for way, same in (("paired", None), ("independent", False)):
            found = compare_audits(audits, same_people=same)
            rows += [(way, c.key, c.change, c.low, c.high) for c in found.metrics if c.finding]
    return pd.DataFrame(rows, columns=["way", "key", "change", "low", "high"])


@pytest.mark.slow
def test_paired_intervals_of_audits_cover_and_are_narrower():
    table = intervals_of_changes(100, 200)
    table["covers"] = (table["low"] <= 0) & (table["high"] >= 0)
    table["width"] = table["high"] - table["low"]
    found = table.groupby(["way", "key"])[["covers", "width"]].mean()
    paired, independent = found.loc["paired"], found.loc["independent"]
    assert len(paired) == 3
    assert paired["covers"].between(0.88, 1.0).all(), paired
    assert (paired["width"] < 0.8 * independent["width"]).all(), found
