import pytest

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
