"""Candidates trained and scored in rounds of blocks; each block is kept as soon as it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from evenhand.inputs.fingerprints import fingerprint_plain
from evenhand.searching.draws import Stopping, StopRule
from evenhand.searching.families.libraries import held_to_one_thread
from evenhand.searching.people import EvaluationSettings
from evenhand.searching.space import Candidate
from evenhand.searching.store import BlockStore, Scored
from evenhand.system.parallel import in_order
from evenhand.system.progress import progress

__all__ = ["Runs", "run_rounds"]

Block = tuple[Candidate, ...]


class Runs(Protocol):
    """A way to train and score the candidates of some families."""

    @property
    def n_threads(self) -> int | None:
        """How many blocks run at once, each on one core; None to run one after the other, each on all cores."""
        ...

    def takes(self, candidate: Candidate) -> bool:
        """Whether a candidate is of its families."""
        ...

    def blocks(self, candidates: Sequence[Candidate]) -> list[Block]:
        """Candidates that are trained together."""
        ...

    def run(self, block: Block) -> list[Scored]:
        """Train and score a block."""
        ...


def run_rounds(
    ways: Sequence[Runs],
    candidates: Sequence[Candidate],
    store: BlockStore,
    settings: EvaluationSettings,
    stop: StopRule,
    stopping: Callable[[Sequence[Scored], int], Stopping],
    *,
    is_shown: bool,
) -> tuple[list[Scored], int]:
    """Results of every block, read or computed and kept, until the search may stop; and the candidates tried."""
    per_candidate = settings.folds * settings.seeds
    found: list[Scored] = []
    n_tried, bound = 0, ""
    with progress("models", len(candidates) * per_candidate, is_shown=is_shown) as advance:
        for of_round in stop.rounds(candidates):
            for results in _results(ways, of_round, store):
                found += results
                for row in results:
                    advance(f"auc {row.metrics.get('auc', float('nan')):.3f}{bound}")
            n_tried += len(of_round)
            known = stopping(found, n_tried) if stop.gain is not None else None
            if known is not None and known.bounds:
                bound = f", a further candidate gains at most {known.bounds[-1].gain():.2g}"
                if stop.is_reached(known):
                    break
    return found, n_tried


def _results(ways: Sequence[Runs], candidates: Sequence[Candidate], store: BlockStore) -> Iterator[list[Scored]]:
    """Results of every block of a round, in the same order whether read or computed."""
    for way in ways:
        blocks = way.blocks([candidate for candidate in candidates if way.takes(candidate)])

        def kept(block: Block, way: Runs = way) -> list[Scored]:
            name = fingerprint_plain([candidate.key for candidate in block])
            results = store.read(name)
            if results is None:
                results = way.run(block)
                store.write(name, results)
            return results

        if way.n_threads is None:
            yield from map(kept, blocks)
        elif blocks:
            with held_to_one_thread():
                yield from in_order(kept, blocks, way.n_threads)
