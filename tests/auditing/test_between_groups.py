"""What is asked of two groups is answered from the triples between them, with the answers that all triples give."""

from itertools import combinations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.auditing import evidence as between_groups
from evenhand.auditing.evidence import ByGroups
from evenhand.exceptions import InvalidInputError

pytestmark = pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 5))
    y = (X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=900) > 0).astype(int)
    group = rng.choice(list("abcd"), 900, p=[0.4, 0.3, 0.2, 0.1])
    return LogisticRegression().fit(X, y), X, y, group


def audited(people, **options):
    model, X, y, group = people
    return eh.audit(model, X, y, sensitive_features=group, financial_features=["x0", "x1"], **options).to_dict()


def numbers(found, path=""):
    if isinstance(found, dict):
        return {k: v for key, value in found.items() for k, v in numbers(value, f"{path}/{key}").items()}
    if isinstance(found, (list, tuple)):
        return {k: v for n, value in enumerate(found) for k, v in numbers(value, f"{path}/{n}").items()}
    return {path: found}


def test_answers_are_those_of_all_triples(people, monkeypatch):
    handed = []
    between = ByGroups.between
    monkeypatch.setattr(ByGroups, "between", lambda self, *sides: handed.append(sides) or between(self, *sides))
    found = numbers(audited(people))
    assert len(set(handed)) >= 6  # every two of four groups
    monkeypatch.setattr(between_groups.ByGroups, "of", classmethod(lambda cls, triples, n: cls(triples, n)))
    expected = numbers(audited(people))
    assert found.keys() == expected.keys()
    for path, value in expected.items():
        if isinstance(value, float):
            assert found[path] == pytest.approx(value, rel=1e-7, abs=1e-12, nan_ok=True), path
        else:
            assert found[path] == value, path


def test_each_triple_is_handed_out_once(people, monkeypatch):
    seen = []
    of = ByGroups.of.__func__

    def watched(cls, triples, n_groups):
        seen.append(of(cls, triples, n_groups))
        return seen[-1]

    monkeypatch.setattr(ByGroups, "of", classmethod(watched))
    audited(people)
    found, whole = seen[0], seen[0].triples.part
    handed = {(a, b): found.between(b, a).part for a, b in combinations(range(4), 2)}
    assert sum(map(len, handed.values())) == len(whole)
    for (a, b), part in handed.items():
        assert set(zip(part.group.tolist(), part.other_group.tolist(), strict=True)) <= {(a, b), (b, a)}


def test_a_chosen_reference_group_is_the_only_one_that_others_are_compared_with(people):
    whole, chosen = audited(people), audited(people, reference_group="c", by=np.repeat(["u", "v"], 450))
    assert {gap["reference"] for gap in whole["score_gaps"]} == {"a", "b", "c"}
    assert [(gap["group"], gap["reference"]) for gap in chosen["score_gaps"]] == [("a", "c"), ("b", "c"), ("d", "c")]
    same = next(gap for gap in whole["score_gaps"] if {gap["group"], gap["reference"]} == {"c", "d"})
    last = chosen["score_gaps"][-1]
    assert abs(last["total"]["value"]) == pytest.approx(abs(same["total"]["value"]))
    assert last["p_adjusted"] <= 3 * last["total"]["p_value"] + 1e-12
    assert {gap["reference"] for gap in chosen["segment_gaps"]} == {"c"}
    between = [split["value"] for split in chosen["evidence"]["splits"] if split["split"] == "groups compared"]
    assert len(between) == 3
    assert all("c" in two for two in between)
    assert all("c" in (row["group"], row["other_group"]) for row in chosen["evidence"]["weights"])
    outcome = chosen["outcome"]
    assert outcome["approvals"]["reference"] == "c"
    assert [row["group"] for row in outcome["scores"] if row["is_reference"]] == ["c"]
    assert [g["group"] for g in outcome["cutoffs"][0]["table"]["groups"] if g["is_reference"]] == ["c"]
    assert {row["reference"] for row in outcome["segments"]["by"]} == {"c"}
    assert chosen["reasons"]["reference"] == "c"


def test_an_unknown_reference_group_is_refused_with_the_groups_there_are(people):
    expected = r"`reference_group` \(--reference-group\) must be one of the groups 'a', 'b', 'c', 'd', got 'e'"
    with pytest.raises(InvalidInputError, match=expected):
        audited(people, reference_group="e")
