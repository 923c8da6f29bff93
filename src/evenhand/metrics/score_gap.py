r"""The score gap at equal finances: who is worse off, by how much, and through which inputs.

People of one label with alike finances are put into leaves, and everyone in a leaf is given the same finances
(`matching.leaves`). What still differs between two people of a leaf is not finances. The gap is the coefficient of the
group in a regression with a constant for each leaf, in which functions of the actual finances are held constant: a leaf
is small, but its people are not equal.

Under the null hypothesis, the group's name could be anyone's in the leaf. With v the residuals of a regression without
the group, the statistic is T, the sum of v over the people of the group. Reshuffling the names within leaves gives its
distribution: a mean of 0, and, with :math:`n_1` of n people of a leaf in the group, the variance

.. math:: \sum_{leaves} \frac{n_1 (n - n_1)}{n (n - 1)} \sum_{people} v^2.

Covariances of the columns (inputs, total, probability, decision) have the same form. Where a group is small, names are
actually reshuffled, thousands of times; where both are large, the distribution is normal and needs no draws. p-values
of inputs are those of the largest of them all, which adjusts for their number and their correlation.

An interval holds the gaps c that are not rejected: those for which T of :math:`v - c a`, with a the adjusted group, is
within the same quantile. The ends solve a quadratic equation; the interval excludes 0 exactly if the test rejects it.

Applicants with several rows are one person: their rows are averaged, and applicants are reshuffled, not rows. Sampling
weights stay with the person while the names move.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import special
from scipy.sparse import csr_array

from evenhand.arrays import Bools, Floats, Ints, Keys, Sums, mixed_hash, person_hash
from evenhand.inputs.identity import MOST_COPIES
from evenhand.metrics.adjustment import correlated_draws
from evenhand.metrics.estimate import Estimate, not_estimable, p_two_sided, student_quantile
from evenhand.metrics.triples import N_BUCKETS
from evenhand.system.threads import ONE_THREAD, Crew, sum_in_order

_COMPONENTS = 4
_PEOPLE_PER_CONTROL = 8
_SMALLEST_PIVOT = 1e-9  # of the scaled controls
_ROUNDING = 1e-6  # attributions are computed in single precision
_LARGE = 300  # people of the smaller group from which the distribution is taken to be normal
_SHUFFLES, _MOST_SHUFFLES = 4_000, 20_000
_SHUFFLES_AT_ONCE = 500
_FEWEST_IN_TAIL = 20  # shuffles in which an input is farther out than its tail
_BARS = 41
_LEVEL = 0.05
_TIE = 1e-9  # by which equal statistics differ through rounding


@dataclass(frozen=True, eq=False)
class LeafPeople:
    """Some people in leaves, one per row.

    Attributes
    ----------
    leaf, group, label, by
        Codes of each; `by` holds those of the columns to split by.
    person, weight, bucket
        A hash that is the same for rows of the same person; the sampling weight; where influences are added up.
    finances
        Actual finances on the scale of the leaves, of shape (n, k).
    values
        With the finances of the leaf: the part of each input, their sum, the probability and the decision, of shape
        (n, n_columns).
    """

    leaf: NDArray[np.signedinteger]
    group: NDArray[np.signedinteger]
    label: NDArray[np.signedinteger]
    person: Keys
    weight: Floats
    bucket: NDArray[np.signedinteger]
    finances: NDArray[np.float32]
    values: NDArray[np.float32]
    by: Mapping[str, NDArray[np.signedinteger]]

    @classmethod
    def alike(
        cls,
        leaf: NDArray[np.signedinteger],
        group: NDArray[np.signedinteger],
        label: NDArray[np.signedinteger],
        finances: NDArray[np.float32],
    ) -> LeafPeople:
        """People of equal weight, each a different one, for `gap_coefficients`."""
        n, nothing = len(leaf), np.zeros(len(leaf), dtype=np.int64)
        values = np.zeros((n, 0), dtype=np.float32)
        return cls(leaf, group, label, person_hash(np.arange(n)), np.ones(n), nothing, finances, values, {})

    def __len__(self) -> int:
        return len(self.leaf)

    def rows(self, chosen: Ints | Bools | slice) -> LeafPeople:
        """Some of the people."""
        own = {f.name: getattr(self, f.name)[chosen] for f in fields(self) if f.name != "by"}
        return LeafPeople(**own, by={name: codes[chosen] for name, codes in self.by.items()})

    def cells(self, n_groups: int) -> Ints:
        """Codes of leaf and group."""
        return self.leaf.astype(np.int64) * n_groups + self.group

    @property
    def units(self) -> Keys:
        """Hashes of person and group."""
        return mixed_hash(self.person, self.group.astype(np.int64))


Parts = Callable[[], Iterable[LeafPeople]]
"""Iterates over all people anew at each call."""


@dataclass(frozen=True, eq=False)
class FinanceControls:
    """Functions of the finances to hold constant: linear, squared, products of principal components, each by label."""

    components: Floats

    @classmethod
    def of(cls, finances: NDArray[np.float32]) -> FinanceControls:
        """Controls for finances on the scale of the leaves, given those of the reference."""
        centered = finances - finances.mean(axis=0, dtype=np.float64)
        return cls(np.linalg.eigh(centered.T @ centered)[1][:, ::-1][:, :_COMPONENTS].copy())

    def values(self, people: LeafPeople) -> Floats:
        """The functions, of shape (n, n_controls); those that matter most come first."""
        finances = people.finances.astype(np.float64)
        along = finances @ self.components
        products = [along[:, [a]] * along[:, [b]] for a, b in combinations(range(along.shape[1]), 2)]
        every = np.hstack([finances, finances**2, *products])
        return np.hstack([every, every * people.label[:, None]])


@dataclass(frozen=True, eq=False)
class _Census:
    """Who is in which leaf: what is known before anything is averaged.

    Attributes
    ----------
    cell, n_units
        Codes leaf * n_groups + group that occur, ascending, and people of each; a person is in one cell.
    key, n_rows, home
        Of people with several rows: hashes of person and group, ascending, the number of rows, and the person's cell,
        the lowest of the rows'.
    """

    n_groups: int
    cell: Ints
    n_units: Ints
    key: Keys
    n_rows: Ints
    home: Ints

    @classmethod
    def of(cls, parts: Iterable[LeafPeople], n_groups: int, crew: Crew, *, is_given: bool) -> _Census:
        def keys_of(part: LeafPeople) -> tuple[Ints, Keys]:
            kept = part.weight > 0
            return part.cells(n_groups)[kept], part.units[kept]

        read = [*crew.in_order(keys_of, parts), (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint64))]
        code, unit = (np.concatenate(column) for column in zip(*read, strict=True))
        order = np.lexsort((code, unit))
        key, first, n_rows = np.unique(unit[order], return_index=True, return_counts=True)
        is_one = (n_rows > 1) & (is_given | (n_rows <= MOST_COPIES))
        key, n_rows, home = key[is_one], n_rows[is_one], code[order][first[is_one]]
        homes = np.r_[code[~np.isin(unit, key)] if len(key) else code, home]
        cell = np.unique(code)
        n_units = np.bincount(np.searchsorted(cell, homes), minlength=len(cell))
        return cls(n_groups, cell, n_units, key, n_rows, home)

    def row_weights(self, part: LeafPeople) -> tuple[Floats, Ints]:
        """The weight of each row, that of a person over the number of rows; and the person's place in `key`, or -1."""
        if not len(self.key):
            return part.weight, np.full(len(part), -1)
        place = np.minimum(np.searchsorted(self.key, part.units), len(self.key) - 1)
        place = np.where(self.key[place] == part.units, place, -1)
        return part.weight / np.where(place >= 0, self.n_rows[place], 1), place


