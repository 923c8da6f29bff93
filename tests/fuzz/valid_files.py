"""A valid file of every kind that evenhand reads, as seeds to damage: run with the folder to write them to."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from hostile_tables import write_tables

__all__ = ["COLUMNS", "make_files", "people", "table_for"]

COLUMNS = ["income", "debt", "years", "assets", "age"]
N = 200

_PLAN = """\
label = "paid"
group = ["sex"]
financial_features = ["income", "debt"]
model = "network.safetensors"
evidence = false
n_steps = 4
max_distance = 3.5
decision_threshold = 0.5
consistency_threshold = 0.3
random_state = 1
favorable = "high"
drop_missing = true
fail_on = ["cec.mean > 2"]
by = ["city"]
[limits]
score_gap = 0.1
"""


def people(n: int = N, seed: int = 0) -> pd.DataFrame:
    """Applicants with the columns that the models take."""
    return pd.DataFrame(np.random.default_rng(seed).normal(size=(n, len(COLUMNS))), columns=COLUMNS)


def table_for(name: str, X: pd.DataFrame) -> pd.DataFrame:
    """The applicants as the model of a file takes them."""
    return X.assign(years=np.where(X["years"] > 0, "many", "few")) if name.startswith("categories") else X


class Canary:
    """Leaves a mark where it is unpickled."""

    def __reduce__(self):
        return (os.system, (f"touch '{os.environ['EVENHAND_CANARY']}'",))


def make_files(folder: Path) -> None:
    """Write the seeds."""
    X = people()
    y = (X["income"] + X["debt"] * X["years"] > 0).astype(int).to_numpy()
    group = np.random.default_rng(1).choice(["a", "b"], N)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _models(folder, X, y, group)
    table = X[:60].assign(city=np.resize(["x", "y"], 60), sex=group[:60], paid=y[:60])
    table.to_csv(folder / "people.csv", index=False)
    (folder / "audit.toml").write_text(_PLAN)
    _audits(folder, X, y, group)
    write_tables(folder)


def _models(folder: Path, X: pd.DataFrame, y: np.ndarray, group: np.ndarray) -> None:
    import catboost
    import joblib
    import lightgbm
    import skops.io
    import xgboost
    from skl2onnx import to_onnx
    from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    import evenhand as eh

    boosted = xgboost.XGBClassifier(n_estimators=4, max_depth=3).fit(X, y)
    boosted.save_model(folder / "xgboost.json")
    boosted.save_model(folder / "xgboost.ubj")
    lightgbm.LGBMClassifier(n_estimators=4, verbose=-1).fit(X, y).booster_.save_model(str(folder / "lightgbm.txt"))
    quiet = {"iterations": 4, "verbose": 0, "allow_writing_files": False}
    cat = catboost.CatBoostClassifier(**quiet).fit(X, y)
    cat.save_model(str(folder / "catboost.cbm"))
    cat.save_model(str(folder / "catboost.json"), format="json")
    pool = catboost.Pool(table_for("categories", X), y, cat_features=["years"])
    words = catboost.CatBoostClassifier(**quiet).fit(pool)
    words.save_model(str(folder / "categories.cbm"))
    words.save_model(str(folder / "categories.json"), format="json", pool=pool)
    linear = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    network = make_pipeline(StandardScaler(), MLPClassifier((8, 4), max_iter=20, random_state=0)).fit(X, y)
    forest = RandomForestClassifier(4, max_depth=3, random_state=0).fit(X, y)
    skops.io.dump(linear, folder / "linear.skops")
    skops.io.dump(network, folder / "network.skops")
    skops.io.dump(forest, folder / "forest.skops")
    skops.io.dump(HistGradientBoostingClassifier(max_iter=4, random_state=0).fit(X, y), folder / "histogram.skops")
    skops.io.dump(GradientBoostingClassifier(n_estimators=4, random_state=0).fit(X, y), folder / "boosting.skops")
    for name, model in {"linear": linear, "network": network, "forest": forest}.items():
        graph = to_onnx(model, X[:1].to_numpy(dtype=np.float32), options={"zipmap": False})
        (folder / f"{name}.onnx").write_bytes(graph.SerializeToString())
    (folder / "logistic.pmml").write_text(_pmml(linear[-1]))
    joblib.dump(Canary(), folder / "canary.joblib")
    (folder / "canary.pkl").write_bytes(pickle.dumps(Canary()))
    ours = eh.CECClassifier(financial_features=["income", "debt"], epochs=1, random_state=0)
    ours.fit(X, y, sensitive_features=group).save(folder / "network.safetensors")


def _pmml(model: object) -> str:
    """A logistic regression as a PMML document."""
    fields = "".join(f'<DataField name="{c}" optype="continuous" dataType="double"/>' for c in COLUMNS)
    mining = "".join(f'<MiningField name="{c}"/>' for c in COLUMNS)
    weights = "".join(
        f'<NumericPredictor name="{c}" coefficient="{w}"/>' for c, w in zip(COLUMNS, model.coef_[0], strict=True)
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?><PMML version="4.3" xmlns="http://www.dmg.org/PMML-4_3">'
        f'<Header/><DataDictionary numberOfFields="6">{fields}<DataField name="paid" optype="categorical" '
        'dataType="integer"><Value value="0"/><Value value="1"/></DataField></DataDictionary>'
        '<RegressionModel functionName="classification" normalizationMethod="logit"><MiningSchema>'
        f'{mining}<MiningField name="paid" usageType="target"/></MiningSchema>'
        f'<RegressionTable intercept="{model.intercept_[0]}" targetCategory="1">{weights}</RegressionTable>'
        '<RegressionTable intercept="0.0" targetCategory="0"/></RegressionModel></PMML>'
    )


def _audits(folder: Path, X: pd.DataFrame, y: np.ndarray, group: np.ndarray) -> None:
    """Two audits that differ in the model, as JSON and as packs."""
    import evenhand as eh
    from evenhand.models.files.load import load_model

    for name, model in {"first": "network.safetensors", "second": "linear.skops"}.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = eh.audit(
                load_model(folder / model), X, y, sensitive_features=group, financial_features=["income", "debt"]
            )
        result.to_json(folder / f"{name}_audit.json")
    result.to_pack(folder / "audit_pack.zip")
    words = ["audit", "people.csv", "--config", "audit.toml", "--pack", "--out", "packed"]
    subprocess.run([sys.executable, "-m", "evenhand", *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (folder / "packed" / "pack.zip").rename(folder / "settings_pack.zip")


if __name__ == "__main__":
    make_files(Path(sys.argv[1]))
