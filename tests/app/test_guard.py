"""Who gets in: whoever knows the address, from this machine, through pages of the app."""

import http.client
import json
import os
from urllib.parse import urlsplit

import pytest

from evenhand.app.runs import Folder, OutsideError
from evenhand.exceptions import InvalidInputError
from evenhand.system.files import PrivateFolder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("bank")
    (root.parent / "secret.csv").write_text("a,b\n1,2\n")
    (root / "loans.csv").write_text("income,sex,paid\n1,f,1\n2,m,0\n")
    (root / "link.csv").symlink_to(root.parent / "secret.csv")
    (root / ".hidden.csv").write_text("a,b\n1,2\n")
    past = root / "past"
    past.mkdir()
    verdict = {"headline": "<script>alert(1)</script> & co"}
    (past / "audit.json").write_text(json.dumps({"verdict": verdict, "created": "2026-01-02T03:04:05"}))
    (past / "report.html").write_text("<script>parent.document.title = 1</script>")
    (past / "notes.txt").write_text("not a result")
    (root / "broken").mkdir()
    (root / "broken" / "audit.json").write_text("[1, 2")
    return root


@pytest.fixture(scope="module")
def address(app_of, folder):
    with app_of(folder) as found:
        yield urlsplit(found)


@pytest.fixture
def ask(address):
    """Asks for a path; returns status, headers and text. Cookie, Host and Origin are right unless given."""
    token = address.query.removeprefix("token=")

    def asked(path, method="GET", body=None, **headers):
        sent = {"Cookie": f"evenhand-{address.port}={token}", "Host": address.netloc} | headers
        if method == "POST":
            kind = "application/x-www-form-urlencoded"
            sent = {"Origin": f"http://{address.netloc}", "Content-Type": kind} | sent
        connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=30)
        connection.putrequest(method, path, skip_host=True)
        sent = {"Content-Length": len(body or ""), **sent} if method == "POST" else sent
        for name, value in sent.items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders((body or "").encode())
        answer = connection.getresponse()
        found = answer.status, dict(answer.getheaders()), answer.read().decode()
        connection.close()
        return found

    return asked


def test_the_token_opens_the_pages_and_is_kept_in_a_cookie_that_scripts_cannot_read(ask, address):
    status, headers, _ = ask(f"/?{address.query}", Cookie=None)
    assert status == 200
    assert headers["set-cookie"].endswith("; HttpOnly; SameSite=Strict; Path=/")
    assert len(address.query.removeprefix("token=")) >= 43  # 256 bits
    assert ask("/")[0] == 200


@pytest.mark.parametrize("path", ["/", "/new", "/static/app.js", "/audit/past", "/page/past/report.html", "/nothing"])
@pytest.mark.parametrize("cookie", [None, "evenhand-1=x", "wrong"])
def test_without_the_token_nothing_is_found(ask, address, path, cookie):
    cookie = f"evenhand-{address.port}=wrong" if cookie == "wrong" else cookie
    status, headers, text = ask(path, Cookie=cookie)
    assert status == 404
    assert "set-cookie" not in headers
    assert "past" not in text
    assert ask(f"{path}?token=wrong")[0] == 404  # even beside the right cookie


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:80", "", None])
def test_a_foreign_host_is_refused(ask, address, host):
    assert ask("/", Host=host)[0] in ((403,) if host is not None else (400, 403))
    assert ask("/", Host=f"localhost:{address.port}")[0] == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1"])
def test_a_foreign_origin_is_refused(ask, origin):
    assert ask("/", Origin=origin)[0] == 403
    assert ask("/start/past", "POST", Origin=origin)[0] == 403
    assert "access-control-allow-origin" not in {name.lower() for name in ask("/", Origin=origin)[1]}


def test_what_changes_something_needs_an_origin(ask):
    assert ask("/start/past", "POST", Origin=None)[0] == 403
    assert ask("/start/past")[0] == 405  # is not done by following a link


def test_uploads_have_a_size_and_a_limit(ask):
    assert ask("/new", "POST", **{"Content-Length": str(1 << 40)})[0] == 413
    assert ask("/new", "POST", **{"Content-Length": None, "Transfer-Encoding": "chunked"})[0] == 411


