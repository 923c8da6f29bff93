"""PMML files: scores by the document's own numbers, explanations by its coefficients, hostile documents refused."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import evenhand as eh
from evenhand.exceptions import InvalidInputError, ModelFileError
from evenhand.models.dispatch import as_audited_model
from evenhand.models.pmml import PmmlModel
from evenhand.models.protocol import LinearModel

HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<PMML version="4.4" xmlns="http://www.dmg.org/PMML-4_4"><Header/>
<DataDictionary>
<DataField name="good" optype="categorical" dataType="integer"><Value value="0"/><Value value="1"/></DataField>
<DataField name="income" optype="continuous" dataType="double"/>
<DataField name="debt" optype="continuous" dataType="double"/>
{fields}</DataDictionary>
"""
SCHEMA = """<MiningSchema><MiningField name="good" usageType="target"/><MiningField name="income"/>
<MiningField name="debt"/>{fields}</MiningSchema>"""
REGRESSION = (
    HEAD.format(fields="")
    + '<RegressionModel functionName="classification" normalizationMethod="logit">'
    + SCHEMA.format(fields="")
    + """<RegressionTable intercept="0.25" targetCategory="1"><NumericPredictor name="income" coefficient="1.5"/>
<NumericPredictor name="debt" coefficient="-0.5"/></RegressionTable>
<RegressionTable intercept="0" targetCategory="0"/></RegressionModel></PMML>"""
)
TREE = (
    HEAD.format(fields="")
    + '<TreeModel functionName="classification" splitCharacteristic="binarySplit">'
    + SCHEMA.format(fields="")
    + """<Node score="1" recordCount="100"><True/>
<Node score="1" recordCount="60"><SimplePredicate field="income" operator="greaterThan" value="0"/>
<ScoreDistribution value="0" recordCount="15"/><ScoreDistribution value="1" recordCount="45"/></Node>
<Node score="0" recordCount="40"><SimplePredicate field="income" operator="lessOrEqual" value="0"/>
<Node score="0" recordCount="30"><SimplePredicate field="debt" operator="greaterThan" value="0.5"/>
<ScoreDistribution value="0" recordCount="27"/><ScoreDistribution value="1" recordCount="3"/></Node>
<Node score="1" recordCount="10"><SimplePredicate field="debt" operator="lessOrEqual" value="0.5"/>
<ScoreDistribution value="0" recordCount="4"/><ScoreDistribution value="1" recordCount="6"/></Node>
</Node></Node></TreeModel></PMML>"""
)


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"debt": rng.normal(size=120), "income": rng.normal(size=120)})
    return X, rng.integers(2, size=120), rng.choice(["f", "m"], 120)


def test_a_logistic_regression_is_explained_by_its_coefficients(people):
    X = people[0][["income", "debt"]]
    audited = as_audited_model(PmmlModel(REGRESSION.encode()), table=X)
    assert isinstance(audited, LinearModel)
    x = audited.encode(X)
    np.testing.assert_allclose(audited.margin(x), 0.25 + 1.5 * X["income"] - 0.5 * X["debt"], atol=1e-12)
    found = audited.attribute(x, np.broadcast_to(x[:1], x.shape), 1, "segments").values
    np.testing.assert_allclose(found, (X - X.iloc[0]).to_numpy() * [1.5, -0.5], atol=1e-12)


@pytest.mark.integration
def test_a_file_is_audited_through_the_guarded_loader(people, tmp_path):
    X, y, group = people  # its columns in another order than the file's
    (tmp_path / "model.pmml").write_text(REGRESSION)
    model = eh.load_model(tmp_path / "model.pmml")
    result = eh.audit(model, X, y, sensitive_features=group, financial_features=["income"], evidence=False)
    expected = expit(0.25 + 1.5 * X["income"] - 0.5 * X["debt"])
    np.testing.assert_allclose(result.pairs.groupby("person")["score"].first(), expected, atol=1e-12)


def test_a_tree_is_asked_for_its_probability(people):
    X = people[0]
    model = pickle.loads(pickle.dumps(PmmlModel(TREE.encode())))
    audited = as_audited_model(model, table=X)
    assert (audited.attribution, audited.output) == ("sampled_shapley", "probability")
    expected = np.where(X["income"] > 0, 0.75, np.where(X["debt"] > 0.5, 0.1, 0.6))
    np.testing.assert_allclose(audited.margin(audited.encode(X)), expected, atol=1e-12)


@pytest.mark.parametrize(
    "declaration",
    [
        '<!DOCTYPE PMML [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>',
        '<!DOCTYPE PMML [<!ENTITY secret SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE PMML SYSTEM "http://example.org/pmml.dtd">',
    ],
    ids=["entities", "a file", "an address"],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_documents_that_declare_entities_are_refused(declaration, encoding):
    head, rest = REGRESSION.split("\n", 1)
    document = f"{head.replace('UTF-8', encoding)}\n{declaration}\n{rest}"
    with pytest.raises(InvalidInputError, match="declares a document type or entities"):
        PmmlModel(document.encode(encoding))


@pytest.mark.integration
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (REGRESSION[:700], "not valid XML"),
        ("not a model", "not valid XML"),
        ("<PMML/>", "cannot read the PMML model"),
        (
            REGRESSION.replace('<Value value="1"/>', '<Value value="1"/><Value value="2"/>'),
            "PMML model has 3 classes|cannot read",
        ),
    ],
    ids=["cut short", "text", "empty", "three classes"],
)
def test_what_is_no_model_is_refused_with_a_sentence(content, message, tmp_path):
    (tmp_path / "model.pmml").write_text(content)
    with pytest.raises(ModelFileError, match=message):
        eh.load_model(tmp_path / "model.pmml")


def test_columns_that_are_absent_are_named(people):
    X, y, group = people
    with pytest.raises(InvalidInputError, match=r"missing \['income'\]"):
        eh.audit(PmmlModel(REGRESSION.encode()), X[["debt"]], y, sensitive_features=group, financial_features=["debt"])
