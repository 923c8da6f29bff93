"""The time that an audit is said to take: right where costs are known, silent where it is short."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

import evenhand as eh
from evenhand.auditing import audit as auditing
from evenhand.auditing import progress as estimating
from evenhand.auditing.progress import RunSize
from evenhand.auditing.streaming import stream
from evenhand.system import threads

N = 1_200

pytestmark = pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")


@pytest.fixture(scope="module")
def data():
    return eh.load_dataset("synthetic", n=N)


@pytest.fixture(scope="module")
def model(data):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(data.X.shape[1], 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))


def audited(model, data, **options):
    given = {"sensitive_features": data.group, "financial_features": data.financial_features, "favorable": "high"}
    return eh.audit(model, data.X, data.y, **given, **options)


@pytest.fixture(scope="module")
def reference(model, data):
    """What `eh.audit` fits before it says anything."""
    kept = []
    with pytest.MonkeyPatch.context() as patch:
        of = auditing.AuditReference.of
        patch.setattr(auditing.AuditReference, "of", lambda *given: kept.append(of(*given)) or kept[-1])
        audited(model, data)
    return kept[0]


class Clock:
    """A clock that an audit moves by what its people cost."""

    def __init__(self, fixed, each):
        self.now, self.fixed, self.each, self.audits = 0.0, fixed, each, []
        self.compiling = 0.0  # seconds, in the first audit

    def perf_counter(self):
        return self.now

    def audit_batch(self, reference, people, by, *, person_row, compared):
        self.now += self.fixed + self.each * len(compared) + (0.0 if self.audits else self.compiling)
        self.audits.append((len(reference.pool), len(people), person_row, compared))


@pytest.fixture
def clock(monkeypatch):
    found = Clock(fixed=0.02, each=0.002)
    monkeypatch.setattr(estimating, "time", found)
    monkeypatch.setattr(estimating, "audit_batch", found.audit_batch)
    return found


def test_the_cost_of_one_more_person_is_told_apart_from_fixed_costs(reference, clock):
    seconds = estimating.seconds_of(reference, RunSize(100_000))
    after = 100_000 * (estimating._FINISHING + reference.evidence.n_triples * estimating._FINISHING_TRIPLE)
    assert seconds == pytest.approx(0.02 + 100_000 * 0.002 + after)


@pytest.mark.parametrize(("n_people", "tried"), [(1_000, []), (3_000, [100]), (20_000, [100, 100, 200])])
def test_nothing_is_said_of_a_short_run_and_little_is_tried(reference, clock, n_people, tried):
    assert (estimating.seconds_of(reference, RunSize(n_people)) is None) == (len(tried) < 3)
    assert [n for _, n, *_ in clock.audits] == tried


def test_threads_share_an_audit_in_memory_and_a_trial_keeps_to_one(reference, monkeypatch):
    said, cores = [], []
    monkeypatch.setattr(estimating, "n_cores", lambda: 16)
    monkeypatch.setattr(estimating, "announce_run", lambda reference, size: said.append(size))
    with estimating.shown_run(reference, reference.pool, is_shown=True):
        assert said == [RunSize(N, n_workers=threads.MOST_THREADS)]
    monkeypatch.undo()
    monkeypatch.setattr(estimating, "audit_batch", lambda *given, **how: cores.append(threads.n_cores()))
    estimating.announce_run(reference, RunSize(10**9, n_workers=2))
    assert set(cores) == {1}


def test_a_first_trial_that_compiles_does_not_make_a_run_long(reference, clock):
    clock.compiling = 10.0
    assert estimating.seconds_of(reference, RunSize(3_000)) is None
    assert [n for _, n, *_ in clock.audits] == [100, 100]


def test_workers_share_batches_and_only_those_compared_cost_a_comparison(reference, clock):
    size = RunSize(200_000, in_batch=N // 4, n_workers=2, compared=0.25)
    seconds = estimating.seconds_of(reference, size)
    triples = 0.25 * reference.evidence.n_triples * estimating._FINISHING_TRIPLE
    after = 200_000 * (estimating._FINISHING + triples / 1.8)
    batches = 200_000 * 0.25 * 0.002 + 0.02 * math.ceil(200_000 / (N // 4))
    assert seconds == pytest.approx(batches / 1.8 + after, rel=0.02)
    pool, n, rows, compared = clock.audits[0]
    assert (pool, n, len(compared)) == (400, 100, 25)
    np.testing.assert_array_equal(rows, np.linspace(0, 399, 100).astype(int))


def test_a_real_trial_takes_the_time_that_a_trial_may_take(reference):
    found = estimating.seconds_of(reference, RunSize(10**9))
    assert 10**3 < found < 10**7  # between a microsecond and ten milliseconds a person


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(32.0, "30 seconds"), (725.0, "12 minutes"), (9_000.0, "2.5 hours"), (None, None), (29.0, None)],
)
def test_long_runs_are_announced(model, data, monkeypatch, capsys, seconds, words):
    monkeypatch.setattr(estimating, "seconds_of", lambda *given: seconds)
    audited(model, data, progress=True, evidence=False)
    said = capsys.readouterr().err
    if words is None:
        assert "This will take" not in said
    else:
        what = f"{N:,} people in 2 groups, 20 features, explained by integrated gradients, without placebo pairs."
        assert f"This will take about {words}: {what}" in said


def test_nothing_is_tried_where_nothing_is_shown(model, data, monkeypatch):
    monkeypatch.setattr(estimating, "seconds_of", lambda *given: pytest.fail("tried"))
    audited(model, data, evidence=False)


def test_too_little_memory_is_said_with_what_to_do(reference, model, data, monkeypatch, capsys):
    needed = estimating.needed_memory(reference, N)
    for free, is_said in ((needed - 1, True), (needed, False), (None, False)):
        monkeypatch.setattr(estimating, "available_memory", lambda free=free: free)
        audited(model, data, progress=True)
        assert ("use --stream" in capsys.readouterr().err) == is_said


def test_a_resumed_stream_announces_the_batches_that_are_left(model, data, tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(stream, "announce_run", lambda reference, size, prepared: said.append(size))
    source = tmp_path / "people.parquet"
    data.X.assign(y=data.y, sex=data.group).to_parquet(source)
    how = {"label": "y", "group": "sex", "financial_features": data.financial_features, "out": tmp_path / "out"}
    how |= {"favorable": "high", "batch_rows": 300, "n_jobs": 1, "progress": True, "evidence_people": 600}
    eh.audit_stream(model, source, **how)
    for path in (tmp_path / "out" / "batches").glob("000001*"):
        path.unlink()
    eh.audit_stream(model, source, resume=True, **how)
    assert said == [RunSize(n, in_batch=300, n_workers=1, compared=0.5) for n in (N, 300)]


def test_some_people_are_what_they_were_among_all(data, reference):
    pool, rows = reference.pool, np.array([3, 700, 11])
    some = pool.rows(rows)
    pd.testing.assert_frame_equal(some.table, pool.table.iloc[rows])
    assert torch.equal(some.x, pool.x[rows])
    np.testing.assert_array_equal(some.cells, pool.cells[rows])
    np.testing.assert_array_equal(some.identity.content, pool.identity.content[rows])