def test_every_answer_forbids_scripts_of_others_frames_and_caches(ask):
    for path in ("/", "/new", "/static/style.css", "/nothing"):
        headers = {name.lower(): value for name, value in ask(path)[1].items()}
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers


def test_a_report_is_alone_in_its_sandbox(ask):
    policy = ask("/page/past/report.html")[1]["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts;")
    assert "allow-same-origin" not in policy
    assert "default-src 'none'" in policy
    assert "connect-src" not in policy


@pytest.mark.parametrize(
    "path",
    [
        "/page/../secret.csv",
        "/page/..%2fsecret.csv",
        "/page/past/..%2f..%2fsecret.csv",
        "/page/%2fetc%2fpasswd",
        "/page//etc/passwd",
        "/page/link.csv",
        "/page/loans.csv",
        "/page/past/notes.txt",
        "/page/%00",
        "/audit/..",
        "/audit/.",
        "/audit/..%2f..",
        "/download/notes.txt/past",
        "/download/..%2fnotes.txt/past",
        "/download/audit.json/..%2fpast%2f..%2f..",
        "/static/..%2fserver.py",
        "/static/base.html.jinja",
        "/comparison/..%2fpast%2freport",
    ],
)
def test_no_name_leads_out_of_the_folder_or_to_other_files(ask, path):
    status, _, text = ask(path)
    assert status == 404
    assert "root:" not in text


def test_a_table_elsewhere_or_a_pickle_is_refused(ask, folder):
    for name in ("../secret.csv", "link.csv", ".hidden.csv", "/etc/passwd", "nothing.csv"):
        assert ask("/new", "POST", f"table={name}")[0] == 404, name
    assert ask("/new", "POST", "table=")[0] == 400
    assert not (folder / "audits").exists()


def test_hostile_names_and_damaged_results_are_shown_as_text(ask):
    status, _, text = ask("/")
    assert status == 200
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; co" in text
    assert ask("/audit/past")[0] == 200
    assert ask("/audit/broken")[0] < 500
    assert ask("/pairs/past")[0] == 200


@pytest.fixture
def bank(tmp_path):
    return Folder(tmp_path.resolve(), PrivateFolder())


def test_uploads_are_named_after_their_last_part_and_kept_only_if_asked(bank, tmp_path):
    with (tmp_path / "given").open("w+b") as file:
        for name in ("../../loans.csv", "..\\..\\loans.csv", "C:\\Users\\loans.csv", "/etc/loans.csv"):
            saved = bank.save(file, name, (".csv",), is_kept=False)
            assert saved.name == "loans.csv"
            assert saved.parent.parent == bank.uploads.path
        assert bank.save(file, "../loans.csv", (".csv",), is_kept=True) == tmp_path / "loans.csv"
        assert bank.save(file, "../loans.csv", (".csv",), is_kept=True) == tmp_path / "loans-2.csv"
        assert oct((tmp_path / "loans.csv").stat().st_mode)[-3:] == "600"
        for name in ("model.pkl", "model.joblib", "x.csv.PKL", "net.pt"):
            with pytest.raises(InvalidInputError, match="pickle, which can run any code"):
                bank.save(file, name, (".onnx",), is_kept=False)
        with pytest.raises(InvalidInputError, match=r"must be one of \.csv"):
            bank.save(file, "loans.exe", (".csv",), is_kept=False)


def test_a_path_is_inside_the_folder_or_refused(bank, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "loans.csv").write_text("a\n")
    (tmp_path / "out").symlink_to(os.sep)
    assert bank.path("in/../in/loans.csv") == tmp_path / "in" / "loans.csv"
    for name in ("..", "out", "out/etc/passwd", "/", "", "in/\0", "x" * 5000):
        if name == "":
            continue
        with pytest.raises(OutsideError):
            bank.path(name)
    assert bank.name(tmp_path / "-rf.csv") == "./-rf.csv"
    assert bank.name(tmp_path / "delta:loans") == "./delta:loans"
