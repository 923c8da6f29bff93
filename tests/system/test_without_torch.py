"""Only networks need torch: an audit of anything else never imports it."""

import subprocess
import sys

import numpy as np
import pytest
import skops.io
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import evenhand as eh

pytestmark = pytest.mark.integration

ABSENT = """
import sys

class Absent:
    def find_spec(self, name, *_):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, Absent())
"""
AUDITS = """
import warnings
import evenhand as eh

warnings.simplefilter("ignore")
people = eh.read_table("people.csv")
names = [name for name in people if name not in ("y", "sex")]
X, y = people[names], people["y"]
roles = {"sensitive_features": people["sex"], "financial_features": names[:4]}
done = []

def audited(model, n=len(people)):
    eh.audit(model, X[:n], y[:n], **roles | {"sensitive_features": people["sex"][:n]})
    seen(type(model).__name__)

def seen(what):
    done.append(what)
    assert "torch" not in sys.modules, done

seen("the package")
linear = eh.load_model("model.skops")
audited(linear)
from sklearn.ensemble import HistGradientBoostingClassifier
audited(HistGradientBoostingClassifier(max_iter=5).fit(X, y))
from xgboost import XGBClassifier
audited(XGBClassifier(n_estimators=3).fit(X, y))
from interpret.glassbox import ExplainableBoostingClassifier
audited(ExplainableBoostingClassifier(interactions=1, max_rounds=20, outer_bags=1, n_jobs=1).fit(X, y))
import statsmodels.api as sm
audited(sm.Logit(y, X).fit(disp=0))
audited(lambda rows: linear.predict_proba(rows)[:, 1], 80)
eh.audit_given(X, y, scores=linear.predict_proba(X)[:, 1], **roles)
seen("given scores")
eh.audit_stream(linear, "people.csv", label="y", group="sex", financial_features=names[:4], out="streamed")
seen("a stream")
print(*done, sep=", ")
"""
ASKED = """
import evenhand as eh
from evenhand.exceptions import MissingExtraError

for name in sys.argv[1:]:
    try:
        getattr(eh, name)
    except MissingExtraError as error:
        print(error)
"""
TRAINED = """
from evenhand.cli import main
sys.argv = ["evenhand", *sys.argv[1:]]
main()
"""


def run(folder, code, *words, expected=0):
    """What a program prints where torch cannot be imported."""
    command = [sys.executable, "-c", ABSENT + code, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == expected, done.stdout + done.stderr
    return done.stdout if not expected else done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table of people, and a model in a file."""
    path = tmp_path_factory.mktemp("without-torch")
    data = eh.load_dataset("synthetic", n=300, n_financial=4, n_proxy=2, n_noise=0, label_noise=1.0)
    table = data.X.assign(y=data.y, sex=np.where(data.group == data.group[0], "f", "m"))
    table.to_csv(path / "people.csv", index=False)
    skops.io.dump(make_pipeline(StandardScaler(), LogisticRegression()).fit(data.X, data.y), path / "model.skops")
    return path


def test_audits_of_models_without_layers_never_import_torch(folder):
    for library in ("xgboost", "interpret", "numba"):
        pytest.importorskip(library)
    assert run(folder, AUDITS).count(",") == 8


def test_what_needs_torch_says_so_in_one_sentence(folder):
    names = ["CECClassifier", "cec_loss", "integrated_gradients", "search"]
    said = run(folder, ASKED, *names, "audit", "load_model").splitlines()
    assert len(said) == len(names)
    assert all(line.endswith("needs torch, which is not installed: pip install 'evenhand[torch]'.") for line in said)
    financial = "financial_0,financial_1"
    words = f"train people.csv --label y --group sex --financial {financial} --out model"
    said = run(folder, TRAINED, *words.split(), expected=2)
    assert (
        said
        == "Error: Networks and their training need torch, which is not installed: pip install 'evenhand[torch]'.\n"
    )