@dataclass(frozen=True, eq=False)
class _Sums(Sums):
    """Weighted sums of controls and values, from which every regression follows.

    Attributes
    ----------
    cells
        Of each cell: sums of controls and values, and of the weights, of shape (n_cells, p + 1).
    products
        Of controls with controls and values in each group, of shape (n_groups, n_controls, p).
    """

    cells: Floats
    products: Floats

    @classmethod
    def of_part(cls, part: LeafPeople, census: _Census, controls: FinanceControls) -> _Sums:
        weight, _ = census.row_weights(part)
        held = controls.values(part)
        values = np.column_stack([held, part.values, np.ones(len(part))])
        cell = np.searchsorted(census.cell, part.cells(census.n_groups))
        cell[weight == 0] = 0  # those whom no one counts may be alone in a cell
        held *= weight[:, None]
        products = [held[own].T @ values[own, :-1] for own in (part.group == g for g in range(census.n_groups))]
        return cls(_sums_by(cell, values, len(census.cell), weight), np.stack(products))


def _sums_by(code: NDArray[np.signedinteger], values: Floats, n_codes: int, weight: Floats | None = None) -> Floats:
    """Weighted sums of the rows of each code, of shape (n_codes, n_columns)."""
    entries = (np.ones(len(code)) if weight is None else weight, code.astype(np.int64), np.arange(len(code) + 1))
    sums: Floats = np.asarray(csr_array(entries, shape=(len(code), n_codes)).T @ values)
    return sums


