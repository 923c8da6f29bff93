"""The excess over placebo pairs, with its interval and p-value, for triples that share people.

A triple is a person, a match in a different group and a placebo in the person's group. One person can be the
match or the placebo of many, so triples are not independent; the standard errors here sum over every two
triples with a person in common, in time that grows with the number of triples and not with its square.

`estimate_excesses` estimates many excesses at once from triples in parts, which may be on disk. Three passes are made
over them: for the regressions, for sums over each person, and for sums over every two people of the reference. The
first two go by part, which holds all triples of a person; the third goes by ranges of the reference, because two of
its people may meet in triples of any part. Memory grows with the reference, not with the number of triples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.arrays import Array, Floats, Ints, Sums, as_numpy, device_of, like, namespace
from evenhand.exceptions import InvalidInputError
from evenhand.metrics.estimate import (
    FEW_INDEPENDENT_PEOPLE,
    Estimate,
    check_open_fraction,
    not_estimable,
    p_above,
    student_quantile,
    vector,
)
from evenhand.metrics.triples import (
    N_BUCKETS,
    Overlap,
    Parts,
    People,
    PeopleOfPart,
    Question,
    Triples,
    bucket_sums,
    couples_of_reference,
    deleted_squares,
    effective_number,
    placed,
    squared_sums,
)
from evenhand.system.threads import ONE_THREAD, Crew, Later, device_turn, one_thread_each

MIN_PEOPLE = 10
"""With fewer people, the excess is not estimated."""

ROUNDING = 1e-6
"""Differences of scores below this are rounding: attributions are computed in single precision."""

_COLUMNS_OF_ALL = 4
_COLUMNS_AT_ONCE = {False: 32, True: 256}  # without and with a device: bounds memory
_MOST_SUMS = 1 << 24  # of the reference's people times estimates held at once: 128 MB
_PARTS_SENT, _MOST_SENT = 8, 1 << 23  # parts on disk that are added up where they are read, if that holds so many sums
_ESTIMATES_AT_ONCE = 64  # at least, so that the number of passes does not grow with the reference

T = TypeVar("T")


def excess(
    delta: ArrayLike,
    placebo_delta: ArrayLike,
    nodes: ArrayLike,
    *,
    control: ArrayLike | None = None,
    confidence: float = 0.95,
    min_people: int = MIN_PEOPLE,
) -> Estimate:
    r"""Mean excess of `delta` over `placebo_delta`, with interval and one-sided p-value.

    People have equal weight, whatever their number of triples. With a control c, the estimate is the intercept of
    the regression of the difference on c: in effect, triples are reweighted so that the control has mean 0.

    The variance is that of deleting one person at a time with all their triples, minus what is counted twice:

    .. math:: V = \sum_v \left(\frac{S_v}{1 - c_v}\right)^2 - \sum_{u < v} S_{uv}^2 + \sum_{u < v < w} S_{uvw}^2

    where :math:`S_v` sums the weighted residuals of the triples that contain person v, :math:`S_{uv}` of those
    that contain both, and :math:`c_v` is the weight of v's triples. Without the :math:`c_v` this is the sum of
    products of residuals over every two triples with anyone in common. It is at least the variance that
    ignores sharing. Degrees of freedom: :math:`(\sum c_v^2)^2 / \sum c_v^4 - 1`.

    Parameters
    ----------
    delta, placebo_delta
        A score of each triple's pair and of its placebo pair, of shape (n_triples,). Triples with NaN
        in either, or in the control, are left out and counted in the note.
    nodes
        The people of each triple, of shape (n_triples,) or (n_triples, m), m up to 3, as non-negative
        codes. The first column is the person the triple is about; the others their match and placebo.
    control
        What is known to differ between pair and placebo for reasons other than the group, as pair minus
        placebo, of shape (n_triples,) or (n_triples, q). Must have expectation 0 when pair and
        placebo are alike; the difference of the financial gaps is the one the audit uses.
    confidence
        Coverage of the interval.
    min_people
        With fewer people, everything is NaN.

    Raises
    ------
    InvalidInputError
        If shapes disagree, `nodes` has more than three columns or negative codes, or `confidence` is not
        between 0 and 1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> person, match, placebo = np.arange(200), rng.integers(200, 250, 200), rng.integers(250, 450, 200)
    >>> delta, placebo_delta = rng.uniform(0.1, 0.5, 200), rng.uniform(0.0, 0.4, 200)
    >>> found = excess(delta, placebo_delta, np.column_stack([person, match, placebo]))
    >>> round(found.value, 3), round(found.standard_error, 3), found.p_value < 0.001
    (0.103, 0.012, True)
    """
    scores, floor = vector(delta, "delta"), vector(placebo_delta, "placebo_delta")
    return excess_columns(
        scores[:, None], floor[:, None], nodes, control=control, confidence=confidence, min_people=min_people
    )[0]


def excess_columns(
    delta: ArrayLike,
    placebo_delta: ArrayLike,
    nodes: ArrayLike,
    *,
    control: ArrayLike | None = None,
    confidence: float = 0.95,
    min_people: int = MIN_PEOPLE,
) -> tuple[Estimate, ...]:
    """Excess of each column of `delta` over the same column of `placebo_delta`; see `excess`.

    All columns share the weights of the triples. So when the columns of `delta` add up to a score (the
    contributions of the features), their excesses add up to that score's excess, with a control too.

    Raises
    ------
    InvalidInputError
        As `excess`.

    Examples
    --------
    >>> parts = np.array([[0.1, 0.2], [0.3, 0.1], [0.2, 0.2]] * 5)
    >>> [round(e.value, 3) for e in excess_columns(parts, parts / 2, np.arange(15))]
    [0.1, 0.083]
    """
    difference, people, adjust = _checked(delta, placebo_delta, nodes, control, confidence)
    usable = np.isfinite(difference).all(axis=1) & np.isfinite(adjust).all(axis=1)
    n_left_out = int((~usable).sum())
    if n_left_out:
        difference, people, adjust = difference[usable], people[usable], adjust[usable]
    left_out = left_out_note(n_left_out)
    _, code, count = np.unique(people[:, 0], return_inverse=True, return_counts=True)
    n = len(count)
    if n < max(min_people, 2):
        return tuple(too_few(n, min_people, left_out) for _ in difference.T)
    share = 1 / count[code]
    overlap = Overlap.of(people, share / n)
    found: list[Estimate] = []
    for first in range(0, difference.shape[1], _COLUMNS_OF_ALL):
        part = difference[:, first : first + _COLUMNS_OF_ALL].astype(np.float64)
        fit = ExcessMoments.of(share, adjust, part).fit()
        variance = overlap.variance(fit.residuals(share, adjust, part))
        found += [
            estimated(v, s, n, overlap.n_effective, confidence, left_out)
            for v, s in zip(fit.values.tolist(), np.sqrt(variance).tolist(), strict=True)
        ]
    return tuple(found)


def excess_by(
    by: ArrayLike,
    delta: ArrayLike,
    placebo_delta: ArrayLike,
    nodes: ArrayLike,
    *,
    control: ArrayLike | None = None,
    confidence: float = 0.95,
    min_people: int = MIN_PEOPLE,
) -> dict[object, Estimate]:
    """Excess within each value of `by` (group, label, decision, any column), of shape (n_triples,).

    Each value has its own weights and control slope. A value with too few people is present, with NaN.

    Examples
    --------
    >>> found = excess_by(["a", "b"] * 20, np.tile([0.3, 0.1], 20), np.full(40, 0.1), np.arange(40))
    >>> {name: round(estimate.value, 3) for name, estimate in found.items()}
    {'a': 0.2, 'b': 0.0}
    """
    values = np.asarray(by)
    scores, floor, people = np.asarray(delta), np.asarray(placebo_delta), np.asarray(nodes)
    if not len(values) == len(scores) == len(floor) == len(people):
        raise InvalidInputError(
            f"`by` must hold one value per triple, got {len(values)} values and {len(scores)} triples."
        )
    adjust = None if control is None else np.asarray(control)
    found: dict[object, Estimate] = {}
    for value in np.unique(values):
        inside = values == value
        found[value.item()] = excess(
            scores[inside],
            floor[inside],
            people[inside],
            control=None if adjust is None else adjust[inside],
            confidence=confidence,
            min_people=min_people,
        )
    return found


@dataclass(frozen=True, eq=False)
class ExcessMoments(Sums):
    """Sums over triples, from which estimates of an excess follow; the sums of parts add up.

    Attributes
    ----------
    n_people, total
        Number of people compared, and the sum of the weights of their triples.
    design
        Products of the regressors, a constant and the q controls, of shape (1 + q, 1 + q).
    product
        Products of the regressors and the differences, of shape (1 + q, n_columns).
    """

    n_people: float
    total: float
    design: Floats
    product: Floats

    @classmethod
    def of(
        cls,
        share: Array,
        control: Array,
        difference: Array,
        n_people: float | None = None,
    ) -> ExcessMoments:
        """Sums over triples, computed on the device of the arrays.

        Parameters
        ----------
        share
            Weight of each triple, of shape (n,): that of the person over the number of the person's triples.
        control, difference
            Of shape (n, q) and (n, n_columns).
        n_people
            Number of people; by default the sum of the weights.
        """
        design = _design(control)
        weighted, total = design * share[:, None], float(share.sum())
        products = (weighted.T @ design, weighted.T @ difference)
        return cls(total if n_people is None else n_people, total, *(as_numpy(product) for product in products))

    def fit(self) -> ExcessFit:
        """The weighted regression of the differences on the controls."""
        inverse: Floats = np.linalg.pinv(self.design / self.total, hermitian=True).astype(np.float64)
        return ExcessFit(round(self.n_people), self.total, inverse, inverse @ (self.product / self.total))


@dataclass(frozen=True, eq=False)
class ExcessFit:
    """Regressions of differences on controls: the estimates, and each triple's contribution to their error.

    Attributes
    ----------
    n_people, total
        Number of people compared, and the sum of the weights of their triples.
    inverse
        Inverse of the weighted products of the regressors.
    coefficients
        Intercept and slopes of each column, of shape (1 + q, n_columns).
    """

    n_people: int
    total: float
    inverse: Floats
    coefficients: Floats

    @property
    def values(self) -> Floats:
        """The estimates, of shape (n_columns,)."""
        intercept: Floats = self.coefficients[0]
        return intercept

    def residuals(self, share: Array, control: Array, difference: Array) -> Array:
        """Each triple's contribution to the error of each estimate; the arguments are those of `ExcessMoments.of`."""
        design = _design(control)
        inverse, coefficients = (like(rows, design) for rows in (self.inverse[0], self.coefficients))
        residual = difference - design @ coefficients
        residual *= (share / self.total * (design @ inverse))[:, None]  # the estimate is linear in the differences
        return residual


