"""A streamed audit is shown like one in memory: the same sheets, pages, comparisons and histories."""

import numpy as np
import openpyxl
import pandas as pd
import pytest
import torch

import evenhand as eh
from evenhand.auditing.history.compare import compare_audits
from evenhand.auditing.history.monitoring import monitor

N = 2_050  # more pairs than the sample of the explorer holds
FEATURES = ["income", "debt", "street"]


def people():
    rng = np.random.default_rng(4)
    table = pd.DataFrame(rng.normal(size=(N, 3)), columns=FEATURES)
    table["sex"] = np.where(rng.random(N) < 0.4, "f", "m")
    table["y"] = (table["income"] + 0.8 * rng.normal(size=N) > 0).astype(int)
    return table


def network(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))


def streamed(table, folder, seed=0):
    folder.mkdir()
    table.to_parquet(folder / "people.parquet", row_group_size=500)
    return eh.audit_stream(
        model=network(seed),
        source=folder / "people.parquet",
        out=folder / "audit",
        label="y",
        group="sex",
        features=FEATURES,
        financial_features=["income", "debt"],
        batch_rows=700,
    )


@pytest.fixture(scope="module")
def memory():
    table = people()
    return eh.audit(
        network(0),
        table[FEATURES],
        table["y"],
        sensitive_features=table["sex"],
        financial_features=["income", "debt"],
    )


@pytest.fixture(scope="module")
def stream(tmp_path_factory):
    return streamed(people(), tmp_path_factory.mktemp("stream") / "one")


def sheets_of(result, path):
    result.to_excel(path)
    return {
        sheet.title: [list(row) for row in sheet.iter_rows(values_only=True)] for sheet in openpyxl.load_workbook(path)
    }


def test_every_number_of_every_sheet_is_that_of_the_audit_in_memory(stream, memory, tmp_path):
    assert len(stream.pair_sample()) < N
    own, other = (sheets_of(result, tmp_path / "audit.xlsx") for result in (stream, memory))
    assert list(own) == list(other)
    assert len(own["Pairs"]) == N + 1
    for name, rows in other.items():
        if name == "Audited":  # a file and a table in memory have names and hashes of their own
            rows, own[name] = (
                [r for r in sheet if r[1] != "files: data file" and (r[2] is None or len(str(r[2])) != 64)]
                for sheet in (rows, own[name])
            )
        assert len(own[name]) == len(rows), name
        for mine, theirs in zip(own[name], rows, strict=True):
            for a, b in zip(mine, theirs, strict=True):
                is_number = isinstance(a, float) and isinstance(b, (int, float))
                assert a == pytest.approx(b, rel=1e-5, abs=1e-6) if is_number else a == b, (name, a, b)


def test_a_streamed_audit_is_compared_like_one_in_memory(stream, memory, tmp_path):
    other = streamed(people(), tmp_path / "two", seed=3)
    table = people()
    other_memory = eh.audit(
        network(3),
        table[FEATURES],
        table["y"],
        sensitive_features=table["sex"],
        financial_features=["income", "debt"],
    )
    first = compare_audits({"old": stream, "new": other})
    second = compare_audits({"old": memory, "new": other_memory})
    assert first.pairings == second.pairings
    assert first.pairings[0].is_paired
    for mine, theirs in zip((*first.metrics, *first.features), (*second.metrics, *second.features), strict=True):
        assert (mine.key, mine.verdict, mine.is_paired) == (theirs.key, theirs.verdict, theirs.is_paired)
        assert mine.change == pytest.approx(theirs.change, rel=1e-8, abs=1e-10, nan_ok=True)
        assert mine.standard_error == pytest.approx(theirs.standard_error, rel=1e-8, nan_ok=True)


def test_histories_take_results_dictionaries_and_files(stream, memory, tmp_path):
    memory.to_json(tmp_path / "audit.json")
    found = monitor({"one": stream, "two": memory.to_dict(), "three": tmp_path / "audit.json"})
    assert [audit.name for audit in found.history.audits] == ["one", "two", "three"]
    assert not found.departures
    found.to_html(tmp_path / "history.html")
    assert "one to three" in (tmp_path / "history.html").read_text("utf-8")
