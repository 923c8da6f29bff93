"""What a lender hands to a reviewer: a model of card defaults, the accounts of two quarters, and a map of reasons.

    python examples/lenders_file.py
    python examples/lenders_file.py --out lender   # also keeps the files, for the tutorial "A lender's file"

The model predicts risk: class 1, and 1 in the column `default`, is the unfavorable outcome. It does not see sex,
marital status, age or education.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import skops.io
from sklearn.ensemble import HistGradientBoostingClassifier

import evenhand as eh

UNSEEN = ["MARRIAGE", "AGE", "EDUCATION"]
REASONS = """\
[reasons]
"Late last month" = ["PAY_0"]
"Late in earlier months" = ["PAY_2", "PAY_3", "PAY_4", "PAY_5", "PAY_6"]
"Amount owed" = ["BILL_AMT1", "BILL_AMT2", "BILL_AMT3", "BILL_AMT4", "BILL_AMT5", "BILL_AMT6"]
"Amount paid back" = ["PAY_AMT1", "PAY_AMT2", "PAY_AMT3", "PAY_AMT4", "PAY_AMT5", "PAY_AMT6"]
"Credit limit" = ["LIMIT_BAL"]
"""
CONFIG = """\
label = "default"
group = ["sex"]
financial_features = ["LIMIT_BAL", "BILL_AMT1", "PAY_AMT1", "PAY_0"]
favorable = "low"          # the score is a risk
decision_threshold = 0.3   # accounts above it are declined
id = "account"
drop = ["AGE", "MARRIAGE", "EDUCATION", "quarter"]
model = "model.skops"
reason_map = "reasons.toml"
regressions = true
"""


def write_file(folder, people, seed):
    """Fit the model on people of the past, and write it with the accounts of two quarters."""
    cards = eh.load_dataset("taiwan")
    order = np.random.default_rng(seed).permutation(len(cards.X))
    table = cards.X.assign(sex=np.asarray(cards.group), default=1 - np.asarray(cards.y))
    past, rest = table.iloc[order[:8000]], table.iloc[order[8000 : 8000 + 2 * people]]
    inputs = [name for name in cards.X if name not in UNSEEN]
    model = HistGradientBoostingClassifier(max_iter=60, random_state=seed).fit(past[inputs], past["default"])
    folder.mkdir(parents=True, exist_ok=True)
    skops.io.dump(model, folder / "model.skops")
    for quarter in (1, 2):
        accounts = rest.iloc[(quarter - 1) * people : quarter * people].reset_index(drop=True)
        accounts.insert(0, "account", [f"Q{quarter}-{k:05d}" for k in range(len(accounts))])
        accounts.assign(quarter=f"Q{quarter}").to_csv(folder / f"q{quarter}.csv", index=False)
    (folder / "reasons.toml").write_text(REASONS, encoding="utf-8")
    (folder / "audit.toml").write_text(CONFIG, encoding="utf-8")
    return model, inputs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=2500, help="of each quarter")
    parser.add_argument("--out", type=Path, help="folder to keep the files in")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.out or Path(temporary)
        model, inputs = write_file(folder, given.people, seed=0)
        print(f"A {type(model).__name__} of {len(inputs)} inputs, and {given.people:,} accounts of each quarter.")
        if given.out:
            print(f"Kept: {', '.join(str(path) for path in sorted(folder.iterdir()))}")


if __name__ == "__main__":
    main()