def _design(control: Array) -> Array:
    controls, xp = control[:, None] if control.ndim == 1 else control, namespace(control)
    constant = xp.ones((len(controls), 1), dtype=controls.dtype, device=device_of(controls))
    return xp.concat([constant, controls], axis=1)


def estimated(value: float, error: float, n: int, n_effective: float, confidence: float, note: str) -> Estimate:
    """An estimate with its interval, one-sided p-value and note, from its value and standard error."""
    df = max(n_effective - 1, 1.0)
    if error <= ROUNDING and abs(value) <= ROUNDING:
        note = _joined("pairs and placebo pairs differ by no more than rounding", note)
        return Estimate(0.0, 0.0, 0.0, 0.0, 1.0, n, note, df, n_effective)
    if n_effective < FEW_INDEPENDENT_PEOPLE:
        note = _joined(
            f"few independent people: {n} compared, worth {n_effective:.0f}; error rates are approximate", note
        )
    half = student_quantile(confidence, df) * error
    return Estimate(value, value - half, value + half, error, p_above(value, error, df), n, note, df, n_effective)


def left_out_note(n: int) -> str:
    """How many triples could not be used, in words; empty for none."""
    return f"{n} triples without a score left out" if n else ""


def too_few(n: int, min_people: int, note: str = "") -> Estimate:
    """No estimate, because too few people were compared."""
    needed = max(min_people, 2)
    return not_estimable(_joined(f"not estimated: {n} people with a triple, at least {needed} needed", note), n)


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def _checked(
    delta: ArrayLike, placebo_delta: ArrayLike, nodes: ArrayLike, control: ArrayLike | None, confidence: float
) -> tuple[NDArray[np.floating], Ints, Floats]:
    """Differences (n, k), people (n, m) and controls (n, q), or a clear refusal."""
    check_open_fraction(confidence, "confidence")
    # Large tables of single precision stay so: columns are made double a few at a time.
    scores, floor = (
        a if a.dtype == np.float32 else a.astype(np.float64) for a in map(np.asarray, (delta, placebo_delta))
    )
    people = np.asarray(nodes)
    people = people[:, None] if people.ndim == 1 else people
    adjust = np.zeros((len(scores), 0)) if control is None else np.asarray(control, dtype=np.float64)
    adjust = adjust[:, None] if adjust.ndim == 1 else adjust
    if scores.ndim != 2 or scores.shape != floor.shape or not len(scores) == len(people) == len(adjust):
        raise InvalidInputError(
            "`delta`, `placebo_delta`, `nodes` and `control` must have one row per triple, "
            f"got shapes {scores.shape}, {floor.shape}, {people.shape} and {adjust.shape}."
        )
    if people.dtype.kind not in "iu" or people.ndim != 2 or not 1 <= people.shape[1] <= 3 or people.min(initial=0) < 0:
        raise InvalidInputError(
            "`nodes` must hold one to three columns of non-negative person codes, "
            f"got {people.dtype} of shape {people.shape}."
        )
    ordered = np.sort(people, axis=1)
    if (ordered[:, 1:] == ordered[:, :-1]).any():
        raise InvalidInputError("`nodes` names one person twice in a triple; the people of a row must differ.")
    difference: NDArray[np.floating] = scores - floor
    return difference, people.astype(np.int64), adjust


