"""Folders of audits: read in order, and judged with a known rate of false alarms."""

import copy
import gzip
import json
import math
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

import evenhand as eh
from evenhand.auditing.history.compare import compare_audits
from evenhand.auditing.history.monitoring import cusum_limit, monitor, single_limit
from evenhand.auditing.history.records import History, RecordedAudit, read_audit, read_history
from evenhand.exceptions import DataFileError, InvalidInputError


@pytest.fixture(scope="module")
def result():
    planted = eh.make_planted_bias(200, strength=0.2, random_state=0)
    people = planted.dataset
    return eh.audit(
        planted.model, people.X, people.y, sensitive_features=people.group, financial_features=people.financial_features
    )


@pytest.fixture(scope="module")
def data(result, tmp_path_factory):
    path = tmp_path_factory.mktemp("audit") / "audit.json"
    result.to_json(path)
    return json.loads(path.read_text("utf-8"))


def write(folder, name, data, **changes):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**data, **changes}), "utf-8")


def drawn_history(data, values, error=0.01):
    """Audits that differ in their excess only."""
    audits = []
    for place, value in enumerate(values):
        cec = {**data["evidence"]["cec"], "value": float(value), "standard_error": error, "df": 1e9}
        one = {
            **data,
            "evidence": {**data["evidence"], "cec": cec},
            "settings": dict(data["settings"]),
            "data": {**data["data"], "groups": dict(data["data"]["groups"])},
        }
        audits.append(RecordedAudit(f"m{place}", Path(f"m{place}.json"), None, one))
    return History(tuple(audits), "name", ())


def trend(monitoring, key):
    (found,) = [t for t in monitoring.trends if t.key == key]
    return found


# --- reading ---


def test_audits_are_ordered_by_the_time_they_record(data, tmp_path):
    write(tmp_path, "a.json", data, created="2024-03-01T10:00:00+01:00")
    write(tmp_path, "b.json", data, created="2024-03-01T08:30:00")
    write(tmp_path, "c.json", data, created="2023-12-31")
    history = read_history(tmp_path)
    assert [audit.name for audit in history.audits] == ["c", "b", "a"]
    assert history.ordered_by == "created"
    assert history.audits[0].created == datetime(2023, 12, 31, tzinfo=UTC)
    assert len(history) == 3


@pytest.mark.parametrize(
    "names",
    [
        ["2023-Q4", "2024-Q1", "2024-Q3"],
        ["cards 2023", "cards 2024"],
        ["202312", "202401"],
        ["2024-01-31", "2024-02-29"],
    ],
)
def test_audits_are_ordered_by_period_however_late_they_were_made(data, tmp_path, names):
    for place, name in enumerate(names):
        write(tmp_path, f"{name}.json", data, created=f"202{9 - place}-01-01")
    history = read_history(tmp_path)
    assert [audit.name for audit in history.audits] == names
    assert history.ordered_by == "period"


def test_two_audits_of_one_period_are_ordered_by_the_time_and_the_page_says_so(data, tmp_path):
    write(tmp_path, "2024-01 old.json", data, created="2025-01-02")
    write(tmp_path, "2024-01 new.json", data, created="2025-01-01")
    history = read_history(tmp_path)
    assert [audit.name for audit in history.audits] == ["2024-01 new", "2024-01 old"]
    assert any("ordered by the time they were made" in warning for warning in monitor(history).warnings)


@pytest.mark.parametrize("created", [None, "last spring", 20240301])
def test_without_all_times_audits_are_ordered_by_name_with_numbers_as_numbers(data, tmp_path, created):
    for name in ("audit-10", "audit-9", "audit-1"):
        write(tmp_path, f"{name}.json", data, created=created if name == "audit-9" else "2024-03-01")
    history = read_history(tmp_path)
    assert [audit.name for audit in history.audits] == ["audit-1", "audit-9", "audit-10"]
    assert history.ordered_by == "name"
    assert "Not every file records when it was made, so the audits are ordered by name." in monitor(history).warnings


