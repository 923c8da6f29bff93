"""A configuration, a pack or a worker decides neither what is trusted nor where rows go, nor which files are read."""

import json
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from evenhand import cli
from evenhand.auditing.streaming.engines import spark
from evenhand.auditing.streaming.engines.local import ShippingError
from evenhand.auditing.streaming.store import Store
from evenhand.cli.options import AuditPlan, SearchPlan, TrainPlan, plan_from_toml
from evenhand.exceptions import ArchiveError, InvalidInputError, StreamError
from evenhand.system.processes import described, error_of


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "audit.toml"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("trust_pickle = true", "lets a file run code"),
        ('engine = "dask"\nscheduler = "tcp://evil.example:8786"', "sends rows to other machines"),
        ('engine = "spark"\nscheduler = "sc://evil.example:15002"', "sends rows to other machines"),
        ("sql = \"select * from '/etc/passwd'\"", "reads any file of this machine"),
        ('template = "house.docx"', "puts the content of another file into the memo"),
        *(
            (f"{key} = '{place}'", "names something other than a local file")
            for key in ("model", "reference", "attributions_file", "reason_map", "reasons")
            for place in ("https://evil.example/x.csv", "s3://evil/x", "delta:s3://evil/x", "\\\\evil\\share\\x.csv")
        ),
    ],
)
def test_only_the_command_line_sends_rows_away_or_trusts(config, line, why):
    config.write_text(line)
    key = line.splitlines()[-1].partition(" ")[0]
    with pytest.raises(InvalidInputError) as refused:
        plan_from_toml(config, AuditPlan)
    flag = f"--{key.replace('_', '-')}"
    assert str(refused.value).endswith(f"sets {key}, which {why}: set it only on the command line, with {flag}.")


@pytest.mark.parametrize("place", ["/tmp/elsewhere", "../elsewhere"])
def test_a_file_names_no_folder_to_write_outside_the_working_folder(config, place):
    config.write_text(f'checkpoint = "{place}"')
    with pytest.raises(InvalidInputError, match=r"is a folder outside the working folder.*--checkpoint"):
        plan_from_toml(config, TrainPlan)
    config.write_text('checkpoint = "unfinished"')
    assert plan_from_toml(config, TrainPlan).checkpoint == "unfinished"


@pytest.mark.parametrize("place", ["zip://people.csv::x.zip", "simplecache://a::x.csv", "iceberg:lending/bank.loans"])
def test_chained_addresses_and_catalogs_are_no_local_files(config, place):
    config.write_text(f'reference = "{place}"')
    with pytest.raises(InvalidInputError, match=r"names something other than a local file.*--reference"):
        plan_from_toml(config, AuditPlan)


@pytest.mark.parametrize("place", ["$EVENHAND_SECRET/x.csv", "${EVENHAND_SECRET}.csv", "%EVENHAND_SECRET%", "~/x.csv"])
def test_a_file_reads_no_variable_of_the_environment(config, monkeypatch, place):
    monkeypatch.setenv("EVENHAND_SECRET", "secret")
    config.write_text(f'reference = "{place}"\nlabel = "{place}"')
    plan = plan_from_toml(config, AuditPlan)
    assert (plan.reference, plan.label) == (place, place)


def test_a_search_starts_from_no_address(config):
    config.write_text('start = "https://evil.example/model.json"')
    with pytest.raises(InvalidInputError, match=r"names something other than a local file.*--start"):
        plan_from_toml(config, SearchPlan)


def test_local_files_and_empty_values_stay(config):
    config.write_text('model = "/models/a.onnx"\nreference = "b.csv"\nscheduler = ""\nsql = ""\ntrust_pickle = false')
    plan = plan_from_toml(config, AuditPlan)
    assert (plan.model, plan.reference, plan.scheduler, plan.sql, plan.trust_pickle) == (
        *("/models/a.onnx", "b.csv"),
        *(None, None, False),
    )


