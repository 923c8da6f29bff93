"""The evidence pack: what is in it, that it is always the same, and what a check of it says."""

import hashlib
import importlib.util
import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest

import evenhand as eh
from evenhand.auditing import pack as packing
from evenhand.exceptions import ArchiveError, InvalidInputError
from evenhand.system.files import write_archive

FILES = {"MANIFEST.sha256", "README.txt", "audit.json", "audit.toml", "audit.xlsx", "memo.docx", "pack.json",
         "pairs.parquet", "report.html", "reproduce.py"}  # fmt: skip


def audited(people, *, seed=0, **options):
    return eh.audit(
        people.model,
        people.dataset.X,
        people.dataset.y,
        sensitive_features=people.dataset.group,
        financial_features=people.dataset.financial_features,
        random_state=seed,
        **options,
    )


@pytest.fixture(scope="module")
def planted():
    return eh.make_planted_bias(120, strength=1.0, random_state=0)


@pytest.fixture(scope="module")
def result(planted):
    return audited(planted)


@pytest.fixture(scope="module", autouse=True)
def _no_charts():
    """Charts of the memo are not what is tested here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evenhand.report.memo.png_of", lambda *_: b"")
        patch.setattr("evenhand.report.memo.WordDocument.picture", lambda *_: None)
        yield


@pytest.fixture(scope="module")
def data_file(planted, tmp_path_factory):
    path = tmp_path_factory.mktemp("a secret folder") / "loans.csv"
    planted.dataset.X.assign(label=planted.dataset.y).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def pack(result, data_file, tmp_path_factory):
    path = tmp_path_factory.mktemp("packed") / "pack.zip"
    result.to_pack(path, inputs={"data": data_file})
    return path


def contents(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def changed(path, target, **entries):
    """A copy of a pack with other entries; None leaves one out. The manifest is as it was, unless it is given."""
    kept = {**contents(path), **{name.replace("__", "."): content for name, content in entries.items()}}
    write_archive(target, {name: content for name, content in kept.items() if content is not None})
    return target


def with_manifest(path, target, **entries):
    """The same with a manifest that fits."""
    kept = contents(changed(path, target, **entries))
    del kept["MANIFEST.sha256"]
    lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(kept.items())]
    write_archive(target, {**kept, "MANIFEST.sha256": "".join(lines).encode()})
    return target


def test_everything_is_in_it_and_the_manifest_holds(pack):
    found = contents(pack)
    assert set(found) == FILES
    lines = dict(reversed(line.split("  ")) for line in found.pop("MANIFEST.sha256").decode().splitlines())
    assert lines == {name: hashlib.sha256(content).hexdigest() for name, content in found.items()}
    assert all(name in found["README.txt"].decode() for name in FILES - {"README.txt"})


def test_no_file_says_where_it_was_made_or_holds_the_data(pack, data_file):
    for name, content in contents(pack).items():
        assert str(data_file.parent).encode() not in content, name
        assert str(pack.parent).encode() not in content, name
        assert data_file.read_bytes()[:200] not in content
    facts = json.loads(contents(pack)["pack.json"])
    assert facts["inputs"]["data"] == {
        "name": "loans.csv", "sha256": hashlib.sha256(data_file.read_bytes()).hexdigest()
    }  # fmt: skip


def test_the_same_audit_at_the_same_time_gives_the_same_bytes(planted, result, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    result.to_pack(tmp_path / "first.zip")
    audited(planted).to_pack(tmp_path / "second.zip")
    assert (tmp_path / "first.zip").read_bytes() == (tmp_path / "second.zip").read_bytes()


def test_an_audit_run_again_has_the_same_numbers(pack, planted, data_file, tmp_path):
    again = audited(planted)
    found = eh.verify_pack(pack, again, inputs={"data": data_file}, tolerance=0)
    assert found.is_same
    assert found.n_numbers > 500
    assert "numbers are the same within 0." in found.sentences[-1]
    again.to_json(tmp_path / "again.json")
    assert eh.verify_pack(pack, tmp_path / "again.json").is_same


def test_numbers_settings_people_and_files_that_differ_are_named(pack, planted, data_file, tmp_path):
    other = eh.verify_pack(pack, audited(planted, consistency_threshold=0.4))
    assert other.settings == ("The setting consistency_threshold was 0.3 and is 0.4.",)
    assert {difference.where for difference in other.numbers} >= {"regimes.A", "regimes.B"}
    assert any(sentence.startswith("  regimes.A was ") for sentence in other.sentences)

    moved = replace(planted, dataset=replace(planted.dataset, X=planted.dataset.X.assign(income=0.5)))
    assert eh.verify_pack(pack, audited(moved)).people == (
        "The people are those of the pack, but these columns differ: income.",
    )
    turned = planted.dataset.y.copy()
    turned[:3] = 1 - turned[:3]
    flipped = replace(planted, dataset=replace(planted.dataset, y=turned))
    assert eh.verify_pack(pack, audited(flipped)).people[0].endswith("labels or groups are different.")

    (tmp_path / "new.csv").write_text("a\n1\n")
    found = eh.verify_pack(pack, inputs={"data": tmp_path / "new.csv", "model": data_file})
    assert not found.is_same
    assert found.inputs[0].startswith("The data file differs: the pack's file, loans.csv, has the SHA-256 ")
    assert found.inputs[1] == "The audit of the pack read no model file, but loans.csv was given."


def test_a_number_beyond_the_tolerance_differs_and_one_within_does_not(pack, result, tmp_path):
    result.to_json(tmp_path / "again.json")
    document = json.loads((tmp_path / "again.json").read_text())
    document["cec"]["mean"] += 1e-4
    document["features"].reverse()  # order plays no part
    (tmp_path / "again.json").write_text(json.dumps(document))
    (difference,) = eh.verify_pack(pack, tmp_path / "again.json").numbers
    assert (difference.where, difference.found - difference.packed) == ("cec.mean", pytest.approx(1e-4))
    assert eh.verify_pack(pack, tmp_path / "again.json", tolerance=1e-3).is_same
    del document["cec"]["mean"]
    (tmp_path / "again.json").write_text(json.dumps(document))
    assert eh.verify_pack(pack, tmp_path / "again.json", tolerance=1e-3).numbers[0].found is None


def test_the_script_of_a_pack_made_in_python_runs_the_audit(pack, planted, tmp_path, monkeypatch):
    with zipfile.ZipFile(pack) as archive:
        archive.extractall(tmp_path / "unpacked")
    spec = importlib.util.spec_from_file_location("reproduce", tmp_path / "unpacked" / "reproduce.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    people = planted.dataset
    again = script.reproduce(planted.model, people.X, people.y, people.group)
    assert eh.verify_pack(pack, again, tolerance=0).is_same


def test_a_file_that_was_changed_is_named(pack, tmp_path):
    found = eh.verify_pack(changed(pack, tmp_path / "new.zip", report__html=b"<p>all is well</p>"))
    assert not found.is_same
    assert found.files == ("report.html is not the file that was packed: its SHA-256 differs.",)


DEEP = b'{"schema": "evenhand.audit/3", "x": ' + b"[" * 900 + b"]" * 900 + b"}"


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"report__html": None}, "lacks a file that MANIFEST.sha256 lists: 'report.html'"),
        ({"evil__exe": b"x"}, "has a file that MANIFEST.sha256 does not list: 'evil.exe'"),
        ({"MANIFEST__sha256": None}, "has no 'MANIFEST.sha256'"),
        ({"MANIFEST__sha256": b"nothing"}, "is not a list of hashes and names"),
        ({"MANIFEST__sha256": b"\xff"}, "is not UTF-8 text"),
    ],
)
def test_what_is_not_a_pack_is_refused(pack, tmp_path, entries, words):
    with pytest.raises(ArchiveError, match=words):
        eh.verify_pack(changed(pack, tmp_path / "new.zip", **entries))


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"audit__toml": None}, "its manifest does not list 'audit.toml'"),
        ({"audit__json": b"[]"}, "'audit.json' in 'new.zip' is not complete JSON of the kind 'evenhand.audit/3'"),
        ({"audit__json": b'{"schema": "evenhand.audit/3"}'}, "is not complete JSON of the kind"),
        ({"audit__json": b'{"schema": "other", "data": {"column_prints": {}}, "settings": {}}'}, "got 'other'"),
        ({"audit__json": DEEP}, "is not complete JSON of the kind"),
        ({"pack__json": b'{"schema": "evenhand.pack/1", "inputs": {"data": 3}}'}, "is not complete JSON of the kind"),
        (
            {"pack__json": b'{"schema": "evenhand.pack/1", "inputs": {}, "made_with": 1, "versions": {}}'},
            "is not complete JSON",
        ),
    ],
)
def test_a_pack_whose_parts_are_not_what_they_should_be_is_refused(pack, tmp_path, entries, words):
    with pytest.raises(ArchiveError, match=words):
        eh.verify_pack(with_manifest(pack, tmp_path / "new.zip", **entries))


def test_a_damaged_pack_gives_an_answer_or_a_sentence(pack, tmp_path, rng):
    whole, path, refusals = pack.read_bytes(), tmp_path / "damaged.zip", []
    for place in rng.integers(len(whole), size=60).tolist() + list(range(len(whole) - 60, len(whole), 3)):
        spoiled = bytearray(whole)
        spoiled[place] ^= int(rng.integers(1, 256))
        path.write_bytes(spoiled if place % 4 else spoiled[:place])
        try:
            assert eh.verify_pack(path).sentences
        except ArchiveError as refused:
            refusals.append(str(refused))
    assert len(refusals) > 40
    assert not any("\n" in sentence for sentence in refusals)


def test_bad_arguments_are_refused_and_nothing_is_left_behind(result, pack, tmp_path, monkeypatch):
    out = tmp_path / "out"
    with pytest.raises(
        InvalidInputError, match="`inputs` must be among data, model, reference, attributions_file, got 'table'"
    ):
        result.to_pack(out / "pack.zip", inputs={"table": "x.csv"})
    with pytest.raises(FileNotFoundError):
        result.to_pack(out / "pack.zip", inputs={"data": "absent.csv"})
    with pytest.raises(InvalidInputError, match="`tolerance`"):
        eh.verify_pack(pack, tolerance=-1)
    (tmp_path / "no.json").write_text("{}")
    with pytest.raises(InvalidInputError, match="is not the JSON of an audit"):
        eh.verify_pack(pack, tmp_path / "no.json")
    monkeypatch.setattr(packing, "MOST_BYTES", 1000)
    with pytest.raises(InvalidInputError, match="A pack holds up to 1,000 bytes"):
        result.to_pack(out / "pack.zip")
    assert not out.exists()


def test_versions_that_differ_are_a_note(pack, result, tmp_path):
    facts = json.loads(contents(pack)["pack.json"])
    facts["versions"]["numpy"] = "1.0"
    new = with_manifest(pack, tmp_path / "new.zip", pack__json=json.dumps(facts).encode())
    found = eh.verify_pack(new, result)
    assert found.is_same
    assert found.notes == (f"The pack was made with different versions: numpy 1.0 (here {np.__version__}).",)
