"""The schema describes what an audit writes, and nothing else; what is read back is held to it as jsonschema does."""

import copy
import json
import math

import jsonschema
import numpy as np
import pandas as pd
import pytest
import torch

import evenhand as eh
from evenhand.auditing.sections import SECTIONS, load_schema
from evenhand.auditing.summary import SCHEMA
from evenhand.report.schema import first_fault


def audited(n_groups=2, *, evidence=True, by=False, max_distance=None, n=150):
    rng = np.random.default_rng(5)
    X = pd.DataFrame(rng.normal(size=(n, 4)), columns=["income", "debt", "street", "shoe"])
    y = (rng.normal(size=n) > X["income"]).astype(int)  # so that the network, as it is drawn, ranks people rightly
    group = np.array(["=a", "b", "c", "d"])[rng.permutation(np.arange(n) % n_groups)]
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))
    return eh.audit(
        model,
        X,
        y,
        sensitive_features=group,
        financial_features=["income", "debt"],
        evidence=evidence,
        max_distance=max_distance,
        by=pd.Series(np.where(X["shoe"] > 0, "large", "small"), name="shoe size") if by else None,
    )


@pytest.fixture(scope="module")
def validator():
    schema = load_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.fixture(scope="module")
def with_evidence():
    return audited(by=True)


def written(result, folder):
    result.to_json(folder / "audit.json")
    return json.loads((folder / "audit.json").read_text("utf-8"))


def shortened(value):
    """The same with three items of every list: further ones are of the same kind."""
    if isinstance(value, dict):
        return {key: shortened(item) for key, item in value.items()}
    return [shortened(item) for item in value[:3]] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def short(with_evidence, tmp_path_factory):
    return shortened(written(with_evidence, tmp_path_factory.mktemp("audit")))


@pytest.fixture
def document(short):
    """A valid document to spoil."""
    return copy.deepcopy(short)


def test_an_audit_with_evidence_and_segments_is_valid(validator, with_evidence, tmp_path):
    document = written(with_evidence, tmp_path)
    validator.validate(document)
    assert document["evidence"]["splits"]
    assert document["outcome"]["segments"]["shoe size"]


def test_an_audit_without_evidence_is_valid(validator, tmp_path):
    document = written(audited(evidence=False), tmp_path)
    assert document["evidence"] is None
    assert document["proxies"] is None
    validator.validate(document)


def test_three_groups_are_valid(validator, tmp_path):
    document = written(audited(3), tmp_path)
    assert document["evidence"]["worst_pair"] is not None
    validator.validate(document)


@pytest.mark.filterwarnings("ignore::evenhand.EvenhandWarning")
def test_figures_that_cannot_be_estimated_are_null_and_valid(validator, tmp_path):
    document = written(audited(max_distance=1e-9, n=60), tmp_path)
    assert document["cec"]["mean"] is None
    assert document["cec"]["excess"] is None
    validator.validate(document)


def test_distributions_are_described(validator, with_evidence, tmp_path):
    document = written(with_evidence, tmp_path)
    validator.validate(document)
    document["distributions"]["cec"]["edges"] = "many"
    with pytest.raises(jsonschema.ValidationError, match="many"):
        validator.validate(document)


def test_the_schema_is_that_of_the_version_the_audit_writes():
    assert load_schema()["properties"]["schema"]["const"] == SCHEMA == load_schema()["title"]


FIXED = [
    (),
    ("settings",),
    ("data",),
    ("cec",),
    ("regimes",),
    ("reasons",),
    ("outcome",),
    ("outcome", "groups", 0),
    ("outcome", "gaps", "sp_gap"),
    ("outcome", "approvals"),
    ("outcome", "approvals", "groups", 0),
    ("outcome", "approvals", "groups", 0, "approval_rate"),
    ("outcome", "scores", 0),
    ("outcome", "error_rates", 0),
    ("outcome", "cutoffs", 0),
    ("outcome", "segments", "shoe size", 0),
    ("outcome", "segments", "shoe size", 0, "segments", 0),
    ("matching",),
    ("matching", "reuse"),
    ("matching", "balance", 0),
    ("features", 0),
    ("evidence",),
    ("evidence", "cec"),
    ("evidence", "splits", 0),
    ("evidence", "features", 0),
    ("evidence", "weights", 0),
    ("evidence", "sensitivity"),
    ("evidence", "sensitivity", "max_distance", 0),
    ("proxies",),
    ("proxies", "all_features"),
]


