"""An audit through the pages, without a browser and without a network."""

import json
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest
from packaging.requirements import Requirement

# Run in a network of its own, in which there is only the loopback device: everything else cannot be reached.
OFFLINE = r"""
import fcntl, http.client, json, re, socket, struct, subprocess, sys, time
from pathlib import Path
from urllib.parse import urlencode, urlsplit

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as device:
    fcntl.ioctl(device, 0x8914, struct.pack("16sh", b"lo", 0x41))  # up and running
try:
    socket.create_connection(("192.0.2.1", 80), timeout=1)
    sys.exit("there is a network")
except OSError:
    pass
command = [sys.executable, "-m", "evenhand", "app", "--folder", sys.argv[1], "--no-open", "--demo"]
server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
address = next(urlsplit(word) for line in server.stdout for word in line.split() if word.startswith("http"))
cookie = f"evenhand-{address.port}={address.query.partition('token=')[2]}"

def ask(path, form=None):
    connection = http.client.HTTPConnection(address.netloc)
    headers = {"Cookie": cookie, "Origin": f"http://{address.netloc}"}
    if form is not None:
        headers["Content-Type"] = "application/x-www-form-urlencoded"
    connection.request("GET" if form is None else "POST", path, None if form is None else urlencode(form), headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    assert answer.status < 400, text
    return ask(answer.getheader("location")) if answer.status == 303 else text

def wait(path, sign):
    while sign not in (text := ask(path)):
        assert "did not finish" not in text, text
        time.sleep(0.5)
    return text

assert "cards.csv" in ask(f"{address.path}?{address.query}")
ask("/new", {"table": "cards.csv", "name": "one"})
wait("/file/audits/one", "Next: columns")
text = ask("/columns/audits/one")
chosen = re.findall(r'name="(role-\d+)">.*?value="(\w*)" selected', text)
ask("/columns/audits/one", {**dict(chosen), "positive_label": "1", "quick": "on"})
ask("/start/audits/one", {})
wait("/audit/audits/one", "iframe")
server.send_signal(2)
sys.exit(server.wait())
"""


@pytest.mark.slow
def test_an_audit_needs_no_network(tmp_path):
    inside = ["unshare", "--map-root-user", "--net"]
    if shutil.which("unshare") is None or subprocess.run([*inside, "true"], capture_output=True).returncode:
        pytest.skip("a network of its own cannot be made here")
    done = subprocess.run([*inside, sys.executable, "-c", OFFLINE, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "audits" / "one"
    assert json.loads((out / "audit.json").read_text())["data"]["n_people"] > 100
    assert (out / "report.html").stat().st_size > 1_000_000


def test_the_app_starts_in_two_seconds_without_heavy_libraries(app_of, tmp_path):
    with app_of(tmp_path) as address:
        assert urlopen(address).status == 200
        process = next(p for p in psutil.Process().children() if "app" in p.cmdline())
        spent = process.cpu_times()
        mapped = " ".join(Path(f"/proc/{process.pid}/maps").read_text().split()) if sys.platform == "linux" else ""
    assert spent.user + spent.system < 2  # of computing: others may use the machine, too
    assert "torch" not in mapped


def test_the_extra_adds_at_most_ten_packages():
    def needed(texts):
        wanted = [one for one in map(Requirement, texts) if one.marker is None or one.marker.evaluate({"extra": ""})]
        return {one.name.lower() for one in wanted}.union(*(needed(requires(one.name) or ()) for one in wanted))

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    added = needed(project["optional-dependencies"]["app"]) - needed(project["dependencies"])
    assert {"starlette", "uvicorn", "python-multipart"} <= added
    assert len(added) <= 10
