from __future__ import annotations

from importlib import metadata

import evenhand as eh
from evenhand.system.libraries import versions


def test_every_installed_library_is_named_with_its_version(capsys):
    eh.show_versions()
    lines = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    assert lines["evenhand"] == eh.__version__
    assert lines["torch"] == metadata.version("torch")
    assert lines["scikit-learn"] == metadata.version("scikit-learn")


def test_libraries_that_are_not_there_are_left_out_unless_they_are_required(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    found = versions()
    assert found["numpy"] == "not installed"
    assert "torch" not in found