@dataclass(frozen=True, eq=False)
class _Fit:
    """The regression for two groups.

    The columns are those of the values and, last, the group itself, as adjusted for leaves and controls.

    Attributes
    ----------
    leaf
        The leaves of these people.
    slope, offset
        What a residual is short of the column: the controls times a slope of shape (n_controls, n_columns + 1), and a
        number for each leaf, of shape (n_leaves, n_columns + 1).
    statistic
        T of each column; of the last one, that of a gap of 1.
    n_own, n
        People of the group, and of both groups, in each leaf.
    """

    group: int
    reference_group: int
    leaf: Ints
    slope: Floats
    offset: Floats
    statistic: Floats
    n_own: Floats
    n: Floats

    @classmethod
    def of(cls, census: _Census, sums: _Sums, group: int, reference_group: int) -> _Fit:
        sides = census.cell % census.n_groups
        rows = np.flatnonzero(np.isin(sides, (group, reference_group)))
        leaf, place = np.unique(census.cell[rows] // census.n_groups, return_inverse=True)
        cells, is_own = np.column_stack([census.n_units, sums.cells])[rows], sides[rows] == group
        total, own = (_sums_by(place[some], cells[some], len(leaf)) for some in (slice(None), is_own))
        n, weight, n_own, of_own = total[:, 0], total[:, -1].copy(), own[:, 0], own[:, 1:].sum(axis=0)
        total = np.column_stack([total[:, 1:-1], own[:, -1]])  # the group itself is the last column
        mean = total / np.maximum(weight, np.finfo(np.float64).tiny)[:, None]
        # Products of what differs within leaves.
        n_controls = sums.products.shape[1]
        products = np.column_stack([sums.products[group] + sums.products[reference_group], of_own[:n_controls]])
        products -= total[:, :n_controls].T @ mean
        of_own = of_own - own[:, -1] @ mean
        used = np.arange(min(n_controls, max(int(n.sum() - len(leaf)) // _PEOPLE_PER_CONTROL, 0)))
        scale = np.sqrt(np.maximum(np.diag(products)[used], 0.0))
        used, scale = used[scale > _ROUNDING], scale[scale > _ROUNDING]
        design = products[np.ix_(used, used)] / np.outer(scale, scale)
        inverse = np.linalg.pinv(design, rcond=_SMALLEST_PIVOT, hermitian=True) / np.outer(scale, scale)
        slope = np.zeros((n_controls, mean.shape[1] - n_controls))
        slope[used] = inverse @ products[used, n_controls:]
        offset = mean[:, n_controls:] - mean[:, :n_controls] @ slope
        statistic = of_own[n_controls:] - of_own[:n_controls] @ slope
        return cls(group, reference_group, leaf, slope, offset, statistic, n_own, n)

    @property
    def share(self) -> Floats:
        """The factor of each leaf in the variance of T."""
        return self.n_own * (self.n - self.n_own) / np.maximum(self.n * (self.n - 1.0), 1.0)

    @property
    def n_mixed(self) -> tuple[int, int]:
        """People of each group in leaves with both."""
        mixed = self.share > 0
        return int(self.n_own[mixed].sum()), int((self.n - self.n_own)[mixed].sum())

    @property
    def is_shuffled(self) -> bool:
        """Whether names are reshuffled; otherwise the distribution is normal."""
        return min(self.n_mixed) < _LARGE

    def has(self, group: NDArray[np.signedinteger]) -> Bools:
        """Whether each person is in one of the two groups."""
        either: Bools = np.isin(group, (self.group, self.reference_group))
        return either

    def residuals(self, people: LeafPeople, controls: FinanceControls, weight: Floats) -> tuple[Floats, Ints]:
        """Weighted residuals of people of the two groups, of shape (n, n_columns + 1), and the place of their leaf."""
        place = np.searchsorted(self.leaf, people.leaf)
        residual = np.column_stack([people.values.astype(np.float64), people.group == self.group])
        residual -= controls.values(people) @ self.slope
        residual -= self.offset[place]
        residual *= weight[:, None]
        return residual, place


@dataclass(frozen=True, eq=False)
class _Spread(Sums):
    """How T varies when names are reshuffled; those of parts of the people add up.

    Attributes
    ----------
    covariance
        Of the columns of T, of shape (n_columns + 1, n_columns + 1), before residuals are centered in leaves.
    leaf_sums, influence
        Residuals by leaf; influences on each column by bucket, of shape (N_BUCKETS, n_columns).
    repeated
        Residuals of the people with several rows.
    kept
        Residuals, leaf and hash of everyone who can be reshuffled; empty unless names are.
    """

    covariance: Floats
    leaf_sums: Floats
    influence: Floats
    repeated: Floats
    kept: list[tuple[Floats, Ints, Keys]]

    @classmethod
    def of_part(cls, part: LeafPeople, census: _Census, controls: FinanceControls, fit: _Fit) -> _Spread:
        weight, place = census.row_weights(part)
        chosen = fit.has(part.group) & (weight > 0)
        part, weight, place = part.rows(chosen), weight[chosen], place[chosen]
        residual, leaf = fit.residuals(part, controls, weight)
        gap, adjusted = fit.statistic[:-1] / fit.statistic[-1], residual[:, -1:]
        influence = adjusted / (weight[:, None] * fit.statistic[-1]) * (residual[:, :-1] - gap * adjusted)
        is_single = place < 0
        return replace(
            cls.of_people(residual[is_single], leaf[is_single], part.units[is_single], fit),
            influence=_sums_by(part.bucket, influence, N_BUCKETS),
            repeated=_sums_by(place[~is_single], residual[~is_single], len(census.key)),
        )

    @classmethod
    def of_people(cls, residual: Floats, leaf: Ints, key: Keys, fit: _Fit) -> _Spread:
        share = fit.share[leaf]
        kept = (share > 0) & fit.is_shuffled
        sums = _sums_by(leaf, residual, len(fit.leaf))
        covariance = (share[:, None] * residual).T @ residual
        return cls(covariance, sums, np.zeros(1), np.zeros(1), [(residual[kept], leaf[kept], key[kept])])

    def with_repeated(self, census: _Census, fit: _Fit) -> _Spread:
        """With the people of several rows, each in one leaf."""
        leaf, group = np.divmod(census.home, census.n_groups)
        chosen = fit.has(group)
        home = np.searchsorted(fit.leaf, leaf[chosen])
        return self + self.of_people(self.repeated[chosen], home, census.key[chosen], fit)


@dataclass(frozen=True, eq=False)
class Shuffles:
    """How gaps are distributed if names are reshuffled: numbers of shuffles in bars of equal width.

    Attributes
    ----------
    observed
        The gap that was found.
    edges, counts
        Of the bars; those beyond the last bar are counted in it.
    is_drawn
        Whether names were reshuffled; otherwise the counts are those of a normal distribution.
    """

    observed: float
    edges: tuple[float, ...]
    counts: tuple[float, ...]
    is_drawn: bool


@dataclass(frozen=True, eq=False)
class GroupGap:
    """Gaps between two groups.

    Attributes
    ----------
    columns
        Group minus reference group for each column: negative if the group is worse off. p-values are two-sided; those
        of inputs are not adjusted, but their intervals hold for all inputs at once.
    p_adjusted
        p-values of the inputs, adjusted for their number and their correlation; NaN if an input is not tested.
    detectable
        For each column, the smallest gap that its test finds in 80% of cases.
    n_people, n_alone
        People of both groups in leaves with both, and in leaves with one of them only.
    influence
        Influences of people on each column by bucket, of shape (n_buckets, n_columns).
    shuffles
        The distribution of the total, and of the input with the smallest p-value, under the place of their columns.
    """

    columns: tuple[Estimate, ...]
    p_adjusted: Floats
    detectable: Floats
    n_people: int
    n_alone: int
    influence: Floats
    shuffles: Mapping[int, Shuffles]


def group_gaps(
    parts: Parts,
    controls: FinanceControls,
    sides: Sequence[tuple[int, int]],
    n_groups: int,
    is_tested: Bools,
    *,
    is_given: bool = False,
    random_state: int = 0,
    crew: Crew = ONE_THREAD,
) -> list[GroupGap]:
    """Gaps between each group and its reference group, given as two codes.

    Parameters
    ----------
    parts
        The people, whose first values are the parts of inputs and the next is their sum.
    controls
        The finances to hold equal.
    sides, n_groups
        Pairs of groups, and the number of all groups.
    is_tested
        For each input, whether it is tested: a part of finances, which are equal in a leaf, only comes from how they
        interact with other inputs.
    is_given
        Whether the user said which rows are the same person; otherwise a few identical rows are taken for one.
    random_state
        Seed of the shuffles.
    crew
        Who works on parts at the same time; the gaps are the same to the last bit for any.

    Returns
    -------
    Gaps in the order of the sides. All columns have the same regressors, so if columns add up to another column, so do
    their estimates.
    """
    missing = not_estimable("no leaf of people with alike finances has people of both groups", 0)
    none = np.full(len(is_tested) + 3, math.nan)
    nothing = GroupGap((missing,) * len(none), none[: len(is_tested)], none, 0, 0, np.zeros((0, len(none))), {})
    census = _Census.of(parts(), n_groups, crew, is_given=is_given)
    sums = sum_in_order(lambda part: _Sums.of_part(part, census, controls), parts(), crew)
    if sums is None or not len(census.cell):
        return [nothing] * len(sides)
    fits = [_Fit.of(census, sums, *pair) for pair in sides]
    asked = [fit for fit in fits if min(fit.n_mixed)]
    spreads: list[_Spread] = []
    for more in crew.in_order(lambda part: [_Spread.of_part(part, census, controls, fit) for fit in asked], parts()):
        spreads = [a + b for a, b in zip(spreads, more, strict=True)] if spreads else more
    whole, n_shuffles = dict(zip(asked, spreads, strict=True)), min(_SHUFFLES * len(sides), _MOST_SHUFFLES)
    found = [
        _tested(fit, whole[fit].with_repeated(census, fit), is_tested, n_shuffles, np.random.default_rng(random_state))
        if fit in whole
        else nothing
        for fit in fits
    ]
    return [replace(gap, n_alone=int(fit.n[fit.share == 0].sum())) for gap, fit in zip(found, fits, strict=True)]


def _tested(fit: _Fit, spread: _Spread, is_tested: Bools, n_shuffles: int, rng: np.random.Generator) -> GroupGap:
    """The gaps with their tests: by so many shuffles, or by the normal distribution if the groups are large."""
    mean = spread.leaf_sums / np.maximum(fit.n, 1)[:, None]
    statistic = fit.statistic - fit.n_own @ mean
    covariance = spread.covariance - ((fit.share * fit.n)[:, None] * mean).T @ mean
    unit, deviation = float(statistic[-1]), np.sqrt(np.maximum(np.diag(covariance), 0.0))
    values, errors = statistic[:-1] / unit, deviation[:-1] / abs(unit)
    is_flat = (errors <= _ROUNDING) & (np.abs(values) <= _ROUNDING)
    scale = np.where(is_flat, np.inf, np.maximum(deviation[:-1], _ROUNDING * abs(unit)))
    n_inputs, sizes = len(is_tested), np.abs(statistic[:-1]) / scale
    tested = np.flatnonzero(is_tested & ~is_flat[:n_inputs])
    n_people, df, drawn, heavy = sum(fit.n_mixed), float(min(fit.n_mixed) - 1), None, np.ones(n_inputs)
    if fit.is_shuffled:
        drawn = _shuffled(spread, fit, mean, n_shuffles, rng)[:, :-1]
        shuffled = np.abs(drawn) / scale
        p_values = (1 + (shuffled >= sizes - _TIE).sum(axis=0)) / (1 + n_shuffles)
        critical = _exceeded(shuffled)
        # Each input is measured by its own tail: one that few people have may be far out by chance.
        tail = max(_LEVEL / max(len(tested), 1), _FEWEST_IN_TAIL / n_shuffles)
        heavy = np.maximum(np.quantile(shuffled[:, :n_inputs], 1 - tail, axis=0), 1.0) / special.ndtri(1 - tail / 2)
    else:
        correlation = covariance[:-1, :-1] / np.outer(scale, scale)
        np.fill_diagonal(correlation, 1.0)
        shuffled = correlated_draws(correlation, rng)
        p_values = np.array([p_two_sided(size, 1.0, df) for size in sizes])
        critical = np.full(len(sizes), student_quantile(1 - _LEVEL, df))
    p_adjusted, shown = np.where(is_flat[:n_inputs], 1.0, np.nan), [n_inputs]
    if len(tested):
        # Half of the level is shared equally, half by variance among shuffles: neither depends on who is in the group.
        variance = errors[:n_inputs] ** 2
        share = np.minimum((1 / len(tested) + variance / variance[tested].sum()) / 2, 1.0)
        reach = special.ndtri(1 - _LEVEL * share / 2) * heavy
        largest = (shuffled[:, tested] / reach[tested]).max(axis=1)
        critical[:n_inputs] = _exceeded(largest[:, None]) * reach
        size = sizes[tested] / reach[tested]
        shown.append(int(tested[np.argmax(size.round(9))]))
        n_farther = len(largest) - np.searchsorted(np.sort(largest), size - _TIE)
        p_adjusted[tested] = (1 + n_farther) / (1 + len(largest))
        if drawn is None:  # beyond the resolution of the draws, Bonferroni's bound
            single = p_values[tested]
            p_adjusted[tested] = np.clip(single / share[tested], single, p_adjusted[tested])
    columns = []
    for k in range(len(values)):
        low, high = _interval(statistic[k], unit, covariance[[k, k, -1], [k, -1, -1]], critical[k])
        numbers = float(values[k]), low, high, float(errors[k]), float(p_values[k])
        note = "" if math.isfinite(high - low) else "so few people can be compared that the gap may be of any size"
        if is_flat[k]:
            numbers, note = (0.0, 0.0, 0.0, 0.0, 1.0), "the model does not use it differently at equal finances"
        columns.append(Estimate(*numbers, n_people, note, df))
    return GroupGap(
        columns=tuple(columns),
        p_adjusted=p_adjusted,
        detectable=np.where(is_flat, 0.0, critical + special.ndtri(0.8)) * np.where(is_flat, 0.0, errors),
        n_people=n_people,
        n_alone=0,
        influence=np.where(is_flat, 0.0, spread.influence),
        shuffles={
            k: _bars(float(values[k]), float(errors[k]), None if drawn is None else drawn[:, k] / unit) for k in shown
        },
    )


def _exceeded(shuffled: Floats) -> Floats:
    """What 5% of the shuffles reach, for each column; infinite if so few are possible that none is that rare."""
    ordered = np.sort(shuffled, axis=0)
    place = min(math.ceil((1 - _LEVEL) * (len(ordered) + 1)), len(ordered)) - 1
    return np.where((ordered >= ordered[-1] - _TIE).mean(axis=0) <= _LEVEL, ordered[place], math.inf)


def _interval(value: float, unit: float, covariance: Floats, critical: float) -> tuple[float, float]:
    """All gaps that are not rejected, given T, T of a gap of 1, and their variances and covariance."""
    if math.isinf(critical):
        return -math.inf, math.inf
    square = critical**2
    c, b, a = (np.array([value**2, value * unit, unit**2]) - square * covariance).tolist()
    root = math.sqrt(max(b * b - a * c, 0.0))
    if a > _TIE * unit**2:
        return (b - root) / a, (b + root) / a
    if c <= _TIE * value**2 or a >= 0:  # neither 0 nor anything far from it is rejected
        return -math.inf, math.inf
    # Gaps on both sides of 0 are not rejected; the estimate is on one of them.
    return ((b - root) / a, math.inf) if value * unit > 0 else (-math.inf, (b + root) / a)


def _bars(observed: float, error: float, drawn: Floats | None) -> Shuffles:
    """The distribution in bars."""
    reach = max(4 * error, 1.05 * abs(observed), _ROUNDING)
    edges = np.linspace(-reach, reach, _BARS + 1)
    if drawn is None:
        counts = _SHUFFLES * np.diff(special.ndtr(edges / max(error, _ROUNDING)))
    else:
        counts = np.histogram(np.clip(drawn, -reach, reach), edges)[0]
    return Shuffles(observed, tuple(edges.tolist()), tuple(counts.round(1).tolist()), drawn is not None)


def _shuffled(spread: _Spread, fit: _Fit, mean: Floats, n_shuffles: int, rng: np.random.Generator) -> Floats:
    """T of reshuffled names, of shape (n_shuffles, n_columns + 1).

    In every leaf, as many people as are in its smaller group are chosen without replacement (Floyd's algorithm). The
    residuals of a leaf sum to 0, so those of the larger group are known, too.
    """
    residual, home, key = (np.concatenate(column) for column in zip(*spread.kept, strict=True))
    order = np.lexsort((residual[:, 0], key, home))  # the same whatever the order of rows
    residual = (residual - mean[home])[order]
    leaf, first, n = np.unique(home[order], return_index=True, return_counts=True)
    n_own = fit.n_own[leaf].astype(np.int64)
    n_chosen, sign = np.minimum(n_own, n - n_own), np.where(2 * n_own <= n, 1.0, -1.0)
    most_first = np.argsort(-n_chosen, kind="stable")
    first, n, n_chosen, sign = (values[most_first] for values in (first, n, n_chosen, sign))
    drawn = np.empty((n_shuffles, residual.shape[1]))
    for start in range(0, n_shuffles, _SHUFFLES_AT_ONCE):
        n_draws = min(_SHUFFLES_AT_ONCE, n_shuffles - start)
        chosen: list[Ints] = []
        for k in range(int(n_chosen[0])):
            n_open = int((n_chosen > k).sum())  # leaves with someone left to choose
            last = (n - n_chosen + k)[:n_open]
            pick = rng.integers(0, last + 1, size=(n_draws, n_open))
            is_taken = np.zeros(pick.shape, dtype=np.bool_)
            for before in chosen:
                is_taken |= before[:, :n_open] == pick
            chosen.append(np.where(is_taken, last, pick))
        rows = np.hstack([first[: pick.shape[1]] + pick for pick in chosen])
        signs = np.concatenate([sign[: pick.shape[1]] for pick in chosen])
        entries = (np.tile(signs, n_draws), rows.ravel(), np.arange(0, rows.size + 1, rows.shape[1]))
        drawn[start : start + n_draws] = csr_array(entries, shape=(n_draws, len(residual))) @ residual
    return drawn


def gap_coefficients(
    people: LeafPeople, controls: FinanceControls, group: int, reference_group: int, weights: Floats
) -> Floats:
    """The coefficient of each person's value in the gap between two groups, of the shape of the weights.

    The gap is linear in the values, with coefficients that depend on who is compared and not on what is averaged: one
    product gives the gaps of many models. All are NaN if no leaf has both groups.

    Parameters
    ----------
    people
        Everyone; their values are not used.
    controls, group, reference_group
        As in `group_gaps`.
    weights
        Weightings of the people, of shape (n_weightings, n).
    """
    found = np.zeros(weights.shape)
    n_groups = 1 + int(people.group.max(initial=0))
    for row, weight in zip(found, weights, strict=True):
        part = replace(people, weight=people.weight * weight, values=np.zeros((len(people), 0), dtype=np.float32))
        census = _Census.of([part], n_groups, ONE_THREAD, is_given=True)
        fit = _Fit.of(census, _Sums.of_part(part, census, controls), group, reference_group)
        if not min(fit.n_mixed):
            row[:] = math.nan
            continue
        chosen = fit.has(part.group) & (part.weight > 0)
        some = part.rows(chosen)
        row[chosen] = fit.residuals(some, controls, some.weight)[0][:, -1] / fit.statistic[-1]
    return found
