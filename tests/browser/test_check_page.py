"""The page of a check in a browser."""

import numpy as np
import pandas as pd
import pytest

import evenhand as eh

pytestmark = pytest.mark.browser

HEADINGS = ["What was found", "Proposed roles", "Columns", "What to check", "Groups", "Configuration"]
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "Unnamed: 0": range(200),
            HOSTILE: [f"{HOSTILE}{k}" for k in range(200)],
            "a_very_long_name_of_an_amount_" * 4: rng.normal(size=200),
            "sex": rng.choice(["f", "F ", "m"], 200),
            "repaid": rng.integers(0, 2, 200),
        }
    )
    return eh.check(table, source=HOSTILE).to_html(tmp_path_factory.mktemp("check") / "check.html")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_the_page_fits_and_complains_of_nothing(open_report, path, width, scheme):
    page = open_report(path, width=width, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.eval_on_selector_all("main h2", "all => all.map(e => e.textContent)") == HEADINGS
    assert HOSTILE in page.text_content("h1")


def test_what_was_found_is_in_full_color_and_is_printed(open_report, path):
    page = open_report(path)
    color = "getComputedStyle(document.querySelector('{}')).color"
    assert page.evaluate(color.format("#found .headline")) == page.evaluate(color.format("body"))
    page.emulate_media(media="print")
    assert page.is_visible("#found .headline")
