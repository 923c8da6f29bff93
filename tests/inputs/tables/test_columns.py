"""Types of columns, and numbers written as text."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.exceptions import DataFileError
from evenhand.inputs.read_options import ReadOptions
from evenhand.inputs.tables.columns import (
    NOTATIONS,
    Notation,
    choose_notation,
    number_evidence,
    numbers_of,
    sure_decimal,
    texts_where,
)


def cells(*texts):
    return pa.chunked_array([pa.array(texts, pa.string())])


def read(*texts, file_decimal=None, **options):
    found = number_evidence(cells(*texts))
    assert found.are_numbers
    return numbers_of(cells(*texts), choose_notation("x", found, file_decimal, ReadOptions(**options))).to_pylist()


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["$89,000", "$1,250.50"], [89000, 1250.5]),
        (["$89,000"], [89000]),
        (["34.5%", "1 %"], [34.5, 1]),
        (["1.234,5"], [1234.5]),
        (["1.234.567"], [1234567]),
        (["(1,234)", "-5", "7"], [-1234, -5, 7]),
        (["($3.50)", "-$2", "$-1", "\u22124"], [-3.5, -2, -1, -4]),
        (["1 234,5", "12"], [1234.5, 12]),
        (["1\u00a0234\u00a0567"], [1234567]),
        (["1'234.5", "7\u2019000"], [1234.5, 7000]),
        (["EUR 5", "5 EUR", "5"], [5, 5, 5]),
        (["3,5", "0,25"], [3.5, 0.25]),
        (["1.5e3", "2"], [1500, 2]),
        (["1.234", "5.678"], [1.234, 5.678]),
        ([None, "€7"], [None, 7]),
    ],
)
def test_numbers_in_many_notations(texts, values):
    assert read(*texts) == values


@pytest.mark.parametrize(
    "text",
    ["0x1F", "1_000", "2024-01-05", "05/03/2024", "01.02.2024", "12a", "A1", "-", "%", "$", "(5", "5)", "1,23,456",
     "1.2.3", "--5", "(-5)", "1 2", "12,34,5", "1e", "<20%", "20%-30%", "1,2345,678", "٣"],
)  # fmt: skip
def test_what_is_no_number(text):
    assert not number_evidence(cells(text)).are_numbers


@pytest.mark.parametrize("texts", [["1,234"], ["1,234", "56,789"], ["€ 1.234"], ["$1.234", "$5"]])
def test_two_readings_are_refused(texts):
    with pytest.raises(
        DataFileError, match=r"Column 'x' has numbers such as .* two ways, .* set --decimal '.', or --thou"
    ):
        read(*texts)


def test_the_user_tells():
    assert read("1,234", thousands=",") == [1234]
    assert read("1,234", decimal=",") == [1.234]
    assert read("1,234", decimal=".") == [1234]
    assert read("1.234", thousands=".") == [1234]
    assert read("€ 1.234", decimal=".") == [1.234]


def test_another_column_tells():
    assert sure_decimal([number_evidence(cells("3,5")), number_evidence(cells("7"))]) == ","
    assert sure_decimal([number_evidence(cells("3.5")), number_evidence(cells("1,234"))]) == "."
    assert sure_decimal([number_evidence(cells("3.5")), number_evidence(cells("3,5"))]) is None
    assert read("1,234", file_decimal=".") == [1234]
    assert read("1,234", file_decimal=",") == [1.234]
    with pytest.raises(DataFileError, match="two ways"):
        read("1.234", file_decimal=",")


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        (["1.5", "1,5"], {}, "not all written with the same marks"),
        (["3.5"], {"decimal": ","}, "not all written with --decimal ','"),
        (["$5", "€5"], {}, r"several currencies, \['\$', '€'\]"),
        (["5%", "6"], {}, "1 values with a percent sign and 1 without"),
    ],
)
def test_numbers_that_do_not_agree_are_refused(texts, options, message):
    with pytest.raises(DataFileError, match=message):
        read(*texts, **options)


numbers = st.decimals(min_value=-(10**9), max_value=10**9, places=2, allow_nan=False)


@given(st.lists(numbers, min_size=1, max_size=20), st.sampled_from(sorted(NOTATIONS)))
def test_what_is_written_is_read_back(values, notation):
    """Python writes numbers with marks; the marks are exchanged."""
    python = (f"{value:,.2f}" if notation.thousands else f"{value:.2f}" for value in values)
    marks = {",": notation.thousands, ".": notation.decimal}
    texts = ["".join(marks.get(character, character) for character in text) for text in python]
    found = number_evidence(cells(*texts))
    assert found.are_numbers
    assert notation in found.notations
    chosen = choose_notation(
        "x", found, None, ReadOptions(decimal=notation.decimal, thousands=notation.thousands or None)
    )
    assert numbers_of(cells(*texts), chosen).to_pylist() == [float(value) for value in values]


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=20))
def test_plain_numbers_are_what_python_reads(values):
    texts = [repr(value) for value in values]
    found = number_evidence(cells(*texts))
    assert found.are_numbers
    assert found.is_plain
    assert numbers_of(cells(*texts), Notation(".")).to_pylist() == values


@given(
    st.lists(st.text(max_size=8), max_size=10),
    st.lists(st.text(alphabet="0123456789.,-$%() ", max_size=8), max_size=10),
)
def test_parts_add_up(first, second):
    """The evidence of a column does not depend on how it is cut, but for which example is shown."""

    def facts(found):
        return {name: value for name, value in vars(found).items() if name not in ("example", "other")}

    trimmed = [[text.strip() or "0" for text in part] for part in (first, second)]
    parts = number_evidence(cells(*trimmed[0])) + number_evidence(cells(*trimmed[1]))
    assert facts(parts) == facts(number_evidence(cells(*trimmed[0], *trimmed[1])))


@pytest.mark.parametrize("start", [0, 1, 50, 390])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
def test_texts_of_a_slice_stay_what_they_are(kind, start):
    whole = pa.array(["a", "bb", None, "ccc", ""] * 80, kind)
    texts = pa.chunked_array([whole.slice(start, 10), whole.slice(start // 2, 7)])
    found = texts_where(pc.not_equal(texts, "bb"), texts)
    found.validate(full=True)
    assert found.to_pylist() == [None if text == "bb" else text for text in texts.to_pylist()]
