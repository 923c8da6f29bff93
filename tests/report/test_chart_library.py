import pytest

from evenhand.report import frame as chart_library


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Scripts that were made, with the cache in a folder of the test."""
    found = []

    def bundle(entry):
        found.append(entry)
        return f"a('</script><!--'); {entry}"

    monkeypatch.setattr(chart_library, "user_cache_dir", lambda *args, **options: str(tmp_path / "cache"))
    monkeypatch.setattr(chart_library.vl_convert, "javascript_bundle", bundle)
    return found


def library():
    chart_library.chart_library.cache_clear()  # as a new process would
    return chart_library.chart_library()


@pytest.fixture(autouse=True)
def _nothing_left():
    yield
    chart_library.chart_library.cache_clear()


def test_the_script_is_made_once_and_cannot_end_the_tag_it_stands_in(made):
    first = library()
    assert library() == first
    assert len(made) == 1
    assert "</script" not in first
    assert "<!--" not in first


def test_a_kept_script_that_was_changed_is_made_anew(made, tmp_path):
    first = library()
    (kept,) = (tmp_path / "cache").iterdir()
    kept.write_text(kept.read_text().replace("a(", "b("))
    assert library() == first
    assert len(made) == 2


def test_the_script_is_made_where_nothing_can_be_kept(made, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert library() == library()
    assert len(made) == 2