def test_folders_of_reports_are_read_by_the_name_of_the_folder(data, tmp_path):
    write(tmp_path, "2024-01/audit.json", data)
    write(tmp_path, "2024-02/audit.json", data)
    write(tmp_path, "2024-02/other.json", {"not": "looked at"})
    assert [audit.name for audit in read_history(tmp_path).audits] == ["2024-01", "2024-02"]


def test_damaged_and_foreign_files_are_skipped_with_a_sentence(data, tmp_path):
    write(tmp_path, "good.json", data)
    (tmp_path / "cut.json").write_text(json.dumps(data)[:1000], "utf-8")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "deep.json").write_text("[" * 100_000, "utf-8")
    (tmp_path / "list.json").write_text("[1, 2]", "utf-8")
    write(tmp_path, "half.json", {key: data[key] for key in ("schema", "settings")})
    history = read_history(tmp_path)
    assert [audit.name for audit in history.audits] == ["good"]
    sentences = "\n".join(history.skipped)
    assert len(history.skipped) == 5
    assert "cut.json is not valid JSON" in sentences
    assert "binary.json is not valid JSON" in sentences
    assert "deep.json is not valid JSON" in sentences
    assert "list.json is JSON but not an audit" in sentences
    assert "half.json is an audit that was cut or edited (" in sentences
    assert set(history.skipped) <= set(monitor(history).warnings)


def test_another_version_of_the_format_is_refused(data, tmp_path):
    write(tmp_path, "good.json", data)
    write(tmp_path, "later.json", data, schema="evenhand.audit/4")
    with pytest.raises(DataFileError, match=r"later.json has the schema 'evenhand.audit/4'.*reads 'evenhand.audit/3'"):
        read_history(tmp_path)


def test_a_folder_that_is_none_is_refused(tmp_path):
    with pytest.raises(
        DataFileError, match=r"The history must be a folder of audits written by to_json, got .*nowhere"
    ):
        read_history(tmp_path / "nowhere")


def test_a_folder_without_audits_is_refused_with_the_first_reason(tmp_path):
    with pytest.raises(DataFileError, match="No audit was found in"):
        read_history(tmp_path)
    (tmp_path / "list.json").write_text("[]", "utf-8")
    with pytest.raises(DataFileError, match=r"1 files were skipped, the first because: .*not an audit"):
        read_history(tmp_path)


def test_an_audit_is_read_as_it_was_written(result, data, tmp_path):
    result.to_json(tmp_path / "audit.json")
    assert {**read_audit(tmp_path / "audit.json"), "created": data["created"]} == data


# --- version 0.2 ---


@pytest.fixture(scope="module")
def of_version_02(tmp_path_factory):
    """What evenhand 0.2 wrote about the model of `same_audit_today`."""
    packed = Path(__file__).parent / "data" / "audit-0.2.json.gz"
    path = tmp_path_factory.mktemp("old") / "old.json"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return path


@pytest.fixture(scope="module")
def same_audit_today():
    people = eh.load_dataset("synthetic", n=300)
    model = torch.nn.Linear(people.X.shape[1], 1)
    with torch.no_grad():
        model.weight[:] = torch.linspace(1, -1, people.X.shape[1])
        model.bias[:] = 0
    return eh.audit(
        model, people.X, people.y, sensitive_features=people.group, financial_features=people.financial_features
    )


def test_a_file_of_version_02_compares_with_an_audit_of_today(of_version_02, same_audit_today):
    assert json.loads(of_version_02.read_text("utf-8"))["schema"] == "evenhand.audit/2"
    for old in (of_version_02, json.loads(of_version_02.read_text("utf-8"))):
        found = compare_audits({"old": old, "today": same_audit_today})
        assert found.pairings[0].is_paired
        assert {f.answer for f in found.findings} == {"no"}
        # Score gaps have another estimator since then.
        same = [
            c.change for c in found.changes if c.scale == "difference" and not c.key.startswith(("score_gap", "input"))
        ]
        assert len(same) > 20
        assert same == pytest.approx([0.0] * len(same), abs=1e-5)


