"""Pages on several audits: complete in themselves, escaped, and with the metrics of the comparison."""

import copy
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import evenhand as eh
from evenhand.auditing.history.compare import compare_audits
from evenhand.auditing.history.monitoring import monitor
from evenhand.auditing.history.records import History, RecordedAudit
from evenhand.report.frame import policy_hash
from evenhand.report.history import comparison_page, monitoring_page

HOSTILE = "</script><script>alert(1)</script>"


def audited(seed, strength, *, evidence=True, hostile=False):
    planted = eh.make_planted_bias(200, strength=strength, random_state=seed)
    people = planted.dataset
    group = np.where(np.asarray(people.group) == "group 0", HOSTILE, "b & c") if hostile else people.group
    return eh.audit(
        planted.model,
        people.X,
        people.y,
        sensitive_features=group,
        financial_features=people.financial_features,
        evidence=evidence,
    )


@pytest.fixture(scope="module")
def spring():
    return audited(0, 0.1, hostile=True)


@pytest.fixture(scope="module")
def summer():
    return audited(1, 0.6, hostile=True)


@pytest.fixture(scope="module")
def comparison(spring, summer):
    return compare_audits({"spring": spring, HOSTILE: summer})


@pytest.fixture(scope="module")
def comparison_text(comparison):
    return comparison_page(comparison.to_dict())


@pytest.fixture(scope="module")
def monitoring(spring, summer):
    audits = [(f"m{k} {HOSTILE}" if k == 1 else f"m{k}", spring if k < 4 else summer) for k in range(6)]
    recorded = tuple(RecordedAudit(name, Path(name), None, result.to_dict()) for name, result in audits)
    return monitor(History(recorded, "name", ("broken.json is not valid JSON",)))


@pytest.fixture(scope="module")
def monitoring_text(monitoring):
    return monitoring_page(monitoring.to_dict())


@pytest.fixture(scope="module", params=["comparison_text", "monitoring_text"])
def text(request):
    return request.getfixturevalue(request.param)


class Outline(HTMLParser):
    """Ids, tags and the text outside of scripts and styles."""

    def __init__(self):
        super().__init__()
        self.ids, self.tags, self.words, self.links, self.charts, self.inside = [], [], [], [], [], ""

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append(tag)
        self.inside = tag if tag in ("script", "style") else self.inside
        if "id" in found:
            self.ids.append(found["id"])
        if "data-chart" in found:
            self.charts.append(found["data-chart"])
        self.links += [found[name] for name in ("href", "src") if name in found]

    def handle_endtag(self, tag):
        if tag == self.inside:
            self.inside = ""

    def handle_data(self, data):
        if not self.inside:
            self.words.append(data)


def outline(text):
    found = Outline()
    found.feed(text)
    return found


def test_a_page_fetches_nothing(text):
    links = [link for link in outline(text).links if not link.startswith("#")]
    assert links == ["data:,"]
    assert "default-src 'none'" in text


def test_a_page_runs_its_own_two_scripts_and_no_other(text):
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 2
    policy = re.search(r"Content-Security-Policy\" content=\"(.*?)\"", text)[1]
    assert all(policy_hash(script).strip("'") in policy for script in scripts)


def test_names_are_escaped_and_still_readable(text):
    assert HOSTILE not in text
    words = " ".join(outline(text).words)
    assert HOSTILE in words
    assert "alert(1)" not in "".join(re.findall(r"<script>(.*?)</script>", text, re.DOTALL))


def test_ids_are_unique_and_every_link_and_chart_has_its_place(text):
    found = outline(text)
    assert len(set(found.ids)) == len(found.ids)
    assert {link[1:] for link in found.links if link.startswith("#")} <= set(found.ids)
    drawn = json.loads(re.search(r'id="chart-data">(.*?)</script>', text, re.DOTALL)[1])
    assert set(found.charts) == set(drawn["charts"])
    assert found.charts


def test_a_page_without_pairs_has_no_explorer(text):
    script = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)[1]
    assert "vegaEmbed" in script
    assert "pair-data" not in text


def test_the_comparison_leads_with_the_four_questions_and_shows_every_metric(comparison, comparison_text):
    words = " ".join(outline(comparison_text).words)
    assert f"{comparison.headline}." in words
    places = [words.index(finding.sentence) for finding in comparison.findings]
    assert places == sorted(places)
    for change in (*comparison.metrics, *comparison.inputs):
        assert change.words in words
    assert "independence was assumed" in words