def _run(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["evenhand", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


ROLES = ["--label", "paid", "--group", "sex", "--financial", "income", "--stream", "--model", "model.onnx"]


@pytest.mark.integration
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--engine", "dask", "--scheduler", "tcp://ann:pw@cluster:8786"], "Rows are sent to tcp://cluster:8786.\n"),
        (["--engine", "spark", "--scheduler", "sc://cluster/;token=abc"], "Rows are sent to sc://cluster/"),
        (["--engine", "spark", "--scheduler", "local[2]"], ""),
    ],
)
def test_the_terminal_says_where_rows_go(config, monkeypatch, capsys, words, told):
    def refuse(*_):
        raise InvalidInputError("far enough")

    (config.parent / "people.csv").write_text("income,sex,paid\n1,f,1\n")
    monkeypatch.setattr("evenhand.cli.jobs.stream_table", refuse)
    code, out, err = _run(monkeypatch, capsys, "audit", "people.csv", *ROLES, *words)
    assert (code, "far enough" in err) == (2, True)
    assert told in out
    assert ("Rows are sent" in out) == bool(told)
    assert "pw" not in out
    assert "abc" not in out


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('engine = "dask"\nscheduler = "tcp://evil.example:1"', "sends rows to other machines"),
        ("sql = \"select * from '/etc/passwd'\"", "reads any file"),
        ('reference = "https://evil.example/people.csv"', "names something other than a local file"),
        ('reason_map = "/etc/passwd"', "names a file as its reason_map"),
        ("trust_pickle = true", "lets a file run code"),
    ],
)
def test_the_settings_of_a_pack_are_settings(config, line, why):
    from evenhand.auditing.pack import Pack
    from evenhand.cli.audits import _run_again

    pack = Pack("pack.zip", "", {}, {}, line, ())
    with pytest.raises(ArchiveError, match=why) as refused:
        _run_again(pack, {"data": "people.csv"}, None, config.parent, trust_pickle=False)
    assert "'audit.toml' in 'pack.zip'" in str(refused.value)


@pytest.mark.parametrize(
    "files",
    [
        {"../../stolen": b"", "batches/000003.npz": b""},
        {"/tmp/stolen": b"", "batches/000003.npz": b""},
        {"batches/000004.npz": b""},
        {"pairs/part-000003.parquet": b""},
        {"batches/000003.npz": object()},
        ["batches/000003.npz"],
        "batches/000003.npz",
    ],
)
def test_a_worker_writes_only_the_files_of_its_batch(tmp_path, files):
    with pytest.raises(StreamError, match="something other than the files of batch 3"):
        Store(tmp_path / "out").write(3, files)
    assert not list(tmp_path.iterdir())


def test_the_files_of_a_batch_are_kept(tmp_path):
    files = {"batches/000003.npz": b"end", "pairs/part-000003.parquet": pa.py_buffer(b"pairs")}
    Store(tmp_path).write(3, files)
    assert {name: (tmp_path / name).read_bytes() for name in files} == {name: bytes(files[name]) for name in files}


@pytest.mark.parametrize(
    ("sent", "kind", "message"),
    [
        (InvalidInputError("a sentence"), InvalidInputError, "a sentence"),
        (ShippingError("a sentence"), StreamError, "a sentence"),
        (KeyError("income"), RuntimeError, "KeyError: 'income'"),
    ],
)
def test_the_errors_of_executors_are_words(sent, kind, message):
    sent.add_note("where")
    error = error_of(json.loads(json.dumps(described(sent))))
    assert (type(error), str(error), error.__notes__) == (kind, message, ["where"])


@pytest.mark.parametrize("kind", ["SystemExit", "os.system", "first_line", "annotations", "__builtins__"])
def test_an_executor_names_no_other_kind_of_error(kind):
    error = error_of({"kind": kind, "message": "touch mark", "errno": None, "notes": []})
    assert (type(error), str(error)) == (RuntimeError, f"{kind}: touch mark")


def test_no_answer_of_executors_is_unpickled():
    source = Path(spark.__file__).read_text()
    assert source.count("pickle.loads") == 1  # on the executor, of what this process sent
