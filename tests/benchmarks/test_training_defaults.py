"""The verdict on the defaults of training: by whole intervals, and as published that of the published models."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results" / "training"


@pytest.fixture(scope="module")
def defaults():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("training_defaults")
    sys.modules.pop("training_defaults", None)


def models(rng, noise=0.001, **means):
    """Fifteen models of one setting around the means."""
    metrics = {
        "auc": 0.8,
        "positive_rate": 0.7,
        "eo_gap": 0.1,
        "weighing": 0.02,
        "reasoning_gap": 0.1,
        "score_gap": -0.3,
    }
    values = {name: mean + noise * rng.standard_normal(15) for name, mean in (metrics | means).items()}
    return pd.DataFrame({"seed": np.repeat([10, 11, 12], 5), "fold": np.tile(range(5), 3), **values})


def test_the_interval_is_that_of_a_t_with_the_allowance_for_folds_that_overlap(defaults, rng):
    values = rng.standard_normal(15)
    low, high = defaults.interval(values)["ci"]
    scale = values.std(ddof=1) * np.sqrt(1 / 15 + 1 / 4)
    np.testing.assert_allclose((low, high), stats.t.interval(0.95, 14, values.mean(), scale), rtol=1e-3)


@pytest.mark.parametrize(
    ("means", "missed"),
    [
        ({"weighing": 0.001}, set()),
        ({"score_gap": -0.01}, set()),
        ({"weighing": 0.001, "auc": 0.785}, {"auc"}),
        ({"weighing": 0.001, "positive_rate": 0.73}, {"positive_rate"}),
        ({"weighing": 0.001, "positive_rate": 0.67}, {"positive_rate"}),
        ({"weighing": 0.015}, {"gap"}),
        ({"score_gap": 0.3}, {"gap"}),
    ],
    ids=str,
)
def test_a_target_is_met_by_a_whole_interval(defaults, rng, means, missed):
    found = defaults.against(models(rng, **means), models(rng))
    assert {name for name, is_met in found["is_met"].items() if not is_met} == missed


def test_an_interval_that_reaches_beyond_a_limit_misses_it(defaults, rng):
    plain, noisy = models(rng), models(rng, noise=0.03, auc=0.8)
    assert abs(noisy["auc"].mean() - plain["auc"].mean()) < 0.01
    assert not defaults.against(noisy, plain)["is_met"]["auc"]


def test_where_there_is_no_gap_none_need_be_halved(defaults, rng):
    none = {"weighing": 0.0, "score_gap": 0.0, "noise": 0.003}
    found = defaults.against(models(rng, **none), models(rng, **none))
    assert not any(gap["is_there"] for gap in found["gaps"].values())
    assert found["is_met"]["gap"]


def test_the_published_verdict_is_of_the_published_models_and_of_the_defaults(defaults):
    published = json.loads((RESULTS / "defaults.json").read_text("utf-8"))
    runs = pd.read_csv(RESULTS / "defaults_runs.csv")
    assert published["settings"] == {name: defaults.used(changes) for name, changes in defaults.SETTINGS.items()}
    assert set(published["datasets"]) == set(defaults.DATASETS)
    for name, rows in runs.groupby("dataset"):
        assert rows.groupby("setting").size().to_dict() == dict.fromkeys(defaults.SETTINGS, 15)
        assert defaults.judged(rows) == published["datasets"][name]
        assert all(published["datasets"][name]["default"]["is_met"].values())
