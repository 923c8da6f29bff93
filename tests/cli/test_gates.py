import pytest
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.cli.audits import crossed_gates, parse_gate
from evenhand.exceptions import InvalidInputError

FIGURES = {
    "cec": {"mean": 0.4, "excess": float("nan")},
    "outcome": {"eo_gap": 0.2, "mean": 1.0},
    "warnings": ["x"],
    "deep": {"down": {"eo_gap": 9.0}},
}


@pytest.mark.parametrize(
    ("gate", "is_crossed"),
    [("eo_gap > 0.1", True), ("eo_gap>0.2", False), ("outcome.eo_gap >= 0.2", True), ("cec.mean < 0.5", True),
     ("cec.mean <= 1e-1", False)],
)  # fmt: skip
def test_gates_compare(gate, is_crossed):
    assert bool(crossed_gates([parse_gate(gate)], FIGURES)) is is_crossed


@pytest.mark.parametrize("text", ["eo_gap", "eo_gap = 1", "> 3", "eo gap > 1"])
def test_other_forms_are_refused(text):
    with pytest.raises(InvalidInputError, match="A gate must look like"):
        parse_gate(text)


def test_a_limit_that_is_no_number_is_refused():
    with pytest.raises(InvalidInputError, match="must be a number, got '1e'"):
        parse_gate("eo_gap > 1e")


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        ("eo_gaps > 1", r"names an unknown metric: 'eo_gaps'. Did you mean 'eo_gap'\?"),
        ("mean > 1", r"'mean' is ambiguous: it may be cec\.mean or outcome\.mean\. Give the full name\."),
        ("excess > 1", "cannot be checked"),
    ],
)
def test_gates_on_no_single_known_metric_are_refused(gate, message):
    with pytest.raises(InvalidInputError, match=message):
        crossed_gates([parse_gate(gate)], FIGURES)


@pytest.mark.parametrize(
    ("gate", "is_crossed"),
    [("score_gap > 0.1", True), ("score_gap > 0.3", False), ("weighing_p < 0.01", True), ("excess_p < 0.01", False)],
)
def test_the_findings_have_short_names(gate, is_crossed):
    findings = [
        {"key": "score_gap", "estimate": -0.2, "p_adjusted": 0.02},
        {"key": "weighing", "estimate": 0.05, "p_adjusted": 0.001},
        {"key": "excess", "estimate": 0.01, "p_adjusted": 0.3},
    ]
    assert bool(crossed_gates([parse_gate(gate)], {**FIGURES, "findings": findings})) is is_crossed


@pytest.mark.parametrize(("limit", "is_crossed"), [(0.7, False), (0.8, True)])
def test_the_adverse_impact_ratio_is_that_of_the_lowest_approval_rate(limit, is_crossed):
    rates = {"a": 0.6, "b": 0.45, "c": 0.9}
    groups = [{"is_reference": g == "a", "n_people": 9, "approval_rate": {"value": r}} for g, r in rates.items()]
    groups.append({"is_reference": False, "n_people": 0, "approval_rate": {"value": None}})
    summary = {"outcome": {"approvals": {"groups": groups}}}
    expected = [f"air < {limit} is crossed: air is 0.75"] if is_crossed else []
    assert crossed_gates([parse_gate(f"air < {limit}")], summary) == expected
    with pytest.raises(InvalidInputError, match="unknown metric: 'air'"):
        crossed_gates([parse_gate("air < 0.8")], {"outcome": {"approvals": {"groups": []}}})


def test_the_adverse_impact_ratio_of_an_audit_is_a_gate():
    data = eh.load_dataset("synthetic", n=200)
    model = LogisticRegression().fit(data.X, data.y)
    roles = {"sensitive_features": data.group, "financial_features": data.financial_features}
    summary = eh.audit(model, data.X, data.y, **roles, evidence=False).to_dict()
    groups = summary["outcome"]["approvals"]["groups"]
    (ratio,) = (row["approval_ratio_group_over_reference"]["value"] for row in groups if not row["is_reference"])
    assert crossed_gates([parse_gate("air < 9")], summary) == [f"air < 9 is crossed: air is {ratio:.4g}"]


@pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")
def test_a_gate_knows_the_names_of_a_search():
    planted = eh.make_planted_bias(200, strength=1.0)
    data = planted.dataset
    roles = {"sensitive_features": data.group, "financial_features": data.financial_features}
    summary = eh.audit(planted.model, data.X, data.y, **roles).to_dict()
    same = {"cec": "cec.mean", "reasoning_excess": "weighing", "tpr_gap": "outcome.gaps.tpr_gap.value",
            "excess_regime_b": "evidence.regime_b.value", "probability_gap": None}  # fmt: skip
    for name, path in same.items():
        (said,) = crossed_gates([parse_gate(f"{name} > -9")], summary)
        if path is not None:
            (other,) = crossed_gates([parse_gate(f"{path} > -9")], summary)
            assert said.rpartition(" ")[2] == other.rpartition(" ")[2]
    assert said.endswith(f"{abs(summary['score_gap']['probability']['value']):.4g}")