def test_charts_of_the_comparison_hold_its_numbers(comparison, comparison_text):
    drawn = json.loads(re.search(r'id="chart-data">(.*?)</script>', comparison_text, re.DOTALL)[1])["charts"]
    assert set(drawn) == {"score-gap", "inputs", "reasoning", "decisions", "ratios", "drivers", "shares"}
    sets = drawn["reasoning"]["datasets"].values()
    values = [row for rows in sets for row in rows if "metric" in row]
    excess = next(c for c in comparison.metrics if c.key == "excess")
    assert {row["change"] for row in values if row["metric"] == "excess"} == {excess.change}
    assert all(sets)


def test_several_audits_are_named_in_sentences_and_told_apart_by_shape(spring, summer):
    text = comparison_page(compare_audits({"spring": spring, "summer": summer, "again": spring}).to_dict())
    words = " ".join(outline(text).words)
    assert "Excess, summer" in words
    assert "Excess, again" in words
    assert "is the same in both audits" in words
    drawn = json.loads(re.search(r'id="chart-data">(.*?)</script>', text, re.DOTALL)[1])["charts"]
    assert any("shape" in layer.get("encoding", {}) for layer in drawn["reasoning"]["layer"])


def test_what_cannot_be_drawn_is_said(spring):
    plain = copy.deepcopy(spring.to_dict())
    plain["evidence"] = None
    del plain["score_gaps"]
    plain["features"] = [{**row, "share": None} for row in plain["features"]]
    text = comparison_page(compare_audits({"one": plain, "two": plain}).to_dict())
    assert "No audit has metrics of reasoning with a standard error." in text
    assert "The audits have no evidence by feature in common." in text
    assert "No audit has scored pairs." in text
    assert "The audits have no score gap by input in common." in text
    assert "one was audited without evidence, so the four questions cannot be compared." in text


def test_the_history_names_what_left_its_past_and_draws_every_monitored_metric(monitoring, monitoring_text):
    words = " ".join(outline(monitoring_text).words)
    assert monitoring.departures
    for departure in monitoring.departures:
        assert departure.sentence in words
    drawn = json.loads(re.search(r'id="chart-data">(.*?)</script>', monitoring_text, re.DOTALL)[1])["charts"]
    n_monitored = sum(trend.is_monitored for trend in monitoring.trends)
    n_inputs = sum(t.part == "inputs" and t.departure is None for t in monitoring.trends)
    assert n_inputs
    assert sum(name.startswith("trend-") for name in drawn) == n_monitored - n_inputs
    others = ("positive_rate", "approval_ratio", "auc", "score_gap_in_probability", "excess", "ks_distance")
    assert {"inputs", "cusum", *(f"other-{name}" for name in others)} <= set(drawn)
    assert "broken.json is not valid JSON" in words
    assert "at most 5%" in words


def test_a_history_of_one_audit_can_be_shown(spring):
    text = monitoring_page(monitor({"only": spring}).to_dict())
    assert "A single audit has no past to depart from." in text
    assert "No two audits have the same metrics." in text


def test_a_history_without_alarms_says_so(spring):
    found = monitor({f"m{k}": spring.to_dict() for k in range(3)})
    assert "No monitored metric departed from its past in 3 audits." in monitoring_page(found.to_dict())


def test_many_groups_and_long_names_make_a_page():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(200, 3)), columns=["income", "very_long_" * 20, "other"])
    y = (X["income"] + rng.normal(size=200) > 0).astype(int)
    group = np.array([f"group {k} " + "x" * 80 for k in range(5)])[np.arange(200) % 5]
    torch.manual_seed(0)
    result = eh.audit(
        torch.nn.Linear(3, 1), X, y, sensitive_features=group, financial_features=["income"], evidence=False
    )
    text = comparison_page(compare_audits({"a": result, "b": result}).to_dict())
    assert len(outline(text).charts) >= 3


def test_files_are_written_whole(comparison, monitoring, spring, summer, tmp_path):
    comparison.to_html(tmp_path / "comparison.html")
    monitoring.to_html(tmp_path / "monitoring.html")
    for month, result in enumerate((spring, summer)):
        result.to_json(tmp_path / "history" / f"{month}.json")
    monitor(tmp_path / "history").to_html(tmp_path / "history.html")
    for name in ("comparison", "monitoring", "history"):
        assert (tmp_path / f"{name}.html").read_text("utf-8").rstrip().endswith("</html>")
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_pages_are_made_of_plain_data_alone(comparison, monitoring, comparison_text, monitoring_text, tmp_path):
    for found, draw, text in (
        (comparison, comparison_page, comparison_text),
        (monitoring, monitoring_page, monitoring_text),
    ):
        found.to_json(tmp_path / "found.json")
        again = draw(json.loads((tmp_path / "found.json").read_text("utf-8")))
        assert outline(again).words == outline(text).words
