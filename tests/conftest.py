"""Tiny models and people shared by the tests."""

import contextlib
import functools
import gc
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
import warnings
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.process import BaseProcess
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, settings
from pyarrow.fs import FileSystem
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

import evenhand as eh
from evenhand import cli
from evenhand.inputs.tables import lakes
from evenhand.matching.placebos import N_NEAR, N_NEIGHBORS
from evenhand.system import processes

TESTS = Path(__file__).parent
NUMBER = re.compile(r"[-\u2212]?\d+(?:\.\d+)?")

settings.register_profile("dev", max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True)
settings.register_profile("nightly", settings.get_profile("dev"), max_examples=300)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))


# Tests of these folders audit, search or train; `make unit` is of functions.
WHOLE = {"app", "auditing", "benchmarks", "cli", "fuzz", "report", "research", "searching", "studies", "training"}


def pytest_addoption(parser):
    parser.addoption("--renew", action="store_true", help="write tests/snapshots anew in place of comparing with it")


def pytest_ignore_collect(collection_path, config):
    """What would be left out anyway is not imported either."""
    if collection_path.parent == TESTS and collection_path.name in WHOLE:
        return "not integration" in config.option.markexpr or None
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(TESTS) and item.path.relative_to(TESTS).parts[0] in WHOLE:
            item.add_marker(pytest.mark.integration)


def pytest_collection_finish():
    """The garbage collector, which streamed audits call, leaves alone what imports and collection made."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _unit_tests_start_no_process(request, monkeypatch):
    """What starts another Python waits seconds for its imports; the marker keeps it out of `make unit`."""
    if any(request.node.get_closest_marker(name) for name in ("integration", "slow", "browser")):
        return
    start = subprocess.Popen.__init__

    def refuse(*_arguments, **_options):
        pytest.fail("This test starts a process: mark it, or its file, with `pytest.mark.integration`.")

    def refuse_python(process, words, *arguments, **options):
        if sys.executable in words:  # libraries may ask the system for its cores
            refuse()
        start(process, words, *arguments, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", refuse_python)
    monkeypatch.setattr(BaseProcess, "start", refuse)


@pytest.fixture(autouse=True)
def _no_user_cache(tmp_path_factory, monkeypatch):
    """Tests never read or write the user's own cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(autouse=True)
def _same_draws_in_every_run():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def near_triples_only(monkeypatch):
    """Audits of a few people compare them with as few as audits of many, or of sampled explanations, do."""
    monkeypatch.setattr("evenhand.auditing.fitted._REACH", {np.inf: (N_NEIGHBORS, N_NEAR)})


@pytest.fixture
def opened_here(monkeypatch):
    """Model files that a test wrote itself are opened in this process: another takes seconds to import libraries."""
    from evenhand.models.files import load, worker

    def opened(path, library):
        arrays, rest = worker._READERS[library](str(path))
        return arrays, json.loads(json.dumps(rest))

    monkeypatch.setattr(load, "opened_apart", opened)


@pytest.fixture(autouse=True)
def _tables_read_here(request, monkeypatch):
    """Tables are read in this process, without its limits: another takes half a second to import libraries."""
    if "tables_apart" in request.fixturenames:
        return
    answered = processes._answered

    def here(asked, seconds):
        function = json.loads(asked)[0]
        if not function.startswith("evenhand.inputs.tables."):
            return answered(asked, seconds)
        with monkeypatch.context() as unlimited:
            for module in (processes, lakes):
                unlimited.setattr(module, "limit_resources", lambda *_, **__: None)
            return 0, processes.answer(asked)

    monkeypatch.setattr(processes, "_answered", here)


@pytest.fixture
def tables_apart():
    """Tables are read in a process with limits, as users have it."""


@pytest.fixture
def full_disk():
    """A context in which no file can grow beyond some bytes, as on a disk that fills up."""
    resource = pytest.importorskip("resource", reason="the size of files cannot be limited here")

    @contextlib.contextmanager
    def limited(n_bytes):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return limited


