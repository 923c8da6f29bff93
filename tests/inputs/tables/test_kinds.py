import pyarrow as pa
import pyarrow.compute as pc
import pytest

from evenhand.inputs.tables.columns import texts_where


@pytest.mark.parametrize("start", [0, 1, 50, 390])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
def test_texts_of_a_slice_stay_what_they_are(kind, start):
    whole = pa.array(["a", "bb", None, "ccc", ""] * 80, kind)
    texts = pa.chunked_array([whole.slice(start, 10), whole.slice(start // 2, 7)])
    found = texts_where(pc.not_equal(texts, "bb"), texts)
    found.validate(full=True)
    assert found.to_pylist() == [None if text == "bb" else text for text in texts.to_pylist()]
