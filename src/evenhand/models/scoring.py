"""From pairs and triples to scores: what the audit, the search, the reproduction and the calibration all measure.

A pair is a person and a match, both explained from the baseline of the person's cell. A triple adds a placebo, someone
of the person's group who is as far away as the match. Scores have the dimensions of the models, then of the pairs:
(n,) for one model, (K, n) for a stack of K networks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from evenhand.arrays import Array, Ints, gpu_of, like, namespace
from evenhand.attribution.explanation import Explanation
from evenhand.attribution.shapley import ShapleyAttribution, SharedGame
from evenhand.matching.placebos import PlaceboPairs
from evenhand.metrics.cec import NEGLIGIBLE_NORM, PairScores, cec_scores
from evenhand.models.explaining import Explainer, HalvedExplainer, Seen, SeenTriples
from evenhand.models.protocol import AuditedModel

# Pairs or triples of all models that are scored at once: bounds memory.
_BLOCK = (16_384, 262_144)  # on the processor, on a GPU

# The same for a model that evaluates people together, and more of them in less time each.
_TOGETHER = 32_768


def score_explained_pairs(me: Explanation, them: Explanation, join: Array | None = None) -> PairScores:
    """Score people and their matches, explained from the same baselines, row by row.

    Parameters
    ----------
    me, them
        Explanations of the people and of their matches.
    join
        Sums inputs into the table's columns, in the type of the explanations; None if they are the same.

    Examples
    --------
    >>> import numpy as np
    >>> from evenhand.models.protocol import LinearModel
    >>> model, b = LinearModel(np.array([2.0, -1.0]), 0.5, "scorecard"), np.zeros((1, 2))
    >>> me, them = (model.attribute(np.array([x]), b, 1, "segments") for x in ([1.0, 2.0], [2.0, 1.0]))
    >>> score_explained_pairs(me, them).reasoning_gap.item()  # a linear model weighs alike
    0.0
    """
    return _joined_scores(join, me.values, them.values, me.with_inputs_of(them), them.with_inputs_of(me))


def _joined_scores(join: Array | None, *parts: Array) -> PairScores:
    return PairScores(*(_by_column(part, join) for part in parts))


def score_pairs(
    explainer: Explainer, own: Explanation, person: Ints, matches: Seen
) -> Iterator[tuple[slice, PairScores]]:
    """Score pairs, block by block.

    Parameters
    ----------
    explainer
        Source of the explanations.
    own
        Explanations of the people from their cells.
    person
        Row of each pair's person in `own`.
    matches
        Each pair's match, explained from the person's cell.

    Yields
    ------
    The place of a block in `person`, and its scores.
    """
    rows = like(person, matches.position)
    for block in _blocks(len(person), own):
        yield block, score_explained_pairs(own.rows(rows[block]), matches[block], explainer.join)


@dataclass(frozen=True, eq=False)
class TripleScores:
    """The measurements on each triple.

    The financial gap is the CEC score that a pair's unequal finances alone would give: that of a person and the same
    person with the counterpart's financial features. Its difference between a pair and its placebo pair only shows that
    neighbors differ, and is the control that `metrics.excess` removes. For a model that sees only financial features,
    it is the CEC score itself.

    The weights of a model that is not additive depend on finances, too. So reasoning gaps are those of people who have
    been given the person's finances: what still differs between their weights is not finances.

    Attributes
    ----------
    pair, placebo
        Scores of the person with the match, and with the placebo, from the half of the cell without the placebo.
    reasoning_gap
        Reasoning gap of the person and the match minus that of the person and the placebo, at the person's finances.
    gap, placebo_gap
        Financial gap of each.
    stretch
        How much longer, in logarithms, the person's explanation is with the match's finances than with the placebo's.
    match, control
        Explanations of the match and of the placebo, both from the person's baseline.
    """

    pair: PairScores
    placebo: PairScores
    reasoning_gap: Array
    gap: Array
    placebo_gap: Array
    stretch: Array
    match: Explanation
    control: Explanation
    join: Array | None

    def weight_difference(self, deviation: Array) -> Array:
        """Weights of each feature for the match minus the placebo, for a step of `deviation`, of shape (d,)."""
        return _weights(self.match.per_deviation(deviation), self.join) - _weights(
            self.control.per_deviation(deviation), self.join
        )


def score_triples(
    explainer: HalvedExplainer,
    seen: SeenTriples,
    x: Array,
    pool: Array,
    triples: PlaceboPairs,
    is_financial: Array,
) -> Iterator[tuple[slice, TripleScores]]:
    """Score triples that have a baseline, block by block.

    Parameters
    ----------
    explainer, seen
        Source of the explanations, and the explanations of everyone in the triples.
    x, pool
        Inputs of the people, and of the pool of matches and placebos, of shape (n, d).
    triples
        Who is compared with whom.
    is_financial
        Which inputs belong to financial features, of shape (d,).

    Yields
    ------
    The place of a block in `triples`, and its scores.
    """
    xp, join = namespace(x), explainer.explainer.join
    person, other, placebo = (like(rows, x) for rows in (triples.person, triples.other, triples.own))
    for block, (with_match, with_placebo) in _crossed_blocks(seen):
        me, them, like_me = seen.person[block], seen.match[block], seen.placebo[block]
        mine, cells = x[person[block]], seen.cells[block]
        others = pool[other[block]], pool[placebo[block]]
        exchanged = explainer.explainer.exchanged(me, mine, others, cells, is_financial)
        scores, gaps, financial_gaps, lengths = [], [], [], []
        for who, known, (with_theirs, as_me, swapped) in zip(
            (them, like_me), (with_match, with_placebo), exchanged, strict=True
        ):
            moved = me.with_inputs_of(who) if known is None else known
            scores.append(_joined_scores(join, me.values, who.values, moved))
            # An input contributes by its value and the context: equal finances contribute what the context's own do.
            moved, swapped = (
                xp.where(is_financial, own.values, others) for own, others in ((me, moved), (as_me, swapped))
            )
            gaps.append(_joined_scores(join, me.values, as_me.values, moved, swapped).reasoning_gap)
            moved_finances = _by_column(with_theirs.values, join)
            financial_gaps.append(cec_scores(scores[-1].own, moved_finances))
            lengths.append(xp.log(xp.sqrt((moved_finances**2).sum(-1)).clip(min=NEGLIGIBLE_NORM)))
        yield (
            block,
            TripleScores(
                pair=scores[0],
                placebo=scores[1],
                reasoning_gap=gaps[0] - gaps[1],
                gap=financial_gaps[0],
                placebo_gap=financial_gaps[1],
                stretch=lengths[0] - lengths[1],
                match=them,
                control=like_me,
                join=join,
            ),
        )


def mean_over_leaves(
    model: AuditedModel, members: Ints, x: Array, pool: Array, is_financial: Array, of: Callable[[Array], Array]
) -> Array:
    """The mean of a function of people's logits, of shape (..., n, q), over the finances of members of their leaves.

    Probabilities bend and decisions jump with finances: those at the middle of a leaf are not those of the leaf.

    Parameters
    ----------
    model
        The model, or a stack of networks.
    members
        Rows of the pool whose finances each person is given, of shape (n, m).
    x, pool, is_financial
        Inputs of the people and of the pool, and which inputs are finances.
    of
        The function; of a logit in rows of `x`.
    """
    xp, rows = namespace(x), like(members, x)
    parts = [of(model.margin(xp.where(is_financial, pool[column], x))) for column in rows.T]
    return sum(parts[1:], parts[0]) / len(parts)


def joined(blocks: Iterable[tuple[Array, ...]]) -> list[Array]:
    """Metrics of all blocks, each of shape (..., n); empty without a block.

    Examples
    --------
    >>> import numpy as np
    >>> first, second = joined([(np.zeros(1), np.ones(1)), (np.zeros(2), np.ones(2))])
    >>> second.tolist()
    [1.0, 1.0, 1.0]
    """
    return [namespace(*parts).concat(parts, axis=-1) for parts in zip(*blocks, strict=True)]


def _crossed_blocks(seen: SeenTriples) -> Iterator[tuple[slice, tuple[Array | None, Array | None]]]:
    """Blocks of triples, and what the inputs of match and placebo contribute in the context of the person, if known.

    It is not known if that costs as much for one as for many.
    """
    own, n = seen.person.attribution, len(seen.cells)
    if not (isinstance(own, ShapleyAttribution) and isinstance(own.game, SharedGame)):
        yield from ((block, (None, None)) for block in _blocks(n, own))
        return
    for start in range(0, n, _TOGETHER):
        block = slice(start, min(start + _TOGETHER, n))
        inputs = np.concatenate([seen.match.position[block], seen.placebo.position[block]])
        crossed = own.crossed(np.tile(seen.person.position[block], 2), seen.match.attribution, inputs)
        half = block.stop - block.start
        yield block, (crossed[:half], crossed[half:])


def _by_column(attributions: Array, join: Array | None) -> Array:
    """Attributions of the table's columns."""
    return attributions if join is None else attributions @ join


def _blocks(n: int, own: Explanation) -> Iterator[slice]:
    """Parts of n pairs, small enough for all models."""
    size = max(1, _BLOCK[gpu_of(own.logit) is not None] // math.prod(own.logit.shape[:-1]))
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def _weights(steps: Array, join: Array | None) -> Array:
    """Change of the logit for one standard deviation of each feature; a feature of several columns has no sign."""
    if join is None:
        return steps
    xp = namespace(steps)
    return xp.where(join.sum(0) == 1, steps @ join, xp.sqrt(steps**2 @ join))
