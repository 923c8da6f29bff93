"""Estimate the time and memory of an audit from a trial on a few of its people."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from rich.console import Console

from evenhand.auditing.batch import audit_batch
from evenhand.auditing.people import People
from evenhand.auditing.reference import AuditReference
from evenhand.exceptions import EvenhandError
from evenhand.inputs.splitting import sample_people
from evenhand.matching.placebos import N_NEAR
from evenhand.models.explaining import is_sampled, questions, seconds_per_question, watched
from evenhand.system.terminal import progress
from evenhand.system.threads import MOST_THREADS, available_memory, n_cores, on_this_core, one_thread_each

_WORTH_WAITING = 2.0  # seconds
_STEPS = 100


def announce_sampling(reference: AuditReference, n_people: int) -> bool:
    """Report how many orders sampled attributions use, and for how long, if it is over two seconds.

    Returns
    -------
    Whether it was reported.
    """
    if not is_sampled(reference.explainer):
        return False
    seconds = sampling_seconds(reference, n_people)
    if seconds < _WORTH_WAITING:
        return False
    words = f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"
    Console(stderr=True).print(
        f"Attributions of {n_people:,} people are sampled from {reference.settings.n_permutations} orders of the "
        f"inputs; this takes about {words}.",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    return True


def sampling_seconds(reference: AuditReference, n_people: int) -> float:
    """About how long it takes to explain this many people with a sampled model."""
    each = seconds_per_question(reference.explainer, reference.pool.x, reference.pool.cells)
    return each * n_questions(reference, n_people)


@contextmanager
def shown_sampling(reference: AuditReference, n_people: int, *, is_shown: bool) -> Iterator[AuditReference]:
    """The reference, with a model that shows its progress if its attributions are sampled."""
    if not is_shown or not announce_sampling(reference, n_people):
        yield reference
        return
    expected = max(1, n_questions(reference, n_people))
    with progress("attributions, %", _STEPS) as advance:
        asked, shown = 0, 0

        def show(n: int) -> None:
            nonlocal asked, shown
            asked += n
            while shown < min(_STEPS, _STEPS * asked // expected):
                shown += 1
                advance("")

        explainer = watched(reference.explainer, show)
        evidence = reference.evidence
        if evidence is not None:
            halved = evidence.explainer
            evidence = replace(evidence, explainer=replace(halved, explainer=watched(halved.explainer, show)))
        yield replace(reference, explainer=explainer, model=explainer.model, evidence=evidence)
        show(expected)  # people without a match or a placebo were counted too


def n_questions(reference: AuditReference, n_people: int) -> int:
    """About how many evaluations an audit needs from a sampled model."""
    own, moved = (questions(reference.explainer, is_own=is_own) for is_own in (True, False))
    n_pairs = n_people * (len(reference.pool.groups.names) - 1)
    n_triples = 0 if reference.evidence is None else N_NEAR * n_pairs
    # People and matches, each also with the other's inputs. For triples, people from both halves of a cell and others
    # from one, with steps of one standard deviation; and for each triple, people with the others' finances and inputs.
    n_halves = 0 if reference.evidence is None else 3 * n_pairs
    of_triples = n_halves * (own + moved) + n_triples * (2 * own + 4 * moved)
    return n_people * own + n_pairs * (own + 2 * moved) + of_triples


_WORTH_SAYING = 30.0  # seconds
_FEWEST, _MOST = 100, 2_000  # people in a trial
_WORTH_TRYING = 20  # times as many people as in the smallest trial: a shorter audit soon says itself how long it takes
_PER_CELL = 10  # people in a small trial for each label and group
_TRIAL_SECONDS, _TRIAL_SHARE = 0.3, 0.01  # of the larger trial; the share is of the audit on one core
_LOOKED_AT = 50_000  # rows from which the people of a trial are drawn
_MOST_TIMES_IN_BATCH = 8  # largest ratio of the reference to the batch in a trial
_QUERIED = 256
# Seconds that a pair takes after the batches, for metrics, and that each of its triples takes, for evidence, which
# workers share; the model is not asked again there. `benchmarks/bench_estimate.py` says whether they still hold.
_FINISHING, _FINISHING_TRIPLE = 10e-6, 10e-6
_GAIN_OF_WORKER = 0.8  # of each beyond the first
# Bytes at the peak of an audit in memory, for each pair and each of its values: see docs/growth.md.
_BYTES_PER_PAIR, _BYTES_PER_VALUE, _BYTES_PER_VALUE_COMPARED = 1_500, 50, 165


@dataclass(frozen=True)
class RunSize:
    """Size of an audit.

    Attributes
    ----------
    n_people
        Number of people; those who are audited repeatedly count each time.
    in_batch
        People in a batch; None if they are all in memory.
    n_workers
        Batches audited at the same time; in memory, threads that share the work.
    compared
        Share of people who are compared with placebo pairs.
    """

    n_people: int
    in_batch: int | None = None
    n_workers: int = 1
    compared: float = 1.0


def _unchanged(reference: AuditReference) -> AuditReference:
    return reference


def seconds_of(
    reference: AuditReference, size: RunSize, prepared: Callable[[AuditReference], AuditReference] = _unchanged
) -> float | None:
    """Estimate how long an audit takes from here; None if that is too short to mention.

    Small samples of the reference of two sizes are audited; the difference shows what one more person costs. They share
    explanations as the whole reference does. Only the neighbor search takes longer in a larger reference, so it is
    timed in both.

    Parameters
    ----------
    reference
        The fitted reference.
    size
        Size of the audit.
    prepared
        What is done to a reference before its first batch.
    """
    n_cells = 2 * len(reference.pool.groups.names)
    few = max(_FEWEST, _PER_CELL * n_cells)
    if size.n_people < _WORTH_TRYING * few:
        return None
    trial = _Trial(reference, size, prepared)
    finishing = _finishing(reference, size)

    def is_short(seconds: float) -> bool:
        return seconds / few * size.n_people + finishing < _WORTH_SAYING

    first = trial.seconds(few)
    if is_short(first):
        return None
    small = min(first, trial.seconds(few))  # the first may have compiled functions
    if is_short(small):
        return None
    may_take = max(_TRIAL_SECONDS, _TRIAL_SHARE * small / few * size.n_people)
    many = int(np.clip(few * may_take / small, 2 * few, max(2 * few, _MOST)))
    large = trial.seconds(many)
    each = max(large - small, 0.1 * large) / (many - few)
    of_batch = max(0.0, small - each * few)
    n_batches = 1 if size.in_batch is None else math.ceil(size.n_people / size.in_batch)
    batches = (each + trial.further_search(many)) * size.n_people + of_batch * n_batches
    return batches / _gain(size) + finishing


def _gain(size: RunSize) -> float:
    """How much sooner all workers are done than one would be."""
    return 1 + _GAIN_OF_WORKER * (size.n_workers - 1)


def _finishing(reference: AuditReference, size: RunSize) -> float:
    """Seconds from the last batch to the result."""
    n_pairs = size.n_people * (len(reference.pool.groups.names) - 1)
    n_triples = 0.0 if reference.evidence is None else size.compared * reference.evidence.n_triples
    return n_pairs * (_FINISHING + n_triples * _FINISHING_TRIPLE / _gain(size))


@dataclass(frozen=True, eq=False)
class _Trial:
    """Audits of a few people, with the same ratio of reference to batch as the whole audit."""

    reference: AuditReference
    size: RunSize
    prepared: Callable[[AuditReference], AuditReference]

    def seconds(self, n: int) -> float:
        """Time of a batch of n people."""
        pool, in_batch = self.reference.pool, self.size.in_batch
        times = 1.0 if in_batch is None else np.clip(len(pool) / in_batch, 1, _MOST_TIMES_IN_BATCH)
        fitted = self._fitted(int(n * times))
        people, row = fitted.pool, None
        if times > 1:
            row = np.linspace(0, len(people) - 1, min(n, len(people))).astype(np.int64)
            people = people.rows(row)
        compared = np.flatnonzero(np.diff(np.floor(self.size.compared * np.arange(len(people) + 1))))
        begun = time.perf_counter()
        audit_batch(fitted, people, {}, person_row=row, compared=compared)
        return (time.perf_counter() - begun) * n / len(people)

    def further_search(self, n: int) -> float:
        """How much longer a neighbor search takes in the whole reference than in one of n people."""
        n_searches = 3 if self.reference.evidence is not None else 1  # for the match, and for both kinds of triples
        whole, part = self._search(self.reference), self._search(self._fitted(n))
        return n_searches * max(0.0, whole - part)

    def _search(self, reference: AuditReference) -> float:
        rows = np.linspace(0, len(reference.pool) - 1, min(len(reference.pool), _QUERIED)).astype(np.int64)
        asked = reference.pool.rows(rows)
        F = reference.model.financial_table(asked.table, list(reference.settings.financial_features))
        begun = time.perf_counter()
        reference.matcher.match(F, asked.labels, np.asarray(asked.groups.names)[asked.groups.codes])
        return (time.perf_counter() - begun) / len(rows)

    def _fitted(self, n: int) -> AuditReference:
        """A reference of n people, spread over all of it."""
        pool = self.reference.pool
        looked_at = np.linspace(0, len(pool) - 1, min(len(pool), _LOOKED_AT)).astype(np.int64)
        chosen = sample_people(pool.labels[looked_at], pool.groups.codes[looked_at], n, random_state=0)
        few = pool.rows(looked_at[chosen])
        model, settings = self.reference.model, self.reference.settings
        return self.prepared(AuditReference.of(model, settings, few, self.size.n_people))


def needed_memory(reference: AuditReference, n_people: int) -> int:
    """About how many bytes an audit in memory needs besides the people."""
    n_pairs = n_people * (len(reference.pool.groups.names) - 1)
    each = _BYTES_PER_VALUE if reference.evidence is None else _BYTES_PER_VALUE_COMPARED
    return n_pairs * (_BYTES_PER_PAIR + each * reference.pool.x.shape[1])


@contextmanager
def shown_run(reference: AuditReference, people: People, *, is_shown: bool) -> Iterator[AuditReference]:
    """Report what an audit in memory needs; return the reference, with a model that shows progress if it is sampled."""
    n_draws = 1 if people.probabilities is None else people.probabilities.n_draws
    if is_shown and not is_sampled(reference.explainer):
        announce_run(reference, RunSize(len(people) * n_draws, n_workers=_threads(reference)))
    with shown_sampling(reference, len(people) * n_draws, is_shown=is_shown) as watched:
        yield watched


def _threads(reference: AuditReference) -> int:
    """Threads that share the work of an audit in memory; cores do not make a GPU faster."""
    return min(n_cores(), MOST_THREADS) if reference.pool.x.device.type == "cpu" else 1


def announce_run(
    reference: AuditReference, size: RunSize, prepared: Callable[[AuditReference], AuditReference] = _unchanged
) -> None:
    """Report how long an audit will take, if it is long, and warn if memory is too small."""
    if is_sampled(reference.explainer):
        announce_sampling(reference, size.n_people)
        return
    if size.in_batch is None:
        _warn_of_memory(reference, size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about a few people may not apply to all
        try:
            with on_this_core(), one_thread_each():  # a trial is too small for threads to share
                seconds = seconds_of(reference, size, prepared)
        except EvenhandError:  # a group is too small for a trial
            return
    if seconds is not None and seconds >= _WORTH_SAYING:
        _say(f"This will take about {_in_words(seconds)}: {_what(reference, size)}.")


def _warn_of_memory(reference: AuditReference, size: RunSize) -> None:
    needed, free = needed_memory(reference, size.n_people), available_memory()
    if free is not None and needed > free:
        _say(
            f"This needs about {needed / 2**30:.0f} GB of memory, but only {free / 2**30:.0f} GB are free: use "
            "--stream (`evenhand.audit_stream`) to audit in batches, in memory that does not grow with their number."
        )


def _what(reference: AuditReference, size: RunSize) -> str:
    groups, evidence = len(reference.pool.groups.names), reference.evidence is not None
    how = reference.settings.attribution.replace("_", " ")
    batches = "" if size.in_batch is None else f", {size.n_workers} batches at a time"
    return (
        f"{size.n_people:,} people in {groups} groups, {reference.pool.table.shape[1]} features, explained by {how}, "
        f"with{'' if evidence else 'out'} placebo pairs{batches}"
    )


def _in_words(seconds: float) -> str:
    """A duration in a suitable unit."""
    if seconds < 100:
        return f"{10 * round(seconds / 10)} seconds"
    if seconds < 100 * 60:
        return f"{round(seconds / 60)} minutes"
    return f"{seconds / 3600:.1f} hours"


def _say(sentence: str) -> None:
    Console(stderr=True).print(sentence, markup=False, highlight=False, soft_wrap=True)