@pytest.fixture(scope="session")
def app_of():
    """A context in which `evenhand app` shows a folder; it yields the address, and ends as Ctrl-C ends it."""
    pytest.importorskip("uvicorn", reason="the extra `app` is not installed")

    @contextlib.contextmanager
    def running(folder, *options, **environment):
        command = [sys.executable, "-m", "evenhand", "app", "--folder", str(folder), "--no-open", *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.send_signal(signal.SIGINT)
            process.stdout.close()
            assert process.wait(30) == 0

    return running


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def people():
    """Forty people, two groups, both labels in each group, five features."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(40, 5))
    y = np.tile([0, 1], 20)
    group = np.repeat(["a", "b"], 20)
    return X, y, group


@pytest.fixture(scope="session")
def with_people():
    """A function that gives an audit in memory other pairs, people or attributions than it found."""

    def changed(found, **people):
        return replace(found, source=replace(found.source, **people))

    return changed


def _loans(n=160):
    """Applicants of two groups, of whom one has fewer savings and lives in other streets."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, 4)), columns=["income", "debt", "savings", "street"])
    group = rng.choice(["a", "b"], n)
    X["savings"] -= 0.8 * (group == "b")
    X["street"] += 1.5 * (group == "b")
    y = (X["income"] - X["debt"] + X["savings"] + rng.logistic(size=n) > 0).astype(int).to_numpy()
    return X, y, group


def _audited(model, loans, **options):
    X, y, group = loans
    return eh.audit(model, X, y, sensitive_features=group, financial_features=["income", "debt"], **options)


def _planted(strength, n=200, **options):
    planted = eh.make_planted_bias(n, strength=strength, random_state=0)
    people = planted.dataset
    return eh.audit(planted.model, people.X, people.y, sensitive_features=people.group,
                    financial_features=people.financial_features, **options)  # fmt: skip


def _linear(loans):
    return LogisticRegression().fit(loans[0], loans[1])


def _given(what, **options):
    X, y, group = loans = _loans()
    score = _linear(loans).predict_proba(X)[:, 1]
    values = {"scores": score, "decisions": score > 0.5, "price": 9 - 4 * score}[what]
    name = "decisions" if what == "decisions" else "scores"
    return eh.audit_given(X, y, sensitive_features=group, financial_features=["income", "debt"],
                          **{name: values}, **options)  # fmt: skip


AUDITS = {
    "linear": lambda: _audited(_linear(_loans()), _loans()),
    "trees": lambda: _audited(
        GradientBoostingClassifier(n_estimators=10, random_state=0).fit(*_loans()[:2]), _loans(), regressions=True
    ),
    "planted bias": lambda: _planted(1.0),
    "blind": lambda: _planted(0.0),
    "five groups": lambda: _audited(_linear(_loans(400)), (*_loans(400)[:2], np.resize(list("abcde"), 400))),
    "weights": lambda: _audited(_linear(_loans()), _loans(), sample_weight=np.resize([1.0, 2.0, 0.0, 9.0], 160)),
    "limits": lambda: _audited(_linear(_loans()), _loans(), limits={"score_gap": 0.1, "excess": 0.5}),
    "no evidence": lambda: _planted(1.0, evidence=False),
    "no match": lambda: _planted(1.0, n=60, max_distance=1e-9),
    "few people": lambda: _audited(_linear(_loans(30)), _loans(30)),
    "scores": lambda: _given("scores"),
    "decisions": lambda: _given("decisions"),
    "price": lambda: _given("price", unit="percentage points", favorable="low"),
}


@pytest.fixture(scope="session")
def audits():
    """Small audits by name, each made once in a process, where it is first asked for."""

    @functools.cache
    def made(name):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", eh.EvenhandWarning)
            return AUDITS[name]()

    return made


@pytest.fixture(params=["memory", "stream", "command"])
def entry(request, tmp_path, monkeypatch):
    """Audits the people of a table through a front, and returns the JSON that it writes.

    Options have their names in Python; what says something of each person is the name of a column.
    """
    monkeypatch.setattr(eh.AuditResult, "to_html", lambda _, path, **_options: Path(path).write_text("<html>"))
    monkeypatch.setattr(eh.AuditResult, "to_excel", lambda _, path: Path(path).write_text("sheets"))

    def audit(model, table, *, features, label, group, front=request.param, **options):
        people, out = tmp_path / "people.parquet", tmp_path / front
        table.to_parquet(people, row_group_size=100)
        if front == "memory":
            columns = {"sample_weight", "decisions", "ids", "clusters", "by"} & set(options)
            options |= {name: table[options[name]] for name in columns}
            y = None if label is None else table[label]
            eh.audit(model, table[features], y, sensitive_features=table[group], **options).to_json(out / "audit.json")
        elif front == "stream":
            roles = {"label": label, "group": group, "features": features}
            eh.audit_stream(model, people, out=out, batch_rows=100, n_jobs=1, **roles, **options)
        else:
            joblib.dump(model, tmp_path / "model.joblib")
            unused = set(table) - {*features, label, group, *(v for v in options.values() if isinstance(v, str))}
            words = ["--group", group, "--drop", ",".join(unused - set(options.get("by", ())))]
            words += [] if label is None else ["--label", label]
            for name, value in options.items():
                words += _option(name, value, tmp_path)
            model_file = ["--model", str(tmp_path / "model.joblib"), "--trust-pickle", "--out", str(out)]
            done = CliRunner().invoke(cli.app, ["audit", str(people), *model_file, *words])
            if done.exception is not None:
                raise done.exception
        return json.loads((out / "audit.json").read_text("utf-8"))

    return audit


def _option(name, value, folder):
    """The words of the command line for an option of Python."""
    flag = "--" + {"financial_features": "financial", "decisions": "decision", "ids": "id"}.get(name, name).replace(
        "_", "-"
    )
    if name == "limits":
        return [word for key, number in value.items() for word in ("--limit", f"{key}={number}")]
    if isinstance(value, dict):
        (folder / f"{name}.toml").write_text("[reasons]\n" + "".join(f"{k!r} = {v!r}\n" for k, v in value.items()))
        return [flag, str(folder / f"{name}.toml")]
    return [flag, ",".join(value) if isinstance(value, list) else str(value)]


def _float(number):
    return float(number.replace("\u2212", "-"))


@pytest.fixture
def snapshot(request):
    """Compares texts by name with those of a file in tests/snapshots, numbers within 1%; --renew writes the file."""

    def compare(file, texts):
        path = TESTS / "snapshots" / file
        if request.config.getoption("--renew"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(texts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        kept = json.loads(path.read_text("utf-8"))
        assert list(texts) == list(kept)
        for name, lines in texts.items():
            shown, known = ([NUMBER.sub("#", line) for line in part] for part in (lines, kept[name]))
            assert shown == known, name
            numbers, expected = (NUMBER.findall(" ".join(part)) for part in (lines, kept[name]))
            assert [_float(n) for n in numbers] == pytest.approx([_float(n) for n in expected], rel=0.01, abs=0.0011), (
                name
            )

    return compare


@pytest.fixture(scope="session")
def result(with_people):
    """Two groups, a model that weighs them unlike, some numbers and some categories."""
    planted = eh.make_planted_bias(300, strength=1.0, random_state=0)
    people = planted.dataset
    found = eh.audit(
        planted.model,
        people.X,
        people.y,
        sensitive_features=people.group,
        financial_features=people.financial_features,
        by=pd.Series([f"branch {i % 3}" for i in range(len(people.y))], name="branch"),
        regressions=True,
        outcomes={"price": np.random.default_rng(0).normal(size=len(people.y))},
    )
    table = found.table.copy()
    first = table.columns[0]
    table[first] = pd.Categorical(np.where(table[first] > 0, "own home", "rented"))
    return with_people(found, table=table, reference_table=table)


@pytest.fixture(scope="session")
def without_evidence(result, with_people):
    features = result.features.drop(columns=[c for c in result.features if c.startswith("excess")])
    pairs = result.pairs.assign(placebo_cec=np.nan, q_value=np.nan)
    lost = {"excess": None, "proxies": None, "drivers": features}
    return with_people(replace(result, sections={**result.sections, **lost}), pairs=pairs)


class ScriptedServer(ThreadingHTTPServer):
    """Answers each request with the next (status, headers, body) of `answers`, the last one for ever."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/file.csv"


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedServer

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        answers = self.server.answers
        status, headers, body = answers.pop(0) if len(answers) > 1 else answers[0]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def _object_store():
    """A server that speaks S3, moto's, in a thread of this process, on a free port."""
    moto = pytest.importorskip("moto.server")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def object_store(_object_store, monkeypatch):
    """The endpoint of an S3 store with an empty bucket "lending"; credentials are in the environment."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": _object_store,
    }.items():
        monkeypatch.setenv(name, value)
    _ask_moto(_object_store, "reset")
    filesystem, _ = FileSystem.from_uri("s3://lending?allow_bucket_creation=true")
    filesystem.create_dir("lending")
    yield _object_store
    _ask_moto(_object_store, "reset-auth", b"inf")


@pytest.fixture
def deny_access(object_store):
    """Makes the store check credentials, and know none."""
    return lambda: _ask_moto(object_store, "reset-auth", b"0")


@pytest.fixture
def put(object_store):
    """Writes files to the store: put("loans/2024.csv", content) to s3://lending/loans/2024.csv."""
    filesystem, _ = FileSystem.from_uri("s3://lending")

    def write(path, content):
        with filesystem.open_output_stream(f"lending/{path}") as file:
            file.write(content)
        return f"s3://lending/{path}"

    return write


def _ask_moto(endpoint, action, body=b""):
    plain = {"Content-Type": "text/plain"}
    with urllib.request.urlopen(urllib.request.Request(f"{endpoint}/moto-api/{action}", body, plain, method="POST")):
        pass


class _RangeHandler(SimpleHTTPRequestHandler):
    """Serves a folder; answers ranges and knows versions, unless the server is told not to."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.requests.append((self.path, dict(self.headers)))
        path = Path(self.translate_path(self.path))
        if self.server.user and self.headers.get("Authorization") != self.server.user:
            return self.send_error(401)
        if not path.is_file():
            return self.send_error(404)
        content = path.read_bytes()
        version = f'"{hash(content)}"'
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        is_same = self.headers.get("If-Range", version) == version
        if self.server.has_ranges and asked and is_same:
            first, last = int(asked[1]), min(int(asked[2]), len(content) - 1)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
            content = content[first : last + 1]
        else:
            self.send_response(200)
        if self.server.has_ranges:
            self.send_header("ETag", version)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(content)
            self.server.n_sent += len(content)
        return None


@pytest.fixture
def web(tmp_path_factory):
    """A web server of a folder: `.folder`, `.url`, `.requests`, `.n_sent`, and whether it `.has_ranges`."""
    folder = tmp_path_factory.mktemp("web")
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_RangeHandler, directory=str(folder))) as running:
        running.daemon_threads = True
        running.folder, running.requests, running.n_sent = folder, [], 0
        running.has_ranges, running.user = True, None
        running.url = f"http://127.0.0.1:{running.server_address[1]}"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield running
        running.shutdown()
        thread.join()
