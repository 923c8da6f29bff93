"""A disk that fills up while the files of an audit are written."""

import pytest

import evenhand as eh


@pytest.mark.usefixtures("real_pages")
def test_all_files_are_written_or_none(tmp_path, monkeypatch, evenhand, full_disk):
    """Pairs and numbers fit on the disk, the page does not."""
    monkeypatch.chdir(tmp_path)
    data = eh.load_dataset("synthetic", n=300)
    data.X.assign(repaid=data.y, sex=data.group).to_parquet(tmp_path / "people.parquet")
    financial = ",".join(data.financial_features[:3])
    words = f"audit people.parquet --label repaid --group sex --financial {financial} --out out"
    with full_disk(300_000):
        code, _, said = evenhand(*words.split())
    assert code == 2, said
    assert "The audit's files could not be written to 'out': File too large. None was written; " in said
    assert "Traceback" not in said
    assert list((tmp_path / "out").iterdir()) == []
