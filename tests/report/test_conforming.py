"""JSON read back is held to its schema, as jsonschema does it."""

from __future__ import annotations

import copy
import json

import jsonschema
import numpy as np
import pytest

import evenhand as eh
from evenhand.auditing.sections import load_schema
from evenhand.report.schema import first_fault


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    """What an audit writes."""
    planted = eh.make_planted_bias(60, random_state=0)
    people = planted.dataset
    result = eh.audit(
        planted.model, people.X, people.y, sensitive_features=people.group, financial_features=people.financial_features
    )
    path = tmp_path_factory.mktemp("audit") / "audit.json"
    result.to_json(path)
    return json.loads(path.read_text())


def places(value, path=()):
    yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


def test_faults_are_those_that_jsonschema_finds(summary):
    schema = load_schema()
    reference = jsonschema.Draft202012Validator({**schema, "additionalProperties": True})
    assert first_fault(summary, schema) == ""
    rng = np.random.default_rng(0)
    everywhere = [path for path in places(summary) if path]
    found = []
    for k in rng.integers(len(everywhere), size=150):
        altered = copy.deepcopy(summary)
        *above, last = everywhere[k]
        holder = altered
        for key in above:
            holder = holder[key]
        values = [None, True, 3, -0.5, "x", [], {}, ["x"], [None, 1]]
        holder[last] = values[rng.integers(len(values))]
        if rng.random() < 0.2:
            del holder[last]
        # Keys that are new are allowed here and not there.
        theirs = [e for e in reference.iter_errors(altered) if e.validator != "additionalProperties"]
        ours = first_fault(altered, schema)
        assert bool(ours) == bool(theirs), (everywhere[k], ours, theirs[:1])
        found.append(bool(ours))
    assert 0.2 < np.mean(found) < 0.98


@pytest.mark.parametrize("number", [10**400, float("inf"), float("nan")])
def test_numbers_that_cannot_be_computed_with_are_faults(number):
    assert "a number that can be computed with" in first_fault(
        {"mean": number}, {"properties": {"mean": {"type": "number"}}}
    )
