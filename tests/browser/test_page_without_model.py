"""Pages of audits without the model in a browser: what cannot be found is named, and the rest stands."""

import re

import numpy as np
import pandas as pd
import pytest

import evenhand as eh

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    rng = np.random.default_rng(0)
    n = 250
    group = rng.choice(["women", "men"], n)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=["income", "debt", "tenure"])
    options = {"sensitive_features": group, "financial_features": ["income", "debt"]}
    parts = X * [1.0, -0.5, 0.3]
    score = 1 / (1 + np.exp(-parts.sum(axis=1)))
    y = (rng.uniform(size=n) < score).astype(int)
    price = {"unit": "percentage points", "favorable": "low"}
    folder = tmp_path_factory.mktemp("given")
    for name, found in {
        "scores": eh.audit_given(X, y, scores=score, **options),
        "price": eh.audit_given(X, scores=5 - score + 0.2 * (group == "women"), **price, **options),
        "explained": eh.audit_given(X, y, scores=score, attributions=parts, **options),
    }.items():
        found.to_html(folder / f"{name}.html")
    return folder


SECTIONS = {
    "scores": ["Verdict", "Score gap, by input", "Outcomes", "Matching and sensitivity", "Applicants to review",
               "About this audit"],
    "price": ["Verdict", "Score gap, by input", "Outcomes", "Matching and sensitivity", "About this audit"],
    "explained": ["Verdict", "Score gap, by input", "Outcomes", "Weighing and excess", "Decisions and reasoning",
                  "Reason codes", "Matching and sensitivity", "Applicants to review", "Pair explorer",
                  "About this audit"],
}  # fmt: skip


@pytest.mark.parametrize("kind", SECTIONS)
@pytest.mark.parametrize("width", [390, 1440])
def test_the_page_fits_and_names_what_is_not_possible(open_report, pages, kind, width):
    page = open_report(pages / f"{kind}.html", width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.eval_on_selector_all("main h2", "all => all.map(e => e.textContent)") == SECTIONS[kind]
    text = page.text_content("main")
    assert "Whether the same inputs are weighed differently cannot be found without the model" in text
    assert "Weights that differ by group" not in text
    assert re.search(r"\bnan\b", text, re.IGNORECASE) is None


def test_a_price_page_speaks_of_the_price(open_report, pages):
    page = open_report(pages / "price.html")
    assert "percentage points" in page.text_content(".headline")
    assert "decision threshold" not in page.text_content("main")
    assert page.locator("#outcome table").count() > 0
