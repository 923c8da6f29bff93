"""A disk that fills up while the files of an audit are written."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

import evenhand as eh

pytestmark = pytest.mark.integration


def test_all_files_are_written_or_none(tmp_path):
    """A limit on the size of a file stands in for the disk: pairs and numbers fit, the page does not."""
    data = eh.load_dataset("synthetic", n=300)
    data.X.assign(repaid=data.y, sex=data.group).to_parquet(tmp_path / "people.parquet")
    financial = ",".join(data.financial_features[:3])
    words = f"audit people.parquet --label repaid --group sex --financial {financial} --out out"

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

    done = subprocess.run(
        [sys.executable, "-m", "evenhand", *words.split()],
        cwd=tmp_path,
        preexec_fn=limited,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "The audit's files could not be written to 'out': File too large. None was written; " in done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "out").iterdir()) == []
