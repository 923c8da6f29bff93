"""The whole way of an analyst through `evenhand app`."""

import json
import re
import subprocess
import sys
import time
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
import psutil
import pytest
import skops.io
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from evenhand.datasets.messy import save_messy

pytestmark = pytest.mark.browser
PATIENCE = 300_000  # milliseconds: each command imports its libraries first, and others may use the machine


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A bank's messy spreadsheet with its model, and a table whose audit takes a while."""
    root = tmp_path_factory.mktemp("bank")
    save_messy(root, 500)
    save_messy(root / "long", 12_000)
    save_messy(root / "longest", 60_000)  # by keyboard, it takes a while to reach the button that cancels
    return root


@pytest.fixture(scope="module")
def address(app_of, folder):
    with app_of(folder) as found:
        yield found


@pytest.fixture
def tab(chromium, address):
    """Opens tabs; afterwards, that nothing was complained about, and that nothing else was asked."""
    context, complaints, asked = chromium.new_context(), [], []

    def opened(path="", **size):
        page = context.new_page()
        if size:
            page.set_viewport_size(size)
        page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        first = urlsplit(address)
        page.goto(f"{first.scheme}://{first.netloc}/{path}?{first.query}")
        return page

    yield opened
    context.close()
    assert [text for text in complaints if "400 (Bad Request)" not in text] == []  # the browser's words on a refusal
    assert {urlsplit(url).netloc for url in asked if not url.startswith(("data:", "blob:"))} == {
        urlsplit(address).netloc
    }


def new_audit(page, name, table="applications.csv", model="model.skops"):
    """As far as the page on which columns get their roles."""
    page.click("header nav >> text=New audit")
    page.select_option("#f-table", table)
    page.select_option("#f-model", model)
    page.fill("#f-name", name)
    page.click("text=Next: look at the table")
    page.click("text=Next: columns and model", timeout=PATIENCE)


def finished(page):
    page.wait_for_selector("iframe[title=Report]", timeout=PATIENCE)
    return page.frame_locator("iframe[title=Report]")


def test_from_a_messy_file_to_the_same_numbers_as_the_command_line(tab, folder):
    page = tab()
    new_audit(page, "first")
    names = ("Unnamed: 0", "application_id", "received", "income", "sex", "repaid", "collection_fee")
    cells = {name: page.locator("tr", has=page.get_by_text(name, exact=True)) for name in names}
    roles = {name: cell.locator("select").input_value() for name, cell in cells.items()}
    assert roles == {
        **dict.fromkeys(("Unnamed: 0", "application_id", "received", "collection_fee"), "drop"),
        **{"income": "financial_features", "sex": "group", "repaid": "label"},
    }
    assert "numbers the rows from 0 to 499" in cells["Unnamed: 0"].text_content()
    assert page.is_checked("text=Read 'female ' as 'Female'")
    assert not page.is_checked("text=Read '-999' in credit_score as missing")
    page.check("text=Read '-999' in credit_score as missing")
    page.fill("#f-title", "Small loans, <b>spring</b>")
    page.check("text=Word memo")
    page.check("text=Evidence pack")
    page.click("text=Next: confirm")
    page.wait_for_selector("text=yes in repaid is good for the applicant.")
    sentence = page.text_content("dd:has-text('High scores are good')", timeout=PATIENCE)
    assert re.search(r"repaid is yes for \d+% of those approved at the cutoff of 0.5, and for \d+% of", sentence)
    command = page.text_content("pre >> nth=0").strip()
    assert command == "evenhand audit applications.csv --config audits/first/audit.toml --out audits/first"
    page.click("text=Start the audit")
    page.wait_for_selector("progress", timeout=PATIENCE)
    page.reload()  # loses nothing
    assert page.text_content("#h-state") == "Running"
    report = finished(page)
    report.locator("html[data-drawn]").wait_for(timeout=PATIENCE)
    assert report.locator("h1").text_content() == "Small loans, <b>spring</b>"
    headline = report.locator(".headline").text_content()

    again = folder.parent / "again"
    words = command.replace("--out audits/first", f"--out {again}").split()[1:]
    subprocess.run([sys.executable, "-m", "evenhand", *words], cwd=folder, check=True, capture_output=True)
    mine, theirs = (json.loads((out / "audit.json").read_text()) for out in (folder / "audits" / "first", again))
    assert mine.pop("created") != ""
    theirs.pop("created")
    assert mine == theirs

    for words, file in (("Word memo", "memo.docx"), ("Evidence pack", "pack.zip"), ("Numbers, JSON", "audit.json")):
        with page.expect_download() as download:
            page.click(f"text={words}")
        assert download.value.suggested_filename == f"audits-first-{file}"
        assert download.value.path().read_bytes() == (folder / "audits" / "first" / file).read_bytes()

    page.click("text=Pairs to review >> nth=0")
    page.wait_for_selector(".pair")
    n = page.locator(".pair").count()
    assert n == len(pd.read_csv(folder / "audits" / "first" / "review.csv")) > 0
    page.fill("input[type=search]", "no such value")
    page.wait_for_selector(f"text=0 of {n} pairs")
    page.fill("input[type=search]", "female")
    page.locator(".pair summary").first.click()
    assert page.locator(".pair[open] tbody tr").first.text_content().startswith("score")

    page.click("header nav >> text=Audits")
    assert headline in page.text_content(".audits")