def estimate_excesses(
    questions: Sequence[Question],
    parts: Parts,
    crew: Crew = ONE_THREAD,
    device: str | None = None,
) -> list[tuple[Estimate, ...]]:
    """The excess of each column of each question.

    The estimates equal those of `excess_columns` for all triples at once, up to rounding.

    Parameters
    ----------
    questions
        What to average.
    parts
        The triples.
    crew
        Who works on parts at the same time; the estimates are the same to the last bit for any.
    device
        Device on which sums are taken; None for the CPU. Estimates of different devices agree up to rounding.
    """
    if not questions:
        return []
    note = left_out_note(parts.n_left_out)
    found: list[list[Estimate]] = [[] for _ in questions]
    with one_thread_each():
        moments = excess_moments(questions, parts, crew, device)
        pieces: list[_Piece] = []
        for k, (question, moment) in enumerate(zip(questions, moments, strict=True)):
            n_people = 0 if moment is None else round(moment.n_people)
            if moment is None or n_people < max(MIN_PEOPLE, 2):
                found[k] = [too_few(n_people, MIN_PEOPLE, note)] * question.n_columns
            else:
                fit = moment.fit()
                pieces += [
                    _Piece(k, question, columns, replace(fit, coefficients=fit.coefficients[:, columns]))
                    for columns in _column_slices(question.n_columns, device)
                ]
        for blocks in _passes(pieces, parts.n_reference, device):
            sums = [_ClusterSums.zeros(block, parts.n_reference, device) for block in blocks]
            _add_people(sums, parts, crew)
            _add_couples(sums, parts, crew)
            for of_block in sums:
                for piece, estimates in zip(of_block.block, of_block.estimates(note), strict=True):
                    found[piece.place] += estimates
    return [tuple(estimates) for estimates in found]


