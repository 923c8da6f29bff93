"""Names that are one name but for typing."""

import pytest

from evenhand.inputs.validation import alike_names


@pytest.mark.parametrize(
    "names",
    [
        ("Black", "Black ", "BLACK"),
        ("Non-Hispanic", "non hispanic"),
        ("ｆ", "f"),
        ("straße", "STRASSE"),
        ("a  b", "a_b"),
    ],
)
def test_typing_makes_no_name_of_its_own(names):
    assert alike_names([*names, "other"]) == [names]


@pytest.mark.parametrize("names", [("1", "-1"), ("1.2", "12"), ("25-34", "2534"), ("a", "b"), ("Asian", "Asians")])
def test_other_names_stay_apart(names):
    assert alike_names(names) == []