def at(document, path):
    for step in path:
        document = document[step]
    return document


@pytest.mark.parametrize("path", FIXED, ids=lambda path: "/".join(map(str, path)) or "top")
def test_a_key_that_is_not_described_is_refused_at_every_fixed_level(validator, document, path):
    at(document, path)["a new key"] = 1
    assert not validator.is_valid(document)


@pytest.mark.parametrize("path", FIXED, ids=lambda path: "/".join(map(str, path)) or "top")
def test_a_missing_key_is_refused_at_every_fixed_level(validator, document, path):
    required = [key for key in at(document, path) if not str(key).startswith("mean attribution") and key != "created"]
    optional = {"placebo", "excess_low", "excess_high", "distributions"} | ({"excess"} if "features" in path else set())
    optional |= (
        {"segment_gaps", *(key for section in SECTIONS for key in section.schema)}
        if path == ()
        else {"regressions", "ties"}
    )  # settings
    for key in set(required) - optional:
        value = at(document, path).pop(key)
        is_optional = path == ("cec",) and key == "excess"  # absent without evidence, together with the others
        assert is_optional or not validator.is_valid(document), key
        at(document, path)[key] = value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema",), "evenhand.audit/2"),
        (("cec", "mean"), 1.5),
        (("cec", "mean"), "0.3"),
        (("cec", "excess_ci"), [0.1]),
        (("regimes", "A"), -0.1),
        (("data", "n_people"), 1.5),
        (("evidence", "cec", "p_value"), 2),
        (("evidence", "cec", "standard_error"), -1),
        (("warnings",), "none"),
        (("outcome", "approvals", "groups", 0, "is_reference"), None),
        (("proxies", "all_features", "kind"), "color"),
    ],
)
def test_a_value_of_the_wrong_kind_or_range_is_refused(validator, document, path, value):
    *parents, last = path
    at(document, parents)[last] = value
    assert not validator.is_valid(document)


def test_nan_is_never_written(with_evidence, tmp_path):
    def numbers(value):
        if isinstance(value, dict):
            for item in value.values():
                yield from numbers(item)
        elif isinstance(value, list):
            for item in value:
                yield from numbers(item)
        elif isinstance(value, float):
            yield value

    assert all(math.isfinite(number) for number in numbers(written(with_evidence, tmp_path)))


def places(value, path=()):
    yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


@pytest.mark.slow
def test_faults_are_those_that_jsonschema_finds(short):
    schema = load_schema()
    reference = jsonschema.Draft202012Validator({**schema, "additionalProperties": True})
    assert first_fault(short, schema) == ""
    rng = np.random.default_rng(0)
    everywhere = [path for path in places(short) if path]
    found = []
    for k in rng.integers(len(everywhere), size=150):
        altered = copy.deepcopy(short)
        *above, last = everywhere[k]
        holder = altered
        for key in above:
            holder = holder[key]
        values = [None, True, 3, -0.5, "x", [], {}, ["x"], [None, 1]]
        holder[last] = values[rng.integers(len(values))]
        if rng.random() < 0.2:
            del holder[last]
        # Keys that are new are allowed here and not there.
        theirs = next((e for e in reference.iter_errors(altered) if e.validator != "additionalProperties"), None)
        ours = first_fault(altered, schema)
        assert bool(ours) == bool(theirs), (everywhere[k], ours, theirs)
        found.append(bool(ours))
    assert 0.2 < np.mean(found) < 0.98


@pytest.mark.parametrize("number", [10**400, float("inf"), float("nan")])
def test_numbers_that_cannot_be_computed_with_are_faults(number):
    assert "a number that can be computed with" in first_fault(
        {"mean": number}, {"properties": {"mean": {"type": "number"}}}
    )
