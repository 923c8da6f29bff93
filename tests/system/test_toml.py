"""TOML that Python reads back as it was."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.exceptions import InvalidTypeError
from evenhand.system.files import toml_text

texts = st.text(st.characters(exclude_categories=["Cs"]))
plain = st.one_of(st.booleans(), st.integers(-(2**62), 2**62), st.floats(allow_nan=False), texts)


@given(st.dictionaries(st.from_regex(r"[a-z_]+", fullmatch=True), st.one_of(
    plain, st.lists(texts), st.dictionaries(texts, st.floats(allow_nan=False))
)))  # fmt: skip
def test_every_value_comes_back(values):
    assert tomllib.loads(toml_text(values)) == values


def test_nothing_is_left_out_and_what_toml_cannot_hold_is_refused():
    assert toml_text({"a": None, "b": ()}) == "b = []\n"
    with pytest.raises(InvalidTypeError, match="got object"):
        toml_text({"a": object()})