@dataclass(frozen=True, eq=False)
class _Piece:
    """Some columns of a question that enough people answer, and their regressions; `place` is the question's."""

    place: int
    question: Question
    columns: slice
    fit: ExcessFit

    @property
    def n_columns(self) -> int:
        return len(self.fit.values)


def excess_moments(
    questions: Sequence[Question], parts: Parts, crew: Crew, device: str | None
) -> list[ExcessMoments | None]:
    """Sums that the regression of each question follows from; None without a part."""

    def of_part(part: Triples) -> list[ExcessMoments]:
        moments = []
        with device_turn(device):
            for question in questions:
                chosen, blocks = question.of(part), []
                for columns in _column_slices(question.n_columns, device):
                    there = chosen.only(columns).on(device)
                    blocks.append(ExcessMoments.of(there.share, there.control, there.difference, chosen.n_people))
                product = np.concatenate([block.product for block in blocks], axis=1)
                moments.append(replace(blocks[0], product=product))
        return moments

    found: list[ExcessMoments | None] = [None] * len(questions)
    for of_questions in crew.in_order(of_part, parts.parts()):
        for k, more in enumerate(of_questions):
            before = found[k]
            found[k] = more if before is None else before + more
    return found


def _column_slices(n_columns: int, device: str | None) -> list[slice]:
    width = _COLUMNS_AT_ONCE[device is not None]
    return [slice(first, min(first + width, n_columns)) for first in range(0, n_columns, width)]


