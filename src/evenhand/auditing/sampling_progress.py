"""Sampled Shapley values in an audit: how many orders, how long they take, and their progress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from rich.console import Console

from evenhand.auditing.reference import AuditReference
from evenhand.matching.placebos import N_NEAR
from evenhand.models.sampling_plan import is_sampled, questions, seconds_per_question, watched
from evenhand.system.progress import progress

__all__ = ["announce_sampling", "sampling_seconds", "shown_sampling"]

_WORTH_SAYING = 2.0  # seconds
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
    if seconds < _WORTH_SAYING:
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
