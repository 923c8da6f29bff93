"""What is asked of two groups is answered from the triples between them, with the answers that all triples give."""

from itertools import combinations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.auditing import evidence as between_groups
from evenhand.auditing.evidence import ByGroups

pytestmark = pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 5))
    y = (X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=900) > 0).astype(int)
    group = rng.choice(list("abcd"), 900, p=[0.4, 0.3, 0.2, 0.1])
    return LogisticRegression().fit(X, y), X, y, group


def audited(people):
    model, X, y, group = people
    return eh.audit(model, X, y, sensitive_features=group, financial_features=["x0", "x1"]).to_dict()


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
