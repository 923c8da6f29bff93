"""Eight audits as JSON, and what differs between two such files.

    python tools/eight_audits.py write audits.json     # with whatever evenhand Python imports
    python tools/eight_audits.py compare old.json new.json

A change that is meant to leave every number alone is checked by writing the file before and after it. Keys that were
renamed are read under their new names.
"""

from __future__ import annotations

import inspect
import json
import math
import re
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

TOLERANCE = 1e-9
RENAMED = {"ci_low": "low", "ci_high": "high", "excess_ci_low": "excess_low", "excess_ci_high": "excess_high"}
NOT_COMPARED = ("versions", "created", "schema", "warnings", "settings", "stream", "sentence", "sentences", "headline")


def audits():
    """Name and summary of each audit."""
    import torch
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    import evenhand as eh

    planted = eh.make_planted_bias(1500, strength=0.7)
    data = planted.dataset
    roles = {"sensitive_features": data.group, "financial_features": data.financial_features}
    yield "planted", eh.audit(planted.model, data.X, data.y, **roles).to_dict()

    people = eh.load_dataset("synthetic", n=1500)
    X, y = people.X, people.y
    finances = people.financial_features
    rng = np.random.default_rng(0)
    groups = np.asarray(list("abcde"))[rng.choice(5, len(X), p=[0.4, 0.25, 0.15, 0.12, 0.08])]
    by = pd.DataFrame({"region": rng.choice(["north", "south"], len(X))})
    logistic = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    two = {"sensitive_features": people.group, "financial_features": finances}
    five = {"sensitive_features": groups, "financial_features": finances}
    yield "five groups", eh.audit(logistic, X, y, by=by, **five).to_dict()
    weight = rng.uniform(0.5, 2, len(X))
    yield "logistic, weighted", eh.audit(logistic, X, y, sample_weight=weight, **two).to_dict()

    german = eh.load_dataset("german")
    codes = german.X.apply(lambda c: c if c.dtype.kind in "if" else c.astype("category").cat.codes.astype(float))
    trees = HistGradientBoostingClassifier(max_iter=30, random_state=0).fit(codes, german.y)
    of_german = {"sensitive_features": german.group, "financial_features": german.financial_features}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        regressed = _regressed(eh, trees, codes, german.y, of_german)
    yield "trees, regressions", regressed.to_dict()

    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(X.shape[1], 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    half = len(X) // 2
    reference = (X[half:], y[half:], people.group[half:])
    mine = {"sensitive_features": people.group[:half], "financial_features": finances}
    yield "network, reference", eh.audit(network, X[:half], y[:half], reference=reference, **mine).to_dict()

    def black_box(table):
        return logistic.predict_proba(table)[:, 1]

    few = {"sensitive_features": people.group[:300], "financial_features": finances}
    yield "black box", eh.audit(black_box, X[:300], y[:300], **few).to_dict()
    score = logistic.predict_proba(X)[:, 1]
    yield "given", eh.audit_given(X, y, scores=score, **two).to_dict()

    with tempfile.TemporaryDirectory() as folder:
        table = X.assign(label=np.asarray(y), group=np.asarray(people.group))
        path = Path(folder) / "people.parquet"
        table.to_parquet(path)
        streamed = eh.audit_stream(
            logistic,
            path,
            label="label",
            group="group",
            financial_features=finances,
            out=Path(folder) / "out",
            **_batches_of(eh, 400),
        )
        yield "streamed", streamed.to_dict()


def _batches_of(eh, n):
    new = "stream" in inspect.signature(eh.audit_stream).parameters
    return {"stream": eh.StreamOptions(batch_rows=n)} if new else {"batch_rows": n}


def _regressed(eh, model, X, y, roles):
    if "regressions" in inspect.signature(eh.audit).parameters:
        return eh.audit(model, X, y, regressions=True, **roles)
    return eh.audit(model, X, y, options=eh.AuditOptions(regressions=True), **roles)


def write(path: str) -> None:
    """Write the summaries of all audits."""
    found = {}
    for name, summary in audits():
        found[name] = summary
        print(name, file=sys.stderr)
    Path(path).write_text(json.dumps(found, default=_plain))


def _plain(value):
    return value.item() if isinstance(value, np.generic) else str(value)


def flat(value, path=""):
    """Every number and text of a summary with its path, under today's names."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in NOT_COMPARED:
                yield from flat(item, f"{path}/{RENAMED.get(key, key)}")
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from flat(item, f"{path}/{place}")
    else:
        yield path, value


def compare(old: str, new: str) -> int:
    """Print what is missing, new or different; the number of differences."""
    first, second = (json.loads(Path(path).read_text()) for path in (old, new))
    n_different = 0
    for name in first:
        before, after = dict(flat(first[name])), dict(flat(second[name]))
        missing = [path for path in before if path not in after]
        both = [path for path in before if path in after]
        different = [(path, before[path], after[path]) for path in both if _differs(before[path], after[path])]
        added = {re.sub(r"/\d+", "/*", path) for path in after if path not in before}
        print(f"{name}: {len(before):,} values, {len(missing)} missing, {len(different)} different")
        print("    new:", *sorted({path.rpartition("/")[2] for path in added})[:20])
        for path in missing[:20]:
            print("    missing", path, before[path])
        for path, a, b in different[:20]:
            print("    different", path, a, b)
        n_different += len(missing) + len(different)
    return n_different


def _differs(a, b) -> bool:
    if isinstance(a, float) and isinstance(b, (int, float)) and not isinstance(b, bool):
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) != math.isnan(b)
        return not math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return a != b


if __name__ == "__main__":
    command, *paths = sys.argv[1:]
    sys.exit(bool(write(*paths) if command == "write" else compare(*paths)))