def test_a_history_may_start_with_files_of_version_02(of_version_02, same_audit_today, tmp_path):
    (tmp_path / "1.json").write_bytes(of_version_02.read_bytes())
    same_audit_today.to_json(tmp_path / "2.json")
    history = read_history(tmp_path)
    assert not history.skipped
    assert not monitor(history).departures
    excess = trend(monitor(history), "excess").points
    assert excess[1].z == pytest.approx(0, abs=1e-4)
    assert excess[0].value == pytest.approx(excess[1].value, abs=1e-6)


# --- limits ---


def test_the_limit_of_single_audits_is_exceeded_as_often_as_asked():
    draws = np.abs(np.random.default_rng(0).normal(size=(100_000, 12))).max(axis=1)
    assert (draws > single_limit(0.05, 12)).mean() == pytest.approx(0.05, abs=0.003)
    assert single_limit(0.05, 1) == pytest.approx(stats.norm.isf(0.025))


@pytest.mark.parametrize("n_tests", [1, 2, 6, 24])
@pytest.mark.parametrize("rate", [0.05, 0.01])
def test_the_limit_of_the_cusum_is_exceeded_as_often_as_asked(n_tests, rate):
    z = np.random.default_rng(n_tests).normal(size=(200_000, n_tests))
    high = low = np.zeros(len(z))
    is_alarm = np.zeros(len(z), dtype=bool)
    for step in z.T:
        high, low = np.maximum(0, high + step - 0.5), np.maximum(0, low - step - 0.5)
        is_alarm |= np.maximum(high, low) > cusum_limit(rate, n_tests)
    assert is_alarm.mean() == pytest.approx(rate, rel=0.08)


# --- monitoring ---


def test_deviations_from_the_past_are_those_of_precision_weighted_means(data):
    values = [0.02, 0.03, 0.01, 0.05]
    points = trend(monitor(drawn_history(data, values, error=0.02)), "excess").points
    assert math.isnan(points[0].z)
    assert points[3].expected == pytest.approx(0.02)
    assert points[3].z == pytest.approx(0.03 / (0.02 * math.sqrt(4 / 3)), rel=1e-4)
    assert points[3].low == pytest.approx(0.05 - 1.96 * 0.02, abs=1e-5)


def test_deviations_are_standard_normal_and_independent_when_nothing_changed(data):
    rng = np.random.default_rng(3)
    z = np.array(
        [
            [p.z for p in trend(monitor(drawn_history(data, rng.normal(0.03, 0.01, 5))), "excess").points[1:]]
            for _ in range(150)
        ]
    )
    assert stats.kstest(z.ravel(), "norm").pvalue > 0.001
    assert np.abs(np.corrcoef(z.T)[np.triu_indices(4, 1)]).max() < 0.3


def test_a_history_in_which_nothing_changed_raises_alarms_no_more_often_than_said(data):
    rng = np.random.default_rng(4)
    n_histories, rate = 300, 0.2
    n_monitored = sum(t.is_monitored for t in monitor(drawn_history(data, [0, 0])).trends)
    alarms = sum(
        bool(monitor(drawn_history(data, rng.normal(0.03, 0.01, 8)), false_alarm_rate=rate).departures)
        for _ in range(n_histories)
    )
    # Only the excess varies here, so its share of the rate is the rate of the whole.
    share = rate / n_monitored
    assert alarms <= stats.binom.isf(0.001, n_histories, share)
    assert alarms >= 1


def test_a_jump_is_found_at_the_audit_that_made_it(data):
    monitoring = monitor(drawn_history(data, [0.02, 0.021, 0.019, 0.02, 0.09, 0.09]))
    (departure,) = monitoring.departures
    assert (departure.key, departure.audit, departure.rule) == ("excess", "m4", "single")
    assert departure.sentence == "Excess departed from its past upwards at m4, in one audit alone."
    assert monitoring.sentences == (departure.sentence,)


def test_a_change_of_the_size_that_would_have_been_noticed_raises_an_alarm_in_four_of_five_cases(data):
    quiet = monitor(drawn_history(data, [0.02] * 4))
    size = trend(quiet, "excess").points[-1].detectable
    assert f"{size:.3f} in excess" in quiet.sentences[1]
    assert math.isnan(trend(quiet, "excess").points[0].detectable)
    rng = np.random.default_rng(5)
    noticed = 0
    for _ in range(200):
        points = trend(monitor(drawn_history(data, rng.normal([0.02] * 3 + [0.02 + size], 0.01))), "excess").points
        noticed += points[-1].value > points[-1].limit_high
    assert 140 <= noticed <= 178


