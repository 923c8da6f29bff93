"""What the defaults of `CECClassifier` keep and remove on four datasets, next to the paper's weights.

Every model is trained on a training fold and audited on its test fold, matched in the training fold: five folds,
repeated three times with a seed each. Differences from the unconstrained network are computed fold by fold; intervals
are Nadeau and Bengio's. The defaults were chosen on different folds of the same people, those of seeds 0 to 2.

    python benchmarks/training_defaults.py --out docs/results/training
    python benchmarks/training_defaults.py --out /tmp/training --small german

It is meant for a GPU and many cores, where it takes minutes. It writes ``defaults_runs.csv``, a row for each model, and
``defaults.json``; results of other datasets do not change. HMDA is read as `evenhand.datasets.load_hmda` says.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed

import evenhand as eh
from evenhand.inputs.encoding import TableEncoder
from evenhand.inputs.splitting import sample_people, stratified_folds
from evenhand.models.gradient import DifferentiableModel
from evenhand.research.paper import PAPER
from evenhand.searching.choice import mean_interval
from evenhand.training import TrainingSettings, train
from evenhand.training.data import Fold, match_fold, stack_tables

DATASETS = ("german", "adult", "hmda", "taiwan")
FOLDS, SEEDS = 5, (10, 11, 12)
TEST_SHARE = 1 / (FOLDS - 1)
MOST_AUC_LOST, MOST_RATE_CHANGED = 0.01, 0.02
METRICS = ("auc", "positive_rate", "eo_gap", "weighing", "reasoning_gap", "score_gap")
PAPER_WEIGHTS = {
    name: PAPER.training[name] for name in ("objective", "cec_weight", "equalized_odds_weight", "least_explained")
}
SETTINGS: dict[str, dict[str, Any]] = {
    "unconstrained": {"cec_weight": 0.0, "equalized_odds_weight": 0.0},
    "default": {},
    "default with equalized odds": {"equalized_odds_weight": 0.1},
    "paper": PAPER_WEIGHTS,
}


@dataclass(frozen=True)
class Fitted:
    """A trained network over a table, as the audit takes it."""

    network: torch.nn.Module
    encoder: TableEncoder

    def audited_model(self) -> DifferentiableModel:
        """The network with its encoding."""
        return DifferentiableModel(self.network, "network", self.encoder)


def main() -> None:
    """Train, audit and judge each dataset, and save it when it ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", default=DATASETS, help=f"any of {', '.join(DATASETS)}; all by default")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--jobs", type=int, default=-1, help="processes that audit; all cores by default")
    parser.add_argument("--small", action="store_true", help="300 people, three epochs, to check that it runs")
    options = parser.parse_args()
    if unknown := [name for name in options.datasets if name not in DATASETS]:
        parser.error(f"unknown datasets {unknown}; there are {', '.join(DATASETS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.datasets:
        started = time.perf_counter()
        runs = models_of(name, options)
        keep(options.out, name, runs)
        print(name, f"{time.perf_counter() - started:.0f} s", json.dumps(judged(runs), indent=1), flush=True)


def models_of(name: str, options: argparse.Namespace) -> pd.DataFrame:
    """Metrics of every model of a dataset, a row each."""
    data = eh.load_dataset(name)
    X, y, group = data.X, np.asarray(data.y), np.asarray(data.group)
    codes = np.unique(group, return_inverse=True)[1]
    if options.small:
        rows = sample_people(y, codes, 300, random_state=0)
        X, y, group, codes = X.iloc[rows].reset_index(drop=True), y[rows], group[rows], codes[rows]
    encoder = TableEncoder.fit(X)  # on everyone, so that folds have the same columns; it does not use labels
    x, F = encoder.transform(X), encoder.as_matched(X[list(data.financial_features)])
    places = [(seed, fold) for seed in SEEDS for fold in range(FOLDS)]
    parts = [part for seed in SEEDS for part in stratified_folds(y, codes, FOLDS, seed)]
    folds = [match_fold(x, F, y, codes, *part, encoder.join_matrix) for part in parts]
    found = []
    for setting, changes in SETTINGS.items():
        networks = trained(folds, [seed for seed, _ in places], changes, options)
        audits = Parallel(n_jobs=options.jobs)(
            delayed(audited)(Fitted(network, encoder), X, y, group, data.financial_features, *part)
            for network, part in zip(networks, parts, strict=True)
        )
        for (seed, fold), metrics in zip(places, audits, strict=True):
            found.append({"dataset": name, "setting": setting, "seed": seed, "fold": fold, **metrics})
    return pd.DataFrame(found)


def trained(
    folds: list[Fold], seeds: list[int], changes: dict[str, Any], options: argparse.Namespace
) -> list[torch.nn.Module]:
    """A network for each fold, trained as `CECClassifier` with the changes does."""
    parameters = eh.CECClassifier(**changes).get_params()
    own = {f.name: parameters[f.name] for f in fields(TrainingSettings) if f.name in parameters}
    own |= {"device": options.device, **({"epochs": 3} if options.small else {})}
    state = train(stack_tables(folds), TrainingSettings(table=range(len(folds)), seed=seeds, **own))
    network = state.network()
    return [network.member(index) for index in range(len(folds))]


def audited(
    model: Fitted, X: pd.DataFrame, y: Any, group: Any, financial: Any, train: Any, test: Any
) -> dict[str, float]:
    """What an audit of a test fold finds."""
    torch.set_num_threads(1)
    own, reference = (X.iloc[rows].reset_index(drop=True) for rows in (test, train))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", eh.EvenhandWarning)  # constant models are counted, not warned about
        found = eh.audit(
            model,
            own,
            y[test],
            sensitive_features=group[test],
            financial_features=financial,
            reference=(reference, y[train], group[train]),
        ).to_dict()
    return {
        **{metric: found["outcome"][metric] for metric in ("auc", "positive_rate", "eo_gap")},
        "weighing": found["cec"]["weighing_excess"],
        "reasoning_gap": found["cec"]["reasoning_gap"],
        "score_gap": found["score_gap"]["logit"]["value"],
    }


def judged(runs: pd.DataFrame) -> dict[str, Any]:
    """Each setting of a dataset against the unconstrained networks of the same folds."""
    by_setting = {name: rows.sort_values(["seed", "fold"]) for name, rows in runs.groupby("setting")}
    plain = by_setting.pop("unconstrained")
    found: dict[str, Any] = {"unconstrained": {metric: interval(plain[metric]) for metric in METRICS}}
    for name in (name for name in SETTINGS if name in by_setting):
        found[name] = against(by_setting[name], plain)
    return found


def against(rows: pd.DataFrame, plain: pd.DataFrame) -> dict[str, Any]:
    """Means, changes and whether whole intervals meet the targets."""
    change = {metric: interval(rows[metric].to_numpy() - plain[metric].to_numpy()) for metric in METRICS}
    gaps = {gap: halved(rows[gap].to_numpy(), plain[gap].to_numpy()) for gap in ("weighing", "score_gap")}
    low, high = change["positive_rate"]["ci"]
    met = {
        "auc": change["auc"]["ci"][0] >= -MOST_AUC_LOST,
        "positive_rate": low >= -MOST_RATE_CHANGED and high <= MOST_RATE_CHANGED,
        "gap": any(gap["is_halved"] for gap in gaps.values()) or not any(gap["is_there"] for gap in gaps.values()),
    }
    return {
        **{metric: interval(rows[metric]) for metric in METRICS},
        "change": change,
        "gaps": gaps,
        "is_met": {name: bool(is_met) for name, is_met in met.items()},
        "n_models": len(rows),
        "n_collapsed": int((~rows["positive_rate"].between(0.01, 0.99)).sum()),
    }


def halved(values: np.ndarray, plain: np.ndarray) -> dict[str, Any]:
    """Whether there was a gap at all, and how much more than half of it is left."""
    sign = np.sign(plain.mean())
    before, over_half = interval(sign * plain), interval(sign * (values - plain / 2))
    is_there = before["ci"][0] > 0
    is_small = abs(values.mean()) <= abs(plain.mean()) / 2  # and not large in the opposite direction
    return {
        "is_there": bool(is_there),
        "left": float(values.mean() / plain.mean()),
        "over_half": over_half,
        "is_halved": bool(is_there and is_small and over_half["ci"][1] < 0),
    }


def interval(values: Any) -> dict[str, Any]:
    """Mean over models with the interval that allows for folds that overlap."""
    found = mean_interval(np.asarray(values, dtype=float), TEST_SHARE)
    return {"mean": rounded(found.value), "ci": [rounded(found.low), rounded(found.high)]}


def keep(folder: Path, name: str, runs: pd.DataFrame) -> None:
    """Add a dataset's models and results to those of other datasets."""
    table, summary = folder / "defaults_runs.csv", folder / "defaults.json"
    if table.exists():
        before = pd.read_csv(table)
        runs = pd.concat([before[before["dataset"] != name], runs])
    runs.to_csv(table, index=False, float_format="%.6g")
    found = {dataset: judged(rows) for dataset, rows in runs.groupby("dataset")}
    parameters = {setting: used(changes) for setting, changes in SETTINGS.items()}
    content = {"folds": FOLDS, "seeds": SEEDS, "settings": parameters, "datasets": found}
    summary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def used(changes: dict[str, Any]) -> dict[str, Any]:
    """The weights of a setting."""
    parameters = eh.CECClassifier(**changes).get_params()
    return {name: parameters[name] for name in PAPER_WEIGHTS}


def rounded(value: float) -> float:
    """Four significant digits."""
    return float(f"{value:.4g}")


if __name__ == "__main__":
    main()
