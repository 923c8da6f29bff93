"""Reports opened in Chromium."""

import os
import shutil
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
import pytest
import torch

import evenhand as eh

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
HOSTILE = (
    "<script>window.hacked=1</script>",
    "</script><script>window.hacked=2</script>",
    '"><img src=x onerror="window.hacked=3">',
    "{{7*7}}",
    "a\u2028b & 'quoted'",
    "very_long_" * 60,
)


@pytest.fixture(scope="session")
def chromium():
    playwright = pytest.importorskip("playwright.sync_api", reason="the extra `browser` is not installed")
    path = os.environ.get("EVENHAND_CHROMIUM") or shutil.which("chromium")
    if path is None:
        pytest.skip("Chromium is not installed; install it, or name it in EVENHAND_CHROMIUM")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield browser
        browser.close()


@dataclass
class Opened:
    """A page, and everything it complained about or asked for."""

    page: object
    complaints: list = field(default_factory=list)
    requests: list = field(default_factory=list)


@pytest.fixture
def open_report(chromium):
    """Opens a file; afterwards, that nothing was complained about or fetched."""
    opened = []

    def opener(path, *, width=1440, height=900, scheme="light"):
        page = chromium.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        found = Opened(page)
        page.on("console", lambda m: found.complaints.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: found.complaints.append(str(e)))
        page.on("request", lambda r: found.requests.append(r.url))
        page.on("dialog", lambda d: (found.complaints.append(f"dialog {d.message}"), d.dismiss()))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-drawn]", timeout=60_000)
        opened.append((found, path))
        return page

    yield opener
    for found, path in opened:
        assert found.complaints == []
        assert [url for url in found.requests if not url.startswith("data:")] == [path.as_uri()]
        found.page.close()


def audited(n, names, groups, **options):
    rng = np.random.default_rng(3)
    X = pd.DataFrame(rng.normal(size=(n, len(names))), columns=names)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(len(names), 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    score = model(torch.tensor(X.to_numpy(), dtype=torch.float32)).detach().numpy().ravel()
    y = (score - np.median(score) + rng.normal(scale=score.std(), size=n) > 0).astype(int)
    group = np.asarray(groups, dtype=object)[np.arange(n) % len(groups)]
    return eh.audit(model, X, y, sensitive_features=group, financial_features=list(names[-2:]), **options)


@pytest.fixture(scope="session")
def result(with_people):
    inputs = [f"feature {j}" for j in range(15)] + ["income", "debt"]
    found = audited(300, inputs, ["women", "men"], regressions=True)
    table = found.table.copy()
    table["feature 0"] = pd.Categorical(np.where(table["feature 0"] > 0, "own home", "rented"))
    table.loc[table.index % 9 == 0, "feature 1"] = np.nan
    return with_people(found, table=table, reference_table=table)


@pytest.fixture(scope="session")
def with_ids():
    ids = [f"Loan-{7 * k}" for k in range(200)]
    return audited(200, ["feature 0", "income", "debt"], ["women", "men"], ids=ids, evidence=False)


@pytest.fixture(scope="session")
def hostile(with_people):
    names = [*HOSTILE, *(f"feature_{j}" for j in range(54))]
    found = audited(400, names, [*HOSTILE[:4], "plain"], by=pd.Series(np.resize(HOSTILE[:3], 400), name=HOSTILE[0]))
    table = found.table.astype({names[0]: object})
    table[names[0]] = np.resize(np.asarray(HOSTILE, dtype=object), len(table))
    provenance = replace(found.provenance, model=HOSTILE[1])
    found = replace(found, provenance=provenance, warnings=HOSTILE)
    return with_people(found, table=table, reference_table=table)


@pytest.fixture(scope="session")
def report(result, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    result.to_html(path, pairs_file="pairs.parquet")
    return path