def test_two_audits_are_compared(tab, folder):
    settings = 'label = "repaid"\npositive_label = "yes"\ngroup = "sex"\nmodel = "model.skops"\ndrop_missing = true\n'
    settings += 'financial_features = ["income"]\n[clean]\ngroups = {"female " = "Female"}\n'
    (folder / "audit.toml").write_text(settings)
    for name, people in (("march", 300), ("april", 500)):
        words = ["audit", "applications.csv", "--config", "audit.toml", "--rows", people, "--out", name]
        command = [sys.executable, "-m", "evenhand", *map(str, words)]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    page = tab()
    page.check("[aria-label='Compare march']")
    page.check("[aria-label='Compare april']")
    page.click("text=Compare the chosen audits")
    frame = page.frame_locator("iframe[title=Comparison]")
    frame.locator("h1", has_text="april compared with march").wait_for(timeout=PATIENCE)
    assert (folder / "comparisons" / "march-and-april.html").exists()
    assert "evenhand compare march/audit.json april/audit.json" in page.text_content("pre")


def test_runs_queue_are_canceled_and_started_again_in_two_tabs(tab, folder):
    page, other = tab(), tab()
    for one, name in ((page, "two"), (other, "one")):
        new_audit(one, name, "long/applications.csv", "")
        one.click("text=Next: confirm")
    other.click("text=Start the audit")
    page.click("text=Start the audit")
    assert page.text_content("#h-state") == "Waiting"
    assert "1 audit is ahead" in page.text_content("[data-poll]")
    other.wait_for_selector("progress", timeout=PATIENCE)
    other.click("text=Cancel")
    other.wait_for_selector("text=Canceled")
    assert not (folder / "audits" / "one" / "audit.json").exists()
    page.wait_for_selector("h2:has-text('Running')", timeout=PATIENCE)  # without a reload by hand
    other.click("text=Start again")
    finished(page)
    finished(other)


def test_an_audit_outlives_the_browser_and_a_killed_app(chromium, app_of, tmp_path):
    save_messy(tmp_path, 12_000)
    with app_of(tmp_path) as address:
        page = chromium.new_page()
        page.goto(address)
        new_audit(page, "kept", model="")
        page.click("text=Next: confirm")
        page.click("text=Start the audit")
        page.wait_for_selector("progress", timeout=PATIENCE)
        page.close()
    with app_of(tmp_path) as address:  # the first was ended, and its command with it
        page = chromium.new_page()
        page.goto(address)
        assert "canceled" in page.text_content(".audits")
        page.click("text=audits/kept")
        page.click("text=Start again")
        finished(page)
        page.close()


def test_an_upload_is_deleted_unless_it_is_kept(tab, folder):
    page = tab()
    before = {path.name for path in folder.iterdir()}
    for is_kept in (False, True):
        page.click("header nav >> text=New audit")
        table = (folder / "applications.csv").read_bytes()
        given = {"name": "../dropped.csv", "mimeType": "text/csv", "buffer": table}
        page.set_input_files("#f-table_file", given)
        page.select_option("#f-model", "model.skops")
        page.set_checked("input[name=keep]", is_kept)
        page.click("text=Next: look at the table")
        page.click("text=Next: columns and model", timeout=PATIENCE)
        if is_kept:
            continue
        page.click("text=Next: confirm")
        private = page.text_content("pre >> nth=0").split()[2]
        page.click("text=Start the audit")
        finished(page)
        assert not pd.io.common.file_exists(private)
        assert {path.name for path in folder.iterdir()} - before <= {"audits"}
    assert (folder / "dropped.csv").read_bytes() == table


def test_a_model_is_dropped_and_a_pickle_is_refused(tab, folder):
    page = tab()
    new_audit(page, "with-model", model="")
    page.set_input_files("#f-model_file", {"name": "m.pkl", "mimeType": "", "buffer": b"\x80\x04N."})
    page.click("text=Next: confirm")
    assert "can run any code" in page.text_content(".warning")
    page.go_back()
    page.set_input_files(
        "#f-model_file", {"name": "m.skops", "mimeType": "", "buffer": (folder / "model.skops").read_bytes()}
    )
    page.click("text=Next: confirm")
    page.wait_for_selector("dd:has-text('High scores are good')", timeout=PATIENCE)
    page.click("text=Change something")
    page.select_option("#f-favorable", "low")  # which is wrong, and told back
    page.click("text=Next: confirm")
    page.wait_for_selector("dd:has-text('Low scores are good')", timeout=PATIENCE)
    told = [int(share) for share in re.findall(r"(\d+)%", page.text_content("dd:has-text('Low scores are good')"))]
    assert told[0] < told[1]


