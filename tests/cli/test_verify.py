"""`evenhand audit --memo --pack` and `evenhand verify`, from files to exit codes."""

import sys
import tomllib
import zipfile

import docx
import numpy as np
import pandas as pd
import pytest

import evenhand as eh
from evenhand import cli
from evenhand.system.files import write_archive

pytestmark = pytest.mark.integration

ROLES = ["--label", "outcome", "--group", "sex", "--financial", "income,debt"]
PLAN = 'label = "outcome"\ngroup = "sex"\nfinancial_features = ["income", "debt"]\n'


@pytest.fixture(scope="module", autouse=True)
def _no_charts():
    """Charts of the memo are not what is tested here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evenhand.report.memo.png_of", lambda *_: b"")
        patch.setattr("evenhand.report.memo.WordDocument.picture", lambda *_: None)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Applicants, and a small model of them."""
    found = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    n = 240
    table = pd.DataFrame({"income": rng.normal(size=n).round(3), "debt": rng.normal(size=n).round(3)})
    table["rent"] = rng.normal(size=n).round(3)
    table["sex"] = rng.choice(["f", "m"], n)
    table["outcome"] = (table["income"] - table["debt"] + rng.normal(size=n) > 0).astype(int)
    table.to_csv(found / "loans.csv", index=False)
    model = eh.CECClassifier(financial_features=["income", "debt"], hidden=(8,), epochs=3, cec_weight=0.0)
    model.fit(table[["income", "debt", "rent"]], table["outcome"], sensitive_features=table["sex"]).save(
        found / "model"
    )
    return found


