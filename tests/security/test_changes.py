"""Files that change while they are audited: an error, or the audit of the file as it was opened, hash included."""

import hashlib
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.cli.jobs import audit_table
from evenhand.cli.options import AuditPlan
from evenhand.exceptions import EvenhandError
from evenhand.inputs.tables import open_table

pytestmark = pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")

ROLES = {"label": "paid", "group": "sex", "financial_features": ["income", "debt"]}


def people(seed):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"income": rng.normal(size=80), "debt": rng.normal(size=80), "sex": list("fm") * 40})
    table["paid"] = (table["income"] - table["debt"] + rng.normal(size=80) > 0).astype(int)
    return table.round(6)


def write(table, path):
    if path.suffix == ".csv":
        table.to_csv(path, index=False)
    else:
        table.to_parquet(path, row_group_size=20)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    table = people(0)
    fitted = eh.CECClassifier(financial_features=["income", "debt"], epochs=1, hidden=(4,), random_state=0)
    fitted.fit(table[["income", "debt"]], table["paid"], sensitive_features=table["sex"])
    return fitted.save(tmp_path_factory.mktemp("model") / "model")


@pytest.fixture
def audits(model, tmp_path):
    """Audits of a file, in memory and in batches, as JSON."""
    logistic = LogisticRegression().fit(people(0)[["income", "debt"]], people(0)["paid"])
    count = iter(range(10_000))

    def in_memory(file):
        plan = AuditPlan(**{**ROLES, "group": ("sex",), "financial_features": ("income", "debt")}, evidence=False)
        result = audit_table(open_table(file), replace(plan, model=str(model)))
        return written(result, tmp_path / f"{next(count)}.json"), "data file"

    def in_batches(file):
        out = tmp_path / f"out-{next(count)}"
        result = eh.audit_stream(logistic, file, out=out, batch_rows=20, evidence=False, engine="threads", **ROLES)
        return written(result, out / "audit.json"), "source files"

    return {"memory": in_memory, "batches": in_batches}


def written(result, path):
    result.to_json(path)
    return json.loads(path.read_text())


class Meanwhile:
    """Does something as the n-th file is opened from now on, and something else as the next one is."""

    installed = None

    def __init__(self):
        self.todo, self.n_left, self.n_seen = [], 0, 0
        sys.addaudithook(self.seen)

    def at(self, n, *todo):
        self.todo, self.n_left, self.n_seen = list(todo), n, 0

    def seen(self, event, _arguments):
        if event != "open":
            return
        self.n_seen += 1
        self.n_left -= 1
        if self.n_left < 0 and self.todo:
            todo, self.todo = self.todo[0], self.todo[1:]
            todo()


@pytest.fixture(scope="module")
def meanwhile():
    Meanwhile.installed = Meanwhile.installed or Meanwhile()  # a hook cannot be removed
    yield Meanwhile.installed
    Meanwhile.installed.at(0)


def renamed(file, other):
    other.with_suffix(".new").write_bytes(other.read_bytes())
    other.with_suffix(".new").replace(file)


def rewritten(file, other):
    file.write_bytes(other.read_bytes())


def cut(file, _other):
    os.truncate(file, file.stat().st_size // 2)


def appended(file, _other):
    with file.open("ab") as opened:
        opened.write(b"1.5,2.5,f,1\n")


CHANGES = [renamed, rewritten, cut, appended]


def comparable(summary):
    data = {name: value for name, value in summary["data"].items() if name != "hashes"}
    return {name: value for name, value in summary.items() if name not in ("created", "stream")} | {"data": data}


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("way", ["memory", "batches"])
@pytest.mark.parametrize("n_moments", [6, pytest.param(60, marks=pytest.mark.slow)])
def test_a_changed_file_is_refused_or_audited_as_it_was(audits, tmp_path, meanwhile, way, ending, n_moments):
    audit, file = audits[way], tmp_path / f"people{ending}"
    first, second = (tmp_path / f"{name}{ending}" for name in ("first", "second"))
    write(people(1), first)
    write(people(2), second)
    file.write_bytes(first.read_bytes())
    meanwhile.at(10**9)
    wanted, what = audit(file)
    n = meanwhile.n_seen
    assert n > 3
    outcomes = []
    for k, moment in enumerate(np.unique(np.linspace(0, n + 2, n_moments).astype(int))):
        file.write_bytes(first.read_bytes())
        change = CHANGES[k % len(CHANGES)]
        meanwhile.at(int(moment), lambda change=change: change(file, second))
        try:
            found, _ = audit(file)
        except EvenhandError as error:
            outcomes.append(str(error))
            continue
        finally:
            meanwhile.at(10**9)
        content = [path for path in (first, second) if _sha256(path) == found["data"]["hashes"][what]]
        assert content or moment == 0, change.__name__  # one of the two, whole; or what was there before it began
        if content == [first]:
            assert comparable(found) == comparable(wanted)
        outcomes.append("audited.")
    assert set(outcomes) > {"audited."}
    assert all(told.endswith(".") for told in outcomes)


@pytest.mark.parametrize("way", ["memory", "batches"])
def test_a_file_that_is_another_for_a_moment_is_not_audited(audits, tmp_path, meanwhile, way):
    """A link that leads elsewhere and back: hashes before and after would be the same."""
    first, second, link = (tmp_path / name for name in ("first.csv", "second.csv", "people.csv"))
    write(people(1), first)
    write(people(2), second)

    def lead(target):
        new = tmp_path / "new"
        new.symlink_to(target)
        new.replace(link)

    lead(first)
    meanwhile.at(10**9)
    wanted, what = audits[way](link)
    for moment in range(0, meanwhile.n_seen, 1 + meanwhile.n_seen // 12):
        meanwhile.at(moment, lambda: lead(second), lambda: lead(first))
        try:
            found, _ = audits[way](link)
        except EvenhandError as error:
            assert "changed while it was read" in str(error) or "cannot be read" in str(error)  # noqa: PT017
            continue
        finally:
            meanwhile.at(10**9)
            lead(first)
        which = {_sha256(path): path for path in (first, second)}[found["data"]["hashes"][what]]
        assert (comparable(found) == comparable(wanted)) == (which == first)


def test_a_model_that_changes_meanwhile_is_refused(tmp_path, model, meanwhile):
    file = tmp_path / "people.csv"
    write(people(1), file)
    copy = tmp_path / "model.safetensors"
    copy.write_bytes(next(Path(model).iterdir() if Path(model).is_dir() else iter([Path(model)])).read_bytes())
    plan = AuditPlan(
        label="paid", group=("sex",), financial_features=("income", "debt"), model=str(copy), evidence=False
    )
    meanwhile.at(10**9)
    audit_table(open_table(file), plan)
    meanwhile.at(meanwhile.n_seen - 4, lambda: os.utime(copy) or appended(copy, None))
    with pytest.raises(EvenhandError, match="The model file changed while it was audited"):
        audit_table(open_table(file), plan)


def _sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()