def test_by_keyboard_alone(tab, folder):
    page = tab()

    def press_until(key, selector, most=200):
        for _ in range(most):
            if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
            page.keyboard.press(key)
        pytest.fail(f"{selector} was not reached")

    def ring():
        return page.evaluate("getComputedStyle(document.activeElement).outlineStyle")

    press_until("Tab", "a[href='/new']")
    assert ring() == "solid"
    page.keyboard.press("Enter")
    page.wait_for_url("**/new")
    press_until("Tab", "#f-table")
    page.keyboard.type("longest/app")
    press_until("Tab", "#f-name")
    page.keyboard.type("keys")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Next: columns and model", timeout=PATIENCE)
    press_until("Tab", "a.main")
    page.keyboard.press("Enter")
    page.wait_for_url("**/columns/**")
    press_until("Tab", "button.main")
    page.keyboard.press("Enter")
    page.wait_for_url("**/confirm/**")
    press_until("Tab", "button.main")
    page.keyboard.press("Enter")
    page.wait_for_url("**/audit/**")
    page.wait_for_selector("progress", timeout=PATIENCE)
    press_until("Tab", "form[action^='/cancel'] button")
    time.sleep(1.5)  # progress is shown anew, and the button keeps the focus
    assert page.evaluate("document.activeElement.textContent") == "Cancel"
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Canceled")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_every_page_fits_and_can_be_read(tab, folder, width, scheme):
    page = tab(width=width, height=844)
    page.emulate_media(color_scheme=scheme)
    for path in ("", "new", "file/audits/first", "columns/audits/first", "confirm/audits/first", "audit/audits/first",
                 "pairs/audits/first", "comparison/march-and-april"):  # fmt: skip
        page.goto(f"{page.url.split('/')[0]}//{page.url.split('/')[2]}/{path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        page.click("header nav >> text=Audits", trial=True)  # nothing is in front of it
        unnamed = page.evaluate(
            "[...document.querySelectorAll('input:not([type=hidden]), select, button, iframe, progress')]"
            ".filter((e) => !(e.labels?.length || e.ariaLabel || e.textContent.trim() || e.title)).map((e) => e.name)"
        )
        assert unnamed == [], path
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == (
            "rgb(247, 248, 250)" if scheme == "light" else "rgb(18, 21, 27)"
        )


@pytest.mark.slow
def test_a_table_of_a_gigabyte_is_streamed_from_where_it_is(chromium, app_of, tmp_path):
    rng, n, table = np.random.default_rng(0), 25_000, tmp_path / "loans.csv"
    income, debt = rng.lognormal(10.5, 0.5, n).round(2), rng.lognormal(9, 0.5, n).round(2)
    sex, paid = rng.choice(["female", "male"], n), (np.log(income / debt) - 1.5 + rng.logistic(size=n) > 0).astype(int)
    notes = "a remark that nobody reads " * 1600
    with table.open("w") as file:
        file.write("income,debt,sex,repaid,notes\n")
        file.writelines(f"{income[k]},{debt[k]},{sex[k]},{paid[k]},{k} {notes}\n" for k in range(n))
    assert table.stat().st_size > 10**9
    inputs = pd.DataFrame({"income": income, "debt": debt})
    skops.io.dump(make_pipeline(StandardScaler(), LogisticRegression()).fit(inputs, paid), tmp_path / "model.skops")
    run = tmp_path / "audits" / "loans"
    with app_of(tmp_path) as address:
        server = next(p for p in psutil.Process().children() if "app" in p.cmdline())
        page, sent = chromium.new_page(), []
        page.on("request", lambda request: sent.append(len(request.post_data_buffer or b"")))
        page.goto(address)
        new_audit(page, "loans", "loans.csv")
        with (run / "audit.toml").open("a") as settings:  # more than 100 batches, so that some are left
            settings.write("batch_rows = 250\n")
        page.reload()
        page.click("text=More settings")
        assert page.is_checked("input[name=stream]")
        page.click("text=Next: confirm")
        page.wait_for_selector("dd:has-text('High scores are good')", timeout=PATIENCE)
        command = page.text_content("pre >> nth=0")
        assert command.strip().startswith("evenhand audit loans.csv ")  # the path, not a copy
        page.click("text=Start the audit")
        page.wait_for_selector(r"text=/^([5-9]|[1-4]\d) of 1\d\d/", timeout=PATIENCE)
        page.click("text=Cancel")
        page.wait_for_selector("text=Canceled", timeout=PATIENCE)
        before = {path: path.stat().st_mtime_ns for path in (run / "batches").glob("[0-9]*.npz") if path.stem.isdigit()}
        assert 5 <= len(before) < 100
        page.click("text=Start again")
        finished(page)
        assert "--resume" in page.text_content("pre")
        assert {path: path.stat().st_mtime_ns for path in before} == before
        assert sum(sent) < 1 << 16
        assert server.memory_info().rss < 400 << 20
        page.close()
    found = json.loads((run / "audit.json").read_text())
    assert found["data"]["n_people"] == n