def test_a_drift_is_found_and_its_beginning_named(data):
    values = [0.02] * 6 + [0.02 - 0.022] * 8
    monitoring = monitor(drawn_history(data, values))
    (departure,) = monitoring.departures
    assert departure.rule == "drift"
    assert departure.direction == "downwards"
    assert departure.began == "m6"
    assert int(departure.audit[1:]) > 6
    assert "by drift that seems to have started with m6" in departure.sentence


def test_after_an_alarm_the_past_is_kept(data):
    points = trend(monitor(drawn_history(data, [0.02, 0.02, 0.2, 0.2])), "excess").points
    assert points[3].expected == pytest.approx(0.02)


def test_an_excess_that_is_always_zero_raises_no_alarm(data):
    monitoring = monitor(drawn_history(data, [0.0, 0.0, 0.0], error=0.0))
    assert not monitoring.departures
    assert "In 3 audits, no monitored metric departed from its past" in monitoring.sentences[0]


def test_ratios_are_judged_on_the_logarithm_and_shown_as_ratios(data):
    found = trend(monitor(drawn_history(data, [0.1, 0.1])), "ratio: approval ratio, group 1 over group 0")
    assert found.scale == "ratio"
    point = found.points[1]
    assert point.expected == pytest.approx(point.value)
    assert point.value / point.low == pytest.approx(point.high / point.value)


def test_few_degrees_of_freedom_make_deviations_smaller(data):
    history = drawn_history(data, [0.02, 0.06])
    wide = copy.deepcopy(history.audits[1].data)
    wide["evidence"]["cec"]["df"] = 4.0
    narrow = trend(monitor(history), "excess").points[1].z
    with_few = History((history.audits[0], RecordedAudit("m1", Path("m1"), None, wide)), "name", ())
    assert 0 < trend(monitor(with_few), "excess").points[1].z < narrow


def test_an_audit_that_lacks_a_metric_is_passed_over(data):
    history = drawn_history(data, [0.02, 0.02, 0.02])
    history.audits[1].data["evidence"]["cec"]["value"] = None
    points = trend(monitor(history), "excess").points
    assert math.isnan(points[1].value)
    assert math.isfinite(points[2].z)
    history.audits[1].data["evidence"] = None
    assert "Audited without evidence, so the four questions were not asked: m1." in monitor(history).warnings


def test_changed_settings_and_groups_are_named_with_the_audit(data):
    history = drawn_history(data, [0.02, 0.02, 0.02])
    history.audits[2].data["settings"]["consistency_threshold"] = 0.4
    groups = history.audits[1].data["data"]["groups"]
    groups["group 2"] = groups.pop("group 1")
    warnings = "\n".join(monitor(history).warnings)
    assert "consistency_threshold changed at m2, from 0.3 to 0.4" in warnings
    assert "The audits do not all have the same groups; these are in all of them: group 0." in warnings


def test_one_audit_has_no_past(data):
    monitoring = monitor(drawn_history(data, [0.02]))
    assert monitoring.sentences == ("A single audit has no past to depart from.",)
    assert not monitoring.trends


def test_the_plain_data_are_ready_for_json(data):
    found = monitor(drawn_history(data, [0.02, 0.2, 0.02])).to_dict()
    assert found["schema"] == "evenhand.monitoring/2"
    (excess,) = [trend for trend in found["trends"] if trend["key"] == "excess"]
    assert excess["departure"]["audit"] == "m1"
    json.dumps(found)


@pytest.mark.parametrize("rate", [0, 1, -0.1])
def test_a_rate_that_is_no_probability_is_refused(data, rate):
    with pytest.raises(InvalidInputError, match="`false_alarm_rate` must lie strictly between 0 and 1"):
        monitor(drawn_history(data, [0.1, 0.1]), false_alarm_rate=rate)
