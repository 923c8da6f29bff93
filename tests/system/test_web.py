import socket

import pytest

from evenhand.exceptions import DownloadError, InvalidInputError
from evenhand.system.web import download_file, progress_bar

BODY = b"a,b\n1,2\n" * 1000


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch):
    monkeypatch.setattr("evenhand.system.web._WAIT_SECONDS", 0)


def whole(body=BODY):
    return 200, {"Content-Length": str(len(body))}, body


def files_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_content_arrives_whole_and_alone(server, tmp_path):
    server.answers = [whole()]
    target = download_file(server.url, tmp_path / "new" / "file.csv")
    assert target.read_bytes() == BODY
    assert files_in(target.parent) == ["file.csv"]


def test_size_may_be_unannounced(server, tmp_path):
    server.answers = [(200, {}, BODY)]
    seen = []
    target = download_file(server.url, tmp_path / "file.csv", progress=lambda *args: seen.append(args))
    assert target.read_bytes() == BODY
    assert seen[-1] == (len(BODY), None)


def test_progress_ends_at_the_announced_size(server, tmp_path):
    server.answers = [whole()]
    seen = []
    download_file(server.url, tmp_path / "file.csv", progress=lambda *args: seen.append(args))
    assert seen[-1] == (len(BODY), len(BODY))


def test_server_error_is_tried_again(server, tmp_path):
    server.answers = [(500, {}, b"oops"), whole()]
    target = download_file(server.url, tmp_path / "file.csv")
    assert target.read_bytes() == BODY
    assert len(server.requests) == 2


def test_truncated_body_is_tried_again(server, tmp_path):
    server.answers = [(200, {"Content-Length": str(len(BODY))}, BODY[:100]), whole()]
    assert download_file(server.url, tmp_path / "file.csv").read_bytes() == BODY


def test_body_truncated_every_time_leaves_nothing(server, tmp_path):
    server.answers = [(200, {"Content-Length": str(len(BODY))}, BODY[:100])]
    with pytest.raises(DownloadError, match="ended after 100 of 8,000 bytes"):
        download_file(server.url, tmp_path / "file.csv")
    assert len(server.requests) == 3
    assert files_in(tmp_path) == []


def test_failure_keeps_an_earlier_file(server, tmp_path):
    target = tmp_path / "file.csv"
    target.write_text("earlier")
    server.answers = [(500, {}, b"")]
    with pytest.raises(DownloadError, match="the server answered 500"):
        download_file(server.url, target)
    assert target.read_text() == "earlier"
    assert files_in(tmp_path) == ["file.csv"]


def test_missing_page_is_asked_for_once(server, tmp_path):
    server.answers = [(404, {}, b"")]
    with pytest.raises(DownloadError, match="the server answered 404 Not Found"):
        download_file(server.url, tmp_path / "file.csv")
    assert len(server.requests) == 1


def test_empty_answer_is_refused(server, tmp_path):
    server.answers = [(200, {}, b"")]
    with pytest.raises(DownloadError, match="it is empty"):
        download_file(server.url, tmp_path / "file.csv")


def test_unreachable_server_is_one_sentence_with_the_manual_way(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/file.csv"
    target = tmp_path / "file.csv"
    with pytest.raises(DownloadError) as caught:
        download_file(url, target)
    message = str(caught.value)
    assert message.startswith(f"Could not download {url} (")
    assert message.endswith(f"or download that address with a browser and save it as {target}.")
    assert "\n" not in message
    assert files_in(tmp_path) == []


def test_silent_server_times_out(tmp_path, monkeypatch):
    monkeypatch.setattr("evenhand.system.web._SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/file.csv"
        with pytest.raises(DownloadError, match="timed out"):
            download_file(url, tmp_path / "file.csv")
    assert files_in(tmp_path) == []


def test_interruption_leaves_nothing(server, tmp_path):
    server.answers = [whole()]

    def interrupt(received, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download_file(server.url, tmp_path / "file.csv", progress=interrupt)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("url", ["http://example.org/x", "ftp://example.org/x", "file:///etc/hosts"])
def test_address_must_be_https(url, tmp_path):
    with pytest.raises(InvalidInputError, match="`url` must be an https address"):
        download_file(url, tmp_path / "x")


def test_redirect_is_followed_but_not_to_plain_http(server, tmp_path):
    server.answers = [(302, {"Location": server.url}, b""), whole()]
    assert download_file(server.url, tmp_path / "file.csv").read_bytes() == BODY
    server.answers = [(302, {"Location": "http://example.org/x"}, b"")]
    with pytest.raises(DownloadError, match=r"redirects to http://example\.org, which is not https"):
        download_file(server.url, tmp_path / "other.csv")


def test_progress_bar_accepts_known_and_unknown_sizes(capsys):
    with progress_bar("file.csv") as progress:
        progress(5, None)
        progress(10, 10)
    assert capsys.readouterr().out == ""
