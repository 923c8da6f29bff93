"""The page of a search in a browser."""

import pytest

import evenhand as eh
from evenhand import SearchOptions, search

pytestmark = pytest.mark.browser

HEADINGS = [
    "Verdict", "What was searched for", "What people held out of the search show", "What the choice costs and gains",
    "Candidates tried", "Why each was passed over", "Limits",
]  # fmt: skip
SPACE = {
    "objective": ["reasoning_gap"],
    "cec_weight": [1.0, 4.0],
    "equalized_odds_weight": [0.0, 1.0],
    "epochs": [4, 8],
}


@pytest.fixture(scope="module")
def found():
    data = eh.load_dataset("german")
    return search(
        data.X,
        data.y,
        sensitive_features=data.group,
        financial_features=data.financial_features,
        space={**SPACE, "learning_rate": [1e-3]},
        keep=["auc >= unconstrained - 0.05"],
        options=SearchOptions(folds=3, encoding="ordinal", device="cpu"),
    )


@pytest.fixture(scope="module")
def path(found, tmp_path_factory):
    return found.to_html(tmp_path_factory.mktemp("search") / "search.html")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 768, 1440])
def test_the_page_fits_and_complains_of_nothing(open_report, path, width, scheme):
    page = open_report(path, width=width, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    beyond = page.eval_on_selector_all(
        ".chart svg",
        """all => all.filter(s => s.getBoundingClientRect().right >
             s.closest('section').getBoundingClientRect().right).length""",
    )
    assert beyond == 0


def test_every_section_and_chart_is_there(open_report, path):
    page = open_report(path)
    assert page.eval_on_selector_all("main h2", "all => all.map(e => e.textContent)") == HEADINGS
    charts = page.eval_on_selector_all("[data-chart]", "all => all.map(e => e.dataset.chart)")
    assert charts == ["gains-utility", "gains-outcome", "gains-scores", "gains-procedure", "frontier"]
    heights = page.eval_on_selector_all("[data-chart] svg", "all => all.map(e => e.getBoundingClientRect().height)")
    assert len(heights) == 5
    assert min(heights) > 60


def test_there_is_a_mark_and_a_row_for_each_candidate(open_report, path, found):
    page = open_report(path)
    assert page.locator("[data-chart=frontier] svg .mark-symbol path[aria-roledescription=point]").count() == len(
        found.tried
    )
    assert page.locator("#reasons tbody tr").count() == len(found.tried)
    assert page.locator("#reasons tbody th").first.text_content() == str(found.chosen)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_intervals_can_be_seen_on_their_ground(open_report, path, scheme):
    page = open_report(path, scheme=scheme)
    ink, ground = page.evaluate(
        """() => [
            getComputedStyle(document.querySelector('[data-chart=gains-procedure] .mark-rule line[aria-label]')).stroke,
             getComputedStyle(document.querySelector('section')).backgroundColor]"""
    )

    def lightness(color):
        red, green, blue = (int(part) for part in color[4:-1].split(","))
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    assert abs(lightness(ink) - lightness(ground)) > 60