@pytest.fixture(scope="module")
def pack(folder):
    """A pack of an audit with a model file."""
    with pytest.MonkeyPatch.context() as patch:
        words = ["audit", folder / "loans.csv", *ROLES, "--model", folder / "model", "--pack", "--out", folder / "out"]
        patch.setattr(sys, "argv", ["evenhand", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    assert ended.value.code == 0
    return folder / "out" / "pack.zip"


def changed(pack, target, **entries):
    with zipfile.ZipFile(pack) as archive:
        kept = {name: archive.read(name) for name in archive.namelist()}
    kept |= {name.replace("__", "."): content for name, content in entries.items()}
    write_archive(target, kept)
    return target


def test_the_same_files_give_the_same_numbers(evenhand, folder, pack):
    code, out, err = evenhand("verify", pack, "--data", folder / "loans.csv", "--model", folder / "model")
    assert code == 0, err
    assert "All files match the manifest." in out
    assert "numbers are the same within 1e-06." in out
    assert "not run again" not in out


def test_the_settings_are_written_out_and_name_files_without_their_folders(pack, folder):
    with zipfile.ZipFile(pack) as archive:
        settings = tomllib.loads(archive.read("audit.toml").decode())
        everything = b"".join(archive.read(name) for name in archive.namelist())
    assert settings["model"] == "model"
    assert settings["group"] == ["sex"]
    assert settings["consistency_threshold"] == 0.3
    assert not {"pack", "memo", "trust_pickle", "n_jobs"} & set(settings)
    assert str(folder).encode() not in everything


def test_without_the_files_the_pack_alone_is_checked(evenhand, folder, pack):
    code, out, _ = evenhand("verify", pack, "--data", folder / "loans.csv")
    assert code == 0
    assert "The audit was not run again: give --model model." in out
    code, out, _ = evenhand("verify", pack)
    assert "The audit was not run again: give --data loans.csv, --model model." in out


def test_other_data_differ_in_file_people_and_numbers(evenhand, folder, pack, tmp_path):
    table = pd.read_csv(folder / "loans.csv")
    table.assign(rent=table["rent"] + 0.5).to_csv(tmp_path / "loans.csv", index=False)
    code, out, _ = evenhand("verify", pack, "--data", tmp_path / "loans.csv", "--model", folder / "model")
    assert code == 1
    assert "The data file differs: the pack's file, loans.csv, has the SHA-256 " in out
    assert "The people are those of the pack, but these columns differ: rent." in out
    assert "numbers differ by more than 1e-06:" in out


def test_a_file_of_the_pack_that_was_changed_is_exit_code_1(evenhand, pack, tmp_path):
    code, out, _ = evenhand("verify", changed(pack, tmp_path / "pack.zip", report__html=b"other"))
    assert code == 1
    assert "report.html is not the file that was packed" in out


@pytest.mark.parametrize("entries", [{"../up": b"x"}, {"/etc/x": b"x"}, {"more__txt": b"x"}, {"pack__json": b"{}"}])
def test_what_is_not_a_pack_is_one_sentence_and_exit_code_2(evenhand, pack, tmp_path, entries):
    code, out, err = evenhand("verify", changed(pack, tmp_path / "pack.zip", **entries))
    assert code == 2
    assert not out
    assert err.startswith("Error: ")
    assert err.count("\n") == 1


def test_a_file_that_is_not_there_is_named(evenhand, pack, tmp_path):
    assert evenhand("verify", tmp_path / "absent.zip")[0] == 2
    code, _, err = evenhand("verify", pack, "--data", tmp_path / "absent.csv")
    assert code == 2
    assert "There is no file" in err


def test_a_pack_chooses_no_file_and_trusts_none(evenhand, folder, pack, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("evenhand.cli.jobs.audit_table", lambda path, plan: seen.append((path, plan)))
    monkeypatch.setattr("evenhand.auditing.pack._summary_of", lambda _: {"settings": {}, "data": {}})
    monkeypatch.setattr("evenhand.auditing.pack._people", lambda *_: ())
    hostile = PLAN + 'model = "/etc/passwd"\nreference = "../x.csv"\n'
    new = changed(pack, tmp_path / "pack.zip", audit__toml=hostile.encode())
    evenhand("verify", new, "--data", folder / "loans.csv", "--model", folder / "model")
    ((path, plan),) = seen
    assert path.name == str(folder / "loans.csv")
    assert (plan.model, plan.reference) == (str(folder / "model"), None)
    assert not plan.trust_pickle
    for line in ("trust_pickle = true", 'template = "/etc/passwd"', 'reference = "https://evil.example/x.csv"'):
        new = changed(pack, tmp_path / "trusting.zip", audit__toml=f"{PLAN}{line}\n".encode())
        code, _, err = evenhand("verify", new, "--data", folder / "loans.csv", "--model", folder / "model")
        assert code == 2
        assert "'audit.toml' in 'trusting.zip' sets" in err
        assert "set it only on the command line" in err


def test_a_pack_made_in_python_is_run_with_a_plan(evenhand, folder, tmp_path):
    table = pd.read_csv(folder / "loans.csv")
    model = eh.load_model(folder / "model")
    features = ["income", "debt", "rent"]
    result = eh.audit(
        model, table[features], table["outcome"], sensitive_features=table["sex"], financial_features=["income", "debt"]
    )
    files = {"data": folder / "loans.csv", "model": folder / "model"}
    result.to_pack(tmp_path / "pack.zip", inputs=files)
    given = ["verify", tmp_path / "pack.zip", "--data", files["data"], "--model", files["model"]]
    code, out, _ = evenhand(*given)
    assert code == 0
    assert "The audit was not run again: give --config with the columns" in out
    (tmp_path / "plan.toml").write_text(PLAN)
    code, out, err = evenhand(*given, "--config", tmp_path / "plan.toml")
    assert code == 0, (out, err)
    assert "numbers are the same within 1e-06." in out


def test_a_streamed_audit_is_packed_and_run_again(evenhand, folder, tmp_path):
    words = ["--model", folder / "model", "--stream", "--batch-rows", 100, "--pack", "--out", tmp_path / "out"]
    code, _, err = evenhand("audit", folder / "loans.csv", *ROLES, *words)
    assert code == 0, err
    pack = tmp_path / "out" / "pack.zip"
    code, out, err = evenhand("verify", pack, "--data", folder / "loans.csv", "--model", folder / "model")
    assert code == 0, (out, err)
    assert "numbers are the same within 1e-06." in out


def test_a_memo_in_a_template_is_written_and_a_bad_template_stops_before_the_audit(evenhand, folder, tmp_path):
    document = docx.Document()
    document.add_paragraph("House of Loans")
    document.save(tmp_path / "house.docx")
    common = ["audit", folder / "loans.csv", *ROLES, "--model", folder / "model", "--no-evidence", "--out"]
    code, out, err = evenhand(*common, tmp_path / "out", "--memo", "--template", tmp_path / "house.docx")
    assert code == 0, err
    assert "memo.docx" in out
    assert docx.Document(tmp_path / "out" / "memo.docx").paragraphs[0].text == "House of Loans"
    code, _, err = evenhand(*common, tmp_path / "bad", "--memo", "--template", folder / "loans.csv")
    assert code == 2
    assert "The template must be a Word file" in err
    code, _, err = evenhand(*common, tmp_path / "bad", "--template", tmp_path / "house.docx")
    assert code == 2
    assert "--template only applies to the memo: add --memo or --pack." in err
    assert not (tmp_path / "bad").exists()