def _passes(pieces: Sequence[_Piece], n_reference: int, device: str | None) -> Iterator[list[list[_Piece]]]:
    """Blocks of pieces that are added up together, in passes that keep their sums over the reference bounded."""
    width = _COLUMNS_AT_ONCE[device is not None]
    blocks = _filled(pieces, lambda piece: piece.n_columns, width)
    most = max(_MOST_SUMS, _ESTIMATES_AT_ONCE * n_reference)
    return _filled(blocks, lambda block: n_reference * sum(piece.n_columns + 1 for piece in block), most)


def _filled(items: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Consecutive items in lists of bounded size, each with one item at least."""
    found: list[T] = []
    room = most
    for item in items:
        if found and size(item) > room:
            yield found
            found, room = [], most
        found.append(item)
        room -= size(item)
    if found:
        yield found


def _add_people(sums: Sequence[_ClusterSums], parts: Parts, crew: Crew) -> None:
    # The function may be sent to processes, without the sums.
    device, n_reference, blocks = sums[0].device, parts.n_reference, [(s.block, s.of_piece) for s in sums]

    def of_part(part: Triples) -> tuple[Array, list[_PeopleSums]]:
        with device_turn(device):
            people = PeopleOfPart.of(_people(part, device), n_reference)
            found = [_PeopleSums.of(people, *_residuals(block, part, device), of_piece) for block, of_piece in blocks]
            return people.rows, found

    def of_parts(some: Iterable[Triples]) -> tuple[Array, list[_PeopleSums]]:
        total = [_ClusterSums.zeros(block, n_reference, device).people for block, _ in blocks]
        for rows, of_blocks in map(of_part, some):
            for before, more in zip(total, of_blocks, strict=True):
                before.add(rows, more)
        return placed(np.arange(n_reference), device), total

    items, width = parts.parts(), sum(len(s.of_piece) + len(s.block) for s in sums)
    if isinstance(items, Later) and n_reference * width <= _MOST_SENT:
        some = [items.keys[k : k + _PARTS_SENT] for k in range(0, len(items.keys), _PARTS_SENT)]
        found = crew.in_order(of_parts, Later(partial(map, items.load), some))
    else:
        found = crew.in_order(of_part, items)
    for rows, of_blocks in found:
        for total, more in zip(sums, of_blocks, strict=True):
            total.people.add(rows, more)


def _add_couples(sums: Sequence[_ClusterSums], parts: Parts, crew: Crew) -> None:
    device, n_reference, blocks = sums[0].device, parts.n_reference, [s.block for s in sums]

    def of_range(item: tuple[Triples, int, int]) -> list[Array] | None:
        part, low, high = item
        if not len(part):
            return None
        with device_turn(device):
            couples = couples_of_reference(_people(part, device), n_reference, low, high)
            return [squared_sums(couples, _residuals(block, part, device)[0]) for block in blocks]

    for of_blocks in crew.in_order(of_range, parts.ranges()):
        for total, more in zip(sums, of_blocks or (), strict=of_blocks is not None):
            squares = total.people.shared_squares
            squares += more


def _residuals(block: Sequence[_Piece], part: Triples, device: str | None) -> tuple[Array, Array]:
    """Residuals of all columns of a block, and weights for each piece; 0 for triples of the part not selected."""
    n_columns = sum(piece.n_columns for piece in block)
    residual, weight = (placed(np.zeros((len(part), n)), device) for n in (n_columns, len(block)))
    first = 0
    for k, piece in enumerate(block):
        there = piece.question.of(part).only(piece.columns).on(device)
        stop = first + piece.n_columns
        there.spread(piece.fit.residuals(there.share, there.control, there.difference), residual[:, first:stop])
        there.spread(there.share / piece.fit.total, weight[:, k])
        first = stop
    return residual, weight


def _people(part: Triples, device: str | None) -> People:
    columns = (part.unit, part.person_row, part.other, part.own)
    return People(*(placed(codes, device, "int64") for codes in columns))


@dataclass(frozen=True, eq=False)
class _PeopleSums:
    """Sums over the people in triples, for a block of columns.

    Attributes
    ----------
    leverage
        Weight of the triples of each person of the reference, of shape (n_reference, n_pieces).
    over_reference
        Sum of their residuals, of shape (n_reference, n_columns).
    outside_squares, outside_leverage
        Squared sums over people outside the reference; sums of the second and of the fourth power of their weights.
    person_squares
        Squared sums over the people that triples are about.
    shared_squares
        What is counted more than once.
    """

    leverage: Array
    over_reference: Array
    outside_squares: Array
    person_squares: Array
    shared_squares: Array
    outside_leverage: Array

    @classmethod
    def of(cls, people: PeopleOfPart, residual: Array, weight: Array, of_piece: Array) -> _PeopleSums:
        """Those of a part, only with the people of the reference who are in it; `of_piece` as in `_ClusterSums`."""
        outside, sums = people.is_outside_person, people.person.sums(residual)
        share = people.person.sums(weight)[outside]
        return cls(
            leverage=people.reference.sums(weight),
            over_reference=people.reference.sums(residual),
            outside_squares=deleted_squares(sums[outside], share[:, of_piece]),
            person_squares=(sums**2).sum(0),
            shared_squares=squared_sums(people.shared, residual),
            outside_leverage=namespace(share).stack([(share**2).sum(0), (share**4).sum(0)]),
        )

    @classmethod
    def zeros(cls, n_reference: int, n_columns: int, n_pieces: int, device: str | None) -> _PeopleSums:
        """No triples yet."""

        def zeros(*shape: int) -> Array:
            return placed(np.zeros(shape), device)

        return cls(
            leverage=zeros(n_reference, n_pieces),
            over_reference=zeros(n_reference, n_columns),
            outside_squares=zeros(n_columns),
            person_squares=zeros(n_columns),
            shared_squares=zeros(n_columns),
            outside_leverage=zeros(2, n_pieces),
        )

    def add(self, rows: Array, more: _PeopleSums) -> None:
        """Add, in place, those of a part; `rows` are the people of the reference who are in its triples, each once."""
        self.leverage[rows] += more.leverage
        self.over_reference[rows] += more.over_reference
        for name in ("outside_squares", "person_squares", "shared_squares", "outside_leverage"):
            total = getattr(self, name)
            total += getattr(more, name)


@dataclass(frozen=True, eq=False)
class _ClusterSums:
    """What the variances of a block of columns are made of.

    Attributes
    ----------
    block, of_piece
        The pieces of questions whose columns they are, and the place of each column's piece.
    people
        Sums over the people of all parts that were added.
    """

    block: Sequence[_Piece]
    of_piece: Array
    people: _PeopleSums
    device: str | None

    @classmethod
    def zeros(cls, block: Sequence[_Piece], n_reference: int, device: str | None) -> _ClusterSums:
        """No triples yet."""
        of_piece = np.repeat(np.arange(len(block)), [piece.n_columns for piece in block])
        zeros = _PeopleSums.zeros(n_reference, len(of_piece), len(block), device)
        return cls(block, placed(of_piece, device), zeros, device)

    def estimates(self, note: str) -> Iterator[list[Estimate]]:
        """Those of each piece."""
        sums = self.people
        of_reference = deleted_squares(sums.over_reference, sums.leverage[:, self.of_piece])
        variance = of_reference + sums.outside_squares + sums.shared_squares
        xp = namespace(variance)
        errors = xp.sqrt(xp.maximum(variance, sums.person_squares)).tolist()
        square = sums.leverage**2
        powers = xp.stack([square.sum(0), (square**2).sum(0)]) + sums.outside_leverage
        for k, (piece, of_weights) in enumerate(zip(self.block, powers.T.tolist(), strict=True)):
            own = [error for error, place in zip(errors, self.of_piece.tolist(), strict=True) if place == k]
            n_effective = effective_number(*of_weights)
            yield [
                estimated(value, error, piece.fit.n_people, n_effective, 0.95, note)
                for value, error in zip(piece.fit.values.tolist(), own, strict=True)
            ]


def excess_influence(
    questions: Sequence[Question],
    parts: Parts,
    reference_buckets: Ints,
    device: str | None = None,
    crew: Crew = ONE_THREAD,
) -> list[Floats]:
    """Influences of people on excesses, for each question of shape (N_BUCKETS, n_columns); no columns without people.

    Parameters
    ----------
    questions
        What is averaged.
    parts
        The triples, which are iterated over twice.
    reference_buckets
        Bucket of each person of the reference.
    device
        Where sums are taken; None for the CPU.
    crew
        Who works on parts at the same time; the influences are the same to the last bit for any.
    """
    fits = [
        None if one is None or round(one.n_people) < 1 else one.fit()
        for one in excess_moments(questions, parts, crew, device)
    ]
    buckets = placed(reference_buckets, device)

    def of_part(part: Triples) -> list[Array]:
        columns = (part.bucket, part.other, part.own)
        own, other, placebo = (placed(codes, device, "int64") for codes in columns)
        sums = []
        for question, fit in zip(questions, fits, strict=True):
            n_columns = 0 if fit is None else question.n_columns
            residual = placed(np.zeros((len(part), n_columns)), device)
            if fit is not None:
                there = question.of(part).on(device)
                there.spread(fit.residuals(there.share, there.control, there.difference), residual)
            sums.append(bucket_sums(residual, own, buckets[other], buckets[placebo]))
        return sums

    totals = [
        np.zeros((N_BUCKETS, 0 if fit is None else question.n_columns))
        for question, fit in zip(questions, fits, strict=True)
    ]
    for sums in crew.in_order(of_part, parts.parts()):
        for total, more in zip(totals, sums, strict=True):
            total += as_numpy(more)
    return totals
